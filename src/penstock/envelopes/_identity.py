# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The kernel of identities: where each change comes from, as one short text."""

from __future__ import annotations

from typing import Any

import cython

from penstock.formats._output import Output
from penstock.formats._rows import Input

compiled: bool = cython.compiled


class Identities:
    """Joins texts and numbers by colons; what a change does not have is empty."""

    def __init__(self, node: Input, file: Input, position: Input, ordinal: Input) -> None:
        self.node = node
        self.file = file
        self.position = position
        self.ordinal = ordinal

    def write(self, first: int, count: int, suffix: bytes, offsets: Any) -> Any:
        """`count` changes from `first` on, each followed by `suffix`; `offsets` takes where each begins, and the end.

        Returns the bytes.
        """
        if len(offsets) < count + 1:
            raise ValueError("too little room for the offsets")
        self.out = Output(64 * count)
        starts = memoryview(offsets)
        for number in range(count):
            starts[number] = self.out.size
            self.text(self.node, first + number)
            self.out.put(58)
            self.text(self.file, first + number)
            self.out.put(58)
            self.integer(self.position, first + number)
            self.out.put(58)
            self.integer(self.ordinal, first + number)
            self.out.raw(suffix)
        starts[count] = self.out.size
        return self.out.taken()

    @cython.boundscheck(False)
    def text(self, source: Input, index: int) -> int:
        if not source.is_valid(index):
            return 0
        start = source.start(index, len(source.data))
        size = source.stop(index) - start
        if size == 0:
            return 0
        data = cython.address(source.data[0]) if cython.compiled else source.data
        return self.out.copy(data, start, size)

    def integer(self, source: Input, index: int) -> int:
        return self.out.number(source.integer(index)) if source.is_valid(index) else 0
