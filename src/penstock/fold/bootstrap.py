"""Bootstrap: a pipeline's first state, from the changes of a snapshot or from the rows that a target already has.

Without it a row's first update would be all that AFTER and ALL know of it. Loading makes no records, and the state of
the first batch of the stream comes on top of it; changes that are in both are joined as always.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidSetting, InvalidValue
from penstock.fold.bucket import BucketState
from penstock.fold.folder import Folder
from penstock.fold.manifest import BucketRuns
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op
from penstock.model.schema import TableSchema
from penstock.records import keys
from penstock.records.records import row_type
from penstock.records.row_changes import row_changes
from penstock.records.runs import Run
from penstock.settings import MergeSettings, RecordType

if TYPE_CHECKING:
    from penstock.fold.state import StateStore

_BATCH = -1
# Changes that are folded together.
_CHANGES = 1 << 18


def load(store: StateStore, batches: Iterable[ChangeBatch]) -> None:
    """Fold changes into the state of a pipeline that has not begun, and commit it."""
    check_unused(store)
    states = [BucketState.open(store.directory, bucket, _BATCH) for bucket in range(store.buckets)]
    folder = Folder(MergeSettings(), RecordType.AFTER, every=False)
    waiting: list[list[Run]] = [[] for _ in states]
    count = 0
    for batch in batches:
        for part in keys.split(batch, store.buckets):
            waiting[part.bucket].append(Run(batch.schema, "", part.bucket, part.count, part.rows))
        count += len(batch)
        if count >= _CHANGES:
            states = [_written(folder, state, runs)[1] for state, runs in zip(states, waiting, strict=True)]
            waiting = [[] for _ in states]
            count = 0
    done = [_written(folder, state, runs)[0] for state, runs in zip(states, waiting, strict=True)]
    store.commit(_BATCH, dict(enumerate(done)))


def check_unused(store: StateStore) -> None:
    """Raise InvalidSetting when the pipeline has begun."""
    if store.committed >= 0 or store.size()[0]:
        raise InvalidSetting("the pipeline has a state already", directory=store.directory)


def _written(folder: Folder, state: BucketState, runs: list[Run]) -> tuple[bytes, BucketState]:
    """Fold some changes and write what came of it: the token of a bucket's state, and that state, with empty memory."""
    for _ in folder.fold(runs, state, now_s=0):
        pass
    token = state.finish().token
    known = BucketRuns.from_json(json.loads(token))
    return token, BucketState(state.directory, state.bucket, _BATCH, known.runs)


def changes_of_rows(schema: TableSchema, rows: pa.RecordBatch, times: Any) -> ChangeBatch:
    """Rows of a target as changes: every value that is there was set at the row's time (microseconds, one per row).

    The record batch has the table's columns by name, in types that can become those of `row_type(schema)`.
    """
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
    plain = pa.StructArray.from_arrays(list(values.values()), fields=list(wanted))
    # A row is there because something of it is alive: the marker keeps it so when all else is null. A partition that
    # has nothing but static cells is a row without clustering values, and has no marker.
    whole = pa.repeat(pa.scalar(True), rows.num_rows)
    for column in schema.clustering:
        whole = pc.and_(whole, values[column.name].is_valid())
    stamps = pa.array(np.asarray(times, np.int64), pa.int64())
    return row_changes(schema, Op.SNAPSHOT, plain, times=stamps, marked=whole)
