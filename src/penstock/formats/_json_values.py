# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The JSON kernel's values: what columns hold, read from Avro bytes and written as JSON, by the tables of a plan.

Kinds of values that need Python's own numbers or text, or some values of them, are read as objects and rendered by a
function of the plan. Lists are as the kernel's rows: a comma before each item, the first of which a bracket replaces.
"""

from __future__ import annotations

from typing import Any

import cython

from penstock.formats._kernel import Program, RowReader
from penstock.formats._output import Output

if not cython.compiled:
    (
        TEXT,
        NUMBER,
        TRUTH,
        IDENTIFIER,
        BINARY,
        DATE,
        CLOCK,
        INSTANT,
        WALL_CLOCK,
        REAL,
        INTEGER,
        FIXED_DECIMAL,
        DECIMAL,
        ADDRESS,
        ITEMS,
        TUPLE,
        OBJECT,
        OBJECTS,
    ) = range(18)

compiled: bool = cython.compiled

# The days between 0001-01-01 and 9999-12-31, which is what calendars show, and those from 0000-03-01 to 1970-01-01.
_DAY_MIN, _DAY_MAX, _DAYS_BEFORE = -719_162, 2_932_896, 719_468
_DAY_S = 86_400


class JsonValues:
    """The JSON of one table's values; json_rows.py makes the tables, and says what they hold."""

    def __init__(
        self, program: Program, tables: dict[str, Any], literals: list[bytes], makers: list[Any], quote: Any
    ) -> None:
        _check(program, tables, len(literals), len(makers))
        self.program = program
        self.kinds = memoryview(tables["kinds"])
        self.avro = memoryview(tables["avro"])
        self.first = memoryview(tables["first"])
        self.counts = memoryview(tables["counts"])
        self.children = memoryview(tables["children"])
        self.names = memoryview(tables["names"])
        self.makers_of = memoryview(tables["makers"])
        self.numbers = memoryview(tables["numbers"])
        self.limits = memoryview(tables["limits"])
        self.literals = literals
        self.makers = makers
        self.quote = quote
        # Between two batches, so that no plan holds on to the text of one.
        self.nowhere = Output(0)
        self.out = self.nowhere

    @cython.boundscheck(False)
    def member(self, reader: RowReader, node: int) -> int:
        self.out.raw(self.literals[self.names[node]])
        return self.value(reader, node)

    @cython.boundscheck(False)
    def member_or_null(self, reader: RowReader, node: int) -> int:
        self.out.raw(self.literals[self.names[node]])
        return self.value_or_null(reader, node)

    def value_or_null(self, reader: RowReader, node: int) -> int:
        return self.value(reader, node) if reader.read_present() else self.out.raw(b"null")

    def int32(self, reader: RowReader) -> int:
        value = reader.read_long()
        if value < -0x80000000 or value > 0x7FFFFFFF:
            reader.fail("an integer is out of range")
        return value

    @cython.boundscheck(False)
    def value(self, reader: RowReader, node: int) -> int:
        kind = self.kinds[node]
        if kind == TEXT:
            return self.text(reader)
        if kind == NUMBER:
            return self.out.number(self.program.read_integer(reader, self.avro[node]))
        if kind == INSTANT or kind == WALL_CLOCK:
            return self._instant(reader, node)
        if kind == DATE or kind == CLOCK:
            return self._date_or_clock(reader, node)
        if kind == REAL:
            return self._real(reader, node)
        if kind == TRUTH:
            return self.out.raw(b"true" if self.program.read_boolean(reader) else b"false")
        if kind == IDENTIFIER or kind == BINARY:
            return self._bytes(reader, node)
        if kind == FIXED_DECIMAL or kind == DECIMAL:
            return self._decimal(reader, node)
        if kind == INTEGER or kind == ADDRESS:
            return self._integer_or_address(reader, node)
        if kind == ITEMS:
            return self._items(reader, node)
        if kind == TUPLE or kind == OBJECT:
            return self._fields(reader, node)
        return self._made(reader, node)

    @cython.boundscheck(False)
    def _made(self, reader: RowReader, node: int) -> int:
        """What only Python can say."""
        return self.out.raw(self.makers[self.makers_of[node]](self.program.read(reader, self.avro[node])))

    @cython.boundscheck(False)
    def text(self, reader: RowReader) -> int:
        size = reader.read_long()
        at = reader.take(size)
        out = self.out
        out.put(34)
        if size == 0 or out.plain(cython.address(reader.data[0]) if cython.compiled else reader.data, at, size):
            return out.put(34)
        out.size -= 1
        return out.raw(self._quoted(reader, at, size))

    def _quoted(self, reader: RowReader, at: int, size: int) -> Any:
        try:
            text = reader.source[at : at + size].decode()
        except UnicodeDecodeError:
            reader.fail("a string is not UTF-8")
        return self.quote(text).encode()

    @cython.boundscheck(False)
    def _bytes(self, reader: RowReader, node: int) -> int:
        out = self.out
        if self.kinds[node] == IDENTIFIER:
            at = reader.take(16)
            out.put(34)
            out.uuid(cython.address(reader.data[0]) if cython.compiled else reader.data, at)
            return out.put(34)
        size = reader.read_long()
        at = reader.take(size)
        out.raw(b'"0x')
        if size:
            out.hexadecimal(cython.address(reader.data[0]) if cython.compiled else reader.data, at, size)
        return out.put(34)

    @cython.boundscheck(False)
    def _real(self, reader: RowReader, node: int) -> int:
        value = self.program.read(reader, self.avro[node])
        if value - value == 0:
            return self.out.raw(repr(value).encode())
        return self.out.raw(self.makers[self.makers_of[node]](value))

    @cython.boundscheck(False)
    def _instant(self, reader: RowReader, node: int) -> int:
        value = reader.read_long()
        per_s = self.numbers[node]
        per_day = _DAY_S * per_s
        days = value // per_day
        rest = value - days * per_day
        if rest < 0:
            # C rounds towards zero.
            rest += per_day
            days -= 1
        if days < _DAY_MIN or days > _DAY_MAX:
            return self.out.number(value)
        self.out.put(34)
        self._day(days)
        self.out.put(32)
        self._clock(rest, per_s)
        if self.kinds[node] == INSTANT:
            self.out.put(90)
        return self.out.put(34)

    @cython.boundscheck(False)
    def _date_or_clock(self, reader: RowReader, node: int) -> int:
        value = self.program.read_integer(reader, self.avro[node])
        out = self.out
        if self.kinds[node] == DATE:
            if value < _DAY_MIN or value > _DAY_MAX:
                return out.number(value)
            out.put(34)
            self._day(value)
            return out.put(34)
        per_s = self.numbers[node]
        if value < 0 or value >= _DAY_S * per_s:
            return out.number(value)
        out.put(34)
        self._clock(value, per_s)
        return out.put(34)

    def _day(self, days: int) -> int:
        """A day of the calendar as 2026-11-18: years are counted from March, so that the leap day is a year's last."""
        since = days + _DAYS_BEFORE
        era = since // 146_097
        day = since - era * 146_097
        year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
        day -= 365 * year + year // 4 - year // 100
        month = (5 * day + 2) // 153
        day -= (153 * month + 2) // 5
        year += 400 * era + (month >= 10)
        out = self.out
        out.padded(year, 4)
        out.put(45)
        out.padded(month + 3 if month < 10 else month - 9, 2)
        out.put(45)
        return out.padded(day + 1, 2)

    def _clock(self, units: int, per_s: int) -> int:
        """A time within a day."""
        seconds = units // per_s
        out = self.out
        out.padded(seconds // 3600, 2)
        out.put(58)
        out.padded(seconds // 60 % 60, 2)
        out.put(58)
        out.padded(seconds % 60, 2)
        if per_s == 1:
            return 0
        out.put(46)
        return out.padded(units - seconds * per_s, 3 if per_s == 1_000 else 6 if per_s == 1_000_000 else 9)

    @cython.boundscheck(False)
    def _big_endian(self, reader: RowReader, at: int, size: int) -> int:
        """Two's complement in one to eight bytes, which lie inside the rows."""
        value = reader.data[at]
        if value > 127:
            value -= 256
        for step in range(1, size):
            value = value * 256 + reader.data[at + step]
        return value

    @cython.boundscheck(False)
    def _integer_or_address(self, reader: RowReader, node: int) -> int:
        start = reader.position
        size = reader.read_long()
        at = reader.take(size)
        if self.kinds[node] == INTEGER and 1 <= size <= 8:
            value = self._big_endian(reader, at, size)
            if value >= 0 or not self.numbers[node]:
                return self.out.number(value)
        elif self.kinds[node] == ADDRESS and size == 4:
            self.out.put(34)
            for step in range(4):
                if step:
                    self.out.put(46)
                self.out.number(reader.data[at + step])
            return self.out.put(34)
        reader.position = start
        return self._made(reader, node)

    @cython.boundscheck(False)
    def _decimal(self, reader: RowReader, node: int) -> int:
        start = reader.position
        size = reader.read_long()
        at = reader.take(size)
        scale = self.numbers[node] if self.kinds[node] == FIXED_DECIMAL else self.int32(reader)
        if 1 <= size <= 8 and 0 <= scale <= 18:
            unscaled = self._big_endian(reader, at, size)
            if self._plain_decimal(unscaled, scale, self.limits[node]):
                return 0
        reader.position = start
        return self._made(reader, node)

    def _plain_decimal(self, unscaled: int, scale: int, limit: int) -> int:
        """A decimal below the limit as Python writes it without an exponent; 0, and nothing written, for any other."""
        rest = cython.cast(cython.ulonglong, unscaled) if cython.compiled else abs(unscaled)
        if cython.compiled and unscaled < 0:
            rest = 0 - rest
        power = 1
        for _ in range(scale):
            power = power * 10
        # Python writes an exponent where more than five zeros would follow the point.
        if (limit and rest >= limit) or (scale > 6 and rest < power // 1_000_000):
            return 0
        out = self.out
        out.put(34)
        if scale == 0:
            out.number(unscaled)
        else:
            if unscaled < 0:
                out.put(45)
            out.number(rest // power)
            out.put(46)
            out.padded(rest % power, scale)
        out.put(34)
        return 1

    @cython.boundscheck(False)
    def _items(self, reader: RowReader, node: int) -> int:
        out = self.out
        begin = out.size
        child = self.children[self.first[node]]
        least = self.program.least[self.avro[child]]
        found = 0
        count = reader.read_count(least)
        while count:
            found += count
            for _ in range(count):
                out.put(44)
                self.value(reader, child)
            count = reader.read_count(least)
        if self.numbers[node] and found != self.numbers[node]:
            reader.fail("a vector has another length")
        return out.enclose(begin, 91, 93)

    @cython.boundscheck(False)
    def _fields(self, reader: RowReader, node: int) -> int:
        """A tuple or a user type."""
        out = self.out
        begin = out.size
        named = self.kinds[node] == OBJECT
        if not self.counts[node]:
            # The filler of a user type without fields.
            self.program.skip(reader, self.avro[node])
        for step in range(self.counts[node]):
            child = self.children[self.first[node] + step]
            if named:
                self.member_or_null(reader, child)
            else:
                out.put(44)
                self.value_or_null(reader, child)
        return out.enclose(begin, 123 if named else 91, 125 if named else 93)


def _check(program: Program, tables: dict[str, Any], literals: int, makers: int) -> None:
    """The kernel indexes its tables without asking again: all numbers must stay inside them."""
    kinds, children, first, counts = (tables[name] for name in ("kinds", "children", "first", "counts"))
    size = len(kinds)
    per_node = ("avro", "first", "counts", "names", "makers", "numbers", "limits")
    if any(len(tables[name]) != size for name in per_node):
        raise ValueError("the tables of a plan differ in length")
    for node in range(size):
        below = children[first[node] : first[node] + counts[node]]
        if len(below) != counts[node] or any(not node < child < size for child in below):
            raise ValueError("a plan refers to a node that is not behind it")
        if kinds[node] == ITEMS and counts[node] != 1:
            raise ValueError("a plan has a list with the wrong number of children")
    outside = [
        any(not 0 <= number < program.size() for number in tables["avro"]),
        any(not 0 <= number < literals for number in tables["names"]),
        any(not 0 <= number < makers for number in tables["makers"]),
    ]
    if any(outside):
        raise ValueError("a plan has numbers outside its tables")
