"""The laws of merging for counters: shards, totals that a snapshot read, and deletions of every kind, in any order."""

from __future__ import annotations

import random
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.merge.row_state import UNKNOWN_SHARD
from penstock.merge.table_state import fold, normal, visible
from penstock.model import types
from penstock.model.change import Bound, Cell, Change, Deleted, Deletion, Delta, Element, Op, Range, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Type

_SETTINGS = settings(max_examples=150)


def _table(kind: Type) -> TableSchema:
    columns = (
        Column("p", types.INT32, Role.PARTITION),
        Column("k", types.INT32, Role.CLUSTERING),
        Column("s", kind, Role.STATIC),
        Column("c", kind),
    )
    return TableSchema(TableId("ks", "counted"), columns)


SHARDED, PLAIN = _table(types.SHARDED_COUNTER), _table(types.COUNTER)

# Few times, clocks and counts, so that all of them meet.
times = st.integers(0, 4)
own_times = st.none() | times
counts = st.integers(-1, 2)
deletions = st.builds(Deletion, times, st.none() | st.integers(0, 2))
no_expiry = st.none()
totals = st.builds(Set, st.none() | counts, own_times, no_expiry)
gone = st.builds(Deleted, own_times, st.none() | st.integers(0, 2))
shards = st.sampled_from([UUID(int=1), UUID(int=2), UNKNOWN_SHARD])
elements = st.builds(Element, shards, st.tuples(st.integers(0, 3), counts), own_times, no_expiry)
deltas = st.builds(Delta, st.none() | deletions, st.lists(elements, max_size=2).map(tuple), st.just(()))
CELLS: dict[TableSchema, st.SearchStrategy[Cell]] = {SHARDED: totals | gone | deltas, PLAIN: totals | gone}


@st.composite
def counter_changes(draw: st.DrawFn, schema: TableSchema) -> Change:
    wide = [Op.DELETE, Op.DELETE_RANGE, Op.DELETE_PARTITION, Op.TRUNCATE]
    op = draw(st.sampled_from([Op.UPDATE, Op.UPDATE, Op.UPDATE, Op.SNAPSHOT, *wide]))
    time = draw(times)
    key = {} if op is Op.TRUNCATE else {"p": draw(st.integers(0, 1))}
    if op in (Op.DELETE_PARTITION, Op.TRUNCATE):
        return Change(op, key, time=time)
    if op is Op.DELETE_RANGE:
        start = draw(st.none() | st.builds(Bound, st.tuples(st.integers(0, 1)), st.booleans()))
        return Change(op, key, time=time, range=Range(start, None))
    key["k"] = draw(st.integers(0, 1))
    if op is Op.DELETE:
        return Change(op, key, time=time)
    names = draw(st.lists(st.sampled_from(["s", "c"]), min_size=1, unique=True))
    cells = {name: draw(CELLS[schema]) for name in names}
    return Change(op, key, cells, time=time, deletion=draw(st.none() | deletions))


histories = st.sampled_from([SHARDED, PLAIN]).flatmap(
    lambda schema: st.tuples(st.just(schema), *[st.lists(counter_changes(schema), max_size=5)] * 3)
)


@_SETTINGS
@given(histories, st.randoms(use_true_random=False))
def test_order_grouping_and_repetition_do_not_matter_to_counters(
    given_: tuple[TableSchema, list[Change], list[Change], list[Change]], shuffler: random.Random
) -> None:
    schema, first, second, third = given_
    history = first + second + third
    state = fold(schema, history)
    copies = history + [one for one in history if shuffler.random() < 0.5]
    shuffler.shuffle(copies)
    right = fold(schema, second)
    right.join(fold(schema, third))
    grouped = fold(schema, first)
    grouped.join(right)
    turned = fold(schema, third)
    turned.join(fold(schema, second))
    turned.join(fold(schema, first))
    again = fold(schema, history)
    again.join(again)
    for other in (fold(schema, copies), grouped, turned, again, fold(schema, state.changes())):
        assert normal(other) == normal(state)
        assert visible(other, 0) == visible(state, 0)


plain_writes = st.one_of(
    st.builds(lambda count, time: Change(Op.SNAPSHOT, {"p": 1, "k": 1}, {"c": Set(count)}, time=time), counts, times),
    st.builds(
        lambda shard, version, time: Change(
            Op.UPDATE, {"p": 1, "k": 1}, {"c": Delta(None, (Element(shard, version),))}, time=time
        ),
        st.sampled_from([UUID(int=1), UUID(int=2)]),
        st.tuples(st.integers(1, 3), counts),
        times,
    ),
    st.builds(lambda time: Change(Op.UPDATE, {"p": 1, "k": 1}, {"c": Deleted(time)}, time=time), times),
    st.builds(lambda time: Change(Op.DELETE, {"p": 1, "k": 1}, time=time), times),
)


@_SETTINGS
@given(st.lists(plain_writes, max_size=8))
def test_a_counter_is_what_a_slow_reading_of_the_rules_gives(history: list[Change]) -> None:
    """An oracle that keeps everything: the latest total, unless a shard is newer than it; else the shards' sum."""
    floor = max((one.time or 0 for one in history if one.op is Op.DELETE), default=-1)
    read: list[tuple[int, int]] = []
    written: list[tuple[int, UUID, tuple[int, int]]] = []
    deleted = False
    for one in history:
        time, cell = one.time or 0, one.cells.get("c")
        if time <= floor:
            continue
        if isinstance(cell, Deleted):
            deleted = True
        elif isinstance(cell, Set):
            read.append((time, cell.value))
        elif isinstance(cell, Delta):
            written += [(time, element.path, element.value) for element in cell.elements]
    value: int | None = None
    if written:
        newest = {shard: max(version for _, one, version in written if one == shard) for _, shard, _ in written}
        value = sum(count for _, count in newest.values())
    if read and max(read)[0] >= max((time for time, _, _ in written), default=-1):
        value = max(read)[1]
    wanted = [] if deleted or value is None else [{"p": 1, "k": 1, "s": None, "c": value}]
    assert visible(fold(SHARDED, history), 0) == wanted


def test_of_two_totals_the_later_one_counts_though_it_is_less() -> None:
    history = [
        Change(Op.SNAPSHOT, {"p": 1, "k": 1}, {"c": Set(5)}, time=10),
        Change(Op.SNAPSHOT, {"p": 1, "k": 1}, {"c": Set(3)}, time=20),
    ]
    for order in (history, history[::-1]):
        assert visible(fold(SHARDED, order), 0) == [{"p": 1, "k": 1, "s": None, "c": 3}]
