"""Compaction: small files of a Delta table written anew as large ones, durable before any reader is told of them.

delta-rs can do this as well, but syncs nothing: after a power loss the table could name files of which nothing is left,
in the place of those that had all rows.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.deliver.delta import deletion_vectors
from penstock.deliver.delta.delta_log import Action, file_of, remove_action
from penstock.deliver.delta.table import DeltaTable, info_action, now_ms
from penstock.deliver.lakehouse.data_files import read_columns, statistics, stats_text, to_parquet
from penstock.deliver.lakehouse.storage import Storage


class Compacted(NamedTuple):
    """How many files went, and how many came in their place."""

    removed: int
    added: int


def compact(table: DeltaTable, file_bytes: int, codec: str) -> Compacted:
    """Bring files together until they have about `file_bytes`, which is also what is in memory at a time."""
    groups = list(_groups(table, file_bytes))
    if not groups:
        return Compacted(0, 0)
    stem = f"part-compacted-{uuid.uuid4().hex}"
    now = now_ms()
    actions: list[Action] = [info_action("OPTIMIZE")]
    added = 0
    for number, group in enumerate(groups):
        actions += [remove_action(add, now, data_change=False) for add in group]
        rows = pa.concat_tables([living_rows(table, add) for add in group])
        if rows.num_rows:
            values = group[0].get("partitionValues") or {}
            actions.append(add_file(table.storage, f"{stem}-{number}.parquet", rows, values, codec, data_change=False))
            added += 1
    if not table.log.commit(actions):
        # Another program was faster; its files may be other ones, and there is a next time.
        table.log.refresh()
        return Compacted(0, 0)
    return Compacted(sum(map(len, groups)), added)


def _groups(table: DeltaTable, file_bytes: int) -> Iterator[list[Action]]:
    """Files of one partition that become one file."""
    by_values: dict[str, list[Action]] = defaultdict(list)
    for add in table.log.adds.values():
        if add["size"] < file_bytes:
            by_values[json.dumps(add.get("partitionValues") or {}, sort_keys=True)].append(add)
    for members in by_values.values():
        group: list[Action] = []
        for add in members:
            if group and sum(each["size"] for each in group) + add["size"] > file_bytes:
                if len(group) > 1:
                    yield group
                group = []
            group.append(add)
        if len(group) > 1:
            yield group


def living_rows(table: DeltaTable, add: Action, stays: Any = None) -> pa.Table:
    """The rows of a file that count, in the table's columns but those that it is partitioned by.

    `stays`: which of the file's rows are wanted, counting those that its deletion vector has taken out.
    """
    wanted = pa.schema([field for field in table.schema if field.name not in table.partition])
    rows = read_columns(table.storage.path(file_of(add["path"])), wanted, {})
    kept = np.ones(rows.num_rows, bool) if stays is None else stays.copy()
    vector = add.get("deletionVector")
    if vector is not None:
        kept[np.asarray(deletion_vectors.load(table.storage, vector).to_array())] = False
    return rows if kept.all() else rows.filter(pa.array(kept))


def add_file(
    storage: Storage, path: str, rows: pa.Table, values: dict[str, str | None], codec: str, *, data_change: bool
) -> Action:
    """Write rows of one partition as a data file; the action that makes it part of the table."""
    content, footer = to_parquet(rows, codec)
    storage.write(path, content)
    return {
        "add": {
            "path": path,
            "partitionValues": values,
            "size": content.size,
            "modificationTime": now_ms(),
            "dataChange": data_change,
            "stats": stats_text(statistics(rows, footer)),
        }
    }
