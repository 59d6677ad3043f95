"""The Spark session of a pipeline: settings under which small batches are quick and nothing listens to the network.

A session that is there already, as in a notebook, is used as it is. Under spark-submit, what its command line says wins
over the settings.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import SparkFailed, ToolMissing
from penstock.pipeline import spark_version
from penstock.system import extras
from penstock.system.java import java_major, javas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_LEAST = 17
# spark-submit sets this variable, and has a Java machine running already.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"

# The checkpoint manager that writes through the plain file system API halves what a small batch costs. Adaptive
# execution plans again what a job of one shuffle cannot gain from. A batch is a few large rows, so code that is made
# for its rows costs more than it saves; and what goes to Python at once stays small, because Java makes room for it by
# copying what it has so far. What Spark keeps of jobs that are done is for pages that nobody sees. Files of
# shuffles stay until Java collects its garbage, which it otherwise seldom needs to.
_USUAL = {
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.liveUpdate.period": "-1",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.python.worker.reuse": "true",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
QUIET = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
# On one machine nothing goes over a network that would be slower than packing and unpacking it, and whose faults the
# checksums of shuffles would help to explain. The Java machine plans batches and passes bytes on: the thorough compiler
# would cost more than its code saves in a day.
_LOCAL = {
    "spark.driver.extraJavaOptions": f"{QUIET} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
    "spark.broadcast.compress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def find_java() -> Path:
    """A Java that Spark can use. ToolMissing says what to install."""
    for java in javas():
        if (java_major(java) or 0) >= _JAVA_LEAST:
            return java
    raise ToolMissing(
        f"Spark needs Java {_JAVA_LEAST} or later, which is not here; install it, for example with: "
        f"apt-get install openjdk-{_JAVA_LEAST}-jre-headless, or point JAVA_HOME at it"
    )


def check_installed() -> None:
    """Raise ToolMissing when there is no PySpark here, or no Java that it can use."""
    extras.need("Spark's pipeline", ("spark",))
    spark_version.check()
    if _SUBMITTED not in os.environ:
        find_java()


def submitted() -> dict[str, str]:
    """Spark's settings as spark-submit was given them; none when this process was not started by it."""
    if _SUBMITTED not in os.environ or importlib.util.find_spec("pyspark") is None:
        return {}
    from pyspark import SparkConf, SparkContext

    # The settings are in the Java machine that spark-submit made; this connects to it.
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def spark_session(name: str, master: str, own: Mapping[str, str]) -> SparkSession:
    """The session that is active, or a new one with these settings over the usual ones."""
    extras.need("Spark's pipeline", ("spark",))
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    given = submitted()
    if not given:
        os.environ.setdefault("JAVA_HOME", str(find_java().resolve().parent.parent))
    master = given.get("spark.master", master)
    # Workers must run the Python that has Penstock in it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {**_USUAL, "spark.driver.extraJavaOptions": QUIET, **own}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {**_USUAL, **_LOCAL, **own}
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**settings, **given}.items():
        builder = builder.config(key, value)
    try:
        with _quick_workers():
            return builder.getOrCreate()
    except Exception as error:
        raise SparkFailed(f"Spark did not start: {str(error).splitlines()[0][:300]}", master=master) from error


@contextmanager
def _quick_workers() -> Iterator[None]:
    """A Java machine that is started in here starts Python processes with the module in `worker_start`."""
    before = os.environ.get("PYTHONPATH")
    own = str(Path(__file__).parent / "worker_start")
    os.environ["PYTHONPATH"] = own if before is None else os.pathsep.join((own, before))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
