"""Rows as changes: what a change would say that writes a whole row, or only names one.

Rows are structs of plain values (`records.row_type`, or some of its columns); the changes are made column by column.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats.arrow import arrow_schema, from_arrow
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op
from penstock.model.schema import TableSchema

_ABSENT, _SET = pa.scalar(0, pa.int8()), pa.scalar(1, pa.int8())


def row_changes(
    schema: TableSchema,
    op: Op,
    rows: pa.StructArray,
    *,
    times: pa.Int64Array | None = None,
    marked: pa.BooleanArray | None = None,
    nulls: bool = False,
) -> ChangeBatch:
    """One change per row, which sets the cells that have a value; with `nulls` those that have none too.

    It says nothing of columns that the rows lack. Where `marked` is true it writes the row's marker, at its time.
    """
    count = len(rows)
    columns = []
    for field in arrow_schema(schema):
        type_ = field.type
        if field.name == "op":
            number = pa.repeat(pa.scalar(list(Op).index(op), pa.int8()), count)
            columns.append(pa.DictionaryArray.from_arrays(number, pa.array([each.value for each in Op], pa.string())))
        elif field.name == "time" and times is not None:
            columns.append(times)
        elif field.name == "marker" and marked is not None:
            columns.append(stamps(type_, marked, times))
        elif field.name == "key":
            columns.append(pa.StructArray.from_arrays([rows.field(part.name) for part in type_], fields=list(type_)))
        elif field.name == "cells":
            columns.append(cells(type_, rows, nulls=nulls))
        elif field.nullable:
            columns.append(pa.nulls(count, type_))
        else:
            columns.append(pa.repeat(pa.scalar(0, type_), count))
    return from_arrow(schema, pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema)))


def cells(type_: pa.StructType, rows: pa.StructArray, *, nulls: bool = False) -> pa.StructArray:
    """The cells of whole rows, as changes have them."""
    made = []
    for part in type_:
        index = rows.type.get_field_index(part.name)
        wanted = part.type.field("value").type
        # Where there is no row, something may still lie under it.
        value = pa.nulls(len(rows), wanted) if index < 0 else pc.struct_field(rows, [index])
        value = value if value.type == wanted else value.cast(wanted)
        there = pa.repeat(pa.scalar(True), len(rows)) if nulls and index >= 0 else value.is_valid()
        parts = {"state": pc.if_else(there, _SET, _ABSENT), "value": value}
        arrays = [parts[f.name] if f.name in parts else pa.nulls(len(rows), f.type) for f in part.type]
        made.append(pa.StructArray.from_arrays(arrays, fields=list(part.type)))
    return pa.StructArray.from_arrays(made, fields=list(type_))


def stamps(type_: pa.StructType, where: pa.BooleanArray, times: pa.Int64Array) -> pa.StructArray:
    """Markers or deletions with these times, where there are any."""
    rest = [pa.nulls(len(times), type_.field(at).type) for at in range(1, type_.num_fields)]
    return pa.StructArray.from_arrays([times, *rest], fields=list(type_), mask=pc.invert(where))
