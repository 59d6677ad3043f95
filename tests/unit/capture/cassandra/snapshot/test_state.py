"""The durable state of snapshots and requests."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from penstock.capture.cassandra.snapshot.ring import FULL, TokenRange, cut
from penstock.capture.cassandra.snapshot.state import StateDirectory, TableState
from penstock.errors import CorruptCheckpoint, StorageError, UnsupportedFormat
from penstock.log import sealed
from penstock.log import snapshot_requests as requests
from penstock.model.schema import TableId
from penstock.system.files import OsFiles

TABLE = TableId("ks", "Odd/Name")


def state(**changes: object) -> TableState:
    out = TableState(TABLE, UUID(int=7), run=0)
    out.begin(cut([FULL], 4), 1000, requested=True)
    for name, value in changes.items():
        setattr(out, name, value)
    return out


@pytest.fixture
def states(tmp_path: Path) -> StateDirectory:
    out = StateDirectory(OsFiles(), str(tmp_path / "snapshot"))
    out.create()
    return out


def test_a_state_comes_back_as_it_was_saved(states: StateDirectory) -> None:
    one = state(rows=5, partitions_estimate=9, lapsed=True)
    one.advance(one.pending[1], one.pending[1].end - 10, 3)
    states.save(one)
    assert states.load(TABLE) == one
    assert states.load_all() == {TABLE: one}
    states.forget(TABLE)
    assert states.load(TABLE) is None
    states.forget(TABLE)


def test_a_directory_that_is_not_there_holds_no_states(tmp_path: Path) -> None:
    assert StateDirectory(OsFiles(), str(tmp_path / "nowhere")).load_all() == {}


def test_what_was_reached_inside_a_split_is_not_read_again(states: StateDirectory) -> None:
    one = state()
    split = one.pending[2]
    rest = one.advance(split, split.start + 100, 8)
    assert rest == TokenRange(split.start + 100, split.end)
    assert rest in one.pending
    assert one.missing([FULL]) == []
    assert one.advance(rest, rest.end, 2) is None
    assert one.rows == 10
    assert 0.24 < one.fraction < 0.26
    assert len(one.pending) == 3
    assert one.covered == [split]


def test_a_page_that_ends_in_its_first_partition_covers_nothing() -> None:
    one = state()
    split = one.pending[0]
    assert one.advance(split, split.start, 8) == split
    assert one.covered == []
    assert one.rows == 8


def test_a_node_that_gets_more_of_the_ring_reads_that_too() -> None:
    one = state(pending=[], covered=[TokenRange(0, 100)], finished_us=5)
    assert one.missing([TokenRange(-50, 120)]) == [TokenRange(-50, 0), TokenRange(100, 120)]
    one.extend(one.missing([TokenRange(-50, 120)]))
    assert one.finished_us is None


def test_a_damaged_state_is_named_and_not_begun_anew(states: StateDirectory) -> None:
    states.save(state())
    (path,) = Path(states.directory).iterdir()
    path.write_bytes(path.read_bytes().replace(b'"rows":0', b'"rows":1'))
    with pytest.raises(CorruptCheckpoint, match=r"checksum.*Odd%2FName\.snapshot"):
        states.load_all()


def test_a_state_without_its_members_is_damaged(states: StateDirectory) -> None:
    sealed.write(OsFiles(), states.directory, "ks.t.snapshot", {"format": 1, "keyspace": "ks"})
    with pytest.raises(CorruptCheckpoint):
        states.load_all()


def test_a_state_of_a_later_version_is_refused(states: StateDirectory) -> None:
    sealed.write(OsFiles(), states.directory, "ks.t.snapshot", {"format": 2})
    with pytest.raises(UnsupportedFormat, match="format 2"):
        states.load_all()


def test_a_directory_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        StateDirectory(OsFiles(), str(tmp_path / "file" / "snapshot")).create()


def test_a_request_stays_until_it_is_done(tmp_path: Path) -> None:
    directory = str(tmp_path / "snapshot")
    assert requests.waiting(OsFiles(), directory) == []
    requests.request(OsFiles(), directory, TABLE, 1)
    requests.request(OsFiles(), directory, TABLE, 2)
    assert requests.waiting(OsFiles(), directory) == [TABLE]
    requests.done(OsFiles(), directory, TABLE)
    requests.done(OsFiles(), directory, TABLE)
    assert requests.waiting(OsFiles(), directory) == []


def test_a_file_that_is_no_request_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.request").write_text("hello")
    with pytest.raises(CorruptCheckpoint, match=r"x\.request"):
        requests.waiting(OsFiles(), str(tmp_path))
