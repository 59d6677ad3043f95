"""The law of the log: folding by log gives the table, for any division into batches, any restart and any repetition.

The judge is a dictionary that obeys the statements one after another, as the database does.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidSchema, InvalidValue
from penstock.model import types
from penstock.model.change import Change, Op, Origin, Set, Transaction
from penstock.model.schema import Column, Order, Role, TableId, TableSchema
from penstock.records import keys
from penstock.settings import RecordType
from tests.folding import Pipeline, Target, as_installed, plain_python, runs_of

_SETTINGS = settings(max_examples=80, deadline=None)

SCHEMA = TableSchema(
    TableId("shop", "stock"),
    (
        Column("id", types.INT32, Role.PARTITION),
        Column("n", types.INT32),
        Column("note", types.TEXT),
        Column("large", types.TEXT),
    ),
    source="mariadb",
    ordered_by=Order.LOG,
)
Row = dict[str, Any]


@dataclass
class Database:
    """A table that is changed by statements, and the log that it keeps of them."""

    rows: dict[int, Row] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    # The table after each transaction.
    after: list[dict[int, Row]] = field(default_factory=list)
    # The clock may stand still, and go back.
    clocks: tuple[int, ...] = (5,)

    def run(self, transaction: list[tuple[Any, ...]]) -> None:
        self._ordinal = 0
        for statement in transaction:
            getattr(self, statement[0])(*statement[1:])
        self.after.append({key: dict(row) for key, row in self.rows.items()})

    def _note(self, op: Op, key: int | None, cells: Row) -> None:
        sequence = len(self.after) + 1
        origin = Origin(node="db1", transaction=Transaction("0", sequence, f"0-1-{sequence}"), ordinal=self._ordinal)
        self._ordinal += 1
        clock = self.clocks[sequence % len(self.clocks)]
        named = {} if key is None else {"id": key}
        self.log.append(Change(op, named, {n: Set(v) for n, v in cells.items()}, commit_time=clock, origin=origin))

    def put(self, key: int, values: Row) -> None:
        """An update says what it changes; an insert says everything."""
        if key in self.rows:
            self.rows[key] |= values
            self._note(Op.UPDATE, key, values)
        else:
            self.rows[key] = {"n": None, "note": None, "large": None} | values
            self._note(Op.INSERT, key, self.rows[key])

    def delete(self, key: int) -> None:
        if self.rows.pop(key, None) is not None:
            self._note(Op.DELETE, key, {})

    def move(self, old: int, new: int) -> None:
        """An update of the key is a deletion and an insert of one transaction."""
        if old in self.rows and new not in self.rows:
            row = self.rows.pop(old)
            self._note(Op.DELETE, old, {})
            self.rows[new] = row
            self._note(Op.INSERT, new, row)

    def truncate(self) -> None:
        self.rows.clear()
        self._note(Op.TRUNCATE, None, {})

    def snapshot(self, sequence: int) -> list[Change]:
        """The rows as they were after a transaction, each with the place of that seam."""
        origin = Origin(node="db1", transaction=Transaction("0", sequence, "seam"))
        rows = self.after[sequence - 1] if sequence else {}
        return [
            Change(Op.SNAPSHOT, {"id": key}, {n: Set(v) for n, v in row.items()}, capture_time=3, origin=origin)
            for key, row in rows.items()
        ]


values = st.fixed_dictionaries(
    {}, optional={"n": st.none() | st.integers(0, 3), "note": st.sampled_from(["", "é"]), "large": st.just("x" * 200)}
).filter(bool)
ids = st.integers(0, 3)
statements = st.one_of(
    st.tuples(st.just("put"), ids, values),
    st.tuples(st.just("put"), ids, values),
    st.tuples(st.just("delete"), ids),
    st.tuples(st.just("move"), ids, ids),
    st.tuples(st.just("truncate")),
)
transactions = st.lists(st.lists(statements, min_size=1, max_size=4), max_size=6)
clocks = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)


def _database(history: list[list[tuple[Any, ...]]], clock: tuple[int, ...] = (5,)) -> Database:
    database = Database(clocks=clock)
    for transaction in history:
        database.run(transaction)
    return database


def _batches(changes: list[Change], chance: random.Random) -> list[list[Change]]:
    """The log in order, cut anywhere; after a batch, some of what was there already may come again."""
    out: list[list[Change]] = []
    at = 0
    while at < len(changes):
        end = chance.randint(at + 1, len(changes))
        out.append(changes[at:end])
        if chance.random() < 0.4:
            first = chance.randint(0, end - 1)
            out.append(changes[first : chance.randint(first + 1, end)])
        at = end
    return out


def _shown(target: Target) -> dict[int, Row]:
    return {row["id"]: {name: row[name] for name in ("n", "note", "large")} for row in target.rows.values()}


def _collided() -> Any:
    """Keys of the state that many rows share."""
    return mock.patch.object(keys, "state_keys", lambda partitions, rows: np.full(len(rows), (7 << 32) | 9, np.uint64))


@given(
    history=transactions,
    clock=clocks,
    seed=st.integers(0, 1 << 30),
    record=st.sampled_from([RecordType.AFTER, RecordType.ALL]),
    every=st.booleans(),
    buckets=st.integers(1, 3),
    native=st.booleans(),
    collided=st.booleans(),
)
@_SETTINGS
def test_folding_by_log_gives_the_table(
    history: list[list[tuple[Any, ...]]],
    clock: tuple[int, ...],
    seed: int,
    record: RecordType,
    every: bool,
    buckets: int,
    native: bool,
    collided: bool,
) -> None:
    chance = random.Random(seed)
    database = _database(history, clock)
    kit = as_installed() if native else plain_python()
    # What a kit prepares for a schema is kept with it.
    schema = replace(SCHEMA)
    with tempfile.TemporaryDirectory() as directory, _collided() if collided and native else contextlib.nullcontext():
        pipeline = kit.Pipeline(directory, buckets, record, every=every)
        target = kit.Target()
        for number, batch in enumerate(_batches(database.log, chance)):
            node = chance.choice(["agent-1", "agent-2"])
            runs = kit.runs_of(schema, node, batch, buckets)
            if chance.random() < 0.3:
                # A batch that is done again begins where it began before.
                pipeline.fold(runs, now_s=number + 1, commit=False)
            for records in pipeline.fold(runs, now_s=number + 1):
                target.write(records)
    assert _shown(target) == database.rows


@given(history=transactions, seed=st.integers(0, 1 << 30), data=st.data())
@_SETTINGS
def test_a_snapshot_meets_the_log_at_its_seam(
    history: list[list[tuple[Any, ...]]], seed: int, data: st.DataObject
) -> None:
    chance = random.Random(seed)
    database = _database(history)
    seam = data.draw(st.integers(0, len(database.after)))
    # Capture began at or before the seam, and the snapshot is logged at any moment.
    begin = data.draw(st.integers(0, seam))
    stream = [c for c in database.log if c.origin.transaction is not None and c.origin.transaction.sequence > begin]
    batches = _batches(stream, chance)
    copied = database.snapshot(seam)
    batches.insert(data.draw(st.integers(0, len(batches))), copied)
    with tempfile.TemporaryDirectory() as directory:
        pipeline = Pipeline(directory, 2, RecordType.AFTER)
        target = Target()
        for batch in filter(None, batches):
            for records in pipeline.fold(runs_of(SCHEMA, "agent-1", batch, 2), now_s=1):
                target.write(records)
    assert _shown(target) == database.rows


def test_all_rows_of_a_snapshot_are_rows_and_one_that_was_read_twice_is_one() -> None:
    database = _database([[("put", key, {"n": key}) for key in range(4)]])
    copied = database.snapshot(1)
    with tempfile.TemporaryDirectory() as directory:
        pipeline = Pipeline(directory, 1, RecordType.ALL)
        target = Target()
        told = 0
        for batch in ([*copied, *copied[:2]], copied):
            for records in pipeline.fold(runs_of(SCHEMA, "agent-1", batch, 1), now_s=1):
                target.write(records)
                told += len(records)
    assert _shown(target) == database.rows
    assert told == len(database.rows)


def test_all_rows_of_a_snapshot_are_passed_on_once(tmp_path: Any) -> None:
    copied = _database([[("put", key, {"n": 7}) for key in range(4)]]).snapshot(1)
    pipeline = Pipeline(str(tmp_path), 1, RecordType.CHANGE)
    target = Target()
    for batch in ([*copied, *copied[:2]], copied):
        for records in pipeline.fold(runs_of(SCHEMA, "agent-1", batch, 1), now_s=1):
            target.write(records)
    assert target.changes == copied


@given(history=transactions, seed=st.integers(0, 1 << 30), buckets=st.integers(1, 3))
@_SETTINGS
def test_every_change_is_passed_on_once_and_in_order(
    history: list[list[tuple[Any, ...]]], seed: int, buckets: int
) -> None:
    database = _database(history)
    with tempfile.TemporaryDirectory() as directory:
        pipeline = Pipeline(directory, buckets, RecordType.CHANGE)
        target = Target()
        for batch in _batches(database.log, random.Random(seed)):
            for records in pipeline.fold(runs_of(SCHEMA, "agent-1", batch, buckets), now_s=1):
                target.write(records)
    assert sorted(target.changes, key=_place) == database.log
    for key in range(4):
        mine = [_place(change) for change in target.changes if change.key.get("id") == key]
        assert mine == sorted(mine)


def _place(change: Change) -> tuple[int, int]:
    transaction, ordinal = change.origin.transaction, change.origin.ordinal
    assert transaction is not None
    assert ordinal is not None
    return transaction.sequence, ordinal


ONE_TWO_ONE = [[("put", 1, {"n": 1}), ("put", 1, {"n": 2}), ("put", 1, {"n": 1})]]


@pytest.mark.parametrize("record", list(RecordType))
def test_one_two_one_in_a_transaction_are_three_records(record: RecordType, tmp_path: Any) -> None:
    database = _database(ONE_TWO_ONE)
    pipeline = Pipeline(str(tmp_path), 1, record)
    target = Target()
    for records in pipeline.fold(runs_of(SCHEMA, "agent-1", database.log, 1), now_s=1):
        target.write(records)
    assert [change.cells["n"] for change in target.changes] == [Set(1), Set(2), Set(1)]
    if record is not RecordType.CHANGE:
        assert _shown(target) == {1: {"n": 1, "note": None, "large": None}}


def test_a_change_without_a_place_is_refused(tmp_path: Any) -> None:
    change = Change(Op.INSERT, {"id": 1}, {"n": Set(1)}, commit_time=5)
    pipeline = Pipeline(str(tmp_path), 1, RecordType.AFTER)
    with pytest.raises(InvalidValue, match="without its place in the source's log"):
        pipeline.fold(runs_of(SCHEMA, "agent-1", [change], 1), now_s=1)


def test_rows_of_a_table_without_a_key_are_refused_and_its_changes_are_not(tmp_path: Any) -> None:
    schema = replace(SCHEMA, columns=tuple(replace(column, role=Role.REGULAR) for column in SCHEMA.columns))
    changes = [replace(change, key={}) for change in _database(ONE_TWO_ONE).log]
    with pytest.raises(InvalidSchema, match="without a key"):
        Pipeline(str(tmp_path / "rows"), 1, RecordType.AFTER).fold(runs_of(schema, "agent-1", changes, 1), now_s=1)
    target = Target()
    pipeline = Pipeline(str(tmp_path / "changes"), 1, RecordType.CHANGE)
    for records in pipeline.fold(runs_of(schema, "agent-1", changes, 1), now_s=1):
        target.write(records)
    assert target.changes == changes


def test_only_plain_tables_are_ordered_by_their_log() -> None:
    for column in (Column("c", types.INT32, Role.CLUSTERING), Column("s", types.INT32, Role.STATIC)):
        with pytest.raises(InvalidSchema, match="key and plain columns only"):
            replace(SCHEMA, columns=(*SCHEMA.columns, column))
