"""Bootstrap: a pipeline's first state, from the changes of a snapshot or from the rows that a target already has.

Without it a row's first update would be all that AFTER and ALL know of it. Loading makes no records, and the state of
the first batch of the stream comes on top of it; changes that are in both are joined as always.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidSetting, InvalidValue
from penstock.formats.arrow import arrow_schema, from_arrow
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op
from penstock.model.schema import TableSchema
from penstock.pipeline.fold import keys
from penstock.pipeline.fold.bucket import BucketState
from penstock.pipeline.fold.folder import Folder
from penstock.pipeline.records import row_type
from penstock.pipeline.runs import Run
from penstock.settings import MergeSettings, RecordType

if TYPE_CHECKING:
    from penstock.pipeline.fold.state import StateStore

_BATCH = -1
# Changes that are folded together.
_CHANGES = 1 << 18


def load(store: StateStore, batches: Iterable[ChangeBatch]) -> None:
    """Fold changes into the state of a pipeline that has not begun, and commit it."""
    if store.committed >= 0 or store.size()[0]:
        raise InvalidSetting("the pipeline has a state already", directory=store.directory)
    states = [BucketState.open(store.directory, bucket, _BATCH) for bucket in range(store.buckets)]
    folder = Folder(MergeSettings(), RecordType.AFTER, every=False)
    waiting: list[list[Run]] = [[] for _ in states]
    count = 0
    for batch in batches:
        for bucket, size, rows in keys.split(batch, store.buckets):
            waiting[bucket].append(Run(batch.schema, "", bucket, size, rows))
        count += len(batch)
        if count >= _CHANGES:
            _fold(folder, states, waiting)
            count = 0
    _fold(folder, states, waiting)
    store.commit(_BATCH, {state.bucket: state.finish().token for state in states})


def _fold(folder: Folder, states: list[BucketState], waiting: list[list[Run]]) -> None:
    for state, runs in zip(states, waiting, strict=True):
        for _ in folder.fold(runs, state, now_s=0):
            pass
        runs.clear()


def changes_of_rows(schema: TableSchema, rows: pa.RecordBatch, times: Any) -> ChangeBatch:
    """Rows of a target as changes: every value that is there was set at the row's time (microseconds, one per row).

    The record batch has the table's columns by name, in types that can become those of `row_type(schema)`.
    """
    count = rows.num_rows
    wanted = row_type(schema)
    values: dict[str, pa.Array] = {}
    for field in wanted:
        index = rows.schema.get_field_index(field.name)
        if index < 0:
            raise InvalidValue("the rows lack a column", table=schema.table, column=field.name)
        try:
            values[field.name] = rows.column(index).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            message = "a column of the rows has another type"
            raise InvalidValue(message, table=schema.table, column=field.name) from error
    stamps = pa.array(np.asarray(times, np.int64), pa.int64())
    arrays = [_column(field, values, stamps, count) for field in arrow_schema(schema)]
    return from_arrow(schema, pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema)))


def _column(field: pa.Field, values: dict[str, pa.Array], stamps: pa.Array, count: int) -> pa.Array:
    type_ = field.type
    if field.name == "op":
        ops = pa.array([op.value for op in Op], pa.string())
        numbers = pa.array(np.full(count, list(Op).index(Op.SNAPSHOT), np.int8))
        return pa.DictionaryArray.from_arrays(numbers, ops)
    if field.name == "time":
        return stamps
    if field.name == "marker":
        # A row of a target is there because something of it is alive: the marker keeps it so when all else is null.
        return pa.StructArray.from_arrays(
            [stamps, *(pa.nulls(count, f.type) for f in list(type_)[1:])], fields=list(type_)
        )
    if field.name == "key":
        return pa.StructArray.from_arrays([values[f.name] for f in type_], fields=list(type_))
    if field.name == "cells":
        return pa.StructArray.from_arrays([_cell(f.type, values[f.name], count) for f in type_], fields=list(type_))
    return (
        pa.array(np.zeros(count, np.int64))
        if pa.types.is_int64(type_) and not field.nullable
        else pa.nulls(count, type_)
    )


def _cell(type_: pa.StructType, value: pa.Array, count: int) -> pa.StructArray:
    present = value.is_valid().to_numpy(zero_copy_only=False).astype(np.int8)
    parts = {"state": pa.array(present), "value": value}
    arrays = [parts.get(field.name, pa.nulls(count, field.type)) for field in type_]
    return pa.StructArray.from_arrays(arrays, fields=list(type_))
