"""Durable append: how near the log comes to what the disk can do, and how far ahead of Kafka it is.

Three questions. What share of the raw `pwrite` + `fdatasync` rate is left at 256 KiB batches, with as many syncs on
both sides? How much longer than a raw sync does one acknowledgement take? How many 1 KB records per second do 64
appenders get, each waiting for its own acknowledgement, as threads and as callbacks, beside a Kafka broker with
`acks=all` and `flush.messages=1` on the same disk? The log sets disk space aside ahead of its end (no zeroes are
written), so the raw file that it is judged by does too; the plain one is shown beside it. All that was acknowledged is
read back and compared before a figure counts.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.harness import (
    PAIRS_MIN,
    Run,
    Sample,
    Target,
    cpu_s,
    interleave,
    options,
    percentile,
    quotients,
    say,
)
from bench.kafka_broker import Broker
from bench.workload import ROW_BYTES, SCHEMA, Batches, Ledger
from penstock.log.group_commit import Ticket
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.model.position import Position
from penstock.system.files import OsFiles

APPENDERS = 64
LARGE = 256 << 10
# A slice lasts no longer than this, because the disk's own speed moves from second to second.
SLICE_S_MAX = 0.2
# As much as the log sets aside at a time, once it is large.
RESERVE_BYTES = 32 << 20
# How many rounds the broker runs before it is measured, at least and at most.
WARM_MIN = 4
WARM_MAX = 12


class RawFile:
    """The limit: the same bytes, `pwrite` and `fdatasync`, nothing else.

    The log sets disk space aside ahead of its end, which makes syncs faster; with `reserve` the raw file does so too,
    and that is the limit that counts.
    """

    def __init__(self, path: Path, *, reserve: bool) -> None:
        path.unlink(missing_ok=True)
        self._file = OsFiles().open(str(path), write=True, create=True)
        self._end = 0
        self._reserved = 0 if reserve else sys.maxsize

    def append(self, data: bytes | memoryview) -> None:
        if self._end + len(data) > self._reserved:
            self._file.reserve(self._end, len(data) + RESERVE_BYTES)
            self._reserved = self._end + len(data) + RESERVE_BYTES
        self._file.pwrite(data, self._end)
        self._file.sync()
        self._end += len(data)

    def close(self) -> None:
        self._file.close()


class Bench:
    """One log and one raw file side by side in a directory of their own."""

    def __init__(self, run: Run, directory: Path) -> None:
        self.run = run
        self.directory = directory / f"append-{uuid.uuid4().hex[:8]}"
        self.directory.mkdir(parents=True)

    def new_log(self) -> tuple[TableLog, Path]:
        path = self.directory / f"log-{uuid.uuid4().hex[:8]}"
        return TableLog.open(str(path), SCHEMA), path

    def verify(self, path: Path, ledger: Ledger, what: str) -> None:
        reader = LogReader(str(path))
        try:
            ledger.verify(reader.read())
        finally:
            reader.close()
        self.run.check(f"{what}: {ledger.changes} changes read back equal, each at its position", True)

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def rate(bench: Bench, slice_of: Slice, name: str, *, reserve: bool, judged: bool, pairs: int, count: int) -> None:
    """MB/s at 256 KiB batches against the raw file, in slices of `count` batches."""
    log, path = bench.new_log()
    raw = RawFile(bench.directory / "raw", reserve=reserve)
    batches, ledger = Batches(LARGE), Ledger()
    ours = partial(_our_large, log, slice_of, batches, count, ledger)
    theirs = partial(_raw_large, raw, batches, count)
    ours()
    theirs()
    a, b = interleave(ours, theirs, pairs)
    log.close()
    raw.close()
    bench.verify(path, ledger, f"append 256 KiB, {name}")
    with LogReader(str(path)) as reader:
        shared = ledger.changes / batches.count / sum(1 for _ in reader.read())
    longest = max(sample.wall_s for sample in a + b)
    if longest > SLICE_S_MAX:
        say(f"a slice took {longest:.2f} s: the disk's speed may have moved within a pair")
    bench.run.ratio(
        f"append 256 KiB, {name} ÷ {_peer(reserve)}, MB/s",
        quotients([s.rate for s in a], [s.rate for s in b]),
        Target(at_least=0.90) if judged else None,
        ours=statistics.median(s.rate for s in a) / 1e6,
        peer=statistics.median(s.rate for s in b) / 1e6,
        unit="MB/s",
        note=f"{shared:.2f} batches per sync; longest slice {longest * 1000:.0f} ms; "
        f"CPU {_cpu_ms_per_mb(a):.2f} vs {_cpu_ms_per_mb(b):.2f} ms/MB",
    )


def _peer(reserve: bool) -> str:
    return "raw fdatasync" if reserve else "raw fdatasync, nothing set aside"


Slice = Callable[[TableLog, Sequence[ChangeBatch]], list[Position]]


def _waiting(log: TableLog, batches: Sequence[ChangeBatch]) -> list[Position]:
    return [log.append(batch) for batch in batches]


def _two_under_way(log: TableLog, batches: Sequence[ChangeBatch]) -> list[Position]:
    positions: list[Position] = []
    before: Ticket | None = None
    for batch in batches:
        ticket = log.submit(batch)
        if before is not None:
            positions.append(before.wait())
        before = ticket
    if before is not None:
        positions.append(before.wait())
    return positions


def _our_large(log: TableLog, slice_of: Slice, source: Batches, count: int, ledger: Ledger) -> Sample:
    batches = source.take(count)
    cpu, begin = cpu_s(), time.perf_counter()
    positions = slice_of(log, batches)
    wall, used = time.perf_counter() - begin, cpu_s() - cpu
    for batch, position in zip(batches, positions, strict=True):
        ledger.add(batch, position)
    return Sample(sum(len(batch.rows) for batch in batches), wall, used)


def _raw_large(raw: RawFile, source: Batches, count: int) -> Sample:
    batches = source.take(count)
    cpu, begin = cpu_s(), time.perf_counter()
    for batch in batches:
        raw.append(batch.rows)
    wall, used = time.perf_counter() - begin, cpu_s() - cpu
    return Sample(sum(len(batch.rows) for batch in batches), wall, used)


def _cpu_ms_per_mb(samples: Sequence[Sample]) -> float:
    return sum(s.cpu_s for s in samples) * 1000 / (sum(s.amount for s in samples) / 1e6)


def latency(bench: Bench, *, size: int, reserve: bool, rounds: int, samples: int) -> None:
    """One append after another, ours and raw in turn; percentiles of each round, then the ratios of the rounds."""
    log, path = bench.new_log()
    raw = RawFile(bench.directory / "raw", reserve=reserve)
    batches, ledger = Batches(size), Ledger()
    for warm in batches.take(10):
        ledger.add(warm, log.append(warm))
        raw.append(warm.rows)
    ratios: dict[str, list[float]] = {"p50": [], "p99": []}
    all_ours: list[float] = []
    all_raw: list[float] = []
    for _ in range(rounds):
        ours: list[float] = []
        theirs: list[float] = []
        for index, batch in enumerate(batches.take(samples)):
            # Each goes first every other time, so that neither always meets the other's traces in the journal.
            if index % 2:
                theirs.append(_raw_us(raw, batch))
                ours.append(_append_us(log, batch, ledger))
            else:
                ours.append(_append_us(log, batch, ledger))
                theirs.append(_raw_us(raw, batch))
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            ratios[name].append(percentile(ours, share) / percentile(theirs, share))
        all_ours += ours
        all_raw += theirs
    log.close()
    raw.close()
    label = f"{size >> 10} KiB"
    bench.verify(path, ledger, f"append latency {label}")
    for name, share, limit in (("p50", 0.5, 1.25), ("p99", 0.99, 1.5)):
        bench.run.ratio(
            f"acknowledgement {name}, {label} ÷ {_peer(reserve)}",
            ratios[name],
            Target(at_most=limit) if reserve else None,
            ours=percentile(all_ours, share),
            peer=percentile(all_raw, share),
            unit="µs",
            note=f"{rounds} rounds of {samples}",
        )


def _append_us(log: TableLog, batch: ChangeBatch, ledger: Ledger) -> float:
    begin = time.perf_counter_ns()
    position = log.append(batch)
    elapsed = (time.perf_counter_ns() - begin) / 1000
    ledger.add(batch, position)
    return elapsed


def _raw_us(raw: RawFile, batch: ChangeBatch) -> float:
    begin = time.perf_counter_ns()
    raw.append(batch.rows)
    return (time.perf_counter_ns() - begin) / 1000


def threads_slice(log: TableLog, batches: Sequence[ChangeBatch]) -> tuple[list[Position], list[float], float]:
    """64 threads that call `append`."""
    positions: list[Position | None] = [None] * len(batches)
    latencies = [0.0] * len(batches)
    gate = threading.Barrier(APPENDERS + 1)

    def appender(first: int) -> None:
        gate.wait()
        for index in range(first, len(batches), APPENDERS):
            begin = time.perf_counter_ns()
            positions[index] = log.append(batches[index])
            latencies[index] = (time.perf_counter_ns() - begin) / 1000

    threads = [threading.Thread(target=appender, args=(first,)) for first in range(APPENDERS)]
    for thread in threads:
        thread.start()
    gate.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    return _all(positions), latencies, time.perf_counter() - begin


def tickets_slice(log: TableLog, batches: Sequence[ChangeBatch]) -> tuple[list[Position], list[float], float]:
    """64 appenders as callbacks: each submits its next record when the last one was acknowledged."""
    positions: list[Position | None] = [None] * len(batches)
    latencies = [0.0] * len(batches)
    done = threading.Event()
    left = len(batches)

    def submit(index: int) -> None:
        begin = time.perf_counter_ns()

        def acknowledged(ticket: Ticket) -> None:
            nonlocal left
            latencies[index] = (time.perf_counter_ns() - begin) / 1000
            positions[index] = ticket.wait()
            left -= 1
            if index + APPENDERS < len(batches):
                submit(index + APPENDERS)
            elif left == 0:
                done.set()

        log.submit(batches[index], acknowledged)

    begin = time.perf_counter()
    for first in range(min(APPENDERS, len(batches))):
        submit(first)
    done.wait()
    return _all(positions), latencies, time.perf_counter() - begin


def tasks_slice(log: TableLog, batches: Sequence[ChangeBatch]) -> tuple[list[Position], list[float], float]:
    """64 asyncio tasks, each awaiting its acknowledgement."""
    positions: list[Position | None] = [None] * len(batches)
    latencies = [0.0] * len(batches)

    async def appender(first: int) -> None:
        loop = asyncio.get_running_loop()
        for index in range(first, len(batches), APPENDERS):
            begin = time.perf_counter_ns()
            future: asyncio.Future[Position] = loop.create_future()
            log.submit(batches[index], partial(_resolve, loop, future))
            positions[index] = await future
            latencies[index] = (time.perf_counter_ns() - begin) / 1000

    async def everyone() -> float:
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for first in range(APPENDERS):
                group.create_task(appender(first))
        return time.perf_counter() - begin

    wall = asyncio.run(everyone())
    return _all(positions), latencies, wall


def _resolve(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Position], ticket: Ticket) -> None:
    """From the committing thread: let the task go on."""
    loop.call_soon_threadsafe(future.set_result, ticket.wait())


def _all(positions: Sequence[Position | None]) -> list[Position]:
    return [position for position in positions if position is not None]


SHAPES = {"threads": threads_slice, "asyncio tasks": tasks_slice, "callbacks": tickets_slice}
# Threads are what Kafka's side has, callbacks what costs least; each must be ahead of Kafka by itself.
JUDGED = ("threads", "callbacks")


def against_kafka(bench: Bench, broker: Broker, *, pairs: int, records: int) -> None:
    """Records per second of 64 appenders. Kafka is taken at the better of its settings, ours in each shape."""
    topic = broker.topic()
    # A log of its own for each shape: one that was ever submitted to keeps a committing thread.
    logs = {name: bench.new_log() for name in SHAPES}
    ledgers = {name: Ledger() for name in SHAPES}
    batches = Batches(ROW_BYTES)
    kafka: dict[int, list[Sample]] = {0: [], 5: []}
    ours: dict[str, list[Sample]] = {name: [] for name in SHAPES}
    cold = _warm(broker, topic, records, list(kafka))
    for index in range(pairs):
        order: list[str | int] = [*ours, *kafka]
        for side in reversed(order) if index % 2 else order:
            if isinstance(side, int):
                kafka[side].append(_kafka_slice(broker, topic, records, side))
            else:
                ours[side].append(_our_slice(logs[side][0], side, batches.take(records), ledgers[side]))
    pipelined = [broker.pipeline(topic, size=ROW_BYTES, records=records) for _ in range(PAIRS_MIN)]
    bench.run.check("Kafka: the topic holds every record", broker.complete(topic))
    for name, (log, path) in logs.items():
        log.close()
        bench.verify(path, ledgers[name], f"64 appenders ({name})")
    best = max(kafka, key=lambda linger: statistics.median(s.rate for s in kafka[linger]))
    _report_kafka(bench.run, kafka, ours, best)
    bench.run.value("Kafka: 64 appenders, first round (cold)", [cold], "rec/s")
    bench.run.value(
        "Kafka: producer that never waits (pipelined)",
        [answer["records"] / answer["wall_s"] for answer in pipelined],
        "rec/s",
        note="one producer, acks=all, flush.messages=1, linger 5 ms; for information",
    )


def _warm(broker: Broker, topic: str, records: int, lingers: Sequence[int]) -> float:
    """Run the broker until it gets no faster, for its code is compiled as it runs; gives its cold rate."""
    rates: list[float] = []
    while len(rates) < WARM_MIN or (rates[-1] > 1.1 * max(rates[-3:-1]) and len(rates) < WARM_MAX):
        say(f"warming the broker, round {len(rates) + 1} …")
        rates.append(max(_kafka_slice(broker, topic, records, linger).rate for linger in lingers))
    return rates[0]


def _report_kafka(run: Run, kafka: dict[int, list[Sample]], ours: dict[str, list[Sample]], best: int) -> None:
    peer = kafka[best]
    for name, samples in ours.items():
        run.ratio(
            f"64 appenders × 1 KB ({name}) ÷ Kafka, rec/s",
            quotients([s.rate for s in samples], [s.rate for s in peer]),
            Target(at_least=5) if name in JUDGED else None,
            ours=statistics.median(s.rate for s in samples),
            peer=statistics.median(s.rate for s in peer),
            unit="rec/s",
            note=f"Kafka linger {best} ms; CPU {_cpu_us(samples):.0f} vs {_cpu_us(peer):.0f} µs/record",
        )
        run.ratio(
            f"64 appenders × 1 KB ({name}) ÷ Kafka, ack p99",
            quotients(_p99(samples), _p99(peer)),
            Target(at_most=0.3) if name in JUDGED else None,
            ours=statistics.median(_p99(samples)),
            peer=statistics.median(_p99(peer)),
            unit="µs",
        )
    for linger, samples in kafka.items():
        run.value(f"Kafka: 64 appenders, linger {linger} ms", [s.rate for s in samples], "rec/s")


def _p99(samples: Sequence[Sample]) -> list[float]:
    return [percentile(sample.latencies_us, 0.99) for sample in samples]


def _kafka_slice(broker: Broker, topic: str, records: int, linger_ms: int) -> Sample:
    cpu = broker.cpu_s()
    answer = broker.append(topic, appenders=APPENDERS, size=ROW_BYTES, records=records, linger_ms=linger_ms)
    return Sample(records, answer["wall_s"], broker.cpu_s() - cpu, tuple(answer["ack_us"]))


def _our_slice(log: TableLog, shape: str, batches: Sequence[ChangeBatch], ledger: Ledger) -> Sample:
    cpu = cpu_s()
    positions, latencies, wall = SHAPES[shape](log, batches)
    used = cpu_s() - cpu
    for batch, position in zip(batches, positions, strict=True):
        ledger.add(batch, position)
    return Sample(len(batches), wall, used, tuple(latencies))


def _cpu_us(samples: Sequence[Sample]) -> float:
    return sum(s.cpu_s for s in samples) * 1e6 / sum(s.amount for s in samples)


def against_raw(bench: Bench, *, quick: bool) -> None:
    """Everything that is compared with the bare disk; less than 512 MB in all."""
    pairs, count = (PAIRS_MIN, 4) if quick else (21, 8)
    rate(bench, _waiting, "one at a time", reserve=True, judged=True, pairs=pairs, count=count)
    rate(bench, _waiting, "one at a time", reserve=False, judged=False, pairs=pairs, count=count)
    # What group commit is for: a source that has its next batch ready while one is being synced. Batches that wait
    # share a sync, which the raw side never does, so this is not judged; the note says how many did.
    rate(bench, _two_under_way, "two under way", reserve=True, judged=False, pairs=pairs, count=count)
    samples = 50 if quick else 1000
    latency(bench, size=ROW_BYTES, reserve=True, rounds=PAIRS_MIN, samples=samples)
    latency(bench, size=ROW_BYTES, reserve=False, rounds=PAIRS_MIN, samples=samples)
    latency(bench, size=LARGE, reserve=True, rounds=PAIRS_MIN, samples=10 if quick else 100)


def measure(run: Run, chosen: argparse.Namespace) -> None:
    quick = chosen.quick
    bench = Bench(run, Path(chosen.directory))
    try:
        against_raw(bench, quick=quick)
        if not chosen.no_kafka:
            with Broker(Path(chosen.directory)) as broker:
                against_kafka(bench, broker, pairs=PAIRS_MIN, records=640 if quick else 8192)
    finally:
        bench.close()


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options("append", "durable append against the raw disk and Kafka", arguments)
    run = Run("append", chosen.quick)
    measure(run, chosen)
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
