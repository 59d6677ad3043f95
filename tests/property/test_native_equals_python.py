"""The compiled kernels and the Python ones are the same: same bytes, same columns, same refusals."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptLog
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change
from penstock.model.schema import TableSchema
from tests.every_type import every_type_table
from tests.pure_python import Formats, as_installed, pure_python
from tests.strategies import tables_of_changes

_SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def _rows(formats: Formats, schema: TableSchema, changes: list[Change]) -> ChangeBatch:
    # A fresh schema for each side, because programs are kept with the schema.
    batch: ChangeBatch = formats.avro.encode(replace(schema), changes)
    return batch


@_SETTINGS
@given(tables_of_changes())
def test_both_write_the_same_bytes_and_columns(table: tuple[TableSchema, list[Change]]) -> None:
    schema, changes = table
    native, pure = as_installed(), pure_python()
    ours, theirs = _rows(native, schema, changes), _rows(pure, schema, changes)
    assert ours == theirs
    assert native.avro.decode(ours) == pure.avro.decode(theirs) == changes
    columns, pure_columns = native.arrow.to_arrow(ours), pure.arrow.to_arrow(theirs)
    assert columns.equals(pure_columns)
    assert native.arrow.from_arrow(ours.schema, columns) == pure.arrow.from_arrow(theirs.schema, pure_columns) == ours
    assert native.avro.row_offsets(ours.schema, ours.rows, ours.count) == pure.avro.row_offsets(
        theirs.schema, theirs.rows, theirs.count
    )
    assert native.avro.scan(ours.schema, ours.rows, ours.count) == pure.avro.scan(
        theirs.schema, theirs.rows, theirs.count
    )
    for spelling in native.json_rows.Spelling:
        lines = native.json_rows.lines(ours, spelling, ordinal=3)
        assert lines == pure.json_rows.lines(theirs, pure.json_rows.Spelling(spelling), ordinal=3)


def _outcome(work: Any) -> object:
    try:
        return work()
    except CorruptLog as error:
        return str(error)


@_SETTINGS
@given(st.integers(0, 1 << 32))
def test_both_refuse_the_same_damage_in_the_same_words(seed: int) -> None:
    chance = random.Random(seed)
    schema, changes = every_type_table()
    native, pure = as_installed(), pure_python()
    data = bytearray(_rows(native, schema, changes[:1]).rows)
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 127, 128, 255, chance.randrange(256)))
    damaged = bytes(data[: chance.randrange(len(data))] if chance.random() < 0.2 else data)
    ours, theirs = (ChangeBatch(replace(schema), 1, damaged) for _ in range(2))
    assert _outcome(lambda: repr(native.avro.decode(ours))) == _outcome(lambda: repr(pure.avro.decode(theirs)))
    columns = _outcome(lambda: native.arrow.to_arrow(ours).serialize().to_pybytes())
    assert columns == _outcome(lambda: pure.arrow.to_arrow(theirs).serialize().to_pybytes())
    lines = _outcome(lambda: bytes(native.json_rows.lines(ours, native.json_rows.Spelling.ASCII)))
    assert lines == _outcome(lambda: bytes(pure.json_rows.lines(theirs, pure.json_rows.Spelling.ASCII)))
