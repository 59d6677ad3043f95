"""Mutations as bytes, in the layouts of commit-log formats 6 to 9 (docs/formats/commit-log.md).

Times are written as differences from the update's least ones, without a sign; the columns of an update stand in its
header by name, and each row says which of them it has.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.segment import FORMATS
from penstock.errors import InvalidValue
from penstock.merge.cql_value import fixed_length, serialized, unsigned_vint
from penstock.model.change import Change, Deletion
from penstock.model.schema import Column, Role, TableSchema
from penstock.model.types import Type
from penstock.sandbox.commit_log.rows import (
    PartitionUpdate,
    WireCell,
    WireColumn,
    WireMarker,
    WireRow,
    is_complex,
    local_second,
    partition_update,
    wire_columns,
)

Mutation = Sequence[tuple[CassandraTable, Sequence[Change]]]

# From Cassandra's EncodingStats: 2015-09-22, so that usual times take few bytes.
_TIME_EPOCH = 1_442_880_000_000_000
_LOCAL_EPOCH = 1_442_880_000
_NO_TIME = -(1 << 63)
_MASK = (1 << 64) - 1
_COLUMNS_BITMAP_MAX = 64
_CLUSTERING_BATCH = 32
# The last second of formats 6 and 7, and of 8 and 9, whose seconds have no sign; what lies above has a meaning.
_LOCAL_MAX = {6: (1 << 31) - 2, 7: (1 << 31) - 2, 8: (1 << 32) - 3, 9: (1 << 32) - 3}
_NO_LOCAL = {6: (1 << 31) - 1, 7: (1 << 31) - 1, 8: (1 << 32) - 1, 9: (1 << 32) - 1}

# Flags of a partition.
_PARTITION_EMPTY, _PARTITION_DELETED, _PARTITION_STATIC, _PARTITION_ESTIMATE = 0x01, 0x04, 0x08, 0x10
# Flags of a row or marker.
_END, _MARKER, _TIMED, _EXPIRES, _DELETED, _ALL_COLUMNS, _COMPLEX_DELETED, _EXTENDED = (1 << n for n in range(8))
_EXTENDED_STATIC = 0x01
# Flags of a cell.
_CELL_DELETED, _CELL_EXPIRES, _CELL_EMPTY, _CELL_ROW_TIME, _CELL_ROW_EXPIRY = (1 << n for n in range(5))


def encode_mutation(mutation: Mutation, format_: int, *, epoch: int = 1) -> bytes:
    """The bytes of a mutation. `epoch` is the cluster metadata's, which format 9 has."""
    if format_ not in FORMATS:
        raise InvalidValue(f"commit-log format {format_} is not known")
    out = bytearray()
    if format_ >= 9:
        out += b"\x00"
    out += unsigned_vint(len(mutation))
    for table, changes in mutation:
        out += table.id.bytes
        if format_ >= 9:
            out += unsigned_vint(epoch)
        _Update(table.schema, partition_update(table.schema, changes), format_).write(out)
    return bytes(out)


def encode_key(schema: TableSchema, values: tuple[Any, ...]) -> bytes:
    """A partition key: the bare value, or several with their lengths."""
    parts = [serialized(column.type, value) for column, value in zip(schema.partition, values, strict=True)]
    if len(parts) == 1:
        return parts[0]
    return b"".join(struct.pack(">H", len(part)) + part + b"\0" for part in parts)


class _Update:
    """One partition update on its way into bytes."""

    def __init__(self, schema: TableSchema, update: PartitionUpdate, format_: int) -> None:
        self._schema = schema
        self._update = update
        self._format = format_
        times, seconds, ttls = _stats(update)
        for second in seconds:
            if not 0 <= second <= _LOCAL_MAX[format_]:
                raise InvalidValue(f"a second outside what format {format_} can hold", table=schema.table)
        self._time = min(times, default=_TIME_EPOCH)
        self._local = min(seconds, default=_LOCAL_EPOCH)
        self._ttl = min(ttls, default=0)

    def write(self, out: bytearray) -> None:
        update, schema = self._update, self._schema
        key = encode_key(schema, update.key)
        out += unsigned_vint(len(key)) + key
        if update.deletion is None and update.static is None and not update.unfiltered:
            out.append(_PARTITION_EMPTY)
            return
        flags = _PARTITION_ESTIMATE
        if update.deletion is not None:
            flags |= _PARTITION_DELETED
        if update.static is not None:
            flags |= _PARTITION_STATIC
        out.append(flags)
        out += unsigned_vint((self._time - _TIME_EPOCH) & _MASK)
        out += unsigned_vint(_int32(self._local - _LOCAL_EPOCH))
        out += unsigned_vint(self._ttl)
        static = wire_columns(schema, update.static.columns, Role.STATIC) if update.static else []
        regular = wire_columns(schema, (name for row in update.rows for name in row.columns), Role.REGULAR)
        if update.static is not None:
            _write_names(out, static)
        _write_names(out, regular)
        if update.deletion is not None:
            self._write_deletion(out, update.deletion)
        if update.static is not None:
            self._write_row(out, update.static, static)
        out += unsigned_vint(len(update.rows))
        for item in update.unfiltered:
            if isinstance(item, WireRow):
                self._write_row(out, item, regular)
            else:
                self._write_marker(out, item)
        out.append(_END)

    def _write_row(self, out: bytearray, row: WireRow, columns: list[Column]) -> None:
        present = [column for column in columns if column.name in row.columns]
        complex_deleted = any(found.deletion is not None for found in row.columns.values())
        flags = _TIMED if row.time is not None else 0
        flags |= _EXPIRES if row.expiry is not None else 0
        flags |= _DELETED if row.deletion is not None else 0
        flags |= _ALL_COLUMNS if len(present) == len(columns) else 0
        flags |= _COMPLEX_DELETED if complex_deleted else 0
        if row.clustering is None:
            out += bytes((flags | _EXTENDED, _EXTENDED_STATIC))
        else:
            out.append(flags)
            self._write_clustering(out, row.clustering)
        if row.time is not None:
            self._write_time(out, row.time)
        if row.expiry is not None:
            out += unsigned_vint(row.expiry.ttl_s - self._ttl)
            self._write_local(out, row.expiry.expires_s)
        if row.deletion is not None:
            self._write_deletion(out, row.deletion)
        if len(present) < len(columns):
            _write_subset(out, [column.name in row.columns for column in columns])
        for column in present:
            self._write_column(out, row, column, row.columns[column.name], complex_deleted=complex_deleted)

    def _write_column(
        self, out: bytearray, row: WireRow, column: Column, found: WireColumn, *, complex_deleted: bool
    ) -> None:
        if is_complex(column):
            if complex_deleted:
                self._write_deletion(out, found.deletion)
            out += unsigned_vint(len(found.cells))
            for cell in found.cells:
                self._write_cell(out, row, cell, None)
        else:
            (cell,) = found.cells
            self._write_cell(out, row, cell, None if column.type.multi_cell else fixed_length(column.type))

    def _write_cell(self, out: bytearray, row: WireRow, cell: WireCell, length: int | None) -> None:
        """A cell. `length` is the type's fixed one, of a simple column only: a collection's cell always says it."""
        row_time = row.time is not None and cell.time == row.time
        expires = cell.ttl_s is not None
        row_expiry = expires and row.expiry is not None and (cell.ttl_s, cell.local_s) == tuple(row.expiry)
        flags = 0 if cell.value else _CELL_EMPTY
        flags |= _CELL_DELETED if cell.is_tombstone else 0
        flags |= _CELL_EXPIRES if expires else 0
        flags |= _CELL_ROW_TIME if row_time else 0
        flags |= _CELL_ROW_EXPIRY if row_expiry else 0
        out.append(flags)
        if not row_time:
            self._write_time(out, cell.time)
        if cell.local_s is not None and not row_expiry:
            self._write_local(out, cell.local_s)
        if cell.ttl_s is not None and not row_expiry:
            out += unsigned_vint(cell.ttl_s - self._ttl)
        if cell.path is not None:
            out += unsigned_vint(len(cell.path)) + cell.path
        if cell.value:
            if length is None:
                out += unsigned_vint(len(cell.value))
            out += cell.value

    def _write_marker(self, out: bytearray, marker: WireMarker) -> None:
        out += bytes((_MARKER, marker.kind)) + struct.pack(">H", len(marker.values))
        self._write_clustering(out, marker.values)
        for deletion in marker.deletions:
            self._write_deletion(out, deletion)

    def _write_clustering(self, out: bytearray, values: tuple[Any, ...]) -> None:
        for start in range(0, len(values), _CLUSTERING_BATCH):
            batch = list(zip(self._schema.clustering, values, strict=False))[start : start + _CLUSTERING_BATCH]
            head = 0
            body = bytearray()
            for number, (column, value) in enumerate(batch):
                data = serialized(column.type, value)
                if value is None:
                    head |= 2 << 2 * number
                elif not data:
                    head |= 1 << 2 * number
                else:
                    body += _value(column.type, data)
            out += unsigned_vint(head) + body

    def _write_time(self, out: bytearray, time: int) -> None:
        out += unsigned_vint((time - self._time) & _MASK)

    def _write_local(self, out: bytearray, second: int) -> None:
        out += unsigned_vint(_int32(second - self._local))

    def _write_deletion(self, out: bytearray, deletion: Deletion | None) -> None:
        """A deletion; where a row has one, its other collections say that they have none."""
        self._write_time(out, _NO_TIME if deletion is None else deletion.time)
        self._write_local(out, _NO_LOCAL[self._format] if deletion is None else local_second(deletion))


def _value(kind: Type, data: bytes) -> bytes:
    return data if fixed_length(kind) is not None else unsigned_vint(len(data)) + data


def _int32(value: int) -> int:
    """A Java int that is written as if it had no sign: negative ones become long ones of 64 bits."""
    wrapped = (value + (1 << 31)) % (1 << 32) - (1 << 31)
    return wrapped & _MASK


def _write_names(out: bytearray, columns: list[Column]) -> None:
    out += unsigned_vint(len(columns))
    for column in columns:
        name = column.name.encode()
        out += unsigned_vint(len(name)) + name


def _write_subset(out: bytearray, present: list[bool]) -> None:
    """Which of the header's columns a row has: a bit for each missing one, or a list of the fewer ones."""
    if len(present) < _COLUMNS_BITMAP_MAX:
        out += unsigned_vint(sum(1 << number for number, there in enumerate(present) if not there))
        return
    count = sum(present)
    out += unsigned_vint(len(present) - count)
    listed = count < len(present) // 2
    for number, there in enumerate(present):
        if there is listed:
            out += unsigned_vint(number)


def _stats(update: PartitionUpdate) -> tuple[list[int], list[int], list[int]]:
    """All times, seconds and times to live of an update."""
    times: list[int] = []
    seconds: list[int] = []
    ttls: list[int] = []

    def note(deletion: Deletion | None) -> None:
        if deletion is not None:
            times.append(deletion.time)
            seconds.append(local_second(deletion))

    note(update.deletion)
    for item in (*([update.static] if update.static else []), *update.unfiltered):
        if isinstance(item, WireMarker):
            for deletion in item.deletions:
                note(deletion)
            continue
        if item.time is not None:
            times.append(item.time)
        if item.expiry is not None:
            ttls.append(item.expiry.ttl_s)
            seconds.append(item.expiry.expires_s)
        note(item.deletion)
        for column in item.columns.values():
            note(column.deletion)
            for cell in column.cells:
                times.append(cell.time)
                seconds += () if cell.local_s is None else (cell.local_s,)
                ttls += () if cell.ttl_s is None else (cell.ttl_s,)
    return times, seconds, ttls
