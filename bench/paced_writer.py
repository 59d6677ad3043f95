"""A writer at a steady rate, with a consumer that waits, in a process of its own: what they cost is not the pipeline's.

`python -m bench.paced_writer DIRECTORY TABLES CHANGES_PER_S SECONDS BROKER TOPIC` encodes everything first, writes one
tick, and says how many changes that were. On `quiet N` it writes N single changes with a pause between two; on `go` it
writes a tick every so often, to every table as much, and single changes in between. The single changes go to a table of
their own, whose log has default settings: each is durable when `append` returns. From then on its record is awaited in
the topic. Every answer is a line of JSON: how many changes were written so far, and in how many milliseconds each of
the single ones came.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from bench.harness import ROOT, CheckFailed
from bench.records import changes_of, schema_of
from penstock.log.table_log import TableLog
from penstock.settings import Acknowledge, LogSettings

TICK_S = 0.2
# Between two single changes while nothing else is written.
PAUSE_S = 0.1
SINGLE = schema_of("single")
_DELIVERY_S_MAX = 120


class Singles:
    """Single changes, and when each of them came to the consumer. One partition: they come in the log's order."""

    def __init__(self, log: TableLog, broker: str, topic: str) -> None:
        from confluent_kafka import Consumer

        self._log = log
        self._logged: list[float] = []
        self._received: list[float] = []
        self._told = 0
        self._came = threading.Condition()
        self._ended = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": broker, "group.id": topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def write(self) -> None:
        self._log.append(changes_of(SINGLE, len(self._logged), 1))
        self._logged.append(time.monotonic())

    def delivered_ms(self) -> list[float]:
        """Wait for all that were written, and tell of those not told of yet."""
        with self._came:
            if not self._came.wait_for(lambda: len(self._received) >= len(self._logged), _DELIVERY_S_MAX):
                raise CheckFailed(f"{len(self._received)} of {len(self._logged)} single changes came")
        if len(self._received) > len(self._logged):
            raise CheckFailed("a single change came twice")
        first, self._told = self._told, len(self._logged)
        return [(self._received[number] - self._logged[number]) * 1000 for number in range(first, self._told)]

    def _receive(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                with self._came:
                    self._received.append(time.monotonic())
                    self._came.notify_all()


def main() -> None:
    directory, tables, rate, seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    broker, topic = sys.argv[5:7]
    each = round(rate * TICK_S) // tables
    schemas = [schema_of(f"t{number}") for number in range(tables)]
    count = 1 + round(seconds / TICK_S)
    ticks = [[changes_of(schema, tick * each, each) for schema in schemas] for tick in range(count)]
    # Hundreds of syncs a tick would be the disk's benchmark.
    hasty = LogSettings(acknowledge=Acknowledge.WRITTEN, reserve_bytes=0)
    written = 0

    def answer(**more: Any) -> None:
        print(json.dumps({"written": written, **more}), flush=True)

    with ExitStack() as opened:
        logs = [
            opened.enter_context(TableLog.open(str(directory / str(schema.table)), schema, settings=hasty, node="n1"))
            for schema in schemas
        ]
        single = opened.enter_context(TableLog.open(str(directory / str(SINGLE.table)), SINGLE, node="n1"))
        singles = opened.enter_context(Singles(single, broker, topic))

        def tick(batches: list[Any]) -> int:
            for log, batch in zip(logs, batches, strict=True):
                log.append(batch)
            singles.write()
            return each * tables + 1

        written += tick(ticks[0])
        answer()
        for line in sys.stdin:
            what, _, number = line.strip().partition(" ")
            if what == "quiet":
                # The first ones of the load before them do not count.
                singles.delivered_ms()
                for _ in range(int(number)):
                    singles.write()
                    written += 1
                    time.sleep(PAUSE_S)
                answer(delivered_ms=singles.delivered_ms())
            else:
                begun = time.monotonic()
                for at, batches in enumerate(ticks[1:]):
                    time.sleep(max(0.0, begun + at * TICK_S - time.monotonic()))
                    written += tick(batches)
                answer()
                answer(delivered_ms=singles.delivered_ms())


class PacedWriter:
    """The other side of it; a context manager, entered when the first tick is written."""

    def __init__(self, directory: Path, tables: int, rate: int, seconds: float, broker: str, topic: str) -> None:
        given = map(str, (directory, tables, rate, seconds, broker, topic))
        self._process = subprocess.Popen(  # noqa: S603 - words of ours
            [sys.executable, "-m", "bench.paced_writer", *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            bufsize=1,
        )
        self.written = 0

    def __enter__(self) -> Self:
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def quiet(self, count: int) -> list[float]:
        """Single changes and nothing else: in how many milliseconds each was delivered."""
        self._ask(f"quiet {count}")
        delivered: list[float] = self._answer()["delivered_ms"]
        return delivered

    def go(self) -> None:
        """Let it write at its rate; returns when it has written everything."""
        self._ask("go")
        self._answer()

    def delivered_ms(self) -> list[float]:
        """After `go`: in how many milliseconds each single change between the others was delivered."""
        delivered: list[float] = self._answer()["delivered_ms"]
        return delivered

    def _ask(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CheckFailed("the writer has ended")
        answer: dict[str, Any] = json.loads(line)
        self.written = answer["written"]
        return answer


if __name__ == "__main__":
    main()
