"""Batches of changes ↔ Arrow record batches, without a Python object per change.

`to_arrow` reads the rows straight into Arrow buffers; `from_arrow` writes rows straight from them. A batch that went
both ways is the same, byte for byte. The columns are described in docs/formats/change-record.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CorruptLog, InvalidValue
from penstock.formats import avro
from penstock.formats._columns import Budget, Column, ColumnReader
from penstock.formats._kernel import RowBuffer, RowReader
from penstock.formats._rows import Input, RowsOfColumns
from penstock.formats.arrays import repeated, texts
from penstock.formats.arrow_plan import BITS, LIST, STRUCT, VARIABLE, WIDE, Plan, Slot, plan, row_plan
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op
from penstock.model.schema import TableSchema

_OPS = texts([op.value for op in Op])
# Beyond the columns of fixed width, a batch may take this much and four times its rows.
_BUDGET_BYTES = 64 << 20
_ROWS_BYTES_MAX = (1 << 31) - 1


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
    arrays = _arrays(batch, chosen)
    places = [repeated(place, len(batch), pa.int64()) for place in (batch.file, batch.offset)]
    return pa.RecordBatch.from_arrays([*arrays, *places, pa.arange(batch.skip, batch.count)], schema=chosen.schema)


def row_columns(batch: ChangeBatch) -> pa.RecordBatch:
    """Of each change what tells the values of its row: `marker`, `key` and `cells`, without write times."""
    chosen = row_plan(batch.schema)
    return pa.RecordBatch.from_arrays(_arrays(batch, chosen), schema=chosen.schema)


def _arrays(batch: ChangeBatch, chosen: Plan) -> list[pa.Array]:
    length = len(batch)
    if batch.count * chosen.program.least_bytes() > len(batch.rows) or len(batch.rows) > _ROWS_BYTES_MAX or length < 0:
        raise CorruptLog(f"rows are damaged: {len(batch.rows)} bytes cannot hold {batch.count} changes")
    budget = Budget(_BUDGET_BYTES + 4 * len(batch.rows) + length * chosen.row_bytes)
    made = [
        Column(slot.layout, slot.width, slot.nullable, length if slot.per_row else 0, budget) for slot in chosen.slots
    ]
    reader = RowReader(batch.rows)
    chosen.program.skip_rows(reader, batch.skip)
    ColumnReader(chosen.program, chosen.targets, made).read_rows(reader, length)
    if reader.position != reader.end:
        raise CorruptLog("rows are damaged: bytes are left after the last change", byte=reader.position)
    finish = _Finish(made, budget)
    return [finish.array(slot, length) for slot in chosen.tops]


class _Finish:
    """Makes Arrow arrays of the finished columns; what was never written shares one buffer of zeros."""

    def __init__(self, columns: list[Column], budget: Budget) -> None:
        self._columns = columns
        self._budget = budget
        self._zeros = pa.py_buffer(b"")

    def _zero(self, size: int) -> pa.Buffer:
        if self._zeros.size < size:
            self._budget.spend(size)
            self._zeros = pa.py_buffer(bytes(size))
        return self._zeros.slice(0, size)

    def array(self, slot: Slot, length: int) -> pa.Array:
        column = self._columns[slot.number]
        written = column.finish(length)
        valid = None
        if slot.nullable:
            size = (length + 7) // 8
            valid = _buffer(column.valid_store, size) if written else self._zero(size)
        type_ = pa.int8() if pa.types.is_dictionary(slot.type) else slot.type
        buffers, children = [valid, *self._buffers(slot, column, written, length)], []
        if slot.layout == STRUCT:
            children = [self.array(child, length) for child in slot.children]
        elif slot.layout == LIST:
            children = [self.array(slot.children[0], column.used)]
        made = pa.Array.from_buffers(type_, length, buffers, children=children or None)
        if written and pa.types.is_decimal(slot.type):
            _check_digits(made)
        return pa.DictionaryArray.from_arrays(made, _OPS) if pa.types.is_dictionary(slot.type) else made

    def _buffers(self, slot: Slot, column: Column, written: bool, length: int) -> list[pa.Buffer]:
        if slot.layout == STRUCT:
            return []
        if slot.layout in (BITS, WIDE):
            size = (length + 7) // 8 if slot.layout == BITS else length * slot.width
            return [_buffer(column.data_store, size) if written else self._zero(size)]
        size = 4 * (length + 1)
        offsets = _buffer(column.offset_store, size) if written else self._zero(size)
        return [offsets, _buffer(column.data_store, column.used)] if slot.layout == VARIABLE else [offsets]


def _check_digits(decimals: pa.Array) -> None:
    """Arrow trusts that decimals keep to their precision; rows from elsewhere may not."""
    limits = pc.min_max(decimals)
    for limit in (limits["min"].as_py(), limits["max"].as_py()):
        if limit is not None and limit.adjusted() + 1 + decimals.type.scale > decimals.type.precision:
            raise CorruptLog("rows are damaged: a decimal has too many digits")


def _buffer(store: bytearray, size: int) -> pa.Buffer:
    return pa.py_buffer(memoryview(store)[:size])


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
            known = isinstance(found, pa.DictionaryArray) and found.dictionary.equals(_OPS)
            if known and found.type.index_type == pa.int8():
                return found.indices
            return pc.index_in(found.cast(pa.string()), value_set=_OPS).cast(pa.int8())
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
