"""Growth: a log of 10 GiB must open, recover, seek and cost per change like one of a hundredth of its size.

Two logs are built, the large one a hundred times the small one. Every measurement runs in a fresh process, so that
memory is its own and nothing is warm but the page cache; before the cold ones the page cache is told to forget the
log's files. A crash is a writer killed in the middle of its work, with half a block torn off behind what it wrote.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.harness import (
    PAIRS_MIN,
    ROOT,
    CheckFailed,
    Run,
    Target,
    cpu_s,
    disk_read_bytes,
    memory_of,
    options,
    percentile,
    quotients,
    say,
    show,
)
from bench.workload import DOMAIN, EPOCH_US, SCHEMA, Batches
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model.position import START, Position
from penstock.settings import Acknowledge, LogSettings

FACTOR = 100
BATCH_BYTES = 256 << 10
# What one slice of the cost per change appends and reads: small beside even the small log.
SLICE_BATCHES = 64
SLICE_BATCH_BYTES = 64 << 10
WRITTEN = LogSettings(acknowledge=Acknowledge.WRITTEN)


class Grown:
    """One log on disk, and how many batches and changes were put into it."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        # Where the seeks by position go.
        self.places = path.with_suffix(".places")
        self.batches = max(2, size // BATCH_BYTES)
        self.changes = 0
        self.acknowledged = 0

    def build(self) -> None:
        source = Batches(BATCH_BYTES)
        begin = time.monotonic()
        with TableLog.open(str(self.path), SCHEMA, settings=WRITTEN) as log:
            for _ in range(self.batches):
                log.append(source.next())
            self.changes = log.rows
        os.sync()
        self.acknowledged = self.changes
        size = sum(entry.stat().st_size for entry in self.path.iterdir())
        say(f"built {size / (1 << 30):.2f} GiB, {self.changes} changes, in {time.monotonic() - begin:.1f} s")

    def data_files(self) -> list[Path]:
        return sorted(self.path.glob("*.avro"))

    def forget(self) -> None:
        """Have the page cache forget the log's files, so that the next reader meets the disk."""
        os.sync()
        for entry in self.path.iterdir():
            fd = os.open(entry, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def warm(self) -> None:
        """Have the page cache hold the log's files, if it has room for them: a reader of logs does not see to that."""
        for entry in self.data_files():
            with entry.open("rb", buffering=0) as file:
                while file.read(BATCH_BYTES):
                    pass

    def crash(self) -> None:
        """Kill a writer at work and leave half a block behind what it wrote."""
        process = subprocess.Popen(_command("append-forever", self.path), stdout=subprocess.PIPE, text=True, cwd=ROOT)  # noqa: S603 - words of ours
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        # Acknowledged batches may have followed the line; the last complete line counts.
        lines = [line, *process.stdout.read().splitlines(keepends=True)]
        process.wait()
        process.stdout.close()
        whole = [text for text in lines if text.endswith("\n") and text.strip().isdigit()]
        if not whole:
            raise CheckFailed("the writer was killed before it had appended anything")
        self.acknowledged = int(whole[-1])
        last = self.data_files()[-1]
        with last.open("r+b") as file:
            file.seek(-min(last.stat().st_size, SLICE_BATCH_BYTES // 2), os.SEEK_END)
            torn = file.read()
            file.write(torn)

    def child(self, *words: object) -> dict[str, Any]:
        """Run one measurement in a fresh process."""
        done = subprocess.run(  # noqa: S603 - words of ours
            _command(words[0], self.path, *words[1:]), capture_output=True, text=True, check=False, cwd=ROOT
        )
        if done.returncode:
            raise CheckFailed(f"{words[0]} failed: {done.stderr[-2000:]}")
        # The log may have something to tell; the answer is the last line.
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer


def _command(name: object, path: Path, *words: object) -> list[str]:
    return [sys.executable, "-m", "bench.growth", "--child", str(name), str(path), *map(str, words)]


# What the fresh processes do.


def child_open(path: str) -> dict[str, Any]:
    begin = time.perf_counter()
    log = TableLog.open(path, SCHEMA, settings=WRITTEN)
    opened = time.perf_counter() - begin
    answer = {"open_s": opened, "rows": log.rows, "damage": len(log.damage), **memory_of()}
    log.close()
    return answer


def child_append(path: str) -> dict[str, Any]:
    """CPU per change of appending."""
    source = Batches(SLICE_BATCH_BYTES)
    batches = source.take(SLICE_BATCHES)
    with TableLog.open(path, SCHEMA, settings=WRITTEN) as log:
        log.append(source.next())
        cpu, begin = cpu_s(), time.perf_counter()
        for batch in batches:
            log.append(batch)
        used, wall = cpu_s() - cpu, time.perf_counter() - begin
        return {"cpu_s": used, "wall_s": wall, "changes": SLICE_BATCHES * source.count, **memory_of()}


def child_read(path: str, seed: str, blocks: str) -> dict[str, Any]:
    """CPU per change of reading a stretch from somewhere in the log, which is in the page cache."""
    rng = random.Random(int(seed))  # noqa: S311 - seeded, to be repeated
    with LogReader(path) as reader:
        start = _somewhere(reader, rng)
        _read_blocks(reader, start, int(blocks))
        cpu, begin = cpu_s(), time.perf_counter()
        changes = _read_blocks(reader, start, int(blocks))
        used, wall = cpu_s() - cpu, time.perf_counter() - begin
    return {"cpu_s": used, "wall_s": wall, "changes": changes, **memory_of()}


def _read_blocks(reader: LogReader, start: Position, blocks: int) -> int:
    return sum(len(batch) for batch in itertools.islice(reader.read(after=start), blocks))


def child_scan(path: str) -> dict[str, Any]:
    """Read the whole log."""
    reader = LogReader(path)
    fetched, cpu, begin = disk_read_bytes(), cpu_s(), time.perf_counter()
    changes = sum(len(batch) for batch in reader.read())
    used, wall, fetched = cpu_s() - cpu, time.perf_counter() - begin, disk_read_bytes() - fetched
    reader.close()
    return {"cpu_s": used, "wall_s": wall, "changes": changes, "fetched": fetched, **memory_of()}


def child_seek(path: str, kind: str, batches: str, count: str, places: str) -> dict[str, Any]:
    """Random seeks of one kind. The parent checks where they led, so that nothing warms the cache for the next one."""
    rng = random.Random(int(batches))  # noqa: S311 - seeded, to be repeated
    numbers = [rng.randrange(2, int(batches)) for _ in range(int(count))]
    took: list[float] = []
    led_to: list[str] = []
    given = [Position.parse(line) for line in Path(places).read_text().split()] if kind == "position" else []
    with LogReader(path) as reader:
        for index, number in enumerate(numbers):
            found: Position | None
            begin = time.perf_counter()
            if kind == "time":
                found = reader.seek_time(EPOCH_US + number)
            elif kind == "transaction":
                found = reader.seek_transaction(DOMAIN, number)
            else:
                found = given[index]
                next(iter(reader.read(after=found)))
            took.append((time.perf_counter() - begin) * 1000)
            if found is None:
                raise CheckFailed(f"transaction {number} was not found")
            led_to.append(str(found))
    return {"ms": took, "numbers": numbers, "positions": led_to, **memory_of()}


def child_raw(path: str, count: str) -> dict[str, Any]:
    """Bare reads of a block's size at random places: the limit for cold seeks."""
    rng = random.Random(1)  # noqa: S311 - seeded, to be repeated
    files = sorted(Path(path).glob("*.avro"))
    took: list[float] = []
    for _ in range(int(count)):
        file = rng.choice(files)
        with file.open("rb", buffering=0) as opened:
            offset = rng.randrange(max(1, file.stat().st_size - BATCH_BYTES))
            begin = time.perf_counter()
            os.pread(opened.fileno(), BATCH_BYTES, offset)
            took.append((time.perf_counter() - begin) * 1000)
    return {"ms": took}


def child_append_forever(path: str) -> dict[str, Any]:
    """Append and tell each acknowledged total, until killed."""
    source = Batches(SLICE_BATCH_BYTES)
    with TableLog.open(path, SCHEMA) as log:
        for number in range(100_000):
            log.append(source.next())
            if number >= SLICE_BATCHES:
                show(str(log.rows))
    return {}


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {
    "open": child_open,
    "append": child_append,
    "read": child_read,
    "scan": child_scan,
    "seek": child_seek,
    "raw": child_raw,
    "append-forever": child_append_forever,
}


def _somewhere(reader: LogReader, rng: random.Random) -> Position:
    """A random place with enough changes behind it."""
    files = reader.files()
    return reader.seek_time(EPOCH_US + rng.randrange(1, 8)) if len(files) == 1 else _of_files(reader, rng)


def _of_files(reader: LogReader, rng: random.Random) -> Position:
    first = next(iter(reader.read(after=START)))
    last = reader.end()
    middle = rng.randrange(first.file, max(first.file + 1, last.file))
    return Position(middle, 0, 0) if middle > first.file else first.last


# The measurements.


def opening(run: Run, large: Grown, rounds: int) -> None:
    for state in ("closed in good order", "after a crash"):
        for cache in ("warm", "cold"):
            seconds = []
            for _ in range(rounds):
                if state == "after a crash":
                    large.crash()
                if cache == "cold":
                    large.forget()
                answer = large.child("open")
                if answer["damage"] or answer["rows"] < large.acknowledged:
                    raise CheckFailed(
                        f"{state}: {answer['rows']} changes after {large.acknowledged}; {answer['damage']}"
                    )
                seconds.append(answer["open_s"])
            run.value(f"open, {state}, {cache}", seconds, "s", Target(at_most=1), worst=True)
    run.check("every acknowledged change was there after each crash", True)


def seeking(run: Run, small: Grown, large: Grown, count: int) -> list[float]:
    """Seeks in the large log, warm and cold; gives the ratios of the processes' memory."""
    ratios = []
    for cache in ("warm", "cold"):
        for kind in ("time", "transaction", "position"):
            answers = {}
            for log in (small, large):
                if cache == "cold":
                    log.forget()
                answers[log] = log.child("seek", kind, log.batches, count, log.places)
                if kind != "position":
                    _verify(log, answers[log], kind)
            took, other = answers[large]["ms"], answers[small]["ms"]
            raw = ""
            if cache == "cold":
                large.forget()
                raw = f"; one raw cold read of a block: median {statistics.median(large.child('raw', count)['ms']):.3f}"
            ratios.append(answers[large]["VmRSS"] / answers[small]["VmRSS"])
            run.value(
                f"seek by {kind}, {cache}, p99",
                [percentile(took, 0.99)],
                "ms",
                # What a cold seek takes is the disk's affair; beside it stands what one bare read takes.
                Target(at_most=5) if cache == "warm" else None,
                note=f"{count} random: median {statistics.median(took):.3f}, max {max(took):.2f} ms; "
                f"in the small log median {statistics.median(other):.3f}{raw}",
            )
    run.check(f"{8 * count} seeks by time and by transaction led to the change that was meant", True)
    return ratios


def _verify(log: Grown, answer: dict[str, Any], kind: str) -> None:
    """Read on from where each seek led, and keep the places for the seeks by position."""
    with LogReader(str(log.path)) as reader:
        for number, text in zip(answer["numbers"], answer["positions"], strict=True):
            first = avro.decode(next(iter(reader.read(after=Position.parse(text)))))[0]
            if first.key["id"] != number:
                raise CheckFailed(f"seek by {kind} led to change {first.key['id']} instead of {number}")
    log.places.write_text("\n".join(answer["positions"]))


def cost(run: Run, small: Grown, large: Grown, pairs: int, seek_memory: list[float]) -> None:
    blocks = max(1, small.batches // 4)
    # The seeks before this were cold ones.
    for log in (small, large):
        log.warm()
    memory: dict[str, list[float]] = {"seek": seek_memory}
    for name, words in (("append", ("append",)), ("read", ("read", 3, blocks))):
        sides: dict[Grown, list[dict[str, Any]]] = {small: [], large: []}
        for index in range(pairs):
            for log in (large, small) if index % 2 else (small, large):
                sides[log].append(log.child(*words))
        cpu = {log: [a["cpu_s"] * 1e6 / a["changes"] for a in answers] for log, answers in sides.items()}
        memory[name] = quotients([a["VmRSS"] for a in sides[large]], [a["VmRSS"] for a in sides[small]])
        run.ratio(
            f"CPU per change, {name}, {FACTOR}× ÷ 1× data",
            quotients(cpu[large], cpu[small]),
            Target(at_most=1.10),
            ours=statistics.median(cpu[large]),
            peer=statistics.median(cpu[small]),
            unit="µs",
        )
    memory["scan, at its peak"] = scanning(run, small, large)
    for name, ratios in memory.items():
        run.ratio(f"memory, {name}, {FACTOR}× ÷ 1× data", ratios, Target(at_most=1.10))


def scanning(run: Run, small: Grown, large: Grown) -> list[float]:
    """Both logs from beginning to end, both from the disk or both from the page cache; the ratios of peak memory."""
    memory = []
    for cache in ("cold", "warm"):
        sides: dict[Grown, list[dict[str, Any]]] = {small: [], large: []}
        for log in sides if cache == "warm" else ():
            log.warm()
        for index in range(PAIRS_MIN):
            for log in (large, small) if index % 2 else (small, large):
                if cache == "cold":
                    log.forget()
                sides[log].append(log.child("scan"))
        for log, answers in sides.items():
            if any(answer["changes"] < log.acknowledged for answer in answers):
                raise CheckFailed("a scan did not find every acknowledged change")
        memory += quotients([a["VmHWM"] for a in sides[large]], [a["VmHWM"] for a in sides[small]])
        cpu = {log: [a["cpu_s"] * 1e6 / a["changes"] for a in answers] for log, answers in sides.items()}
        fetched = {log: _share_fetched(answers, log) for log, answers in sides.items()}
        run.ratio(
            f"CPU per change, scan of the whole log, {cache}, {FACTOR}× ÷ 1× data",
            quotients(cpu[large], cpu[small]),
            Target(at_most=1.10),
            ours=statistics.median(cpu[large]),
            peer=statistics.median(cpu[small]),
            unit="µs",
            note=f"from disk: {fetched[large]:.0%} of the large log, {fetched[small]:.0%} of the small one",
        )
        speed = [BATCH_BYTES * large.batches / answer["wall_s"] / 1e6 for answer in sides[large]]
        run.value(f"scan of the whole log, {cache}", speed, "MB/s")
    run.check("each scan found every acknowledged change", True)
    return memory


def _share_fetched(answers: Sequence[dict[str, Any]], log: Grown) -> float:
    """How much of a log the disk had to give, as the median of its scans."""
    fetched: list[int] = [answer["fetched"] for answer in answers]
    return statistics.median(fetched) / (BATCH_BYTES * log.batches)


def measure(run: Run, chosen: argparse.Namespace) -> None:
    size = chosen.bytes or (256 << 20 if chosen.quick else 10 << 30)
    directory = Path(chosen.directory) / f"growth-{uuid.uuid4().hex[:8]}"
    free = shutil.disk_usage(chosen.directory).free
    if free < size * 1.3:
        raise CheckFailed(f"{free >> 20} MiB free in {chosen.directory}; this needs {int(size * 1.3) >> 20}")
    directory.mkdir(parents=True)
    try:
        small, large = Grown(directory / "small", size // FACTOR), Grown(directory / "large", size)
        small.build()
        large.build()
        run.value("size of the large log", [BATCH_BYTES * large.batches / (1 << 30)], "GiB")
        count = 50 if chosen.quick else 500
        memory = seeking(run, small, large, count)
        cost(run, small, large, PAIRS_MIN if chosen.quick else 3 * PAIRS_MIN, memory)
        opening(run, large, 2 if chosen.quick else PAIRS_MIN)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--child"]:
        answer = CHILDREN[given[1]](*given[2:])
        show(json.dumps(answer))
        return 0
    chosen = options("growth", "a large log against one of a hundredth of its size", given, bytes=0)
    run = Run("growth", chosen.quick)
    measure(run, chosen)
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
