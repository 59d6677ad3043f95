# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""One table's update inside a mutation: partition deletion, static row, rows and range deletions, written as changes.

One source, two lives, as the kernels of the formats. A row is read into the scratch table first, because the record
wants the write time before the cells and has its own order of columns. The changes of an update are written in this
order: the partition's deletion, range deletions, the static row, the rows.
"""

from __future__ import annotations

from typing import Any

import cython

from penstock.capture.cassandra.decoding._cells import ColumnList, TablePlan
from penstock.capture.cassandra.decoding._plain_rows import PlainRows
from penstock.formats._kernel import RowBuffer

compiled: bool = cython.compiled

if not cython.compiled:
    from penstock.capture.cassandra.decoding._cells import (
        ABSENT,
        CELL_BYTES_MORE,
        COUNTER_CELL,
        DELTA,
        LINE,
        NOTHING,
        ODD_COLUMNS,
        ODD_FLAGS,
        ODD_RANGES,
        SHORT,
        SIMPLE,
        STATE,
        TIME,
        TOO_LARGE,
        UNFIT,
        UNKNOWN_COLUMN,
    )
    from penstock.capture.cassandra.decoding._plain_rows import INSERT, UPDATE
    from penstock.capture.cassandra.decoding._values import (
        EPOCH_S,
        EPOCH_US,
        NO_TIME,
        copy,
        counted,
        fill,
        put_deletion,
        put_scalar,
        same,
        vint_bytes,
        vint_value,
    )

    # Which changes of an update are written in one pass over it.
    ALL, RANGES, ROWS = range(3)
    # Further operations, as the record has their numbers.
    DELETE, DELETE_PARTITION, DELETE_RANGE = 4, 6, 8
    # Column lists that are remembered for one table.
    LISTS_MAX = 16


class UpdateReader(PlainRows):
    """Reads updates."""

    def __init__(self) -> None:
        super().__init__()
        self.bound = RowBuffer(256)
        self.range_open = False
        self.range_time = NO_TIME
        self.range_local = NO_TIME
        self.unknown = b""
        self.unknown_static = False

    @cython.boundscheck(False)
    def read_partition(self, plan: TablePlan) -> int:
        key_size = counted(self.src, self.at, self.end)
        if key_size < 0:
            return self.fail(SHORT)
        key_at = self.at + vint_bytes(self.src, self.at, self.end)
        self.at = key_at + key_size
        flags = self.byte()
        if self.problem or flags & 0x01:
            return self.problem
        # Cassandra itself never writes a reversed update, or one without the number of rows.
        if flags & 0x02 or not flags & 0x10:
            return self.fail(ODD_FLAGS)
        step = vint_bytes(self.src, self.at, self.end)
        if step == 0:
            return self.fail(SHORT)
        self.min_time = EPOCH_US + vint_value(self.src, self.at, step)
        self.at += step
        self.min_local = EPOCH_S + self.uv32()
        self.min_ttl = self.uv32()
        statics: ColumnList | None = None
        if flags & 0x08:
            statics = self.read_list(plan, True)
            if statics is None:
                return self.problem
        regulars = self.read_list(plan, False)
        if regulars is None or self.write_key(plan, key_at, key_size):
            return self.problem
        if flags & 0x04 and self.read_partition_deletion(plan):
            return self.problem
        return self.read_rows(plan, statics, regulars)

    def read_partition_deletion(self, plan: TablePlan) -> int:
        time = self.time()
        local = self.local()
        if self.problem or time == NO_TIME:
            return self.problem
        rows = plan.rows
        if self.begin_change(plan, DELETE_PARTITION, time, time, local):
            return self.problem
        self.put_absent(rows, 1)
        self.put_key(rows)
        return self.put_absent(rows, plan.clusterings + plan.cells + 2)

    def read_rows(self, plan: TablePlan, statics: Any, regulars: ColumnList) -> int:
        """Static row, rows and range deletions. The latter are written first, which takes a pass of its own."""
        at = self.at
        size = plan.rows.size
        count = plan.count
        when = plan.when_max
        ordinal = self.ordinal
        if self.read_pass(plan, statics, regulars, ALL) == 0:
            return self.problem
        plan.rows.size = size
        plan.count = count
        plan.when_max = when
        self.ordinal = ordinal
        self.at = at
        self.read_pass(plan, statics, regulars, RANGES)
        if self.problem:
            return self.problem
        self.at = at
        self.read_pass(plan, statics, regulars, ROWS)
        return self.problem

    def read_pass(self, plan: TablePlan, statics: Any, regulars: ColumnList, part: int) -> int:
        """One pass over the update; 1 when it has to be made again because there are range deletions."""
        self.range_open = False
        if statics is not None:
            flags = self.byte()
            # The static row says so in a second byte.
            if flags & 0x83 != 0x80 or not self.byte() & 0x01:
                self.fail(ODD_FLAGS)
                return 0
            if self.read_row(plan, statics, flags, True, part):
                return 0
        # The number of rows is an estimate.
        self.uv32()
        while True:
            flags = self.byte()
            more = 0
            if flags & 0x80:
                more = self.byte()
            if self.problem:
                return 0
            if flags & 0x01:
                break
            if flags & 0x02:
                if part == ALL:
                    return 1
                if self.read_marker(plan, part):
                    return 0
            elif more & 0x01:
                self.fail(ODD_FLAGS)
                return 0
            elif self.read_clustering(plan, plan.clusterings) or self.read_row(plan, regulars, flags, False, part):
                return 0
        if self.range_open:
            self.fail(ODD_RANGES)
        return 0

    @cython.boundscheck(False)
    def read_list(self, plan: TablePlan, static: bool) -> Any:
        """A list of columns, found again by its bytes or read name by name."""
        known = plan.static_lists if static else plan.regular_lists
        for columns in known:
            if columns.size <= self.end - self.at and same(self.src, self.at, columns.names, columns.size):
                self.at += columns.size
                return columns
        return self.read_names(plan, static, known)

    def read_names(self, plan: TablePlan, static: bool, known: Any) -> Any:
        start = self.at
        numbers = plan.static_numbers if static else plan.regular_numbers
        cells: list[int] = []
        for _ in range(self.uv()):
            size = self.length()
            if self.problem:
                return None
            name = bytes(self.view[self.at : self.at + size])
            self.at += size
            number = numbers.get(name)
            if number is None:
                self.unknown = name
                self.unknown_static = static
                self.fail(UNKNOWN_COLUMN)
                return None
            if number in cells:
                self.fail(ODD_COLUMNS)
                return None
            cells.append(number)
        if self.problem:
            return None
        columns = ColumnList(bytes(self.view[start : self.at]), cells, plan.is_plain(cells))
        if len(known) >= LISTS_MAX:
            known.pop()
        known.insert(0, columns)
        return columns

    @cython.boundscheck(False)
    def write_key(self, plan: TablePlan, at: int, size: int) -> int:
        """The partition key into `key`, from where each change copies it."""
        key = self.key
        key.size = 0
        if plan.partitions == 1:
            return self.write_key_value(key, plan, at, size, plan.partition[0], plan.partition_kinds[0])
        end = at + size
        for index in range(plan.partitions):
            if end - at < 3:
                return self.fail(UNFIT)
            length = self.src[at] << 8 | self.src[at + 1]
            at += 2
            if length >= end - at or self.src[at + length] != 0:
                return self.fail(UNFIT)
            if self.write_key_value(key, plan, at, length, plan.partition[index], plan.partition_kinds[index]):
                return self.problem
            at += length + 1
        return NOTHING if at == end else self.fail(UNFIT)

    @cython.boundscheck(False)
    def read_clustering(self, plan: TablePlan, count: int) -> int:
        """Offset and length of so many clustering values; a length of -1 is null."""
        places = self.places
        header = 0
        for index in range(count):
            if index % 32 == 0:
                if self.at < self.end and self.src[self.at] < 128:
                    header = self.src[self.at]
                    self.at += 1
                else:
                    header = self.uv()
            size = 0
            if header & 2:
                size = -1
            elif not header & 1:
                size = plan.clustering_widths[index]
                if size < 0:
                    size = self.length()
                elif size > self.end - self.at:
                    return self.fail(SHORT)
            header >>= 2
            if self.problem:
                return self.problem
            places[2 * index] = self.at
            places[2 * index + 1] = size
            if size > 0:
                self.at += size
        return NOTHING

    @cython.boundscheck(False)
    def write_clustering(self, plan: TablePlan, rows: RowBuffer, count: int) -> int:
        """So many clustering values, and null for the others."""
        for index in range(plan.clusterings):
            if index >= count:
                rows.put_byte(0)
                continue
            at = self.places[2 * index]
            size = self.places[2 * index + 1]
            if self.write_key_value(rows, plan, at, size, plan.clustering[index], plan.clustering_kinds[index]):
                return self.problem
        return NOTHING

    @cython.boundscheck(False)
    def write_key_value(self, rows: RowBuffer, plan: TablePlan, at: int, size: int, node: int, kind: int) -> int:
        """The value of a key column, which may be null."""
        if kind < 0 or size <= 0:
            return self.check(plan.values.write_or_null(rows, self.src, at, size, node))
        if size + CELL_BYTES_MORE > rows.capacity - rows.size:
            rows.reserve(size + CELL_BYTES_MORE)
        out = cython.address(rows.data[0]) if cython.compiled else rows.store
        out[rows.size] = 2
        pos = put_scalar(out, rows.size + 1, self.src, at, size, kind)
        if pos < 0:
            return self.fail(UNFIT)
        rows.size = pos
        return NOTHING

    @cython.boundscheck(False)
    def read_subset(self, columns: ColumnList) -> int:
        """Which of the header's columns the row has, into `chosen`; their number, or -1 for all."""
        total = columns.count
        encoded = self.uv()
        if encoded == 0:
            return -1
        count = 0
        if total < 64:
            if encoded >> total:
                self.fail(ODD_COLUMNS)
                return 0
            for index in range(total):
                if not encoded & 1:
                    self.chosen[count] = columns.cells[index]
                    count += 1
                encoded >>= 1
            return count
        if encoded > total:
            self.fail(ODD_COLUMNS)
            return 0
        present = total - encoded
        few = present < total // 2
        wanted = self.uv() if (present if few else encoded) else total
        left = (present if few else encoded) - 1
        for index in range(total):
            if index == wanted:
                # The next number must be a later one, or it is never met.
                if left > 0:
                    wanted = self.uv()
                    left -= 1
                    if wanted <= index:
                        self.fail(ODD_COLUMNS)
                        return 0
                else:
                    wanted = total
                    left = -1
                if few:
                    self.chosen[count] = columns.cells[index]
                    count += 1
            elif not few:
                self.chosen[count] = columns.cells[index]
                count += 1
        if count != present:
            self.fail(ODD_COLUMNS)
        return count

    @cython.boundscheck(False)
    def read_row(self, plan: TablePlan, columns: ColumnList, flags: int, static: bool, part: int) -> int:
        """A row behind its clustering values: into the scratch table, and from there into the table's changes."""
        self.marker_time = self.marker_local = deleted = deleted_local = NO_TIME
        self.marker_ttl = 0
        self.row_time = NO_TIME
        if flags & 0x04:
            self.marker_time = self.time()
            if flags & 0x08:
                self.marker_ttl = self.ttl()
                self.marker_local = self.local()
        if flags & 0x10:
            deleted = self.time()
            deleted_local = self.local()
        count = -1 if flags & 0x20 else self.read_subset(columns)
        plain = columns.plain and part != RANGES and not flags & 0x10 and not (static and flags & 0x04)
        if plain and not self.problem and self.write_plain(plan, columns, count, static, (flags & 0x40) != 0):
            return NOTHING
        for cell in range(plan.cells):
            self.scratch[cell * LINE + STATE] = ABSENT
        whole = count < 0
        replaced = NO_TIME
        touched = False
        for index in range(columns.count if whole else count):
            cell = columns.cells[index] if whole else self.chosen[index]
            shape = plan.shapes[cell]
            if shape == SIMPLE or shape == COUNTER_CELL:
                if self.read_cell(cell, plan.widths[cell], False):
                    return self.problem
                touched = True
            else:
                if self.read_delta(cell, (flags & 0x40) != 0):
                    return self.problem
                if self.scratch[cell * LINE + STATE] == DELTA:
                    touched = True
                    replaced = max(replaced, self.scratch[cell * LINE + TIME])
        if self.problem:
            return self.problem
        if static and (self.marker_time != NO_TIME or deleted != NO_TIME):
            return self.fail(ODD_FLAGS)
        if part == RANGES:
            return NOTHING
        time = self.marker_time
        if time == NO_TIME:
            time = self.row_time
        if time == NO_TIME:
            time = max(deleted, replaced)
        if time == NO_TIME:
            # A row without anything, which Cassandra passes over as well.
            return NOTHING
        operation = UPDATE
        if self.marker_time != NO_TIME:
            operation = INSERT
        elif deleted != NO_TIME and not touched:
            operation = DELETE
        return self.write_row(plan, operation, static, time, deleted, deleted_local)

    @cython.boundscheck(False)
    def begin_change(self, plan: TablePlan, operation: int, time: int, deleted: int, local: int) -> int:
        """A change up to its deletion, and room for its key columns."""
        rows = plan.rows
        if rows.size > self.ceiling:
            return self.fail(TOO_LARGE)
        rows.reserve(self.front.size + self.key.size + self.entry_size + CELL_BYTES_MORE * (plan.clusterings + 4))
        out = cython.address(rows.data[0]) if cython.compiled else rows.store
        pos = self.put_front(out, rows.size, operation, time)
        self.ordinal += 1
        rows.size = put_deletion(out, pos, deleted, local)
        if time > plan.when_max:
            plan.when_max = time
        plan.count += 1
        return NOTHING

    @cython.boundscheck(False)
    def put_key(self, rows: RowBuffer) -> int:
        """The partition key; there is room for it."""
        key = self.key
        rows.reserve(key.size)
        if cython.compiled:
            copy(cython.address(rows.data[0]), rows.size, cython.address(key.data[0]), 0, key.size)
        else:
            copy(rows.store, rows.size, key.store, 0, key.size)
        rows.size += key.size
        return 0

    @cython.boundscheck(False)
    def put_absent(self, rows: RowBuffer, count: int) -> int:
        """So many fields that are null."""
        rows.reserve(count)
        if cython.compiled:
            fill(cython.address(rows.data[0]), rows.size, count)
        else:
            fill(rows.store, rows.size, count)
        rows.size += count
        return 0

    def write_row(self, plan: TablePlan, operation: int, static: bool, time: int, deleted: int, local: int) -> int:
        rows = plan.rows
        if self.begin_change(plan, operation, time, deleted, local):
            return self.problem
        # No range.
        self.put_absent(rows, 1)
        self.put_key(rows)
        if self.write_clustering(plan, rows, 0 if static else plan.clusterings):
            return self.problem
        if self.write_cells(plan, time):
            return self.problem
        # No before image, no seal.
        return self.put_absent(rows, 2)

    def read_marker(self, plan: TablePlan, part: int) -> int:
        """The begin or end of a range deletion, or both: a boundary ends one and begins the next."""
        kind = self.byte()
        size = self.byte() << 8
        size |= self.byte()
        if kind > 7 or kind == 3 or kind == 4 or size > plan.clusterings:
            return self.fail(ODD_RANGES)
        if self.read_clustering(plan, size):
            return self.problem
        if kind == 0 or kind == 2 or kind == 5 or kind == 6:
            time = self.time()
            local = self.local()
            if self.problem:
                return self.problem
            if not self.range_open or time != self.range_time or local != self.range_local:
                return self.fail(ODD_RANGES)
            self.range_open = False
            if part == RANGES and time != NO_TIME and self.write_range(plan, size, kind >= 5):
                return self.problem
        if kind == 1 or kind == 2 or kind == 5 or kind == 7:
            time = self.time()
            local = self.local()
            if self.problem:
                return self.problem
            if self.range_open:
                return self.fail(ODD_RANGES)
            self.range_open = True
            self.range_time = time
            self.range_local = local
            self.bound.size = 0
            return self.write_bound(plan, self.bound, size, kind <= 2)
        return NOTHING

    def write_bound(self, plan: TablePlan, rows: RowBuffer, size: int, inclusive: bool) -> int:
        """One end of a range; without values it is open."""
        if size == 0:
            rows.put_byte(0)
            return NOTHING
        rows.put_byte(2)
        rows.put_long(size)
        rows.put_byte(1 if inclusive else 0)
        return self.write_clustering(plan, rows, size)

    @cython.boundscheck(False)
    def write_range(self, plan: TablePlan, size: int, inclusive: bool) -> int:
        """The range that ends here and began with what `bound` has."""
        rows = plan.rows
        if self.begin_change(plan, DELETE_RANGE, self.range_time, self.range_time, self.range_local):
            return self.problem
        rows.put_byte(2)
        bound = self.bound
        rows.reserve(bound.size)
        if cython.compiled:
            copy(cython.address(rows.data[0]), rows.size, cython.address(bound.data[0]), 0, bound.size)
        else:
            copy(rows.store, rows.size, bound.store, 0, bound.size)
        rows.size += bound.size
        if self.write_bound(plan, rows, size, inclusive):
            return self.problem
        self.put_key(rows)
        return self.put_absent(rows, plan.clusterings + plan.cells + 2)
