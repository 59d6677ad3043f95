# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""Rows as most statements write them, written while they are read: scalars, and living elements of collections.

One source, two lives, as the kernels of the formats. The record wants a change's time before its cells. Where the row
has a marker, its time is the change's; where it has none, the first cell's time is taken, and most often no cell has a
later one. Whatever is not as expected, from an order of columns to damage, is left to the way through the scratch table
(_updates.py): then nothing was done here, so that this way never says what is wrong.
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

from penstock.capture.cassandra.decoding._cells import CellReader, ColumnList, TablePlan
from penstock.formats._kernel import RowBuffer

compiled: bool = cython.compiled

if not cython.compiled:
    from penstock.capture.cassandra.decoding._cells import (
        AT,
        CELL_BYTES_MORE,
        LINE,
        LIVE,
        LOCAL,
        NOTHING,
        SET_CELLS,
        SIZE,
        STATE,
        TIME,
        TTL,
    )
    from penstock.capture.cassandra.decoding._values import (
        BYTES,
        NO_TIME,
        TEXT,
        copy,
        counted,
        fill,
        put_deleted,
        put_deletion,
        put_long,
        put_scalar,
        put_scalar_here,
        put_stamp,
        signed64,
        vint_bytes,
        vint_value,
    )

    # The operations, as the record has their numbers.
    INSERT, UPDATE = 0, 2
    # A delta with more elements is left to the other way, which makes room for each.
    ELEMENTS_MAX = 64


class PlainRows(CellReader):
    """Writes plain rows; `front` has what stands in each change between its time and its ordinal."""

    def __init__(self) -> None:
        super().__init__()
        # Cells that a row has, when it does not have all; offset and length of clustering values.
        self.chosen_view = memoryview(array("i", bytes(4)))
        self.places_view = memoryview(array("q", bytes(16)))
        self.front = RowBuffer(256)
        self.key = RowBuffer(256)
        self.ordinal = 0
        self.ceiling = 0

    def make_room(self, plan: TablePlan) -> None:
        """Make room for the rows of this table."""
        self.widen(plan.cells)
        if len(self.chosen_view) <= self.lines:
            self.chosen_view = memoryview(array("i", bytes(4 * (self.lines + 1))))
        if len(self.places_view) < 2 * (plan.clusterings + 1):
            self.places_view = memoryview(array("q", bytes(16 * (plan.clusterings + 1))))
        if cython.compiled:
            self.chosen = cython.address(self.chosen_view[0])
            self.places = cython.address(self.places_view[0])
        else:
            self.chosen = self.chosen_view
            self.places = self.places_view

    def write_plain(self, plan: TablePlan, columns: ColumnList, count: int, static: bool, with_deletions: bool) -> bool:
        """A row of which only the cells are left to read. False: it is not plain, and nothing was done.

        `count` cells of `chosen` are there, or all of the list where it is negative.
        """
        rows = plan.rows
        start = self.at
        size = rows.size
        cells = self.chosen
        if count < 0:
            count = columns.count
            cells = columns.cells
        time = self.marker_time
        if time == NO_TIME and count > 0:
            time = self.first_time(plan, cells[0], with_deletions)
        if time != NO_TIME and size <= self.ceiling:
            pos = self.put_head(plan, static, time)
            if pos >= 0:
                pos = self.put_cells(plan, cells, count, pos, time, with_deletions)
            if pos >= 0:
                rows.size = pos
                plan.count += 1
                self.ordinal += 1
                if time > plan.when_max:
                    plan.when_max = time
                return True
        rows.size = size
        self.at = start
        self.problem = NOTHING
        self.row_time = NO_TIME
        return False

    @cython.boundscheck(False)
    def first_time(self, plan: TablePlan, cell: int, with_deletions: bool) -> int:
        """The time of the first cell, which is not read yet; NO_TIME when it has none of its own."""
        at = self.at
        if plan.kinds[cell] < 0:
            if with_deletions:
                self.time()
                self.local()
            # The first of some elements, or what will not do for one.
            if self.uv() == 0 or self.problem:
                return NO_TIME
            at, self.at = self.at, at
        if at >= self.end or self.src[at] & 0x08:
            return NO_TIME
        step = vint_bytes(self.src, at + 1, self.end)
        return signed64(self.min_time + vint_value(self.src, at + 1, step)) if step else NO_TIME

    @cython.boundscheck(False)
    def put_head(self, plan: TablePlan, static: bool, time: int) -> int:
        """The change up to its cells, and room for those; where they begin, or -1."""
        rows = plan.rows
        front = self.front
        key = self.key
        size = front.size + key.size + self.entry_size + CELL_BYTES_MORE * (plan.clusterings + plan.cells + 4)
        if size > rows.capacity - rows.size:
            rows.reserve(size)
        if cython.compiled:
            out = cython.address(rows.data[0])
            source = cython.address(key.data[0])
        else:
            out = rows.store
            source = key.store
        pos = self.put_front(out, rows.size, UPDATE if self.marker_time == NO_TIME else INSERT, time)
        # No deletion, no range.
        out[pos] = 0
        out[pos + 1] = 0
        copy(out, pos + 2, source, 0, key.size)
        pos += 2 + key.size
        places = self.places
        for index in range(plan.clusterings):
            size = -1 if static else places[2 * index + 1]
            kind = plan.clustering_kinds[index]
            if size > 0 or (size == 0 and kind >= TEXT and kind <= BYTES):
                out[pos] = 2
                pos = put_scalar(out, pos + 1, self.src, places[2 * index], size, kind)
                if pos < 0:
                    return -1
            else:
                out[pos] = 0
                pos += 1
        return pos

    @cython.boundscheck(False)
    def put_front(self, out: Any, pos: int, operation: int, time: int) -> int:
        """A change up to its marker, where there is room; where it ends."""
        front = self.front
        source = cython.address(front.data[0]) if cython.compiled else front.store
        out[pos] = operation
        out[pos + 1] = 2
        pos = put_long(out, pos + 2, time)
        copy(out, pos, source, 0, front.size)
        pos = put_long(out, pos + front.size, self.ordinal)
        if operation != INSERT:
            out[pos] = 0
            return pos + 1
        # The marker's time is the change's.
        out[pos] = 2
        out[pos + 1] = 0
        if self.marker_ttl == 0:
            out[pos + 2] = 0
            return pos + 3
        out[pos + 2] = 2
        pos = put_long(out, pos + 3, self.marker_ttl)
        return put_long(out, pos, self.marker_local)

    @cython.boundscheck(False)
    def put_cells(self, plan: TablePlan, cells: Any, count: int, pos: int, time: int, with_deletions: bool) -> int:
        """The cells and the change's end, where there is room; where it ends, or -1."""
        out = cython.address(plan.rows.data[0]) if cython.compiled else plan.rows.store
        src, at, end = self.src, self.at, self.end
        marker = self.marker_time
        following = 0
        for index in range(count):
            cell = cells[index]
            if following < cell:
                fill(out, pos, cell - following)
                pos += cell - following
            following = cell + 1
            kind = plan.kinds[cell]
            if kind < 0:
                self.at = at
                pos = self.put_delta(plan, cell, pos, time, with_deletions)
                if pos < 0:
                    return -1
                out = cython.address(plan.rows.data[0]) if cython.compiled else plan.rows.store
                at = self.at
                continue
            if at >= end:
                return -1
            flags = src[at]
            at += 1
            own = marker
            if not flags & 0x08:
                step = vint_bytes(src, at, end)
                own = signed64(self.min_time + vint_value(src, at, step)) if step else NO_TIME
                at += step
            if own == NO_TIME or (own > time and marker == NO_TIME):
                return -1
            if flags & 0x13:
                self.at = at
                pos = self.put_expiring(plan, cell, out, pos, own, time, flags)
                if pos < 0:
                    return -1
                at = self.at
                continue
            size = 0 if flags & 0x04 else plan.widths[cell]
            if size < 0:
                size = counted(src, at, end)
                at += vint_bytes(src, at, end)
            if size < 0 or size > end - at:
                return -1
            out[pos] = 2
            out[pos + 1] = 0
            pos += 2
            if size or (kind >= TEXT and kind <= BYTES):
                out[pos - 1] = 2
                pos = put_scalar_here(out, pos, src, at, size, kind)
                if pos < 0:
                    return -1
            at += size
            pos = put_stamp(out, pos, own, time, 0, NO_TIME)
        self.at = at
        # The cells that are left, no before image, no seal.
        fill(out, pos, plan.cells + 2 - following)
        return pos + plan.cells + 2 - following

    @cython.boundscheck(False)
    def put_expiring(self, plan: TablePlan, cell: int, out: Any, pos: int, own: int, time: int, flags: int) -> int:
        """A cell with a time to live, or a tombstone, where there is room; where it ends, or -1."""
        local = self.marker_local
        ttl = self.marker_ttl
        if not flags & 0x10:
            local = self.local()
            ttl = self.ttl() if flags & 0x02 else 0
        if self.problem or local < 0 or ttl < 0:
            return -1
        if ttl == 0:
            if not flags & 0x04:
                return -1
            out[pos] = 4
            return put_deleted(out, pos + 1, own, time, local)
        size = 0 if flags & 0x04 else plan.widths[cell]
        if size < 0:
            size = counted(self.src, self.at, self.end)
            self.at += vint_bytes(self.src, self.at, self.end)
        if size < 0 or size > self.end - self.at:
            return -1
        out[pos] = 2
        out[pos + 1] = 0
        pos += 2
        kind = plan.kinds[cell]
        if size or (kind >= TEXT and kind <= BYTES):
            out[pos - 1] = 2
            pos = put_scalar(out, pos, self.src, self.at, size, kind)
            if pos < 0:
                return -1
        self.at += size
        return put_stamp(out, pos, own, time, ttl, local)

    @cython.boundscheck(False)
    def put_delta(self, plan: TablePlan, cell: int, pos: int, time: int, with_deletion: bool) -> int:
        """A delta of living elements, and room for what follows; where it ends, or -1."""
        rows = plan.rows
        deleted = NO_TIME
        local = NO_TIME
        if with_deletion:
            deleted = self.time()
            local = self.local()
        count = self.uv()
        if self.problem or count == 0 or count > ELEMENTS_MAX:
            return -1
        rows.size = pos
        rows.reserve(self.entry_size + CELL_BYTES_MORE * (2 * count + plan.cells + 4))
        out = cython.address(rows.data[0]) if cython.compiled else rows.store
        out[pos] = 6
        pos = put_deletion(out, pos + 1, deleted, local)
        pos = put_long(out, pos, count)
        path_kind = plan.path_kinds[cell]
        kind = plan.element_kinds[cell]
        scratch = self.scratch
        place = self.lines * LINE
        for _ in range(count):
            if self.read_cell(self.lines, -1, True) or scratch[place + STATE] != LIVE:
                return -1
            if self.path_size == 0 and (path_kind < TEXT or path_kind > BYTES):
                return -1
            pos = put_scalar(out, pos, self.src, self.path_at, self.path_size, path_kind)
            if pos < 0:
                return -1
            size = scratch[place + SIZE]
            if plan.shapes[cell] == SET_CELLS:
                if size:
                    return -1
            elif size or (kind >= TEXT and kind <= BYTES):
                out[pos] = 2
                pos = put_scalar(out, pos + 1, self.src, scratch[place + AT], size, kind)
                if pos < 0:
                    return -1
            else:
                out[pos] = 0
                pos += 1
            pos = put_stamp(out, pos, scratch[place + TIME], time, scratch[place + TTL], scratch[place + LOCAL])
        if self.row_time > time and self.marker_time == NO_TIME:
            return -1
        # No more living ones, none that are gone.
        out[pos] = 0
        out[pos + 1] = 0
        return pos + 2
