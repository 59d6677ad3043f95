# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""What kernels write text and records to: a growing run of bytes, and how numbers, text and lengths go into it."""

from __future__ import annotations

import struct
from typing import Any

import cython

if not cython.compiled:
    from penstock.formats._kernel import room

compiled: bool = cython.compiled

_DOUBLE = struct.Struct("<d")
# The digits of 00 to 99.
_PAIRS = b"".join(b"%02d" % number for number in range(100))
# In each of eight bytes, its lowest bit and its highest.
_ONES = 0x0101010101010101
_TOPS = 0x8080808080808080


class Output:
    """A growing run of bytes."""

    def __init__(self, capacity: int) -> None:
        self.store = room(max(capacity, 64))
        self.data = memoryview(self.store)
        self.capacity = len(self.store)
        self.size = 0

    def reserve(self, extra: int) -> int:
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
    def put(self, value: int) -> int:
        self.reserve(1)
        self.data[self.size] = value
        self.size += 1
        return 0

    @cython.boundscheck(False)
    def copy(self, source: Any, start: int, size: int) -> int:
        """Bytes of a buffer; the caller knows that they lie inside it."""
        if size <= 0:
            return 0
        self.reserve(size)
        if cython.compiled:
            memcpy(cython.address(self.data[self.size]), cython.address(source[start]), size)  # noqa: F821
        else:
            self.data[self.size : self.size + size] = source[start : start + size]
        self.size += size
        return 0

    @cython.boundscheck(False)
    def raw(self, value: bytes) -> int:
        """The bytes of a Python object: a constant, or a rare value that needs one."""
        size = len(value)
        if size == 0:
            return 0
        self.reserve(size)
        if cython.compiled:
            memcpy(cython.address(self.data[self.size]), PyBytes_AS_STRING(value), size)  # noqa: F821
        else:
            self.data[self.size : self.size + size] = value
        self.size += size
        return 0

    @cython.boundscheck(False)
    def number(self, value: int) -> int:
        """An integer in decimal digits."""
        if not cython.compiled:
            return self.raw(str(value).encode())
        self.reserve(24)
        rest = cython.cast(cython.ulonglong, value)
        if value < 0:
            self.data[self.size] = 45
            self.size += 1
            rest = 0 - rest
        if rest < 10:
            self.data[self.size] = 48 + rest
            self.size += 1
            return 0
        # The digits come from the last to the first, so where they end is found first.
        at = self.size + digits(rest)
        self.size = at
        while rest >= 100:
            at -= 2
            pair = 2 * (rest % 100)
            rest = rest // 100
            memcpy(cython.address(self.data[at]), PyBytes_AS_STRING(_PAIRS) + pair, 2)  # noqa: F821
        if rest >= 10:
            memcpy(cython.address(self.data[at - 2]), PyBytes_AS_STRING(_PAIRS) + 2 * rest, 2)  # noqa: F821
        else:
            self.data[at - 1] = 48 + rest
        return 0

    @cython.boundscheck(False)
    def padded(self, value: int, width: int) -> int:
        """A number that is not negative, in exactly so many digits."""
        self.reserve(width)
        at = self.size + width
        self.size = at
        for _ in range(width):
            at -= 1
            self.data[at] = 48 + value % 10
            value = value // 10
        return 0

    @cython.boundscheck(False)
    def varint(self, value: int) -> int:
        """Seven bits at a time; a negative number as its 64 bits."""
        self.reserve(10)
        rest = cython.cast(cython.ulonglong, value) if cython.compiled else value & ((1 << 64) - 1)
        at = self.size
        while rest > 127:
            self.data[at] = (rest & 127) | 128
            rest >>= 7
            at += 1
        self.data[at] = rest
        self.size = at + 1
        return 0

    def zigzag(self, value: int) -> int:
        """As Avro writes int and long."""
        return self.varint((value << 1) ^ (value >> 63))

    def float64(self, value: float) -> int:
        return self.raw(_DOUBLE.pack(value))

    @cython.boundscheck(False)
    def uuid(self, source: Any, start: int) -> int:
        """Sixteen bytes as text."""
        self.reserve(36)
        at = self.size
        for step in range(16):
            if step == 4 or step == 6 or step == 8 or step == 10:
                self.data[at] = 45
                at += 1
            byte = source[start + step]
            high = byte >> 4
            low = byte & 15
            self.data[at] = high + 48 if high < 10 else high + 87
            self.data[at + 1] = low + 48 if low < 10 else low + 87
            at += 2
        self.size = at
        return 0

    @cython.boundscheck(False)
    def hexadecimal(self, source: Any, start: int, size: int) -> int:
        self.reserve(2 * size)
        at = self.size
        for step in range(size):
            byte = source[start + step]
            self.data[at] = self.digit(byte >> 4)
            self.data[at + 1] = self.digit(byte & 15)
            at += 2
        self.size = at
        return 0

    def digit(self, value: int) -> int:
        return value + 48 if value < 10 else value + 87

    @cython.boundscheck(False)
    def base64(self, source: Any, start: int, size: int) -> int:
        self.reserve((size + 2) // 3 * 4)
        at = self.size
        step = 0
        while step < size:
            left = size - step
            first = source[start + step]
            second = source[start + step + 1] if left > 1 else 0
            third = source[start + step + 2] if left > 2 else 0
            self.data[at] = self.sextet(first >> 2)
            self.data[at + 1] = self.sextet(((first & 3) << 4) | (second >> 4))
            self.data[at + 2] = self.sextet(((second & 15) << 2) | (third >> 6)) if left > 1 else 61
            self.data[at + 3] = self.sextet(third & 63) if left > 2 else 61
            at += 4
            step += 3
        self.size = at
        return 0

    def sextet(self, value: int) -> int:
        """A character of base 64."""
        if value < 26:
            return value + 65
        if value < 52:
            return value + 71
        if value < 62:
            return value - 4
        return 43 if value == 62 else 47

    @cython.boundscheck(False)
    def escaped(self, source: Any, start: int, size: int) -> int:
        """Text inside a JSON string."""
        self.reserve(6 * size)
        at = self.size
        step = 0
        eight = 0
        while step < size:
            if cython.compiled and size - step >= 8:
                memcpy(cython.address(eight), cython.address(source[start + step]), 8)  # noqa: F821
                if not _special(eight):
                    memcpy(cython.address(self.data[at]), cython.address(eight), 8)  # noqa: F821
                    at += 8
                    step += 8
                    continue
            byte = source[start + step]
            step += 1
            if byte >= 32 and byte != 34 and byte != 92:
                self.data[at] = byte
                at += 1
                continue
            self.data[at] = 92
            at += 1
            if byte == 34 or byte == 92:
                self.data[at] = byte
            elif byte == 10:
                self.data[at] = 110
            elif byte == 13:
                self.data[at] = 114
            elif byte == 9:
                self.data[at] = 116
            else:
                self.data[at] = 117
                self.data[at + 1] = 48
                self.data[at + 2] = 48
                self.data[at + 3] = self.digit(byte >> 4)
                self.data[at + 4] = self.digit(byte & 15)
                at += 4
            at += 1
        self.size = at
        return 0

    @cython.boundscheck(False)
    def plain(self, source: Any, start: int, size: int) -> int:
        """Text that JSON shows as it is, in any form of it; 0, and nothing written, where there is any other."""
        if not cython.compiled:
            return 0
        self.reserve(size)
        at = self.size
        step = 0
        eight = 0
        while size - step >= 8:
            memcpy(cython.address(eight), cython.address(source[start + step]), 8)  # noqa: F821
            # What is not ASCII, or would not be if it were one more.
            if _special(eight) or (eight | (eight + _ONES)) & _TOPS:
                return 0
            memcpy(cython.address(self.data[at + step]), cython.address(eight), 8)  # noqa: F821
            step += 8
        while step < size:
            byte = source[start + step]
            if byte < 32 or byte == 34 or byte == 92 or byte > 126:
                return 0
            self.data[at + step] = byte
            step += 1
        self.size = at + size
        return 1

    @cython.boundscheck(False)
    def enclose(self, begin: int, opening: int, closing: int) -> int:
        """Brackets around what was written since `begin`, which is nothing or begins with a comma."""
        if self.size == begin:
            self.put(opening)
        else:
            self.data[begin] = opening
        return self.put(closing)

    @cython.boundscheck(False)
    def open_gap(self, start: int, gap: int) -> int:
        """Move what was written from `start` on, to make room in front of it."""
        self.reserve(gap)
        size = self.size - start
        if cython.compiled:
            memmove(  # noqa: F821
                cython.address(self.data[start + gap]), cython.address(self.data[start]), size
            )
        else:
            self.data[start + gap : start + gap + size] = bytes(self.data[start : start + size])
        self.size += gap
        return 0

    @cython.boundscheck(False)
    def put_length(self, begin: int, shift: int) -> int:
        """The length of all that was written since `begin`, in front of it: `shift` is 1 where a sign is expected."""
        size = self.size - begin
        room = 1
        rest = size << shift >> 7
        while rest:
            room += 1
            rest >>= 7
        self.open_gap(begin, room)
        end = self.size
        self.size = begin
        self.varint(size << shift)
        self.size = end
        return 0

    def taken(self) -> Any:
        """What was written, without a copy; nothing more may be written."""
        return memoryview(self.store)[: self.size]


def digits(value: int) -> int:
    """How many decimal digits a number has."""
    count = 1
    while value >= 10000:
        value = value // 10000
        count += 4
    if value >= 1000:
        return count + 3
    if value >= 100:
        return count + 2
    return count + 1 if value >= 10 else count


def _special(eight: int) -> int:
    """Whether any of eight bytes cannot stand in a JSON string as it is: a quote, a backslash, or one below 32."""
    quote = eight ^ 34 * _ONES
    slash = eight ^ 92 * _ONES
    found = (eight - 32 * _ONES) & ~eight
    found |= (quote - _ONES) & ~quote
    found |= (slash - _ONES) & ~slash
    return 1 if found & _TOPS else 0
