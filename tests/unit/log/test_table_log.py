"""The writer: group commit, new files, locks, refusals."""

import errno
import multiprocessing
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import (
    DiskFull,
    InvalidInput,
    InvalidValue,
    LogClosed,
    LogFailed,
    LogLocked,
    StorageError,
    UnsupportedFormat,
    WriterFenced,
)
from penstock.log import group_commit, watermark
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.log.verify import verify
from penstock.model.position import START, Position
from penstock.model.schema import TableId, TableSchema
from penstock.settings import Acknowledge, Codec, LogSettings
from testkit.crash_files import CrashFiles, Fault
from tests import sample

SMALL = LogSettings(file_bytes_max=8192, index_bytes=4096)


def test_appended_changes_are_read_in_order(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA) as log:
        assert log.end == START
        first = log.append(sample.batch(1, 2))
        second = log.append(sample.batch(3))
        assert first < second == log.end
        assert log.rows == 3
    assert sample.stored(directory) == [1, 2, 3]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_reads_back(tmp_path: Path, codec: Codec) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA, settings=LogSettings(codec=codec)) as log:
        for number in range(50):
            log.append(sample.batch(number, note="abc" * number))
    assert sample.stored(directory) == list(range(50))


def test_a_closed_log_goes_on_in_its_last_file(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    for number in range(5):
        with TableLog.open(directory, sample.SCHEMA) as log:
            log.append(sample.batch(number))
    assert sample.stored(directory) == list(range(5))
    assert LogReader(directory).numbers() == [1]


def test_a_full_file_is_followed_by_the_next_number(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA, settings=SMALL) as log:
        positions = [log.append(sample.batch(number, note="n" * 500)) for number in range(40)]
    assert positions == sorted(positions)
    reader = LogReader(directory)
    assert len(reader.numbers()) > 3
    assert reader.numbers() == list(range(1, len(reader.numbers()) + 1))
    assert sample.stored(directory) == list(range(40))


def test_a_schema_change_begins_a_new_file(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA) as log:
        log.append(sample.batch(1))
        log.append(sample.batch(2, schema=sample.WIDER))
        assert log.schema == sample.WIDER
        log.append(sample.batch(3, schema=sample.WIDER))
    found = LogReader(directory)
    assert [info.schema_version for info in found.files()] == [1, 2]
    assert sample.stored(directory) == [1, 2, 3]


def test_a_different_schema_under_an_old_number_gets_the_next_one(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    same_number = TableSchema(sample.TABLE, sample.WIDER.columns, version=1, source="sandbox")
    with TableLog.open(directory, sample.SCHEMA) as log:
        log.append(sample.batch(1))
        log.append(sample.batch(2, schema=same_number))
        assert log.schema.version == 2
    assert sample.stored(directory) == [1, 2]


def test_header_alone_says_what_the_table_is_now(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    truncated, anew = replace(sample.SCHEMA, truncated_us=5), replace(sample.SCHEMA, id="b", altered=7)
    with TableLog.open(directory, sample.SCHEMA) as log:
        log.append(sample.batch(1))
        for schema in (truncated, truncated, anew):
            log.begin(schema)
        log.append(sample.batch(2, schema=anew))
        log.begin(anew)
    with LogReader(directory) as reader:
        assert [reader.heading(number).schema for number in reader.numbers()] == [sample.SCHEMA, truncated, anew]
        assert verify(reader).damage == []
    assert sample.stored(directory) == [1, 2]


def test_new_log_has_its_header_before_any_change(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA) as log:
        log.begin(sample.SCHEMA)
    with LogReader(directory) as reader:
        assert (reader.numbers(), reader.end(), reader.watermark().file) == ([1], START, 1)


def test_header_that_nobody_wrote_changes_under_survives_a_writer_that_was_killed(tmp_path: Path) -> None:
    live = tmp_path / "live"
    truncated = replace(sample.SCHEMA, truncated_us=5)
    with TableLog.open(str(live), sample.SCHEMA) as log:
        log.append(sample.batch(1))
        log.begin(truncated)
        shutil.copytree(live, tmp_path / "same")
        shutil.copytree(live, tmp_path / "other")
    for name, schema, numbers in (("same", truncated, [1, 2]), ("other", sample.SCHEMA, [1, 2, 3])):
        with TableLog.open(str(tmp_path / name), schema) as log:
            log.append(sample.batch(2, schema=schema))
        with LogReader(str(tmp_path / name)) as reader:
            assert reader.numbers() == numbers
            assert reader.heading(2).schema == truncated
        assert sample.stored(str(tmp_path / name)) == [1, 2]


def test_writer_that_lost_its_lock_begins_no_file(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    old = TableLog.open(directory, sample.SCHEMA)
    old.append(sample.batch(1))
    (tmp_path / "log" / "writer.lock").unlink()
    with TableLog.open(directory, sample.SCHEMA) as new:
        new.append(sample.batch(2))
        for late in (old.begin, lambda schema: old.append(sample.batch(66, schema=schema))):
            with pytest.raises(WriterFenced):
                late(replace(sample.SCHEMA, truncated_us=5))
        new.append(sample.batch(3))
    old.close()
    assert sample.stored(directory) == [1, 2, 3]


def test_concurrent_appends_share_commits_and_lose_nothing(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    log = TableLog.open(directory, sample.SCHEMA)

    def appender(start: int) -> None:
        for number in range(start, start + 20):
            log.append(sample.batch(number))

    threads = [threading.Thread(target=appender, args=(1000 * worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    found = sample.stored(directory)
    assert sorted(found) == sorted(1000 * worker + i for worker in range(16) for i in range(20))
    for worker in range(16):
        mine = [number for number in found if number // 1000 == worker]
        assert mine == sorted(mine)
    assert sum(1 for _ in LogReader(directory).read()) < len(found)


def test_submitted_and_appended_batches_keep_their_order(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA) as log:
        done: list[Position] = []
        tickets = []
        for number in range(0, 100, 2):
            ticket = log.submit(sample.batch(number))
            ticket.on_done(lambda ticket: done.append(ticket.wait()))
            tickets.append(ticket)
            log.append(sample.batch(number + 1))
        assert [ticket.wait(10) for ticket in tickets] == sorted(done)
    assert sample.stored(directory) == list(range(100))


def test_a_callback_may_submit_however_much_is_queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_PENDING_BYTES_MAX", 0)
    directory = str(tmp_path / "log")
    complete = threading.Event()

    with TableLog.open(directory, sample.SCHEMA) as log:

        def twice(ticket: group_commit.Ticket) -> None:
            log.submit(sample.batch(1))
            log.submit(sample.batch(2), lambda _: complete.set())

        log.submit(sample.batch(0), twice)
        assert complete.wait(30)
    assert sample.stored(directory) == [0, 1, 2]


def test_acknowledged_after_the_write_survives_a_reopen(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    settings = LogSettings(acknowledge=Acknowledge.WRITTEN, index_bytes=4096, file_bytes_max=16384)
    with TableLog.open(directory, sample.SCHEMA, settings=settings) as log:
        for number in range(100):
            log.append(sample.batch(number, note="x" * 300))
        assert sample.stored(directory) == list(range(100))
    assert sample.stored(directory) == list(range(100))


def test_a_second_writer_is_told_who_has_the_log(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA):
        with pytest.raises(LogLocked, match=f"process {os.getpid()}"):
            TableLog.open(directory, sample.SCHEMA)
        process = multiprocessing.get_context("spawn").Process(target=_open_locked, args=(directory,))
        process.start()
        process.join(30)
        assert process.exitcode == 17
    TableLog.open(directory, sample.SCHEMA).close()


def _open_locked(directory: str) -> None:
    try:
        TableLog.open(directory, sample.SCHEMA)
    except LogLocked:
        raise SystemExit(17) from None


def test_a_writer_that_lost_its_lock_is_fenced(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    old = TableLog.open(directory, sample.SCHEMA)
    old.append(sample.batch(1))
    (tmp_path / "log" / "writer.lock").unlink()
    new = TableLog.open(directory, sample.SCHEMA)
    new.append(sample.batch(2))
    with pytest.raises(WriterFenced, match="taken over"):
        old.append(sample.batch(66))
    with pytest.raises(WriterFenced):
        old.append(sample.batch(67))
    new.append(sample.batch(3))
    old.close()
    new.close()
    assert sample.stored(directory) == [1, 2, 3]


def test_a_batch_of_another_table_is_refused(tmp_path: Path) -> None:
    other = TableSchema(TableId("shop", "other"), sample.SCHEMA.columns)
    log = TableLog.open(str(tmp_path / "log"), sample.SCHEMA)
    with pytest.raises(InvalidInput, match="another table"):
        log.append(sample.batch(1, schema=other))
    log.close()
    with pytest.raises(InvalidInput, match=r"shop\.orders"):
        TableLog.open(log.directory, other)


def test_an_empty_or_oversized_batch_is_refused(tmp_path: Path) -> None:
    with TableLog.open(str(tmp_path / "log"), sample.SCHEMA, settings=LogSettings(block_bytes_max=4096)) as log:
        with pytest.raises(InvalidValue, match="0 changes"):
            log.append(sample.batch())
        with pytest.raises(InvalidValue, match="at most 4096 bytes"):
            log.append(sample.batch(1, note="x" * 5000))
        log.append(sample.batch(1))


def test_a_closed_log_refuses(tmp_path: Path) -> None:
    log = TableLog.open(str(tmp_path / "log"), sample.SCHEMA)
    log.close()
    log.close()
    with pytest.raises(LogClosed):
        log.append(sample.batch(1))
    with pytest.raises(LogClosed):
        log.submit(sample.batch(1))


def test_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    files = CrashFiles()
    log = TableLog.open("/d/log", sample.SCHEMA, files=files)
    log.append(sample.batch(1))
    files.disk.capacity = files.disk.used + 100
    for _ in range(3):
        with pytest.raises(DiskFull, match="no room"):
            log.append(sample.batch(2, note="x" * 1000))
    log.append(sample.batch(3))
    files.disk.capacity = None
    log.append(sample.batch(4, note="x" * 1000))
    log.close()
    assert sample.numbers(LogReader("/d/log", files=files).read()) == [1, 3, 4]


def test_a_failed_sync_stops_acknowledgements_until_reopened() -> None:
    files = CrashFiles()
    log = TableLog.open("/d/log", sample.SCHEMA, files=files)
    log.append(sample.batch(1))
    files.disk.fault = Fault(call=files.disk.calls + 2, code=errno.EIO)
    with pytest.raises(LogFailed, match="no more acknowledgements"):
        log.append(sample.batch(2))
    with pytest.raises(LogFailed):
        log.append(sample.batch(3))
    log.close()
    with TableLog.open("/d/log", sample.SCHEMA, files=files) as again:
        again.append(sample.batch(4))
    assert sample.numbers(LogReader("/d/log", files=files).read()) == [1, 4]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="not a directory"):
        TableLog.open(str(tmp_path / "file" / "log"), sample.SCHEMA)


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with TableLog.open(str(directory), sample.SCHEMA) as log:
        log.append(sample.batch(1))
    path = directory / "shop.orders.000001.avro"
    newer = path.read_bytes().replace(b"penstock.format\x021", b"penstock.format\x029")
    path.write_bytes(newer)
    with pytest.raises(UnsupportedFormat, match="format '9'"):
        TableLog.open(str(directory), sample.SCHEMA)
    assert path.read_bytes() == newer


def test_the_epoch_rises_with_every_writer(tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        with TableLog.open(str(tmp_path / "log"), sample.SCHEMA):
            found = watermark.unpack((tmp_path / "log" / watermark.NAME).read_bytes())
            assert found is not None
            epochs.append(found.epoch)
    assert epochs == [1, 2, 3]
