# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The key kernel: one pass over encoded changes that finds and hashes their keys and their content.

One source, two lives, as the kernels of the formats. A row's key is hashed as the bytes that stand in the row, so equal
keys have equal hashes on every machine and in every run. The content hash leaves out who captured the change and when,
and takes each cell by its column's name: two replicas that log the same write under two versions of the schema still
agree. Bad bytes raise CorruptLog, as everywhere.
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

from penstock.formats._kernel import Program, RowBuffer, RowReader

compiled: bool = cython.compiled

if not cython.compiled:
    from penstock.formats._kernel import BIG, BOOLEAN, BYTES, DOUBLE, FIXED, FLOAT, INT, LONG, NULLABLE, STRING

    WHOLE, STATIC, REGULAR, COMPLEX, MARKED, DELETING, BEFORE, TIMELESS = (1 << bit for bit in range(8))

MASK = 0xFFFFFFFFFFFFFFFF
_MULTIPLY = 0xC6A4A7935BD1E995
_MULTIPLY_LOW = 0x9FB21C651E98DF25
_SEED = 0x243F6A8885A308D3
_SEED_LOW = 0x13198A2E03707344
_TRUNCATE = 5
_ORIGIN = 4
_MARKER = 5
_DELETION = 6
_KEY = 8
_CELLS = 9
_BEFORE_IMAGE = 10
_SEAL = 11
_SET = 1
# What `short_value` can step over: text or bytes, integers of any size, integers of 32 bits, booleans, and so many
# bytes as are left of greater numbers.
_TEXT = 1
_NUMBER = 2
_SMALL_NUMBER = 3
_TRUTH = 4
_WIDE = 16
_WIDTH_MAX = 200
_SMALL = 1 << 27
_GREATEST = (1 << 63) - 1
_LEAST = -_GREATEST - 1
# How many rows ahead memory is asked for them.
_AHEAD = 8
# Groups up to this size are sorted by insertion.
_SORTED_MAX = 32


class RowHash:
    """Two 64-bit lanes over the bytes that were taken in so far; the first alone hashes keys."""

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, seed: int) -> int:
        self.high = _SEED ^ seed
        self.low = _SEED_LOW ^ seed
        return 0

    def word(self, value: int) -> int:
        value = (value * _MULTIPLY) & MASK
        value ^= value >> 47
        value = (value * _MULTIPLY) & MASK
        self.high = ((self.high ^ value) * _MULTIPLY) & MASK
        self.low = ((self.low + value) * _MULTIPLY_LOW) & MASK
        self.low ^= self.low >> 31
        return 0

    @cython.boundscheck(False)
    def take(self, reader: RowReader, start: int, end: int) -> int:
        """Bytes that lie inside the rows."""
        size = end - start
        self.word(size)
        at = start
        loaded = 0
        while end - at >= 8:
            if cython.compiled:
                memcpy(cython.address(loaded), cython.address(reader.data[at]), 8)  # noqa: F821
            else:
                loaded = int.from_bytes(reader.data[at : at + 8], "little")
            self.word(loaded)
            at += 8
        if at < end:
            loaded = 0
            shift = 8 * (end - at)
            if cython.compiled and at + 8 <= reader.end:
                memcpy(cython.address(loaded), cython.address(reader.data[at]), 8)  # noqa: F821
                loaded &= (cython.cast(cython.ulonglong, 1) << shift) - 1
            else:
                while at < end:
                    end -= 1
                    loaded = (loaded << 8) | reader.data[end]
            self.word(loaded)
        return 0

    def finish(self) -> int:
        self.high ^= self.high >> 47
        self.high = (self.high * _MULTIPLY) & MASK
        self.high ^= self.high >> 47
        self.low = (self.low * _MULTIPLY_LOW) & MASK
        self.low ^= self.low >> 32
        return 0


class KeyScan:
    """The pass. `names`, `multi` and `statics` have one entry per column among the cells, in the record's order."""

    def __init__(self, program: Program, partition: int, names: Any, multi: Any, statics: Any, content: bool) -> None:
        if program.size() < _SEAL + 1:
            raise ValueError("not the program of a change record")
        self.program = program
        self.partition = partition
        self.names = memoryview(names)
        self.multi = memoryview(multi)
        self.statics = memoryview(statics)
        self.content = content
        self.key = RowHash()
        self.whole = RowHash()
        self.cell = RowHash()
        cells = self.program.counts[self.program.child(0, _CELLS)]
        if len(self.names) < cells or len(self.multi) < cells or len(self.statics) < cells:
            raise ValueError("a column of the record has no name")
        self.plain = memoryview(plain_cells(program))
        self.plain_key = memoryview(plain_key(program))
        self.origin = self.program.child(self.program.child(0, _ORIGIN), 0)
        self.plain_origin = memoryview(_plain_values(self.program, self.origin))

    def scan(self, reader: RowReader, count: int, places: Any, marks: Any, times: Any, hashes: Any) -> None:
        """Fill the tables, one line per row.

        `places`: where the row starts, its key, its clustering values, its cells and its seal start, and where it ends.
        `marks`: operation and flags. `times`: the write time. `hashes`: partition, row, and the content's two lanes.
        """
        if len(places) < count or len(marks) < count or len(times) < count or len(hashes) < count:
            raise ValueError("the tables of a scan are too short")
        self.places = places
        self.marks = marks
        self.times = times
        self.hashes = hashes
        for row in range(count):
            self._row(reader, row)

    @cython.boundscheck(False)
    def _row(self, reader: RowReader, row: int) -> int:
        program = self.program
        start = reader.position
        flags = 0
        if start < reader.end and reader.data[start] <= 2 * _TRUNCATE and reader.data[start] & 1 == 0:
            op = reader.data[start] >> 1
            reader.position = start + 1
        else:
            op = program.read_integer(reader, program.child(0, 0))
        self.times[row] = 0
        if reader.read_present():
            self.times[row] = reader.read_long()
        else:
            flags |= TIMELESS
        self._pass(reader, 2)
        head = reader.position
        self._pass(reader, 3)
        self._origin(reader)
        marker = reader.position
        self._pass(reader, _MARKER)
        deletion = reader.position
        self._pass(reader, _DELETION)
        if deletion - marker > 1:
            flags |= MARKED
        if reader.position - deletion > 1:
            flags |= DELETING
        self._pass(reader, _DELETION + 1)
        flags |= self._key(reader, row)
        cells = reader.position
        if self.content:
            self.whole.reset(0)
            self.whole.take(reader, start, head)
            self.whole.take(reader, marker, cells)
        flags |= self._cells(reader)
        before = reader.position
        self._pass(reader, _BEFORE_IMAGE)
        tail = reader.position
        if tail - before > 1:
            flags |= BEFORE
            if self.content:
                self.whole.take(reader, before, tail)
        self._pass(reader, _SEAL)
        if self.content:
            self.whole.finish()
            self.hashes[row, 2] = self.whole.high
            self.hashes[row, 3] = self.whole.low
        self.places[row, 0] = start
        self.places[row, 3] = cells
        self.places[row, 4] = tail
        self.places[row, 5] = reader.position
        self.marks[row, 0] = op
        self.marks[row, 1] = flags
        return 0

    @cython.boundscheck(False)
    def _pass(self, reader: RowReader, part: int) -> int:
        """Step over a part of the record that is mostly not there."""
        if reader.position < reader.end and reader.data[reader.position] == 0:
            reader.position += 1
        else:
            self.program.skip(reader, self.program.child(0, part))
        return 0

    @cython.boundscheck(False)
    def _origin(self, reader: RowReader) -> int:
        program = self.program
        if reader.position >= reader.end or reader.data[reader.position] != 2:
            return self._pass(reader, _ORIGIN)
        reader.position += 1
        for index in range(program.counts[self.origin]):
            at = reader.position
            if at < reader.end and reader.data[at] == 0:
                reader.position = at + 1
                continue
            end = short_value(reader, at, self.plain_origin[index]) if self.plain_origin[index] else -1
            if end >= 0:
                reader.position = end
            else:
                program.skip(reader, program.child(self.origin, index))
        return 0

    @cython.boundscheck(False)
    def _key(self, reader: RowReader, row: int) -> int:
        program = self.program
        node = program.child(0, _KEY)
        columns = program.counts[node]
        start = reader.position
        split = start
        whole = WHOLE
        for index in range(columns):
            if index == self.partition:
                split = reader.position
            at = reader.position
            end = short_value(reader, at, self.plain_key[index]) if self.plain_key[index] else -1
            if end >= 0:
                reader.position = end
                continue
            program.skip(reader, program.child(node, index))
            # A value takes at least the byte that says it is there, and a null only that byte; some values are empty.
            if reader.data[at] == 0:
                whole = 0
        if self.partition >= columns:
            split = reader.position
        self.key.reset(0)
        self.key.take(reader, start, split)
        self.key.finish()
        self.hashes[row, 0] = self.key.high
        self.key.reset(self.key.low)
        self.key.take(reader, split, reader.position)
        self.key.finish()
        self.hashes[row, 1] = self.key.high
        self.places[row, 1] = start
        self.places[row, 2] = split
        return whole

    @cython.boundscheck(False)
    def _cells(self, reader: RowReader) -> int:
        program = self.program
        node = program.child(0, _CELLS)
        flags = 0
        high = 0
        low = 0
        for index in range(program.counts[node]):
            if reader.position < reader.end and reader.data[reader.position] == 0:
                # Absent, which most cells of most changes are.
                reader.position += 1
                continue
            at = reader.position
            # Nearly always a value and no stamp of its own.
            end = -1
            if self.plain[index] and at < reader.end and reader.data[at] == 2 * _SET:
                end = short_value(reader, at + 1, self.plain[index])
            if end >= 0 and end < reader.end and reader.data[end] == 0:
                reader.position = end + 1
            else:
                program.skip(reader, program.child(node, index))
            if self.statics[index]:
                flags |= STATIC
            else:
                flags |= REGULAR
            if self.multi[index]:
                flags |= COMPLEX
            if self.content:
                self.cell.reset(self.names[index])
                self.cell.take(reader, at, reader.position)
                self.cell.finish()
                # A sum, because the columns may stand in another order in another version of the schema.
                high = (high + self.cell.high) & MASK
                low = (low + self.cell.low) & MASK
        if self.content:
            self.whole.word(high)
            self.whole.word(low)
        return flags


def plain_cells(program: Program) -> array[int]:
    """Per column among the cells, how its values can be stepped over without the program; 0: they cannot."""
    node = program.child(0, _CELLS)
    out = array("B", [0] * (program.counts[node] + 1))
    for index in range(program.counts[node]):
        out[index] = _plain_value(program, program.child(program.child(program.child(node, index), _SET), 0))
    return out


def plain_key(program: Program) -> array[int]:
    """The same of the key's columns."""
    return _plain_values(program, program.child(0, _KEY))


def _plain_values(program: Program, node: int) -> array[int]:
    out = array("B", [0] * (program.counts[node] + 1))
    for index in range(program.counts[node]):
        out[index] = _plain_value(program, program.child(node, index))
    return out


def _plain_value(program: Program, value: int) -> int:
    if program.kinds[value] != NULLABLE:
        return 0
    value = program.child(value, 0)
    kind = program.kinds[value]
    if kind == STRING or kind == BYTES or kind == BIG:
        return _TEXT
    if kind == LONG and program.low[value] == _LEAST and program.high[value] == _GREATEST:
        return _NUMBER
    if (kind == LONG or kind == INT) and program.low[value] <= -_SMALL and program.high[value] >= _SMALL:
        return _SMALL_NUMBER
    if kind == BOOLEAN:
        return _TRUTH
    if (kind == FIXED or kind == FLOAT or kind == DOUBLE) and program.least[value] <= _WIDTH_MAX:
        return _WIDE + program.least[value]
    return 0


@cython.boundscheck(False)
def short_value(reader: RowReader, at: int, plain: int) -> int:
    """Where a value ends whose first byte, at `at`, says that it is there; -1 when the program must look at it."""
    if at < 0 or at + 2 > reader.end or reader.data[at] != 2:
        return -1
    if plain == _TEXT:
        size = reader.data[at + 1]
        if size > 127 or size & 1:
            return -1
        at += 2 + (size >> 1)
        return at if at <= reader.end else -1
    if plain >= _WIDE:
        at += 1 + plain - _WIDE
        return at if at <= reader.end else -1
    if plain == _TRUTH:
        return at + 2 if reader.data[at + 1] < 2 else -1
    # A number of four bytes is far from the ends of 32 bits.
    for _ in range(4 if plain == _SMALL_NUMBER else 8):
        at += 1
        if at >= reader.end:
            return -1
        if reader.data[at] < 128:
            return at + 1
    return -1


@cython.boundscheck(False)
def append(out: RowBuffer, reader: RowReader, start: int, end: int) -> int:
    """Copy bytes that lie inside the rows."""
    size = end - start
    if size <= 0:
        return 0
    out.reserve(size)
    if cython.compiled:
        memcpy(cython.address(out.data[out.size]), cython.address(reader.data[start]), size)  # noqa: F821
    else:
        out.data[out.size : out.size + size] = reader.data[start:end]
    out.size += size
    return 0


@cython.boundscheck(False)
def split_rows(reader: RowReader, places: Any, marks: Any, hashes: Any, fresh: Any, outs: list[RowBuffer]) -> list[int]:
    """Copy the rows that are fresh to the buffer of their bucket, without seals.

    Returns how many each bucket has then, and after these how many it would have with those that were left out.
    """
    buckets = len(outs)
    counts = [0] * (2 * buckets)
    rows = len(places)
    if len(marks) < rows or len(hashes) < rows or len(fresh) < rows:
        raise ValueError("the tables of a scan are too short")
    row = 0
    while row < rows:
        if marks[row, 0] == _TRUNCATE:
            for bucket in range(buckets):
                _row_to(outs[bucket], reader, places, row)
                counts[bucket] += 1
                counts[buckets + bucket] += 1
            row += 1
            continue
        bucket = ((hashes[row, 0] >> 32) * buckets) >> 32
        run = row
        # Rows of one partition often stand together: one copy for all of them.
        while (
            row < rows
            and marks[row, 0] != _TRUNCATE
            and cython.cast(cython.Py_ssize_t, ((hashes[row, 0] >> 32) * buckets) >> 32) == bucket
            and places[row, 5] - places[row, 4] == 1
            and fresh[row]
        ):
            row += 1
        if row > run:
            append(outs[bucket], reader, places[run, 0], places[row - 1, 5])
            counts[bucket] += row - run
            counts[buckets + bucket] += row - run
            continue
        if fresh[row]:
            _row_to(outs[bucket], reader, places, row)
            counts[bucket] += 1
        counts[buckets + bucket] += 1
        row += 1
    return counts


@cython.boundscheck(False)
def _row_to(out: RowBuffer, reader: RowReader, places: Any, row: int) -> int:
    append(out, reader, places[row, 0], places[row, 4])
    out.put_byte(0)
    return 0


@cython.boundscheck(False)
def pick_rows(reader: RowReader, places: Any, chosen: Any, out: RowBuffer) -> None:
    """Copy the chosen rows in the given order, without seals. The places must come from a scan of this reader."""
    count = len(places)
    for index in range(len(chosen)):
        if cython.compiled and index + _AHEAD < len(chosen):
            # Rows stand anywhere: memory is asked for the next ones while this one is copied.
            row = chosen[index + _AHEAD]
            if 0 <= row < count and 0 <= places[row, 0] < reader.end:
                fetch(cython.address(reader.data[places[row, 0]]))  # noqa: F821
        row = chosen[index]
        if row < 0 or row >= count or places[row, 4] > reader.end or places[row, 0] < 0:
            raise ValueError("no such row")
        _row_to(out, reader, places, row)


def order_rows(groups: Any, times: Any, bounds: Any, order: Any) -> bool:
    """Sort changes by group and then by time: `order` gets their numbers, `bounds` where the groups begin.

    `bounds` has zeros, two more than there are groups; the last one means nothing. False when it was not done: times
    are equal inside a group, which takes more to decide, or a group is so large that it wants another way.
    """
    count = len(groups)
    last = len(bounds) - 2
    if last < 0 or len(times) < count or len(order) < count:
        raise ValueError("the tables of an order are too short")
    for row in range(count):
        if groups[row] < 0 or groups[row] >= last:
            raise ValueError("no such group")
    return bool(_order(count, groups, times, bounds, order))


@cython.boundscheck(False)
def _order(count: int, groups: Any, times: Any, bounds: Any, order: Any) -> int:
    last = len(bounds) - 2
    for row in range(count):
        bounds[groups[row] + 2] += 1
    for group in range(2, last + 2):
        if bounds[group] > _SORTED_MAX:
            return 0
        bounds[group] += bounds[group - 1]
    # The entry after a group's own goes from its start to its end, which is where the next one starts.
    for row in range(count):
        place = bounds[groups[row] + 1]
        order[place] = row
        bounds[groups[row] + 1] = place + 1
    for group in range(last):
        first = bounds[group]
        for place in range(first + 1, bounds[group + 1]):
            row = order[place]
            at = place
            while at > first and times[order[at - 1]] > times[row]:
                order[at] = order[at - 1]
                at -= 1
            if at > first and times[order[at - 1]] == times[row]:
                return 0
            order[at] = row
    return 1


@cython.boundscheck(False)
def same_bytes(one: RowReader, start: int, other: RowReader, from_: int, size: int) -> int:
    """Whether two slices, which lie inside their rows, are equal."""
    if size == 0:
        return 1
    if not cython.compiled:
        return bool(one.data[start : start + size] == other.data[from_ : from_ + size])
    return memcmp(cython.address(one.data[start]), cython.address(other.data[from_]), size) == 0  # noqa: F821
