"""Laws of the Arrow batches: columns hold all of the rows, and give them back byte for byte."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.formats import arrow, avro
from penstock.model.change import Change
from penstock.model.schema import TableSchema
from tests.strategies import tables_of_changes

_SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@_SETTINGS
@given(tables_of_changes())
def test_rows_come_back_from_columns(table: tuple[TableSchema, list[Change]]) -> None:
    schema, changes = table
    batch = avro.encode(schema, changes)
    columns = arrow.to_arrow(batch)
    columns.validate(full=True)
    assert columns.schema.equals(arrow.arrow_schema(schema))
    assert arrow.from_arrow(schema, columns) == batch


@_SETTINGS
@given(tables_of_changes(changes_max=5), st.data())
def test_slices_of_columns_are_the_rows_of_the_slice(
    table: tuple[TableSchema, list[Change]], data: st.DataObject
) -> None:
    schema, changes = table
    start = data.draw(st.integers(0, len(changes)))
    stop = data.draw(st.integers(start, len(changes)))
    batch = avro.encode(schema, changes)
    part = arrow.to_arrow(batch).slice(start, stop - start)
    assert arrow.from_arrow(schema, part) == avro.encode(schema, changes[start:stop])
    rest = arrow.to_arrow(replace(batch, skip=start))
    assert rest.equals(arrow.to_arrow(batch).slice(start))


@_SETTINGS
@given(tables_of_changes(), st.data())
def test_a_projection_has_the_same_columns(table: tuple[TableSchema, list[Change]], data: st.DataObject) -> None:
    schema, changes = table
    names = data.draw(st.sets(st.sampled_from([column.name for column in schema.columns])))
    batch = avro.encode(schema, changes)
    whole, part = arrow.to_arrow(batch), arrow.to_arrow(batch, names)
    part.validate(full=True)
    assert part.schema.equals(arrow.arrow_schema(schema, names))
    for name in ("op", "time", "origin", "marker", "deletion", "ordinal"):
        assert part.column(name).equals(whole.column(name))
    for group in {"key", "cells", "before"} & set(part.schema.names):
        struct = part.column(group)
        for field in struct.type:
            assert field.name in names
            assert struct.field(field.name).equals(whole.column(group).field(field.name))
