"""The laws of merging: order, grouping and repetition of changes do not matter, and Cassandra's tie rules hold."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.merge.cql_value import order_key, serialized
from penstock.merge.range_deletions import NEVER, RangeDeletions, row_place
from penstock.merge.table_state import TableState, covers, fold, list_cell_id, missing, normal, visible
from penstock.model import types
from penstock.model.change import (
    Bound,
    Cell,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Range,
    Removed,
    Set,
)
from penstock.model.schema import Column, Role, TableId, TableSchema

SCHEMA = TableSchema(
    TableId("ks", "everything"),
    (
        Column("p", types.INT32, Role.PARTITION),
        Column("a", types.INT32, Role.CLUSTERING),
        Column("b", types.INT32, Role.CLUSTERING, descending=True),
        Column("s", types.TEXT, Role.STATIC),
        Column("t", types.set_of(types.INT32, multi_cell=True), Role.STATIC),
        Column("v", types.INT32),
        Column("d", types.DECIMAL),
        Column("f", types.FLOAT64),
        Column("m", types.map_of(types.TEXT, types.INT32, multi_cell=True)),
        Column("l", types.list_of(types.INT32, multi_cell=True)),
        Column("u", types.user("pair", {"x": types.INT32, "y": types.TEXT}, multi_cell=True)),
    ),
)
COUNTERS = TableSchema(
    TableId("ks", "counters"), (Column("p", types.INT32, Role.PARTITION), Column("c", types.COUNTER, Role.REGULAR))
)

# Few times and few values, so that ties of every kind are common.
times = st.integers(0, 5)
seconds = st.one_of(st.none(), st.integers(0, 3))
small = st.integers(-1, 2)
expiries = st.one_of(st.none(), st.builds(Expiry, st.integers(1, 2), st.integers(0, 3)))
deletions = st.builds(Deletion, times, seconds)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": st.sampled_from(["", "a", "é"]),
    "v": small,
    "d": st.decimals(min_value=-1, max_value=1, places=1),
    "f": st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
}
own_times = st.one_of(st.none(), times)


def cell(name: str) -> st.SearchStrategy[Cell]:
    if name in VALUES:
        living = st.builds(Set, VALUES[name], own_times, expiries)
        return st.one_of(living, st.builds(Deleted, own_times, seconds))
    if name == "t":
        return delta(small, st.none())
    if name == "m":
        return delta(st.sampled_from(["", "k"]), small)
    if name == "l":
        return delta(st.builds(list_cell_id, st.integers(0, 2), st.integers(0, 1)), small)
    fields = delta(st.just(0), small), delta(st.just(1), st.sampled_from(["", "z"]))
    return st.one_of(*fields, st.builds(Deleted, own_times, seconds))


def delta(paths: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Cell]:
    elements = st.lists(st.builds(Element, paths, values, own_times, expiries), max_size=2).map(tuple)
    removed = st.lists(st.builds(Removed, paths, own_times, seconds), max_size=1).map(tuple)
    return st.builds(Delta, st.one_of(st.none(), deletions), elements, removed)


def bounds() -> st.SearchStrategy[Bound | None]:
    values = st.one_of(st.tuples(small), st.tuples(small, small))
    return st.one_of(st.none(), st.builds(Bound, values, st.booleans()))


@st.composite
def changes(draw: st.DrawFn) -> Change:
    op = draw(
        st.sampled_from([Op.INSERT, Op.UPDATE, Op.UPDATE, Op.DELETE, Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE])
    )
    time = draw(times)
    key = {"p": draw(st.integers(0, 1))}
    if op is Op.TRUNCATE:
        return Change(op, time=time, deletion=draw(deletions))
    if op is Op.DELETE_PARTITION:
        return Change(op, key, time=time, deletion=draw(st.one_of(st.none(), deletions)))
    if op is Op.DELETE_RANGE:
        where = Range(draw(bounds()), draw(bounds()))
        return Change(op, key, time=time, deletion=draw(deletions), range=where)
    static_only = op is Op.UPDATE and draw(st.booleans())
    names = ["s", "t"] if static_only else [column.name for column in SCHEMA.cells]
    if not static_only:
        key |= {"a": draw(small), "b": draw(small)}
    chosen = draw(st.lists(st.sampled_from(names), max_size=3, unique=True)) if op is not Op.DELETE else []
    cells = {name: draw(cell(name)) for name in chosen}
    marker = draw(st.builds(Marker, own_times, expiries)) if op is Op.INSERT else None
    deletion = draw(st.one_of(st.none(), deletions)) if not static_only else None
    return Change(op, key, cells, time=time, marker=marker, deletion=deletion)


many = st.lists(changes(), max_size=14)


@given(many, st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(history: list[Change], shuffler: random.Random) -> None:
    again = [*history, *(change for change in history if shuffler.random() < 0.5)]
    shuffler.shuffle(again)
    assert normal(fold(SCHEMA, again)) == normal(fold(SCHEMA, history))


@given(many, many)
def test_join_is_commutative(left: list[Change], right: list[Change]) -> None:
    one, other = fold(SCHEMA, left), fold(SCHEMA, right)
    one.join(fold(SCHEMA, right))
    other.join(fold(SCHEMA, left))
    assert normal(one) == normal(other)


@given(many, many, many)
def test_join_is_associative(first: list[Change], second: list[Change], third: list[Change]) -> None:
    left = fold(SCHEMA, first)
    left.join(fold(SCHEMA, second))
    left.join(fold(SCHEMA, third))
    tail = fold(SCHEMA, second)
    tail.join(fold(SCHEMA, third))
    right = fold(SCHEMA, first)
    right.join(tail)
    assert normal(left) == normal(right)


@given(many)
def test_join_is_idempotent_and_a_state_is_its_own_changes(history: list[Change]) -> None:
    state = fold(SCHEMA, history)
    before = normal(state)
    assert normal(fold(SCHEMA, state.changes())) == before
    state.join(fold(SCHEMA, history))
    assert normal(state) == before


@given(many, many)
def test_missing_is_what_a_replica_lacks(behind: list[Change], ahead: list[Change]) -> None:
    have = fold(SCHEMA, behind)
    want = fold(SCHEMA, behind + ahead)
    for change in missing(have, want):
        have.apply(change)
    assert normal(have) == normal(want)
    assert missing(want, want) == []


@given(many, changes())
def test_a_state_covers_a_change_exactly_when_it_would_not_alter_it(history: list[Change], change: Change) -> None:
    state = fold(SCHEMA, history)
    before = normal(state)
    answer = covers(state, change)
    state.apply(change)
    assert answer == (normal(state) == before)
    assert covers(state, change)


@given(many, st.integers(0, 4))
def test_rows_are_what_a_slow_reading_of_the_rules_gives(history: list[Change], now_s: int) -> None:
    """An oracle that keeps everything and decides only when asked, without normal forms or early dropping."""
    state = fold(SCHEMA, history)
    rows = {(row["p"], row["a"], row["b"]): row for row in visible(state, now_s) if row["a"] is not None}
    keys = {(c.key["p"], c.key["a"], c.key["b"]) for c in history if "a" in c.key}
    for key in keys:
        wanted = _slow_cell(history, key, now_s)
        row = rows.get(key)
        got = (row or {}).get("v")
        assert got == wanted
    assert set(rows) <= keys


def _slow_cell(history: list[Change], key: tuple[int, int, int], now_s: int) -> int | None:
    floor = max((_covering(change, key) for change in history), default=NEVER)
    best: tuple[Any, ...] = ()
    value = None
    for change in history:
        if change.key.get("p") != key[0] or (change.key.get("a"), change.key.get("b")) != key[1:]:
            continue
        found = change.cells.get("v")
        if found is None:
            continue
        assert isinstance(found, Set | Deleted)
        time = change.time if found.time is None else found.time
        assert time is not None
        if time <= floor:
            continue
        if isinstance(found, Deleted):
            rank: tuple[Any, ...] = (time, 2, 0, b"")
            candidate = None
        else:
            second = found.expiry.expires_s if found.expiry else 0
            rank = (time, 1 if found.expiry else 0, second, serialized(types.INT32, found.value))
            candidate = found.value if not found.expiry or now_s < second else None
        if rank > best:
            best, value = rank, candidate
    return value


def _covering(change: Change, key: tuple[int, int, int]) -> int:
    """The write time up to which a change deletes the row, by direct comparison of clustering values."""
    deletion = change.deletion
    if change.op is Op.TRUNCATE:
        return change.deletion.time if change.deletion else NEVER
    if change.key.get("p") != key[0]:
        return NEVER
    time = deletion.time if deletion else change.time
    assert time is not None
    if change.op is Op.DELETE_PARTITION:
        return time
    if change.op is Op.DELETE_RANGE:
        return time if change.range and _inside(change.range, key[1:]) else NEVER
    same = (change.key.get("a"), change.key.get("b")) == key[1:]
    deletes = deletion is not None or (change.op is Op.DELETE and not change.cells)
    return time if same and deletes else NEVER


def _inside(where: Range, clustering: tuple[int, int]) -> bool:
    # Column b is DESC: within one a, the greater b comes first.
    def ordered(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-value if index else value for index, value in enumerate(values))

    row = ordered(clustering)
    if where.start is not None:
        start = ordered(where.start.values)
        prefix = row[: len(start)]
        if prefix < start or (prefix == start and not where.start.inclusive):
            return False
    if where.end is not None:
        end = ordered(where.end.values)
        prefix = row[: len(end)]
        if prefix > end or (prefix == end and not where.end.inclusive):
            return False
    return True


@given(st.lists(st.tuples(bounds(), bounds(), deletions), max_size=8), small, small)
def test_range_deletions_cover_what_their_ranges_say(
    ranges: list[tuple[Bound | None, Bound | None, Deletion]], a: int, b: int
) -> None:
    steps = RangeDeletions()
    wanted = NEVER
    for start, end, deletion in ranges:
        steps.add(SCHEMA.clustering, Range(start, end), deletion)
        if _inside(Range(start, end), (a, b)):
            wanted = max(wanted, deletion.time)
    assert steps.at(row_place(SCHEMA.clustering, (a, b))) == wanted
    assert all(one.end <= two.start for one, two in zip(steps.steps, steps.steps[1:], strict=False))


plain_counter_changes = st.one_of(
    st.builds(lambda value, time: Change(Op.UPDATE, {"p": 1}, {"c": Set(value)}, time=time), small, times),
    st.builds(lambda time: Change(Op.UPDATE, {"p": 1}, {"c": Deleted()}, time=time), times),
    st.builds(lambda time: Change(Op.DELETE, {"p": 1}, time=time), times),
    st.builds(lambda time: Change(Op.DELETE_PARTITION, {"p": 1}, time=time), times),
    st.builds(lambda time: Change(Op.TRUNCATE, time=time), times),
)


@given(st.lists(plain_counter_changes, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_counters_without_shards_are_what_was_written_last_in_any_order(
    history: list[Change], shuffler: random.Random
) -> None:
    copies = history + [shuffler.choice(history) for _ in history]
    shuffler.shuffle(copies)
    state = fold(COUNTERS, copies)
    assert normal(state) == normal(fold(COUNTERS, history))
    assert normal(fold(COUNTERS, state.changes())) == normal(state)
    # Of the same time, a deletion wins, and then the greater bytes.
    last = [one.cells.get("c") for one in history if one.time == max(other.time or 0 for other in history)]
    values = [cell.value for cell in last if isinstance(cell, Set)]
    if len(values) == len(last):
        greatest = max(values, key=lambda value: value.to_bytes(8, "big", signed=True))
        assert visible(state, 0) == [{"p": 1, "c": greatest}]
    else:
        assert visible(state, 0) == []


SHARDED = TableSchema(
    TableId("ks", "sharded"),
    (
        Column("p", types.INT32, Role.PARTITION),
        Column("k", types.INT32, Role.CLUSTERING),
        Column("c", types.SHARDED_COUNTER),
    ),
)
shards = st.sampled_from([UUID(int=1), UUID(int=2)])
versions = st.tuples(st.integers(1, 3), st.integers(0, 2))


def shard_change(shard: UUID, version: tuple[int, int], time: int) -> Change:
    return Change(Op.UPDATE, {"p": 1, "k": 1}, {"c": Delta(None, (Element(shard, version),))}, time=time)


counter_changes = st.one_of(
    st.builds(shard_change, shards, versions, times),
    st.builds(lambda time: Change(Op.UPDATE, {"p": 1, "k": 1}, {"c": Deleted(time)}), times),
    st.builds(lambda time: Change(Op.DELETE, {"p": 1, "k": 1}, time=time), times),
    st.builds(lambda time: Change(Op.DELETE_PARTITION, {"p": 1}, time=time), times),
)


@given(st.lists(counter_changes, max_size=8), st.randoms(use_true_random=False))
def test_counters_merge_alike_in_any_order_and_number_of_copies(history: list[Change], shuffler: random.Random) -> None:
    copies = history + [shuffler.choice(history) for _ in history]
    shuffler.shuffle(copies)
    state = fold(SHARDED, copies)
    assert normal(state) == normal(fold(SHARDED, history))
    assert normal(fold(SHARDED, state.changes())) == normal(state)
    # Each shard counts with its greatest clock among what no deletion covers.
    floor = max((one.time or 0 for one in history if one.op in (Op.DELETE, Op.DELETE_PARTITION)), default=-1)
    living: dict[UUID, tuple[int, int]] = {}
    for one in history:
        cell = one.cells.get("c")
        if isinstance(cell, Delta) and (one.time or 0) > floor:
            (element,) = cell.elements
            living[element.path] = max(living.get(element.path, (0, 0)), element.value)
    deleted = any(
        isinstance(cell, Deleted) and (cell.time or 0) > floor for one in history for cell in one.cells.values()
    )
    wanted = [{"p": 1, "k": 1, "c": sum(count for _, count in living.values())}] if living and not deleted else []
    assert visible(state, 0) == wanted


def test_a_total_without_shards_counts_until_a_shard_is_known() -> None:
    total = Change(Op.SNAPSHOT, {"p": 1, "k": 1}, {"c": Set(7)}, time=1)
    assert visible(fold(SHARDED, [total]), 0) == [{"p": 1, "k": 1, "c": 7}]
    newer = shard_change(UUID(int=1), (4, 9), 2)
    assert visible(fold(SHARDED, [newer, total]), 0) == [{"p": 1, "k": 1, "c": 9}]


@given(st.integers(), st.integers())
def test_varints_keep_their_sign_and_are_shortest(one: int, other: int) -> None:
    left, right = serialized(types.VARINT, one), serialized(types.VARINT, other)
    assert int.from_bytes(left, "big", signed=True) == one
    assert (left == right) == (one == other)


@given(st.lists(st.uuids(version=1), max_size=8))
def test_timeuuids_sort_by_time_first(ids: list[Any]) -> None:
    ordered = sorted(ids, key=lambda one: order_key(types.TIMEUUID, one))
    assert [one.time for one in ordered] == sorted(one.time for one in ids)


@settings(max_examples=50)
@given(st.integers(0, 1 << 50), st.lists(st.integers(0, 16000), min_size=2, max_size=8, unique=True))
def test_list_cells_of_one_write_sort_by_index(time: int, indexes: list[int]) -> None:
    made = sorted(indexes, key=lambda index: order_key(types.TIMEUUID, list_cell_id(time, index)))
    assert made == sorted(indexes)
    assert len({list_cell_id(time, index) for index in indexes}) == len(indexes)


def test_an_empty_table_has_no_rows() -> None:
    assert visible(TableState(SCHEMA), 0) == []
