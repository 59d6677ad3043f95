# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The envelope kernel for Avro, in the schema that Confluent's AvroConverter makes of the same Connect schema.

A field that may be null is a union with null first; maps are arrays of key and value, because their keys may be null to
Connect. What is the same in every record, such as the names in `source`, stands in the literals between the fields.
"""

from __future__ import annotations

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
        OPTIONAL,
        STRING,
        STRUCT,
        UUID,
        VALUE,
        VARINT_LONG,
        VARINT_TEXT,
        WORD,
    )

compiled: bool = cython.compiled


class AvroBinary(Tree):
    """Writes records as Avro."""

    @cython.boundscheck(False)
    def write(self, node: int, index: int) -> int:
        kind = self.kinds[node]
        if kind == CELL or kind == KEY_CELL:
            return self.write_cell(node, index)
        if self.flags[node] & OPTIONAL:
            if not self.present(node, index):
                return self.out.put(0)
            self.out.put(2)
        if kind == INT:
            return self.out.zigzag(self.integer(node, index))
        if kind == STRING or kind == BYTES:
            return self.write_bytes(node, index)
        if kind == STRUCT:
            return self.write_struct(node, index)
        if kind == WORD:
            return self.literal(self.words[node] + self.stored(node, index))
        if kind == LIST or kind == MAP:
            return self.write_items(node, index)
        if kind == FIELD_DELTA:
            return self.write_fields(node, index)
        if kind == UUID:
            self.out.zigzag(36)
            return self.out.uuid(self.data(node), self.place(node, index, 16))
        return self.write_plain(node, index)

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
    def write_bytes(self, node: int, index: int) -> int:
        start = self.begin(node, index)
        size = self.end(node, index) - start
        self.out.zigzag(size)
        return self.out.copy(self.data(node), start, size)

    @cython.boundscheck(False)
    def write_plain(self, node: int, index: int) -> int:
        kind = self.kinds[node]
        if kind == BOOL:
            return self.out.put(self.truth(node, index))
        if kind == DOUBLE:
            return self.out.copy(self.data(node), self.place(node, index, 8), 8)
        if kind == FLOAT:
            return self.out.copy(self.data(node), self.place(node, index, 4), 4)
        if kind == DECIMAL_DOUBLE:
            return self.write_decimal(node, index)
        if kind == VARINT_LONG:
            return self.out.zigzag(self.varint_long(node, index))
        if kind == DURATION:
            return self.out.zigzag(self.nanoseconds(node, index))
        if kind == COUNTER_DELTA:
            return self.out.zigzag(self.shard_sum(node, index))
        # What is left is text whose length is known when it is written.
        begin = self.out.size
        if kind == INET:
            self.inet_text(node, index)
        elif kind == VARINT_TEXT:
            self.out.raw(self.varint_text(node, index))
        elif kind == DECIMAL_TEXT:
            self.decimal_text(node, index)
        else:
            raise ValueError("a field of an unknown kind")
        return self.out.put_length(begin, 1)

    def write_decimal(self, node: int, index: int) -> int:
        if not self.is_short_decimal(node, index):
            return self.out.float64(self.decimal_double(node, index))
        # Both are whole numbers that a double holds, so the quotient is the nearest double.
        value = self.unscaled
        power = 1
        for _ in range(self.scale):
            power = power * 10
        return self.out.float64(value / power)

    @cython.boundscheck(False)
    def write_items(self, node: int, index: int) -> int:
        start = self.begin(node, index)
        stop = self.end(node, index)
        if stop > start:
            self.out.zigzag(stop - start)
            for at in range(start, stop):
                self.write(self.child(node, 0), at)
                if self.kinds[node] == MAP:
                    self.write(self.child(node, 1), at)
        return self.out.put(0)

    @cython.boundscheck(False)
    def write_cell(self, node: int, index: int) -> int:
        """A record of value, deletion_ts and set; all of its parts but the last may be null."""
        found = self.cell(node, index)
        if found == ABSENT:
            return self.out.put(0)
        known = self.deletion_known
        deletion = self.deletion
        self.out.put(2)
        if found == VALUE:
            self.write(self.child(node, 0), index)
        elif found == DELTA:
            self.write(self.child(node, 3), index)
        else:
            self.out.put(0)
        if known:
            self.out.put(2)
            self.out.zigzag(deletion)
        else:
            self.out.put(0)
        return self.out.put(1)

    @cython.boundscheck(False)
    def write_fields(self, node: int, index: int) -> int:
        for field in range(self.counts[node] - 1):
            at = self.find_field(node, index, field)
            if at < 0:
                self.out.put(0)
            else:
                self.write(self.child(node, field + 1), at)
        return 0
