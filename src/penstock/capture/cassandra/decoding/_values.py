# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""Values of CQL types, from the bytes of a commit log straight into the Avro form of the change record.

One source, two lives, as the kernels of the formats: compiled with the C types of `_values.pxd`, or plain Python. Every
length is compared with the bytes that are left before it is used, and nothing is written before there is room for it;
recursion is as deep as the column's type. A value that does not fit its type is no exception but a returned number:
MISFIT, or MORE_FIELDS when a user type has fields that are not known here, which a newer schema will explain.
"""

from __future__ import annotations

from typing import Any

import cython

from penstock.formats._kernel import RowBuffer

compiled: bool = cython.compiled

if not cython.compiled:
    import zlib

    (
        BOOLEAN,
        INT8,
        INT16,
        INT32,
        INT64,
        FLOAT32,
        FLOAT64,
        TEXT,
        ASCII,
        BYTES,
        UUID,
        TIMEUUID,
        VARINT,
        DECIMAL,
        INET,
        DATE,
        DURATION,
        LIST,
        MAP,
        TUPLE,
        USER,
        VECTOR,
    ) = range(22)
    FITS, MISFIT, MORE_FIELDS = range(3)
    # A scalar's Avro form is longer than its bytes by less than this.
    SCALAR_BYTES_MORE = 24
    # Dates are counted from here on, so that 1970-01-01 is day 2^31.
    DAY_ZERO = -(1 << 31)
    # No time; it is also what Cassandra writes for none.
    NO_TIME = -(1 << 63)
    # Cassandra counts from 2015-09-22 on.
    EPOCH_S = 1442880000
    EPOCH_US = EPOCH_S * 1000000

    def be32(p: Any, at: int) -> int:
        return int.from_bytes(p[at : at + 4], "big")

    def be64(p: Any, at: int) -> int:
        return int.from_bytes(p[at : at + 8], "big")

    def local_second(total: int, is_unsigned: bool) -> int:
        """A local deletion second, of 32 bits: signed up to format 7, where the greatest is none, then unsigned.

        NO_TIME stands for none; another negative number is an overflow, or what Cassandra calls invalid.
        """
        second = total & 0xFFFFFFFF
        if not is_unsigned:
            return NO_TIME if second == 0x7FFFFFFF else signed32(second)
        if second == 0xFFFFFFFF:
            return NO_TIME
        return -1 if second == 0xFFFFFFFE else second

    def vint_bytes(p: Any, at: int, end: int) -> int:
        """How many bytes a variable-length number has, its first byte at `at`; 0 when not all of them are there."""
        if at >= end:
            return 0
        # The first byte's leading one bits say how many follow.
        size = 9 - (~p[at] & 255).bit_length()
        return 0 if size > end - at else size

    def vint_value(p: Any, at: int, size: int) -> int:
        return (p[at] & (255 >> size)) << (8 * (size - 1)) | int.from_bytes(p[at + 1 : at + size], "big")

    def counted(p: Any, at: int, end: int) -> int:
        """The length that stands at `at` when so many bytes follow it, else -1."""
        size = vint_bytes(p, at, end)
        value = vint_value(p, at, size) if size else 0
        return value if size and value <= end - at - size else -1

    def put_long(out: Any, at: int, value: int) -> int:
        rest = (value << 1) ^ (value >> 63)
        while rest > 127:
            out[at] = (rest & 127) | 128
            rest >>= 7
            at += 1
        out[at] = rest
        return at + 1

    def copy(out: Any, at: int, p: Any, start: int, size: int) -> None:
        out[at : at + size] = p[start : start + size]

    def copy_reversed(out: Any, at: int, p: Any, start: int, size: int) -> None:
        out[at : at + size] = bytes(p[start : start + size])[::-1]

    def fill(out: Any, at: int, size: int) -> None:
        out[at : at + size] = bytes(size)

    def same(p: Any, at: int, q: Any, size: int) -> bool:
        return bytes(p[at : at + size]) == bytes(q[:size])

    def ascii_run(p: Any, at: int, size: int) -> int:
        """How many of the bytes are ASCII before the first that is not."""
        return next((i for i in range(size) if p[at + i] > 127), size)

    def is_text(p: Any, at: int, size: int) -> bool:
        try:
            bytes(p[at : at + size]).decode()
        except UnicodeDecodeError:
            return False
        return True

    def crc32_of(p: Any, at: int, size: int, seed: int) -> int:
        return zlib.crc32(p[at : at + size], seed)

    def signed32(value: int) -> int:
        return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000

    def signed64(value: int) -> int:
        return ((value + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)

    def put_stamp(out: Any, pos: int, own: int, time: int, ttl: int, local: int) -> int:
        """The stamp of a cell in a change of this time, where there is room; where it ends."""
        if own == time and ttl == 0:
            out[pos] = 0
            return pos + 1
        out[pos] = 2
        pos += 1
        if own == time:
            out[pos] = 0
            pos += 1
        else:
            out[pos] = 2
            pos = put_long(out, pos + 1, own)
        if ttl == 0:
            out[pos] = 0
            return pos + 1
        out[pos] = 2
        pos = put_long(out, pos + 1, ttl)
        return put_long(out, pos, local)

    def put_deleted(out: Any, pos: int, own: int, time: int, local: int) -> int:
        """Time and second of a tombstone in a change of this time, where there is room; where they end."""
        if own == time:
            out[pos] = 0
            pos += 1
        else:
            out[pos] = 2
            pos = put_long(out, pos + 1, own)
        out[pos] = 2
        return put_long(out, pos + 1, local)

    def put_deletion(out: Any, pos: int, time: int, local: int) -> int:
        """A Deletion that may be none, where there is room; where it ends."""
        if time == NO_TIME:
            out[pos] = 0
            return pos + 1
        out[pos] = 2
        pos = put_long(out, pos + 1, time)
        # The replica's second is of use only where it makes sense.
        if local < 0:
            out[pos] = 0
            return pos + 1
        out[pos] = 2
        return put_long(out, pos + 1, local)

    def put_scalar(out: Any, pos: int, src: Any, at: int, size: int, kind: int) -> int:
        """The value in the `size` bytes at `at`, which are there, at `pos`, where is room; where it ends, or -1."""
        if kind == TEXT or kind == BYTES:
            if kind == TEXT and not is_text(src, at, size):
                return -1
            pos = put_long(out, pos, size)
            copy(out, pos, src, at, size)
            return pos + size
        if kind == INT64:
            return put_long(out, pos, signed64(be64(src, at))) if size == 8 else -1
        if kind == INT32:
            return put_long(out, pos, signed32(be32(src, at))) if size == 4 else -1
        if kind == UUID or kind == TIMEUUID:
            if size != 16 or (kind == TIMEUUID and src[at + 6] >> 4 != 1):
                return -1
            copy(out, pos, src, at, 16)
            return pos + 16
        if kind == FLOAT64:
            if size != 8:
                return -1
            copy_reversed(out, pos, src, at, 8)
            return pos + 8
        if kind == BOOLEAN:
            if size != 1:
                return -1
            out[pos] = 1 if src[at] else 0
            return pos + 1
        return _put_odd(out, pos, src, at, size, kind)

    def _put_odd(out: Any, pos: int, src: Any, at: int, size: int, kind: int) -> int:
        """The scalars that are met less often."""
        if kind == DATE:
            return put_long(out, pos, signed32(be32(src, at)) ^ DAY_ZERO) if size == 4 else -1
        if kind == DECIMAL:
            if size < 4:
                return -1
            return put_long(out, _put_integer(out, pos, src, at + 4, size - 4), signed32(be32(src, at)))
        if kind == VARINT:
            return _put_integer(out, pos, src, at, size)
        if kind == FLOAT32:
            if size != 4:
                return -1
            copy_reversed(out, pos, src, at, 4)
            return pos + 4
        if kind == INT16:
            return put_long(out, pos, (((src[at] << 8 | src[at + 1]) + 32768) & 65535) - 32768) if size == 2 else -1
        if kind == INT8:
            return put_long(out, pos, ((src[at] + 128) & 255) - 128) if size == 1 else -1
        if kind == DURATION:
            return _put_duration(out, pos, src, at, size)
        if kind == INET and size != 4 and size != 16:
            return -1
        if kind == ASCII and ascii_run(src, at, size) != size:
            return -1
        pos = put_long(out, pos, size)
        copy(out, pos, src, at, size)
        return pos + size

    def _put_integer(out: Any, pos: int, src: Any, at: int, size: int) -> int:
        """Two's complement, big-endian, without bytes that only repeat the sign; no bytes are 0."""
        while size > 1 and ((src[at] == 0 and src[at + 1] < 128) or (src[at] == 255 and src[at + 1] > 127)):
            at += 1
            size -= 1
        if size == 0:
            out[pos] = 2
            out[pos + 1] = 0
            return pos + 2
        pos = put_long(out, pos, size)
        copy(out, pos, src, at, size)
        return pos + size

    def _put_duration(out: Any, pos: int, src: Any, at: int, size: int) -> int:
        """Months, days and nanoseconds: three variable-length numbers of one sign."""
        end = at + size
        below = False
        above = False
        for part in range(3):
            step = vint_bytes(src, at, end)
            if step == 0:
                return -1
            raw = vint_value(src, at, step)
            at += step
            value = signed64((raw >> 1) ^ -(raw & 1))
            if part < 2 and value != signed32(value):
                return -1
            if value < 0:
                below = True
            elif value > 0:
                above = True
            pos = put_long(out, pos, value)
        return -1 if at != end or (below and above) else pos

    put_scalar_here = put_scalar


class Values:
    """The types of one table's columns as tables of numbers (value_plan.py), and how their values are written.

    A row of the tables is a node: its kind, the length of its values where that is fixed (else -1), its children.
    """

    def __init__(self, kinds: Any, fixed: Any, first: Any, counts: Any, children: Any) -> None:
        size = len(kinds)
        if any(len(table) != size for table in (fixed, first, counts)):
            raise ValueError("the tables of a plan differ in length")
        for node in range(size):
            # A vector has one child, and its length in the place of the number of children.
            number = 1 if kinds[node] == VECTOR else counts[node]
            needed = 2 if kinds[node] == MAP else 1 if kinds[node] in (LIST, VECTOR) else 0
            if not 0 <= first[node] <= first[node] + number <= len(children) or number < needed:
                raise ValueError("a plan has children outside its table")
            if any(not node < child < size for child in children[first[node] : first[node] + number]):
                raise ValueError("a plan refers to a node that is not behind it")
            if kinds[node] == VECTOR and counts[node] < 1:
                raise ValueError("a plan has a vector without a length")
        self.kinds = memoryview(kinds)
        self.fixed = memoryview(fixed)
        self.first = memoryview(first)
        self.counts = memoryview(counts)
        self.children = memoryview(children)
        # How far rows may grow; fields that are left out of a value take a byte each.
        self.ceiling = 1 << 30

    def size(self) -> int:
        """The number of nodes."""
        return len(self.kinds)

    @cython.boundscheck(False)
    def kind(self, node: int) -> int:
        """The kind of a type; -1 when it has parts."""
        return self.kinds[node] if self.kinds[node] < LIST else -1

    @cython.boundscheck(False)
    def fields(self, node: int) -> int:
        """The number of fields of a user type."""
        return self.counts[node]

    @cython.boundscheck(False)
    def width(self, node: int) -> int:
        """The length of a type's values where it is fixed, else -1."""
        return self.fixed[node]

    @cython.boundscheck(False)
    def may_be_empty(self, node: int) -> bool:
        """Whether no bytes at all are a value of this type; of the others they stand for null."""
        kind = self.kinds[node]
        return kind == TEXT or kind == BYTES or kind == ASCII

    def write_or_null(self, rows: RowBuffer, src: Any, at: int, size: int, node: int) -> int:
        """A value that may be null (size -1)."""
        if size < 0 or (size == 0 and not self.may_be_empty(node)):
            rows.put_byte(0)
            return FITS
        rows.put_byte(2)
        return self.write(rows, src, at, size, node)

    @cython.boundscheck(False)
    def write_field(self, rows: RowBuffer, src: Any, at: int, size: int, node: int, field: int) -> int:
        """One field of a non-frozen user type: the type's record with only that field filled, or null."""
        child = self.children[self.first[node] + field]
        if size == 0 and not self.may_be_empty(child):
            rows.put_byte(0)
            return FITS
        rows.put_byte(2)
        for _ in range(field):
            rows.put_byte(0)
        rows.put_byte(2)
        outcome = self.write(rows, src, at, size, child)
        for _ in range(field + 1, self.counts[node]):
            rows.put_byte(0)
        return outcome

    @cython.boundscheck(False)
    def write(self, rows: RowBuffer, src: Any, at: int, size: int, node: int) -> int:
        """The value in the `size` bytes at `at`, which are there."""
        kind = self.kinds[node]
        if kind < LIST:
            rows.reserve(size + SCALAR_BYTES_MORE)
            out = cython.address(rows.data[0]) if cython.compiled else rows.store
            pos = put_scalar(out, rows.size, src, at, size, kind)
            if pos < 0:
                return MISFIT
            rows.size = pos
            return FITS
        if kind == LIST:
            return self._write_list(rows, src, at, size, node)
        if kind == MAP:
            return self._write_map(rows, src, at, size, node)
        if kind == VECTOR:
            return self._write_vector(rows, src, at, size, node)
        return self._write_fields(rows, src, at, size, node)

    @cython.boundscheck(False)
    def _write_list(self, rows: RowBuffer, src: Any, at: int, size: int, node: int) -> int:
        """A frozen list or set: the number of elements, then each with its length."""
        child = self.children[self.first[node]]
        end = at + size
        if size < 4:
            return MISFIT
        count = signed32(be32(src, at))
        if count < 0 or count > (size - 4) // 4:
            return MISFIT
        at += 4
        if count:
            rows.put_long(count)
        for _ in range(count):
            if end - at < 4:
                return MISFIT
            length = signed32(be32(src, at))
            at += 4
            # The record has no null inside a list, and Cassandra refuses one.
            if length < 0 or length > end - at or (length == 0 and not self.may_be_empty(child)):
                return MISFIT
            outcome = self.write(rows, src, at, length, child)
            if outcome != FITS:
                return outcome
            at += length
        rows.put_byte(0)
        return FITS if at == end else MISFIT

    @cython.boundscheck(False)
    def _write_map(self, rows: RowBuffer, src: Any, at: int, size: int, node: int) -> int:
        """A frozen map: the number of entries, then keys and values in turn, each with its length."""
        key = self.children[self.first[node]]
        value = self.children[self.first[node] + 1]
        end = at + size
        if size < 4:
            return MISFIT
        count = signed32(be32(src, at))
        if count < 0 or count > (size - 4) // 8:
            return MISFIT
        at += 4
        if count:
            rows.put_long(count)
        for _ in range(count):
            if end - at < 4:
                return MISFIT
            length = signed32(be32(src, at))
            at += 4
            if length < 0 or length > end - at or (length == 0 and not self.may_be_empty(key)):
                return MISFIT
            outcome = self.write(rows, src, at, length, key)
            if outcome != FITS:
                return outcome
            at += length
            if end - at < 4:
                return MISFIT
            length = signed32(be32(src, at))
            at += 4
            if length > end - at:
                return MISFIT
            outcome = self.write_or_null(rows, src, at, length, value)
            if outcome != FITS:
                return outcome
            at += length if length > 0 else 0
        rows.put_byte(0)
        return FITS if at == end else MISFIT

    @cython.boundscheck(False)
    def _write_fields(self, rows: RowBuffer, src: Any, at: int, size: int, node: int) -> int:
        """A tuple or frozen user type. Fields that were added to the type later are missing at the end."""
        end = at + size
        if rows.size > self.ceiling:
            return MISFIT
        for field in range(self.counts[node]):
            if at == end:
                rows.put_byte(0)
                continue
            if end - at < 4:
                return MISFIT
            length = signed32(be32(src, at))
            at += 4
            if length > end - at:
                return MISFIT
            outcome = self.write_or_null(rows, src, at, length, self.children[self.first[node] + field])
            if outcome != FITS:
                return outcome
            at += length if length > 0 else 0
        if self.counts[node] == 0:
            # The record of a user type without fields has a filler.
            rows.put_byte(0)
        if at == end:
            return FITS
        return MORE_FIELDS if self.kinds[node] == USER else MISFIT

    @cython.boundscheck(False)
    def _write_vector(self, rows: RowBuffer, src: Any, at: int, size: int, node: int) -> int:
        """As many elements as the type says: back to back where their length is fixed, else each with its length."""
        child = self.children[self.first[node]]
        count = self.counts[node]
        width = self.fixed[child]
        end = at + size
        if count > size:
            return MISFIT
        rows.put_long(count)
        for _ in range(count):
            length = width
            if width < 0:
                step = vint_bytes(src, at, end)
                if step == 0:
                    return MISFIT
                raw = vint_value(src, at, step)
                at += step
                if raw > size:
                    return MISFIT
                length = raw
            if length > end - at or (length == 0 and not self.may_be_empty(child)):
                return MISFIT
            outcome = self.write(rows, src, at, length, child)
            if outcome != FITS:
                return outcome
            at += length
        rows.put_byte(0)
        return FITS if at == end else MISFIT
