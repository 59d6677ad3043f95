"""Optimising and vacuuming Delta tables, every so many batches.

Deleting what a table no longer uses is done here and not by delta-rs: its full vacuum does not know that deletion
vectors are in use, and its light one leaves files behind that never were committed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import structlog

from penstock.deliver.delta import deletion_vectors, delta_log, manifest_file
from penstock.deliver.delta.compaction import compact
from penstock.deliver.delta.delta_log import Action, DeltaLog, file_of
from penstock.deliver.delta.table import DeltaTable, now_ms
from penstock.deliver.lakehouse.storage import Storage
from penstock.settings.sinks import DeltaSettings

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
