"""JSON that is made a column at a time says exactly what formats/json.py says of each value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from bench.object_json import to_json
from penstock.deliver.search.documents import documents
from penstock.formats import avro
from penstock.formats.json import value_json
from penstock.formats.json_columns import Form, render
from penstock.formats.search_fields import field_name
from penstock.model.change import Change, Op
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Type
from penstock.records.json_lines import change_lines, key_text
from tests.every_type import EVERY_TYPE, every_type_table
from tests.row_records import records_of
from tests.strategies import tables_of_changes


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(tables_of_changes(columns_max=3, max_leaves=3))
def test_keys_are_the_json_of_their_values(table: tuple[TableSchema, list[Change]]) -> None:
    schema, changes = table
    made = key_text(avro.encode(schema, changes))
    assert [json.loads(key) for key in made.to_pylist()] == [_plain(to_json(one, schema)["key"]) for one in changes]


@pytest.mark.parametrize(("type_", "values"), EVERY_TYPE, ids=[type_.kind.value for type_, _ in EVERY_TYPE])
def test_keys_of_every_type_are_the_json_of_their_values(type_: Type, values: tuple[Any, ...]) -> None:
    schema = TableSchema(TableId("ks", "t"), (Column("k", type_, Role.PARTITION),))
    made = key_text(avro.encode(schema, [Change(Op.INSERT, {"k": value}) for value in values]))
    assert [json.loads(key) for key in made.to_pylist()] == [_plain({"k": value_json(type_, v)}) for v in values]


def test_lines_of_changes_are_those_that_subscribers_get() -> None:
    schema, changes = every_type_table()
    made = change_lines(avro.encode(schema, changes))
    assert [json.loads(line) for line in made.to_pylist()] == [_plain(to_json(change, schema)) for change in changes]


@pytest.mark.parametrize("form", list(Form))
def test_a_part_of_a_column_has_the_text_of_that_part(form: Form) -> None:
    schema, changes = every_type_table()
    rows = records_of(schema, changes).after
    assert rows is not None
    for column, values in zip(schema.columns, rows.flatten(), strict=True):
        whole = render(column.type, values, form)
        for start, end in ((0, 3), (2, 7), (5, len(values)), (4, 4)):
            assert render(column.type, values[start:end], form).to_pylist() == whole.to_pylist()[start:end]


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(tables_of_changes(columns_max=3, max_leaves=3))
def test_documents_of_any_rows_are_json(table: tuple[TableSchema, list[Change]]) -> None:
    schema, changes = table
    rows = records_of(schema, changes).after
    assert rows is not None
    for text, row in zip(documents(schema, rows).to_pylist(), rows, strict=True):
        given = [field_name(column.name) for column in schema.columns if row.is_valid and row[column.name].is_valid]
        assert list(json.loads(text)) == given


def _plain(content: object) -> object:
    return json.loads(json.dumps(content))
