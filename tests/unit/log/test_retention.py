"""Retention: what goes, what stays, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from penstock.errors import ChangesLost, CorruptCheckpoint, LogLocked, PositionAhead
from penstock.log import read_times, retention, sealed, subscriptions
from penstock.log.checkpoint import Checkpoint
from penstock.log.read_times import ReadTimes
from penstock.log.reader import LogReader
from penstock.log.retention import Loss, Reason, Span, removable
from penstock.log.subscription import Subscription
from penstock.model.position import START, Position
from penstock.settings import RetentionSettings
from penstock.system.files import OsFiles
from testkit.crash_files import CrashFiles
from testkit.power_loss import Crash, Mode
from tests.numbered import TABLE, ManualClock, fill, numbers

KEEP = RetentionSettings(keep_s=0)
SECOND = 1_000_000


def mark(name: str, position: Position, time_s: int = 0) -> Checkpoint:
    return Checkpoint("log", TABLE, name, position, time_s * SECOND)


def span(number: int, modified_s: int = 0, size: int = 100) -> Span:
    return Span(number, size, Position(number, 50, 9), modified_s * SECOND)


def planned(
    spans: list[Span], marks: list[Checkpoint], settings: RetentionSettings = KEEP, now_s: int = 0
) -> list[tuple[int, Reason]]:
    return [(one.number, reason) for one, reason in removable(spans, marks, settings, now_s * SECOND)]


FOUR = [span(n) for n in (1, 2, 3, 4)]


def test_slowest_subscriber_decides() -> None:
    marks = [mark("fast", Position(4, 1, 0)), mark("slow", Position(2, 50, 9))]
    assert planned(FOUR, marks) == [(1, Reason.CONSUMED), (2, Reason.CONSUMED)]
    marks[1] = mark("slow", Position(2, 50, 8))
    assert planned(FOUR, marks) == [(1, Reason.CONSUMED)]


def test_newest_file_always_stays() -> None:
    assert planned(FOUR, [mark("a", Position(4, 50, 9))]) == [(n, Reason.CONSUMED) for n in (1, 2, 3)]
    tight = RetentionSettings(bytes_max=0, age_s_max=0)
    assert [number for number, _ in planned(FOUR, [], tight, now_s=99)] == [1, 2, 3]


def test_nothing_goes_without_a_subscriber_and_without_a_cap() -> None:
    assert planned(FOUR, []) == []


def test_size_cap_takes_the_oldest_until_the_rest_fits() -> None:
    assert planned(FOUR, [mark("a", START)], RetentionSettings(bytes_max=250)) == [(1, Reason.SIZE), (2, Reason.SIZE)]
    assert planned(FOUR, [mark("a", START)], RetentionSettings(bytes_max=400)) == []


def test_age_cap_stops_at_the_first_young_file() -> None:
    spans = [span(1, 10), span(2, 50), span(3, 20), span(4, 60)]
    assert planned(spans, [mark("a", START)], RetentionSettings(age_s_max=30), now_s=61) == [(1, Reason.AGE)]


def test_expired_subscriber_no_longer_holds_files() -> None:
    marks = [mark("alive", Position(4, 1, 0), 100), mark("gone", Position(1, 1, 0), 10)]
    settings = RetentionSettings(keep_s=0, subscriber_expiry_s=60)
    assert planned(FOUR, marks, settings, now_s=70) == []
    assert [number for number, _ in planned(FOUR, marks, settings, now_s=71)] == [1, 2, 3]


def test_subscriber_that_had_nothing_to_do_does_not_expire() -> None:
    # It finished file 3 long ago; file 4 was filled only a moment ago.
    spans = [span(3, 10), span(4, 990), span(5, 995)]
    marks = [mark("idle", Position(3, 50, 9), 10), mark("busy", Position(5, 1, 0), 995)]
    settings = RetentionSettings(keep_s=0, subscriber_expiry_s=60)
    assert planned(spans, marks, settings, now_s=1000) == [(3, Reason.CONSUMED)]
    assert planned(spans, marks, settings, now_s=1051) == [(3, Reason.CONSUMED), (4, Reason.CONSUMED)]


def test_all_expired_is_as_good_as_none() -> None:
    assert planned(FOUR, [mark("gone", START)], RetentionSettings(keep_s=0, subscriber_expiry_s=1), now_s=99) == []


def opened(directory: str, name: str) -> Subscription:
    return Subscription.open(directory, name)


def test_consumed_files_go_and_nobody_misses_anything(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 12)
    with opened(directory, "fast") as fast, opened(directory, "slow") as slow:
        fast.commit(positions[11])
        slow.commit(positions[5])
        report = retention.apply(directory, KEEP)
        assert [reason for _, reason in report.removed] == [Reason.CONSUMED, Reason.CONSUMED]
        assert not report.losses
        assert report.bytes > 0
        assert numbers(slow.batches()) == [6, 7, 8, 9, 10, 11]
        assert numbers(fast.batches()) == []
        # A run that has nothing to do does nothing.
        assert retention.apply(directory, KEEP) == retention.Report()
    left = sorted(path.name for path in (tmp_path / "log").iterdir() if ".0000" in path.name)
    assert {name.split(".")[2] for name in left} == {"000003", "000004"}


def test_subscriber_exactly_at_the_end_of_a_deleted_file_lost_nothing(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 9)
    with opened(directory, "a") as one:
        one.commit(positions[2])
        assert positions[2].file < positions[3].file
        assert len(retention.apply(directory, KEEP).removed) == 1
    with opened(directory, "a") as one:
        assert one.loss is None
        assert numbers(one.batches()) == [3, 4, 5, 6, 7, 8]


def test_cap_reports_the_exact_range_and_the_subscription_sees_it(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 12)
    with opened(directory, "slow") as slow, opened(directory, "fast") as fast:
        slow.commit(positions[1])
        fast.commit(positions[10])
    with capture_logs() as logs:
        report = retention.apply(directory, RetentionSettings(bytes_max=20_000))
    gone = len({number for number, _ in report.removed})
    through = positions[3 * gone - 1]
    assert report.losses == (Loss("slow", positions[1], through),)
    warning = next(entry for entry in logs if entry["log_level"] == "warning")
    assert (warning["event"], warning["subscription"]) == ("changes lost", "slow")
    assert (warning["after"], warning["through"]) == (str(positions[1]), str(through))
    with opened(directory, "slow") as slow:
        for _ in range(2):
            with pytest.raises(ChangesLost) as caught:
                list(slow.batches())
            assert (caught.value.place["after"], caught.value.place["through"]) == (positions[1], through)
        with pytest.raises(ChangesLost):
            slow.next(0)
        with pytest.raises(ChangesLost):
            slow.commit(positions[11])
    with opened(directory, "slow") as slow:
        assert slow.accept_loss() == Loss("slow", positions[1], through)
        assert slow.accept_loss() is None
        assert slow.position == through
        assert numbers(slow.batches()) == list(range(3 * gone, 12))
    with opened(directory, "fast") as fast:
        assert fast.loss is None
        assert numbers(fast.batches()) == [11]


def test_age_cap_goes_by_the_time_of_the_last_write(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    fill(directory, 9)
    times = {f"shop.orders.{n:06d}.avro": n * 100 * SECOND for n in (1, 2, 3, 4)}
    clock = ManualClock(now_s=350)
    settings = RetentionSettings(age_s_max=100)
    report = retention.apply(directory, settings, clock=clock, modified=lambda path: times[Path(path).name])
    assert report.removed == ((1, Reason.AGE), (2, Reason.AGE))


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 100])
def test_unreadable_checkpoint_holds_what_no_cap_takes(tmp_path: Path, content: bytes) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 9)
    with opened(directory, "good") as good:
        good.commit(positions[8])
    bad = tmp_path / "log" / "bad.checkpoint"
    bad.write_bytes(content)
    with capture_logs() as logs:
        report = retention.apply(directory, KEEP, clock=ManualClock(1 << 40))
    assert not report.removed
    assert [type(error) for error in report.unreadable] == [CorruptCheckpoint]
    assert "bad.checkpoint" in logs[0]["error"]
    assert bad.read_bytes() == content
    assert len(LogReader(directory).numbers()) == 3


@pytest.mark.parametrize("settings", [RetentionSettings(bytes_max=0), RetentionSettings(age_s_max=0)])
def test_unreadable_checkpoint_cannot_fill_the_disk(tmp_path: Path, settings: RetentionSettings) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 9)
    with opened(directory, "damaged") as one:
        one.commit(positions[1])
    with opened(directory, "good") as good:
        good.commit(positions[8])
    file = tmp_path / "log" / "damaged.checkpoint"
    content = file.read_bytes()
    file.write_bytes(content[:-9])
    with capture_logs() as logs:
        report = retention.apply(directory, settings, clock=ManualClock(1 << 40))
    assert len(LogReader(directory).numbers()) == 1
    assert [type(error) for error in report.unreadable] == [CorruptCheckpoint]
    # Nobody knows what it still needed, and that is what is said.
    told = [entry for entry in logs if entry["event"] == "changes lost"]
    assert [(entry["subscription"], entry["after"]) for entry in told] == [("damaged.checkpoint", "unknown")]
    assert report.losses == ()
    # Brought back from a copy, it knows exactly.
    file.write_bytes(content)
    with opened(directory, "damaged") as one, pytest.raises(ChangesLost) as caught:
        list(one.batches())
    assert (caught.value.place["after"], str(caught.value.place["through"])) == (positions[1], told[0]["through"])


def test_unreadable_checkpoint_expires_like_any_other(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 9)
    with Subscription.open(directory, "good", clock=ManualClock(1000)) as good:
        good.commit(positions[8])
    (tmp_path / "log" / "bad.checkpoint").write_bytes(b"")
    settings = RetentionSettings(keep_s=0, subscriber_expiry_s=60)
    for now_s, left in ((1059, 3), (1061, 1)):
        retention.apply(directory, settings, clock=ManualClock(now_s), modified=lambda _: 1000 * SECOND)
        assert len(LogReader(directory).numbers()) == left


def test_checkpoint_ahead_of_the_log_holds_what_no_cap_takes(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    fill(directory, 9)
    log_id = LogReader(directory).log_id
    ahead = Checkpoint(log_id, TABLE, "ahead", Position(99, 1, 0), 0)
    sealed.write(OsFiles(), directory, "ahead.checkpoint", ahead.to_json())
    report = retention.apply(directory, KEEP)
    assert not report.removed
    assert [type(error) for error in report.unreadable] == [PositionAhead]


def test_only_one_run_at_a_time(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    fill(directory, 3)
    with retention.paused(OsFiles(), directory, ManualClock()), pytest.raises(LogLocked, match="another retention run"):
        retention.apply(directory, KEEP)
    retention.apply(directory, KEEP)


def test_new_subscription_does_not_wait_for_ever_for_a_stuck_run(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    fill(directory, 3)

    class Hurried(ManualClock):
        def monotonic(self) -> float:
            self.now_s += 6
            return super().monotonic()

    with retention.paused(OsFiles(), directory, ManualClock()), pytest.raises(LogLocked, match="does not come"):
        Subscription.open(directory, "new", clock=Hurried())


def test_reader_in_the_middle_is_told_when_its_next_file_is_cut(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 12)
    with opened(directory, "a") as one:
        batches = one.batches()
        assert numbers([next(batches)]) == [0]
        retention.apply(directory, RetentionSettings(bytes_max=0))
        # What it had in hand it still gets; the range names what it will not.
        assert numbers([next(batches), next(batches)]) == [1, 2]
        with pytest.raises(ChangesLost) as caught:
            next(batches)
        assert (caught.value.place["after"], caught.value.place["through"]) == (positions[2], positions[8])


@pytest.mark.parametrize("cap", [None, 20_000])
def test_crash_at_every_step_leaves_an_unbroken_run_and_nothing_needed_is_gone(cap: int | None) -> None:
    """Power loss before each step of a run, in every way: the next run and the next reader find everything in order."""
    settings = RetentionSettings(bytes_max=cap, keep_bytes_max=0)
    files = CrashFiles()
    files.make_directory("/log")
    positions = fill("/log", 15, files=files)
    for name, at in (("slow", 6), ("fast", 14)):
        with Subscription.open("/log", name, files=files) as one:
            one.commit(positions[at])
    crashed: list[CrashFiles] = []
    crashes = [Crash(mode, seed) for mode in Mode for seed in range(2)]

    def watch(now: CrashFiles) -> None:
        crashed.extend(now.clone_after_crash(crash) for crash in crashes)

    files.disk.watch = watch
    assert retention.apply("/log", settings, files=files).removed
    watch(files)
    files.disk.watch = None
    assert len(crashed) > 100
    for disk in crashed:
        reader = LogReader("/log", files=disk)
        left = reader.numbers()
        assert left == list(range(left[0], 6))
        reader.close()
        retention.apply("/log", settings, files=disk)
        # A writer that opens the log says again how far it is durable.
        fill("/log", 0, files=disk)
        with Subscription.open("/log", "slow", files=disk) as slow:
            lost = slow.accept_loss()
            first = 7 if lost is None else positions.index(lost.through) + 1
            assert numbers(slow.batches()) == list(range(first, 15))
        # Without a cap nothing is lost; with one, exactly what an undisturbed run takes.
        assert first == (7 if cap is None else 9)
        indexes = [name for name in disk.list("/log") if name.endswith(".idx")]
        assert len(indexes) <= 6 - left[0]


DAY = RetentionSettings()


def test_what_was_read_is_kept_for_a_day_by_default(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 12)
    clock = ManualClock()
    with opened(directory, "a") as one:
        one.commit(positions[5])
    assert not retention.apply(directory, DAY, clock=clock).removed
    clock.now_s += 3600
    with opened(directory, "a") as one:
        one.commit(positions[11])
    assert not retention.apply(directory, DAY, clock=clock).removed
    # Each file's time counts from when it was found read: two go an hour before the third.
    clock.now_s += 23 * 3600 + 1
    assert retention.apply(directory, DAY, clock=clock).removed == ((1, Reason.CONSUMED), (2, Reason.CONSUMED))
    clock.now_s += 3600
    assert retention.apply(directory, DAY, clock=clock).removed == ((3, Reason.CONSUMED),)


def test_at_most_so_much_of_what_was_read_is_kept(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 12)
    with opened(directory, "a") as one:
        one.commit(positions[11])
    with LogReader(directory) as reader:
        two = sum(info.bytes for info in reader.files()[1:3])
    report = retention.apply(directory, RetentionSettings(keep_bytes_max=two))
    assert report.removed == ((1, Reason.CONSUMED),)
    assert not report.losses


def test_files_that_a_rewound_subscription_needs_again_begin_a_new_day(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 9)
    clock = ManualClock()
    with opened(directory, "a") as one:
        one.commit(positions[8])
    retention.apply(directory, DAY, clock=clock)
    subscriptions.move(directory, "a", "begin", clock=clock)
    clock.now_s += 90_000
    assert not retention.apply(directory, DAY, clock=clock).removed
    with opened(directory, "a") as one:
        assert numbers(one.batches()) == list(range(9))
        one.commit(positions[8])
    assert not retention.apply(directory, DAY, clock=clock).removed
    clock.now_s += 90_000
    assert len(retention.apply(directory, DAY, clock=clock).removed) == 2


@pytest.mark.parametrize("text", [b"", b"{}", b"not a note", b"\x00" * 100])
def test_a_note_that_cannot_be_used_keeps_files_for_longer(tmp_path: Path, text: bytes) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 9)
    clock = ManualClock()
    with opened(directory, "a") as one:
        one.commit(positions[8])
    retention.apply(directory, DAY, clock=clock)
    (tmp_path / "log" / read_times.NAME).write_bytes(text)
    clock.now_s += 90_000
    assert not retention.apply(directory, DAY, clock=clock).removed
    clock.now_s += 90_000
    assert len(retention.apply(directory, DAY, clock=clock).removed) == 2


def test_times_stay_few_and_never_come_earlier() -> None:
    times = ReadTimes()
    for number in range(1, 5001):
        times = times.seen(1, number, number)
    assert len(times.entries) <= 1000
    assert all(times.of(number, 9999) >= number for number in range(1, 5002))
    assert times.of(5000, 9999) == 5000
    assert times.seen(1, 0, 1) == ReadTimes()


def test_a_dry_run_says_what_would_go_and_changes_nothing(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    positions = fill(directory, 12)
    with opened(directory, "slow") as slow:
        slow.commit(positions[1])
    before = sorted(path.name for path in (tmp_path / "log").iterdir())
    with capture_logs() as logs:
        told = retention.apply(directory, RetentionSettings(bytes_max=0), dry_run=True)
    assert not logs
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == before
    assert retention.apply(directory, RetentionSettings(bytes_max=0)) == told
    assert [loss.changes for loss in told.losses] == [positions.index(told.losses[0].through) - 1]


def test_a_cap_that_takes_what_no_subscription_read_says_how_much(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    fill(directory, 12)
    with capture_logs() as logs:
        report = retention.apply(directory, RetentionSettings(bytes_max=0))
    assert (len(report.removed), report.unread) == (3, 9)
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert (warning["event"], warning["changes"]) == ("changes deleted that no subscription read", 9)
