# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The envelope kernel for plain text: what Kafka Connect's StringConverter makes of a struct.

It is the text that Java's `toString` gives: `Struct{name=value,…}` without the fields that are null, `[a, b]` for lists
and `{key=value}` for maps. Bytes are hexadecimal here, because Java would print the address of an object.
"""

from __future__ import annotations

import math

import cython

from penstock.envelopes._tree import Tree

if not cython.compiled:
    from penstock.envelopes._tree import (
        ABSENT,
        BOOL,
        BYTES,
        CELL,
        CONST,
        COUNTER_DELTA,
        DECIMAL_DOUBLE,
        DECIMAL_TEXT,
        DELTA,
        DOUBLE,
        DURATION,
        FIELD_DELTA,
        FLOAT,
        INET,
        INT,
        KEY_CELL,
        LIST,
        MAP,
        STRING,
        STRUCT,
        UUID,
        VALUE,
        VARINT_LONG,
        VARINT_TEXT,
        WORD,
    )

compiled: bool = cython.compiled


class JavaText(Tree):
    """Writes records as text. A field's literal is its name and the sign `=`."""

    @cython.boundscheck(False)
    def write(self, node: int, index: int) -> int:
        kind = self.kinds[node]
        if kind == CELL or kind == KEY_CELL:
            return self.write_cell(node, index)
        if not self.present(node, index):
            return self.out.raw(b"null")
        if kind == INT:
            return self.out.number(self.integer(node, index))
        if kind == STRING:
            start = self.begin(node, index)
            return self.out.copy(self.data(node), start, self.end(node, index) - start)
        if kind == STRUCT or kind == FIELD_DELTA:
            return self.write_struct(node, index)
        if kind == WORD:
            return self.literal(self.words[node] + self.stored(node, index))
        if kind == LIST or kind == MAP:
            return self.write_items(node, index)
        if kind == CONST:
            return 0
        return self.write_plain(node, index)

    @cython.boundscheck(False)
    def write_struct(self, node: int, index: int) -> int:
        """The fields that are not null, joined by commas."""
        self.out.raw(b"Struct{")
        # Of a non-frozen user type the first child is the number of the element's field.
        skip = 1 if self.kinds[node] == FIELD_DELTA else 0
        begun = 0
        for step in range(self.counts[node] - skip):
            child = self.child(node, step + skip)
            at = self.find_field(node, index, step) if skip else index
            if at < 0 or not self.has_text(child, at):
                continue
            if begun:
                self.out.put(44)
            begun = 1
            self.literal(self.prefixes[child])
            self.write(child, at)
        return self.out.put(125)

    @cython.boundscheck(False)
    def has_text(self, node: int, index: int) -> int:
        kind = self.kinds[node]
        if kind == CELL or kind == KEY_CELL:
            return self.cell(node, index) != ABSENT
        return self.present(node, index)

    @cython.boundscheck(False)
    def write_plain(self, node: int, index: int) -> int:
        kind = self.kinds[node]
        if kind == BOOL:
            return self.out.raw(b"true" if self.truth(node, index) else b"false")
        if kind == DOUBLE or kind == FLOAT:
            return self.float_number(node, index, 0)
        if kind == DECIMAL_DOUBLE:
            return 0 if self.decimal_number(node, index) else self.write_double(self.decimal_double(node, index))
        if kind == VARINT_LONG:
            return self.out.number(self.varint_long(node, index))
        if kind == DURATION:
            return self.out.number(self.nanoseconds(node, index))
        if kind == COUNTER_DELTA:
            return self.out.number(self.shard_sum(node, index))
        if kind == UUID:
            return self.out.uuid(self.data(node), self.place(node, index, 16))
        if kind == BYTES:
            start = self.begin(node, index)
            return self.out.hexadecimal(self.data(node), start, self.end(node, index) - start)
        if kind == INET:
            return self.inet_text(node, index)
        if kind == VARINT_TEXT:
            return self.out.raw(self.varint_text(node, index))
        if kind == DECIMAL_TEXT:
            self.decimal_text(node, index)
            return 0
        raise ValueError("a field of an unknown kind")

    def write_double(self, value: float) -> int:
        if math.isfinite(value):
            return self.out.raw(repr(value).encode())
        return self.no_number(45 if value < 0 else 0, 102, 0)

    @cython.boundscheck(False)
    def write_items(self, node: int, index: int) -> int:
        start = self.begin(node, index)
        pairs = self.kinds[node] == MAP
        self.out.put(123 if pairs else 91)
        for at in range(start, self.end(node, index)):
            if at > start:
                self.out.raw(b", ")
            self.write(self.child(node, 0), at)
            if pairs:
                self.out.put(61)
                self.write(self.child(node, 1), at)
        return self.out.put(125 if pairs else 93)

    @cython.boundscheck(False)
    def write_cell(self, node: int, index: int) -> int:
        found = self.cell(node, index)
        known = self.deletion_known
        deletion = self.deletion
        self.out.raw(b"Struct{")
        value = self.child(node, 3) if found == DELTA else self.child(node, 0)
        if found == DELTA or (found == VALUE and self.present(value, index)):
            self.out.raw(b"value=")
            self.write(value, index)
            self.out.put(44)
        if known:
            self.out.raw(b"deletion_ts=")
            self.out.number(deletion)
            self.out.put(44)
        return self.out.raw(b"set=true}")
