"""Both ends of range tombstones as arrays: the kind of bound, and for each clustering value its name, text and type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.envelopes.bound_text import bound_text, bound_texts
from penstock.envelopes.values import MARSHAL
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Bound
from penstock.model.schema import Column, TableSchema
from penstock.records.records import pick

_MARSHAL = "org.apache.cassandra.db.marshal."
_VALUE = pa.struct([pa.field(name, pa.string()) for name in ("name", "value", "type")])
RANGE = pa.struct([pa.field("method", pa.string()), pa.field("values", pa.list_(_VALUE))])


def range_bounds(schema: TableSchema, changes: ChangeBatch, found: pa.StructArray) -> dict[str, pa.Array]:
    """Both ends for all changes of a batch, null where there is none. `found` is the batch's column of ranges."""
    rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    ranges = found.take(pa.array(rows, pa.int64()))
    ends = [end for name in ("start", "end") if (end := _bounds(schema, ranges.field(name), name.upper())) is not None]
    if len(ends) < 2:
        ends = _one_by_one(schema, pick(changes, pa.array(rows, pa.int64())))
    # Which of the ranges each change has.
    places = np.full(len(found), -1, np.int64)
    places[rows] = np.arange(len(rows))
    indices = pa.array(places, pa.int64(), mask=places < 0)
    return {name: end.take(indices) for name, end in zip(("_range_start", "_range_end"), ends, strict=True)}


def _bounds(schema: TableSchema, bounds: pa.StructArray, end: str) -> pa.StructArray | None:
    """One end of every range; None when a value needs an object to be made of it."""
    columns, rows = schema.clustering, len(bounds)
    if not columns:
        return None
    there = bounds.is_valid().to_numpy(zero_copy_only=False)
    counts = np.where(there, bounds.field("count").to_numpy(zero_copy_only=False), 0)
    # Row by row, and of each row the columns that its bound has.
    given = np.arange(len(columns)) < counts[:, None]
    texts = []
    for number, column in enumerate(columns):
        values = bounds.field("values").field(column.name)
        written = bound_texts(column.type, values)
        if written is None or (given[:, number] & values.is_null().to_numpy(zero_copy_only=False)).any():
            return None
        texts.append(written)
    numbers = np.broadcast_to(np.arange(len(columns)), given.shape)[given]
    chosen = numbers * rows + np.broadcast_to(np.arange(rows)[:, None], given.shape)[given]
    names, types = [column.name for column in columns], [_marshal(column) for column in columns]
    parts = [
        pa.array(names, pa.string()).take(pa.array(numbers, pa.int64())),
        pa.concat_arrays(texts).take(pa.array(chosen, pa.int64())),
        pa.array(types, pa.string()).take(pa.array(numbers, pa.int64())),
    ]
    starts = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    values = pa.ListArray.from_arrays(starts, pa.StructArray.from_arrays(parts, fields=list(_VALUE)))
    inclusive = bounds.field("inclusive").to_numpy(zero_copy_only=False)
    methods = pa.array([_method(False, end), _method(True, end)], pa.string()).take(
        pa.array(inclusive.astype(np.int64), pa.int64())
    )
    return pa.StructArray.from_arrays([methods, values], fields=list(RANGE), mask=pa.array(~there, pa.bool_()))


def _one_by_one(schema: TableSchema, changes: ChangeBatch) -> list[pa.StructArray]:
    starts: list[Any] = []
    ends: list[Any] = []
    for change in avro.decode(changes):
        starts.append(None if change.range is None else _bound(schema, change.range.start, "START"))
        ends.append(None if change.range is None else _bound(schema, change.range.end, "END"))
    return [pa.array(starts, RANGE), pa.array(ends, RANGE)]


def _bound(schema: TableSchema, bound: Bound | None, end: str) -> dict[str, Any] | None:
    if bound is None:
        return None
    pairs = zip(schema.clustering, bound.values, strict=False)
    values = [
        {"name": column.name, "value": bound_text(column.type, value), "type": _marshal(column)}
        for column, value in pairs
    ]
    return {"method": _method(bound.inclusive, end), "values": values}


def _method(inclusive: bool, end: str) -> str:
    return f"{'INCL' if inclusive else 'EXCL'}_{end}_BOUND"


def _marshal(column: Column) -> str:
    name = f"{_MARSHAL}{MARSHAL.get(column.type.kind, 'Bytes')}Type"
    return f"{_MARSHAL}ReversedType({name})" if column.descending else name
