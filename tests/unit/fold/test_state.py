"""The state on disk: visible when committed, bounded, and refused when it was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import CorruptCheckpoint, InvalidSetting
from penstock.fold import state_file
from penstock.fold.bucket import BucketState
from penstock.fold.state import StateStore
from penstock.model import types
from penstock.model.change import Change, Deletion, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import MergeSettings, RecordType
from tests.folding import Pipeline, Target, runs_of

SCHEMA = TableSchema(
    TableId("shop", "stock"), (Column("item", types.INT32, Role.PARTITION), Column("count", types.INT32))
)


def change(item: int, time: int) -> Change:
    return Change(Op.INSERT, {"item": item}, {"count": Set(time)}, time=time, marker=Marker())


def test_a_batch_that_was_not_committed_leaves_nothing(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), 2, RecordType.AFTER)
    runs = runs_of(SCHEMA, "n1", [change(item, 1) for item in range(20)], 2)
    pipeline.fold(runs, 0, commit=False)
    assert pipeline.store.size() == (0, 0)
    assert sum(map(len, pipeline.fold(runs, 0))) == 20
    assert pipeline.store.size()[0] == 20


def test_committing_a_batch_twice_changes_nothing(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), 1, RecordType.AFTER)
    pipeline.fold(runs_of(SCHEMA, "n1", [change(1, 1)], 1), 0)
    before = pipeline.store.size()
    pipeline.store.commit(0, {0: b"not looked at"})
    assert (pipeline.store.committed, pipeline.store.size()) == (0, before)


def test_runs_are_merged_and_old_files_go(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), 1, RecordType.AFTER)
    target = Target()
    for batch in range(60):
        changes = [change(item, batch * 100 + item) for item in range(batch, batch + 20)]
        for records in pipeline.fold(runs_of(SCHEMA, "n1", changes, 1), 0):
            target.write(records)
    assert len(target.rows) == 79
    state = BucketState.open(str(tmp_path), 0, pipeline.batch)
    assert len(state.runs) < 12
    assert len(list((tmp_path / "runs").iterdir())) <= 2 * len(state.runs)
    assert len(list(tmp_path.glob("manifest-*"))) == 2
    # All rows are known: none of them is new when it comes again.
    again = [change(item, 0) for item in range(79)]
    assert pipeline.fold(runs_of(SCHEMA, "n1", again, 1), 0) == []


def test_seen_changes_are_forgotten_after_their_window(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), 1, RecordType.CHANGE, merge=MergeSettings(window_s=10))
    for second in range(0, 400, 4):
        (records,) = pipeline.fold(runs_of(SCHEMA, "n1", [change(second, item) for item in range(10)], 1), second)
        assert len(records) == 10
        assert pipeline.fold(runs_of(SCHEMA, "n2", [change(second, item) for item in range(10)], 1), second) == []
    assert pipeline.store.size()[0] < 500


@pytest.mark.parametrize(("days", "least", "greatest"), [(10, 10, 29), (3, 3, 12), (100, 40, 40)])
def test_rows_that_are_gone_are_forgotten_in_the_end(tmp_path: Path, days: int, least: int, greatest: int) -> None:
    day = 24 * 3600
    # Ten days, as Cassandra's own for tombstones, unless the settings say otherwise.
    merge = MergeSettings() if days == 10 else MergeSettings(forget_deleted_s=days * day)
    pipeline = Pipeline(str(tmp_path), 1, RecordType.AFTER, merge=merge)
    for batch in range(40):
        gone = Change(Op.DELETE, {"item": batch}, time=batch + 1, deletion=Deletion(batch + 1))
        pipeline.fold(runs_of(SCHEMA, "n1", [change(batch, 1), gone], 1), batch * day)
    assert least <= pipeline.store.size()[0] <= greatest


def test_versions_grow_over_deletions_of_the_table(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), 1, RecordType.AFTER)
    target = Target()
    steps = [
        [change(1, 10)],
        [Change(Op.UPDATE, {"item": 1}, {"count": Set(99, 10)}, time=10)],
        [Change(Op.TRUNCATE, time=10, deletion=Deletion(10))],
        [change(1, 11)],
    ]
    for changes in steps:
        for records in pipeline.fold(runs_of(SCHEMA, "n1", changes, 1), 0):
            target.write(records)
    assert [row["count"] for row in target.rows.values()] == [11]


def test_the_number_of_buckets_cannot_change(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), 1, RecordType.AFTER)
    pipeline.fold(runs_of(SCHEMA, "n1", [change(1, 1)], 1), 0)
    with pytest.raises(InvalidSetting, match="1 buckets"):
        StateStore(str(tmp_path), 2).size()


def test_a_manifest_that_was_changed_is_refused(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), 1, RecordType.AFTER)
    pipeline.fold(runs_of(SCHEMA, "n1", [change(1, 1)], 1), 0)
    (path,) = tmp_path.glob("manifest-*")
    path.write_bytes(path.read_bytes().replace(b'"buckets":1', b'"buckets":2'))
    with pytest.raises(CorruptCheckpoint, match="checksum"):
        pipeline.store.size()


def test_a_run_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), 1, RecordType.AFTER)
    pipeline.fold(runs_of(SCHEMA, "n1", [change(1, 1)], 1), 0)
    (path,) = (tmp_path / "runs").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptCheckpoint, match="bytes instead of"):
        pipeline.fold(runs_of(SCHEMA, "n1", [change(1, 2)], 1), 0)


def test_a_run_file_whose_schema_is_damaged_is_named_as_damaged(tmp_path: Path) -> None:
    Pipeline(str(tmp_path), 1, RecordType.CHANGE).fold(runs_of(SCHEMA, "n1", [change(1, 1)], 1), 0)
    (path,) = (tmp_path / "runs").iterdir()
    path.write_bytes(path.read_bytes().replace(b'"role"', b'"rule"'))
    # Another process: one that has the file open knows it already.
    state_file._open.clear()
    with pytest.raises(CorruptCheckpoint, match="InvalidSchema"):
        BucketState.open(str(tmp_path), 0, 1).tables()


def test_a_damaged_run_file_is_found_when_it_is_merged(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), 1, RecordType.CHANGE)
    pipeline.fold(runs_of(SCHEMA, "n1", [change(1, 1)], 1), 0)
    (path,) = (tmp_path / "runs").iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    for time in (2, 3):
        pipeline.fold(runs_of(SCHEMA, "n1", [change(1, time)], 1), 0)
    # The fourth run is merged with the first three.
    with pytest.raises(CorruptCheckpoint, match="checksum"):
        pipeline.fold(runs_of(SCHEMA, "n1", [change(1, 4)], 1), 0)
