"""Table schemas: what their fingerprint, order and era go by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import InvalidSchema
from penstock.model import types
from penstock.model.schema import Column, Role, TableId, TableSchema

SCHEMA = TableSchema(
    TableId("shop", "carts"),
    (Column("id", types.INT64, Role.PARTITION), Column("note", types.TEXT)),
    version=3,
    id="5f3a",
    altered=70,
    truncated_us=90,
)


def test_a_schema_comes_back_from_its_json() -> None:
    columns = (SCHEMA.columns[0], replace(SCHEMA.columns[1], dropped_us=40))
    again = replace(SCHEMA, columns=columns, dropped=(("place", 30),))
    assert TableSchema.from_json(again.to_json()) == again


def test_json_of_a_log_that_knows_no_eras_is_read() -> None:
    old = TableSchema(SCHEMA.table, SCHEMA.columns)
    assert old.to_json().keys() == {"keyspace", "table", "version", "source", "columns"}
    assert TableSchema.from_json(old.to_json()) == old


def test_json_without_columns_is_refused() -> None:
    data = SCHEMA.to_json()
    del data["columns"]
    with pytest.raises(InvalidSchema):
        TableSchema.from_json(data)


@pytest.mark.parametrize("field", [{"version": 4}, {"id": "60aa"}, {"altered": 71}, {"truncated_us": 91}])
def test_a_fingerprint_says_nothing_of_when(field: dict[str, object]) -> None:
    assert replace(SCHEMA, **field).fingerprint == SCHEMA.fingerprint  # type: ignore[arg-type]


def test_a_column_that_was_added_again_makes_another_fingerprint() -> None:
    again = (SCHEMA.columns[0], replace(SCHEMA.columns[1], dropped_us=40))
    assert replace(SCHEMA, columns=again).fingerprint != SCHEMA.fingerprint


def test_a_column_that_is_gone_makes_another_fingerprint() -> None:
    assert replace(SCHEMA, dropped=(("place", 30),)).fingerprint != SCHEMA.fingerprint


def test_the_later_alteration_is_newer_whatever_a_node_counts() -> None:
    assert replace(SCHEMA, version=1, altered=71).order > SCHEMA.order
    assert replace(SCHEMA, version=4).order > SCHEMA.order


@pytest.mark.parametrize("field", [{"id": "60aa"}, {"truncated_us": 91}])
def test_another_table_of_that_name_and_a_truncation_begin_an_era(field: dict[str, object]) -> None:
    assert replace(SCHEMA, **field).era != SCHEMA.era  # type: ignore[arg-type]
    assert replace(SCHEMA, version=4, altered=71).era == SCHEMA.era
