# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The envelope kernel's shared part: a tree of fields over Arrow buffers, and the bytes that are written of it.

A tree is compiled once for a table, an envelope and a serialisation; binding it to the arrays of a batch costs a few
microseconds. Subclasses say how each kind of field is written. A record that cannot be written, because a value is
beyond what the consumer's type holds, leaves no bytes; its number and the reason are kept, and the others go on.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from decimal import Context, Decimal
from typing import Any

import cython

from penstock.formats._output import Output
from penstock.formats._rows import Input

if not cython.compiled:
    (
        CONST,
        STRUCT,
        LIST,
        MAP,
        BOOL,
        INT,
        FLOAT,
        DOUBLE,
        STRING,
        BYTES,
        UUID,
        INET,
        WORD,
        VARINT_LONG,
        VARINT_TEXT,
        DECIMAL_DOUBLE,
        DECIMAL_TEXT,
        DURATION,
        CELL,
        KEY_CELL,
        FIELD_DELTA,
        COUNTER_DELTA,
    ) = range(22)
    # Flags of a field.
    OPTIONAL, SHARED, OBJECT = 1, 2, 4
    # What a cell turned out to be.
    ABSENT, VALUE, GONE, DELTA = range(4)
    # The numbers of the operations, in the order of `Op`.
    DELETE, DELETE_PARTITION = 2, 3
    # The inputs that every tree has: the operation, and the time of the row's deletion.
    OPERATIONS, DELETIONS = 0, 1

compiled: bool = cython.compiled

_EXACT = Context(prec=10**9, Emax=10**17, Emin=-(10**17))
_INT64 = range(-(1 << 63), 1 << 63)


def _inet6(address: bytes) -> bytes:
    """The text of sixteen bytes. C is far quicker, but writes what may be an older address in two parts."""
    if any(address[:10]):
        return socket.inet_ntop(socket.AF_INET6, address).encode()
    return str(ipaddress.ip_address(address)).encode()


class Tree:
    """Fields over arrays. `literals` are what stands before and after each field, joined into one buffer."""

    def __init__(self, tables: dict[str, Any], literals: list[bytes], inputs: int) -> None:
        _check(tables, len(literals), inputs)
        self.kinds = memoryview(tables["kinds"])
        self.flags = memoryview(tables["flags"])
        self.first = memoryview(tables["first"])
        self.counts = memoryview(tables["counts"])
        self.children = memoryview(tables["children"])
        self.sources = memoryview(tables["sources"])
        self.prefixes = memoryview(tables["prefixes"])
        self.suffixes = memoryview(tables["suffixes"])
        self.words = memoryview(tables["words"])
        self.factors = memoryview(tables["factors"])
        self.divisors = memoryview(tables["divisors"])
        self.pool = memoryview(b"".join(literals) + b"\0")
        end = 0
        starts = [0]
        for literal in literals:
            end += len(literal)
            starts.append(end)
        self.starts = memoryview(struct.pack(f"={len(starts)}i", *starts)).cast("i")
        self.inputs: list[Input] = []
        self.inputs_wanted = inputs
        # The buffers of the inputs as C has them.
        self.room = bytearray(cython.sizeof(View) * inputs if cython.compiled else 0)  # noqa: F821
        self.row = 0
        self.operation = 0
        self.deletion = 0
        self.deletion_known = 0
        self.unscaled = 0
        self.scale = 0
        self.refused: list[tuple[int, str]] = []

    def render(self, inputs: list[Input], first: int, count: int, offsets: Any, expected: int) -> Any:
        """Write `count` records from `first` on; `offsets` takes where each begins, and the end. Returns the bytes."""
        if len(inputs) != self.inputs_wanted:
            raise ValueError("the arrays do not belong to the tree")
        for source in inputs:
            if not isinstance(source, Input):
                raise TypeError("not an array")
        if len(offsets) < count + 1:
            raise ValueError("too little room for the offsets")
        self.inputs = list(inputs)
        for number in range(len(inputs)):
            self._bind(number, inputs[number])
        self.out = Output(expected)
        self.refused = []
        starts = memoryview(offsets)
        self._records(starts, first, count)
        self.inputs = []
        return self.out.taken()

    @cython.boundscheck(False)
    def _bind(self, number: int, source: Input) -> int:
        if cython.compiled:
            self.views = cython.cast("View *", PyByteArray_AS_STRING(self.room))  # noqa: F821
            view = cython.address(self.views[number])
            view.valid = cython.address(source.valid[0]) if source.has_valid else cython.NULL
            view.data = cython.address(source.data[0])
            view.offsets = cython.address(source.offsets[0])
            view.length = source.length
            view.offset = source.offset
            view.bytes = len(source.data)
            view.width = source.width
            view.is_signed = source.signed
        return 0

    def _records(self, starts: Any, first: int, count: int) -> int:
        out = self.out
        for number in range(count):
            begin = out.size
            starts[number] = begin
            self.row = first + number
            self.operation = cython.cast(Input, self.inputs[OPERATIONS]).integer(self.row)
            try:
                self.literal(self.prefixes[0])
                self.write(0, first + number)
                self.literal(self.suffixes[0])
            except ValueError as error:
                out.size = begin
                self.refused.append((number, str(error)))
        starts[count] = out.size
        return 0

    def write(self, node: int, index: int) -> int:
        """One field; each serialisation has its own."""
        raise NotImplementedError

    @cython.boundscheck(False)
    def literal(self, number: int) -> int:
        if number < 0:
            return 0
        start = self.starts[number]
        pool = cython.address(self.pool[0]) if cython.compiled else self.pool
        return self.out.copy(pool, start, self.starts[number + 1] - start)

    @cython.boundscheck(False)
    def child(self, node: int, step: int) -> int:
        return self.children[self.first[node] + step]

    @cython.boundscheck(False)
    def source(self, node: int) -> Input:
        # The numbers were compared with the list when the tree was made and when it was bound.
        return cython.cast(Input, self.inputs[self.sources[node]])

    @cython.boundscheck(False)
    def view(self, node: int, index: int) -> Any:
        """The buffers of a field, which has this entry."""
        view = cython.address(self.views[self.sources[node]])
        if index < 0 or index >= view.length:
            raise ValueError("an array is shorter than the batch")
        return view

    @cython.boundscheck(False)
    def present(self, node: int, index: int) -> int:
        """Whether a field that may be null has a value; a field without an array of its own always has."""
        if not self.flags[node] & OPTIONAL or self.sources[node] < 0:
            return 1
        if self.flags[node] & SHARED:
            index = 0
        if not cython.compiled:
            return self.source(node).is_valid(index)
        view = self.view(node, index)
        if view.valid == cython.NULL:
            return 1
        at = index + view.offset
        return (view.valid[at >> 3] >> (at & 7)) & 1

    @cython.boundscheck(False)
    def stored(self, node: int, index: int) -> int:
        """A number as it stands in the array."""
        if not cython.compiled:
            return self.source(node).integer(index)
        view = self.view(node, index)
        if view.width == 8:
            value = 0
            memcpy(cython.address(value), view.data + 8 * (index + view.offset), 8)  # noqa: F821
            return value
        if view.width == 1 and view.is_signed:
            return cython.cast(cython.schar, view.data[index + view.offset])
        return self.source(node).integer(index)

    @cython.boundscheck(False)
    def truth(self, node: int, index: int) -> int:
        return self.source(node).boolean(index)

    @cython.boundscheck(False)
    def data(self, node: int) -> Any:
        """The bytes that a field's values are in."""
        if not cython.compiled:
            return self.source(node).data
        return self.views[self.sources[node]].data

    @cython.boundscheck(False)
    def integer(self, node: int, index: int) -> int:
        """A number, in the unit that the consumer expects."""
        value = self.stored(node, 0 if self.flags[node] & SHARED else index)
        factor = self.factors[node]
        if factor != 1:
            if value > 9223372036854775807 // factor or value < -(9223372036854775807 // factor):
                raise ValueError("a time is beyond 64 bits in the unit of its type")
            value = value * factor
        if self.divisors[node] != 1:
            # Towards zero, as Java and C divide.
            divisor = self.divisors[node]
            value = value // divisor if cython.compiled or value >= 0 else -(-value // divisor)
        return value

    @cython.boundscheck(False)
    def begin(self, node: int, index: int) -> int:
        """Where the bytes of a string or the items of a list start."""
        kind = self.kinds[node]
        # The items check their own number.
        counted = kind == LIST or kind == MAP or kind == FIELD_DELTA or kind == COUNTER_DELTA
        if not cython.compiled:
            source = self.source(node)
            return source.start(index, 2147483647 if counted else len(source.data))
        view = self.view(node, index)
        at = index + view.offset
        start = view.offsets[at]
        stop = view.offsets[at + 1]
        if start < 0 or start > stop or (stop > view.bytes and not counted):
            raise ValueError("the offsets of an array are damaged")
        return start

    @cython.boundscheck(False)
    def end(self, node: int, index: int) -> int:
        if not cython.compiled:
            return self.source(node).stop(index)
        view = self.view(node, index)
        return view.offsets[index + view.offset + 1]

    @cython.boundscheck(False)
    def place(self, node: int, index: int, width: int) -> int:
        """Where the bytes of a value of fixed width start."""
        source = self.source(node)
        source.check(index)
        return (index + source.offset) * width

    def blob(self, node: int, index: int) -> bytes:
        """The bytes of a value as a Python object, for the rare kinds that need one."""
        start = self.begin(node, index)
        return bytes(self.source(node).data[start : self.end(node, index)])

    @cython.boundscheck(False)
    def varint_long(self, node: int, index: int) -> int:
        """A big integer that fits 64 bits; any other is refused rather than cut."""
        source = self.source(node)
        start = self.begin(node, index)
        size = self.end(node, index) - start
        if size > 8:
            number = int.from_bytes(self.blob(node, index), "big", signed=True)
            if number not in _INT64:
                raise ValueError("a varint does not fit 64 bits; choose the handling precise or string")
            return number
        value = 0
        for step in range(size):
            byte = source.data[start + step]
            value = byte - 256 if step == 0 and byte > 127 else (value << 8) | byte
        return value

    def varint_text(self, node: int, index: int) -> bytes:
        number = int.from_bytes(self.blob(node, index), "big", signed=True)
        # Decimal prints long integers in good time; Python's own printing is quadratic, and refuses them.
        text = str(number) if number in _INT64 else f"{_EXACT.create_decimal(number):f}"
        return text.encode()

    def decimal(self, node: int, index: int) -> Decimal:
        unscaled = int.from_bytes(self.blob(self.child(node, 0), index), "big", signed=True)
        return Decimal(unscaled).scaleb(-self.integer(self.child(node, 1), index), _EXACT)

    @cython.boundscheck(False)
    def is_short_decimal(self, node: int, index: int) -> int:
        """Whether a decimal has at most 15 digits, none of them far behind the point; then a double has it exactly.

        `unscaled` and `scale` are set then.
        """
        child = self.child(node, 0)
        if self.end(child, index) - self.begin(child, index) > 8:
            return 0
        self.unscaled = self.varint_long(child, index)
        self.scale = self.integer(self.child(node, 1), index)
        if self.unscaled >= 1000000000000000 or self.unscaled <= -1000000000000000:
            return 0
        return self.scale >= 0 and self.scale <= 6

    def decimal_double(self, node: int, index: int) -> float:
        return float(self.decimal(node, index))

    @cython.boundscheck(False)
    def decimal_number(self, node: int, index: int) -> int:
        """A decimal as the shortest digits of its double: of a short one these are its own, without zeros behind."""
        if not self.is_short_decimal(node, index):
            return 0
        while self.scale > 1 and self.unscaled % 10 == 0:
            self.unscaled = self.unscaled // 10
            self.scale -= 1
        if self.scale == 0:
            self.unscaled = self.unscaled * 10
            self.scale = 1
        return self.fixed_point()

    @cython.boundscheck(False)
    def fixed_point(self) -> int:
        """`unscaled` with a point before its last `scale` digits."""
        if self.unscaled < 0:
            self.out.put(45)
            self.unscaled = -self.unscaled
        power = 1
        for _ in range(self.scale):
            power = power * 10
        self.out.number(self.unscaled // power)
        rest = self.unscaled % power
        if self.scale:
            self.out.put(46)
        while power > 1:
            power = power // 10
            self.out.put(48 + rest // power % 10)
        return 1

    def decimal_text(self, node: int, index: int) -> int:
        """A decimal as Java's BigDecimal prints it, whose rules for exponents are Python's too."""
        if self.is_short_decimal(node, index):
            return self.fixed_point()
        self.out.raw(str(self.decimal(node, index)).encode())
        return 1

    @cython.boundscheck(False)
    def float_number(self, node: int, index: int, quote: int) -> int:
        """A float, which Arrow has printed: whole ones get a point, and what is no number its Java name."""
        source = self.source(node)
        start = self.begin(node, index)
        size = self.end(node, index) - start
        last = source.data[start + size - 1] if size else 0
        if last == 110 or last == 102:
            return self.no_number(source.data[start], last, quote)
        whole = 1
        for step in range(size):
            byte = source.data[start + step]
            if byte == 46 or byte == 101:
                whole = 0
        self.out.copy(self.data(node), start, size)
        return self.out.raw(b".0") if whole else 0

    def no_number(self, sign: int, last: int, quote: int) -> int:
        """NaN, or an infinity; Arrow calls them nan, inf and -inf."""
        if quote:
            self.out.put(34)
        if last == 110:
            self.out.raw(b"NaN")
        else:
            self.out.raw(b"-Infinity" if sign == 45 else b"Infinity")
        return self.out.put(34) if quote else 0

    def inet_text(self, node: int, index: int) -> int:
        source = self.source(node)
        start = self.begin(node, index)
        size = self.end(node, index) - start
        if size != 4 and size != 16:
            raise ValueError("an address has neither 4 nor 16 bytes")
        if size == 16:
            self.out.raw(_inet6(self.blob(node, index)))
            return 0
        for step in range(4):
            if step:
                self.out.put(46)
            self.out.number(source.data[start + step])
        return 0

    @cython.boundscheck(False)
    def nanoseconds(self, node: int, index: int) -> int:
        """A duration; a month has thirty days, as in Debezium."""
        months = self.integer(self.child(node, 0), index)
        days = months * 30 + self.integer(self.child(node, 1), index)
        rest = self.integer(self.child(node, 2), index)
        # More days than this are more nanoseconds than 64 bits hold.
        if days > 106751 or days < -106751:
            raise ValueError("a duration is beyond 64 bits of nanoseconds")
        whole = days * 86400000000000
        if (whole > 0 and rest > 9223372036854775807 - whole) or (whole < 0 and rest < -9223372036854775807 - whole):
            raise ValueError("a duration is beyond 64 bits of nanoseconds")
        return whole + rest

    @cython.boundscheck(False)
    def cell(self, node: int, index: int) -> int:
        """What became of a column, and the time at which its value ends or ended, if the change says one."""
        self.deletion_known = 0
        operation = self.operation
        if self.kinds[node] == KEY_CELL:
            if self.present(self.child(node, 0), index):
                return VALUE
            return self.gone() if operation == DELETE_PARTITION else ABSENT
        state = self.integer(self.child(node, 1), index)
        if state == 0:
            # The deletion of a row leaves the static columns of its partition alone: they have the factor 2.
            if operation == DELETE_PARTITION or (operation == DELETE and self.factors[node] == 1):
                return self.gone()
            return ABSENT
        if state == 2:
            return GONE
        if state == 1:
            expiry = self.child(node, 2)
            if self.present(expiry, index):
                self.deletion_known = 1
                seconds = self.source(expiry).integer(index)
                # A second that no calendar has; its microseconds must not turn into some other time.
                if seconds > 9223372036854 or seconds < -9223372036854:
                    seconds = 9223372036854 if seconds > 0 else -9223372036854
                self.deletion = seconds * 1000000
            return VALUE
        delta = self.child(node, 3)
        if self.present(self.child(node, 4), index) and self.begin(delta, index) == self.end(delta, index):
            return GONE
        return DELTA

    @cython.boundscheck(False)
    def gone(self) -> int:
        """A column that went with its row or partition, and when."""
        deletion = cython.cast(Input, self.inputs[DELETIONS])
        if deletion.is_valid(self.row):
            self.deletion_known = 1
            self.deletion = deletion.integer(self.row)
        return GONE

    @cython.boundscheck(False)
    def find_field(self, node: int, index: int, field: int) -> int:
        """Of a non-frozen user type's elements the last one of this field; -1 when there is none."""
        at = self.end(node, index)
        start = self.begin(node, index)
        path = self.child(node, 0)
        while at > start:
            at -= 1
            if self.source(path).integer(at) == field:
                return at
        return -1

    @cython.boundscheck(False)
    def shard_sum(self, node: int, index: int) -> int:
        total = 0
        for at in range(self.begin(node, index), self.end(node, index)):
            total += self.source(self.child(node, 0)).integer(at)
        return total


def _check(tables: dict[str, Any], literals: int, inputs: int) -> None:
    """The kernels index the tables without asking again: all numbers must stay inside them."""
    size = len(tables["kinds"])
    names = ("flags", "first", "counts", "sources", "prefixes", "suffixes", "words", "factors", "divisors")
    if not size or any(len(tables[name]) != size for name in names):
        raise ValueError("the tables of a tree differ in length")
    children = tables["children"]
    for node in range(size):
        start, stop = tables["first"][node], tables["first"][node] + tables["counts"][node]
        if not 0 <= start <= stop <= len(children) or any(not node < child < size for child in children[start:stop]):
            raise ValueError("a tree refers to a field that is not behind it")
        if not -1 <= tables["sources"][node] < inputs or tables["factors"][node] < 1 or tables["divisors"][node] < 1:
            raise ValueError("a tree refers to an array that it does not have")
        if any(not -1 <= tables[name][node] < literals for name in ("prefixes", "suffixes", "words")):
            raise ValueError("a tree refers to a literal that it does not have")
