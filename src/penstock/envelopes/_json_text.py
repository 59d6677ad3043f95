# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The envelope kernel for JSON, as Kafka Connect's JsonConverter writes it.

Bytes are base 64, a map whose keys are text is an object and any other a list of pairs, and the numbers that JSON does
not have are strings. The names of fields stand in the literals, so the kernel only fills in the values between them.
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
        OBJECT,
        STRING,
        STRUCT,
        UUID,
        VALUE,
        VARINT_LONG,
        VARINT_TEXT,
        WORD,
    )

compiled: bool = cython.compiled


class JsonText(Tree):
    """Writes records as JSON."""

    @cython.boundscheck(False)
    def write(self, node: int, index: int) -> int:
        kind = self.kinds[node]
        if kind == CELL or kind == KEY_CELL:
            return self.write_cell(node, index)
        if not self.present(node, index):
            return self.null()
        if kind == INT:
            return self.out.number(self.integer(node, index))
        if kind == STRING:
            return self.write_string(node, index)
        if kind == STRUCT:
            return self.write_struct(node, index)
        if kind == WORD:
            return self.literal(self.words[node] + self.stored(node, index))
        if kind == LIST or kind == MAP:
            return self.write_items(node, index)
        if kind == UUID or kind == BYTES or kind == INET or kind == VARINT_TEXT or kind == DECIMAL_TEXT:
            self.out.put(34)
            self.write_text(node, index)
            return self.out.put(34)
        if kind == FIELD_DELTA:
            return self.write_fields(node, index)
        return self.write_number(node, index)

    def null(self) -> int:
        return self.out.raw(b"null")

    @cython.boundscheck(False)
    def write_struct(self, node: int, index: int) -> int:
        for step in range(self.counts[node]):
            child = self.child(node, step)
            self.literal(self.prefixes[child])
            self.write(child, index)
        if node:
            self.literal(self.suffixes[node])
        return 0

    @cython.boundscheck(False)
    def write_string(self, node: int, index: int) -> int:
        start = self.begin(node, index)
        self.out.put(34)
        self.out.escaped(self.data(node), start, self.end(node, index) - start)
        return self.out.put(34)

    @cython.boundscheck(False)
    def write_text(self, node: int, index: int) -> int:
        kind = self.kinds[node]
        if kind == UUID:
            return self.out.uuid(self.data(node), self.place(node, index, 16))
        if kind == BYTES:
            start = self.begin(node, index)
            return self.out.base64(self.data(node), start, self.end(node, index) - start)
        if kind == INET:
            return self.inet_text(node, index)
        if kind == VARINT_TEXT:
            return self.out.raw(self.varint_text(node, index))
        self.decimal_text(node, index)
        return 0

    @cython.boundscheck(False)
    def write_number(self, node: int, index: int) -> int:
        kind = self.kinds[node]
        if kind == BOOL:
            return self.out.raw(b"true" if self.truth(node, index) else b"false")
        if kind == DOUBLE or kind == FLOAT:
            return self.float_number(node, index, 1)
        if kind == DECIMAL_DOUBLE:
            return 0 if self.decimal_number(node, index) else self.write_double(self.decimal_double(node, index))
        if kind == VARINT_LONG:
            return self.out.number(self.varint_long(node, index))
        if kind == DURATION:
            return self.out.number(self.nanoseconds(node, index))
        if kind == COUNTER_DELTA:
            return self.out.number(self.shard_sum(node, index))
        raise ValueError("a field of an unknown kind")

    def write_double(self, value: float) -> int:
        if math.isfinite(value):
            return self.out.raw(repr(value).encode())
        return self.no_number(45 if value < 0 else 0, 102, 1)

    @cython.boundscheck(False)
    def write_items(self, node: int, index: int) -> int:
        """A list, or a map: an object when its keys are text, else pairs."""
        start = self.begin(node, index)
        stop = self.end(node, index)
        pairs = self.kinds[node] == MAP
        is_object = pairs and self.flags[node] & OBJECT
        self.out.put(123 if is_object else 91)
        for at in range(start, stop):
            if at > start:
                self.out.put(44)
            if not pairs:
                self.write(self.child(node, 0), at)
                continue
            if not is_object:
                self.out.put(91)
            self.write(self.child(node, 0), at)
            self.out.put(58 if is_object else 44)
            self.write(self.child(node, 1), at)
            if not is_object:
                self.out.put(93)
        return self.out.put(125 if is_object else 93)

    @cython.boundscheck(False)
    def write_cell(self, node: int, index: int) -> int:
        found = self.cell(node, index)
        if found == ABSENT:
            return self.null()
        # The value is written last but one by its own fields, so the time must be remembered.
        known = self.deletion_known
        deletion = self.deletion
        self.out.raw(b'{"value":')
        if found == VALUE:
            self.write(self.child(node, 0), index)
        elif found == DELTA:
            self.write(self.child(node, 3), index)
        else:
            self.null()
        if not known:
            return self.out.raw(b',"deletion_ts":null,"set":true}')
        self.out.raw(b',"deletion_ts":')
        self.out.number(deletion)
        return self.out.raw(b',"set":true}')

    @cython.boundscheck(False)
    def write_fields(self, node: int, index: int) -> int:
        """The fields of a non-frozen user type that were written; the others are null."""
        for field in range(self.counts[node] - 1):
            child = self.child(node, field + 1)
            self.literal(self.prefixes[child])
            at = self.find_field(node, index, field)
            if at < 0:
                self.null()
            else:
                self.write(child, at)
        return self.literal(self.suffixes[node])
