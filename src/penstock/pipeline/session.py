"""The Spark session of a pipeline: settings under which small batches are quick and nothing listens to the network.

A session that is there already, as in a notebook or under spark-submit, is used as it is.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ToolMissing, Unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_LEAST = 17
_ASK_S = 60

# The checkpoint manager that writes through the plain file system API halves what a small batch costs. Adaptive
# execution plans again what a job of one shuffle cannot gain from.
_USUAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
_LOCAL = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def find_java() -> Path:
    """A Java that Spark can use. ToolMissing says what to install."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    candidates += [Path(on_path)] if on_path else []
    candidates += sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    for java in candidates:
        if (_major(java) or 0) >= _JAVA_LEAST:
            return java
    raise ToolMissing(
        f"Spark needs Java {_JAVA_LEAST} or later, which is not here; install it, for example with: "
        f"apt-get install openjdk-{_JAVA_LEAST}-jre-headless, or point JAVA_HOME at it"
    )


def _major(java: Path) -> int | None:
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', answer.stderr)
    return int(match.group(1)) if match else None


def check_installed() -> None:
    """Raise ToolMissing when there is no PySpark here, or no Java that it can use."""
    if importlib.util.find_spec("pyspark") is None:
        raise ToolMissing("PySpark is not installed; install it with: pip install 'penstock[spark,delta]'")
    find_java()


def spark_session(name: str, master: str, own: Mapping[str, str]) -> SparkSession:
    """The session that is active, or a new one with these settings over the usual ones."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ToolMissing("PySpark is not installed; install it with: pip install 'penstock[spark]'") from error
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    java = find_java()
    os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
    # Workers must run the Python that has Penstock in it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    quiet = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
    settings = {**_USUAL, "spark.driver.extraJavaOptions": quiet, **own}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {**_LOCAL, **settings}
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise Unreachable(f"Spark did not start: {str(error).splitlines()[0][:300]}", master=master) from error
