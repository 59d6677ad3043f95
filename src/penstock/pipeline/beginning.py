"""Beginning: a pipeline that starts on tables which a target has already, with what they hold as its first state.

Without it, the first update of a row would be all that the pipeline knows of that row. What a target holds has no write
times, so one is given to all of it: writes up to that time are taken to be in the target, later ones come on top.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.compare.delta_rows import DeltaRows
from penstock.deliver.delta.sink import CURRENT, DeltaSink
from penstock.deliver.lakehouse.plain_values import from_lake
from penstock.deliver.lakehouse.values import to_lake
from penstock.errors import InvalidInput, InvalidSetting, InvalidValue
from penstock.filters.functions import Functions
from penstock.fold.bootstrap import changes_of_rows, check_unused
from penstock.fold.state import StateStore
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableId, TableSchema
from penstock.pipeline.checkpoint import Checkpoint, usual_buckets
from penstock.pipeline.driver_lock import DriverLock
from penstock.pipeline.source import source
from penstock.records.records import row_type
from penstock.system.clock import SystemClock
from penstock.transforms.transforms import Transforms

if TYPE_CHECKING:
    from penstock.settings import Settings


def begin_from_delta(settings: Settings, tables: Sequence[TableId], as_of_us: int) -> dict[TableId, int]:
    """Load a pipeline's state from its Delta tables of current rows; gives the rows of each table.

    Without `tables`: all that the logs have, where there is a Delta table. Raises InvalidSetting when the pipeline has
    a state already.
    """
    chosen = _chosen(settings, tables)
    where = settings.pipeline
    opened = Checkpoint.open(where.checkpoint_directory, where.name, where.buckets, usual_buckets(where.master))
    counts: dict[TableId, int] = {}
    lock = DriverLock.take(opened.directory, SystemClock().now_us())
    try:
        opened.tidy()
        StateStore(str(opened.state), opened.identity.buckets).load(_changes(settings, chosen, as_of_us, counts))
    finally:
        lock.release()
    return counts


def rehearse_from_delta(settings: Settings, tables: Sequence[TableId], as_of_us: int) -> dict[TableId, int]:
    """What `begin_from_delta` would give, or raise, with all rows read and none loaded; nothing is made or changed."""
    chosen = _chosen(settings, tables)
    where = settings.pipeline
    found = Checkpoint.look(where.checkpoint_directory, where.name, where.buckets)
    if found is not None:
        DriverLock.check_free(found.directory)
        check_unused(StateStore(str(found.state), found.identity.buckets))
    counts: dict[TableId, int] = {}
    for _ in _changes(settings, chosen, as_of_us, counts):
        pass
    return counts


def _chosen(settings: Settings, tables: Sequence[TableId]) -> list[TableSchema]:
    newest: dict[TableId, TableSchema] = {}
    for schema in source.schemas(settings).newest:
        known = newest.get(schema.table)
        newest[schema.table] = schema if known is None or schema.order > known.order else known
    for table in tables:
        if table not in newest:
            raise InvalidInput("no log has this table, so nobody knows its columns", table=table)
    there = [newest[table] for table in tables] or [schema for schema in newest.values() if _has(settings, schema)]
    transforms = Transforms(settings.transform, Functions.load(settings.functions))
    for schema in there:
        if not transforms.for_table(schema).idle:
            message = "section transform changes this table on its way, so its target does not say what the rows were"
            raise InvalidSetting(message, table=schema.table)
    return there


def _has(settings: Settings, schema: TableSchema) -> bool:
    return (_directory(settings, schema.table) / "_delta_log").is_dir()


def _directory(settings: Settings, table: TableId) -> Path:
    return DeltaSink(settings.delta).storage(CURRENT, table).directory


def _changes(
    settings: Settings, schemas: Sequence[TableSchema], as_of_us: int, counts: dict[TableId, int]
) -> Iterator[ChangeBatch]:
    for schema in schemas:
        counts[schema.table] = 0
        for batch in DeltaRows(_directory(settings, schema.table), schema, settings.delta).batches():
            counts[schema.table] += batch.num_rows
            yield changes_of_rows(schema, _plain(schema, batch), np.full(batch.num_rows, as_of_us, np.int64))


def _plain(schema: TableSchema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with plain values. Raises InvalidValue when the table holds what its source never could."""
    wanted = row_type(schema)
    columns = []
    for column in schema.columns:
        given = batch.column(column.name)
        made = from_lake(given, column.type, wanted.field(column.name).type)
        if made is not given and not _same(to_lake(made, column.type), given):
            raise InvalidValue(
                "a column holds what its type in the source cannot", table=schema.table, column=column.name
            )
        columns.append(made)
    return pa.RecordBatch.from_arrays(columns, names=[column.name for column in schema.columns])


def _same(made: pa.Array, given: pa.Array) -> bool:
    """Whether values went there and back: what cannot be converted is null, and a text may be spelled differently."""
    # A NaN is not equal to itself, but is spelled the same.
    return bool(made.equals(given)) or repr(made.to_pylist()) == repr(given.to_pylist())
