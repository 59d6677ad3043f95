"""Adapting rows of one version of a table's schema to another, column by column, by name.

A column that was dropped and added again in between is a new column: what was written before does not come back. So
rows are taken through every version that lies between. Columns keep their cells when the type is the same or the values
can be widened; cells of a type that cannot become the other are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.formats import avro
from penstock.formats.arrow import arrow_schema, from_arrow, to_arrow
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableSchema
from penstock.pipeline.fold.entries import binary_array, joined_bytes


def surviving(chain: Sequence[TableSchema], old: TableSchema, new: TableSchema) -> frozenset[str]:
    """The columns that are in both versions and in every version between them."""
    names = set(old.by_name) & set(new.by_name)
    prints = [schema.fingerprint for schema in chain]
    if old.fingerprint in prints and new.fingerprint in prints:
        start, stop = prints.index(old.fingerprint), prints.index(new.fingerprint)
        for schema in chain[start:stop]:
            names &= set(schema.by_name)
    return frozenset(names)


def adapt(batch: ChangeBatch, schema: TableSchema, keep: frozenset[str]) -> ChangeBatch:
    """The changes as rows of another version; `keep` names the columns that both have."""
    found = to_arrow(batch)
    wanted = arrow_schema(schema)
    arrays: list[Any] = []
    for field in wanted:
        index = found.schema.get_field_index(field.name)
        column = found.column(index) if index >= 0 else None
        if field.name in ("key", "cells"):
            column = _group(column, field.type, len(batch), keep)
        elif column is None or field.name in ("range", "before"):
            column = _conform(column, field.type, len(batch), keep)
        arrays.append(column)
    return from_arrow(schema, pa.RecordBatch.from_arrays(arrays, schema=wanted))


def _group(found: pa.StructArray | None, type_: pa.StructType, count: int, keep: frozenset[str]) -> pa.StructArray:
    arrays = []
    for field in type_:
        column = None
        if found is not None and field.name in keep and found.type.get_field_index(field.name) >= 0:
            column = found.field(field.name)
        arrays.append(_cast(column, field.type, count))
    return pa.StructArray.from_arrays(arrays, fields=list(type_))


def _conform(found: Any, type_: pa.DataType, count: int, keep: frozenset[str]) -> Any:
    """A nullable struct whose parts follow the columns: it is kept where it fits, and dropped where it does not."""
    if found is None:
        return pa.nulls(count, type_)
    if found.type == type_:
        return found
    if found.type.get_field_index("start") < 0 and pa.types.is_struct(type_):
        mask = pa.array(~found.is_valid().to_numpy(zero_copy_only=False))
        made = _group(found, type_, count, keep)
        return pa.StructArray.from_arrays(
            [made.field(i) for i in range(type_.num_fields)], fields=list(type_), mask=mask
        )
    return _cast(found, type_, count)


def _cast(found: Any, type_: pa.DataType, count: int) -> Any:
    if found is not None:
        if found.type == type_:
            return found
        try:
            return found.cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            pass
    return _absent(type_, count)


def _absent(type_: pa.DataType, count: int) -> Any:
    """What stands for no value: zero in the state of a cell, null elsewhere."""
    if pa.types.is_struct(type_) and type_.get_field_index("state") >= 0:
        arrays = [
            pa.array(np.zeros(count, np.int8)) if field.name == "state" else pa.nulls(count, field.type)
            for field in type_
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(type_))
    return pa.nulls(count, type_)


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
