"""The agent is killed, or the power fails, at each of its steps on disk: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.log.table_logs import LogSpec
from penstock.model.predicate import ColumnRef, Compare, Literal, Operator
from testkit.crash_files import CrashFiles, Fault, Killed
from testkit.power_loss import Crash, Mode
from tests.counted import RecordProperty, differences, record
from tests.scripted_agent import Node, Setup, cassandra_table

# A background commit of a log whose process was killed ends with it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

ROWS = 24
LATE = cassandra_table("late")
LARGE = LogSpec("large", Compare(ColumnRef("id"), Operator.MORE_OR_EQUAL, Literal(10)))


def specs(_table: object) -> list[LogSpec]:
    return [LogSpec(), LARGE]


def story(node: Node) -> list[Callable[[], object]]:
    """Writes over several segments, an entry that waits for its table, a restart of the node."""

    def burst(first: int) -> Callable[[], object]:
        return lambda: node.write(*range(first, first + 6), note="x" * 40)

    def roll() -> None:
        node.log.roll()
        node.write(6, 7, note="after the roll")
        node.log.sync()

    def unknown() -> None:
        node.write(100, 101, table=LATE)

    def known() -> None:
        node.create(LATE)
        node.write(102, table=LATE)

    def new_life() -> None:
        node.log.abandon()
        node.restart()
        node.write(*range(8, 12))
        node.log.sync()

    return [burst(0), roll, unknown, known, new_life, burst(12), node.sync, burst(18)]


def build(tmp_path: Path) -> Setup:
    # Everything was written before the agent starts, in the same way each time.
    setup = Setup(tmp_path, settings={"agent": {"transfer": "delete", "chunk_bytes": 4096, "place_interval_s": 6}})
    setup.node.create()
    return setup


def check(setup: Setup, files: CrashFiles) -> Counter[str]:
    """What is lost and what is invented in the three logs, and whether the order is another one."""
    found = [setup.numbers(name, files) for name in ("shop.orders", "shop.late", "shop.orders@large")]
    wanted = [list(range(ROWS)), [100, 101, 102], list(range(10, ROWS))]
    assert setup.node.written == wanted[0]
    broken = sum((differences(*pair) for pair in zip(wanted, found, strict=True)), Counter[str]())
    broken["order"] = int(not broken.total() and found != wanted)
    return broken


def steps_in_all(tmp_path: Path) -> int:
    files = CrashFiles()
    setup = build(tmp_path)
    setup.run(*story(setup.node), files=files, specs=specs)
    assert not +check(setup, files)
    return files.disk.steps


class Interrupted:
    """One run that ends at a step, and what the disk holds then."""

    def __init__(self, tmp_path: Path) -> None:
        self.setup = build(tmp_path)
        self.left = story(self.setup.node)

    def steps(self) -> tuple[Callable[[], object], ...]:
        """What the node has not done yet; it lives on when the agent dies."""

        def play() -> object:
            return self.left.pop(0)()

        return tuple(play for _ in self.left)

    def run(self, files: CrashFiles, at: int, crash: Crash | None) -> CrashFiles:
        """Run until step `at`; the disk that the next agent finds."""
        found: list[CrashFiles] = []

        def watch(seen: CrashFiles) -> None:
            if seen.disk.steps == at and not found:
                found.append(seen.clone_after_crash(crash) if crash is not None else seen)
                seen.kill()

        files.disk.watch = watch
        try:
            self.setup.run(*self.steps(), files=files, specs=specs)
        except Killed:
            files.disk.watch = None
            return found[0] if crash is not None else files.process()
        except PenstockError:
            # The commit of another thread was killed, and this one was told that it did not succeed.
            if not found:
                raise
            files.disk.watch = None
            return found[0] if crash is not None else files.process()
        files.disk.watch = None
        return files.process()


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> int:
    return steps_in_all(tmp_path_factory.mktemp("whole"))


def schedules(steps: int, stride: int, offset: int) -> Iterator[int]:
    return iter(range(1 + offset, steps + 1, stride))


@pytest.mark.parametrize("offset", range(2))
def test_killed_at_any_step(tmp_path: Path, steps: int, offset: int, record_property: RecordProperty) -> None:
    count, broken = 0, Counter[str]()
    for at in schedules(steps, 14, 7 * offset):
        run = Interrupted(tmp_path / str(at))
        files = run.run(CrashFiles(), at, None)
        run.setup.run(*run.steps(), files=files, specs=specs)
        broken += check(run.setup, files)
        count += 1
    record(record_property, "crash schedules", count, broken)
    assert count
    assert not +broken


@pytest.mark.parametrize("mode", [Mode.DROP, Mode.MIX, Mode.PREFIX, Mode.NAMES, Mode.GARBAGE])
def test_power_fails_at_any_step(tmp_path: Path, steps: int, mode: Mode, record_property: RecordProperty) -> None:
    count, broken = 0, Counter[str]()
    for at in schedules(steps, 24, 2 * list(Mode).index(mode)):
        run = Interrupted(tmp_path / str(at))
        files = run.run(CrashFiles(), at, Crash(mode, seed=at))
        run.setup.run(*run.steps(), files=files, specs=specs)
        broken += check(run.setup, files)
        count += 1
    record(record_property, "crash schedules", count, broken)
    assert count
    assert not +broken


def test_killed_again_and_again(tmp_path: Path, steps: int, record_property: RecordProperty) -> None:
    count, broken = 0, Counter[str]()
    for gap in (7, 13, 29):
        run = Interrupted(tmp_path / str(gap))
        files = CrashFiles()
        for life in range(1, 16):
            before = files.disk.steps
            files = run.run(files, before + gap * life, None)
            count += 1
        run.setup.run(*run.steps(), files=files, specs=specs)
        broken += check(run.setup, files)
    record(record_property, "crash schedules", count, broken)
    assert not +broken


def test_full_disk_is_waited_out(tmp_path: Path) -> None:
    setup = build(tmp_path)
    node, files = setup.node, CrashFiles()
    tale = story(node)

    def fill() -> None:
        files.disk.capacity = files.disk.used

    waits: list[str | None] = []

    def free() -> None:
        waits.append("full")
        files.disk.capacity = None

    # The disk fills in the middle; while the agent waits for room, the script goes on.
    setup.run(*tale[:3], fill, *tale[3:5], free, *tale[5:], files=files, specs=specs)
    assert not +check(setup, files)
    assert waits == ["full"]


def test_lack_of_descriptors_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a segment that cannot be opened nor a log that cannot be is given up."""
    setup = build(tmp_path)
    node, files = setup.node, CrashFiles()
    tale = story(node)
    opened, refusals = os.open, [0]
    scarce = [False]

    def scarcely(path: str, flags: int, mode: int = 0o777) -> int:
        if scarce[0] and str(path).startswith(str(node.root)) and not flags & os.O_CREAT:
            refusals[0] += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return opened(path, flags, mode)

    def begin() -> None:
        scarce[0] = True

    def end() -> None:
        scarce[0] = False

    monkeypatch.setattr("penstock.system.descriptors._TRIES", 0)
    monkeypatch.setattr("penstock.system.files.os.open", scarcely)
    setup.run(*tale[:4], begin, *tale[4:5], end, *tale[5:], files=files, specs=specs)
    assert refusals[0]
    assert not +check(setup, files)


@pytest.mark.parametrize("call", range(60, 900, 70))
def test_refused_call_ends_the_agent_or_is_overcome_and_loses_nothing(
    tmp_path: Path, call: int, record_property: RecordProperty
) -> None:
    run = Interrupted(tmp_path)
    files = CrashFiles()
    files.disk.fault = Fault(call)
    # Either it goes on, or it says so and ends; then the next one reads on.
    with suppress(PenstockError):
        run.setup.run(*run.steps(), files=files, specs=specs)
    files.disk.fault = None
    files = files.kill()
    run.setup.run(*run.steps(), files=files, specs=specs)
    broken = check(run.setup, files)
    record(record_property, "refusal schedules", 1, broken)
    assert not +broken
