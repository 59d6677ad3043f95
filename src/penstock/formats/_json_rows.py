# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The JSON kernel: change rows as lines of JSON, straight from their Avro bytes, without an object per change.

The parts of a change stand in another order in JSON than in the row, so the reader steps over some and comes back to
them. Members and items are written with a comma before each; the bracket then takes the place of the first.
"""

from __future__ import annotations

from typing import Any

import cython

from penstock.formats._json_values import JsonValues
from penstock.formats._kernel import Program, RowReader
from penstock.formats._output import Output

compiled: bool = cython.compiled

# The fields of a change row, in their order.
(
    _OP,
    _TIME,
    _COMMIT_TIME,
    _CAPTURE_TIME,
    _ORIGIN,
    _MARKER,
    _DELETION,
    _RANGE,
    _KEY,
    _CELLS,
    _BEFORE,
    _SEAL,
) = range(12)
# What became of a cell.
_ABSENT, _SET, _DELETED, _DELTA = range(4)


class JsonRows(JsonValues):
    """The JSON of one table's changes; json_rows.py makes the tables, and says what they hold."""

    def __init__(
        self, program: Program, tables: dict[str, Any], literals: list[bytes], makers: list[Any], quote: Any
    ) -> None:
        super().__init__(program, tables, literals, makers, quote)
        size, sections = len(tables["kinds"]), tables["sections"]
        if len(tables["columns"]) < sum(sections) or len(tables["deltas"]) < 3 * sections[1]:
            raise ValueError("a plan has too few columns")
        if any(not 0 <= number < size for number in tables["columns"][: sum(sections)]):
            raise ValueError("a plan has columns outside its tables")
        if any(not -1 <= number < size for number in tables["deltas"]):
            raise ValueError("a plan has deltas outside its tables")
        self.columns = memoryview(tables["columns"])
        self.deltas = memoryview(tables["deltas"])
        self.key, self.cells, self.clustering, self.before = sections

    def render(self, reader: RowReader, count: int, begin: bytes, ordinal: int, head: bytes, end: bytes) -> Any:
        """The next `count` changes. Each begins with `begin`, its ordinal unless that is negative, and `head`."""
        # Where JSON is longer than this guess, the output grows.
        out = Output(4 * (reader.end - reader.position) + 64)
        self.out = out
        try:
            self._lines(reader, count, begin, ordinal, head, end)
        finally:
            self.out = self.nowhere
        return out.taken()

    def _lines(self, reader: RowReader, count: int, begin: bytes, ordinal: int, head: bytes, end: bytes) -> int:
        out = self.out
        for number in range(count):
            out.raw(begin)
            if ordinal >= 0:
                out.number(ordinal + number)
            out.raw(head)
            self._change(reader)
            out.raw(end)
        return 0

    def _change(self, reader: RowReader) -> int:
        program = self.program
        out = self.out
        out.raw(self.literals[program.read_integer(reader, program.child(0, _OP))])
        self._optional(reader, b',"time":')
        self._optional(reader, b',"commit_time":')
        self._optional(reader, b',"capture_time":')
        origin = reader.position
        program.skip(reader, program.child(0, _ORIGIN))
        marker = reader.position
        program.skip(reader, program.child(0, _MARKER))
        deletion = reader.position
        program.skip(reader, program.child(0, _DELETION))
        bounds = reader.position
        program.skip(reader, program.child(0, _RANGE))
        self._key(reader)
        self._cells(reader)
        end = reader.position
        reader.position = marker
        self._marker(reader)
        reader.position = deletion
        if reader.read_present():
            out.raw(b',"deletion":')
            self._deletion(reader)
        reader.position = bounds
        self._range(reader)
        reader.position = end
        self._before(reader)
        end = reader.position
        reader.position = origin
        self._origin(reader)
        reader.position = end
        program.skip(reader, program.child(0, _SEAL))
        return out.put(125)

    def _optional(self, reader: RowReader, name: bytes) -> int:
        """A member that is a number, where there is one."""
        if reader.read_present():
            self.out.raw(name)
            self.out.number(reader.read_long())
        return 0

    @cython.boundscheck(False)
    def _key(self, reader: RowReader) -> int:
        self.out.raw(b',"key":')
        begin = self.out.size
        for step in range(self.key):
            if reader.read_present():
                self.member(reader, self.columns[step])
        return self.out.enclose(begin, 123, 125)

    @cython.boundscheck(False)
    def _cells(self, reader: RowReader) -> int:
        out = self.out
        out.raw(b',"cells":')
        start = out.size
        for step in range(self.cells):
            node = self.columns[self.key + step]
            branch = reader.read_long()
            if branch == _ABSENT:
                continue
            out.raw(self.literals[self.names[node]])
            begin = out.size
            if branch == _SET:
                out.raw(b',"value":')
                self.value_or_null(reader, node)
                self._stamp(reader)
            elif branch == _DELETED:
                out.raw(b',"deleted":true')
                self._optional(reader, b',"time":')
                self._optional(reader, b',"local_s":')
            elif branch == _DELTA and self.deltas[3 * step]:
                self._delta(reader, node, self.deltas[3 * step + 1], self.deltas[3 * step + 2])
            else:
                reader.fail("a union has no such branch")
            out.enclose(begin, 123, 125)
        return out.enclose(start, 123, 125)

    def _stamp(self, reader: RowReader) -> int:
        return self._life(reader) if reader.read_present() else 0

    def _life(self, reader: RowReader) -> int:
        """A time and an expiry, each where there is one."""
        self._optional(reader, b',"time":')
        if reader.read_present():
            self.out.raw(b',"ttl_s":')
            self.out.number(self.int32(reader))
            self.out.raw(b',"expires_s":')
            self.out.number(reader.read_long())
        return 0

    def _deletion(self, reader: RowReader) -> int:
        begin = self.out.size
        self.out.raw(b',"time":')
        self.out.number(reader.read_long())
        self._optional(reader, b',"local_s":')
        return self.out.enclose(begin, 123, 125)

    @cython.boundscheck(False)
    def _delta(self, reader: RowReader, node: int, path: int, item: int) -> int:
        """What happened to the elements of a column; `path` and `item` say how they are named and what they hold."""
        out = self.out
        if reader.read_present():
            out.raw(b',"replaced":')
            self._deletion(reader)
        out.raw(b',"set":')
        start = out.size
        count = reader.read_count(1)
        while count:
            for _ in range(count):
                out.put(44)
                begin = out.size
                field = self._path(reader, node, path)
                if path < 0:
                    self._field(reader, node, field)
                elif item >= 0:
                    out.raw(b',"value":')
                    self.value_or_null(reader, item)
                self._stamp(reader)
                out.enclose(begin, 123, 125)
            count = reader.read_count(1)
        out.enclose(start, 91, 93)
        return self._removed(reader, node, path)

    @cython.boundscheck(False)
    def _removed(self, reader: RowReader, node: int, path: int) -> int:
        out = self.out
        out.raw(b',"removed":')
        start = out.size
        count = reader.read_count(1)
        while count:
            for _ in range(count):
                out.put(44)
                begin = out.size
                self._path(reader, node, path)
                self._optional(reader, b',"time":')
                self._optional(reader, b',"local_s":')
                out.enclose(begin, 123, 125)
            count = reader.read_count(1)
        return out.enclose(start, 91, 93)

    @cython.boundscheck(False)
    def _path(self, reader: RowReader, node: int, path: int) -> int:
        """What names an element; of a user type it is a field, whose number is given back."""
        self.out.raw(b',"path":')
        if path >= 0:
            self.value(reader, path)
            return -1
        field = reader.read_long()
        if field < 0 or field >= self.counts[node]:
            reader.fail("the user type has no such field")
        # The field's name as it stands before its value, without the comma and the colon.
        name = self.literals[self.names[self.children[self.first[node] + field]]]
        self.out.raw(name[1 : len(name) - 1])
        return field

    @cython.boundscheck(False)
    def _field(self, reader: RowReader, node: int, field: int) -> int:
        """The value of one field; the element of a user type is the whole type with only this field filled."""
        self.out.raw(b',"value":')
        if not reader.read_present():
            return self.out.raw(b"null")
        for step in range(self.counts[node]):
            child = self.children[self.first[node] + step]
            if step == field:
                self.value_or_null(reader, child)
            elif reader.read_present():
                # Nothing is written here; what stands here all the same must be sound.
                self.program.read(reader, self.avro[child])
        return 0

    def _marker(self, reader: RowReader) -> int:
        if not reader.read_present():
            return 0
        self.out.raw(b',"marker":')
        begin = self.out.size
        self._life(reader)
        return self.out.enclose(begin, 123, 125)

    def _range(self, reader: RowReader) -> int:
        if not reader.read_present():
            return 0
        self.out.raw(b',"range":')
        begin = self.out.size
        if reader.read_present():
            self.out.raw(b',"start":')
            self._bound(reader)
        if reader.read_present():
            self.out.raw(b',"end":')
            self._bound(reader)
        return self.out.enclose(begin, 123, 125)

    @cython.boundscheck(False)
    def _bound(self, reader: RowReader) -> int:
        out = self.out
        count = reader.read_long()
        if count < 0 or count > self.clustering:
            reader.fail("a bound has more values than there are clustering columns")
        inclusive = self.program.read_boolean(reader)
        out.raw(b'{"values":')
        begin = out.size
        for step in range(self.clustering):
            node = self.columns[self.key + self.cells + step]
            if step < count:
                self.member_or_null(reader, node)
            elif reader.read_present():
                self.program.read(reader, self.avro[node])
        out.enclose(begin, 123, 125)
        return out.raw(b',"inclusive":true}' if inclusive else b',"inclusive":false}')

    @cython.boundscheck(False)
    def _before(self, reader: RowReader) -> int:
        if not reader.read_present():
            return 0
        self.out.raw(b',"before":')
        begin = self.out.size
        for step in range(self.before):
            if reader.read_present():
                self.member_or_null(reader, self.columns[self.key + self.cells + self.clustering + step])
        return self.out.enclose(begin, 123, 125)

    def _origin(self, reader: RowReader) -> int:
        """Where the change comes from. The transaction stands last, behind the ordinal."""
        if not reader.read_present():
            return 0
        out = self.out
        start = out.size
        out.raw(b',"origin":')
        begin = out.size
        self._optional_text(reader, b',"node":')
        self._optional_text(reader, b',"data_centre":')
        self._optional_text(reader, b',"file":')
        self._optional(reader, b',"position":')
        transaction = reader.position
        present = reader.read_present()
        if present:
            reader.take(reader.read_long())
            reader.read_long()
            reader.take(reader.read_long())
        self._optional(reader, b',"ordinal":')
        if present:
            reader.position = transaction
            reader.read_present()
            out.raw(b',"transaction":{"domain":')
            self.text(reader)
            out.raw(b',"sequence":')
            out.number(reader.read_long())
            out.raw(b',"id":')
            self.text(reader)
            out.put(125)
        if out.size == begin:
            # An origin of which nothing is known is none.
            out.size = start
            return 0
        return out.enclose(begin, 123, 125)

    def _optional_text(self, reader: RowReader, name: bytes) -> int:
        if reader.read_present():
            self.out.raw(name)
            self.text(reader)
        return 0
