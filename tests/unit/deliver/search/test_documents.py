"""Ids of documents: the same for the same key, different for different keys, and never too long."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.deliver.search.documents import ID_BYTES_MAX, bulk_lines, document_ids
from penstock.model import types as t
from penstock.model.change import Change, Deletion, Op
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records.records import Records
from tests.row_records import put, records_of


def table(*types: t.Type) -> TableSchema:
    columns = [Column(f"k{at}", type_, Role.CLUSTERING if at else Role.PARTITION) for at, type_ in enumerate(types)]
    return TableSchema(TableId("shop", "orders"), tuple(columns))


def ids(schema: TableSchema, *keys: tuple[Any, ...]) -> list[str | None]:
    names = [column.name for column in schema.key]
    key = pa.array([dict(zip(names, values, strict=True)) for values in keys], _struct(names))
    found: list[str | None] = document_ids(schema, key).to_pylist()
    return found


def _struct(names: list[str]) -> pa.DataType:
    return pa.struct([(name, pa.string()) for name in names])


def test_an_id_is_the_text_of_the_key() -> None:
    assert ids(table(t.TEXT), ("anna",)) == ["anna"]
    assert ids(table(t.TEXT, t.TEXT), ("anna", "2024")) == ["anna|2024"]


def test_a_key_that_is_not_whole_has_no_id() -> None:
    assert ids(table(t.TEXT, t.TEXT, t.TEXT), (None, "a", "b"), ("a", "b", None), ("a", "b", "c")) == [
        None,
        None,
        "a|b|c",
    ]


def test_static_cells_without_a_row_have_an_id_of_their_own() -> None:
    assert ids(table(t.TEXT, t.TEXT), ("anna", None), ("anna", "\\static")) == ["anna|\\static", "anna|\\\\static"]
    assert ids(table(t.TEXT, t.TEXT, t.TEXT), ("anna", None, None)) == ["anna|\\static"]


def test_separators_inside_a_key_are_escaped() -> None:
    assert ids(table(t.TEXT, t.TEXT), ("a|b", "c"), ("a", "b|c"), ("a\\", "|")) == ["a\\|b|c", "a|b\\|c", "a\\\\|\\|"]


def test_keys_without_text_and_very_long_keys_have_ids_too() -> None:
    empty, long, longer = ids(table(t.TEXT), ("",), ("ü" * 300,), ("ü" * 301,))
    assert empty == "\\empty"
    assert long is not None
    assert longer is not None
    assert long.startswith("\\sha256|")
    assert long != longer


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), unique=True, max_size=20))
def test_different_keys_have_different_ids(keys: list[tuple[str, str]]) -> None:
    made = ids(table(t.TEXT, t.TEXT), *keys)
    assert len(set(made)) == len(keys)
    assert all(id_ and len(id_.encode()) <= ID_BYTES_MAX for id_ in made)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (t.INT64, -7, "-7"),
        (t.BOOLEAN, True, "true"),
        (t.timestamp(t.Unit.MS), 1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
        (t.BYTES, b"\0\xff", "AP8="),
        (t.VARINT, 1 << 70, "1180591620717411303424"),
        (t.list_of(t.TEXT), ("a", '"'), '["a","\\\\""]'),
    ],
)
def test_keys_of_any_type_have_readable_ids(type_: t.Type, value: object, text: str) -> None:
    schema = table(type_)
    (lines,) = bulk_lines(records_of(schema, [put({"k0": value}, 1)]), "orders")
    action = json.loads(bytes(lines.data).split(b"\n")[0])
    assert action["index"]["_id"] == text


def test_long_runs_of_records_are_made_in_pieces() -> None:
    schema = table(t.INT64)
    records = records_of(schema, [put({"k0": number}, 1) for number in range(100)])
    many = records.take(np.arange(20_000) % 100)
    pieces = list(bulk_lines(many, "orders"))
    assert len(pieces) > 1
    assert [int(number) for piece in pieces for number in piece.numbers] == list(range(20_000))
    assert all(len(piece.offsets) == len(piece) + 1 for piece in pieces)


def test_lines_know_their_records() -> None:
    schema = table(t.INT64, t.INT64)
    wide = Change(Op.DELETE_PARTITION, {"k0": 1}, time=1, deletion=Deletion(1))
    changes = [wide, put({"k0": 1, "k1": 2}, 2), wide, put({"k0": 4, "k1": 5}, 4)]
    records: Records = records_of(schema, changes)
    (lines,) = bulk_lines(records, "orders")
    assert list(lines.numbers) == [1, 3]
    first = bytes(lines.data[lines.offsets[0] : lines.offsets[1]])
    assert first.startswith(b'{"index":{"_index":"orders","_id":"1|2","version":2')
    assert first.endswith(b"\n")
