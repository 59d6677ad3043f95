"""Lines of JSON of rows: several threads at once, and plans that cannot be."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.formats import avro
from penstock.formats._json_rows import JsonRows
from penstock.formats.json_rows import Spelling, lines, objects
from penstock.formats.program import program
from penstock.model import types as t
from penstock.model.change import Change, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema

SCHEMA = TableSchema(
    TableId("shop", "orders"), (Column("id", t.INT64, Role.PARTITION), Column("note", t.TEXT), Column("n", t.VARINT))
)


@pytest.fixture
def _quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_quick_switches")
def test_threads_that_render_the_same_table_do_not_mix_their_lines() -> None:
    def batch_of(first: int) -> Any:
        # Values that are left to Python, where another thread may go on.
        cells = {"note": Set("żółć"), "n": Set(1 << 100)}
        return avro.encode(SCHEMA, [Change(Op.INSERT, {"id": first + n}, cells) for n in range(200)])

    batches = [batch_of(1000 * number) for number in range(8)]
    expected = [bytes(lines(batch, Spelling.ASCII)) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert [bytes(made) for made in pool.map(lambda batch: lines(batch, Spelling.ASCII), batches)] == expected


def test_objects_are_what_the_lines_say() -> None:
    batch = avro.encode(SCHEMA, [Change(Op.DELETE, {"id": 1}), Change(Op.INSERT, {"id": 2}, {"note": Set("\u2028\r")})])
    first, second = objects(batch, ordinal=4)
    assert first == {
        "position": f"{0:06d}:0:4", "table": "shop.orders", "schema_version": 1, "op": "delete", "key": {"id": 1},
        "cells": {},
    }  # fmt: skip
    assert second["cells"] == {"note": {"value": "\u2028\r"}}


def _tables() -> dict[str, Any]:
    per_node = dict.fromkeys(("kinds", "avro", "first", "counts", "names", "makers"), array("i", [0]))
    numbers = dict.fromkeys(("numbers", "limits"), array("q", [0]))
    return {
        **per_node, **numbers, "children": array("i", [0]), "columns": array("i", [0]), "deltas": array("i", [0]),
        "sections": (1, 0, 0, 0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("table", "content"),
    [
        ("kinds", array("i", [0, 0])),
        ("avro", array("i", [10_000])),
        ("avro", array("i", [-1])),
        ("counts", array("i", [1])),
        ("names", array("i", [1])),
        ("makers", array("i", [1])),
        ("columns", array("i", [1])),
        ("deltas", array("i", [-2])),
        ("sections", (1, 1, 0, 0)),
    ],
)
def test_a_plan_with_numbers_outside_its_tables_is_refused(table: str, content: Any) -> None:
    JsonRows(program(SCHEMA), _tables(), [b""], [None], str)
    with pytest.raises(ValueError, match="a plan"):
        JsonRows(program(SCHEMA), {**_tables(), table: content}, [b""], [None], str)
