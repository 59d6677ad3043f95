# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The column kernel: reads Avro rows straight into Arrow buffers.

Each place of the record that has a column of its own names it in `targets`; a place without one (-1) passes its index
on to the places below, and a place that nobody asked for (-2) is skipped. Columns are padded only when something is
written behind a gap, so an absent cell costs the one byte that says so and nothing more. Buffers grow by doubling, in
proportion to what was read, and never beyond the budget that the caller gives.
"""

from __future__ import annotations

from typing import Any

import cython

from penstock.errors import CorruptLog
from penstock.formats._kernel import Program, RowReader

if not cython.compiled:
    from penstock.formats._kernel import (
        ARRAY,
        BIG,
        BOOLEAN,
        BYTES,
        DOUBLE,
        ENUM,
        FIXED,
        FLOAT,
        INT,
        LONG,
        NULLABLE,
        RECORD,
        STRING,
        UNION,
    )

    STRUCT, BITS, WIDE, VARIABLE, LIST = range(5)

compiled: bool = cython.compiled

# The first capacity of a column whose length is not known.
_FIRST = 64


class Budget:
    """How many bytes may still be allocated."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, size: int) -> int:
        self.left -= size
        if self.left < 0:
            raise CorruptLog("rows need more memory as columns than their size allows")
        return 0


class Column:
    """The growing buffers of one Arrow array. `length` is how far it is filled, the rest up to any index is null."""

    def __init__(self, layout: int, width: int, nullable: bool, expected: int, budget: Budget) -> None:
        self.layout = layout
        self.width = width
        self.nullable = nullable
        self.expected = expected
        self.budget = budget
        self.length = 0
        self.capacity = 0
        # Of a variable column the bytes, of a list the items.
        self.used = 0
        self.room = 0
        self.valid_store = bytearray()
        self.data_store = bytearray()
        self.offset_store = bytearray()

    def _grow(self, wanted: int) -> int:
        """Room for `wanted` entries; what is new is zero."""
        capacity = max(wanted, 2 * self.capacity, _FIRST if self.capacity else max(self.expected, 1))
        # Whole 64-bit words, as Arrow likes them.
        capacity = (capacity + 63) // 64 * 64
        if self.nullable:
            self.valid_store = self._enlarge(self.valid_store, capacity // 8)
            self.valid = memoryview(self.valid_store)
        if self.layout == WIDE:
            self.data_store = self._enlarge(self.data_store, capacity * self.width)
            self.data = memoryview(self.data_store)
        elif self.layout == BITS:
            self.data_store = self._enlarge(self.data_store, capacity // 8)
            self.data = memoryview(self.data_store)
        elif self.layout != STRUCT:
            self.offset_store = self._enlarge(self.offset_store, 4 * (capacity + 1))
            self.offsets = memoryview(self.offset_store).cast("i")
        self.capacity = capacity
        return 0

    def _enlarge(self, old: bytearray, size: int) -> bytearray:
        self.budget.spend(size - len(old))
        store = bytearray(size)
        store[: len(old)] = old
        return store

    @cython.boundscheck(False)
    def place(self, index: int) -> int:
        """Get ready to write the entry at `index`, which is behind all entries so far: nulls fill the gap."""
        if index < self.length:
            raise CorruptLog("rows are damaged: a value comes twice")
        if index >= self.capacity:
            self._grow(index + 1)
        if self.layout >= VARIABLE:
            self._pad(index)
        if self.nullable:
            self.valid[index >> 3] |= 1 << (index & 7)
        self.length = index + 1
        return 0

    @cython.boundscheck(False)
    def _pad(self, index: int) -> int:
        at = self.length
        end = self.used
        while at <= index:
            self.offsets[at] = end
            at += 1
        return 0

    @cython.boundscheck(False)
    def put_integer(self, index: int, value: int) -> int:
        """The low bytes of `value`, little-endian."""
        self.place(index)
        width = self.width
        at = index * width
        if not cython.compiled:
            self.data[at : at + width] = (value & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
            return 0
        # The low bytes come first in memory too, on every processor that Arrow's buffers are made on.
        if width == 8:
            memcpy(cython.address(self.data[at]), cython.address(value), 8)  # noqa: F821
        elif width == 4:
            memcpy(cython.address(self.data[at]), cython.address(value), 4)  # noqa: F821
        else:
            memcpy(cython.address(self.data[at]), cython.address(value), width)  # noqa: F821
        return 0

    @cython.boundscheck(False)
    def put_boolean(self, index: int, value: int) -> int:
        self.place(index)
        if value:
            self.data[index >> 3] |= 1 << (index & 7)
        return 0

    @cython.boundscheck(False)
    def put_wide(self, index: int, reader: RowReader) -> int:
        """As many bytes as the column is wide, copied from the rows."""
        width = self.width
        start = reader.take(width)
        self.place(index)
        at = index * width
        if cython.compiled:
            memcpy(cython.address(self.data[at]), cython.address(reader.data[start]), width)  # noqa: F821
        else:
            self.data[at : at + width] = reader.data[start : start + width]
        return 0

    @cython.boundscheck(False)
    def put_variable(self, index: int, reader: RowReader, start: int, size: int) -> int:
        """Bytes that lie inside the rows, copied."""
        self.place(index)
        if size:
            if size > self.room - self.used:
                self._grow_data(size)
            if cython.compiled:
                memcpy(cython.address(self.data[self.used]), cython.address(reader.data[start]), size)  # noqa: F821
            else:
                self.data[self.used : self.used + size] = reader.data[start : start + size]
            self.used += size
        self.offsets[index + 1] = self.used
        return 0

    def _grow_data(self, size: int) -> int:
        self.room = max(2 * self.room, self.used + size, 8 * self.expected)
        self.data_store = self._enlarge(self.data_store, self.room)
        self.data = memoryview(self.data_store)
        return 0

    @cython.boundscheck(False)
    def put_big(self, index: int, reader: RowReader, unsigned: int) -> int:
        """A big-endian two's complement integer of any length, as one of the column's width, little-endian."""
        size = reader.read_long()
        start = reader.take(size)
        if size < 1:
            reader.fail("an integer has no bytes")
        negative = reader.data[start] > 127
        # Sign bytes in front say nothing; they may stand where the column has no room for them.
        while size > self.width and reader.data[start] == (255 if negative else 0):
            start += 1
            size -= 1
        if size > self.width or (unsigned and negative):
            reader.fail("an integer is out of range")
        if not unsigned and size and (reader.data[start] > 127) != negative:
            reader.fail("an integer is out of range")
        self.place(index)
        at = index * self.width
        for step in range(size):
            self.data[at + step] = reader.data[start + size - 1 - step]
        if negative:
            for step in range(size, self.width):
                self.data[at + step] = 255
        return 0

    @cython.boundscheck(False)
    def close_list(self, index: int, items: int) -> int:
        """The list at `index` has all of the `items` that the column's values now count."""
        self.used = items
        self.offsets[index + 1] = items
        return 0

    def finish(self, length: int) -> bool:
        """Fill with nulls up to `length`; False when nothing was ever written and there are no buffers."""
        if not self.capacity:
            return False
        if length > self.capacity:
            self._grow(length)
        if self.layout >= VARIABLE:
            self._pad(length)
        self.length = length
        return True


@cython.boundscheck(False)
def check_utf8(reader: RowReader, start: int, size: int) -> int:
    """Raise when the bytes, which lie inside the rows, are not UTF-8."""
    at = start
    end = start + size
    if cython.compiled:
        # Nearly all text is ASCII: eight bytes at once, as long as none has its high bit set.
        word = 0
        high_bits = 0x01010101
        high_bits |= high_bits << 32
        high_bits <<= 7
        while end - at >= 8:
            memcpy(cython.address(word), cython.address(reader.data[at]), 8)  # noqa: F821
            if word & high_bits:
                break
            at += 8
    while at < end:
        byte = reader.data[at]
        at += 1
        if byte < 128:
            continue
        # The second byte has a narrower range after four of the first bytes: no long forms, no surrogates.
        low = 128
        high = 191
        if 194 <= byte <= 223:
            more = 1
        elif 224 <= byte <= 239:
            more = 2
            if byte == 224:
                low = 160
            elif byte == 237:
                high = 159
        elif 240 <= byte <= 244:
            more = 3
            if byte == 240:
                low = 144
            elif byte == 244:
                high = 143
        else:
            more = 0
        if more == 0 or more > end - at:
            reader.fail("a string is not UTF-8")
        for _ in range(more):
            byte = reader.data[at]
            if byte < low or byte > high:
                reader.fail("a string is not UTF-8")
            low = 128
            high = 191
            at += 1
    return 0


class ColumnReader:
    """Reads rows of one program into one set of columns."""

    def __init__(self, program: Program, targets: Any, columns: list[Column]) -> None:
        if len(targets) != program.size() or max(targets) >= len(columns):
            raise ValueError("targets and columns do not belong to the program")
        if any(not isinstance(column, Column) for column in columns):
            raise TypeError("not a column")
        self.program = program
        # All are compared with the list here, and taken from it without asking again.
        self.targets = memoryview(targets)
        self.columns = list(columns)

    def read_rows(self, reader: RowReader, count: int) -> None:
        self.read(reader, 0, 0, count)

    @cython.boundscheck(False)
    def read(self, reader: RowReader, start: int, first: int, count: int) -> int:
        """Read so many values of the node `start`, into the entries of the columns from `first` on.

        The nodes of a value are visited in the order of its bytes, each of which tells the next; only arrays go deeper.
        """
        program = self.program
        end = reader.end
        at = reader.position
        for index in range(first, first + count):
            node = start
            while node >= 0:
                kind = program.kinds[node]
                target = self.targets[node]
                byte = reader.data[at] if at < end else 128
                if kind == NULLABLE and (byte == 0 or byte == 2):
                    # Most of what a change may have, it does not.
                    at += 1
                    node = program.children[program.first[node]] if byte else program.then[node]
                elif kind == RECORD:
                    if target >= 0:
                        cython.cast(Column, self.columns[target]).place(index)
                    node = program.children[program.first[node]] if program.counts[node] else program.then[node]
                elif kind in (LONG, STRING, UNION, INT, ENUM, BYTES):
                    # They begin with a number: the value, a length, or which branch it is.
                    if byte < 128:
                        at += 1
                        value = (byte >> 1) ^ -(byte & 1)
                    else:
                        reader.position = at
                        value = reader.read_long()
                        at = reader.position
                    if kind == STRING or kind == BYTES:
                        self._read_bytes(reader, at, value, kind, target, index)
                        at += value
                        node = program.then[node]
                    else:
                        if value < program.low[node] or value > program.high[node]:
                            self._refuse(reader, at, kind)
                        if target >= 0 and (value or kind != UNION):
                            cython.cast(Column, self.columns[target]).put_integer(index, value)
                        if value and kind == UNION:
                            node = program.children[program.first[node] + value]
                        else:
                            node = program.then[node]
                else:
                    reader.position = at
                    node = self._read_other(reader, node, target, index)
                    at = reader.position
        reader.position = at
        return 0

    @cython.boundscheck(False)
    def _read_bytes(self, reader: RowReader, at: int, size: int, kind: int, target: int, index: int) -> int:
        """So many bytes from `at` on, which may be too many."""
        reader.position = at
        if size < 0 or size > reader.end - at:
            reader.fail("a length is longer than the rest")
        reader.position = at + size
        if target >= 0:
            if kind == STRING:
                check_utf8(reader, at, size)
            cython.cast(Column, self.columns[target]).put_variable(index, reader, at, size)
        return 0

    def _refuse(self, reader: RowReader, at: int, kind: int) -> int:
        reader.position = at
        return reader.fail("a union has no such branch" if kind == UNION else "an integer is out of range")

    @cython.boundscheck(False)
    def _read_other(self, reader: RowReader, node: int, target: int, index: int) -> int:
        """What does not begin with a number, or is seldom met; gives the node that comes next."""
        program = self.program
        kind = program.kinds[node]
        if kind == NULLABLE:
            return program.children[program.first[node]] if reader.read_present() else program.then[node]
        if target < 0:
            program.skip(reader, node)
            return program.then[node]
        column = cython.cast(Column, self.columns[target])
        if kind == DOUBLE or kind == FLOAT or kind == FIXED:
            column.put_wide(index, reader)
        elif kind == BOOLEAN:
            column.put_boolean(index, program.read_boolean(reader))
        elif kind == BIG:
            column.put_big(index, reader, program.high[node])
        elif kind == ARRAY:
            self._read_array(reader, node, target, index)
        return program.then[node]

    @cython.boundscheck(False)
    def _read_array(self, reader: RowReader, node: int, target: int, index: int) -> int:
        program = self.program
        child = program.children[program.first[node] + 0]
        column = cython.cast(Column, self.columns[target])
        column.place(index)
        items = column.used
        count = reader.read_count(program.least[child])
        while count:
            self.read(reader, child, items, count)
            items += count
            count = reader.read_count(program.least[child])
        column.close_list(index, items)
        return 0
