"""Tail: how long after a change became durable its subscribers have it, with one subscriber and with a hundred.

The moment of durability is the return of the `fdatasync` that covered the block, taken inside the writer by a file
system that notes it; the moment of delivery is taken in the subscriber. Both are CLOCK_MONOTONIC, which all processes
of a machine share. Kafka's figure is its end-to-end latency (produce with `acks=all` until the consumer has it), so
ours is also given from the call of `append` on: that pair measures the same thing on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from bench.harness import (
    PAIRS_MIN,
    ROOT,
    CheckFailed,
    Run,
    Target,
    cpu_s_of,
    disk_read_bytes,
    options,
    percentile,
    quotients,
)
from bench.kafka_broker import Broker
from bench.workload import ROW_BYTES, SCHEMA, Batches
from penstock.log.follow import Follower, Tail
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.system.files import OsFile, OsFiles

MANY = 100
# Long enough for a hundred deliveries, so that one message's do not queue behind the last one's.
PAUSE_S = 0.005
DELIVERY_S_MAX = 30
# Where a block stands: file and offset.
Place = tuple[int, int]


class NotedFile(OsFile):
    """A file that notes when its last sync returned."""

    __slots__ = ("_note",)

    def __init__(self, fd: int, note: list[int]) -> None:
        super().__init__(fd)
        self._note = note

    def sync(self) -> None:
        super().sync()
        self._note[0] = time.monotonic_ns()


class NotedFiles(OsFiles):
    """The operating system's files; the data files' syncs are noted."""

    def __init__(self) -> None:
        self.synced = [0]

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        if not (write and ".avro" in path):
            return super().open(path, write=write, create=create)
        flags = os.O_CLOEXEC | os.O_RDWR | (os.O_CREAT if create else 0)
        return NotedFile(os.open(path, flags, 0o600), self.synced)


class Deliveries:
    """What one process's subscribers got, and when."""

    def __init__(self, subscribers: int) -> None:
        self.times: list[dict[Place, int]] = [{} for _ in range(subscribers)]

    def listener(self, subscriber: int) -> Any:
        times = self.times[subscriber]
        clock = time.monotonic_ns

        def deliver(batch: ChangeBatch) -> None:
            times[batch.file, batch.offset] = clock()

        return deliver

    def complete(self, count: int) -> bool:
        return all(len(times) >= count for times in self.times)


class Subscribers:
    """Subscribers of one log in this process: callbacks of one follower, or threads that each iterate a tail."""

    def __init__(self, directory: str, count: int, shape: str) -> None:
        self.deliveries = Deliveries(count)
        self._follower = Follower(directory)
        self._tails: list[Tail] = []
        self._threads: list[threading.Thread] = []
        for index in range(count):
            deliver = self.deliveries.listener(index)
            if shape == "callbacks":
                self._follower.listen(deliver)
            else:
                tail = Tail(self._follower, self._follower.position)
                thread = threading.Thread(target=_iterate, args=(tail, deliver))
                thread.start()
                self._tails.append(tail)
                self._threads.append(thread)

    def close(self) -> None:
        for tail in self._tails:
            tail.close()
        for thread in self._threads:
            thread.join()
        self._follower.close()


def _iterate(tail: Tail, deliver: Any) -> None:
    for batch in tail:
        deliver(batch)


class OtherProcess:
    """Subscribers in a process of their own, commanded by lines: `collect N` answers with the deliveries of a round."""

    def __init__(self, directory: Path, count: int, shape: str) -> None:
        self.count = count
        self._process = subprocess.Popen(  # noqa: S603 - words of ours
            [sys.executable, "-m", "bench.tail", "--subscriber", str(directory), str(count), shape],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._line()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=DELIVERY_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def collect(self, expected: int) -> list[dict[Place, int]]:
        """Wait until each subscriber has `expected` blocks of this round, and take them."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"collect {expected}\n")
        self._process.stdin.flush()
        answer = self._line()
        if "error" in answer:
            raise CheckFailed(answer["error"])
        return [{(file, offset): at for file, offset, at in one} for one in answer["times"]]

    def disk_read_bytes(self) -> int:
        return disk_read_bytes(self._process.pid)

    def cpu_s(self) -> float:
        return cpu_s_of(self._process.pid)

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CheckFailed("the subscriber process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


class SameProcess:
    """Subscribers in the writer's own process."""

    def __init__(self, directory: Path, count: int, shape: str) -> None:
        self.count = count
        self._subscribers = Subscribers(str(directory), count, shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._subscribers.close()

    def collect(self, expected: int) -> list[dict[Place, int]]:
        return _collect(self._subscribers.deliveries, expected)

    def disk_read_bytes(self) -> int:
        return disk_read_bytes()

    def cpu_s(self) -> float:
        return 0.0


def _collect(deliveries: Deliveries, expected: int) -> list[dict[Place, int]]:
    deadline = time.monotonic() + DELIVERY_S_MAX
    while not deliveries.complete(expected):
        if time.monotonic() > deadline:
            least = min(len(times) for times in deliveries.times)
            raise CheckFailed(f"a subscriber got {least} of {expected} blocks within {DELIVERY_S_MAX} s")
        time.sleep(0.01)
    taken = [dict(times) for times in deliveries.times]
    for times in deliveries.times:
        times.clear()
    return taken


class Lane:
    """One log, its writer here, its subscribers somewhere, and the latencies of each round."""

    def __init__(self, name: str, directory: Path, subscribers: int, shape: str, *, same_process: bool) -> None:
        self.name = name
        self._files = NotedFiles()
        path = directory / f"log-{uuid.uuid4().hex[:8]}"
        self._log = TableLog.open(str(path), SCHEMA, files=self._files)
        self._batches = Batches(ROW_BYTES)
        # The reader wants a log that has begun.
        self._log.append(self._batches.next())
        kind = SameProcess if same_process else OtherProcess
        self.subscribers: SameProcess | OtherProcess = kind(path, subscribers, shape)
        self.after_durable: list[list[float]] = []
        self.after_call: list[list[float]] = []
        self.disk_read = 0
        self.cpu_us_per_delivery: list[float] = []

    def round(self, messages: int, *, keep: bool = True) -> None:
        called: dict[Place, int] = {}
        durable: dict[Place, int] = {}
        batches = self._batches.take(messages)
        read, cpu = self.subscribers.disk_read_bytes(), self.subscribers.cpu_s()
        for batch in batches:
            begin = time.monotonic_ns()
            position = self._log.append(batch)
            place = (position.file, position.offset)
            called[place] = begin
            durable[place] = self._files.synced[0]
            time.sleep(PAUSE_S)
        deliveries = self.subscribers.collect(messages)
        read, cpu = self.subscribers.disk_read_bytes() - read, self.subscribers.cpu_s() - cpu
        for times in deliveries:
            if times.keys() != durable.keys():
                raise CheckFailed(f"{self.name}: a subscriber got other blocks than were appended")
        if not keep:
            return
        self.disk_read += read
        self.cpu_us_per_delivery.append(cpu * 1e6 / (messages * len(deliveries)))
        self.after_durable.append([(at - durable[p]) / 1000 for times in deliveries for p, at in times.items()])
        self.after_call.append([(at - called[p]) / 1000 for times in deliveries for p, at in times.items()])

    def close(self) -> None:
        self.subscribers.__exit__()
        self._log.close()


def measure(run: Run, chosen: argparse.Namespace) -> None:
    directory = Path(chosen.directory) / f"tail-{uuid.uuid4().hex[:8]}"
    directory.mkdir(parents=True)
    rounds, messages = PAIRS_MIN, 20 if chosen.quick else 300
    lanes: dict[str, Lane] = {}
    kafka: dict[str, list[list[float]]] = {}
    try:
        for where, same in (("another process", False), ("the same process", True)):
            for shape in ("callbacks", "iterators"):
                for count in (1, MANY):
                    name = f"{count} in {where}, {shape}"
                    lanes[name] = Lane(name, directory, count, shape, same_process=same)
        if chosen.no_kafka:
            _rounds(lanes, None, kafka, rounds, messages)
        else:
            with Broker(directory) as broker:
                _rounds(lanes, broker, kafka, rounds, messages)
    finally:
        for lane in lanes.values():
            lane.close()
        shutil.rmtree(directory, ignore_errors=True)
    _report(run, lanes, kafka, messages)


def _rounds(
    lanes: dict[str, Lane], broker: Broker | None, kafka: dict[str, list[list[float]]], rounds: int, messages: int
) -> None:
    """Every lane and every way of asking Kafka once per round, after a warm-up of each."""
    pause_us = int(PAUSE_S * 1e6)
    ways = {"sequential": 0, "sequential, paced": pause_us, "threaded": 0, "threaded, paced": pause_us}
    topic = "" if broker is None else broker.topic()
    for index in range(rounds + 1):
        for lane in lanes.values():
            lane.round(messages, keep=index > 0)
        if broker is None:
            continue
        for name, pause in ways.items():
            # More on the first round: broker and client are compiled as they run.
            answer = broker.latency(
                topic,
                size=ROW_BYTES,
                messages=messages * (1 if index else 4),
                pause_us=pause,
                mode=name.partition(",")[0],
            )
            if index:
                kafka.setdefault(name, []).append(answer["end_to_end_us"])


def _report(run: Run, lanes: dict[str, Lane], kafka: dict[str, list[list[float]]], messages: int) -> None:
    run.check(f"every subscriber got each of {messages} blocks of each round exactly once", True)
    best = min(kafka, key=lambda way: _median(kafka[way], 0.99), default="")
    for name, lane in lanes.items():
        for share, label in ((0.5, "p50"), (0.99, "p99")):
            run.value(
                f"durable → delivered {label}, {name}",
                [percentile(values, share) for values in lane.after_durable],
                "µs",
                note=f"CPU {statistics.median(lane.cpu_us_per_delivery):.1f} µs per delivery" if share == 0.5 else "",
            )
    if best:
        _against_kafka(run, lanes, kafka, best)
    for where in ("another process", "the same process"):
        for shape in ("callbacks", "iterators"):
            one, many = lanes[f"1 in {where}, {shape}"], lanes[f"{MANY} in {where}, {shape}"]
            run.ratio(
                f"durable → delivered p99, {MANY} ÷ 1 subscribers, {where}, {shape}",
                quotients(
                    [percentile(values, 0.99) for values in many.after_durable],
                    [percentile(values, 0.99) for values in one.after_durable],
                ),
                Target(at_most=2),
                ours=_median(many.after_durable, 0.99),
                peer=_median(one.after_durable, 0.99),
                unit="µs",
            )
    # In the writer's own process, what the writer reads (the file system's maps of free space) counts too.
    run.value(
        "bytes read from disk by tailing subscribers",
        [float(lane.disk_read) for name, lane in lanes.items() if "another process" in name],
        "B",
        Target(at_most=0),
        worst=True,
    )


def _against_kafka(run: Run, lanes: dict[str, Lane], kafka: dict[str, list[list[float]]], best: str) -> None:
    peer = kafka[best]
    for name, lane in lanes.items():
        # One subscriber is held against Kafka; a hundred are held against one.
        judged = name.startswith("1 in")
        for what, rounds, share, limit in (
            ("durable → delivered p99", lane.after_durable, 0.99, 0.3),
            ("append called → delivered p99", lane.after_call, 0.99, None),
            ("append called → delivered p50", lane.after_call, 0.5, None),
        ):
            run.ratio(
                f"{what}, {name} ÷ Kafka end to end",
                quotients([percentile(v, share) for v in rounds], [percentile(v, share) for v in peer]),
                Target(at_most=limit) if limit is not None and judged else None,
                ours=_median(rounds, share),
                peer=_median(peer, share),
                unit="µs",
                note=f"Kafka: {best}",
            )
    for way, values in kafka.items():
        run.value(f"Kafka: end to end p50, {way}", [percentile(v, 0.5) for v in values], "µs")
        run.value(f"Kafka: end to end p99, {way}", [percentile(v, 0.99) for v in values], "µs")


def _median(rounds: Sequence[Sequence[float]], share: float) -> float:
    return statistics.median(percentile(values, share) for values in rounds)


def subscriber(directory: str, count: int, shape: str) -> int:
    """The other process: subscribe, say so, then answer until standard input ends."""
    subscribers = Subscribers(directory, count, shape)
    try:
        _answer({"ready": True})
        for line in sys.stdin:
            _, expected = line.split()
            try:
                taken = _collect(subscribers.deliveries, int(expected))
            except CheckFailed as error:
                _answer({"error": str(error)})
                continue
            _answer({"times": [[[*place, at] for place, at in times.items()] for times in taken]})
    finally:
        subscribers.close()
    return 0


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--subscriber"]:
        return subscriber(given[1], int(given[2]), given[3])
    chosen = options("tail", "durable to delivered, against Kafka's end to end", given)
    run = Run("tail", chosen.quick)
    measure(run, chosen)
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
