"""Statements become the changes that Cassandra's own log would hold."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidStatement
from penstock.merge.table_state import list_cell_id
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
from penstock.sandbox.statements import (
    Add,
    Delete,
    DeletePartition,
    DeleteRange,
    Insert,
    Remove,
    Stamp,
    Statement,
    Truncate,
    Update,
    change,
)

T = TableId("ks", "t")
SCHEMA = TableSchema(
    T,
    (
        Column("p", types.INT32, Role.PARTITION),
        Column("c", types.INT32, Role.CLUSTERING),
        Column("s", types.TEXT, Role.STATIC),
        Column("v", types.INT32),
        Column("f", types.FLOAT32),
        Column("l", types.list_of(types.INT32, multi_cell=True)),
        Column("m", types.map_of(types.TEXT, types.INT32, multi_cell=True)),
        Column("t", types.set_of(types.TEXT, multi_cell=True)),
        Column("u", types.user("pair", {"x": types.INT32, "y": types.TEXT}, multi_cell=True)),
    ),
)
STAMP = Stamp(1000, 7, 3)
KEY = {"p": 1, "c": 2}
PAST = Deletion(999, 7)


def made(statement: Statement) -> Change:
    return change(statement, SCHEMA, STAMP)


def test_an_insert_marks_its_row_and_an_update_does_not() -> None:
    inserted = made(Insert(T, {**KEY, "v": 5}, ttl_s=60))
    assert inserted == Change(
        Op.INSERT, KEY, {"v": Set(5, None, Expiry(60, 67))}, time=1000, marker=Marker(None, Expiry(60, 67))
    )
    assert made(Update(T, KEY, {"v": 5})) == Change(Op.UPDATE, KEY, {"v": Set(5)}, time=1000)


def test_an_insert_of_static_columns_needs_and_marks_no_row() -> None:
    assert made(Insert(T, {"p": 1, "s": "x"})) == Change(Op.INSERT, {"p": 1}, {"s": Set("x")}, time=1000)


@pytest.mark.parametrize(
    ("column", "value", "cell"),
    [
        ("v", None, Deleted(None, 7)),
        ("f", 0.1, Set(0.10000000149011612)),
        ("m", {"a": 1}, Delta(PAST, (Element("a", 1),))),
        ("m", None, Delta(PAST)),
        ("m", {}, Delta(PAST)),
        ("m", Add((("a", 1),)), Delta(None, (Element("a", 1),))),
        ("m", Remove(("a",)), Delta(None, (), (Removed("a", None, 7),))),
        ("t", {"b", "a"}, Delta(PAST, (Element("a"), Element("b")))),
        ("t", Add(("a",)), Delta(None, (Element("a"),))),
        ("l", [5], Delta(PAST, (Element(list_cell_id(1000, 0, 3), 5),))),
        ("u", (4, None), Delta(PAST, (Element(0, 4),))),
        ("u", Add((("y", "z"),)), Delta(None, (Element(1, "z"),))),
    ],
)
def test_values_become_cells(column: str, value: Any, cell: object) -> None:
    assert made(Update(T, KEY, {column: value})).cells == {column: cell}


def test_deletes_reach_as_far_as_they_say() -> None:
    here = Deletion(1000, 7)
    assert made(Delete(T, KEY)) == Change(Op.DELETE, KEY, time=1000, deletion=here)
    cells: dict[str, Cell] = {"v": Deleted(None, 7), "m": Delta(here)}
    assert made(Delete(T, KEY, ("v", "m"))) == Change(Op.DELETE, KEY, cells, time=1000)
    assert made(Delete(T, {"p": 1}, ("s",))).cells == {"s": Deleted(None, 7)}
    start = Bound((1,), True)
    ranged = made(DeleteRange(T, {"p": 1}, start))
    assert ranged == Change(Op.DELETE_RANGE, {"p": 1}, time=1000, deletion=here, range=Range(start, None))
    assert made(DeletePartition(T, {"p": 1})) == Change(Op.DELETE_PARTITION, {"p": 1}, time=1000, deletion=here)
    assert made(Truncate(T)) == Change(Op.TRUNCATE, time=1000, deletion=here)


@pytest.mark.parametrize(
    "statement",
    [
        Insert(T, {"p": 1, "v": 5}),
        Insert(T, {"c": 1, "v": 5}),
        Update(T, {"p": 1}, {"v": 5}),
        Update(T, {"p": 1, "c": None}, {"v": 5}),
        Update(T, {**KEY, "v": 1}, {"v": 5}),
        Update(T, KEY, {"nothing": 5}),
        Update(T, KEY, {"c": 5}),
        Update(T, KEY, {"v": Add((1,))}),
        Update(T, KEY, {"u": Add((("z", 1),))}),
        Delete(T, {"p": 1}),
        Delete(T, {"p": 1}, ("v",)),
        DeletePartition(T, KEY),
        DeleteRange(T, KEY),
        Statement(T),
    ],
)
def test_a_statement_that_does_not_fit_its_table_is_refused(statement: Statement) -> None:
    with pytest.raises(InvalidStatement):
        made(statement)
