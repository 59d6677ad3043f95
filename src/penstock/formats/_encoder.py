# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""RowEncoder: where the decoders of database logs write their changes, field by field, without Python objects.

A row is written in the record's order: `begin`, then any of `origin`, `marker`, `deletion`, `range`, then the key
columns, the cells and the before image, each by rising column number, then `finish`. What is left out becomes null or
absent by itself. `key`, `cell_set` and `old` announce a value, which the caller then puts into `rows` in the Avro form
of the column's type (docs/formats/change-record.md); nothing else may be put there in between. A call out of order
raises ValueError, and `abandon` takes an unfinished row back.

    encoder = RowEncoder(schema)
    encoder.begin(0, write_time, NO_TIME, now)
    encoder.key(0)
    encoder.rows.put_long(7)
    encoder.cell_set(0)
    encoder.rows.put_bytes(b"text")
    encoder.stamp(NO_TIME, 60, expires_s)
    encoder.finish()

From Cython: `from penstock.formats._encoder cimport RowEncoder`; all calls are C calls then.
"""

from __future__ import annotations

from typing import Any

import cython

from penstock.formats._kernel import RowBuffer

compiled: bool = cython.compiled

# Stands for a time that is not known; it is also what Cassandra writes for none.
NO_TIME = -(1 << 63)
NONE = NO_TIME

# The fields of the record, in order; see docs/formats/change-record.md.
if not cython.compiled:
    ORIGIN, MARKER, DELETION, RANGE, KEY, CELLS, BEFORE, SEAL = range(4, 12)
    IDLE = 99


class RowEncoder:
    """Writes rows of one table schema. `rows` has all finished rows and, between begin and finish, a part of one."""

    def __init__(self, schema: Any) -> None:
        self.rows = RowBuffer(4096)
        self.count = 0
        self.keys = len(schema.key)
        self.cells = len(schema.cells)
        self.olds = len(schema.columns)
        self.deltas = bytes(column.type.multi_cell for column in schema.cells)
        self.field = IDLE
        self.column = 0
        self.stamp_open = False
        self.started = 0

    def begin(self, op: int, time: int, commit_time: int, capture_time: int) -> int:
        """Start a row. `op` is the number of the operation; a time may be NO_TIME."""
        if self.field != IDLE:
            raise ValueError("the row before is not finished")
        if op < 0 or op > 6:
            raise ValueError("no such operation")
        self.started = self.rows.size
        self.rows.put_long(op)
        self.put_time(time)
        self.put_time(commit_time)
        self.put_time(capture_time)
        self.field = ORIGIN
        return 0

    def origin(self, prefix: bytes, ordinal: int) -> int:
        """Where the change comes from: the encoded fields before the ordinal (`origin_prefix`), and the ordinal."""
        self.advance(ORIGIN)
        self.rows.put_byte(2)
        self.rows.put_raw(prefix)
        self.put_time(ordinal)
        self.field = MARKER
        return 0

    def marker(self, time: int, ttl_s: int, expires_s: int) -> int:
        """The row's liveness; no expiry when `expires_s` is NO_TIME."""
        self.advance(MARKER)
        self.rows.put_byte(2)
        self.put_time(time)
        self.put_expiry(ttl_s, expires_s)
        self.field = DELETION
        return 0

    def deletion(self, time: int, local_s: int) -> int:
        self.advance(DELETION)
        self.rows.put_byte(2)
        self.rows.put_long(time)
        self.put_time(local_s)
        self.field = RANGE
        return 0

    def range(self, encoded: bytes) -> int:
        """The encoded Range record."""
        self.advance(RANGE)
        self.rows.put_byte(2)
        self.rows.put_raw(encoded)
        self.field = KEY
        return 0

    def key(self, column: int) -> int:
        """The value of this key column follows in `rows`."""
        self.advance(KEY)
        self.reach(column, self.keys)
        self.rows.put_byte(2)
        return 0

    def cell_set(self, column: int) -> int:
        """The cell now has the value that follows in `rows`; a `stamp` may follow that."""
        self.cell_null(column)
        self.rows.cut(self.rows.size - 1)
        self.rows.put_byte(2)
        return 0

    def cell_null(self, column: int) -> int:
        """The cell is set to null; a `stamp` may follow."""
        self.advance(CELLS)
        self.reach(column, self.cells)
        self.rows.put_byte(2)
        self.rows.put_byte(0)
        self.stamp_open = True
        return 0

    def stamp(self, time: int, ttl_s: int, expires_s: int) -> int:
        """The time and expiry of the cell just set; either may be NO_TIME."""
        if not self.stamp_open:
            raise ValueError("a stamp without a cell")
        self.stamp_open = False
        if time == NONE and expires_s == NONE:
            self.rows.put_byte(0)
            return 0
        self.rows.put_byte(2)
        self.put_time(time)
        self.put_expiry(ttl_s, expires_s)
        return 0

    def cell_deleted(self, column: int, time: int, local_s: int) -> int:
        self.advance(CELLS)
        self.reach(column, self.cells)
        self.rows.put_byte(4)
        self.put_time(time)
        self.put_time(local_s)
        return 0

    def cell_delta(self, column: int) -> int:
        """The Delta record of a non-frozen column follows in `rows`."""
        self.advance(CELLS)
        self.reach(column, self.cells)
        if not self.deltas[column]:
            raise ValueError("a delta of a column that is one cell")
        self.rows.put_byte(6)
        return 0

    def old(self, column: int) -> int:
        """The old value of a column, of all columns in table order, follows in `rows`."""
        self.old_null(column)
        self.rows.cut(self.rows.size - 1)
        self.rows.put_byte(2)
        return 0

    def old_null(self, column: int) -> int:
        """The old value of a column was null."""
        if self.field < BEFORE:
            self.advance(BEFORE)
            self.rows.put_byte(2)
        elif self.field != BEFORE:
            raise ValueError("the fields of a row are out of order")
        self.reach(column, self.olds)
        self.rows.put_byte(2)
        self.rows.put_byte(0)
        return 0

    def finish(self) -> int:
        """End the row; what was left out is null or absent."""
        self.advance(SEAL)
        self.rows.put_byte(0)
        self.field = IDLE
        self.count += 1
        return 0

    def abandon(self) -> int:
        """Take the unfinished row back."""
        if self.field != IDLE:
            self.rows.cut(self.started)
            self.field = IDLE
            self.column = 0
            self.stamp_open = False
        return 0

    def put_time(self, time: int) -> int:
        """A nullable long."""
        if time == NONE:
            self.rows.put_byte(0)
            return 0
        self.rows.put_byte(2)
        self.rows.put_long(time)
        return 0

    def put_expiry(self, ttl_s: int, expires_s: int) -> int:
        if expires_s == NONE:
            self.rows.put_byte(0)
            return 0
        self.rows.put_byte(2)
        self.rows.put_long(ttl_s)
        self.rows.put_long(expires_s)
        return 0

    def reach(self, column: int, columns: int) -> int:
        """Leave the columns before this one out."""
        if column < self.column or column >= columns:
            raise ValueError("the columns of a row are out of order")
        self.close_stamp()
        self.fill(column)
        self.column = column + 1
        return 0

    def fill(self, columns: int) -> int:
        while self.column < columns:
            self.rows.put_byte(0)
            self.column += 1
        return 0

    def close_stamp(self) -> int:
        if self.stamp_open:
            self.rows.put_byte(0)
            self.stamp_open = False
        return 0

    def advance(self, field: int) -> int:
        """Complete the fields before this one."""
        if self.field > field:
            raise ValueError("the fields of a row are out of order")
        while self.field < field:
            if self.field == KEY:
                self.fill(self.keys)
            elif self.field == CELLS:
                self.close_stamp()
                self.fill(self.cells)
            elif self.field == BEFORE and self.column:
                self.fill(self.olds)
            else:
                self.rows.put_byte(0)
            self.field += 1
            self.column = 0
        return 0
