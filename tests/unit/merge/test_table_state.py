"""Merging by example: Cassandra's tie rules one by one, the reach of each deletion, and what a SELECT shows."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidValue
from penstock.merge.table_state import covers, fold, list_cell_id, visible
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
    TableId("ks", "t"),
    (
        Column("p", types.INT32, Role.PARTITION),
        Column("c", types.INT32, Role.CLUSTERING),
        Column("s", types.TEXT, Role.STATIC),
        Column("v", types.INT32),
        Column("l", types.list_of(types.INT32, multi_cell=True)),
        Column("m", types.map_of(types.TEXT, types.INT32, multi_cell=True)),
        Column("t", types.set_of(types.TEXT, multi_cell=True)),
        Column("u", types.user("pair", {"x": types.INT32, "y": types.TEXT}, multi_cell=True)),
    ),
)
KEY = {"p": 1, "c": 2}


def update(time: int, **cells: Cell) -> Change:
    return Change(Op.UPDATE, KEY, cells, time=time)


def insert(time: int, expiry: Expiry | None = None, **cells: Cell) -> Change:
    return Change(Op.INSERT, KEY, cells, time=time, marker=Marker(None, expiry))


def rows(*changes: Change, now_s: int = 0) -> list[dict[str, Any]]:
    """The rows, which must be the same in both orders."""
    found = visible(fold(SCHEMA, changes), now_s)
    assert visible(fold(SCHEMA, reversed(changes)), now_s) == found
    return [{name: value for name, value in row.items() if value is not None} for row in found]


LIVE_LOW, LIVE_HIGH = Set(1), Set(2)
SOON, LATE = Expiry(5, 100), Expiry(50, 200)


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        (LIVE_HIGH, LIVE_LOW),
        # Bytes decide, not numbers: -1 is ff ff ff ff.
        (Set(-1), LIVE_HIGH),
        (Deleted(None, 0), LIVE_HIGH),
        (Deleted(None, 0), Set(2, None, LATE)),
        (Set(1, None, SOON), LIVE_HIGH),
        # The later expiry wins whatever the values are.
        (Set(1, None, LATE), Set(2, None, SOON)),
        (Set(2, None, SOON), Set(1, None, SOON)),
        (Set(1, None, Expiry(6, 100)), Set(1, None, Expiry(5, 100))),
        (Deleted(None, 7), Deleted(None, 6)),
    ],
)
def test_at_the_same_write_time_the_rule_of_cassandra_decides(winner: Cell, loser: Cell) -> None:
    first = fold(SCHEMA, [update(9, v=winner), update(9, v=loser)])
    second = fold(SCHEMA, [update(9, v=loser), update(9, v=winner)])
    assert covers(first, update(9, v=winner))
    assert covers(second, update(9, v=winner))
    assert not covers(fold(SCHEMA, [update(9, v=loser)]), update(9, v=winner))
    # One microsecond more beats every rule.
    assert covers(fold(SCHEMA, [update(10, v=loser), update(9, v=winner)]), update(9, v=winner))


def test_a_later_write_wins_whatever_it_is() -> None:
    assert rows(update(1, v=Deleted()), update(2, v=Set(5))) == [{"p": 1, "c": 2, "v": 5}]
    assert rows(update(1, v=Set(5)), update(2, v=Deleted())) == []


def test_an_insert_keeps_its_row_when_all_cells_are_gone_and_an_update_does_not() -> None:
    assert rows(insert(1, v=Set(5)), update(2, v=Deleted())) == [{"p": 1, "c": 2}]
    assert rows(update(1, v=Set(5)), update(2, v=Deleted())) == []


def test_what_has_expired_is_hidden_from_that_second_on() -> None:
    change = insert(1, Expiry(10, 100), v=Set(5, None, Expiry(10, 100)))
    assert rows(change, now_s=99) == [{"p": 1, "c": 2, "v": 5}]
    assert rows(change, now_s=100) == []


def test_an_expired_cell_does_not_let_an_older_one_show_again() -> None:
    assert rows(update(1, v=Set(5)), update(2, v=Set(6, None, Expiry(1, 50))), now_s=60) == []


def delete(op: Op, time: int, where: Range | None = None, key: dict[str, int] | None = None) -> Change:
    return Change(op, key or {"p": 1}, time=time, deletion=Deletion(time, 0), range=where)


DELETIONS = [
    delete(Op.DELETE, 5, key=KEY),
    delete(Op.DELETE_RANGE, 5, Range(Bound((2,), True), Bound((2,), True))),
    delete(Op.DELETE_RANGE, 5, Range(None, Bound((3,), False))),
    delete(Op.DELETE_RANGE, 5, Range(Bound((1,), False), None)),
    delete(Op.DELETE_RANGE, 5, Range(None, None)),
    delete(Op.DELETE_PARTITION, 5),
    Change(Op.TRUNCATE, time=5, deletion=Deletion(5, 0)),
]


@pytest.mark.parametrize("deletion", DELETIONS, ids=lambda change: str(change.op))
def test_a_deletion_covers_writes_up_to_its_own_time(deletion: Change) -> None:
    assert rows(insert(5, v=Set(1)), deletion) == []
    assert rows(insert(6, v=Set(1)), deletion) == [{"p": 1, "c": 2, "v": 1}]
    # A cell newer than the deletion stands alone: the marker below it is gone.
    assert rows(insert(4), update(6, v=Set(1)), deletion) == [{"p": 1, "c": 2, "v": 1}]


@pytest.mark.parametrize(
    "where",
    [Range(Bound((2,), False), None), Range(None, Bound((2,), False)), Range(Bound((3,), True), Bound((1,), True))],
)
def test_a_range_deletion_leaves_rows_outside_alone(where: Range) -> None:
    assert rows(insert(1), delete(Op.DELETE_RANGE, 5, where)) == [{"p": 1, "c": 2}]


def test_static_cells_are_covered_by_partition_deletions_only() -> None:
    static = Change(Op.UPDATE, {"p": 1}, {"s": Set("x")}, time=3)
    assert rows(static) == [{"p": 1, "s": "x"}]
    assert rows(static, insert(4)) == [{"p": 1, "c": 2, "s": "x"}]
    assert rows(static, insert(4), delete(Op.DELETE_RANGE, 5, Range(None, None))) == [{"p": 1, "s": "x"}]
    assert rows(static, insert(4), delete(Op.DELETE_PARTITION, 5)) == []


def test_overwriting_a_collection_removes_older_elements_and_adding_does_not() -> None:
    first = update(5, m=Delta(Deletion(4), (Element("a", 1), Element("b", 2))))
    added = update(6, m=Delta(None, (Element("c", 3),), (Removed("a"),)))
    overwritten = update(7, m=Delta(Deletion(6), (Element("d", 4),)))
    assert rows(first, added)[0]["m"] == (("b", 2), ("c", 3))
    assert rows(first, added, overwritten)[0]["m"] == (("d", 4),)
    assert rows(first, update(8, m=Deleted())) == []


def test_a_whole_value_for_a_collection_is_an_overwrite() -> None:
    assert rows(update(5, t=Set(("x", "y"))), update(6, t=Set(("z",))))[0]["t"] == ("z",)
    assert rows(update(5, l=Set(tuple(range(20)))))[0]["l"] == tuple(range(20))
    assert rows(update(5, m=Set((("b", 2), ("a", 1)))))[0]["m"] == (("a", 1), ("b", 2))
    assert rows(update(5, u=Set((None, "q"))))[0]["u"] == (None, "q")


def test_elements_expire_one_by_one() -> None:
    cell = Delta(None, (Element("a", 1, None, Expiry(1, 50)), Element("b", 2)))
    assert rows(update(5, m=cell), now_s=60)[0]["m"] == (("b", 2),)


def test_lists_show_their_items_by_the_time_of_their_ids() -> None:
    late = update(5, l=Delta(None, (Element(list_cell_id(9, 0), 3),)))
    early = update(6, l=Delta(None, (Element(list_cell_id(2, 0), 1), Element(list_cell_id(2, 1), 2))))
    assert rows(late, early)[0]["l"] == (1, 2, 3)


def test_fields_of_a_user_type_are_cells_of_their_own() -> None:
    one = update(5, u=Delta(None, (Element(0, 7),)))
    other = update(4, u=Delta(None, (Element(0, 1), Element(1, "z"))))
    assert rows(one, other)[0]["u"] == (7, "z")


def test_rows_come_in_clustering_order() -> None:
    made = [Change(Op.INSERT, {"p": 1, "c": c}, time=1, marker=Marker()) for c in (3, -1, 2)]
    assert [row["c"] for row in rows(*made)] == [-1, 2, 3]


@pytest.mark.parametrize(
    "change",
    [
        Change(Op.UPDATE, KEY, {"v": Set(1)}),
        Change(Op.UPDATE, {"c": 2}, {"v": Set(1)}, time=1),
        Change(Op.UPDATE, {"p": 1}, {"v": Set(1)}, time=1),
        Change(Op.DELETE, {"p": 1}, time=1),
        Change(Op.UPDATE, KEY, {"nothing": Set(1)}, time=1),
        Change(Op.UPDATE, KEY, {"v": Delta()}, time=1),
    ],
)
def test_a_change_that_does_not_fit_is_refused(change: Change) -> None:
    with pytest.raises(InvalidValue):
        fold(SCHEMA, [change])


def test_a_list_too_long_for_one_write_is_refused() -> None:
    with pytest.raises(InvalidValue, match="16393"):
        list_cell_id(1, 16_393)
