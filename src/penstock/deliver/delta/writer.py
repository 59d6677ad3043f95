"""Current rows of one Delta table in one task: new rows become data files, old ones bits of deletion vectors.

A task looks its keys up in the index of its bucket, writes what is new into files of its own, and tells the driver
which rows of which files no longer count. Rows never pass through the driver; per changed row it gets about two bytes.
The work is in proportion to the changes, whatever the size of the table: nothing that stays is read, except for the
small files that the manifest says are to be written anew.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from penstock.deliver.delta import deletion_vectors, manifest_file
from penstock.deliver.delta.delta_log import file_of
from penstock.deliver.delta.manifest_file import SHARED, Manifest
from penstock.deliver.lakehouse.data_files import (
    by_partition,
    read_columns,
    sorted_by,
    statistics,
    stats_text,
    to_parquet,
    with_partition,
)
from penstock.deliver.lakehouse.key_hash import key_hashes
from penstock.deliver.lakehouse.key_index import (
    GONE,
    Entries,
    last_of_each,
    merge,
    open_run,
    runs_to_merge,
    sort_order,
    to_file,
)
from penstock.deliver.lakehouse.rows import Poison, is_of_another_table, key_columns, lake_rows, of_rows
from penstock.deliver.lakehouse.storage import Storage
from penstock.records.records import Records


@dataclass(frozen=True, slots=True)
class Layout:
    """How data files are written."""

    codec: str
    clustering: tuple[str, ...]
    rows_per_file: int


@dataclass(slots=True)
class _Chunk:
    """Records that were taken and not written yet: hashes of all, rows of those that are there after the change."""

    high: Any
    low: Any
    live: Any
    rows: pa.Table


class CurrentRows:
    """The writer of one table in one task."""

    def __init__(self, storage: Storage, manifest: Manifest, bucket: int, stem: str, layout: Layout) -> None:
        self._storage = storage
        self._manifest = manifest
        self._bucket = bucket
        # What the names of this attempt's files begin with; no other attempt has the same.
        self._stem = stem
        self._layout = layout
        self._shape = manifest.shape
        self._schema = self._shape.schema
        self._chunks: list[_Chunk] = []
        self._buffered_bytes = 0
        self._adds: list[dict[str, Any]] = []
        self._deletes: dict[str, list[Any]] = {}
        # Of this task's own earlier files, from the oldest to the newest.
        self._written: list[Entries] = []
        self._refs = manifest.runs_of(bucket)
        self._rewrite: Sequence[dict[str, Any]] = manifest.rewrite.get(bucket, ())
        self._key = self._shape.note.key
        # The table was truncated: of what it had, and of what came before, nothing counts any more.
        self._truncated = False

    @property
    def buffered_bytes(self) -> int:
        return self._buffered_bytes

    def add(self, records: Records) -> Poison:
        """Take records; those that no table can hold come back."""
        if is_of_another_table(records, self._shape):
            return Poison.none(len(records))
        later = records.since_truncation()
        if later is not None:
            self._truncate()
            return self._added(later).moved(len(records) - len(later), len(records))
        return self._added(records)

    def _truncate(self) -> None:
        """Forget what was taken so far; files that were written already are of no table, and go with a vacuum."""
        self._truncated = True
        self._chunks, self._buffered_bytes = [], 0
        self._adds, self._deletes, self._written = [], {}, []
        self._refs, self._rewrite = [], ()

    def _added(self, records: Records) -> Poison:
        assert records.after is not None
        keys = key_columns(records, self._shape)
        there = records.after.is_valid().to_numpy(zero_copy_only=False)
        rows, poison = lake_rows(records, self._shape, there)
        chosen = of_rows(records) & ~poison.mask
        if not chosen.all():
            keys = [key.filter(pa.array(chosen)) for key in keys]
            rows = rows.filter(pa.array(chosen[there]))
            there = there[chosen]
        high, low = key_hashes(keys)
        self._chunks.append(_Chunk(high, low, there, rows))
        self._buffered_bytes += rows.nbytes + 17 * len(high)
        return poison

    def take_out(self, keys: list[pa.Array], adds: list[dict[str, Any]]) -> None:
        """Mark all rows with these keys. The keys of all files are read for that: the index has one place per key."""
        high, low = key_hashes(keys)
        order = sort_order(high, low)
        none = np.zeros(len(high), np.uint32)
        wanted = Entries(high[order], low[order], none, none, ())
        for add in adds:
            columns = key_columns_of(self._storage, add, self._schema, self._key)
            rows = np.flatnonzero(wanted.find(*key_hashes(columns)) >= 0)
            if len(rows):
                self._deletes.setdefault(add["path"], []).append(rows.astype(np.uint32))

    def flush(self) -> None:
        """Write what was taken, without rewriting older files, so that memory stays bounded."""
        self._write(())

    def finish(self) -> dict[str, Any]:
        """Write the rest and say what is to be committed."""
        self._write(self._rewrite)
        out: dict[str, Any] = {
            "key": self._key,
            "adds": self._adds,
            "deletes": {path: _packed(rows) for path, rows in self._deletes.items()},
            "rewritten": [add["path"] for add in self._rewrite],
            "truncated": self._truncated,
        }
        if self._written:
            out.update(self._write_run())
        return out

    def _write(self, rewrite: Any) -> None:
        if not self._chunks and not rewrite:
            return
        chunks, self._chunks, self._buffered_bytes = self._chunks, [], 0
        high = np.concatenate([chunk.high for chunk in chunks] or [np.zeros(0, np.uint64)])
        low = np.concatenate([chunk.low for chunk in chunks] or [np.zeros(0, np.uint64)])
        live = np.concatenate([chunk.live for chunk in chunks] or [np.zeros(0, bool)])
        rows = pa.concat_tables([chunk.rows for chunk in chunks], promote_options="default") if chunks else None
        order = sort_order(high, low)
        order = order[last_of_each(high[order], low[order])]
        high, low, live, numbers = high[order], low[order], live[order], (np.cumsum(live) - 1)[order]
        known = self._take_out(high, low)
        if rows is not None and rows.num_rows != live.sum():
            rows = rows.take(pa.array(numbers[live]))
        elif rows is not None and rows.num_rows:
            # Every row stays, so the rows stay where they are and the hashes go back to the order of arrival.
            back = np.argsort(numbers[live], kind="stable")
            moved = np.flatnonzero(live)[back]
            gone = np.flatnonzero(~live)
            high, low = np.concatenate((high[moved], high[gone])), np.concatenate((low[moved], low[gone]))
            known = np.concatenate((known[moved], known[gone]))
            live = np.arange(len(high)) < len(moved)
        self._place(rows, high[live], low[live], rewrite)
        deleted = ~live & known
        if deleted.any():
            order = sort_order(high[deleted], low[deleted])
            count = int(deleted.sum())
            files, places = np.full(count, GONE, np.uint32), np.zeros(count, np.uint32)
            self._written.append(Entries(high[deleted][order], low[deleted][order], files, places, ()))

    def _take_out(self, high: Any, low: Any) -> Any:
        """Mark the rows that these keys have in the table so far; which of the keys (a mask) the index knows."""
        known = np.zeros(len(high), bool)
        left = np.arange(len(high))
        for run in [*reversed(self._written), *(self._open(ref.name) for ref in reversed(self._refs))]:
            if not len(left):
                break
            places = run.find(high[left], low[left])
            hit = places >= 0
            known[left[hit]] = True
            self._mark(run, places[hit])
            left = left[~hit]
        return known

    def _mark(self, run: Entries, places: Any) -> None:
        files, rows = run.file[places], run.row[places]
        order = np.argsort(files, kind="stable")
        files, rows = files[order], rows[order]
        numbers, starts = np.unique(files, return_index=True)
        for number, group in zip(numbers, np.split(rows, starts[1:]) if len(rows) else (), strict=True):
            if number != GONE:
                self._deletes.setdefault(run.files[number], []).append(group)

    def _open(self, name: str) -> Entries:
        return open_run(self._storage.path(f"{manifest_file.DIRECTORY}/{name}"))

    def _place(self, rows: pa.Table | None, high: Any, low: Any, rewrite: Any) -> None:
        """Write data files of the rows and of what is left of the files that are written anew."""
        tables = [] if rows is None else [rows]
        highs, lows = [high], [low]
        for add in rewrite:
            kept = self._left_over(add)
            kept_high, kept_low = key_hashes([kept.column(name).combine_chunks() for name in self._key])
            tables.append(kept)
            highs.append(kept_high)
            lows.append(kept_low)
        everything = pa.concat_tables(tables, promote_options="default")
        high, low = np.concatenate(highs), np.concatenate(lows)
        if not everything.num_rows:
            return
        partition = tuple(self._manifest.partition)
        everything = with_partition(everything, self._schema, partition)
        names: list[str] = []
        files, places, order = [], [], []
        for values, group in by_partition(everything, partition):
            part = everything if len(group) == everything.num_rows else everything.take(pa.array(group))
            sorting = sorted_by(part, self._shape.note.current_names(self._layout.clustering))
            if sorting is not None:
                part, group = part.take(pa.array(sorting)), group[sorting]
            for start in range(0, part.num_rows, self._layout.rows_per_file):
                piece = part.slice(start, self._layout.rows_per_file)
                files.append(np.full(piece.num_rows, len(names), np.uint32))
                places.append(np.arange(piece.num_rows, dtype=np.uint32))
                order.append(group[start : start + piece.num_rows])
                names.append(self._write_file(piece.drop_columns(list(partition)), values))
        numbers = np.concatenate(order)
        high, low, file, row = high[numbers], low[numbers], np.concatenate(files), np.concatenate(places)
        by_hash = sort_order(high, low)
        self._written.append(Entries(high[by_hash], low[by_hash], file[by_hash], row[by_hash], tuple(names)))

    def _left_over(self, add: dict[str, Any]) -> pa.Table:
        """The rows of a file that still count, those aside that this task has just replaced."""
        path = add["path"]
        table = read_columns(self._storage.path(file_of(path)), self._schema, add.get("partitionValues") or {})
        dead = np.zeros(table.num_rows, bool)
        vector = add.get("deletionVector")
        if vector is not None:
            dead[np.asarray(deletion_vectors.load(self._storage, vector).to_array())] = True
        for rows in self._deletes.pop(path, ()):
            dead[rows] = True
        return table.filter(pa.array(~dead)) if dead.any() else table

    def _write_file(self, rows: pa.Table, values: dict[str, str | None]) -> str:
        path = f"{self._stem}-{len(self._adds)}.parquet"
        content, footer = to_parquet(rows, self._layout.codec)
        self._storage.write(path, content)
        self._adds.append(
            {
                "path": path,
                "partitionValues": values,
                "size": content.size,
                "modificationTime": 0,
                "dataChange": True,
                "stats": stats_text(statistics(rows, footer)),
            }
        )
        return path

    def _write_run(self) -> dict[str, Any]:
        """One run of what this task has written and of the older runs that are due to be merged with it."""
        own = list(self._refs)
        last_shared = max((place for place, ref in enumerate(own) if ref.bucket == SHARED), default=-1)
        mergeable = own[last_shared + 1 :]
        new = sum(map(len, self._written))
        count = runs_to_merge([ref.entries for ref in mergeable], new)
        chosen = mergeable[len(mergeable) - count :]
        nothing_older = count == len(own)
        entries = merge([*(self._open(ref.name) for ref in chosen), *self._written], drop_gone=nothing_older)
        name = f"run-{self._stem}.arrow"
        self._storage.write(f"{manifest_file.DIRECTORY}/{name}", to_file(entries))
        return {"run": [name, self._bucket, len(entries)], "merged": [ref.name for ref in chosen]}


def _packed(groups: list[Any]) -> str:
    return base64.b64encode(BitMap(np.concatenate(groups).astype(np.uint32)).serialize()).decode()


def unpacked(text: str) -> BitMap:
    """Row numbers from a task's report."""
    return BitMap.deserialize(base64.b64decode(text))


def index_of(storage: Storage, adds: list[dict[str, Any]], schema: pa.Schema, key: tuple[str, ...]) -> Entries:
    """Entries for files that another program wrote: their keys are read, and rows that no longer count left out."""
    parts = []
    for add in adds:
        high, low = key_hashes(key_columns_of(storage, add, schema, key))
        rows = np.arange(len(high), dtype=np.uint32)
        vector = add.get("deletionVector")
        if vector is not None:
            alive = np.ones(len(high), bool)
            alive[np.asarray(deletion_vectors.load(storage, vector).to_array())] = False
            high, low, rows = high[alive], low[alive], rows[alive]
        order = sort_order(high, low)
        parts.append(Entries(high[order], low[order], np.zeros(len(rows), np.uint32), rows[order], (add["path"],)))
    return merge(parts, drop_gone=True)


def key_columns_of(storage: Storage, add: dict[str, Any], schema: pa.Schema, key: tuple[str, ...]) -> list[pa.Array]:
    """The key columns of a data file, rows that no longer count included."""
    wanted = pa.schema([schema.field(name) for name in key])
    table = read_columns(storage.path(file_of(add["path"])), wanted, add.get("partitionValues") or {})
    return [table.column(name).combine_chunks() for name in key]
