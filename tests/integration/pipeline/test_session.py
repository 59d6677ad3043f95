"""A session of Spark as the pipeline starts it, and what another user of the machine could see or do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog
from structlog.testing import capture_logs

from penstock.pipeline.worker_process import task_begins
from tests.integration.pipeline.replica_load import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANARY = "canary-of-a-password"
PROGRAM = """
import os, stat, sys
from pathlib import Path
from penstock.pipeline import scratch
from penstock.pipeline.session import spark_session

place = scratch.prepare(Path(sys.argv[1]))
spark = spark_session("test", "local[1]", {"spark.mine.password": os.environ["CANARY"]}, place)
seen = []
for process in Path("/proc").iterdir():
    try:
        seen.append((process / "cmdline").read_bytes())
    except OSError:
        continue
print("java", any(b"org.apache.spark.deploy.SparkSubmit" in line for line in seen))
print("shown", any(os.environb[b"CANARY"] in line for line in seen))
print("given", spark.conf.get("spark.mine.password"))
print("authenticates", spark.sparkContext.getConf().get("spark.authenticate"))
rows = spark.sparkContext.parallelize(range(100), 2).map(lambda n: (n % 3, n)).groupByKey().count()
print("rows", rows)
print("scratch", any(place.iterdir()), oct(stat.S_IMODE(place.stat().st_mode)))
spark.stop()
"""


def test_nothing_of_a_session_is_open_to_others(tmp_path: Path) -> None:
    hostile, mark = tmp_path / "hostile", tmp_path / "ran"
    hostile.mkdir()
    for name in ("grp", "random"):
        (hostile / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    command = [sys.executable, "-P", "-c", PROGRAM, str(tmp_path / "scratch")]
    environment = {**os.environ, "CANARY": CANARY}
    ended = subprocess.run(
        command, cwd=hostile, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stderr
    said = dict(line.split(" ", 1) for line in ended.stdout.splitlines())
    assert said == {
        "java": "True",
        "shown": "False",
        "given": CANARY,
        "authenticates": "true",
        "rows": "3",
        "scratch": "True 0o700",
    }
    assert not mark.exists()


def logging_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that logs, and a library in it that prints."""
    task_begins()
    structlog.get_logger().warning("brokers away", waiting=7)
    sys.stderr.write("printed by a worker\n")
    sys.stderr.flush()
    yield from batches


def test_what_java_and_workers_write_are_events_of_the_drivers_log(spark: SparkSession) -> None:
    java: Any = spark._jvm
    with capture_logs() as said:
        spark.range(1).mapInArrow(logging_task, "id long").collect()
        disk = java.org.apache.logging.log4j.LogManager.getLogger("org.example.Disk")
        disk.error('no "room"\nleft', java.java.lang.IllegalStateException("of all"))
        disk.warn("not for us")
        disk.fatal("last words")
        wait_for(lambda: {"printed by a worker", "last words"} <= {event["event"] for event in said})
    found = {event["event"]: event for event in said}
    assert found["brokers away"] == {
        "event": "brokers away",
        "log_level": "warning",
        "logger": "spark",
        "waiting": 7,
    }
    assert (found["printed by a worker"]["log_level"], found["printed by a worker"]["logger"]) == ("info", "spark")
    error = found['no "room"\nleft']
    assert (error["log_level"], error["logger"]) == ("error", "spark.Disk")
    assert error["exception"].startswith("java.lang.IllegalStateException: of all")
    assert found["last words"]["log_level"] == "critical"
    assert "not for us" not in found
