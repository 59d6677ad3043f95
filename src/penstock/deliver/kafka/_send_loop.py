# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False
"""The send loop: gives the records of a parcel to librdkafka one after another, without an object for any of them.

It works on the library's own functions, whose addresses `native_producer` finds. Uncompiled it does nothing: without a
compiler records go through the library's Python package, one call for each.
"""

from __future__ import annotations

from typing import Any

import cython

compiled: bool = cython.compiled


class Calls:
    """Addresses: librdkafka's functions that take a record, tell an error's code and forget it; and the producer."""

    def __init__(self, take: int, code: int, forget: int, producer: int, name: bytes) -> None:
        self.take = take
        self.code = code
        self.forget = forget
        self.producer = producer
        # Of the header.
        self.name = name


class Records:
    """Keys, values and, when they are wanted, headers. Each is (offsets, data, which are there or None)."""

    def __init__(self, count: int, keys: Any, values: Any, headers: Any) -> None:
        # Where the columns are, as C has it, and what keeps them there.
        self.columns: Any
        self.held: list[Any] = []
        self.count = count
        self.put(0, keys[0], keys[1], keys[2], count)
        self.put(1, values[0], values[1], values[2], count)
        if headers is not None:
            self.put(2, headers[0], headers[1], headers[2], count)

    def put(self, number: int, offsets: Any, data: Any, there: Any, count: int) -> int:
        """Keep where a column is. The arrays are checked here, so that nothing is read beyond them."""
        if len(offsets) != count + 1 or offsets[0] < 0 or offsets[count] > len(data):
            raise ValueError("a column's offsets do not fit its data")
        if there is not None and len(there) != count:
            raise ValueError("a column's marks do not fit its values")
        self.held.append((offsets, data, there))
        if cython.compiled:
            self.columns[number].offsets = cython.address(offsets[0])
            # Without any byte there is no address of one, and any other will do.
            nowhere = cython.cast("const unsigned char *", self.columns[number].offsets)
            self.columns[number].data = cython.address(data[0]) if len(data) else nowhere
            if there is not None:
                self.columns[number].there = cython.address(there[0])
        return 0

    def hand_over(self, calls: Any, topic: int, first: int, end: int) -> tuple[int, int]:
        """Give the records from `first` to `end`. Returns the first that was not taken, and librdkafka's reason."""
        if not cython.compiled:
            raise NotImplementedError
        if first < 0 or end > self.count:
            raise ValueError("there are not so many records")
        trouble = 0
        at = handing_over(  # noqa: F821
            calls.take,
            calls.code,
            calls.forget,
            calls.producer,
            topic,
            PyBytes_AS_STRING(calls.name),  # noqa: F821
            cython.address(self.columns[0]),
            first,
            end,
            cython.address(trouble),
        )
        return at, trouble
