"""Adapting rows of one version of a table's schema to another, column by column, by name.

A column that was dropped and added again in between is a new column: what was written before does not come back. So
rows are taken through every version that lies between. Columns keep their cells when the type is the same or the values
can be widened; cells of a type that cannot become the other are left out, and that is logged. Key columns can only be
renamed, and are known by their place. So are the fields of user types, behind which others can be added.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import structlog

from penstock.errors import InvalidValue
from penstock.fold.entries import binary_array, joined_bytes
from penstock.formats import avro
from penstock.formats.arrow import arrow_schema, from_arrow, to_arrow
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableSchema
from penstock.model.types import Kind, Type

_log = structlog.get_logger()


# What the values of a kind can become without loss.
_WIDER: dict[Kind, frozenset[Kind]] = {
    Kind.INT8: frozenset((Kind.INT16, Kind.INT32, Kind.INT64)),
    Kind.INT16: frozenset((Kind.INT32, Kind.INT64)),
    Kind.INT32: frozenset((Kind.INT64,)),
    Kind.UINT8: frozenset((Kind.UINT16, Kind.UINT32, Kind.UINT64)),
    Kind.UINT16: frozenset((Kind.UINT32, Kind.UINT64)),
    Kind.UINT32: frozenset((Kind.UINT64,)),
    Kind.FLOAT32: frozenset((Kind.FLOAT64,)),
    Kind.ASCII: frozenset((Kind.TEXT,)),
}


def surviving(chain: Sequence[TableSchema], old: TableSchema, new: TableSchema) -> frozenset[str]:
    """The columns that are in both versions and in every version between them, with types that fit."""
    names = set(old.by_name) & set(new.by_name)
    prints = [schema.fingerprint for schema in chain]
    if old.fingerprint in prints and new.fingerprint in prints:
        start, stop = prints.index(old.fingerprint), prints.index(new.fingerprint)
        # Where the time of a drop is known, it says of each cell whether it is gone.
        timed = {name for name in names if new.by_name[name].dropped_us is not None}
        for schema in chain[start:stop]:
            names &= set(schema.by_name) | timed
    return frozenset(name for name in names if _fits(old, new, name))


def _fits(old: TableSchema, new: TableSchema, name: str) -> bool:
    before, now = old.by_name[name].type, new.by_name[name].type
    if becomes(before, now):
        return True
    _note_left_out(str(new.table), name, before.kind, now.kind)
    return False


def becomes(old: Type, new: Type) -> bool:
    """Whether every value of one type is one of the other; user types may have got more fields, and other names."""
    if old == new:
        return True
    if old.multi_cell != new.multi_cell:
        return False
    if old.kind is not new.kind:
        return new.kind in _WIDER.get(old.kind, ())
    if old.kind is Kind.USER:
        if len(new.elements) < len(old.elements):
            return False
    elif not old.elements or len(old.elements) != len(new.elements) or old.length != new.length:
        return False
    return all(becomes(before, now) for before, now in zip(old.elements, new.elements, strict=False))


def adapt(batch: ChangeBatch, schema: TableSchema, keep: frozenset[str]) -> ChangeBatch:
    """The changes as rows of another version; `keep` names the columns that both have."""
    found = to_arrow(batch)
    wanted = arrow_schema(schema)
    arrays: list[Any] = []
    for field in wanted:
        index = found.schema.get_field_index(field.name)
        column = found.column(index) if index >= 0 else None
        if column is None:
            column = pa.nulls(len(batch), field.type)
        elif field.name in ("key", "range"):
            column = _by_place(column, field.type)
        elif field.name in ("cells", "before"):
            column = _by_name(column, field.type, keep)
        arrays.append(column)
    if wanted.get_field_index("cells") >= 0 and found.schema.get_field_index("cells") < 0:
        arrays[wanted.get_field_index("cells")] = absent(wanted.field("cells").type, len(batch))
    return from_arrow(schema, pa.RecordBatch.from_arrays(arrays, schema=wanted))


def _by_name(found: pa.StructArray, type_: pa.StructType, keep: frozenset[str]) -> pa.StructArray:
    arrays = []
    for field in type_:
        column = None
        if field.name in keep and found.type.get_field_index(field.name) >= 0:
            column = _cast(found.field(field.name), field.type)
        arrays.append(absent(field.type, len(found)) if column is None else column)
    return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=_nulls(found))


def _by_place(found: pa.Array, type_: pa.DataType) -> pa.Array:
    """The values as those of another type, whose structs may have other names, and more fields behind the others."""
    if found.type == type_:
        return found
    if found.type.id != type_.id or not pa.types.is_nested(type_):
        return found.cast(type_)
    if found.offset:
        # What is made of parts must begin where its buffers do.
        found = found.take(pa.array(np.arange(len(found)), pa.int64()))
    if pa.types.is_struct(type_):
        arrays = [
            _by_place(found.field(place), field.type)
            if place < found.type.num_fields
            else pa.nulls(len(found), field.type)
            for place, field in enumerate(type_)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=_nulls(found))
    if pa.types.is_map(type_):
        keys, items = _by_place(found.keys, type_.key_type), _by_place(found.items, type_.item_type)
        return pa.MapArray.from_arrays(found.offsets, keys, items, type=type_, mask=_nulls(found))
    if pa.types.is_list(type_):
        items = _by_place(found.values, type_.value_type)
        return pa.ListArray.from_arrays(found.offsets, items, type=type_, mask=_nulls(found))
    return found.cast(type_)


def _nulls(found: pa.Array) -> pa.BooleanArray | None:
    return found.is_null() if found.null_count else None


@lru_cache(maxsize=4096)
def _note_left_out(table: str, column: str, old: str, new: str) -> None:
    """Say once that what was written under one type of a column cannot be read under the other."""
    _log.warning("older cells of a column left out", table=table, column=column, old_type=old, new_type=new)


def _cast(found: pa.Array, type_: pa.DataType) -> pa.Array:
    if found.type == type_:
        return found
    try:
        return _by_place(found, type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidValue("rows cannot be read under another version of the table's schema") from error


def absent(type_: pa.DataType, count: int) -> Any:
    """What stands for no value: zero in the state of a cell, null elsewhere."""
    if not pa.types.is_struct(type_):
        return pa.nulls(count, type_)
    if type_.get_field_index("state") >= 0:
        arrays = [
            pa.array(np.zeros(count, np.int8)) if field.name == "state" else pa.nulls(count, field.type)
            for field in type_
        ]
    else:
        nested = all(pa.types.is_struct(field.type) and not field.nullable for field in type_)
        if not nested:
            return pa.nulls(count, type_)
        arrays = [absent(field.type, count) for field in type_]
    return pa.StructArray.from_arrays(arrays, fields=list(type_))


def adapt_rows(
    rows: pa.LargeBinaryArray, counts: Any, old: TableSchema, new: TableSchema, keep: frozenset[str]
) -> pa.LargeBinaryArray:
    """Entries of some encoded changes each, as rows of another version."""
    data, _ = joined_bytes(rows)
    total = int(np.sum(counts))
    made = adapt(ChangeBatch(old, total, data), new, keep)
    starts = np.frombuffer(avro.row_offsets(new, made.rows, total), np.int64)
    bounds = np.concatenate(([0], np.cumsum(counts.astype(np.int64))))
    return binary_array(starts[bounds], bytes(made.rows))
