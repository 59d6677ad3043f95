"""The Avro schema of a table's changes."""

from __future__ import annotations

import json

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidSchema
from penstock.formats import record
from penstock.formats.program import parse
from penstock.model import types as t
from penstock.model.change import Op
from penstock.model.schema import Column, Role, TableId, TableSchema
from tests.every_type import every_type_table


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("id", "id"),
        ("a b", "a_x0020_b"),
        ("1st", "_x0031_st"),
        ("_x0020_", "_x005F_x0020_"),
        ("é", "_x00E9_"),
        ("\U0001f30a", "_x1F30A_"),
        ("", "_x_"),
    ],
)
def test_names_are_escaped_where_avro_does_not_allow_them(name: str, escaped: str) -> None:
    assert record.avro_name(name) == escaped


@settings(max_examples=500)
@given(st.text(st.characters(codec="utf-8") | st.sampled_from("_x0123456789ABCDEF"), max_size=12))
def test_every_name_comes_back(name: str) -> None:
    assert record.column_name(record.avro_name(name)) == name


def test_the_fields_stand_in_their_order() -> None:
    schema, _ = every_type_table()
    fields = [field["name"] for field in json.loads(record.schema_json(schema))["fields"]]
    assert fields == [
        "op", "time", "commit_time", "capture_time", "origin", "marker", "deletion", "range", "key", "cells", "before",
        "seal",
    ]  # fmt: skip


def test_operations_keep_their_numbers() -> None:
    """The numbers are in every file: new operations may only be added behind."""
    assert [op.value for op in Op] == [
        "insert", "update", "delete", "delete_partition", "delete_range", "truncate", "snapshot",
    ]  # fmt: skip


def test_fastavro_accepts_the_schema_of_every_type() -> None:
    schema, _ = every_type_table()
    fastavro.parse_schema(json.loads(record.schema_json(schema)))


def test_a_column_that_was_renamed_carries_its_true_name() -> None:
    schema = TableSchema(TableId("k", "t"), (Column("a b", t.INT8, Role.PARTITION),))
    key = next(f for f in json.loads(record.schema_json(schema))["fields"] if f["name"] == "key")
    (field,) = key["type"]["fields"]
    assert field["column"] == "a b"
    assert field["type"][1] == {"type": "int", "penstock": {"kind": "int8"}}


@pytest.mark.parametrize(
    "schema",
    ["map", {"type": "map", "values": "int"}, ["int", "null"], {}, 5, {"type": "array", "items": "null"}],
)
def test_schemas_that_no_change_has_are_refused(schema: object) -> None:
    with pytest.raises(InvalidSchema):
        parse(schema)


def test_a_schema_that_contains_itself_is_refused() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}
    with pytest.raises(InvalidSchema, match="too deep"):
        parse(tree)
