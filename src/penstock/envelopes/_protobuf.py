# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The envelope kernel for Protocol Buffers, version 3.

A field's literal is its tag. Fields that are null are left out, and the length of a message is put in front of it once
it is written. A list that is null and one that is empty look the same, as Protocol Buffers have it.
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

# The tags of a cell's last two fields, which are always the same; `set` is always true.
_DELETION_TS = b"\x10"
_SET = b"\x18\x01"


class Protobuf(Tree):
    """Writes records as messages."""

    @cython.boundscheck(False)
    def write(self, node: int, index: int) -> int:
        """A message without its length; the record itself is one."""
        skip = 1 if self.kinds[node] == FIELD_DELTA else 0
        for step in range(self.counts[node] - skip):
            at = self.find_field(node, index, step) if skip else index
            if at >= 0:
                self.write_field(self.child(node, step + skip), at)
        return 0

    @cython.boundscheck(False)
    def write_field(self, node: int, index: int) -> int:
        """A field with its tag, or nothing."""
        kind = self.kinds[node]
        if kind == CELL or kind == KEY_CELL:
            return self.write_cell(node, index)
        if not self.present(node, index):
            return 0
        if kind == LIST or kind == MAP:
            return self.write_items(node, index)
        self.literal(self.prefixes[node])
        if kind == CONST:
            return 0
        return self.write_value(node, index)

    @cython.boundscheck(False)
    def write_value(self, node: int, index: int) -> int:
        """A value behind its tag."""
        kind = self.kinds[node]
        if kind == INT:
            return self.out.varint(self.integer(node, index))
        if kind == WORD:
            return self.literal(self.words[node] + self.stored(node, index))
        if kind == BOOL:
            return self.out.put(self.truth(node, index))
        if kind == DOUBLE:
            return self.out.copy(self.data(node), self.place(node, index, 8), 8)
        if kind == FLOAT:
            return self.out.copy(self.data(node), self.place(node, index, 4), 4)
        if kind == DECIMAL_DOUBLE:
            return self.out.float64(self.decimal_double(node, index))
        if kind == VARINT_LONG:
            return self.out.varint(self.varint_long(node, index))
        if kind == DURATION:
            return self.out.varint(self.nanoseconds(node, index))
        if kind == COUNTER_DELTA:
            return self.out.varint(self.shard_sum(node, index))
        begin = self.out.size
        self.write_sized(node, index)
        return self.out.put_length(begin, 0)

    @cython.boundscheck(False)
    def write_sized(self, node: int, index: int) -> int:
        """What has a length in front of it."""
        kind = self.kinds[node]
        if kind == STRING or kind == BYTES:
            start = self.begin(node, index)
            return self.out.copy(self.data(node), start, self.end(node, index) - start)
        if kind == UUID:
            return self.out.uuid(self.data(node), self.place(node, index, 16))
        if kind == INET:
            return self.inet_text(node, index)
        if kind == VARINT_TEXT:
            return self.out.raw(self.varint_text(node, index))
        if kind == DECIMAL_TEXT:
            self.decimal_text(node, index)
            return 0
        if kind == STRUCT or kind == FIELD_DELTA:
            return self.write(node, index)
        if kind == LIST or kind == MAP:
            # A list inside a list is a message with one repeated field.
            return self.write_items(node, index)
        raise ValueError("a field of an unknown kind")

    @cython.boundscheck(False)
    def write_items(self, node: int, index: int) -> int:
        """Each item with the tag of the list; the entries of a map are messages of key and value."""
        for at in range(self.begin(node, index), self.end(node, index)):
            self.literal(self.prefixes[node])
            if self.kinds[node] == MAP:
                begin = self.out.size
                self.write_field(self.child(node, 0), at)
                self.write_field(self.child(node, 1), at)
                self.out.put_length(begin, 0)
            else:
                self.write_value(self.child(node, 0), at)
        return 0

    @cython.boundscheck(False)
    def write_cell(self, node: int, index: int) -> int:
        found = self.cell(node, index)
        if found == ABSENT:
            return 0
        known = self.deletion_known
        deletion = self.deletion
        self.literal(self.prefixes[node])
        begin = self.out.size
        if found == VALUE:
            self.write_field(self.child(node, 0), index)
        elif found == DELTA:
            self.write_field(self.child(node, 3), index)
        if known:
            self.out.raw(_DELETION_TS)
            self.out.varint(deletion)
        self.out.raw(_SET)
        return self.out.put_length(begin, 0)
