"""Laws of the Avro rows: nothing of a change is lost, whatever the table looks like."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.formats import avro
from penstock.model.change import Change
from penstock.model.schema import TableSchema
from tests.strategies import tables_of_changes

_SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@_SETTINGS
@given(tables_of_changes())
def test_changes_come_back_as_they_were(table: tuple[TableSchema, list[Change]]) -> None:
    schema, changes = table
    batch = avro.encode(schema, changes)
    assert avro.decode(batch) == changes
    assert batch.count == len(changes)


@_SETTINGS
@given(tables_of_changes())
def test_scan_finds_what_encode_noted(table: tuple[TableSchema, list[Change]]) -> None:
    schema, changes = table
    batch = avro.encode(schema, changes)
    assert avro.scan(schema, batch.rows, batch.count) == (batch.when_max, batch.transactions)


@_SETTINGS
@given(tables_of_changes(), st.data())
def test_selected_rows_are_the_rows_of_the_selected_changes(
    table: tuple[TableSchema, list[Change]], data: st.DataObject
) -> None:
    schema, changes = table
    keep = data.draw(st.lists(st.booleans(), min_size=len(changes), max_size=len(changes)))
    chosen = avro.select(avro.encode(schema, changes), keep)
    kept = [change for change, wanted in zip(changes, keep, strict=True) if wanted]
    assert chosen == (avro.encode(schema, kept) if kept else None)
