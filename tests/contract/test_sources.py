"""What holds for every source: each change that is given in stands in its table's log exactly once, and in order."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from penstock.errors import LogLocked, PenstockError
from penstock.log.reader import LogReader
from penstock.log.table_logs import LogSpec
from penstock.model.predicate import ColumnRef, Compare, Literal, Operator
from penstock.serve.http import health_checks
from testkit.crash_files import CrashFiles, Fault, Killed
from testkit.power_loss import Crash, Mode
from tests.contract.sources import SOURCES, Played, numbers, run, stored
from tests.scripted_agent import Script

# A background commit of a log whose process was killed ends with it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

LARGE = LogSpec("large", Compare(ColumnRef("id"), Operator.MORE_OR_EQUAL, Literal(10)))


@pytest.fixture(params=sorted(SOURCES))
def make(request: pytest.FixtureRequest) -> Callable[[Path], Played]:
    made = SOURCES[request.param]

    def fresh(root: Path) -> Played:
        root.mkdir(parents=True, exist_ok=True)
        return made(root)

    return fresh


@pytest.fixture
def played(make: Callable[[Path], Played], tmp_path: Path) -> Played:
    return make(tmp_path)


def story(played: Played) -> list[Callable[[], object]]:
    """Two tables, bursts, and a column that is added between them."""

    def first() -> None:
        played.create()
        played.write(*range(6), note="x" * 40)

    def items() -> None:
        played.create("items")
        played.write(*range(100, 104), table="items")

    def widen() -> None:
        played.create(wider=True)
        played.write(*range(12, 18), note="y" * 40)

    return [
        first,
        items,
        lambda: played.write(*range(6, 12)),
        widen,
        lambda: played.write(104, table="items"),
        lambda: played.write(*range(18, 24)),
    ]


WANTED = {"shop.orders": list(range(24)), "shop.items": list(range(100, 105)), "shop.orders@large": list(range(10, 24))}


def specs(_table: object) -> list[LogSpec]:
    return [LogSpec(), LARGE]


def check(played: Played, files: CrashFiles) -> None:
    assert {name: numbers(played, name, files) for name in WANTED} == WANTED


def test_what_is_given_in_comes_out_once_in_order_for_other_readers_too(played: Played) -> None:
    status = run(played, *story(played))
    assert numbers(played) == WANTED["shop.orders"]
    assert numbers(played, "shop.items") == WANTED["shop.items"]
    assert status.changes == 29
    assert status.failure is None
    found = []
    for path in sorted((played.data / "shop.orders").glob("*.avro")):
        with path.open("rb") as opened:
            records: list[Any] = list(fastavro.reader(opened))
        found += [record["key"]["id"] for record in records]
    assert found == WANTED["shop.orders"]


def test_an_agent_goes_on_where_the_one_before_it_ended(played: Played) -> None:
    for step in story(played):
        run(played, step)
        before = numbers(played)
        run(played)
        assert numbers(played) == before
    assert numbers(played) == WANTED["shop.orders"]


def test_changes_of_before_a_schema_change_keep_their_schema(played: Played) -> None:
    run(played, *story(played))
    with LogReader(str(played.data / "shop.orders")) as reader:
        seen = [(len(batch), "paid" in batch.schema.by_name) for batch in reader.read()]
    assert sum(count for count, wider in seen if not wider) == 12
    assert sum(count for count, wider in seen if wider) == 12
    assert [wider for _, wider in seen] == sorted(wider for _, wider in seen)


def test_a_schema_change_is_in_the_log_also_without_a_change_of_a_row(played: Played) -> None:
    played.create()
    played.write(1)
    run(played, lambda: played.create(wider=True))
    with LogReader(str(played.data / "shop.orders")) as reader:
        assert "paid" in reader.heading(reader.numbers()[-1]).schema.by_name
    assert numbers(played) == [1]


def steps_in_all(played: Played) -> int:
    files = CrashFiles()
    run(played, *story(played), files=files, specs=specs)
    check(played, files)
    return files.disk.steps


class Interrupted:
    """A story whose agent dies at a step; the source lives on."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self._left = story(played)

    def steps(self) -> tuple[Callable[[], object], ...]:
        def play() -> object:
            return self._left.pop(0)()

        return tuple(play for _ in self._left)

    def run(self, files: CrashFiles, at: int, crash: Crash | None = None) -> CrashFiles:
        """Run until step `at`; the disk that the next agent finds."""
        found: list[CrashFiles] = []

        def watch(seen: CrashFiles) -> None:
            if seen.disk.steps == at and not found:
                found.append(seen.clone_after_crash(crash) if crash is not None else seen)
                seen.kill()

        files.disk.watch = watch
        try:
            run(self.played, *self.steps(), files=files, specs=specs)
        except (Killed, PenstockError):
            # The commit of another thread may have been killed, and this one told that it did not succeed.
            if not found:
                raise
        files.disk.watch = None
        return found[0] if found and crash is not None else files.process()


@pytest.mark.parametrize("crash", [None, Mode.DROP, Mode.MIX])
def test_killed_or_without_power_at_any_step(
    make: Callable[[Path], Played], tmp_path: Path, crash: Mode | None
) -> None:
    steps = steps_in_all(make(tmp_path / "whole"))
    schedules = range(1 + 3 * (crash is not None), steps + 1, 11)
    assert len(schedules) > 10
    for at in schedules:
        one = Interrupted(make(tmp_path / str(at)))
        files = one.run(CrashFiles(), at, None if crash is None else Crash(crash, seed=at))
        run(one.played, *one.steps(), files=files, specs=specs)
        check(one.played, files)


def test_killed_again_and_again(make: Callable[[Path], Played], tmp_path: Path) -> None:
    for gap in (5, 17, 31):
        one = Interrupted(make(tmp_path / str(gap)))
        files = CrashFiles()
        for life in range(1, 14):
            files = one.run(files, files.disk.steps + gap * life)
        run(one.played, *one.steps(), files=files, specs=specs)
        check(one.played, files)


def test_a_full_disk_is_waited_out(played: Played) -> None:
    files = CrashFiles()
    tale = story(played)
    agents: list[Any] = []

    def fill() -> None:
        files.disk.capacity = files.disk.used

    def free() -> None:
        agents.append(agent.status())
        files.disk.capacity = None

    agent = played.agent(files, specs)
    agent.run(Script(played.clock, (*tale[:2], fill, *tale[2:4], free, *tale[4:])))
    check(played, files)
    assert agents[0].waiting == "room on the disk"
    assert not health_checks(agents[0])["log"]["healthy"]
    assert agent.status().waiting is None


def test_a_refused_call_ends_the_agent_and_loses_nothing(make: Callable[[Path], Played], tmp_path: Path) -> None:
    ended = 0
    for call in range(30, 400, 37):
        one = Interrupted(make(tmp_path / str(call)))
        files = CrashFiles()
        files.disk.fault = Fault(call, errno.EIO)
        try:
            run(one.played, *one.steps(), files=files, specs=specs)
        except PenstockError:
            ended += 1
        files.disk.fault = None
        files = files.process()
        run(one.played, *one.steps(), files=files, specs=specs)
        check(one.played, files)
    assert ended


def test_one_agent_has_the_state(played: Played) -> None:
    played.create()

    def second() -> None:
        with pytest.raises(LogLocked):
            run(played)

    run(played, second)


def test_status_and_health_say_that_it_runs_and_that_it_has_ended(played: Played) -> None:
    played.create()
    seen: list[Any] = []
    agent = played.agent()
    steps = (lambda: played.write(1, 2, 3), lambda: seen.append(agent.status()))
    agent.run(Script(played.clock, steps))
    assert (seen[0].running, seen[0].changes, seen[0].table_changes) == (True, 3, {"shop.orders": 3})
    checks = health_checks(seen[0])
    assert all(check["healthy"] for check in checks.values())
    assert not agent.status().running
    assert not health_checks(agent.status())["agent"]["healthy"]


def test_a_large_backlog_is_read_in_portions(played: Played) -> None:
    """The agent begins late, and each append is bounded by the chunk, not by what has piled up."""
    played.create()
    played.write(*range(300), note="z" * 200)
    run(played)
    assert numbers(played) == list(range(300))
    with LogReader(str(played.data / "shop.orders")) as reader:
        assert max(len(batch.rows) for batch in reader.read()) < 3 * 4096
    assert {len(str(change.cells["note"])) > 200 for change in stored(played)} == {True}
