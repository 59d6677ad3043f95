"""A process with Spark, Delta and Spark Connect, as `spark_sql` is, and what tests ask of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testkit import maven

ROOT = Path(__file__).parent.parent.parent.parent
POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>delta</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
# Spark has everything else that they need.
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""
_JARS = (
    ("io.delta", "delta-spark_4.2_2.13", "4.4.0", ""),
    ("io.delta", "delta-storage", "4.4.0", ""),
    ("org.apache.spark", "spark-catalyst_2.13", "4.2.0", "<classifier>tests</classifier>"),
)
Sql = Callable[[str], list[dict[str, Any]]]


@dataclass(frozen=True)
class DeltaSpark:
    """Takes SQL, and clients of Spark Connect at an address."""

    sql: Sql
    remote: str


@contextmanager
def delta_spark(directory: Path) -> Iterator[DeltaSpark]:
    """The process, from its start to its end; its own files are in the directory."""
    jars = maven.fetch(
        POM.format("".join(_DEPENDENCY.format(*one) for one in _JARS)), ROOT / ".cache" / "delta", "Delta"
    )
    script = Path(__file__).with_name("spark_sql.py")
    environment = {
        **os.environ,
        # Python that Spark starts must have Penstock in it.
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Java compiles most of what it would compile here in vain.
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with (directory / "spark.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(script), str(jars), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
    assert process.stdin is not None
    assert process.stdout is not None

    def answer() -> list[dict[str, Any]]:
        assert process.stdout is not None
        line = process.stdout.readline()
        while line and not line.startswith("answer "):
            line = process.stdout.readline()
        assert line, (directory / "spark.log").read_text()[-4000:]
        found = json.loads(line.removeprefix("answer "))
        assert isinstance(found, list), found
        return found

    def ask(statement: str) -> list[dict[str, Any]]:
        assert process.stdin is not None
        process.stdin.write(json.dumps(statement) + "\n")
        process.stdin.flush()
        return answer()

    port = answer()[0]["port"]
    yield DeltaSpark(ask, f"sc://127.0.0.1:{port}")
    process.stdin.close()
    process.wait()
    process.stdout.close()
