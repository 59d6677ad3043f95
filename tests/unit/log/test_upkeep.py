"""Upkeep: retention over all logs of a node, with and without subscribers, by the disk that they are on."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from structlog.testing import capture_logs

from penstock.log import retention, subscriptions
from penstock.log.reader import LogReader
from penstock.log.retention import Reason
from penstock.log.subscription import Subscription
from penstock.log.upkeep import Disk, Upkeep, disk_of, logs_below
from penstock.settings import RetentionSettings
from tests.many_logs import write
from tests.numbered import fill

GIB = 1 << 30
ROOMY = Disk(100 * GIB, 90 * GIB)


def upkeep(root: Path, disk: Disk = ROOMY, **settings: object) -> Upkeep:
    return Upkeep(str(root), RetentionSettings.model_validate(settings), disk=lambda _: disk)


def sizes(root: Path, name: str) -> list[int]:
    with LogReader(str(root / name)) as reader:
        return [info.bytes for info in reader.files()]


def test_caps_work_without_a_subscriber(tmp_path: Path) -> None:
    fill(str(tmp_path / "shop.orders"), 60)
    kept = upkeep(tmp_path, bytes_max=30_000)
    (report,) = kept.run_once().values()
    assert {reason for _, reason in report.removed} == {Reason.SIZE}
    assert sum(sizes(tmp_path, "shop.orders")) <= 30_000
    assert kept.lost == {("shop.orders", ""): report.unread}
    assert report.unread > 0


def test_default_caps_leave_logs_alone_that_fit_their_disk(tmp_path: Path) -> None:
    fill(str(tmp_path / "shop.orders"), 60)
    (report,) = upkeep(tmp_path).run_once().values()
    assert report == retention.Report()


def test_the_oldest_files_of_all_logs_go_when_the_disk_is_needed(tmp_path: Path) -> None:
    for name in ("shop.old", "shop.new"):
        fill(str(tmp_path / name), 12)
    times = {"shop.old": 1, "shop.new": 2}
    before = {name: sizes(tmp_path, name) for name in times}
    total = sum(map(sum, before.values()))
    # One byte less than all of them, and twice that as a disk of which they may have a half.
    made = Upkeep(
        str(tmp_path),
        RetentionSettings(free_bytes_min=None),
        disk=lambda _: Disk(2 * (total - 1), total),
        modified=lambda path: times[Path(path).parent.name],
    )
    with capture_logs() as logs:
        reports = made.run_once()
    assert [file for file, _ in reports[str(tmp_path / "shop.old")].removed] == [1]
    assert not reports[str(tmp_path / "shop.new")].removed
    assert "near the room" in logs[0]["event"]
    assert logs[0]["log_level"] == "warning"
    assert not made.run_once()[str(tmp_path / "shop.old")].removed


def test_room_on_the_disk_is_made_at_the_cost_of_the_oldest(tmp_path: Path) -> None:
    fill(str(tmp_path / "shop.orders"), 12)
    first, *rest = sizes(tmp_path, "shop.orders")
    assert not upkeep(tmp_path, Disk(GIB, 4096), free_bytes_min=4096).run_once()[str(tmp_path / "shop.orders")].removed
    upkeep(tmp_path, Disk(GIB, 4096), free_bytes_min=4096 + first).run_once()
    assert sizes(tmp_path, "shop.orders") == rest
    # The newest file of a log never goes, whatever the disk says.
    upkeep(tmp_path, Disk(GIB, 0), free_bytes_min=GIB).run_once()
    assert sizes(tmp_path, "shop.orders") == rest[-1:]


def test_a_loss_is_counted_for_the_subscription_that_has_it(tmp_path: Path) -> None:
    directory = str(tmp_path / "shop.orders")
    positions = fill(directory, 12)
    with Subscription.open(directory, "slow") as slow:
        slow.commit(positions[0])
    made = upkeep(tmp_path, bytes_max=0)
    made.run_once()
    assert made.lost == {("shop.orders", "slow"): 8}


def test_what_a_dropped_subscription_or_log_lost_is_not_counted_for_ever(tmp_path: Path) -> None:
    for name in ("shop.orders", "shop.other"):
        positions = fill(str(tmp_path / name), 12)
        for subscription in ("slow", "brief"):
            with Subscription.open(str(tmp_path / name), subscription) as one:
                one.commit(positions[0])
    made = upkeep(tmp_path, bytes_max=0)
    made.run_once()
    assert len(made.lost) == 4
    subscriptions.drop(str(tmp_path / "shop.orders"), "brief")
    shutil.rmtree(tmp_path / "shop.other")
    made.run_once()
    assert made.lost == {("shop.orders", "slow"): 8}


def test_one_damaged_log_does_not_keep_the_others_from_being_looked_after(tmp_path: Path) -> None:
    write(tmp_path, "bad", 0, 1)
    (tmp_path / "shop.bad" / "log.json").write_text("{")
    fill(str(tmp_path / "shop.orders"), 12)
    with capture_logs() as logs:
        reports = upkeep(tmp_path, bytes_max=0).run_once()
    assert len(reports[str(tmp_path / "shop.orders")].removed) == 3
    assert {entry["directory"] for entry in logs if entry["event"] == "retention failed"} == {
        str(tmp_path / "shop.bad")
    }


def test_it_goes_on_until_it_is_told_to_stop(tmp_path: Path) -> None:
    fill(str(tmp_path / "shop.orders"), 12)
    stop = threading.Event()
    made = upkeep(tmp_path, bytes_max=0, every_s=0.01)
    thread = threading.Thread(target=made.run, args=(stop,))
    thread.start()
    while len(sizes(tmp_path, "shop.orders")) > 1:
        stop.wait(0.01)
    fill(str(tmp_path / "shop.orders"), 6, first=12)
    while len(sizes(tmp_path, "shop.orders")) > 1:
        stop.wait(0.01)
    stop.set()
    thread.join()


def test_logs_are_those_with_an_identity_and_a_missing_root_has_none(tmp_path: Path) -> None:
    fill(str(tmp_path / "shop.orders"), 1)
    (tmp_path / "state").mkdir()
    assert logs_below(str(tmp_path)) == [str(tmp_path / "shop.orders")]
    assert logs_below(str(tmp_path / "none")) == []
    assert disk_of(str(tmp_path)).bytes > 0
