"""Subscriptions: where they start, where they go on, who may use them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock.errors import (
    ChangesLost,
    CorruptCheckpoint,
    LogClosed,
    PositionAhead,
    PositionBehind,
    StorageError,
    SubscriptionLocked,
)
from penstock.log import retention
from penstock.log.follow import Follower
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.log.table_log import TableLog
from penstock.model.position import START, Position
from penstock.settings import RetentionSettings
from tests.numbered import SCHEMA, ManualClock, batch, fill, numbers


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "log")


def test_new_subscription_starts_at_the_earliest_change(directory: str) -> None:
    fill(directory, 5)
    with Subscription.open(directory, "a") as one:
        assert one.position == START
        assert numbers(one.batches()) == [0, 1, 2, 3, 4]
        assert numbers(one.batches()) == []


def test_new_subscription_can_start_at_the_latest_change(directory: str) -> None:
    fill(directory, 5)
    with Subscription.open(directory, "a", start="latest") as one:
        assert numbers(one.batches()) == []
        fill(directory, 2, first=5)
        assert numbers(one.batches()) == [5, 6]


def test_new_subscription_can_start_behind_a_position(directory: str) -> None:
    positions = fill(directory, 5)
    with Subscription.open(directory, "a", start=positions[2]) as one:
        assert numbers(one.batches()) == [3, 4]
    # The start is for new subscriptions only.
    with Subscription.open(directory, "a", start="earliest") as one:
        assert one.position == positions[2]


def test_start_ahead_of_the_log_is_refused_and_leaves_nothing(directory: str) -> None:
    fill(directory, 5)
    with pytest.raises(PositionAhead, match="the start lies ahead"):
        Subscription.open(directory, "a", start=Position(77, 0, 0))
    with Subscription.open(directory, "a") as one:
        assert one.position == START


def test_start_before_what_is_left_is_refused_with_the_range(directory: str) -> None:
    positions = fill(directory, 9)
    retention.apply(directory, RetentionSettings(bytes_max=0))
    with pytest.raises(ChangesLost) as caught:
        Subscription.open(directory, "a", start=positions[0])
    assert (caught.value.place["after"], caught.value.place["through"]) == (positions[0], positions[5])
    with Subscription.open(directory, "b") as one:
        assert numbers(one.batches()) == [6, 7, 8]


def test_what_was_not_committed_comes_again(directory: str) -> None:
    positions = fill(directory, 6)
    with Subscription.open(directory, "a") as one:
        assert numbers(one.batches()) == [0, 1, 2, 3, 4, 5]
        one.commit(positions[3])
    with Subscription.open(directory, "a") as one:
        assert one.position == positions[3]
        assert numbers(one.batches()) == [4, 5]


def test_resumes_in_the_middle_of_a_block(directory: str) -> None:
    with TableLog.open(directory, SCHEMA) as log:
        last = log.append(batch(0, count=10))
    with Subscription.open(directory, "a") as one:
        one.commit(last._replace(ordinal=6))
    with Subscription.open(directory, "a") as one:
        assert numbers(one.batches()) == [7, 8, 9]


def test_commit_is_monotone_and_within_the_log(directory: str) -> None:
    positions = fill(directory, 6)
    with Subscription.open(directory, "a") as one:
        one.commit(positions[3])
        one.commit(positions[3])
        with pytest.raises(PositionBehind):
            one.commit(positions[2])
        with pytest.raises(PositionAhead, match="not in the log yet"):
            one.commit(Position(99, 0, 0))
        assert one.position == positions[3]


def test_commit_beyond_what_was_handed_out_moves_reading_too(directory: str) -> None:
    positions = fill(directory, 6)
    with Subscription.open(directory, "a") as one:
        assert numbers([one.next(5) or pytest.fail("nothing came")]) == [0]
        one.commit(positions[4])
        assert numbers([one.next(5) or pytest.fail("nothing came")]) == [5]


def test_next_waits_for_a_change_and_gives_up_in_time(directory: str) -> None:
    fill(directory, 1)
    with Subscription.open(directory, "a", start="latest") as one:
        assert one.next(0) is None
        writer = threading.Thread(target=fill, args=(directory, 1), kwargs={"first": 7})
        writer.start()
        got = one.next(30)
        writer.join()
        assert got is not None
        assert numbers([got]) == [7]


def test_batches_and_next_can_be_mixed(directory: str) -> None:
    fill(directory, 3)
    with Subscription.open(directory, "a") as one:
        got = numbers(one.batches())
        fill(directory, 2, first=3)
        got += numbers([one.next(5) or pytest.fail("nothing came")])
        got += numbers(one.batches())
        fill(directory, 1, first=5)
        got += numbers([one.next(5) or pytest.fail("nothing came")])
        assert got == [0, 1, 2, 3, 4, 5]


def test_any_number_of_subscriptions_share_one_follower(directory: str) -> None:
    fill(directory, 3)
    with Follower(directory) as follower:
        many = [Subscription.open(directory, f"s{i}", follower=follower) for i in range(20)]
        for position, one in enumerate(many):
            got: list[int] = []
            while len(got) < 3:
                got += numbers([one.next(5) or pytest.fail("nothing came")])
            assert got == [0, 1, 2], position
        for one in many:
            one.close()


def test_second_user_of_a_name_is_refused(directory: str) -> None:
    fill(directory, 1)
    with Subscription.open(directory, "a"):
        with pytest.raises(SubscriptionLocked, match="another process uses this subscription"):
            Subscription.open(directory, "a")
        Subscription.open(directory, "b").close()
    Subscription.open(directory, "a").close()


def test_shared_reader_stays_open(directory: str) -> None:
    fill(directory, 2)
    with LogReader(directory) as reader:
        Subscription.open(reader, "a").close()
        with Subscription.open(reader, "a") as one:
            assert numbers(one.batches()) == [0, 1]


def test_closed_subscription_refuses_everything(directory: str) -> None:
    positions = fill(directory, 2)
    one = Subscription.open(directory, "a")
    one.close()
    one.close()
    with pytest.raises(LogClosed):
        one.commit(positions[0])
    with pytest.raises(LogClosed):
        one.next(0)
    with pytest.raises(LogClosed):
        list(one.batches())


def test_dropped_subscription_starts_anew(directory: str) -> None:
    positions = fill(directory, 3)
    with Subscription.open(directory, "a") as one:
        one.commit(positions[2])
        one.drop()
    assert not list(Path(directory).glob("*.checkpoint"))
    with Subscription.open(directory, "a") as one:
        assert one.position == START


def test_bad_checkpoint_stops_only_its_own_subscription(directory: str) -> None:
    fill(directory, 3)
    for name in ("a", "b"):
        Subscription.open(directory, name).close()
    bad = Path(directory, "a.checkpoint")
    bad.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(CorruptCheckpoint, match=r"empty.*a\.checkpoint"):
            Subscription.open(directory, "a")
    assert bad.read_bytes() == b""
    with Subscription.open(directory, "b") as other:
        assert numbers(other.batches()) == [0, 1, 2]


def test_checkpoint_of_another_table_is_refused(directory: str, tmp_path: Path) -> None:
    fill(directory, 3)
    other = str(tmp_path / "other")
    fill(other, 3)
    Subscription.open(other, "a").close()
    Path(directory, "a.checkpoint").write_bytes(Path(other, "a.checkpoint").read_bytes())
    with pytest.raises(CorruptCheckpoint, match="another log"):
        Subscription.open(directory, "a")


def test_checkpoint_of_a_log_restored_from_an_older_copy_is_ahead(directory: str) -> None:
    positions = fill(directory, 9)
    with Subscription.open(directory, "a") as one:
        one.commit(positions[8])
    for path in Path(directory).iterdir():
        if path.name == "watermark" or any(part in path.name for part in ("000002", "000003")):
            path.unlink()
    with pytest.raises(PositionAhead, match=r"a\.checkpoint.*000003"):
        Subscription.open(directory, "a")


def test_missing_log_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file or directory"):
        Subscription.open(str(tmp_path / "nothing"), "a")


def test_commit_that_finishes_a_file_runs_retention_when_asked(directory: str) -> None:
    positions = fill(directory, 12)
    clock = ManualClock()
    with Subscription.open(directory, "a", clock=clock, retention_settings=RetentionSettings(keep_s=0)) as one:
        one.commit(positions[1])
        assert LogReader(directory).numbers() == [1, 2, 3, 4]
        one.commit(positions[8])
        assert LogReader(directory).numbers() == [4]
        # A run elsewhere does not disturb a commit.
        with retention.paused(one._files, directory, clock):
            one.commit(positions[11])
        assert one.position == positions[11]


def test_stale_watermark_after_power_loss_holds_nobody_up_for_good(directory: str) -> None:
    """The watermark is not synced; a checkpoint is. Until a writer has looked, there is just nothing new."""
    with TableLog.open(directory, SCHEMA) as log:
        log.append(batch(0, 3))
        old = Path(directory, "watermark").read_bytes()
        positions = [log.append(batch(number)) for number in range(3, 8)]
    with Subscription.open(directory, "a") as one:
        one.commit(positions[3])
    with Path(directory, "watermark").open("r+b") as file:
        file.write(old)
    with Subscription.open(directory, "a") as one:
        assert numbers(one.batches()) == []
        assert one.next(0) is None
        with TableLog.open(directory, SCHEMA):
            assert numbers([one.next(30) or pytest.fail("nothing came")]) == [7]


def test_opening_and_closing_leaves_no_file_open(directory: str) -> None:
    fill(directory, 3)

    def use() -> int:
        with Subscription.open(directory, "a") as one:
            assert one.next(5) is not None
            assert len(numbers(one.batches())) == 2
            assert one.next(0) is None
        return len(os.listdir("/proc/self/fd"))

    assert len({use() for _ in range(5)}) == 1
