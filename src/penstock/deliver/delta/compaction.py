"""Compaction: small files of a Delta table written anew as large ones, durable before any reader is told of them.

delta-rs can do this as well, but syncs nothing: after a power loss the table could name files of which nothing is left,
in the place of those that had all rows.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import structlog

from penstock.deliver.delta import deletion_vectors, delta_log, manifest_file
from penstock.deliver.delta.delta_log import Action, DeltaLog, file_of, remove_action
from penstock.deliver.delta.table import DeltaTable, info_action, now_ms
from penstock.deliver.lakehouse.data_files import read_columns, statistics, stats_text, to_parquet
from penstock.deliver.lakehouse.storage import Storage
from penstock.settings.sinks import DeltaSettings


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


# Optimising and vacuuming Delta tables, every so many batches.
#
# Deleting what a table no longer uses is done here and not by delta-rs: its full vacuum does not know that deletion
# vectors are in use, and its light one leaves files behind that never were committed.

log = structlog.get_logger()

_HOUR_MS = 3_600_000
# Data files of tasks, the spool, and deletion vectors.
_OURS = re.compile(
    r"(_penstock/spool/)?part-[\w-]+-[0-9a-f]{32}-\d+\.parquet|_penstock/deletion_vector_[0-9a-f-]+\.bin"
)


def after_batch(table: DeltaTable, optimize_every: int, settings: DeltaSettings, codec: str) -> bool:
    """Do what is due after a batch of this table; whether its files have changed by it."""
    table.batches += 1
    changed = bool(optimize_every) and table.batches % optimize_every == 0
    changed = changed and optimize(table, settings.file_bytes, codec)
    if settings.vacuum_every and table.batches % settings.vacuum_every == 0:
        removed = vacuum(table.storage, table.log, now_ms() - int(settings.vacuum_retention_hours * _HOUR_MS))
        log.info("table vacuumed", table=table.name, files=len(removed))
    return changed


def optimize(table: DeltaTable, file_bytes: int, codec: str) -> bool:
    """Write small files anew as large ones; whether there were any."""
    found = compact(table, file_bytes, codec)
    log.info("table optimised", table=table.name, removed=found.removed, added=found.added)
    return bool(found.removed)


def vacuum(storage: Storage, table: DeltaLog, until_ms: int) -> list[str]:
    """Delete files that no version after this time uses; their paths. No task may be writing.

    Only what the table has used once, or what has a name of ours, is ever deleted.
    """
    known = {file_of(path) for path, _ in table.removes}
    wanted = _files_of(table.adds.values())
    wanted |= _files_of(add for add in table.removes.values() if add.get("deletionTimestamp", 0) >= until_ms)
    removed = []
    skipped = {storage.path(delta_log.DIRECTORY), storage.path(manifest_file.DIRECTORY)}
    for directory, below, names in os.walk(storage.directory):
        below[:] = [name for name in below if os.path.join(directory, name) not in skipped]
        for name in names:
            path = os.path.relpath(os.path.join(directory, name), storage.directory)
            ours = path in known or _OURS.fullmatch(path) is not None
            if ours and path not in wanted and os.stat(storage.path(path)).st_mtime_ns // 1_000_000 <= until_ms:
                storage.delete(path)
                removed.append(path)
    return removed


def _files_of(actions: Iterable[Action]) -> set[str]:
    files: set[str] = set()
    for action in actions:
        files.add(file_of(action["path"]))
        vector = action.get("deletionVector")
        found = deletion_vectors.file_of(vector) if vector is not None else None
        if found is not None:
            files.add(found)
    return files
