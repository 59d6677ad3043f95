"""Real processes on a real directory: killed, refused and out of space at chosen system calls.

strace kills the appender, or makes a system call fail, at exactly the Nth call of its kind. Each directory goes through
several such deaths in a row. Afterwards a reader compares what the process said with what is there: everything
acknowledged must be present, and everything present must have been tried.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from penstock.errors import DiskFull
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model.position import Position
from tests.counted import RecordProperty, record
from tests.integration.appender import SCHEMA, change, settings
from tests.simulation.checker import Finding, History, check, promises, settle

APPENDER = Path(__file__).with_name("appender.py")
CALLS = ("pwrite64", "pwritev", "fdatasync", "fsync", "rename", "ftruncate", "openat", "unlink")
# How many changes one process appends: with small files, some roll-overs.
COUNT = 10
# strace and two Pythons at a time; the machine has two cores.
PARALLEL = 2


def run_appender(
    directory: Path,
    first: int,
    *,
    count: int = COUNT,
    size: str = "small",
    trace: list[str] | None = None,
    before: Callable[[], None] | None = None,
) -> str:
    """What one appender said until it ended or was ended."""
    command = [sys.executable, str(APPENDER), str(directory), str(first), str(count), size]
    if trace is not None:
        # Not with --seccomp-bpf: strace 6.1 then injects errors but, without a word, no signals.
        command = ["strace", "-f", "-qq", *trace, *command]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, preexec_fn=before)
    said = done.stdout.decode()
    # A line that was cut by the kill was never said.
    return said[: said.rfind("\n") + 1]


def note(history: History, said: str) -> None:
    """Take what one process said into the history. Values are the numbers; `verify` compares the texts."""
    batches = {value[0]: number for number, value in enumerate(history.attempted)}
    for line in said.splitlines():
        words = line.split()
        if words[0] == "try":
            batches[int(words[1])] = len(history.attempted)
            history.attempted.append((int(words[1]),))
        elif words[0] == "ack":
            history.acknowledged[batches[int(words[1])]] = tuple(Position.parse(words[2]))
        elif words[0] == "fail" and words[1] != "open":
            history.failed.add(batches[int(words[1])])


def verify(history: History, directory: Path) -> list[str]:
    """Open the log as the next writer would, read all, and judge: the broken promises."""
    if not history.attempted and not (directory / "log.json").exists():
        return []
    with TableLog.open(str(directory), SCHEMA, settings=settings(True)) as log:
        assert log.damage == ()
        with LogReader(str(directory)) as reader:
            found = []
            for batch in reader.read():
                for number, one in enumerate(avro.decode(batch)):
                    assert one == change(one.key["id"])
                    found.append((tuple(Position(batch.file, batch.offset, batch.skip + number)), one.key["id"]))
    problems = check(history, Finding(found))
    settle(history, Finding(found))
    history.seen.update(found)
    return problems


def calls_of_the_log(directory: Path) -> dict[str, tuple[int, int]]:
    """Per system call: how many come before the first that touches the log, and how many in all."""
    record = directory.with_suffix(".strace")
    said = run_appender(directory, 1, trace=["-e", f"trace={','.join(CALLS)}", "-o", str(record)])
    assert said.endswith("close\n")
    before: Counter[str] = Counter()
    total: Counter[str] = Counter()
    begun = False
    for line in record.read_text().splitlines():
        found = re.match(r"(?:\d+ +)?(\w+)\(", line)
        if found is None:
            continue
        begun = begun or str(directory) in line
        if not begun:
            before[found[1]] += 1
        total[found[1]] += 1
    return {call: (before[call], total[call]) for call in CALLS if total[call] > before[call]}


@pytest.fixture(scope="module")
def ranges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int]]:
    found = calls_of_the_log(tmp_path_factory.mktemp("calls") / "ks.t")
    assert {"fdatasync", "fsync", "rename", "ftruncate", "openat"} <= set(found)
    assert "pwrite64" in found
    return found


def die_often(
    directory: Path, ranges: dict[str, tuple[int, int]], seed: int, deaths: int
) -> tuple[Counter[str], list[str]]:
    """Kill an appender at a chosen call, look at what is left, and again: how many died at which call, what broke."""
    rng = Random(seed)
    history = History()
    killed: Counter[str] = Counter()
    problems: list[str] = []
    first = 1
    for turn in range(deaths):
        call = list(ranges)[(seed + turn) % len(ranges)]
        before, total = ranges[call]
        when = before + rng.randint(1, total - before)
        said = run_appender(
            directory, first, trace=["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={when}"]
        )
        killed[call] += not said.endswith("close\n")
        note(history, said)
        problems += verify(history, directory)
        first += COUNT
    return killed, problems


def test_killed_processes_lose_nothing_acknowledged_and_invent_nothing(
    tmp_path: Path, ranges: dict[str, tuple[int, int]], record_property: RecordProperty
) -> None:
    deaths, directories = 6, 24
    killed: Counter[str] = Counter()
    broken: list[str] = []
    with ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [
            pool.submit(die_often, tmp_path / str(seed) / "ks.t", ranges, seed, deaths) for seed in range(directories)
        ]
        for job in jobs:
            died, problems = job.result()
            killed += died
            broken += problems
    record(record_property, "kills", killed.total(), Counter(kind for one in broken for kind in promises([one])))
    assert broken == []
    # A reopened log needs fewer calls of some kinds, so that a few processes come to their end.
    assert killed.total() >= 100
    for call in ("pwrite64", "fdatasync", "fsync", "rename", "openat"):
        assert killed[call] >= 5, killed


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_refused_system_calls_are_never_acknowledged(
    tmp_path: Path, ranges: dict[str, tuple[int, int]], error: str
) -> None:
    def refuse(number: int, call: str, when: int) -> tuple[str, str]:
        directory = tmp_path / str(number) / "ks.t"
        history = History()
        said = run_appender(
            directory, 1, trace=["-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}"]
        )
        note(history, said)
        assert not verify(history, directory)
        return call, said

    plans = []
    for call, (before, total) in ranges.items():
        if call not in ("openat", "unlink"):
            step = max(1, (total - before) // 3)
            plans += [(call, when) for when in range(before + 1, total + 1, step)][:4]
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = list(pool.map(lambda job: refuse(job[0], *job[1]), enumerate(plans)))
    failed = [(call, said) for call, said in results if "fail" in said]
    assert {call for call, _ in failed} >= {"fdatasync", "fsync", "rename"}
    for call, said in failed:
        if call == "fdatasync" and error == "EIO" and re.search(r"fail \d+ ", said):
            assert re.search(r"fail \d+ LogFailed\nopen", said), said
        assert said.endswith("close\n"), said


@contextmanager
def tmpfs(path: Path, size: int) -> Iterator[bool]:
    """A file system of so many bytes; False where nobody may mount one."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(path)], check=True)


def append_under_a_size_limit(directory: Path) -> None:
    """The kernel refuses to let a file grow, as a full disk does; a second process, without the limit, goes on."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 10, resource.RLIM_INFINITY))

    history = History()
    said = run_appender(directory, 1, count=80, size="large", before=limit)
    assert said.count("DiskFull") > 10
    assert said.count("ack") > 10
    note(history, said)
    assert not verify(history, directory)
    said = run_appender(directory, 81, size="large")
    assert said.count("ack") == COUNT
    note(history, said)
    assert not verify(history, directory)


def test_a_file_that_may_not_grow_refuses_appends_and_damages_nothing(tmp_path: Path) -> None:
    append_under_a_size_limit(tmp_path / "ks.t")


def test_a_full_disk_refuses_appends_until_there_is_room(tmp_path: Path) -> None:
    history = History()
    root = tmp_path / "small"
    with tmpfs(root, 1 << 20) as mounted:
        directory = root / "ks.t"
        if not mounted:
            append_under_a_size_limit(directory)
            return
        ballast = root / "ballast"
        ballast.write_bytes(bytes(600 << 10))
        refused = freed = 0
        with TableLog.open(str(directory), SCHEMA) as log:
            for number in range(1, 2000):
                history.attempted.append((number,))
                try:
                    position = log.append(avro.encode(SCHEMA, [change(number)]))
                except DiskFull:
                    history.failed.add(number - 1)
                    refused += 1
                    if refused == 20:
                        ballast.unlink()
                        freed = number
                else:
                    history.acknowledged[number - 1] = tuple(position)
                if freed and number == freed + 50:
                    break
        assert refused == 20, "appends go on when there is room"
        assert len(history.acknowledged) > 100
        assert not verify(history, directory)


def test_an_appender_ends_well_when_nobody_disturbs_it(tmp_path: Path) -> None:
    said = run_appender(tmp_path / "ks.t", 1)
    assert said.count("ack") == COUNT
    history = History()
    note(history, said)
    assert not verify(history, tmp_path / "ks.t")
    assert os.listdir(tmp_path / "ks.t")
