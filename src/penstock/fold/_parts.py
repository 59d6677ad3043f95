# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The parts of a row, as the join kernel compares them, and how their times are written."""

from __future__ import annotations

from array import array

import cython

from penstock.formats._kernel import RowBuffer

if not cython.compiled:
    ABSENT, LASTING, EXPIRING, TOMBSTONE, OPAQUE = range(5)

compiled: bool = cython.compiled

_MOST = 0x7FFFFFFFFFFFFFFF
# Below every write time.
NEVER = -_MOST - 1
_DELETED = 2
_INSERT = 0
_DELETE = 2
_DELETE_PARTITION = 3
_SNAPSHOT = 6


class RowParts:
    """One row taken apart: what joining compares, and where the bytes of key and values stand."""

    def __init__(self, cells: int) -> None:
        size = max(cells, 1)
        self.cells = cells
        self.kinds = memoryview(array("q", [0] * size))
        self.times = memoryview(array("q", [0] * size))
        self.seconds = memoryview(array("q", [0] * size))
        self.ttls = memoryview(array("q", [0] * size))
        self.starts = memoryview(array("q", [0] * size))
        self.ends = memoryview(array("q", [0] * size))
        self.sources = memoryview(array("q", [0] * size))
        self.clear()

    @cython.boundscheck(False)
    def clear(self) -> int:
        for index in range(self.cells):
            self.kinds[index] = ABSENT
        self.op = 0
        self.opaques = 0
        self.version = NEVER
        self.time_max = NEVER
        self.marker_kind = ABSENT
        self.marker_time = 0
        self.marker_second = 0
        self.marker_ttl = 0
        self.deleted = 0
        self.deletion_time = NEVER
        self.deletion_second = -1
        self.key_source = 0
        self.key_start = 0
        self.key_end = 0
        self.origin_source = 0
        self.origin_start = 0
        self.origin_end = 0
        return 0

    def seen(self, time: int) -> int:
        if time > self.time_max:
            self.time_max = time
        return 0

    @cython.boundscheck(False)
    def keep_above(self, floor: int) -> int:
        """Drop what a deletion covers."""
        if self.marker_kind != ABSENT and self.marker_time <= floor:
            self.marker_kind = ABSENT
        for index in range(self.cells):
            kind = self.kinds[index]
            if kind != ABSENT and kind != OPAQUE and self.times[index] <= floor:
                self.kinds[index] = ABSENT
        return 0

    @cython.boundscheck(False)
    def follow(self, change: RowParts, time: int) -> int:
        """Become what the row is after a change that comes later than all before it."""
        gone = change.op == _DELETE or change.op == _DELETE_PARTITION
        if gone or change.op == _INSERT or change.op == _SNAPSHOT:
            self.marker_kind = ABSENT
            for index in range(self.cells):
                self.kinds[index] = ABSENT
        self.deleted = gone
        self.deletion_time = time
        self.deletion_second = -1
        self.seen(time)
        self.origin_source = change.origin_source
        self.origin_start = change.origin_start
        self.origin_end = change.origin_end
        if gone:
            return 1
        self.marker_kind = LASTING
        self.marker_time = time
        for index in range(self.cells):
            if change.kinds[index] == ABSENT:
                continue
            self.kinds[index] = change.kinds[index]
            self.times[index] = time
            self.seconds[index] = change.seconds[index]
            self.ttls[index] = change.ttls[index]
            self.starts[index] = change.starts[index]
            self.ends[index] = change.ends[index]
            self.sources[index] = change.sources[index]
        return 1

    def marker_wins(self, other: RowParts) -> int:
        """Whether this row's marker is the later one."""
        if other.marker_kind == ABSENT:
            return 1
        if self.marker_time != other.marker_time:
            return self.marker_time > other.marker_time
        if self.marker_kind != other.marker_kind:
            return self.marker_kind > other.marker_kind
        if self.marker_second != other.marker_second:
            return self.marker_second > other.marker_second
        return self.marker_ttl > other.marker_ttl

    @cython.boundscheck(False)
    def alive(self, now_s: int) -> int:
        """Whether there is a row at this second."""
        if self.marker_kind == LASTING or (self.marker_kind == EXPIRING and now_s < self.marker_second):
            return 1
        for index in range(self.cells):
            kind = self.kinds[index]
            if kind == LASTING or kind == OPAQUE or (kind == EXPIRING and now_s < self.seconds[index]):
                return 1
        return 0

    @cython.boundscheck(False)
    def due(self, now_s: int) -> int:
        """The first second after this one at which something expires; 0 when nothing does."""
        found = 0
        if self.marker_kind == EXPIRING and self.marker_second > now_s:
            found = self.marker_second
        for index in range(self.cells):
            second = self.seconds[index]
            if self.kinds[index] == EXPIRING and second > now_s and (found == 0 or second < found):
                found = second
        return found


def put_stamp(out: RowBuffer, time: int, kind: int, ttl_s: int, second: int) -> int:
    out.put_byte(2)
    out.put_long(time)
    if kind == EXPIRING:
        out.put_byte(2)
        out.put_long(ttl_s)
        out.put_long(second)
    else:
        out.put_byte(0)
    return 0


def put_tombstone(out: RowBuffer, time: int, second: int) -> int:
    out.put_long(_DELETED)
    out.put_byte(2)
    out.put_long(time)
    put_second(out, second)
    return 0


def put_second(out: RowBuffer, second: int) -> int:
    if second < 0:
        out.put_byte(0)
    else:
        out.put_byte(2)
        out.put_long(second)
    return 0
