"""Scripts under the real spark-submit: an example with the source, and the whole pipeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from tests.many_logs import write

# Java compiles most of what it would compile here in vain.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"


def submit(script: str, *arguments: object) -> str:
    """What a script prints."""
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"]
    for conf in ("spark.ui.enabled=false", "spark.sql.shuffle.partitions=1", "spark.app.name=submitted"):
        command += ["--conf", conf]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": SHORT_LIVED,
    }
    done = subprocess.run(
        [*command, str(EXAMPLES / script), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_example_runs_under_spark_submit(tmp_path: Path) -> None:
    write(tmp_path / "n1", "orders", 0, 7)
    said = submit("read_changes.py", "shop.orders", tmp_path / "n1")
    assert "|n1   |insert|7      |1970-01-01" in said


def test_pipeline_runs_under_spark_submit_with_the_master_of_the_command_line(tmp_path: Path) -> None:
    for node in ("n1", "n2"):
        write(tmp_path / node, "orders", 0, 5, each=2, node=node)
    config = tmp_path / "pipeline.toml"
    config.write_text(
        f"""
[pipeline]
name = "submitted"
checkpoint_directory = "{tmp_path}/checkpoint"
logs = ["{tmp_path}/n1", "{tmp_path}/n2"]
sinks = ["files"]
# Nobody listens there: what spark-submit says wins.
master = "spark://127.0.0.1:1"
spark = {{ "spark.sql.shuffle.partitions" = "7" }}

[files]
directory = "{tmp_path}/files"
format = "json"
compression = "none"
"""
    )
    said = submit("submit_pipeline.py", config, "--once", "--json")
    ended = json.loads(said.splitlines()[-1])
    assert (ended["pipeline"], ended["copies"], ended["records"]) == ("ended", 20, 10)
    files = [file for file in (tmp_path / "files").rglob("*.json*") if "_manifests" not in file.parts]
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(record["key"]["id"] for record in records) == list(range(10))
    # A local master has as many buckets as there are cores, a cluster sixteen.
    identity = json.loads(next((tmp_path / "checkpoint").glob("*.json")).read_text())
    assert identity["buckets"] == len(os.sched_getaffinity(0))
