"""Lines of JSON that are made a column at a time say exactly what formats/json.py says of each change."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.deliver.search.documents import documents
from penstock.formats import avro
from penstock.formats.json import to_json
from penstock.formats.json_columns import Form, render
from penstock.formats.search_fields import field_name
from penstock.model.change import Change
from penstock.model.schema import TableSchema
from penstock.records.json_lines import change_lines
from tests.every_type import every_type_table
from tests.row_records import records_of
from tests.strategies import tables_of_changes


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(tables_of_changes(columns_max=3, max_leaves=3))
def test_lines_of_changes_are_their_json(table: tuple[TableSchema, list[Change]]) -> None:
    schema, changes = table
    made = change_lines(avro.encode(schema, changes))
    assert [json.loads(line) for line in made.to_pylist()] == [_plain(to_json(change, schema)) for change in changes]


def test_lines_of_every_type_are_their_json() -> None:
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
