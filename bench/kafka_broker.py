"""The peer: one Apache Kafka broker on loopback, its data on the disk under test, and its own Java client.

The broker is the sandbox's; the client is one Java file, compiled against the same jars. The broker runs with the heap
and collector options of Kafka's own start script. Topics are made with `flush.messages=1`, so that an acknowledgement
means synced, as ours does. Both processes are ended by their ids when the block is left.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Any, Self

from bench.harness import ROOT, CheckFailed, cpu_s_of, say
from penstock.errors import ServerFailed
from testkit import kafka_broker

HERE = Path(__file__).resolve().parent / "kafka"
CACHE = ROOT / ".cache"

# As in Kafka's own kafka-run-class.sh and kafka-server-start.sh.
_BROKER_OPTIONS = ["-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
_BROKER_OPTIONS += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]


def prepare() -> str:
    """Fetch the jars and compile the client, once; gives the class path."""
    jars = kafka_broker.prepare(CACHE, say)
    classes, source = jars.parent / "classes", HERE / "KafkaPeer.java"
    main = classes / "KafkaPeer.class"
    if not main.exists() or main.stat().st_mtime < source.stat().st_mtime:
        classes.mkdir(parents=True, exist_ok=True)
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True)  # noqa: S603, S607 - as a shell finds it
    return f"{jars}/*:{classes}"


class Broker:
    """A running broker and its warm client; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._path = prepare()
        self._data = directory / f"kafka-{uuid.uuid4().hex[:8]}"
        self._broker = kafka_broker.KafkaBroker(self._data, cache=CACHE, options=_BROKER_OPTIONS)
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
        assert self._broker.pid is not None
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
        say("starting the Kafka broker …")
        try:
            self._broker.start()
        except ServerFailed as error:
            raise CheckFailed(str(error)) from error
        self.address = self._broker.address
        self._client = subprocess.Popen(  # noqa: S603 - words of ours
            ["java", "-Xms512m", "-Xmx512m", "-cp", self._path, "KafkaPeer", self.address],  # noqa: S607 - as a shell finds it
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._answer()

    def _stop(self) -> None:
        client = self._client
        if client is not None:
            if client.poll() is None:
                os.kill(client.pid, signal.SIGTERM)
                client.wait(timeout=20)
            for pipe in (client.stdin, client.stdout):
                if pipe is not None:
                    pipe.close()
        self._broker.stop()
        self._client = None
        shutil.rmtree(self._data, ignore_errors=True)
