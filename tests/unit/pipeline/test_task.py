"""A task without Spark: what cannot be folded is set aside with its reason, and everything else is delivered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from penstock.deliver.sink import DeadLetter, Delivered, Sink, Task, Writer
from penstock.errors import CorruptLog, InvalidValue
from penstock.fold import poison
from penstock.fold.eras import Header, prepared_as
from penstock.fold.state import StateStore
from penstock.formats import avro
from penstock.model import types
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.pipeline import dead_letters, outcome, task
from penstock.pipeline.outcome import Outcome
from penstock.pipeline.status import StatusBoard
from penstock.pipeline.task import TaskPlan
from penstock.records import keys, runs
from penstock.records.records import Records
from penstock.records.runs import Run
from penstock.settings import MergeSettings, RecordType, TransformSettings

SCHEMA = TableSchema(
    TableId("shop", "parts"),
    (Column("p", types.INT32, Role.PARTITION), Column("c", types.TEXT, Role.CLUSTERING), Column("v", types.TEXT)),
)


class Kept(Sink, Writer):
    """Keeps what it is given."""

    name: ClassVar[str] = "kept"

    def __init__(self, record: RecordType) -> None:
        self.record = record
        self.rows: dict[str, object] = {}
        self._new: dict[str, object] = {}

    def writer(self, task: Task) -> Writer:
        self._new = {}
        return self

    def write(self, records: Records) -> None:
        changes = avro.decode(records.changes)
        afters = [change.cells["v"] for change in changes] if records.after is None else records.after.to_pylist()
        self._new |= {str(change.key["c"]): after for change, after in zip(changes, afters, strict=True)}

    def finish(self) -> Delivered:
        self.rows |= self._new
        return Delivered(len(self._new))


def row(c: str, *, time: int | None = 5, value: str = "x") -> Change:
    return Change(Op.INSERT, {"p": 1, "c": c}, {"v": Set(value)}, time=time, marker=Marker())


def logged(node: str, changes: Sequence[Change], *spoilt: tuple[bytes, bytes]) -> Run:
    """What a node logged; `spoilt` bytes are others in the log than were written."""
    batch = avro.encode(SCHEMA, changes)
    data = bytes(batch.rows)
    for right, wrong in spoilt:
        assert right in data
        data = data.replace(right, wrong)
    (part,) = keys.split(ChangeBatch(SCHEMA, len(changes), data), 1)
    return Run(SCHEMA, node, 0, part.count, part.rows)


def done(directory: Path, sink: Sink, given: Iterable[Run], batch: int = 0) -> list[Outcome]:
    given = list(given)
    headers = frozenset(Header(run.node, run.schema).digest for run in given)
    plan = TaskPlan(
        "p", batch, 9_000_000, str(directory), MergeSettings(), TransformSettings(), {}, (sink,),
        frozenset({prepared_as(SCHEMA)}), headers,
    )  # fmt: skip
    (made,) = task.run(plan, 0, iter([runs.to_arrow(given)]))
    return list(outcome.from_arrow(pa.Table.from_batches([made])))


def letters(outcomes: Sequence[Outcome]) -> list[DeadLetter]:
    return [letter for one in outcomes if one.kind == "dead" for letter in dead_letters.decode(one.data)]


POISON = {
    "no write time": (
        [row("bad", time=None)],
        (),
        "a change without a write time cannot be merged",
        '{"p":1,"c":"bad"}',
    ),
    "half a key": (
        [Change(Op.UPDATE, {"p": 1}, {"v": Set("x")}, time=5)],
        (),
        "a row's cell lacks a clustering column (table shop.parts, column v)",
        '{"p":1}',
    ),
    "no partition": (
        [Change(Op.UPDATE, {"c": "bad"}, {"v": Set("x")}, time=5)],
        (),
        "a change lacks a partition column (column p)",
        '{"c":"bad"}',
    ),
    "a value that is no text": (
        [row("bad", value="spoilt")],
        ((b"spoilt", b"\xff\xfeoilt"),),
        "rows are damaged: a string is not UTF-8 (byte 27)",
        '{"p":1,"c":"bad"}',
    ),
    "a key that is no text": (
        [row("spoilt")],
        ((b"spoilt", b"\xff\xfeoilt"),),
        "rows are damaged: a string is not UTF-8 (byte 21)",
        "{}",
    ),
}


@pytest.mark.parametrize("record", [RecordType.AFTER, RecordType.ALL])
@pytest.mark.parametrize("kind", POISON)
def test_what_cannot_be_folded_is_set_aside_once_and_all_else_is_delivered(
    tmp_path: Path, kind: str, record: RecordType
) -> None:
    bad, spoilt, reason, key = POISON[kind]
    sink = Kept(record)
    good = [row(f"r{number}") for number in range(9)]
    # Three nodes have logged all of it, each in an order of its own; one change is on one node only.
    given = [
        logged("n1", [*good[:4], *bad, *good[4:]], *spoilt),
        logged("n2", [*bad, *reversed(good)], *spoilt),
        logged("n3", [*good, *bad, row("only here")], *spoilt),
    ]
    outcomes = done(tmp_path, sink, given)
    assert sink.rows == {c: {"p": 1, "c": c, "v": "x"} for c in [*(f"r{number}" for number in range(9)), "only here"]}
    (letter,) = letters(outcomes)
    assert (letter.sink, letter.table, letter.key, letter.reason) == ("fold", "shop.parts", key, reason)
    board = StatusBoard()
    board.delivered(0, outcomes, 1.0, 0)
    status = board.read()
    assert (status.sinks["fold"].dead, status.sinks["kept"].records) == (1, 10)
    assert (status.tables["shop.parts"].copies, status.tables["shop.parts"].records) == (31, 10)


def test_changes_alone_need_no_time_and_no_whole_key_but_values_that_can_be_read(tmp_path: Path) -> None:
    sink = Kept(RecordType.CHANGE)
    given = [logged("n1", [row("a", time=None), row("b"), row("bad", value="spoilt")], (b"spoilt", b"\xff\xfeoilt"))]
    outcomes = done(tmp_path, sink, given)
    assert sorted(sink.rows) == ["a", "b"]
    assert [letter.key for letter in letters(outcomes)] == ['{"p":1,"c":"bad"}']


def test_the_state_has_what_was_delivered_and_nothing_of_the_rest(tmp_path: Path) -> None:
    store = StateStore(str(tmp_path), 1)
    first = done(tmp_path, Kept(RecordType.ALL), [logged("n1", [row("a"), row("bad", time=None)])])
    store.commit(0, {one.bucket: one.data for one in first if one.kind == "state"})
    assert store.size()[0] == 1
    sink = Kept(RecordType.ALL)
    late = Change(Op.UPDATE, {"p": 1, "c": "a"}, {"v": Set("late")}, time=4)
    second = done(tmp_path, sink, [logged("n2", [late, row("b")])], batch=1)
    assert list(sink.rows) == ["b"]
    assert letters(second) == []


def test_an_error_that_no_change_is_the_cause_of_stays_an_error(tmp_path: Path) -> None:
    class Broken(Kept):
        def write(self, records: Records) -> None:
            raise InvalidValue("the target has no such type", column="v")

    (failure,) = done(tmp_path, Broken(RecordType.AFTER), [logged("n1", [row("a"), row("b")])])
    assert (failure.kind, failure.name) == ("error", "InvalidValue")


def test_poison_without_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison, "_POISON_MAX", 3)
    given = [logged(node, [row(f"r{number}", time=None) for number in range(4)]) for node in ("n1", "n2")]
    (failure,) = done(tmp_path, Kept(RecordType.AFTER), given)
    with pytest.raises(InvalidValue, match="more than 3 changes of a batch cannot be folded"):
        outcome.raise_failures([failure])
    monkeypatch.setattr(poison, "_POISON_MAX", 4)
    assert len(letters(done(tmp_path, Kept(RecordType.AFTER), given))) == 4


def test_a_run_without_an_end_is_an_error(tmp_path: Path) -> None:
    run = logged("n1", [row("a"), row("b")])
    cut = Run(SCHEMA, "n1", 0, 2, bytes(run.rows)[:-3])
    (failure,) = done(tmp_path, Kept(RecordType.AFTER), [cut])
    assert (failure.kind, failure.name) == ("error", "CorruptLog")
    with pytest.raises(CorruptLog):
        outcome.raise_failures([failure])
