"""Batches of changes ↔ Arrow record batches, without a Python object per change.

`to_arrow` reads the rows straight into Arrow buffers; `from_arrow` writes rows straight from them. A batch that went
both ways is the same, byte for byte. The columns are described in docs/formats/change-record.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidValue
from penstock.formats import avro
from penstock.formats._kernel import RowBuffer
from penstock.formats._rows import Input, RowsOfColumns
from penstock.formats.arrays import repeated
from penstock.formats.arrow_plan import BITS, LIST, STRUCT, VARIABLE, WIDE, Slot, plan, row_plan
from penstock.formats.change_columns import OPS, ChangeColumns
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableSchema


def arrow_schema(schema: TableSchema, columns: Iterable[str] | None = None) -> pa.Schema:
    """What the batches of a table look like."""
    return plan(schema, None if columns is None else frozenset(columns)).schema


def to_arrow(
    batch: ChangeBatch, columns: Iterable[str] | None = None, parts: frozenset[str] | None = None
) -> pa.RecordBatch:
    """The changes that count, as columns.

    With `columns`, only these columns of the table are read, and with `parts`, only these of the plan's `PARTS`.
    """
    chosen = plan(batch.schema, None if columns is None else frozenset(columns), parts)
    arrays = ChangeColumns(batch, chosen).arrays()
    places = [repeated(place, len(batch), pa.int64()) for place in (batch.file, batch.offset)]
    return pa.RecordBatch.from_arrays([*arrays, *places, pa.arange(batch.skip, batch.count)], schema=chosen.schema)


def change_columns(batch: ChangeBatch, parts: frozenset[str]) -> ChangeColumns:
    """The changes that count, with these of the plan's `PARTS`, for who asks for one column after another."""
    return ChangeColumns(batch, plan(batch.schema, None, parts))


def row_columns(batch: ChangeBatch) -> pa.RecordBatch:
    """Of each change what tells its row: `marker`, `key` and `cells`, without write times but those of counters."""
    chosen = row_plan(batch.schema)
    return pa.RecordBatch.from_arrays(ChangeColumns(batch, chosen).arrays(), schema=chosen.schema)


def from_arrow(schema: TableSchema, batch: pa.RecordBatch) -> ChangeBatch:
    """Rows of a record batch that has the columns of `arrow_schema`; positions are not needed and not kept."""
    chosen = plan(schema)
    inputs: list[Input] = [_NONE] * len(chosen.slots)
    for slot in chosen.tops:
        _bind(slot, _column(schema, batch, slot), inputs)
    out = RowBuffer(max(256, 16 * batch.num_rows))
    writer = RowsOfColumns(chosen.program, chosen.targets, chosen.probe_first, chosen.probes, inputs)
    try:
        writer.write_rows(out, 0, batch.num_rows)
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"a record batch does not fit the table: {error}", table=schema.table) from error
    rows = out.take()
    when_max, marks = avro.scan(schema, rows, batch.num_rows)
    return ChangeBatch(schema, batch.num_rows, rows, when_max, marks)


def _column(schema: TableSchema, batch: pa.RecordBatch, slot: Slot) -> pa.Array:
    """One top-level column, in exactly the type that the plan wants."""
    index = batch.schema.get_field_index(slot.name)
    if index < 0:
        raise InvalidValue("a record batch lacks a column", table=schema.table, column=slot.name)
    found = batch.column(index)
    try:
        if pa.types.is_dictionary(slot.type):
            known = isinstance(found, pa.DictionaryArray) and found.dictionary.equals(OPS)
            if known and found.type.index_type == pa.int8():
                return found.indices
            return pc.index_in(found.cast(pa.string()), value_set=OPS).cast(pa.int8())
        if found.type != slot.type:
            found = found.cast(slot.type)
        found.validate()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = "a column of a record batch has another type"
        raise InvalidValue(message, table=schema.table, column=slot.name) from error
    return found


_NONE = Input(0, 0, -2, False, b"", b"", memoryview(b"").cast("i"))


def _bind(slot: Slot, found: pa.Array, inputs: list[Input]) -> None:
    """Give the encoder the buffers of an array and of all below it."""
    buffers = found.buffers()
    valid: Any = b"" if buffers[0] is None or found.null_count == 0 else _bytes(buffers[0])
    offsets: Any = memoryview(b"").cast("i")
    data: Any = b""
    width = -2
    if slot.layout in (BITS, WIDE):
        width = 0 if slot.layout == BITS else slot.width
        data = b"" if buffers[1] is None else _bytes(buffers[1])
    elif slot.layout in (VARIABLE, LIST):
        width = -1
        if buffers[1] is not None:
            offsets = _bytes(buffers[1])[: buffers[1].size // 4 * 4].cast("i")
        if slot.layout == VARIABLE and buffers[2] is not None:
            data = _bytes(buffers[2])
    signed = not (pa.types.is_unsigned_integer(found.type))
    inputs[slot.number] = Input(len(found), found.offset, width, signed, valid, data, offsets)
    if slot.layout == STRUCT:
        for index, child in enumerate(slot.children):
            _bind(child, found.field(index), inputs)
    elif slot.layout == LIST and pa.types.is_map(found.type):
        entries = slot.children[0]
        inputs[entries.number] = Input(len(found.keys), 0, -2, False, b"", b"", memoryview(b"").cast("i"))
        _bind(entries.children[0], found.keys, inputs)
        _bind(entries.children[1], found.items, inputs)
    elif slot.layout == LIST:
        _bind(slot.children[0], found.values, inputs)


def _bytes(buffer: pa.Buffer) -> memoryview:
    return memoryview(buffer).cast("B")
