"""Spark as the benchmarks run it: one local session for both sides, with the peers' jars, and what its processes cost.

Both sides run in the same JVM under the settings that the pipeline gives a session, so that only what they do differs.
CPU-seconds are those of the whole tree: the JVM, its Python workers, those that have ended, and the driver's Python.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import ROOT, CheckFailed, memory_of, say
from penstock.pipeline.session import QUIET, spark_session
from penstock.pipeline.source.source import register
from penstock.telemetry import set_up_logging
from testkit import maven

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CORES = 2
# Spark gives the process of a Python source ten seconds to come up; on a busy machine it takes longer now and then.
_ATTEMPTS = 10
_LOOK_S = 0.02
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>{}</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
# Spark has everything else that they need.
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""
KAFKA = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "4.1.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
DELTA = (
    ("io.delta", "delta-spark_4.2_2.13", "4.4.0"),
    ("io.delta", "delta-storage", "4.4.0"),
)
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The default of 50 is meant for logs of large tables, and costs the peer seconds with each commit here.
    "spark.databricks.delta.snapshotPartitions": str(CORES),
}


def jars(name: str, artifacts: Sequence[tuple[str, str, str]]) -> str:
    """The jars of a connector, as `spark.jars` wants them."""
    pom = _POM.format(name, "".join(_DEPENDENCY.format(*artifact) for artifact in artifacts))
    found = maven.fetch(pom, ROOT / ".cache" / name, f"the jars of {name}", say)
    return ",".join(str(jar) for jar in sorted(found.glob("*.jar")))


# What the pipeline's sessions have otherwise, because it passes a few large rows on: a peer's rows are many.
AS_SPARK = {
    "spark.driver.extraJavaOptions": QUIET,
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.shuffle.compress": "true",
    "spark.shuffle.spill.compress": "true",
    "spark.broadcast.compress": "true",
}


@contextmanager
def session(directory: Path, *, peers: bool = True, **settings: str) -> Iterator[SparkSession]:
    """A local session with the source registered; its files go below `directory`. `peers`: others run in it too."""
    set_up_logging("warning")
    say("starting Spark …")
    own = {
        "spark.driver.memory": "3g",
        # A query that is stopped between two batches complains of it; what really fails is raised here anyway.
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "spark"),
        **(AS_SPARK if peers else {}),
        **settings,
    }
    made = spark_session("penstock-bench", f"local[{CORES}]", own)
    try:
        register(made)
        yield made
    finally:
        made.stop()
        gateway = type(made.sparkContext)._gateway
        if gateway is not None:
            # The JVM ends when its standard input does; until then its files cannot be deleted.
            gateway.shutdown()
            process = gateway.proc
            process.stdin.close()
            process.wait(timeout=60)


class Cost:
    """CPU-seconds of a session: its JVM with all that came from it, and this process."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway
        if gateway is None:
            raise CheckFailed("there is no JVM of this process")
        self._jvm: int = gateway.proc.pid
        # What each process had used at the last reading, itself and with children that it waited for, and its parent.
        self._last: dict[int, tuple[float, float, int]] = {}
        # Of processes that have ended and that nobody waited for, as Spark's workers.
        self._unclaimed = 0.0

    def cpu_s(self) -> float:
        found = tree_cpu(self._jvm)
        for pid, (own, _, parent) in self._last.items():
            if pid not in found:
                claimed = found[parent][1] - self._last[parent][1] if parent in found and parent in self._last else own
                self._unclaimed += max(0.0, own - claimed)
        self._last = found
        return time.process_time() + self._unclaimed + sum(own + waited for own, waited, _ in found.values())

    def memory_bytes(self) -> tuple[int, int]:
        """Resident bytes without mapped files: of the JVM, and of its Python workers and this process together."""
        jvm, python = 0, memory_of()["RssAnon"]
        for pid in tree(self._jvm):
            try:
                taken = memory_of(pid).get("RssAnon", 0)
            except OSError:
                continue
            if pid == self._jvm:
                jvm = taken
            else:
                python += taken
        return jvm, python


def tree(root: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(name))
    out = [root]
    for pid in out:
        out += children.get(pid, ())
    return out


def tree_cpu(root: int) -> dict[int, tuple[float, float, int]]:
    """Of a process and all that descend from it: CPU-seconds, those of children that it waited for, and the parent.

    What ends while the figures are read would count twice or not at all, so they are read again until nothing did.
    """
    tick = os.sysconf("SC_CLK_TCK")
    for _ in range(_ATTEMPTS):
        pids = tree(root)
        found = [_stat(pid) for pid in pids]
        if all(found) and tree(root) == pids:
            return {
                pid: (sum(map(int, one[11:13])) / tick, sum(map(int, one[13:15])) / tick, int(one[1]))
                for pid, one in zip(pids, found, strict=True)
            }
    raise CheckFailed("the processes of Spark come and go too quickly to be counted")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; none when the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def finish(make: Callable[[], DataStreamWriter], checkpoint: Path) -> None:
    """Run a query to its own end."""
    run_until(make, checkpoint, lambda _: False)


def run_until(make: Callable[[], DataStreamWriter], checkpoint: Path, enough: Callable[[StreamingQuery], bool]) -> None:
    """Run a query from an empty checkpoint until it has done enough, or has come to its own end.

    It is started again when Spark gave up on its Python side.
    """
    from pyspark.errors import StreamingQueryException

    for attempt in range(_ATTEMPTS):
        shutil.rmtree(checkpoint, ignore_errors=True)
        query = make().option("checkpointLocation", str(checkpoint)).start()
        try:
            while query.isActive and not enough(query):
                time.sleep(_LOOK_S)
            if not query.isActive:
                query.awaitTermination()
            return
        except StreamingQueryException as error:
            if "connect back" not in str(error) or attempt == _ATTEMPTS - 1:
                raise
            say("Spark gave up on a Python worker that was slow to start; again …")
        finally:
            query.stop()
