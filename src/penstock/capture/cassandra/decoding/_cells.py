# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""Cells of a commit log: read into a scratch table, one line per column, and written in the record's order from there.

One source, two lives, as the kernels of the formats. `CellReader` is the cursor over one mutation's bytes, and what
`Mutations` stands on. Every length is compared with the bytes that are left before it is used. A read that fails sets
`problem` and gives zero; whoever loops looks at `problem` in each turn.

A line of the scratch table has the cell's state, time, local second, time to live, and where its value is and how long.
The line of a delta has the time and second of the whole column's deletion, where its cells begin, how many there are,
how many live and how many do not.
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

from penstock.capture.cassandra.decoding._values import Values
from penstock.formats._kernel import RowBuffer

compiled: bool = cython.compiled

if not cython.compiled:
    from penstock.capture.cassandra.decoding._values import (
        BYTES,
        FITS,
        MORE_FIELDS,
        NO_TIME,
        TEXT,
        be64,
        copy,
        counted,
        local_second,
        put_deleted,
        put_deletion,
        put_long,
        put_scalar,
        put_stamp,
        signed32,
        signed64,
        vint_bytes,
        vint_value,
    )

    # What is wrong with a mutation; `PROBLEMS` has the words. Up to UNKNOWN_FIELD a newer schema can help.
    (
        NOTHING,
        UNKNOWN_TABLE,
        UNKNOWN_COLUMN,
        WAITING,
        UNKNOWN_FIELD,
        SHORT,
        UNFIT,
        ODD_FLAGS,
        ODD_COLUMNS,
        ODD_RANGES,
        ODD_TIMES,
        TRAILING,
        TOO_LARGE,
    ) = range(13)
    # How a column's cells stand in the log.
    SIMPLE, LIST_CELLS, SET_CELLS, MAP_CELLS, FIELD_CELLS, COUNTER_CELL = range(6)
    ABSENT, LIVE, DEAD, DELTA = range(4)
    # The fields of a line of the scratch table.
    STATE, TIME, LOCAL, TTL, AT, SIZE, LIVING, GONE, LINE = range(9)
    # What a scalar takes in a row at most, beside its own bytes: value, stamp and the branches of their unions.
    CELL_BYTES_MORE = 64

PROBLEMS = (
    "",
    "the table is not known",
    "a column is not known",
    "earlier entries of the table wait for its schema",
    "a user type has a field that is not known",
    "it ends inside a value",
    "a value does not fit its type",
    "its flags make no sense",
    "its columns make no sense",
    "its range deletions do not pair",
    "a time or time to live is impossible",
    "bytes are left at its end",
    "its changes take too much memory",
)


class ColumnList:
    """The columns that an update's header names: the header's bytes, and the number of each among the table's cells.

    `plain` lists have only columns that can be written as they are read (_plain_rows.py).
    """

    def __init__(self, names: bytes, cells: list[int], plain: bool) -> None:
        self.view = memoryview(names)
        self.size = len(names)
        self.count = len(cells)
        self.cells_view = memoryview(array("i", [*cells, 0]))
        self.plain = plain
        if cython.compiled:
            self.names = cython.address(self.view[0])
            self.cells = cython.address(self.cells_view[0])
        else:
            self.names = self.view
            self.cells = self.cells_view


class TablePlan:
    """How one table's updates are read, and the rows that were made of them so far.

    `keys` has the nodes of the partition and the clustering columns; `cells` for each cell its node, the node of its
    paths, its shape, and the length of its values where that is fixed; `numbers` the number of each static and each
    regular column among the cells, by the bytes of its name.
    """

    def __init__(
        self, table_id: bytes, mode: int, learns: bool, values: Values, keys: Any, cells: Any, numbers: Any
    ) -> None:
        if len(table_id) != 16:
            raise ValueError("a table id has 16 bytes")
        size = values.size()
        for used in (*keys, cells[0], cells[1]):
            if any(not 0 <= node < size for node in used):
                raise ValueError("a plan refers to a node that does not exist")
        if any(len(table) != len(cells[0]) for table in cells):
            raise ValueError("the tables of a plan differ in length")
        self.table_id = table_id
        self.view = memoryview(table_id)
        self.id = cython.address(self.view[0]) if cython.compiled else self.view
        self.mode = mode
        self.learns = learns
        self.values = values
        self.partitions = len(keys[0])
        self.clusterings = len(keys[1])
        self.cells = len(cells[0])
        # Buffers of length zero cannot be exported, so each has one entry more than it needs.
        self.partition = memoryview(array("i", [*keys[0], 0]))
        self.clustering = memoryview(array("i", [*keys[1], 0]))
        # The kinds of key columns that are scalars, -1 for the others.
        self.partition_kinds = memoryview(array("i", [*map(values.kind, keys[0]), 0]))
        self.clustering_kinds = memoryview(array("i", [*map(values.kind, keys[1]), 0]))
        self.clustering_widths = memoryview(array("i", [*map(values.width, keys[1]), 0]))
        self.nodes = memoryview(array("i", [*cells[0], 0]))
        self.paths = memoryview(array("i", [*cells[1], 0]))
        self.shapes = memoryview(array("i", [*cells[2], 0]))
        self.widths = memoryview(array("i", [*cells[3], 0]))
        # The kinds of scalars that are one cell, -1 for all others.
        kinds = [-1 if shape else values.kind(node) for node, shape in zip(cells[0], cells[2], strict=True)]
        self.kinds = memoryview(array("i", [*kinds, 0]))
        # The kinds of the paths and the elements of non-frozen columns, -1 for those with parts.
        self.path_kinds = memoryview(array("i", [*map(values.kind, cells[1]), 0]))
        self.element_kinds = memoryview(array("i", [*map(values.kind, cells[0]), 0]))
        self.static_numbers, self.regular_numbers = numbers
        self.static_lists: list[ColumnList] = []
        self.regular_lists: list[ColumnList] = []
        self.rows = RowBuffer(4096)
        self.count = 0
        self.when_max = NO_TIME
        # The cluster's metadata epoch in which the table was last altered, where the log says it.
        self.epoch = 0
        self.serial = 0
        self.mark_size = 0
        self.mark_count = 0
        self.mark_when = NO_TIME
        self.touched_before: TablePlan | None = None

    def is_plain(self, cells: list[int]) -> bool:
        """Whether these cells stand in the table's order, and all of them and the clustering columns are scalars, or
        non-frozen collections of scalars."""
        if cells != sorted(cells) or any(self.clustering_kinds[index] < 0 for index in range(self.clusterings)):
            return False
        for cell in cells:
            shape = self.shapes[cell]
            if shape == SIMPLE:
                plain = self.kinds[cell] >= 0
            elif shape == SET_CELLS:
                plain = self.path_kinds[cell] >= 0
            else:
                plain = shape == LIST_CELLS or shape == MAP_CELLS
                plain = plain and self.path_kinds[cell] >= 0 and self.element_kinds[cell] >= 0
            if not plain:
                return False
        return True

    def take(self, capacity_max: int) -> tuple[int, bytes, int]:
        """The number of changes, their rows and the greatest time; all of it is handed over."""
        taken = self.count, self.rows.take(), self.when_max
        self.count = 0
        self.when_max = NO_TIME
        if self.rows.capacity > capacity_max:
            self.rows = RowBuffer(4096)
        else:
            self.rows.cut(0)
        return taken

    def append(self, row: bytes, when: int) -> None:
        """A change that was encoded elsewhere."""
        self.rows.put_raw(row)
        self.count += 1
        self.when_max = max(self.when_max, when)


class CellReader:
    """A cursor over one mutation, and the scratch table of one row."""

    def __init__(self) -> None:
        self.use(b"\0")
        self.end = 0
        self.problem = NOTHING
        self.unsigned_local = False
        self.min_time = 0
        self.min_local = 0
        self.min_ttl = 0
        self.row_time = NO_TIME
        self.marker_time = NO_TIME
        self.marker_local = NO_TIME
        self.marker_ttl = 0
        self.path_at = 0
        self.path_size = 0
        self.entry_size = 0
        self.lines = -1
        self.widen(0)

    def use(self, source: Any) -> None:
        """Read from this buffer, which must not change meanwhile."""
        self.source = source
        self.view = memoryview(source)
        self.size = len(self.view)
        self.at = 0
        if cython.compiled:
            self.src = cython.address(self.view[0])
        else:
            self.src = self.view

    def widen(self, cells: int) -> None:
        """Make room for rows of so many cells, and a line for the elements of deltas."""
        if cells > self.lines:
            self.lines = cells
            self.table = memoryview(array("q", bytes(8 * LINE * (cells + 1))))
            if cython.compiled:
                self.scratch = cython.address(self.table[0])
            else:
                self.scratch = self.table

    def fail(self, problem: int) -> int:
        """Note what is wrong, unless something was before."""
        if self.problem == NOTHING:
            self.problem = problem
        self.at = self.end
        return problem

    @cython.boundscheck(False)
    def byte(self) -> int:
        if self.at >= self.end:
            self.fail(SHORT)
            return 0
        self.at += 1
        return self.src[self.at - 1]

    @cython.boundscheck(False)
    def uv(self) -> int:
        """A variable-length unsigned number."""
        step = vint_bytes(self.src, self.at, self.end)
        if step == 0:
            self.fail(SHORT)
            return 0
        self.at += step
        return vint_value(self.src, self.at - step, step)

    def length(self) -> int:
        """A variable-length number of bytes that follow, and are there."""
        raw = self.uv()
        if raw > self.end - self.at:
            self.fail(SHORT)
            return 0
        return raw

    @cython.boundscheck(False)
    def time(self) -> int:
        # Mostly the row's own time, which is the update's least: one byte.
        if self.at < self.end and self.src[self.at] < 128:
            self.at += 1
            return signed64(self.min_time + self.src[self.at - 1])
        return signed64(self.min_time + self.uv())

    @cython.boundscheck(False)
    def uv32(self) -> int:
        """A number that Cassandra writes from 32 bits, a negative one with its sign extended to 64."""
        if self.at < self.end and self.src[self.at] < 128:
            self.at += 1
            return self.src[self.at - 1]
        raw = self.uv()
        if signed64(raw) != signed32(raw):
            self.fail(ODD_TIMES)
            return 0
        return raw

    def ttl(self) -> int:
        return signed32(self.min_ttl + self.uv32())

    def local(self) -> int:
        """A local deletion second; NO_TIME for none, another negative number when it makes no sense."""
        return local_second(self.min_local + self.uv32(), self.unsigned_local)

    @cython.boundscheck(False)
    def read_cell(self, line: int, width: int, has_path: bool) -> int:
        """One cell into a line of the scratch table; its path, if it has one, into `path_at` and `path_size`."""
        src = self.src
        at = self.at
        end = self.end
        if at >= end:
            return self.fail(SHORT)
        flags = src[at]
        at += 1
        time = self.marker_time
        local = NO_TIME
        ttl = 0
        if not flags & 0x08:
            step = vint_bytes(src, at, end)
            if step == 0:
                return self.fail(SHORT)
            time = signed64(self.min_time + vint_value(src, at, step))
            at += step
        if flags & 0x13:
            self.at = at
            local = self.marker_local if flags & 0x10 else self.local()
            ttl = self.marker_ttl if flags & 0x10 else self.ttl() if flags & 0x02 else 0
            at = self.at
        if has_path:
            self.path_size = counted(src, at, end)
            if self.path_size < 0:
                return self.fail(SHORT)
            self.path_at = at + vint_bytes(src, at, end)
            at = self.path_at + self.path_size
        size = 0
        if not flags & 0x04:
            size = width
            if width < 0:
                size = counted(src, at, end)
                if size < 0:
                    return self.fail(SHORT)
                at += vint_bytes(src, at, end)
            elif width > end - at:
                return self.fail(SHORT)
        state = LIVE
        if flags & 0x13:
            state = self.state_of(local, ttl, size)
            if state == ABSENT:
                return self.problem
        if time == NO_TIME:
            return self.fail(ODD_TIMES)
        if time > self.row_time:
            self.row_time = time
        place = line * LINE
        scratch = self.scratch
        scratch[place + STATE] = state
        scratch[place + TIME] = time
        scratch[place + LOCAL] = local
        scratch[place + TTL] = ttl
        scratch[place + AT] = at
        scratch[place + SIZE] = size
        self.at = at + size
        return NOTHING

    def state_of(self, local: int, ttl: int, size: int) -> int:
        """Whether a cell lives, which follows from its times, not from its flags; ABSENT when it makes no sense."""
        if self.problem:
            return ABSENT
        if ttl:
            if ttl > 0 and local >= 0:
                return LIVE
            self.fail(ODD_TIMES)
            return ABSENT
        if local == NO_TIME:
            return LIVE
        if local < 0 or size:
            self.fail(ODD_TIMES if local < 0 else UNFIT)
            return ABSENT
        return DEAD

    @cython.boundscheck(False)
    def read_delta(self, line: int, with_deletion: bool) -> int:
        """The cells of a non-frozen column: only counted here, and read again when they are written."""
        at = line * LINE
        time = NO_TIME
        local = NO_TIME
        if with_deletion:
            time = self.time()
            local = self.local()
        count = self.uv()
        # A cell has two bytes or more.
        if count > self.end - self.at:
            return self.fail(SHORT)
        self.scratch[at + AT] = self.at
        living = 0
        spare = self.lines * LINE
        for _ in range(count):
            if self.read_cell(self.lines, -1, True):
                return self.problem
            if self.scratch[spare + STATE] == LIVE:
                living += 1
        self.scratch[at + STATE] = DELTA if count or time != NO_TIME else ABSENT
        self.scratch[at + TIME] = time
        self.scratch[at + LOCAL] = local
        self.scratch[at + SIZE] = count
        self.scratch[at + LIVING] = living
        self.scratch[at + GONE] = count - living
        return self.problem

    def check(self, outcome: int) -> int:
        """The problem that writing a value has ended with."""
        if outcome == FITS:
            return NOTHING
        return self.fail(UNKNOWN_FIELD if outcome == MORE_FIELDS else UNFIT)

    @cython.boundscheck(False)
    def write_cells(self, plan: TablePlan, time: int) -> int:
        """All cells of the row in the scratch table, in the table's order."""
        rows = plan.rows
        scratch = self.scratch
        cell = 0
        while cell < plan.cells:
            # Room for all the scalars that are left; what has parts makes room for itself.
            rows.reserve(CELL_BYTES_MORE * (plan.cells - cell) + self.entry_size)
            out = cython.address(rows.data[0]) if cython.compiled else rows.store
            pos = rows.size
            while cell < plan.cells:
                place = cell * LINE
                state = scratch[place + STATE]
                kind = plan.kinds[cell]
                if state == ABSENT:
                    out[pos] = 0
                    pos += 1
                elif state == DEAD:
                    out[pos] = 4
                    pos = put_deleted(out, pos + 1, scratch[place + TIME], time, scratch[place + LOCAL])
                elif kind < 0:
                    break
                else:
                    size = scratch[place + SIZE]
                    out[pos] = 2
                    if size or (kind >= TEXT and kind <= BYTES):
                        out[pos + 1] = 2
                        pos = put_scalar(out, pos + 2, self.src, scratch[place + AT], size, kind)
                        if pos < 0:
                            return self.fail(UNFIT)
                    else:
                        out[pos + 1] = 0
                        pos += 2
                    pos = put_stamp(out, pos, scratch[place + TIME], time, scratch[place + TTL], scratch[place + LOCAL])
                cell += 1
            rows.size = pos
            if cell < plan.cells:
                if self.write_parts(plan, cell, time):
                    return self.problem
                cell += 1
        return NOTHING

    @cython.boundscheck(False)
    def write_parts(self, plan: TablePlan, cell: int, time: int) -> int:
        """A cell that is not one scalar."""
        rows = plan.rows
        place = cell * LINE
        if self.scratch[place + STATE] == DELTA:
            return self.write_delta(plan, cell, time)
        if plan.shapes[cell] == COUNTER_CELL:
            return self.write_counter(rows, cell, time)
        rows.put_byte(2)
        at = self.scratch[place + AT]
        if self.check(plan.values.write_or_null(rows, self.src, at, self.scratch[place + SIZE], plan.nodes[cell])):
            return self.problem
        return self.stamp(rows, cell, time)

    @cython.boundscheck(False)
    def stamp(self, rows: RowBuffer, line: int, time: int) -> int:
        """The stamp of a living cell, or time and second of another."""
        rows.reserve(CELL_BYTES_MORE)
        out = cython.address(rows.data[0]) if cython.compiled else rows.store
        place = line * LINE
        own = self.scratch[place + TIME]
        local = self.scratch[place + LOCAL]
        if self.scratch[place + STATE] == DEAD:
            rows.size = put_deleted(out, rows.size, own, time, local)
        else:
            rows.size = put_stamp(out, rows.size, own, time, self.scratch[place + TTL], local)
        return NOTHING

    @cython.boundscheck(False)
    def write_delta(self, plan: TablePlan, cell: int, time: int) -> int:
        """A delta: the living elements in one turn over its cells, those that are gone in another."""
        rows = plan.rows
        place = cell * LINE
        rows.put_byte(6)
        rows.reserve(CELL_BYTES_MORE)
        out = cython.address(rows.data[0]) if cython.compiled else rows.store
        rows.size = put_deletion(out, rows.size, self.scratch[place + TIME], self.scratch[place + LOCAL])
        stay = self.at
        if self.scratch[place + LIVING] and self.write_elements(plan, cell, time, LIVE, self.scratch[place + LIVING]):
            return self.problem
        rows.put_byte(0)
        if self.scratch[place + GONE] and self.write_elements(plan, cell, time, DEAD, self.scratch[place + GONE]):
            return self.problem
        rows.put_byte(0)
        self.at = stay
        return NOTHING

    @cython.boundscheck(False)
    def write_elements(self, plan: TablePlan, cell: int, time: int, state: int, count: int) -> int:
        plan.rows.put_long(count)
        self.at = self.scratch[cell * LINE + AT]
        for _ in range(self.scratch[cell * LINE + SIZE]):
            if self.read_cell(self.lines, -1, True):
                return self.problem
            if self.scratch[self.lines * LINE + STATE] == state and self.write_element(plan, cell, time):
                return self.problem
        return NOTHING

    @cython.boundscheck(False)
    def write_element(self, plan: TablePlan, cell: int, time: int) -> int:
        """The element of a delta that was read last: path, value and stamp, or path and deletion."""
        rows = plan.rows
        at = self.lines * LINE
        shape = plan.shapes[cell]
        field = 0
        if shape == FIELD_CELLS:
            if self.path_size != 2:
                return self.fail(UNFIT)
            field = self.src[self.path_at] << 8 | self.src[self.path_at + 1]
            if field >= plan.values.fields(plan.nodes[cell]):
                return self.fail(UNKNOWN_FIELD)
            rows.put_long(field)
        else:
            if self.path_size == 0 and not plan.values.may_be_empty(plan.paths[cell]):
                return self.fail(UNFIT)
            outcome = plan.values.write(rows, self.src, self.path_at, self.path_size, plan.paths[cell])
            if outcome != FITS:
                return self.check(outcome)
        if self.scratch[at + STATE] == DEAD:
            return self.stamp(rows, self.lines, time)
        start = self.scratch[at + AT]
        size = self.scratch[at + SIZE]
        if shape == SET_CELLS:
            if size:
                return self.fail(UNFIT)
        elif shape == FIELD_CELLS:
            if self.check(plan.values.write_field(rows, self.src, start, size, plan.nodes[cell], field)):
                return self.problem
        elif self.check(plan.values.write_or_null(rows, self.src, start, size, plan.nodes[cell])):
            return self.problem
        return self.stamp(rows, self.lines, time)

    @cython.boundscheck(False)
    def write_counter(self, rows: RowBuffer, cell: int, time: int) -> int:
        """A counter's context: marks of some shards, then each shard's id, clock and count."""
        at = self.scratch[cell * LINE + AT]
        size = self.scratch[cell * LINE + SIZE]
        if size < 2:
            return self.fail(UNFIT)
        marks = self.src[at] << 8 | self.src[at + 1]
        if marks >= 32768:
            marks = 65536 - marks
        rest = size - 2 - 2 * marks
        if rest < 0 or rest % 32:
            return self.fail(UNFIT)
        at += 2 + 2 * marks
        rows.put_byte(6)
        rows.put_byte(0)
        shards = rest // 32
        if shards:
            rows.put_long(shards)
        for _ in range(shards):
            rows.reserve(64)
            out = cython.address(rows.data[0]) if cython.compiled else rows.store
            copy(out, rows.size, self.src, at, 16)
            pos = rows.size + 16
            out[pos] = 2
            out[pos + 1] = 2
            pos = put_long(out, pos + 2, signed64(be64(self.src, at + 16)))
            out[pos] = 2
            rows.size = put_long(out, pos + 1, signed64(be64(self.src, at + 24)))
            self.stamp(rows, cell, time)
            at += 32
        rows.put_byte(0)
        rows.put_byte(0)
        return NOTHING
