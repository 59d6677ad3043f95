"""The key index of a table of current rows: where in the table's files each row is now.

It is made of runs: immutable files of entries (hash of the key, file, row number) sorted by hash. Each task of a
micro-batch adds one run for the rows that it changed. A look-up asks the runs from the newest to the oldest; the first
entry of a key counts. Runs of similar size are merged as they come, so that a bucket has few of them and an entry is
rewritten a number of times that grows with the logarithm of the table.

    run file: an Arrow IPC file of the columns high, low (the hash, uint64), file (number in the list of files, or
    GONE for a deleted row), row (uint32); its metadata has version, files (JSON) and the CRC-32 of the columns.

Which runs count is said by the manifest that was committed with the table (manifest_file.py), so a run that a crash
left behind is never read.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import CorruptCheckpoint, UnsupportedFormat
from penstock.fold.entries import merged_order
from penstock.system import json_text
from penstock.system.checksum import crc32

GONE = 0xFFFFFFFF
_VERSION = b"1"
_COLUMNS = {"high": np.uint64, "low": np.uint64, "file": np.uint32, "row": np.uint32}
# A run is merged with all that is newer when it has at most so many times as many entries, and so many are.
_MERGE_FACTOR = 2
_MERGED_RUNS_MIN = 2
# So many entries are merged at a time.
_PIECE_ENTRIES = 1 << 16
# More than what a run file has around its columns, the names of files aside.
_HEADERS_BYTES = 1 << 14
# Open runs of this process; Spark keeps its Python workers from batch to batch.
_OPEN_RUNS_MAX = 512


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of an index, sorted by hash, each key once. `file` counts in `files`."""

    high: Any
    low: Any
    file: Any
    row: Any
    files: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.high)

    def slice(self, start: int, stop: int) -> Entries:
        """Some of them; they share memory."""
        high, low, file, row = (getattr(self, name)[start:stop] for name in _COLUMNS)
        return Entries(high, low, file, row, self.files)

    def find(self, high: Any, low: Any) -> Any:
        """For each hash the number of its entry, or -1. `high` is best sorted: near look-ups share the cache."""
        places = np.searchsorted(self.high, high)
        found = np.full(len(high), -1, np.int64)
        wanted = np.arange(len(high))
        # Different keys with the same high half stand side by side, so the next ones are asked too.
        while True:
            inside = places < len(self.high)
            wanted, places = wanted[inside], places[inside]
            same = self.high[places] == high[wanted]
            wanted, places = wanted[same], places[same]
            if not len(wanted):
                return found
            hit = self.low[places] == low[wanted]
            found[wanted[hit]] = places[hit]
            wanted, places = wanted[~hit], places[~hit] + 1


def sort_order(high: Any, low: Any) -> Any:
    """The order by hash; equal hashes stay in the order of arrival."""
    order = np.argsort(high)
    sorted_high = high[order]
    if (sorted_high[1:] == sorted_high[:-1]).any():
        # Hardly ever; a sort that keeps the order of equals takes several times as long.
        return np.lexsort((low, high))
    return order


def last_of_each(high: Any, low: Any) -> Any:
    """Of hashes in sorted order: a mask of the last one of each group of equal ones."""
    last = np.ones(len(high), bool)
    last[:-1] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return last


def merge(runs: Sequence[Entries], *, drop_gone: bool) -> Entries:
    """One run of several that are given from the oldest to the newest. `drop_gone`: there are no older ones left.

    It is done piece by piece: what is merged at a time stays in the processor's cache, and large temporary arrays would
    cost more than the merge itself.
    """
    files: dict[str, int] = {}
    numbers = [[files.setdefault(name, len(files)) for name in run.files] for run in runs]
    columns = [np.empty(sum(map(len, runs)), kind) for kind in _COLUMNS.values()]
    used = np.zeros(len(files) + 1, bool)
    made = 0
    for bounds in _pieces(runs):
        parts = list(reversed([run.slice(*bound) for run, bound in zip(runs, bounds, strict=True)]))
        file = np.concatenate([_renumbered(part.file, to) for part, to in zip(parts, reversed(numbers), strict=True)])
        high, low, row = (np.concatenate([getattr(part, name) for part in parts]) for name in ("high", "low", "row"))
        order = merged_order(list(map(len, parts)), high, low)
        if drop_gone:
            order = order[file[order] != GONE]
        for column, values in zip(columns, (high, low, file, row), strict=True):
            np.take(values, order, out=column[made : made + len(order)], mode="clip")
        used[np.minimum(columns[2][made : made + len(order)], len(files))] = True
        made += len(order)
    high, low, file, row = (column[:made] for column in columns)
    return _compact(Entries(high, low, file, row, tuple(files)), used[:-1])


def _pieces(runs: Sequence[Entries]) -> Iterator[list[tuple[int, int]]]:
    """Where the same range of hashes begins and ends in each run, range by range."""
    largest = max(runs, key=len)
    count = -(-sum(map(len, runs)) // _PIECE_ENTRIES)
    cuts = np.unique(largest.high[[len(largest) * part // count for part in range(1, count)]])
    edges = [np.concatenate(([0], np.searchsorted(run.high, cuts), [len(run)])).tolist() for run in runs]
    for part in range(len(cuts) + 1):
        yield [(edge[part], edge[part + 1]) for edge in edges]


def _renumbered(file: Any, numbers: Sequence[int]) -> Any:
    """The numbers of files with others in their place."""
    if numbers == list(range(len(numbers))):
        return file
    mapping = np.array([*numbers, GONE], np.uint32)
    # What is gone has the greatest number of all.
    return mapping[np.minimum(file, np.uint32(len(numbers)))]


def _compact(entries: Entries, used: Any) -> Entries:
    """The same without files that no entry names any more."""
    if used.all():
        return entries
    numbers = np.maximum(np.cumsum(used) - 1, 0).tolist()
    file = _renumbered(entries.file, numbers)
    files = tuple(name for name, there in zip(entries.files, used.tolist(), strict=True) if there)
    return Entries(entries.high, entries.low, file, entries.row, files)


def runs_to_merge(sizes: Sequence[int], new: int) -> int:
    """How many of the newest runs (`sizes` from the oldest to the newest) join a new one of `new` entries."""
    count = 0
    for size in reversed(sizes):
        if size > _MERGE_FACTOR * new:
            break
        new += size
        count += 1
    return count if count >= _MERGED_RUNS_MIN else 0


def to_file(entries: Entries) -> pa.Buffer:
    """The bytes of a run file."""
    arrays = [np.ascontiguousarray(getattr(entries, name), kind) for name, kind in _COLUMNS.items()]
    metadata = {"version": _VERSION, "files": json.dumps(entries.files), "crc32": f"{_checksum(arrays):08x}"}
    batch = pa.record_batch([pa.array(array) for array in arrays], names=list(_COLUMNS)).replace_schema_metadata(
        metadata
    )
    # A buffer that need not grow, and so is not copied: what is around the batch repeats the metadata.
    room = pa.allocate_buffer(pa.ipc.get_record_batch_size(batch) + 4 * len(metadata["files"]) + _HEADERS_BYTES)
    sink = pa.FixedSizeBufferWriter(room)
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return room.slice(0, sink.tell())


def _checksum(arrays: Sequence[Any]) -> int:
    value = 0
    for array in arrays:
        value = crc32(memoryview(array).cast("B"), value) if len(array) else value
    return value


def from_file(path: str) -> Entries:
    """The entries of a run file, mapped into memory and checked."""
    try:
        reader = pa.ipc.open_file(pa.memory_map(path))
        metadata = reader.schema.metadata or {}
        if metadata.get(b"version") != _VERSION:
            raise UnsupportedFormat("a run of a key index has an unknown version", file=path)
        batch = reader.get_batch(0)
        arrays = [batch.column(name).to_numpy() for name in _COLUMNS]
        if int(metadata[b"crc32"], 16) != _checksum(arrays):
            raise CorruptCheckpoint(
                "a run of a key index is damaged; delete the index and it is built again", file=path
            )
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise CorruptCheckpoint("a run of a key index cannot be read", file=path) from error
    high, low, file, row = arrays
    return Entries(high, low, file, row, tuple(json_text.parse(metadata[b"files"])))


_open_runs: OrderedDict[str, Entries] = OrderedDict()
_open_runs_lock = threading.Lock()


def open_run(path: str) -> Entries:
    """The entries of a run file. Names of runs are never used twice, so what is open stays valid."""
    with _open_runs_lock:
        found = _open_runs.get(path)
        if found is not None:
            _open_runs.move_to_end(path)
            return found
    found = from_file(path)
    with _open_runs_lock:
        _open_runs[path] = found
        while len(_open_runs) > _OPEN_RUNS_MAX:
            _open_runs.popitem(last=False)
    return found
