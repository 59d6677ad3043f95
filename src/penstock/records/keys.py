"""Keys: where encoded changes have their keys, which bucket and which row they belong to, and what they say.

A `Scan` is one native pass over the rows of a batch. The hash of a partition's encoded key names its bucket, the row's
hash its place in the state, and the content hash tells copies of one change from different changes: it is over
everything but the origin, the capture time and the log's seal.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from penstock.errors import CorruptLog
from penstock.formats._kernel import RowBuffer, RowReader
from penstock.formats.program import program
from penstock.model.batch import ChangeBatch
from penstock.model.schema import Role, TableSchema
from penstock.records._groups import Contents, Groups
from penstock.records._keys import KeyScan, order_rows, pick_rows, split_rows

# The flags of a change: all key columns are given; static or regular cells, cells of non-frozen columns; the row's
# marker; a deletion; a before image; no write time.
WHOLE, STATIC, REGULAR, COMPLEX, MARKED, DELETING, BEFORE, TIMELESS = (1 << bit for bit in range(8))
# Columns of `Scan.places`.
START, KEY, CLUSTERING, CELLS, TAIL, END = range(6)
# Columns of `Scan.hashes`.
PARTITION_HASH, ROW_HASH, CONTENT_HIGH, CONTENT_LOW = range(4)

_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Scan:
    """What one pass over rows found, one line per change; numpy arrays."""

    schema: TableSchema
    rows: bytes | memoryview
    reader: RowReader
    places: Any
    marks: Any
    times: Any
    hashes: Any

    def __len__(self) -> int:
        return len(self.times)

    @property
    def ops(self) -> Any:
        return self.marks[:, 0]

    @property
    def flags(self) -> Any:
        return self.marks[:, 1]

    def state_keys(self) -> Any:
        """Per change the key of its row in the state; see `state_keys` below."""
        return state_keys(self.hashes[:, PARTITION_HASH], self.hashes[:, ROW_HASH])

    def group_by_key(self) -> tuple[Any, Any]:
        """Per change the number of its row, and per row its first change; rows are numbered as they come."""
        count = len(self)
        groups, firsts, slots, kernel = _tables(count)
        views = (view(self.places), view(self.hashes))
        found = kernel.number_keys(self.reader, *views, view(groups), view(firsts), view(slots))
        return groups, firsts[:found]

    def group_by_content(self) -> tuple[Any, Any]:
        """Per change the number of what it says, and per such number its first change."""
        groups, firsts, slots, kernel = _tables(len(self))
        views = (view(groups), view(firsts), view(slots))
        found = kernel.number_contents(view(self.hashes), *views)
        return groups, firsts[:found]

    def ordered(self, chosen: Any, groups: Any) -> Any:
        """An order of the chosen changes: by group, then by write time.

        The content decides between equal times, so that the same changes stand in the same order however they came.
        """
        times = self.times[chosen]
        order = np.lexsort((times, groups))
        contents = self.hashes[chosen, CONTENT_HIGH]
        tied = (groups[order[1:]] == groups[order[:-1]]) & (times[order[1:]] == times[order[:-1]])
        if (tied & (contents[order[1:]] != contents[order[:-1]])).any():
            return np.lexsort((contents, times, groups))
        return order

    def in_time(self, chosen: Any, groups: Any, count: int) -> tuple[Any, Any] | None:
        """The same order, and where each of the groups begins in it; None when equal times make it less simple."""
        bounds = np.zeros(count + 2, np.int64)
        order = np.zeros(max(len(chosen), 1), np.int64)
        times = self.times if len(chosen) == len(self) else self.times[chosen]
        if not len(chosen) or not order_rows(view(groups), view(times), view(bounds), view(order)):
            return None
        return order, bounds[: count + 1]

    def repeated(self, chosen: Any, groups: Any) -> Any:
        """Which of the chosen changes say the same as the one before, in the same group."""
        same = np.zeros(len(chosen), bool)
        same[1:] = groups[1:] == groups[:-1]
        for lane in (CONTENT_HIGH, CONTENT_LOW):
            values = self.hashes[chosen, lane]
            same[1:] &= values[1:] == values[:-1]
        return same

    def pick(self, chosen: Any) -> bytes:
        """The rows of the chosen changes one after another, without seals."""
        numbers = np.ascontiguousarray(chosen, np.int64)
        out = RowBuffer(max(256, 64 * len(numbers)))
        if len(numbers):
            pick_rows(self.reader, view(self.places), view(numbers), out)
        return out.take()

    def keys(self) -> pa.LargeBinaryArray:
        """Per change its encoded key."""
        return self._slices(KEY, CELLS)

    def partitions(self) -> pa.LargeBinaryArray:
        """Per change its encoded partition key."""
        return self._slices(KEY, CLUSTERING)

    def _slices(self, start: int, end: int) -> pa.LargeBinaryArray:
        # A binary array has no gaps: the bytes between the slices are values too, and every second one is taken.
        bounds = np.empty((len(self), 2), np.int64)
        bounds[:, 0] = self.places[:, start]
        bounds[:, 1] = self.places[:, end]
        offsets = np.append(bounds.reshape(-1), bounds[-1, 1] if len(self) else 0)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.rows)]
        both = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * len(self), buffers)
        return both.take(pa.array(np.arange(0, 2 * len(self), 2), pa.int64()))


def view(table: Any) -> memoryview:
    """A numpy array as the kernels take it; plain Python reads plain integers from it."""
    return memoryview(table)


def _tables(count: int) -> tuple[Any, Any, Any, Groups]:
    kernel = Groups(count)
    # Buffers of length zero cannot be exported to the kernels.
    return np.zeros(count, np.int64), np.zeros(max(count, 1), np.int64), np.full(kernel.size, -1, np.int64), kernel


def state_keys(partitions: Any, rows: Any) -> Any:
    """The 64-bit key of rows in the state: 32 bits of the partition's hash before 32 bits of the row's.

    Zero in the low half stands for the partition itself, and zero in the high half for the table.
    """
    high = partitions & _LOW_HALF
    low = rows & _LOW_HALF
    high = np.where(high == 0, np.uint64(1), high)
    low = np.where(low == 0, np.uint64(1), low)
    return (high << _HALF) | low


def partition_key(key: int) -> int:
    """The state's key of the partition that a row's key belongs to."""
    return key >> 32 << 32


def scan(batch: ChangeBatch, *, content: bool = True) -> Scan:
    """Scan the changes of a batch that count. Raises CorruptLog when the rows are not what an encoder writes."""
    schema = batch.schema
    rules = program(schema)
    count = len(batch)
    if count < 0 or batch.count * rules.least_bytes() > len(batch.rows):
        raise CorruptLog(f"rows are damaged: {len(batch.rows)} bytes cannot hold {batch.count} changes")
    rows = batch.rows
    reader = RowReader(rows)
    rules.skip_rows(reader, batch.skip)
    places = np.zeros((count, 6), np.int64)
    marks = np.zeros((count, 2), np.uint8)
    times = np.zeros(count, np.int64)
    hashes = np.zeros((count, 4), np.uint64)
    if count:
        tables = [view(table) for table in (places, marks, times, hashes)]
        _kernel(schema, content).scan(reader, count, *tables)
    if reader.position != reader.end:
        raise CorruptLog("rows are damaged: bytes are left after the last change", byte=reader.position)
    return Scan(schema, rows, reader, places, marks, times, hashes)


def _kernel(schema: TableSchema, content: bool) -> KeyScan:
    name = "_key_scan" if content else "_key_scan_only"
    known = schema.__dict__.get(name)
    if known is None:
        # One more entry than needed: a table may have no cells, and empty buffers cannot be exported.
        names = np.zeros(len(schema.cells) + 1, np.uint64)
        multi = np.zeros(len(schema.cells) + 1, np.uint8)
        statics = np.zeros(len(schema.cells) + 1, np.uint8)
        for index, column in enumerate(schema.cells):
            digest = hashlib.blake2b(column.name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            names[index] = int.from_bytes(digest, "little")
            multi[index] = column.type.multi_cell
            statics[index] = column.role is Role.STATIC
        known = KeyScan(program(schema), len(schema.partition), names, multi, statics, content)
        schema.__dict__[name] = known
    return cast(KeyScan, known)


@dataclass(frozen=True, slots=True)
class Part:
    """What one bucket gets of a batch: rows in order, without seals. `copies` counts those that were left out too."""

    bucket: int
    count: int
    rows: memoryview
    copies: int


def split(batch: ChangeBatch, buckets: int, known: Contents | None = None) -> list[Part]:
    """The batch by bucket of the partition's hash. The deletion of a whole table goes to every bucket.

    With `known`, changes that say what it has seen before are left out.
    """
    found = scan(batch, content=known is not None)
    if not len(found):
        return []
    fresh = np.ones(len(found), np.uint8)
    if known is not None:
        known.mark(view(found.hashes), view(found.marks), view(fresh))
    outs = [RowBuffer(max(256, 2 * len(batch.rows) // buckets)) for _ in range(buckets)]
    views = [view(table) for table in (found.places, found.marks, found.hashes, fresh)]
    counts = split_rows(found.reader, *views, outs)
    parts = zip(range(buckets), counts[:buckets], outs, counts[buckets:], strict=True)
    return [Part(bucket, count, out.give(), copies) for bucket, count, out, copies in parts if copies]


def key_bytes(batch: ChangeBatch) -> pa.LargeBinaryArray:
    """Per change its encoded key columns: equal for changes of the same row."""
    return scan(batch, content=False).keys()
