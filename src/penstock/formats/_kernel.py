# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The row kernel: writes, reads and skips Avro rows as a program says.

One source, two lives: compiled with the C types of `_kernel.pxd`, or run as plain Python. Every byte is reached through
a primitive that has checked its bounds before; index checks are switched off inside these primitives only. Counts and
lengths are compared with the bytes that are left before anything is allocated for them, and recursion is as deep as the
schema, not as the data says. Bad bytes raise CorruptLog with the offset inside the rows.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise
from typing import Any

import cython

from penstock.errors import CorruptLog

if not cython.compiled:
    NULL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, ARRAY, UNION, RECORD, NULLABLE, BIG = range(15)

compiled: bool = cython.compiled

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


def room(size: int) -> bytearray:
    """Memory that is not filled with anything first: much of it may never be needed."""
    if cython.compiled:
        return PyByteArray_FromStringAndSize(cython.NULL, size)  # noqa: F821
    return bytearray(size)


class RowBuffer:
    """A growing run of bytes that rows are written to."""

    def __init__(self, capacity: int = 256) -> None:
        self.store = room(max(capacity, 16))
        self.data = memoryview(self.store)
        self.capacity = len(self.store)
        self.size = 0

    def reserve(self, extra: int) -> int:
        """Make room for `extra` more bytes."""
        if extra > self.capacity - self.size:
            self._grow(extra)
        return 0

    def _grow(self, extra: int) -> int:
        store = room(max(2 * self.capacity, self.size + extra))
        store[: self.size] = memoryview(self.store)[: self.size]
        self.store = store
        self.data = memoryview(store)
        self.capacity = len(store)
        return 0

    @cython.boundscheck(False)
    def put_byte(self, value: int) -> int:
        self.reserve(1)
        self.data[self.size] = value
        self.size += 1
        return 0

    @cython.boundscheck(False)
    def put_long(self, value: int) -> int:
        """An Avro int or long: zigzag, seven bits at a time."""
        self.reserve(10)
        rest = (value << 1) ^ (value >> 63)
        at = self.size
        while rest > 127:
            self.data[at] = (rest & 127) | 128
            rest >>= 7
            at += 1
        self.data[at] = rest
        self.size = at + 1
        return 0

    def put_bytes(self, value: bytes) -> int:
        """An Avro bytes or string."""
        self.put_long(len(value))
        self.put_raw(value)
        return 0

    def put_raw(self, value: bytes) -> int:
        """Bytes as they are, for a fixed or an encoded part."""
        size = len(value)
        self.reserve(size)
        self.store[self.size : self.size + size] = value
        self.size += size
        return 0

    def put_float(self, value: float) -> int:
        self.put_raw(_FLOAT.pack(value))
        return 0

    def put_double(self, value: float) -> int:
        self.put_raw(_DOUBLE.pack(value))
        return 0

    def cut(self, size: int) -> None:
        """Take back what was written after `size`."""
        if not 0 <= size <= self.size:
            raise ValueError("nothing to take back there")
        self.size = size

    def __len__(self) -> int:
        return self.size

    def take(self) -> bytes:
        """A copy of what was written."""
        return bytes(memoryview(self.store)[: self.size])

    def give(self) -> memoryview:
        """What was written, without a copy: nothing more may be written."""
        return memoryview(self.store)[: self.size]


class RowReader:
    """A place in a run of encoded rows; each read checks that what it wants is there."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.data = memoryview(source)
        self.position = 0
        self.end = len(self.data)

    def fail(self, message: str) -> int:
        raise CorruptLog(f"rows are damaged: {message}", byte=self.position)

    @cython.boundscheck(False)
    def read_byte(self) -> int:
        if self.position >= self.end:
            self.fail("they end inside a value")
        value = self.data[self.position]
        self.position += 1
        return value

    @cython.boundscheck(False)
    def read_long(self) -> int:
        at = self.position
        if at >= self.end:
            self.fail("they end inside a number")
        byte = self.data[at]
        at += 1
        if byte < 128:
            self.position = at
            return (byte >> 1) ^ -(byte & 1)
        rest = byte & 127
        shift = 7
        while byte > 127:
            if at >= self.end:
                self.fail("they end inside a number")
            byte = self.data[at]
            at += 1
            if shift == 63 and byte > 1:
                self.fail("a number has more than 64 bits")
            part = byte & 127
            rest |= part << shift
            shift += 7
        self.position = at
        return (rest >> 1) ^ -(rest & 1)

    @cython.boundscheck(False)
    def read_present(self) -> int:
        """The branch of a union of null and one type: 0 or 1."""
        if self.position < self.end:
            # Nearly always one byte: 0 or 2.
            byte = self.data[self.position]
            if byte == 0 or byte == 2:
                self.position += 1
                return byte >> 1
        branch = self.read_long()
        if branch < 0 or branch > 1:
            self.fail("a union has no such branch")
        return branch

    def take(self, size: int) -> int:
        """Step over `size` bytes that must be there; the offset where they start."""
        if size < 0 or size > self.end - self.position:
            self.fail("a length is longer than the rest")
        at = self.position
        self.position = at + size
        return at

    def read_count(self, least: int) -> int:
        """The number of items in the next block of an array, 0 at the end. Each takes `least` bytes or more."""
        count = self.read_long()
        if count < 0:
            # The size of the block in bytes follows; it only helps readers that want to skip.
            if count < -self.end:
                self.fail("an array is longer than the rest")
            count = -count
            size = self.read_long()
            if size < 0 or size > self.end - self.position:
                self.fail("an array is longer than the rest")
        if count > (self.end - self.position) // least:
            self.fail("an array is longer than the rest")
        return count


def check_tables(kinds: Any, first: Any, counts: Any, children: Any, limits: Any) -> None:
    """The kernels index a program's tables without asking again: all numbers must stay inside them."""
    size = len(kinds)
    if not size or any(len(table) != size for table in (first, counts, *limits)):
        raise ValueError("the tables of a program differ in length")
    for node in range(size):
        start, stop = first[node], first[node] + counts[node]
        if not 0 <= start <= stop <= len(children):
            raise ValueError("a program has children outside its table")
        below = [node, *children[start:stop], size]
        if any(one >= other for one, other in pairwise(below)):
            raise ValueError("a program refers to a node that is not behind it")
        if kinds[node] in (NULLABLE, ARRAY) and counts[node] != 1:
            raise ValueError("a program has a node with the wrong number of children")
        if kinds[node] == UNION and (limits[0][node], limits[1][node]) != (0, counts[node] - 1):
            raise ValueError("a program has a union with other limits than its branches")
        if kinds[node] == ARRAY and limits[2][children[start]] < 1:
            raise ValueError("a program has an array of values without bytes")


def _nodes_after(kinds: Any, first: Any, counts: Any, children: Any) -> array[int]:
    """Of each node the one that comes after its value: -1 after a whole row, and after an item of an array."""
    then = array("i", [-1] * len(kinds))
    for node in range(len(kinds)):
        below = children[first[node] : first[node] + counts[node]]
        if kinds[node] == ARRAY:
            continue
        for child in below:
            then[child] = then[node]
        if kinds[node] == RECORD:
            for child, following in pairwise(below):
                then[child] = following
    return then


class Program:
    """A compiled Avro schema; see program.py for the tables."""

    def __init__(self, kinds: Any, first: Any, counts: Any, children: Any, low: Any, high: Any, least: Any) -> None:
        check_tables(kinds, first, counts, children, (low, high, least))
        self.kinds = memoryview(kinds)
        self.first = memoryview(first)
        self.counts = memoryview(counts)
        self.children = memoryview(children)
        self.low = memoryview(low)
        self.high = memoryview(high)
        self.least = memoryview(least)
        self.then = memoryview(_nodes_after(kinds, first, counts, children))

    @cython.boundscheck(False)
    def child(self, node: int, index: int) -> int:
        return self.children[self.first[node] + index]

    def size(self) -> int:
        """The number of nodes."""
        return len(self.kinds)

    def least_bytes(self) -> int:
        """The fewest bytes that a row takes."""
        return self.least[0]

    def encode(self, out: RowBuffer, datum: Any) -> None:
        """Append one row. Raises TypeError, ValueError or OverflowError on a misfit, and then leaves no part of it."""
        size = out.size
        try:
            self.write(out, 0, datum)
        except BaseException:
            out.size = size
            raise

    @cython.boundscheck(False)
    def write(self, out: RowBuffer, node: int, datum: Any) -> int:
        kind = self.kinds[node]
        if kind == NULLABLE:
            if datum is None:
                out.put_byte(0)
                return 0
            out.put_byte(2)
            node = self.child(node, 0)
            kind = self.kinds[node]
        if kind == RECORD:
            self._write_record(out, node, datum)
        elif kind == LONG or kind == INT or kind == ENUM:
            self._write_integer(out, node, datum)
        elif kind == STRING:
            if not isinstance(datum, str):
                raise TypeError("not a string")
            out.put_bytes(datum.encode())
        elif kind == BYTES or kind == BIG:
            if not isinstance(datum, bytes):
                raise TypeError("not bytes")
            out.put_bytes(datum)
        elif kind == UNION:
            self._write_union(out, node, datum)
        elif kind == ARRAY:
            self._write_array(out, node, datum)
        else:
            self._write_fixed(out, node, datum)
        return 0

    @cython.boundscheck(False)
    def _write_record(self, out: RowBuffer, node: int, datum: Any) -> int:
        if not isinstance(datum, tuple):
            raise TypeError("not a tuple")
        count = self.counts[node]
        if len(datum) != count:
            raise ValueError(f"{len(datum)} fields instead of {count}")
        for index in range(count):
            self.write(out, self.child(node, index), datum[index])
        return 0

    @cython.boundscheck(False)
    def _write_integer(self, out: RowBuffer, node: int, datum: Any) -> int:
        if not isinstance(datum, int) or isinstance(datum, bool):
            raise TypeError("not an integer")
        value = datum
        low = self.low[node]
        high = self.high[node]
        if value < low or value > high:
            raise ValueError("the integer is out of range")
        out.put_long(value)
        return 0

    @cython.boundscheck(False)
    def _write_union(self, out: RowBuffer, node: int, datum: Any) -> int:
        if datum is None:
            out.put_byte(0)
            return 0
        branch = datum[0]
        if branch < 1 or branch >= self.counts[node]:
            raise ValueError("no such branch")
        out.put_long(branch)
        self.write(out, self.child(node, branch), datum[1])
        return 0

    @cython.boundscheck(False)
    def _write_array(self, out: RowBuffer, node: int, datum: Any) -> int:
        if not isinstance(datum, (tuple, list)):
            raise TypeError("not a tuple")
        child = self.child(node, 0)
        if len(datum):
            out.put_long(len(datum))
            for item in datum:
                self.write(out, child, item)
        out.put_byte(0)
        return 0

    @cython.boundscheck(False)
    def _write_fixed(self, out: RowBuffer, node: int, datum: Any) -> int:
        kind = self.kinds[node]
        if kind == BOOLEAN:
            if not isinstance(datum, bool):
                raise TypeError("not a boolean")
            out.put_byte(1 if datum else 0)
        elif kind == FIXED:
            if not isinstance(datum, bytes) or len(datum) != self.low[node]:
                raise TypeError("not bytes of the right length")
            out.put_raw(datum)
        elif kind == NULL:
            if datum is not None:
                raise TypeError("not null")
        else:
            if isinstance(datum, int) and not isinstance(datum, bool) and float(datum) == datum:
                datum = float(datum)
            if not isinstance(datum, float):
                raise TypeError("not a float")
            if kind == FLOAT:
                out.put_float(datum)
            else:
                out.put_double(datum)
        return 0

    def decode(self, reader: RowReader) -> Any:
        """The next row as a tuple."""
        return self.read(reader, 0)

    @cython.boundscheck(False)
    def read(self, reader: RowReader, node: int) -> Any:
        kind = self.kinds[node]
        if kind == NULLABLE:
            if not reader.read_present():
                return None
            node = self.child(node, 0)
            kind = self.kinds[node]
        if kind == RECORD:
            return tuple([self.read(reader, self.child(node, index)) for index in range(self.counts[node])])
        if kind == LONG or kind == INT or kind == ENUM:
            return self.read_integer(reader, node)
        if kind == STRING:
            return self._read_string(reader)
        if kind == BYTES or kind == BIG:
            size = reader.read_long()
            at = reader.take(size)
            return reader.source[at : at + size]
        if kind == UNION:
            branch = self.read_branch(reader, node)
            return None if branch == 0 else (branch, self.read(reader, self.child(node, branch)))
        if kind == ARRAY:
            return self._read_array(reader, node)
        return self._read_fixed(reader, node)

    @cython.boundscheck(False)
    def read_integer(self, reader: RowReader, node: int) -> int:
        value = reader.read_long()
        low = self.low[node]
        high = self.high[node]
        if value < low or value > high:
            reader.fail("an integer is out of range")
        return value

    @cython.boundscheck(False)
    def read_branch(self, reader: RowReader, node: int) -> int:
        branch = reader.read_long()
        if branch < 0 or branch >= self.counts[node]:
            reader.fail("a union has no such branch")
        return branch

    def _read_string(self, reader: RowReader) -> Any:
        size = reader.read_long()
        at = reader.take(size)
        try:
            return reader.source[at : at + size].decode()
        except UnicodeDecodeError:
            reader.fail("a string is not UTF-8")

    @cython.boundscheck(False)
    def _read_array(self, reader: RowReader, node: int) -> Any:
        child = self.child(node, 0)
        items: list[Any] = []
        count = reader.read_count(self.least[child])
        while count:
            for _ in range(count):
                items.append(self.read(reader, child))
            count = reader.read_count(self.least[child])
        return tuple(items)

    @cython.boundscheck(False)
    def _read_fixed(self, reader: RowReader, node: int) -> Any:
        kind = self.kinds[node]
        if kind == BOOLEAN:
            return self.read_boolean(reader) != 0
        if kind == FIXED:
            size = self.low[node]
            at = reader.take(size)
            return reader.source[at : at + size]
        if kind == FLOAT:
            at = reader.take(4)
            return _FLOAT.unpack_from(reader.source, at)[0]
        if kind == DOUBLE:
            at = reader.take(8)
            return _DOUBLE.unpack_from(reader.source, at)[0]
        return None

    def read_boolean(self, reader: RowReader) -> int:
        value = reader.read_byte()
        if value > 1:
            reader.fail("a boolean is neither 0 nor 1")
        return value

    @cython.boundscheck(False)
    def skip(self, reader: RowReader, node: int) -> int:
        """Step over a value: its nodes are visited in the order of its bytes, each of which tells the next."""
        stop = self.then[node]
        end = reader.end
        at = reader.position
        while node != stop:
            kind = self.kinds[node]
            byte = reader.data[at] if at < end else 128
            if kind == NULLABLE and (byte == 0 or byte == 2):
                # Most members of most records are null.
                at += 1
                node = self.children[self.first[node]] if byte else self.then[node]
            elif kind == RECORD:
                node = self.children[self.first[node]] if self.counts[node] else self.then[node]
            elif kind == STRING or kind == BYTES or kind == BIG:
                reader.position = at
                reader.take(reader.read_long())
                at = reader.position
                node = self.then[node]
            elif (kind == LONG or kind == INT or kind == ENUM) and byte < 128:
                value = (byte >> 1) ^ -(byte & 1)
                at += 1
                if value < self.low[node] or value > self.high[node]:
                    reader.position = at
                    reader.fail("an integer is out of range")
                node = self.then[node]
            else:
                reader.position = at
                node = self._skip_other(reader, node)
                at = reader.position
        reader.position = at
        return 0

    @cython.boundscheck(False)
    def _skip_other(self, reader: RowReader, node: int) -> int:
        """What is not told by its first byte; gives the node that comes next."""
        kind = self.kinds[node]
        if kind == NULLABLE:
            return self.child(node, 0) if reader.read_present() else self.then[node]
        if kind == UNION:
            branch = self.read_branch(reader, node)
            return self.child(node, branch) if branch else self.then[node]
        if kind == LONG or kind == INT or kind == ENUM:
            self.read_integer(reader, node)
        elif kind == ARRAY:
            child = self.child(node, 0)
            count = reader.read_count(self.least[child])
            while count:
                for _ in range(count):
                    self.skip(reader, child)
                count = reader.read_count(self.least[child])
        elif kind == BOOLEAN:
            self.read_boolean(reader)
        elif kind == FIXED or kind == FLOAT or kind == DOUBLE:
            reader.take(self.least[node])
        return self.then[node]

    def skip_rows(self, reader: RowReader, count: int) -> None:
        for _ in range(count):
            self.skip(reader, 0)

    def bounds(self, reader: RowReader, starts: Any, tails: Any, count: int) -> None:
        """Where each row starts and where its last field does. `starts` takes one entry more: the end."""
        last = self.counts[0] - 1
        for row in range(count):
            starts[row] = reader.position
            for index in range(last):
                self.skip(reader, self.child(0, index))
            tails[row] = reader.position
            self.skip(reader, self.child(0, last))
        starts[count] = reader.position


class Scanner:
    """Reads what an index needs of change rows: the greatest time, and where transactions begin."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.time_seen = False
        self.time_max = 0
        self.marks: list[tuple[bytes, int, int]] = []
        self._sequences: dict[bytes, int] = {}

    def scan(self, reader: RowReader, count: int) -> None:
        program = self.program
        fields = program.counts[0]
        for row in range(count):
            program.skip(reader, program.child(0, 0))
            self._times(reader)
            if reader.read_present():
                self._origin(reader, row)
            for index in range(5, fields):
                program.skip(reader, program.child(0, index))

    def _times(self, reader: RowReader) -> int:
        """The write, commit and capture time; the commit's counts first, then the write's, then the capture's."""
        found = 0
        when = 0
        if reader.read_present():
            when = reader.read_long()
            found = 1
        if reader.read_present():
            when = reader.read_long()
            found = 1
        if reader.read_present():
            capture = reader.read_long()
            if not found:
                when = capture
                found = 1
        if found and (not self.time_seen or when > self.time_max):
            self.time_seen = True
            self.time_max = when
        return 0

    def _origin(self, reader: RowReader, row: int) -> int:
        for _ in range(3):
            if reader.read_present():
                reader.take(reader.read_long())
        if reader.read_present():
            reader.read_long()
        if reader.read_present():
            size = reader.read_long()
            at = reader.take(size)
            self._transaction(reader.source[at : at + size], reader.read_long(), row)
            reader.take(reader.read_long())
        if reader.read_present():
            reader.read_long()
        return 0

    def _transaction(self, domain: bytes, sequence: int, row: int) -> int:
        if self._sequences.get(domain) != sequence:
            self._sequences[domain] = sequence
            self.marks.append((domain, sequence, row))
        return 0
