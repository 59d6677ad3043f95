"""A real Kafka broker: one JVM on the loopback address that is broker and controller at once.

The tests of the Kafka sink and the benchmarks run against it. Its jars come through Maven into a cache directory, once.
It is made to start quickly and to cost little; topics have one partition unless whoever makes them says otherwise.
`stop` and `kill` can be followed by another `start` on the same files and ports.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.errors import ServerFailed
from penstock.sandbox.java_process import JavaProcess, JavaServer, free_port, port_open
from testkit import maven

VERSION = "4.3.1"
_FORMAT_S = 180
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-nop</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions=1
default.replication.factor=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""
QUICK = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")


def prepare(cache: Path, note: Callable[[str], None] = lambda _: None) -> Path:
    """The directory with the jars; they are fetched when they are not there yet."""
    return maven.fetch(POM, cache.absolute() / f"kafka-{VERSION}", f"Kafka {VERSION}", note)


class KafkaBroker(JavaServer):
    """One broker; a context manager that starts and stops it."""

    def __init__(
        self,
        directory: Path,
        *,
        cache: Path,
        options: Sequence[str] = QUICK,
        settings: Mapping[str, str] | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.directory = directory.absolute()
        self._jars = prepare(cache, note)
        self._settings = dict(settings or {})
        self.port = free_port()
        self._controller = free_port()
        self._file = self.directory / "server.properties"
        command = ["java", *options, "-cp", f"{self._jars}/*", "kafka.Kafka", str(self._file)]
        super().__init__(JavaProcess(f"Kafka {VERSION}", command, self.directory, lambda: port_open(self.port)))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> None:
        """Start the broker, on new files the first time."""
        data = self.directory / "data"
        if not data.exists():
            self._format(data)
        super().start(wait=wait)

    def _format(self, data: Path) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        text = _PROPERTIES.format(port=self.port, controller=self._controller, data=data)
        text += "".join(f"{name}={value}\n" for name, value in self._settings.items())
        self._file.write_text(text, encoding="utf-8")
        # Without the highest bit the text cannot begin with a dash, which the tool would take for an option.
        number = uuid.uuid4().int >> 1
        cluster = base64.urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")
        tool = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{self._jars}/*", "kafka.tools.StorageTool"]
        done = subprocess.run(  # noqa: S603 - words of ours
            [*tool, "format", "-t", cluster, "-c", str(self._file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_FORMAT_S,
            check=False,
        )
        if done.returncode:
            raise ServerFailed(f"Kafka's storage could not be made: {done.stdout.decode(errors='replace')[-500:]}")
