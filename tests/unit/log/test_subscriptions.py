"""Subscriptions by hand: listed with how far they are, moved to any place that is left, dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ChangesLost, InvalidInput, PositionAhead, SubscriptionLocked
from penstock.log import retention, subscriptions
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.log.table_log import TableLog
from penstock.log.watermark import Watermark
from penstock.model.position import START, Position
from penstock.settings import RetentionSettings
from tests.numbered import SCHEMA, SMALL_FILES, ManualClock, batch, fill, numbers


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "log")


def commit(directory: str, name: str, position: Position) -> None:
    with Subscription.open(directory, name) as one:
        one.commit(position)


def unread(directory: str, name: str) -> list[int]:
    with Subscription.open(directory, name) as one:
        return numbers(one.batches())


def test_each_is_listed_with_how_far_it_is(directory: str) -> None:
    positions = fill(directory, 12)
    commit(directory, "done", positions[11])
    commit(directory, "half", positions[4])
    with LogReader(directory) as reader:
        done, half = subscriptions.states(reader)
        sizes = {info.number: info.bytes for info in reader.files()}
    assert (done.name, done.behind, done.behind_bytes, done.lag_s(5), done.delivered) == ("done", 0, 0, 0.0, 12)
    assert (half.name, half.behind, half.delivered, half.position) == ("half", 7, 5, positions[4])
    # All of the later files, and of its own what stands behind the block that it has finished.
    assert half.behind_bytes == sum(sizes.values()) - sizes[1] - positions[5].offset
    # The test's changes were written a millisecond after 1970 began.
    assert half.lag_s(2_001_000) == 2.0


def test_one_that_cannot_be_read_is_listed_with_its_error_and_can_be_reset_or_dropped(directory: str) -> None:
    fill(directory, 6)
    for name in ("a", "b"):
        commit(directory, name, START)
        (Path(directory) / f"{name}.checkpoint").write_text("?")
    with LogReader(directory) as reader:
        assert [state.lag_s(0) for state in subscriptions.states(reader)] == [None, None]
        assert all("not readable" in (state.error or "") for state in subscriptions.states(reader))
    assert subscriptions.move(directory, "a", "end").before is None
    assert unread(directory, "a") == []
    subscriptions.drop(directory, "b")
    assert unread(directory, "b") == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("to", "left"), [("begin", 6), ("end", 0), ("1970-01-01", 6), ("1s", 0), ("position", 3)])
def test_a_reset_goes_anywhere(directory: str, to: str, left: int) -> None:
    positions = fill(directory, 6)
    commit(directory, "a", positions[1])
    clock = ManualClock()
    moved = subscriptions.move(directory, "a", str(positions[2]) if to == "position" else to, clock=clock)
    assert len(unread(directory, "a")) == left
    assert (moved.again, moved.skipped) == (max(0, left - 4), max(0, 4 - left))


def test_a_rewind_goes_back_only(directory: str) -> None:
    positions = fill(directory, 6)
    commit(directory, "a", positions[3])
    with pytest.raises(InvalidInput, match="a rewind goes back"):
        subscriptions.move(directory, "a", "end", back_only=True)
    assert subscriptions.move(directory, "a", str(positions[0]), back_only=True, dry_run=True).again == 3
    assert unread(directory, "a") == [4, 5]
    subscriptions.move(directory, "a", str(positions[0]), back_only=True)
    assert unread(directory, "a") == [1, 2, 3, 4, 5]


def test_nobody_is_moved_while_it_is_read(directory: str) -> None:
    positions = fill(directory, 6)
    with Subscription.open(directory, "a") as one:
        one.commit(positions[3])
        for change in (lambda: subscriptions.move(directory, "a", "begin"), lambda: subscriptions.drop(directory, "a")):
            with pytest.raises(SubscriptionLocked):
                change()
    assert unread(directory, "a") == [4, 5]


def test_what_is_gone_or_was_never_there_is_refused_and_nothing_moves(directory: str) -> None:
    positions = fill(directory, 9)
    commit(directory, "a", positions[8])
    retention.apply(directory, RetentionSettings(keep_s=0))
    with pytest.raises(ChangesLost):
        subscriptions.move(directory, "a", str(positions[1]))
    with pytest.raises(PositionAhead):
        subscriptions.move(directory, "a", "000077:0:0")
    with pytest.raises(InvalidInput, match="there is no change at"):
        subscriptions.move(directory, "a", f"{positions[7].file:06}:{positions[7].offset + 1}:0")
    with pytest.raises(InvalidInput, match="not a time"):
        subscriptions.move(directory, "a", "soon")
    with pytest.raises(InvalidInput, match="no subscription 'b' here; there are: a"):
        subscriptions.move(directory, "b", "begin")
    assert unread(directory, "a") == []
    # The begin is the first change that is left, and nothing is lost by going there.
    subscriptions.move(directory, "a", "begin")
    assert unread(directory, "a") == [6, 7, 8]


def test_one_that_was_dropped_holds_nothing_and_begins_anew(directory: str) -> None:
    positions = fill(directory, 9)
    commit(directory, "slow", positions[0])
    commit(directory, "fast", positions[8])
    subscriptions.drop(directory, "slow", dry_run=True)
    assert not retention.apply(directory, RetentionSettings(keep_s=0)).removed
    subscriptions.drop(directory, "slow")
    assert len(retention.apply(directory, RetentionSettings(keep_s=0)).removed) == 2
    assert unread(directory, "slow") == [6, 7, 8]


def test_what_is_written_meanwhile_is_not_counted(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log grows while it is counted how many changes come again and how many a cap takes."""
    positions = fill(directory, 9)
    commit(directory, "a", positions[7])

    with TableLog.open(directory, SCHEMA, settings=SMALL_FILES) as log:

        class Growing(LogReader):
            def watermark(self) -> Watermark:
                positions.append(log.append(batch(len(positions))))
                return super().watermark()

        for module in (subscriptions, retention):
            monkeypatch.setattr(module, "LogReader", Growing)
        assert subscriptions.move(directory, "a", str(positions[1])).again == 6
        report = retention.apply(directory, RetentionSettings(bytes_max=0))
        lost = report.losses[0]
        assert (lost.after, lost.changes) == (positions[1], positions.index(lost.through) - 1)
