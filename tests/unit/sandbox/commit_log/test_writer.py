"""The commit log on disk: segments, links, index files, crashes, as a Cassandra node leaves them."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.cassandra.segments.segment import SegmentIndex, index_name, parse_index
from penstock.errors import InvalidInput, InvalidValue
from penstock.model import types as t
from penstock.model.change import Change, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId
from penstock.sandbox.commit_log.statements import create_keyspace, create_table, drop_table, truncate
from penstock.sandbox.commit_log.writer import CommitLogWriter, recover
from penstock.sandbox.event_loop import VirtualClock
from tests.commit_logs import CODECS, KEYS, as_table, read_back

TIME = 1_700_000_000_000_000
TABLE = as_table(
    TableId("ks", "orders"),
    [Column("id", t.INT32, Role.PARTITION), Column("note", t.TEXT)],
    uuid.UUID("5f1a7f60-0d3c-11f0-8000-000000000001"),
)
PLAIN_TABLE = as_table(TableId("ks", "other"), [Column("id", t.INT32, Role.PARTITION)], uuid.UUID(int=77), cdc=False)


def change(number: int, note: str = "") -> Change:
    return Change(Op.INSERT, {"id": number}, {"note": Set(note)}, time=TIME + number, marker=Marker())


def open_log(root: Path, **options: Any) -> CommitLogWriter:
    usual: dict[str, Any] = {"segment_bytes": 1 << 16, "durable": False}
    return CommitLogWriter(f"{root}/commitlog", f"{root}/cdc_raw", **(usual | options))


def announce(log: CommitLogWriter) -> None:
    log.append(create_keyspace("ks", TIME))
    log.append(create_table(TABLE, TIME))


def index(log: CommitLogWriter, segment: str) -> SegmentIndex | None:
    path = Path(log.cdc_directory) / index_name(os.path.basename(segment))
    return parse_index(path.read_bytes()) if path.exists() else None


def ids(found: Any) -> list[int]:
    return [one.key["id"] for one in found.changes.get(TABLE.id, [])]


def test_a_segment_is_linked_from_its_birth(tmp_path: Path) -> None:
    log = open_log(tmp_path, spare=True)
    names = sorted(os.listdir(log.directory))
    assert sorted(os.listdir(log.cdc_directory)) == names
    assert len(names) == 2
    for name in names:
        assert os.path.samefile(f"{log.directory}/{name}", f"{log.cdc_directory}/{name}")
        assert os.path.getsize(f"{log.directory}/{name}") == 1 << 16
    log.close()


def test_the_index_follows_the_sync_and_then_says_completed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    announce(log)
    log.sync()
    # Only a change of a CDC table makes one.
    assert index(log, log.segment) is None
    end = log.append([(TABLE, [change(1)])])
    log.mark()
    assert index(log, log.segment) is None
    log.sync()
    assert index(log, log.segment) == SegmentIndex(end.position, completed=False)
    log.append([(TABLE, [change(2)])])
    assert index(log, log.segment) == SegmentIndex(end.position, completed=False)
    log.close()
    found = index(log, log.segment)
    assert found is not None
    assert found.completed
    assert ids(read_back([log.segment])) == [1, 2]


def test_an_empty_last_section_ends_eight_bytes_behind_the_data(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    end = log.append([(TABLE, [change(1)])])
    log.sync()
    log.close()
    assert index(log, log.segment) == SegmentIndex(end.position + 8, completed=True)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("format_", [7, 9])
def test_a_full_segment_rolls_over(tmp_path: Path, codec: str, format_: int) -> None:
    log = open_log(tmp_path, format=format_, spare=True, **CODECS[codec])
    announce(log)
    paths = []
    for number in range(300):
        log.append([(TABLE, [change(number, "x" * 700)])])
        if log.segment not in paths:
            paths.append(log.segment)
        if number % 20 == 0:
            log.sync()
    log.close()
    assert len(paths) > 3
    found = read_back(paths)
    assert found.damage == []
    assert ids(found) == list(range(300))
    completed = [index(log, path) for path in paths]
    assert all(one is not None and one.completed for one in completed)


def test_ids_rise_even_when_the_clock_goes_back(tmp_path: Path) -> None:
    clock = VirtualClock()
    first = open_log(tmp_path, clock=clock)
    first.close()
    second = open_log(tmp_path, clock=clock)
    assert second.place.segment > first.place.segment
    second.close()


def test_a_mutation_of_more_than_half_a_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(bytes(32 << 10 >> 1))
    with pytest.raises(InvalidValue, match="longer than half a segment"):
        log.append(bytes((32 << 10) - 11))
    log.close()


def test_direct_io_and_compression_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="direct I/O"):
        open_log(tmp_path, direct=True, compression="LZ4Compressor")


def test_direct_io_writes_whole_blocks(tmp_path: Path) -> None:
    log = open_log(tmp_path, direct=True)
    announce(log)
    for number in range(9):
        log.append([(TABLE, [change(number, "x" * 900)])])
        log.sync()
        assert os.path.getsize(log.segment) % 4096 == 0
    log.close()
    assert os.path.getsize(log.segment) < 1 << 16
    assert ids(read_back([log.segment])) == list(range(9))


def test_batch_mode_syncs_at_every_append(tmp_path: Path) -> None:
    log = open_log(tmp_path, batch=True, compression="LZ4Compressor")
    announce(log)
    end = log.append([(TABLE, [change(1)])])
    assert index(log, log.segment) == SegmentIndex(end.position, completed=False)
    assert ids(read_back([log.segment])) == [1]
    log.close()


def test_discarding_keeps_cdc_segments_and_drops_the_others(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    announce(log)
    log.append([(TABLE, [change(1)])])
    kept = os.path.basename(log.segment)
    log.roll()
    log.append([(PLAIN_TABLE, [Change(Op.INSERT, {"id": 1}, time=TIME, marker=Marker())])])
    dropped = os.path.basename(log.segment)
    log.roll()
    assert log.discard() == [kept]
    assert kept in os.listdir(log.cdc_directory)
    assert dropped not in os.listdir(log.cdc_directory)
    assert os.listdir(log.directory) == [os.path.basename(log.segment)]
    log.close()


def test_format_6_moves_a_segment_when_it_is_discarded(tmp_path: Path) -> None:
    log = open_log(tmp_path, format=6)
    announce(log)
    log.append([(TABLE, [change(1)])])
    name = os.path.basename(log.segment)
    log.sync()
    assert os.listdir(log.cdc_directory) == []
    log.close()
    assert log.discard() == [name]
    assert os.listdir(log.cdc_directory) == [name]
    assert os.listdir(log.directory) == []
    assert ids(read_back([f"{log.cdc_directory}/{name}"])) == [1]


def test_a_killed_node_leaves_written_entries_without_a_marker(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    announce(log)
    log.append([(TABLE, [change(1)])])
    log.sync()
    before = index(log, log.segment)
    log.append([(TABLE, [change(2)])])
    log.abandon()
    assert index(log, log.segment) == before
    assert before is not None
    assert not before.completed
    assert ids(read_back([log.segment])) == [1, 2]


def test_replay_completes_with_the_files_length(tmp_path: Path) -> None:
    log = open_log(tmp_path, spare=True)
    announce(log)
    log.append([(TABLE, [change(1)])])
    log.sync()
    name = os.path.basename(log.segment)
    os.unlink(f"{log.cdc_directory}/{name}")
    log.abandon()
    assert recover(log.directory, log.cdc_directory, {TABLE.id}) == [name]
    assert os.listdir(log.directory) == []
    assert sorted(os.listdir(log.cdc_directory)) == [name, index_name(name)]
    assert index(log, name) == SegmentIndex(1 << 16, completed=True)
    assert ids(read_back([f"{log.cdc_directory}/{name}"])) == [1]


def test_replay_leaves_an_older_index_as_it_is(tmp_path: Path) -> None:
    # Its table was flushed: replay skips the segment, and nobody ever completes it.
    log = open_log(tmp_path)
    end = log.append([(TABLE, [change(1)])])
    log.sync()
    log.abandon()
    recover(log.directory, log.cdc_directory, set())
    assert index(log, log.segment) == SegmentIndex(end.position, completed=False)


@pytest.mark.parametrize("codec", ["encrypted", "LZ4"])
def test_replay_reads_other_kinds_too(tmp_path: Path, codec: str) -> None:
    log = open_log(tmp_path, format=9, **CODECS[codec])
    log.append([(TABLE, [change(1)])])
    log.sync()
    log.abandon()
    assert recover(log.directory, log.cdc_directory, {TABLE.id}, keys=KEYS) == [os.path.basename(log.segment)]


def test_a_table_that_is_dropped_and_made_again_is_another(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    announce(log)
    log.append([(TABLE, [change(1)])])
    log.append(drop_table(TABLE, TIME + 10))
    again = as_table(TABLE.schema.table, TABLE.schema.columns, uuid.UUID(int=99))
    log.append(create_table(again, TIME + 20))
    log.append([(again, [change(2)])])
    log.close()
    found = read_back([log.segment])
    known = found.schemas.by_name(TABLE.schema.table)
    assert known is not None
    assert (known.id, known.schema.columns, known.schema.altered) == (again.id, again.schema.columns, TIME + 20)
    both = [one.key["id"] for changes in found.changes.values() for one in changes]
    assert both == [1, 2]


def test_truncate_is_told_by_the_nodes_own_table(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    announce(log)
    log.append([(TABLE, [change(1)])])
    log.append(truncate(TABLE, TIME + 5_000_000, *log.place))
    log.append([(TABLE, [change(2)])])
    log.close()
    found = read_back([log.segment]).changes[TABLE.id]
    assert [one.op for one in found] == [Op.INSERT, Op.TRUNCATE, Op.INSERT]
    assert found[1].deletion is not None
    assert found[1].deletion.time == TIME + 5_000_000
