"""Laws of the lines of JSON that are made of rows: byte for byte what `json.dumps` makes of each change's object."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.object_json import to_json
from penstock.errors import CorruptLog
from penstock.formats import avro
from penstock.formats.json_change import from_json
from penstock.formats.json_rows import Spelling, lines
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change
from penstock.model.position import Position
from penstock.model.schema import TableSchema
from tests.every_type import every_type_table
from tests.strategies import tables_of_changes

_SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def _by_object(batch: ChangeBatch, spelling: Spelling, ordinal: int | None) -> bytes:
    """The judge: an object per change, and the standard library's text of it."""
    schema, out = batch.schema, []
    for index, change in enumerate(avro.decode(batch)):
        head = {}
        if ordinal is not None:
            position = Position(batch.file, batch.offset, ordinal + index)
            head = {"position": str(position), "table": str(schema.table), "schema_version": schema.version}
        content = {**head, **to_json(change, schema)}
        out.append(json.dumps(content, ensure_ascii=spelling is Spelling.ASCII, separators=(",", ":")) + "\n")
    return "".join(out).encode()


@_SETTINGS
@given(tables_of_changes(), st.sampled_from(Spelling), st.none() | st.integers(0, 1 << 40), st.integers(0, 2))
def test_lines_are_what_the_objects_give(
    table: tuple[TableSchema, list[Change]], spelling: Spelling, ordinal: int | None, skip: int
) -> None:
    schema, changes = table
    whole = avro.encode(schema, changes)
    batch = dataclasses.replace(whole, file=7, offset=1 << 33, skip=min(skip, whole.count))
    assert bytes(lines(batch, spelling, ordinal=ordinal)) == _by_object(batch, spelling, ordinal)


@_SETTINGS
@given(tables_of_changes(), st.sampled_from(Spelling))
def test_changes_come_back_from_their_lines(table: tuple[TableSchema, list[Change]], spelling: Spelling) -> None:
    schema, changes = table
    text = bytes(lines(avro.encode(schema, changes), spelling)).decode()
    found = [from_json(json.loads(line), schema) for line in text.split("\n")[:-1]]
    assert found == changes


@pytest.mark.parametrize("spelling", list(Spelling))
def test_lines_of_every_type_are_what_the_objects_give(spelling: Spelling) -> None:
    schema, changes = every_type_table()
    batch = avro.encode(schema, changes)
    assert bytes(lines(batch, spelling, ordinal=5)) == _by_object(batch, spelling, 5)


@_SETTINGS
@given(tables_of_changes(columns_max=3, max_leaves=3), st.data())
def test_damaged_rows_are_refused_or_are_other_changes(
    table: tuple[TableSchema, list[Change]], data: st.DataObject
) -> None:
    """What the decoder of objects refuses is refused here too, and what it takes has the same text."""
    schema, changes = table
    rows = bytearray(avro.encode(schema, changes).rows)
    for _ in range(data.draw(st.integers(0, 3)) if rows else 0):
        rows[data.draw(st.integers(0, len(rows) - 1))] = data.draw(st.integers(0, 255))
    batch = ChangeBatch(schema, len(changes), bytes(rows))
    try:
        expected: bytes | None = _by_object(batch, Spelling.ASCII, 0)
    except (CorruptLog, IndexError):
        # The decoder takes any number for the removed field of a user type.
        expected = None
    refused = ""
    try:
        made: bytes | None = bytes(lines(batch, Spelling.ASCII, ordinal=0))
    except CorruptLog as error:
        made, refused = None, str(error)
    # A negative one is a field from the end to Python, and none to the kernel.
    assert made == expected or "no such field" in refused
