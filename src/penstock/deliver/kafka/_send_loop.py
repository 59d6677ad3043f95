# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False
"""The send loop: gives the records of a parcel to librdkafka one after another, without an object for any of them.

It works on the library's own functions, whose addresses `native_producer` finds. Uncompiled it does nothing: without a
compiler records go through the library's Python package, one call for each.
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

compiled: bool = cython.compiled


class Calls:
    """Addresses: librdkafka's functions that take a record, tell an error's code and forget it; and the producer."""

    def __init__(self, take: int, code: int, forget: int, producer: int) -> None:
        self.take = take
        self.code = code
        self.forget = forget
        self.producer = producer


# Keys, values, and more headers than any envelope has.
_COLUMNS_MAX = 32


class Records:
    """Keys, values and headers. Each is (offsets, data, which are there or None); a header that is not, is left out.

    A fixed header has one value, which goes with every record that has a value; it begins at 0 and ends at its size.
    """

    def __init__(self, count: int, keys: Any, values: Any, headers: Any = (), fixed: Any = ()) -> None:
        if 2 + len(headers) + len(fixed) > _COLUMNS_MAX:
            raise ValueError("so many headers have no room")
        # Where the columns are, as C has it, and what keeps them there.
        self.columns: Any
        self.held: list[Any] = []
        self.width = 0
        self.count = count
        self.put(keys[0], keys[1], keys[2], count, b"", False)
        self.put(values[0], values[1], values[2], count, b"", False)
        for name, (offsets, data, there) in headers:
            self.put(offsets, data, there, count, name, False)
        for name, value in fixed:
            self.put(memoryview(array("i", (0, len(value)))), value, None, 1, name, True)

    def put(self, offsets: Any, data: Any, there: Any, count: int, name: bytes, fixed: bool) -> int:
        """Keep where a column is. The arrays are checked here, so that nothing is read beyond them."""
        if len(offsets) != count + 1 or offsets[0] < 0 or offsets[count] > len(data):
            raise ValueError("a column's offsets do not fit its data")
        if there is not None and len(there) != count:
            raise ValueError("a column's marks do not fit its values")
        self.held.append((offsets, data, there, name))
        if cython.compiled:
            column = cython.address(self.columns[self.width])
            column.offsets = cython.address(offsets[0])
            # Without any byte there is no address of one, and any other will do.
            nowhere = cython.cast("const unsigned char *", column.offsets)
            column.data = cython.address(data[0]) if len(data) else nowhere
            column.there = cython.address(there[0]) if there is not None else cython.NULL
            column.name = PyBytes_AS_STRING(name)  # noqa: F821
            column.fixed = fixed
        self.width += 1
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
            cython.address(self.columns[0]),
            self.width,
            first,
            end,
            cython.address(trouble),
        )
        return at, trouble
