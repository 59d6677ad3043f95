"""The peer of the agent: Debezium's connector for Cassandra 5, as the program it is on a node, into a Kafka broker.

It finds segments in a cdc_raw directory of its own and takes the schema from a running node, whose tables have the ids
that the segments name. It stays up from round to round, so that only its first one is cold. What it has delivered is
counted in the broker's topics.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from bench.harness import ROOT, CheckFailed, cpu_s_of, memory_of
from bench.kafka_broker import Broker
from penstock.sandbox import cassandra_jars
from penstock.sandbox.cassandra_server import module_options
from penstock.sandbox.java_process import free_port
from penstock.system.java import java_major
from testkit import maven

HERE = Path(__file__).resolve().parent / "debezium"
PLACE = ROOT / ".cache" / "debezium"
READY_S = 180
ROUND_S = 900
PREFIX = "bench"


class Debezium:
    """A running connector; a context manager."""

    def __init__(self, directory: Path, broker: Broker, node: str, tables: Sequence[str], *, flush_ms: int = 0) -> None:
        jars = maven.fetch(HERE / "pom.xml", PLACE, "Debezium")
        java = cassandra_jars.java_for(cassandra_jars.LATEST, ROOT / ".cache")
        self.directory = directory.absolute()
        for name in ("offsets", "relocation/archive", "relocation/error", "cdc_raw", "commitlog", "data"):
            (self.directory / name).mkdir(parents=True)
        self._broker = broker
        self._topics = [f"{PREFIX}.{table}" for table in tables]
        for topic in self._topics:
            # Not synced for each message: what is measured is the connector.
            broker.topic(name=topic, flush_messages=2**63 - 1)
        self._http_port = free_port()
        given = {
            "directory": str(self.directory),
            "kafka": broker.address,
            "address": node,
            "http_port": str(self._http_port),
            "flush_ms": str(flush_ms),
        }
        for file in ("connector.properties", "application.conf", "cassandra.yaml"):
            text = (HERE / file).read_text()
            for key, value in given.items():
                text = text.replace("{" + key + "}", value)
            (self.directory / file).write_text(text)
        (self.directory / "logback.xml").write_text(_LOGBACK)
        command = [str(java), "-Xmx1g", *module_options(java_major(java) or 0)]
        command += [f"-Dcassandra.storagedir={self.directory}"]
        command += [f"-Dlogback.configurationFile={self.directory / 'logback.xml'}", "-cp", f"{jars}/*"]
        command += ["io.debezium.connector.cassandra.CassandraConnectorTask"]
        with (self.directory / "output.log").open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - words of ours
                [*command, str(self.directory / "connector.properties")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.kill(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def delivered(self) -> int:
        """How many events stand in the topics."""
        return sum(self._broker.end(topic) for topic in self._topics)

    def take(self, segments: Sequence[Path], expected: int) -> tuple[float, float]:
        """Hand over finished segments and wait until `expected` more events are delivered; wall and CPU-seconds."""
        goal = self.delivered() + expected
        cpu, wall = self.cpu_s(), time.monotonic()
        for segment in segments:
            hand_over(segment, self.directory / "cdc_raw")
        deadline = time.monotonic() + ROUND_S
        while (found := self.delivered()) < goal:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise CheckFailed(f"Debezium delivered {found} of {goal} events: {self._said()}")
            time.sleep(0.05)
        return time.monotonic() - wall, self.cpu_s() - cpu

    def cpu_s(self) -> float:
        return cpu_s_of(self._process.pid)

    def memory_bytes(self) -> int:
        return memory_of(self._process.pid)["VmRSS"]

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/ping", timeout=1) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.2)
        raise CheckFailed(f"Debezium did not start: {self._said()}")

    def _said(self) -> str:
        return (self.directory / "output.log").read_text(errors="replace")[-2000:]


def hand_over(segment: Path, directory: Path) -> None:
    """Put a finished segment into a cdc_raw directory: the log first, then the index that says so."""
    index = segment.with_name(segment.name.removesuffix(".log") + "_cdc.idx")
    os.link(segment, directory / segment.name)
    # The connector looks at an index file as soon as it is there.
    part = directory / (index.name + ".tmp")
    shutil.copyfile(index, part)
    part.rename(directory / index.name)


_LOGBACK = """\
<configuration>
  <appender name="output" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="output"/></root>
</configuration>
"""
