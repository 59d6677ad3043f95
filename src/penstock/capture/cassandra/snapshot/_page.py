# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""Pages of a SELECT, from the bytes of the CQL protocol straight into the rows of the change record.

One source, two lives, as the kernels of the formats: compiled with the C types of `_page.pxd`, or run as plain Python.
A page is so many rows of so many columns, each value with its length before it. A row becomes one change; the static
cells of a partition become a change of their own before the partition's first row. docs/guides/cassandra-snapshot.md
says which write time each part is given. Every length is compared with the bytes that are left before it is used;
damage raises ValueError, and `column` is then the number of the selected column.
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

from penstock.capture.cassandra.decoding._values import Values
from penstock.formats._encoder import NO_TIME, RowEncoder

compiled: bool = cython.compiled

if not cython.compiled:
    from penstock.capture.cassandra.decoding._values import FITS, be32, be64, same, signed32, signed64

    PLAIN, COUNTER, LIST, SET, MAP, USER, EMPTY = range(7)
    VISIBLE, HIDDEN = 1, 2

_NO_TIME = NO_TIME
# What is known to be there, but not since when: below the time of every write that is to come.
_LEAST_TIME = 0
_SNAPSHOT = 6
# Midnight of 2010-01-01 in the ticks of time-based uuids. Cassandra gives prepended items ids before that moment and
# appended ones the current time, so items with ids from here on stand between those that come later.
_LIST_TICKS = 1262304000 * 10**7 + 0x01B21DD213814000


class PageEncoder:
    """Turns the pages of one split into changes. It remembers the partition it is in from one page to the next.

    `layout` (statement.py) says what each selected column is. `assume_inserted` decides about the rows' own markers,
    which CQL does not show.
    """

    def __init__(
        self, encoder: RowEncoder, values: Values, layout: Any, key_nodes: Any, cell_nodes: Any, assume_inserted: bool
    ) -> None:
        if len(key_nodes) < layout.keys or len(cell_nodes) < layout.cells or layout.partition < 1:
            raise ValueError("the plan of a page lacks columns")
        self.encoder = encoder
        self.values = values
        self.key_nodes = memoryview(key_nodes)
        self.partition = layout.partition
        self.keys = layout.keys
        self.clustering = layout.clustering
        self.shapes = memoryview(layout.shapes)
        self.timed = memoryview(layout.timed)
        self.statics = memoryview(layout.statics)
        self.numbers = memoryview(layout.numbers)
        self.nodes = memoryview(cell_nodes)
        self.columns_of = memoryview(layout.columns)
        self.cells = layout.cells
        self.has_static = layout.has_static
        self.has_marker = layout.has_marker
        self.assume = assume_inserted
        self.width = layout.width
        self.at_of = memoryview(array("q", bytes(8 * layout.width)))
        self.size_of = memoryview(array("q", bytes(8 * layout.width)))
        self.previous = b""
        self.column = 0
        self.open(b"\0", 0, 0, 0, 0)

    def open(self, body: bytes, rows: int, read_s: int, list_time: int, capture_time: int) -> None:
        """Begin a page. `read_s` is the second from which its times to live count.

        `list_time` is for lists whose write times cannot be read: what was written to them before is in the page.
        """
        self.body = body
        self.data = memoryview(body)
        self.end = len(body)
        self.at = 0
        self.rows_left = rows
        self.read_s = read_s
        self.list_time = list_time
        self.capture_time = capture_time
        self.time_max = _NO_TIME

    def encode(self, bytes_max: int) -> int:
        """Encode rows of the page until that much is written; how many are left."""
        try:
            while self.rows_left > 0:
                self.read_row()
                self.put_row()
                self.rows_left -= 1
                if self.encoder.rows.size >= bytes_max:
                    break
        except BaseException:
            self.encoder.abandon()
            raise
        return self.rows_left

    def take(self) -> tuple[int, bytes, int]:
        """What was encoded since the last time: the number of changes, their rows, and the greatest time."""
        out = self.encoder.count, self.encoder.rows.take(), self.time_max
        self.encoder.rows.cut(0)
        self.encoder.count = 0
        self.time_max = _NO_TIME
        return out

    def last_token(self) -> int:
        """The token of the row read last: it is the last column."""
        src = cython.address(self.data[0]) if cython.compiled else self.data
        if self.size_of[self.width - 1] != 8:
            self.fail(self.width - 1)
        return signed64(be64(src, self.at_of[self.width - 1]))

    @cython.boundscheck(False)
    def read_row(self) -> int:
        src = cython.address(self.data[0]) if cython.compiled else self.data
        at = self.at
        for column in range(self.width):
            if self.end - at < 4:
                self.fail(column)
            size = signed32(be32(src, at))
            at += 4
            if size > self.end - at:
                self.fail(column)
            self.at_of[column] = at
            self.size_of[column] = size
            if size > 0:
                at += size
        self.at = at
        return 0

    def fail(self, column: int) -> int:
        self.column = column
        raise ValueError("a value does not fit its type")

    @cython.boundscheck(False)
    def put_row(self) -> int:
        src = cython.address(self.data[0]) if cython.compiled else self.data
        start = self.at_of[0]
        # The values of the partition key stand together at the beginning of the row.
        end = self.at_of[self.partition - 1]
        if self.size_of[self.partition - 1] > 0:
            end += self.size_of[self.partition - 1]
        known = self.previous
        if end - start != len(known) or not same(src, start, known, end - start):
            self.previous = self.body[start:end]
            if self.has_static:
                self.put_group(src, True)
        # A partition of which only the static cells are left gives a row without clustering values.
        if self.clustering == HIDDEN or (self.clustering == VISIBLE and self.size_of[self.partition] < 0):
            return 0
        self.put_group(src, False)
        return 0

    @cython.boundscheck(False)
    def put_group(self, src: Any, static: bool) -> int:
        """The change of the row, or of the partition's static cells."""
        self.survey(src, static)
        if static and self.present == 0:
            return 0
        time = self.high
        self.encoder.begin(_SNAPSHOT, time, _NO_TIME, self.capture_time)
        when = self.capture_time if time == _NO_TIME else time
        if when > self.time_max:
            self.time_max = when
        if not static and self.has_marker:
            self.put_marker()
        for column in range(self.partition if static else self.keys):
            size = self.size_of[column]
            if size < 0 or (size == 0 and not self.values.may_be_empty(self.key_nodes[column])):
                continue
            self.encoder.key(column)
            if self.values.write(self.encoder.rows, src, self.at_of[column], size, self.key_nodes[column]) != FITS:
                self.fail(column)
        for cell in range(self.cells):
            if self.statics[cell] == static:
                self.put_cell(src, cell)
        self.encoder.finish()
        return 0

    def put_marker(self) -> int:
        if self.present == 0:
            # Nothing else can keep the row alive.
            self.encoder.marker(_LEAST_TIME, 0, _NO_TIME)
        elif self.assume:
            if self.low == _NO_TIME:
                self.encoder.marker(_LEAST_TIME, 0, _NO_TIME)
            else:
                time = _NO_TIME if self.low == self.high else self.low
                self.encoder.marker(time, self.low_ttl, self.low_expires)
        return 0

    @cython.boundscheck(False)
    def survey(self, src: Any, static: bool) -> int:
        """Which cells are there, the least and the greatest write time, and when the oldest cell expires."""
        self.present = 0
        self.low = _NO_TIME
        self.high = _NO_TIME
        self.low_ttl = 0
        self.low_expires = _NO_TIME
        for cell in range(self.cells):
            if self.statics[cell] != static:
                continue
            column = self.columns_of[cell]
            shape = self.shapes[cell]
            if shape == EMPTY:
                self.present += 1
                continue
            if self.size_of[column] < 0:
                continue
            self.present += 1
            if not self.timed[cell]:
                continue
            if shape == PLAIN or shape == COUNTER:
                self.note_plain(src, column, shape)
            else:
                self.note_elements(src, column)
        return 0

    @cython.boundscheck(False)
    def note_plain(self, src: Any, column: int, shape: int) -> int:
        if self.size_of[column + 1] != 8:
            self.fail(column + 1)
        time = signed64(be64(src, self.at_of[column + 1]))
        ttl = 0
        if shape == PLAIN and self.size_of[column + 2] == 4:
            ttl = signed32(be32(src, self.at_of[column + 2]))
        self.note(time, ttl)
        return 0

    @cython.boundscheck(False)
    def note_elements(self, src: Any, column: int) -> int:
        """The times of a collection's elements: a list of them, and a list of times to live."""
        times = self.count_of(src, column + 1)
        if times != self.count_of(src, column + 2):
            self.fail(column + 2)
        self.time_at = self.at_of[column + 1] + 4
        self.ttl_at = self.at_of[column + 2] + 4
        for _item in range(times):
            self.next_stamp(src, column)
            if self.item_time != _NO_TIME:
                self.note(self.item_time, self.item_ttl)
        return 0

    def note(self, time: int, ttl: int) -> int:
        if self.low == _NO_TIME or time < self.low:
            self.low = time
            self.low_ttl = ttl
            self.low_expires = self.read_s + ttl if ttl > 0 else _NO_TIME
        if self.high == _NO_TIME or time > self.high:
            self.high = time
        return 0

    @cython.boundscheck(False)
    def count_of(self, src: Any, column: int) -> int:
        """The number of elements that a collection says it has; each takes four bytes at the least."""
        if self.size_of[column] < 4:
            self.fail(column)
        count = signed32(be32(src, self.at_of[column]))
        if count < 0 or count > (self.size_of[column] - 4) // 4:
            self.fail(column)
        return count

    @cython.boundscheck(False)
    def next_stamp(self, src: Any, column: int) -> int:
        """Step over one write time and one time to live; a field of a user type that is null has neither."""
        self.item_time = _NO_TIME
        self.item_ttl = 0
        end = self.at_of[column + 1] + self.size_of[column + 1]
        if end - self.time_at < 4:
            self.fail(column + 1)
        size = signed32(be32(src, self.time_at))
        self.time_at += 4
        if size >= 0:
            if size != 8 or end - self.time_at < 8:
                self.fail(column + 1)
            self.item_time = signed64(be64(src, self.time_at))
            self.time_at += 8
        end = self.at_of[column + 2] + self.size_of[column + 2]
        if end - self.ttl_at < 4:
            self.fail(column + 2)
        size = signed32(be32(src, self.ttl_at))
        self.ttl_at += 4
        if size >= 0:
            if size != 4 or end - self.ttl_at < 4:
                self.fail(column + 2)
            self.item_ttl = signed32(be32(src, self.ttl_at))
            self.ttl_at += 4
        return 0

    @cython.boundscheck(False)
    def put_cell(self, src: Any, cell: int) -> int:
        column = self.columns_of[cell]
        shape = self.shapes[cell]
        number = self.numbers[cell]
        if shape == EMPTY:
            # The value of a compact table without one: it is there, holds nothing, and cannot be selected.
            self.encoder.cell_set(number)
            self.encoder.rows.put_byte(0)
            self.encoder.stamp(_LEAST_TIME, 0, _NO_TIME)
            return 0
        if self.size_of[column] < 0:
            return 0
        if shape != PLAIN and shape != COUNTER:
            self.put_delta(src, cell, column, shape)
            return 0
        size = self.size_of[column]
        node = self.nodes[cell]
        if size == 0 and not self.values.may_be_empty(node):
            self.encoder.cell_null(number)
        else:
            self.encoder.cell_set(number)
            if self.values.write(self.encoder.rows, src, self.at_of[column], size, node) != FITS:
                self.fail(column)
        time = _LEAST_TIME if self.low == _NO_TIME else self.low
        ttl = 0
        if self.timed[cell]:
            time = signed64(be64(src, self.at_of[column + 1]))
            if shape == PLAIN and self.size_of[column + 2] == 4:
                ttl = signed32(be32(src, self.at_of[column + 2]))
        expires = self.read_s + ttl if ttl > 0 else _NO_TIME
        self.encoder.stamp(_NO_TIME if time == self.high else time, ttl, expires)
        return 0

    @cython.boundscheck(False)
    def put_delta(self, src: Any, cell: int, column: int, shape: int) -> int:
        """A non-frozen collection or user type, element by element."""
        rows = self.encoder.rows
        time = _LEAST_TIME if self.low == _NO_TIME else self.low
        self.encoder.cell_delta(self.numbers[cell])
        if shape == LIST:
            # Items have ids that cannot be read, so the list takes the place of all that was written to it so far.
            time = self.list_floor(src, cell, column)
            rows.put_byte(2)
            rows.put_long(time)
            rows.put_byte(0)
            time += 1
        else:
            rows.put_byte(0)
        if self.timed[cell]:
            self.time_at = self.at_of[column + 1] + 4
            self.ttl_at = self.at_of[column + 2] + 4
        if shape == USER:
            self.put_fields(src, cell, column, time)
        else:
            self.put_items(src, cell, column, shape, time)
        rows.put_byte(0)
        rows.put_byte(0)
        return 0

    @cython.boundscheck(False)
    def list_floor(self, src: Any, cell: int, column: int) -> int:
        """The greatest write time of a list's items, or what stands in for it."""
        if not self.timed[cell]:
            return self.list_time
        floor = _LEAST_TIME
        count = self.count_of(src, column + 1)
        self.time_at = self.at_of[column + 1] + 4
        self.ttl_at = self.at_of[column + 2] + 4
        for _item in range(count):
            self.next_stamp(src, column)
            if self.item_time > floor:
                floor = self.item_time
        return floor

    @cython.boundscheck(False)
    def put_items(self, src: Any, cell: int, column: int, shape: int, time: int) -> int:
        rows = self.encoder.rows
        values = self.values
        count = self.count_of(src, column)
        at = self.at_of[column] + 4
        end = self.at_of[column] + self.size_of[column]
        first = values.children[values.first[self.nodes[cell]]]
        second = values.children[values.first[self.nodes[cell]] + 1] if shape == MAP else 0
        if count > 0:
            rows.put_long(count)
        for index in range(count):
            if end - at < 4:
                self.fail(column)
            size = signed32(be32(src, at))
            at += 4
            # Neither items nor keys are ever null.
            if size < 0 or size > end - at:
                self.fail(column)
            if shape == LIST:
                self.put_list_id(index)
                rows.put_byte(2)
            if values.write(rows, src, at, size, first) != FITS:
                self.fail(column)
            at += size
            if shape == MAP:
                if end - at < 4:
                    self.fail(column)
                size = signed32(be32(src, at))
                at += 4
                if size > end - at:
                    self.fail(column)
                if values.write_or_null(rows, src, at, size, second) != FITS:
                    self.fail(column)
                if size > 0:
                    at += size
            self.put_item_stamp(src, cell, column, shape, time)
        return 0

    @cython.boundscheck(False)
    def put_fields(self, src: Any, cell: int, column: int, time: int) -> int:
        """The fields of a user type that have a value. An element's value is the whole record with that field only."""
        rows = self.encoder.rows
        values = self.values
        node = self.nodes[cell]
        fields = values.counts[node]
        end = self.at_of[column] + self.size_of[column]
        count = self.count_fields(src, column, fields)
        if count > 0:
            rows.put_long(count)
        at = self.at_of[column]
        for index in range(fields):
            if at == end:
                break
            size = signed32(be32(src, at))
            at += 4
            if size < 0:
                if self.timed[cell]:
                    self.next_stamp(src, column)
                continue
            rows.put_long(index)
            rows.put_byte(2)
            for other in range(fields):
                if other != index:
                    rows.put_byte(0)
                elif values.write_or_null(rows, src, at, size, values.children[values.first[node] + index]) != FITS:
                    self.fail(column)
            at += size
            self.put_item_stamp(src, cell, column, USER, time)
        return 0

    @cython.boundscheck(False)
    def count_fields(self, src: Any, column: int, fields: int) -> int:
        """How many fields have a value; the bytes must be those of the type's fields, or of the first of them."""
        at = self.at_of[column]
        end = at + self.size_of[column]
        count = 0
        for _index in range(fields):
            if at == end:
                break
            if end - at < 4:
                self.fail(column)
            size = signed32(be32(src, at))
            at += 4
            if size > end - at:
                self.fail(column)
            if size >= 0:
                count += 1
                at += size
        if at != end:
            self.fail(column)
        return count

    def put_item_stamp(self, src: Any, cell: int, column: int, shape: int, time: int) -> int:
        ttl = 0
        if self.timed[cell]:
            self.next_stamp(src, column)
            ttl = self.item_ttl
            if shape != LIST and self.item_time != _NO_TIME:
                time = self.item_time
        rows = self.encoder.rows
        if time == self.high and ttl <= 0:
            rows.put_byte(0)
            return 0
        rows.put_byte(2)
        self.encoder.put_time(_NO_TIME if time == self.high else time)
        self.encoder.put_expiry(ttl, self.read_s + ttl if ttl > 0 else _NO_TIME)
        return 0

    def put_list_id(self, index: int) -> int:
        """A time-based uuid: the ticks in pieces, then a fixed clock sequence and node."""
        rows = self.encoder.rows
        ticks = _LIST_TICKS + index
        # The low half of the ticks, then the middle, then the high part with the version above it.
        for place in range(4):
            rows.put_byte(ticks >> (24 - 8 * place) & 255)
        rows.put_byte(ticks >> 40 & 255)
        rows.put_byte(ticks >> 32 & 255)
        rows.put_byte((ticks >> 56 & 15) | 16)
        rows.put_byte(ticks >> 48 & 255)
        rows.put_byte(128)
        for _place in range(7):
            rows.put_byte(0)
        return 0
