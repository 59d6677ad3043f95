"""A repair reaches what the pipeline remembers: the next update of a row does not bring back what was mended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.compare.lake_rows import LakeShape
from penstock.compare.sides import SourceRows
from penstock.compare.state_repair import repair_state
from penstock.fold.folder import REPAIRED
from penstock.log.reader import LogReader
from penstock.merge.table_state import TableState, fold
from penstock.model import types
from penstock.model.change import Change, Deletion, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records.runs import Run
from penstock.settings import RecordType
from tests.folding import Pipeline, Target, runs_of

SECOND = 1_000_000
NOW = 1_000 * SECOND
SCHEMA = TableSchema(
    TableId("shop", "carts"),
    (
        Column("p", types.INT32, Role.PARTITION),
        Column("c", types.TEXT, Role.CLUSTERING),
        Column("s", types.INT32, Role.STATIC),
        Column("v", types.INT32),
        Column("w", types.INT32),
    ),
    id="one",
    altered=5,
)
KEYS = pa.array([{"p": 1, "c": "a"}, {"p": 1, "c": "b"}], pa.struct([("p", pa.int32()), ("c", pa.string())]))


class Cluster(SourceRows):
    """A source with these changes."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.name = "the cluster"
        self.schema = SCHEMA
        self.shape = LakeShape()
        self._changes = changes

    def images(self) -> Iterator[pa.StructArray]:
        return iter(())

    def states(self) -> Iterator[TableState]:
        return iter([fold(SCHEMA, self._changes)])


def write(c: str, time: int, **cells: int) -> Change:
    return Change(Op.INSERT, {"p": 1, "c": c}, {n: Set(v) for n, v in cells.items()}, time=time, marker=Marker())


def logged(node: str, *changes: Change) -> list[Run]:
    return runs_of(SCHEMA, node, list(changes), 1)


def repaired(directory: Path) -> list[Run]:
    """What the pipeline reads of the repair."""
    with LogReader(str(directory / "shop.carts")) as reader:
        batches = list(reader.read())
    assert {reader.heading(number).node for number in (1,)} == {REPAIRED}
    return [Run(batch.schema, REPAIRED, 0, batch.count, batch.rows) for batch in batches]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(str(tmp_path / "state"), 1, RecordType.ALL)


def rows(target: Target) -> list[tuple[str, int | None, int | None, int | None]]:
    return sorted((row["c"], row["s"], row["v"], row["w"]) for row in target.rows.values())


def test_the_next_update_of_a_repaired_row_is_right(tmp_path: Path, pipeline: Pipeline) -> None:
    target = Target()
    wrong = [write("a", 10, v=5, w=1, s=7), write("b", 11, v=6)]
    # The source never had v of the first row, and has lost the second one.
    right = [write("a", 10, w=1, s=7)]
    for records in pipeline.fold(logged("n1", *wrong), 9):
        target.write(records)
    assert repair_state(Cluster(right), [KEYS], NOW, tmp_path / "repaired") == 2
    for records in pipeline.fold(repaired(tmp_path / "repaired"), 9):
        target.write(records)
    assert rows(target) == [("a", 7, None, 1)]
    update = Change(Op.UPDATE, {"p": 1, "c": "a"}, {"w": Set(2)}, time=NOW + 1)
    for records in pipeline.fold(logged("n1", update), 9):
        target.write(records)
    assert rows(target) == [("a", 7, None, 2)]
    # A late copy of what is right alters nothing.
    assert pipeline.fold(logged("n2", *right), 9) == []


def test_what_was_written_after_the_source_was_read_stays(tmp_path: Path, pipeline: Pipeline) -> None:
    target = Target()
    later = Change(Op.UPDATE, {"p": 1, "c": "a"}, {"v": Set(9)}, time=NOW - SECOND)
    for records in pipeline.fold(logged("n1", write("a", 10, v=5, w=1), later), 9):
        target.write(records)
    repair_state(Cluster([write("a", 10, v=4, w=1)]), [KEYS.slice(0, 1)], NOW, tmp_path / "repaired")
    for records in pipeline.fold(repaired(tmp_path / "repaired"), 9):
        target.write(records)
    assert rows(target) == [("a", None, 9, 1)]


def test_a_row_that_the_pipeline_takes_for_deleted_comes_back(tmp_path: Path, pipeline: Pipeline) -> None:
    target = Target()
    gone = Change(Op.DELETE, {"p": 1, "c": "a"}, time=20, deletion=Deletion(20))
    for records in pipeline.fold(logged("n1", write("a", 10, v=5), gone), 9):
        target.write(records)
    assert rows(target) == []
    repair_state(Cluster([write("a", 10, v=5)]), [KEYS.slice(0, 1)], NOW, tmp_path / "repaired")
    for records in pipeline.fold(repaired(tmp_path / "repaired"), 9):
        target.write(records)
    assert rows(target) == [("a", None, 5, None)]
