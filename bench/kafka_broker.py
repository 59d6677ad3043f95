"""The peer: one Apache Kafka broker on loopback, its data on the disk under test, and its own Java client.

The jars come through Maven (bench/kafka/pom.xml) into the repository's cache directory; the client is one Java file,
compiled against them. The broker runs with the heap and collector options of Kafka's own start script. Topics are
made with `flush.messages=1`, so that an acknowledgement means synced, as ours does. Both processes are ended by
their ids when the block is left.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any, Self

from bench import maven
from bench.harness import ROOT, CheckFailed, cpu_s_of, say

HERE = Path(__file__).resolve().parent / "kafka"
JARS = ROOT / ".cache" / "kafka"
READY_S = 180
ANSWER_S = 600

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
# As in Kafka's own kafka-run-class.sh and kafka-server-start.sh.
_BROKER_OPTIONS = ["-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
_BROKER_OPTIONS += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]


def prepare() -> str:
    """Fetch the jars and compile the client, once; gives the class path."""
    classes = JARS / "classes"
    pom, source = HERE / "pom.xml", HERE / "KafkaPeer.java"
    jars = maven.fetch(pom, JARS, "Kafka's jars")
    main = classes / "KafkaPeer.class"
    if not main.exists() or main.stat().st_mtime < source.stat().st_mtime:
        classes.mkdir(parents=True, exist_ok=True)
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True)
    return f"{jars}/*:{classes}"


class Broker:
    """A running broker and its warm client; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._path = prepare()
        self._data = directory / f"kafka-{uuid.uuid4().hex[:8]}"
        self._broker: subprocess.Popen[bytes] | None = None
        self._client: subprocess.Popen[str] | None = None
        self._appended: dict[str, int] = {}
        self.address = ""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def topic(self, *, name: str | None = None, flush_messages: int = 1) -> str:
        """Make a topic of one partition; each produce request is synced before its acknowledgement."""
        name = name or f"bench-{uuid.uuid4().hex[:8]}"
        self._ask("topic", name, flush_messages)
        self._appended[name] = 0
        return name

    def append(
        self, topic: str, *, appenders: int, size: int, records: int, linger_ms: int = 0, producers: int = 1
    ) -> dict[str, Any]:
        """Appenders that each wait for their own acknowledgement (acks=all)."""
        answer = self._ask("append", topic, appenders, size, records, linger_ms, producers)
        self._appended[topic] += records
        return answer

    def pipeline(self, topic: str, *, size: int, records: int) -> dict[str, Any]:
        """One producer that does not wait for acknowledgements until the end."""
        answer = self._ask("pipeline", topic, size, records)
        self._appended[topic] += records
        return answer

    def latency(self, topic: str, *, size: int, messages: int, pause_us: int, mode: str) -> dict[str, Any]:
        """Produce to receive, one message at a time; `mode` is sequential or threaded."""
        answer = self._ask("latency", topic, size, messages, pause_us, mode)
        self._appended[topic] += messages
        return answer

    def complete(self, topic: str) -> bool:
        """Whether the topic holds exactly what was appended."""
        return self.end(topic) == self._appended[topic]

    def end(self, topic: str) -> int:
        """How many records the topic has."""
        return int(self._ask("end", topic)["end"])

    def cpu_s(self) -> float:
        """CPU-seconds of broker and client so far."""
        assert self._broker is not None
        assert self._client is not None
        return cpu_s_of(self._broker.pid) + cpu_s_of(self._client.pid)

    def _ask(self, *words: object) -> dict[str, Any]:
        assert self._client is not None
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(" ".join(map(str, words)) + "\n")
        self._client.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._client is not None
        assert self._client.stdout is not None
        line = self._client.stdout.readline()
        if not line:
            raise CheckFailed("the Kafka client ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise CheckFailed(f"the Kafka client failed: {answer['error']}")
        return answer

    def _start(self) -> None:
        self._data.mkdir(parents=True)
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        settings = self._data / "server.properties"
        settings.write_text(_PROPERTIES.format(port=port, controller=controller, data=self._data / "data"))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        storage = ["java", "-XX:TieredStopAtLevel=1", "-cp", self._path, "kafka.tools.StorageTool"]
        subprocess.run(
            [*storage, "format", "-t", cluster, "-c", str(settings)],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=READY_S,
        )
        say("starting the Kafka broker …")
        with (self._data / "broker.log").open("wb") as output:
            self._broker = subprocess.Popen(
                ["java", *_BROKER_OPTIONS, "-cp", self._path, "kafka.Kafka", str(settings)],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._wait(port)
        self._client = subprocess.Popen(
            ["java", "-Xms512m", "-Xmx512m", "-cp", self._path, "KafkaPeer", self.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._answer()

    def _wait(self, port: int) -> None:
        assert self._broker is not None
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._broker.poll() is not None:
                log = (self._data / "broker.log").read_text(errors="replace")[-2000:]
                raise CheckFailed(f"the Kafka broker ended with {self._broker.returncode}: {log}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise CheckFailed(f"the Kafka broker did not answer within {READY_S} s")

    def _stop(self) -> None:
        for process in (self._client, self._broker):
            if process is None or process.poll() is not None:
                continue
            os.kill(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
        if self._client is not None:
            for pipe in (self._client.stdin, self._client.stdout):
                if pipe is not None:
                    pipe.close()
        self._broker = self._client = None
        shutil.rmtree(self._data, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
