"""Entries: a sorted piece of a bucket's state, in memory or mapped from a file.

An entry is a 64-bit key with the encoded rows that are kept under it. The state of a table has one entry per row
(nearly always one encoded row; more where keys of several rows have the same hash), one per partition that has
deletions or static cells of its own, and one for the table when it was truncated. What a pipeline remembers of changes
that it has delivered is kept in the same form, and so are cells of dropped columns (`shelf`). Keys of one piece are
unique and sorted, so looking up is a binary search over a plain array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.fold._merge import merge_order
from penstock.model.schema import TableId, TableSchema

# The key of what concerns the table as a whole.
TABLE_KEY = 0
_HALF = np.uint64(32)

SCHEMA = pa.schema(
    [
        pa.field("key", pa.uint64(), nullable=False),
        # Of rows: how many encoded changes the entry has, 0 when it is gone. Of seen changes: the hash's other half.
        pa.field("low", pa.uint64(), nullable=False),
        # Of rows: the second of the next expiry, 0 for none. Of seen changes: the second at which they are forgotten.
        pa.field("due_s", pa.int64(), nullable=False),
        # Of rows: since which second there is no living row, 0 while there is one. Of seen changes: the node, 0 when
        # the change was delivered.
        pa.field("dead_s", pa.int64(), nullable=False),
        pa.field("rows", pa.large_binary(), nullable=False),
    ]
)


class Content(StrEnum):
    """What entries are for."""

    ROWS = "rows"
    SEEN = "seen"
    # Changes to columns that the table does not have at the moment.
    SHELF = "shelf"


@dataclass(frozen=True, slots=True)
class Entries:
    """A piece. `schema` is the version of the table's schema that the rows are encoded with."""

    content: Content
    schema: TableSchema
    keys: Any
    lows: Any
    due: Any
    dead: Any
    rows: pa.LargeBinaryArray

    @property
    def table(self) -> TableId:
        return self.schema.table

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def of_rows(schema: TableSchema, keys: Any, counts: Any, due: Any, dead: Any, rows: pa.LargeBinaryArray) -> Entries:
        """State rows in any order; the keys must differ."""
        if not (keys[1:] > keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            keys, counts, due, dead = keys[order], counts[order], due[order], dead[order]
            rows = rows.take(pa.array(order, pa.int64()))
        return Entries(
            Content.ROWS,
            schema,
            np.ascontiguousarray(keys, np.uint64),
            np.ascontiguousarray(counts, np.uint64),
            np.ascontiguousarray(due, np.int64),
            np.ascontiguousarray(dead, np.int64),
            rows,
        )

    @staticmethod
    def of_seen(schema: TableSchema, highs: Any, lows: Any, forgotten_s: Any, nodes: Any) -> Entries:
        """Content hashes in any order; quickest when they are sorted by `highs`."""
        order = np.arange(len(highs)) if (highs[1:] > highs[:-1]).all() else np.argsort(highs)
        ordered = highs[order]
        if not (ordered[1:] > ordered[:-1]).all():
            order = np.lexsort((lows, highs))
        return Entries(
            Content.SEEN,
            schema,
            np.ascontiguousarray(highs[order], np.uint64),
            np.ascontiguousarray(lows[order], np.uint64),
            np.ascontiguousarray(forgotten_s[order], np.int64),
            np.ascontiguousarray(nodes[order], np.int64),
            empty_rows(len(order)),
        )

    @staticmethod
    def of_shelf(schema: TableSchema, keys: Any, rows: pa.LargeBinaryArray, *, gone: bool = False) -> Entries:
        """One encoded change each, sorted by keys that differ; `gone`: they are there no more."""
        none = np.zeros(len(keys), np.int64)
        counts = none.astype(np.uint64) if gone else np.ones(len(keys), np.uint64)
        return Entries(Content.SHELF, schema, np.ascontiguousarray(keys, np.uint64), counts, none, none, rows)

    @staticmethod
    def of_batch(content: Content, schema: TableSchema, batch: pa.RecordBatch) -> Entries:
        """As it was read from a file, without copying."""
        keys, lows, due, dead = (
            batch.column(name).to_numpy(zero_copy_only=True) for name in ("key", "low", "due_s", "dead_s")
        )
        return Entries(content, schema, keys, lows, due, dead, batch.column("rows"))

    def to_batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array(self.keys), pa.array(self.lows), pa.array(self.due), pa.array(self.dead), self.rows],
            schema=SCHEMA,
        )

    def slice(self, start: int, stop: int) -> Entries:
        return Entries(
            self.content,
            self.schema,
            self.keys[start:stop],
            self.lows[start:stop],
            self.due[start:stop],
            self.dead[start:stop],
            self.rows.slice(start, stop - start),
        )

    def take(self, positions: Any) -> Entries:
        return Entries(
            self.content,
            self.schema,
            self.keys[positions],
            self.lows[positions],
            self.due[positions],
            self.dead[positions],
            self.rows.take(pa.array(positions, pa.int64())),
        )


def concat(pieces: list[Entries], schema: TableSchema) -> Entries:
    """Pieces one after another, in whatever order their keys are; all encoded with one schema."""
    return Entries(
        pieces[0].content,
        schema,
        np.concatenate([piece.keys for piece in pieces]),
        np.concatenate([piece.lows for piece in pieces]),
        np.concatenate([piece.due for piece in pieces]),
        np.concatenate([piece.dead for piece in pieces]),
        pa.concat_arrays([piece.rows for piece in pieces]),
    )


def merged_order(lengths: Sequence[int], highs: Any, lows: Any) -> Any:
    """The order of entries of several runs, from the newest to the oldest, that makes one run of them.

    `highs` and `lows` are the two halves of the runs' keys one after another. Of equal keys the newest one counts.
    """
    count = len(highs)
    if len(lengths) == 1 or not count:
        return np.arange(count)
    bounds: Any = np.concatenate(([0], np.cumsum(np.array(lengths, np.int64))))
    order: Any = np.empty(count, np.int64)
    views: list[Any] = [memoryview(table) for table in (highs, lows, bounds, bounds.copy(), order)]
    made = merge_order(*views)
    return order[:made]


def nothing(content: Content, schema: TableSchema) -> Entries:
    return Entries(
        content, schema, np.zeros(0, np.uint64), np.zeros(0, np.uint64), *_no_seconds(), pa.array([], pa.large_binary())
    )


def _no_seconds() -> tuple[Any, Any]:
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def empty_rows(count: int) -> pa.LargeBinaryArray:
    return binary_array(np.zeros(count + 1, np.int64), b"")


def binary_array(offsets: Any, data: bytes | memoryview) -> pa.LargeBinaryArray:
    """Values that stand one after another in `data`; `offsets` has one entry more than there are values."""
    bounds = np.ascontiguousarray(offsets, np.int64)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)


def joined_bytes(values: pa.LargeBinaryArray) -> tuple[bytes, Any]:
    """All values as one run of bytes, and where each starts in it."""
    if not len(values):
        return b"", np.zeros(1, np.int64)
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    size = int(offsets[-1] - offsets[0])
    content = b"" if data is None or not size else data.slice(int(offsets[0]), size).to_pybytes()
    return content, offsets - offsets[0]


def partition_range(partition: int) -> tuple[Any, Any]:
    """The first key of a partition and the last one; `partition` is the upper half."""
    first = np.uint64(partition) << _HALF
    return first, first | np.uint64(0xFFFFFFFF)
