# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The row encoder of columns: reads Arrow buffers and writes Avro rows, without a Python object per row.

It walks the same program and the same targets as the column kernel, in the other direction. A part that is a union with
null is present when any of its columns (the probes) has a value at the index. Offsets and lengths of the Arrow arrays
are checked before use, so a batch that was made by hand can raise, but not read outside its buffers.
"""

from __future__ import annotations

from typing import Any

import cython

from penstock.formats._kernel import Program, RowBuffer

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

compiled: bool = cython.compiled


class Input:
    """The buffers of one Arrow array; `valid` is empty when every entry is valid. An absent array has length 0."""

    def __init__(self, length: int, offset: int, width: int, signed: bool, valid: Any, data: Any, offsets: Any) -> None:
        if length < 0 or offset < 0:
            raise ValueError("an array of negative length")
        end = length + offset
        self.length = length
        self.offset = offset
        self.width = width
        self.signed = signed
        self.valid = memoryview(valid)
        self.data = memoryview(data)
        self.offsets = memoryview(offsets)
        self.has_valid = len(self.valid) > 0
        if self.has_valid and 8 * len(self.valid) < end:
            raise ValueError("a validity bitmap is too short")
        if width > 0 and len(self.data) < end * width:
            raise ValueError("a value buffer is too short")
        # Width 0 marks booleans, -1 offsets into bytes or items, -2 a struct.
        if width == 0 and 8 * len(self.data) < end:
            raise ValueError("a value buffer is too short")
        if width == -1 and length and len(self.offsets) < end + 1:
            raise ValueError("an offset buffer is too short")

    def check(self, index: int) -> int:
        if index < 0 or index >= self.length:
            raise ValueError("an array is shorter than the batch")
        return 0

    @cython.boundscheck(False)
    def is_valid(self, index: int) -> int:
        self.check(index)
        if not self.has_valid:
            return 1
        at = index + self.offset
        return (self.valid[at >> 3] >> (at & 7)) & 1

    @cython.boundscheck(False)
    def integer(self, index: int) -> int:
        self.check(index)
        width = self.width
        at = (index + self.offset) * width
        if not cython.compiled:
            return int.from_bytes(self.data[at : at + width], "little", signed=bool(self.signed))
        bits = self.data[at]
        if width >= 2:
            bits |= cython.cast(cython.ulonglong, self.data[at + 1]) << 8
        if width >= 4:
            bits |= cython.cast(cython.ulonglong, self.data[at + 2]) << 16
            bits |= cython.cast(cython.ulonglong, self.data[at + 3]) << 24
        if width == 8:
            bits |= cython.cast(cython.ulonglong, self.data[at + 4]) << 32
            bits |= cython.cast(cython.ulonglong, self.data[at + 5]) << 40
            bits |= cython.cast(cython.ulonglong, self.data[at + 6]) << 48
            bits |= cython.cast(cython.ulonglong, self.data[at + 7]) << 56
        value = cython.cast(cython.longlong, bits)
        if self.signed and width < 8:
            half = cython.cast(cython.longlong, 1) << (8 * width - 1)
            value = (value ^ half) - half
        return value

    @cython.boundscheck(False)
    def boolean(self, index: int) -> int:
        self.check(index)
        at = index + self.offset
        return (self.data[at >> 3] >> (at & 7)) & 1

    @cython.boundscheck(False)
    def start(self, index: int, limit: int) -> int:
        """Where the bytes or items of an entry start; they end at `stop`, and lie below `limit`."""
        self.check(index)
        at = index + self.offset
        start = self.offsets[at]
        if start < 0 or start > self.offsets[at + 1] or self.offsets[at + 1] > limit:
            raise ValueError("the offsets of an array are damaged")
        return start

    @cython.boundscheck(False)
    def stop(self, index: int) -> int:
        self.check(index)
        return self.offsets[index + self.offset + 1]


class RowsOfColumns:
    """Writes rows of one program from one set of arrays."""

    def __init__(self, program: Program, targets: Any, probe_first: Any, probes: Any, inputs: list[Input]) -> None:
        size = program.size()
        if len(targets) != size or len(probe_first) != size + 1 or max(targets) >= len(inputs):
            raise ValueError("targets and arrays do not belong to the program")
        if max(probe_first) > len(probes) or min(probe_first) < 0:
            raise ValueError("the probes do not belong to the program")
        if max(probes) >= len(inputs) or min(probes) < 0 or any(not isinstance(i, Input) for i in inputs):
            raise ValueError("the probes do not belong to the arrays")
        self.program = program
        self.targets = memoryview(targets)
        self.probe_first = memoryview(probe_first)
        self.probes = memoryview(probes)
        self.inputs = list(inputs)

    def write_rows(self, out: RowBuffer, start: int, stop: int) -> None:
        for row in range(start, stop):
            self.write(out, 0, row)

    @cython.boundscheck(False)
    def present(self, node: int, index: int) -> int:
        for step in range(self.probe_first[node], self.probe_first[node + 1]):
            if self.input(self.probes[step]).is_valid(index):
                return 1
        return 0

    @cython.boundscheck(False)
    def write(self, out: RowBuffer, node: int, index: int) -> int:
        program = self.program
        kind = program.kinds[node]
        if kind == NULLABLE:
            # The seal is not a part of any column, and is never written here.
            if not self.present(node, index):
                out.put_byte(0)
                return 0
            out.put_byte(2)
            node = program.children[program.first[node] + 0]
            kind = program.kinds[node]
        target = self.targets[node]
        if kind == RECORD:
            # What lies under a null would be written as a value that nobody has set.
            if target >= 0:
                self._require(target, index)
            for step in range(program.counts[node]):
                self.write(out, program.children[program.first[node] + step], index)
        elif kind == UNION:
            branch = self.input(target).integer(index)
            if branch < 0 or branch >= program.counts[node]:
                raise ValueError("a cell has no such state")
            out.put_long(branch)
            if branch:
                self.write(out, program.children[program.first[node] + branch], index)
        elif kind == LONG or kind == INT or kind == ENUM:
            self._write_integer(out, node, target, index)
        elif kind == STRING or kind == BYTES:
            self._write_variable(out, target, index)
        elif kind == DOUBLE or kind == FLOAT or kind == FIXED:
            self._write_wide(out, target, index)
        elif kind == BOOLEAN:
            self._require(target, index)
            out.put_byte(self.input(target).boolean(index))
        elif kind == BIG:
            self._write_big(out, target, index, program.high[node])
        elif kind == ARRAY:
            self._write_array(out, node, target, index)
        return 0

    def _require(self, target: int, index: int) -> int:
        if not self.input(target).is_valid(index):
            raise ValueError("a null where a value is needed")
        return 0

    @cython.boundscheck(False)
    def _write_integer(self, out: RowBuffer, node: int, target: int, index: int) -> int:
        self._require(target, index)
        value = self.input(target).integer(index)
        low = self.program.low[node]
        high = self.program.high[node]
        if value < low or value > high:
            raise ValueError("the integer is out of range")
        out.put_long(value)
        return 0

    @cython.boundscheck(False)
    def _write_variable(self, out: RowBuffer, target: int, index: int) -> int:
        self._require(target, index)
        source = self.input(target)
        start = source.start(index, len(source.data))
        size = source.stop(index) - start
        out.put_long(size)
        self._copy(out, source, start, size)
        return 0

    def _write_wide(self, out: RowBuffer, target: int, index: int) -> int:
        self._require(target, index)
        source = self.input(target)
        self._copy(out, source, (index + source.offset) * source.width, source.width)
        return 0

    @cython.boundscheck(False)
    def _copy(self, out: RowBuffer, source: Input, start: int, size: int) -> int:
        """Bytes of an array's values, whose place was checked."""
        if not size:
            return 0
        out.reserve(size)
        if cython.compiled:
            memcpy(cython.address(out.data[out.size]), cython.address(source.data[start]), size)  # noqa: F821
        else:
            out.data[out.size : out.size + size] = source.data[start : start + size]
        out.size += size
        return 0

    @cython.boundscheck(False)
    def _write_big(self, out: RowBuffer, target: int, index: int, unsigned: int) -> int:
        """A little-endian integer of the column's width, as big-endian two's complement without needless bytes."""
        self._require(target, index)
        source = self.input(target)
        at = (index + source.offset) * source.width
        size = source.width
        filler = 255 if not unsigned and source.data[at + size - 1] > 127 else 0
        while size > 1 and source.data[at + size - 1] == filler:
            size -= 1
        # One byte more where the top bit would read as the wrong sign.
        lead = 1 if (source.data[at + size - 1] > 127) != (filler == 255) else 0
        out.put_long(size + lead)
        if lead:
            out.put_byte(filler)
        for step in range(size):
            out.put_byte(source.data[at + size - 1 - step])
        return 0

    @cython.boundscheck(False)
    def _write_array(self, out: RowBuffer, node: int, target: int, index: int) -> int:
        self._require(target, index)
        source = self.input(target)
        child = self.program.children[self.program.first[node] + 0]
        # The items are checked one by one against the length of their own array.
        start = source.start(index, 2147483647)
        stop = source.stop(index)
        if stop > start:
            out.put_long(stop - start)
            for item in range(start, stop):
                self.write(out, child, item)
        out.put_byte(0)
        return 0

    @cython.boundscheck(False)
    def input(self, target: int) -> Input:
        # The targets and probes were compared with the list when it was given.
        return cython.cast(Input, self.inputs[target])
