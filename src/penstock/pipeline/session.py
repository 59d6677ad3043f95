"""The Spark session of a pipeline: settings under which small batches are quick and nobody else can talk to Spark.

A session that is there already, as in a notebook, is used as it is. Under spark-submit, what its command line says wins
over the settings. Settings reach Java in a file that only this user may read: what stands on a command line, every user
of the machine may read, and some settings are passwords. What Java writes goes to the log and nowhere else.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import shlex
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from penstock.errors import SparkFailed, ToolMissing
from penstock.pipeline import spark_version
from penstock.system import extras, umask
from penstock.system.java import java_major, javas
from penstock.telemetry import relayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = structlog.get_logger()

_JAVA_LEAST = 17
_ON_CLUSTERS = "docs/concepts/threats.md"
# Keeps Python from looking for modules in the working directory first.
SAFE_PATH = "PYTHONSAFEPATH"
# spark-submit sets this variable, and has a Java machine running already.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
# A machine that has ended has closed its output by then.
_LAST_WORDS_S = 5.0

# The checkpoint manager that writes through the plain file system API halves what a small batch costs. Adaptive
# execution plans again what a job of one shuffle cannot gain from. A batch is a few large rows, so code that is made
# for its rows costs more than it saves; and what goes to Python at once stays small, because Java makes room for it by
# copying what it has so far. What Spark keeps of jobs that are done is for pages that nobody sees. Files of
# shuffles stay until Java collects its garbage, which it otherwise seldom needs to. A query that does not end
# when it is stopped must not keep the pipeline from ending.
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
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.python.worker.reuse": "true",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    f"spark.executorEnv.{SAFE_PATH}": "1",
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
    # The driver unpacks objects that it is sent, and every user of the machine can connect to it.
    "spark.authenticate": "true",
}
# On a cluster that gives out a secret of its own, the same, and nothing in the clear: plans carry logins.
_CLUSTER = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
_WITH_SECRETS = ("k8s://", "yarn")
# What the Java machine writes that this process has started. There is one at most.
_java: JavaOutput | None = None


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


def spark_session(name: str, master: str, own: Mapping[str, str], scratch: Path | None = None) -> SparkSession:
    """The session that is active, or a new one with these settings over the usual ones.

    `scratch` is an empty directory for what Spark leaves behind; see the module of that name.
    """
    extras.need("Spark's pipeline", ("spark",))
    from pyspark import SparkContext
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
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = _settings(master, own, scratch, submitted=bool(given))
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**settings, **given}.items():
        builder = builder.config(key, value)
    try:
        if not given:
            _start_java(settings, scratch)
        session = builder.getOrCreate()
    except Exception as error:
        # One that answers has told the reason in its answer.
        said = last_words() if SparkContext._gateway is None else ""
        reason = str(error).splitlines()[0][:300].rstrip(".")
        raise SparkFailed(f"Spark did not start: {reason}{said}", master=master) from error
    if _java is not None:
        _java.answers()
    return session


def last_words() -> str:
    """What the Java machine that this process has started wrote last; empty when that is not known."""
    words = "" if _java is None else _java.last_words(_LAST_WORDS_S)
    return f"; it wrote last:{words}" if words else ""


def kill_java() -> None:
    """End the Java machine that this process has started, at once; its Python processes end with it."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()


def _settings(master: str, own: Mapping[str, str], scratch: Path | None, *, submitted: bool) -> dict[str, str]:
    """The settings of a new session: the usual ones, those of the place it runs at, and the operator's own."""
    local = master.startswith("local")
    usual = {**_USUAL, "spark.driver.extraJavaOptions": QUIET, **(_LOCAL if local else {})}
    if not local and not submitted:
        if master.startswith(_WITH_SECRETS):
            usual |= _CLUSTER
        elif own.get("spark.authenticate") != "true":
            log.warning("anybody who can connect to this Spark can run code in it", master=master, see=_ON_CLUSTERS)
    mask = umask.chosen()
    if mask is not None:
        # Java's own files follow the umask that Java began with; those of Hadoop's library follow this.
        usual["spark.hadoop.fs.permissions.umask-mode"] = mask
        usual[f"spark.executorEnv.{umask.VARIABLE}"] = mask
    if scratch is not None and not submitted:
        usual["spark.local.dir"] = str(scratch)
        usual["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
        usual["spark.driver.extraJavaOptions"] += f' "-Djava.io.tmpdir={scratch}"'
    return {**usual, **own}


def _start_java(settings: Mapping[str, str], scratch: Path | None) -> None:
    """Start the Java machine, when there is none yet, with its settings in a file."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        return
    handle, file = tempfile.mkstemp(".properties", "penstock-", scratch)
    try:
        with open(handle, "w", encoding="utf-8") as opened:
            opened.write(properties_text(settings))
        more = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        arguments = f"--load-spark-defaults --properties-file {shlex.quote(file)} {more}"
        with _workers(), _environment(PYSPARK_SUBMIT_ARGS=arguments, **relayed()):
            SparkContext._ensure_initialized(gateway=_launch())
    finally:
        os.unlink(file)


def _launch() -> Any:
    """Start the Java machine; what it writes is read here."""
    from pyspark.java_gateway import launch_gateway

    global _java
    _java = JavaOutput()
    try:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            popen_kwargs={"stdout": _java.writer, "stderr": _java.writer}
        )
    finally:
        _java.close_writer()
    return gateway


def properties_text(settings: Mapping[str, str]) -> str:
    """Settings as a properties file of Java's: one to a line, whatever stands in them."""
    return "".join(f"{_escaped(name, key=True)}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(text: str, *, key: bool = False) -> str:
    out = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\f", "\\f")
    if key:
        return re.sub(r"([ =:#!])", r"\\\1", out)
    return f"\\{out}" if out.startswith(" ") else out


@contextmanager
def _workers() -> Iterator[None]:
    """A Java machine that is started in here starts Python processes with the module in `worker_start`.

    They look for modules where this process does, and not in the working directory: what lies there is not ours. An
    empty part of the path would mean that directory too.
    """
    given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    path = os.pathsep.join((str(Path(__file__).parent / "worker_start"), *given))
    with _environment(PYTHONPATH=path, **{SAFE_PATH: "1"}):
        yield


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Environment variables for processes that are started in here."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# What Spark's Java machine writes, and with it the Python processes that it starts: every line becomes a log event.
#
# Spark prints where its parent does, at any moment: into a live view, or between the JSON lines of a log. So it is
# given a pipe instead of a terminal, and a thread reads that. A line that is an event already, as `log4j2.properties`
# and our own workers print them, keeps its level and its facts; any other one is the text of an event. The last lines
# are kept, because a machine that does not start, or dies, says why only there. In a program that has not set
# structlog up, lines go to Python's own logging.

_LINES_KEPT = 12
_LINE_BYTES_MAX = 64 << 10
_SHOWN_MAX = 300
_LEVELS = {"trace": logging.DEBUG, "warn": logging.WARNING, "fatal": logging.CRITICAL}


class JavaOutput:
    """The reading end of one Java machine's output. `writer` is given to the process, and then closed here."""

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        self._last: deque[str] = deque(maxlen=_LINES_KEPT)
        # What is printed on the way to a machine that answers matters only when it does not come to that.
        self._level = logging.DEBUG
        self._thread = threading.Thread(target=self._read, args=(reader,), name="spark-output", daemon=True)
        self._thread.start()

    def close_writer(self) -> None:
        """Leave the pipe to the processes that have it: it ends with the last of them."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def answers(self) -> None:
        """The machine has started: from now on, what it writes is news."""
        self._level = logging.INFO

    def last_words(self, wait_s: float = 0.0) -> str:
        """The last lines, each on a line of its own; `wait_s`: for the end of a process that is ending."""
        self._thread.join(wait_s)
        return "".join(f"\n  {line[:_SHOWN_MAX]}" for line in self._last)

    def _read(self, reader: int) -> None:
        with open(reader, "rb") as lines:
            while line := lines.readline(_LINE_BYTES_MAX):
                text = line.decode(errors="backslashreplace").rstrip()
                if text:
                    self._take(text)

    def _take(self, text: str) -> None:
        level, facts = _event(text) or (self._level, {"event": text, "logger": "spark"})
        event = facts.pop("event")
        self._last.append(event if "exception" not in facts else f"{event}: {facts['exception']}")
        if structlog.is_configured():
            log.log(level, event, **facts)
        else:
            # In a program of somebody else's, structlog would print to standard output, where the program's data is.
            told = " ".join((event, *(f"{name}={value}" for name, value in facts.items())))
            logging.getLogger("penstock").log(level, "%s", told)


def _event(text: str) -> tuple[int, dict[str, Any]] | None:
    """The level and the facts of a line that is an event; None when it is not."""
    if not text.startswith("{"):
        return None
    try:
        facts = json.loads(text)
    except ValueError:
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("event"), str):
        return None
    name = str(facts.pop("level", "info")).lower()
    level = _LEVELS.get(name) or logging.getLevelNamesMapping().get(name.upper(), logging.INFO)
    facts.pop("timestamp", None)
    return level, {"logger": "spark", **{key: value for key, value in facts.items() if value != ""}}
