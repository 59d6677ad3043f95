# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The parts of a row, as the join kernel compares them."""

from __future__ import annotations

from array import array

import cython

if not cython.compiled:
    ABSENT, LASTING, EXPIRING, TOMBSTONE, OPAQUE = range(5)

compiled: bool = cython.compiled

_MOST = 0x7FFFFFFFFFFFFFFF
# Below every write time.
NEVER = -_MOST - 1


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
