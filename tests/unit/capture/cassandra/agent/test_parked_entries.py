"""Parked entries stay in order, once each, on disk, until the place says that they were taken."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from penstock.capture.cassandra.agent.parked_entries import ParkedEntries, read_summary
from penstock.capture.cassandra.decoding.decoder import ParkedEntry
from penstock.errors import CorruptCheckpoint, DiskFull, LogFailed
from penstock.system.files import Files, OsFiles
from testkit.crash_files import CrashFiles

TABLE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def entry(position: int, table: uuid.UUID = TABLE, data: bytes = b"mutation") -> ParkedEntry:
    return ParkedEntry(table, "unknown table", "CommitLog-7-5.log", 5, position, 7, data)


def opened(directory: Path | str, files: Files | None = None, **options: int) -> ParkedEntries:
    parked = ParkedEntries(files or OsFiles(), str(directory), **options)
    parked.open({})
    return parked


def test_entries_come_back_in_order_after_a_restart(tmp_path: Path) -> None:
    parked = opened(tmp_path)
    entries = [entry(10, data=b""), entry(30), entry(20, OTHER), entry(50, data=bytes(5000))]
    for one in entries:
        parked.park(one)
    parked.sync()
    parked.close()
    again = opened(tmp_path)
    assert again.waiting == 4
    assert set(again.tables()) == {TABLE, OTHER}
    assert again.take(TABLE) == [entries[0], entries[1], entries[3]]
    assert again.take(TABLE) == []
    assert not again.holds(TABLE)
    assert again.holds(OTHER)


def test_what_was_not_synced_may_go_and_what_was_stays() -> None:
    files = CrashFiles()
    parked = opened("s", files)
    parked.park(entry(10))
    parked.sync()
    parked.park(entry(20))
    again = opened("s", files.kill())
    assert [one.position for one in again.take(TABLE)] == [10]


def test_entry_that_is_read_again_is_kept_once(tmp_path: Path) -> None:
    parked = opened(tmp_path)
    for _ in range(3):
        parked.park(entry(10))
    parked.sync()
    parked.close()
    again = opened(tmp_path)
    again.park(entry(10))
    again.park(entry(11))
    assert [one.position for one in again.take(TABLE)] == [10, 11]


def test_entry_that_was_taken_and_still_has_to_wait_is_kept_anew(tmp_path: Path) -> None:
    parked = opened(tmp_path)
    for position in (10, 20):
        parked.park(entry(position))
    for one in parked.take(TABLE):
        parked.park(one)
    parked.sync()
    assert [one.position for one in parked.take(TABLE)] == [10, 20]


def test_crash_between_taking_and_parking_again_leaves_each_entry_once(tmp_path: Path) -> None:
    parked = opened(tmp_path)
    for position in (10, 20):
        parked.park(entry(position))
    for one in parked.take(TABLE):
        parked.park(one)
    parked.park(entry(30))
    parked.sync()
    parked.close()
    # The place knows of nothing that was taken, so both files are read.
    assert [one.position for one in opened(tmp_path).take(TABLE)] == [10, 20, 30]


def test_place_says_what_was_taken_and_the_file_goes_after_that(tmp_path: Path) -> None:
    parked = opened(tmp_path)
    parked.park(entry(10))
    parked.take(TABLE)
    saved = parked.taken()
    assert len(saved) == 1
    assert len(list((tmp_path / "parked").iterdir())) == 1
    restarted = ParkedEntries(OsFiles(), str(tmp_path))
    restarted.open(saved)
    assert restarted.waiting == 0
    assert list((tmp_path / "parked").iterdir()) == []
    parked.tidy(saved)
    assert parked.taken() == {}
    assert (parked.waiting, parked.bytes) == (0, 0)


def test_known_entries_are_those_that_may_come_again(tmp_path: Path) -> None:
    parked = opened(tmp_path)
    parked.park(entry(10))
    assert parked.knows(5, 10)
    parked.take(TABLE)
    assert parked.knows(5, 10), "its change may stand in a log, and not in the place"
    parked.tidy(parked.taken())
    assert not parked.knows(5, 10)


@pytest.mark.parametrize("cut", [1, 9, 25])
def test_torn_end_is_cut(tmp_path: Path, cut: int) -> None:
    parked = opened(tmp_path)
    for position in (10, 20):
        parked.park(entry(position))
    parked.sync()
    parked.close()
    (file,) = (tmp_path / "parked").iterdir()
    file.write_bytes(file.read_bytes()[:-cut])
    again = opened(tmp_path)
    again.park(entry(40))
    assert [one.position for one in again.take(TABLE)] == [10, 40]


def test_foreign_file_is_not_taken_for_parked_entries(tmp_path: Path) -> None:
    (tmp_path / "parked").mkdir()
    (tmp_path / "parked" / f"{TABLE.hex}.1.parked").write_bytes(b"something else entirely")
    (tmp_path / "parked" / "notes.txt").write_text("left alone")
    with pytest.raises(CorruptCheckpoint, match="not a file of parked entries"):
        opened(tmp_path)


def test_full_disk_and_the_limit_are_told_apart(tmp_path: Path) -> None:
    files = CrashFiles()
    parked = opened("s", files)
    files.disk.capacity = files.disk.used
    parked.park(entry(10))
    with pytest.raises(DiskFull):
        parked.sync()
    files.disk.capacity = None
    parked.sync()
    assert [one.position for one in parked.take(TABLE)] == [10]
    small = opened(tmp_path, bytes_max=1000)
    small.park(entry(10, data=bytes(2000)))
    with pytest.raises(LogFailed, match="more than 1000 bytes"):
        small.sync()


def test_summary_is_read_beside_a_running_agent(tmp_path: Path) -> None:
    assert read_summary(OsFiles(), str(tmp_path)) == []
    parked = opened(tmp_path)
    for position in (10, 20):
        parked.park(entry(position))
    parked.sync()
    (row,) = read_summary(OsFiles(), str(tmp_path))
    assert (row["table_id"], row["entries"], row["first_position"]) == (str(TABLE), 2, 10)
    assert (row["reason"], row["bytes"]) == ("unknown table", 16)
