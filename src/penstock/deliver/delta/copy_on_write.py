"""Delta tables without deletion vectors: every file in which a row has changed is written anew, on the driver.

The cost of a batch grows with the table; it is for readers that do not know deletion vectors. New files are durable
before the commit that names them, and the pipeline's transaction identifier is in the same commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.deliver.batch_plan import BatchPlan
from penstock.deliver.delta.compaction import add_file, living_rows
from penstock.deliver.delta.delta_log import Action, remove_action
from penstock.deliver.delta.table import DeltaTable, now_ms
from penstock.deliver.delta.writer import Layout, key_columns_of
from penstock.deliver.lakehouse.data_files import by_partition, sorted_by
from penstock.deliver.lakehouse.key_hash import key_hashes
from penstock.deliver.lakehouse.key_index import Entries, sort_order
from penstock.deliver.lakehouse.spool import GONE, read_spool


def commit(table: DeltaTable, app: str, plan: BatchPlan, reports: list[dict[str, Any]], layout: Layout) -> None:
    """Merge a batch, unless the table has it, and clear its part of the spool."""
    paths = [add["path"] for report in reports for add in report["adds"]]
    truncated = any(report["truncated"] for report in reports)
    if (paths or truncated) and not table.has(app, plan):
        key = tuple(next((report["key"] for report in reports if report["key"]), ()))
        rows = read_spool([table.storage.path(path) for path in paths], table.schema, key) if paths else None
        operation = "TRUNCATE" if truncated else "MERGE"
        table.commit(app, plan, lambda: list(_merged(table, rows, key, layout, whole=truncated)), operation=operation)
    for path in paths:
        table.storage.delete(path)


def _merged(
    table: DeltaTable, rows: pa.Table | None, key: tuple[str, ...], layout: Layout, *, whole: bool
) -> Iterator[Action]:
    """The files that hold other versions of these rows, without them; and new files with the rows that are not gone.

    With `whole`, nothing else stays in the table.
    """
    stem = f"part-merged-{uuid.uuid4().hex}"
    number = 0
    if whole:
        yield from table.remove_actions(now_ms())
    elif rows is not None:
        for action in _without(table, rows, key, layout, stem):
            number += "add" in action
            yield action
    if rows is None:
        return
    there = rows.filter(pa.array(~rows.column(GONE).to_numpy())).drop_columns([GONE])
    for values, group in by_partition(there, tuple(table.partition)) if there.num_rows else ():
        part = there.take(pa.array(group))
        order = sorted_by(part, layout.clustering)
        part = (part if order is None else part.take(pa.array(order))).drop_columns(list(table.partition))
        for start in range(0, part.num_rows, layout.rows_per_file):
            piece = part.slice(start, layout.rows_per_file)
            yield add_file(table.storage, f"{stem}-{number}.parquet", piece, values, layout.codec, data_change=True)
            number += 1


def _without(table: DeltaTable, rows: pa.Table, key: tuple[str, ...], layout: Layout, stem: str) -> Iterator[Action]:
    """The files that hold other versions of these rows, written anew without them."""
    changed = _sorted_hashes([rows.column(name).combine_chunks() for name in key])
    now = now_ms()
    number = 0
    for add in list(table.log.adds.values()):
        high, low = key_hashes(key_columns_of(table.storage, add, table.schema, key))
        stays = changed.find(high, low) < 0
        if stays.all():
            continue
        yield remove_action(add, now)
        left = living_rows(table, add, stays)
        if left.num_rows:
            values = add.get("partitionValues") or {}
            yield add_file(table.storage, f"{stem}-{number}.parquet", left, values, layout.codec, data_change=True)
            number += 1


def _sorted_hashes(columns: list[pa.Array]) -> Entries:
    high, low = key_hashes(columns)
    order = sort_order(high, low)
    none = np.zeros(len(high), np.uint32)
    return Entries(high[order], low[order], none, none, ())
