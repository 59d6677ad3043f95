"""Small Arrow arrays from Python values, without pandas.

`pyarrow.array` and `pyarrow.scalar` import pandas, where it is installed, to see whether they were given something of
it. That takes longer than all else that a process does which reads a few changes and ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa


def texts(values: Sequence[str]) -> pa.Array:
    return binaries([value.encode() for value in values], pa.string())


def binaries(values: Sequence[bytes | memoryview], type_: pa.DataType) -> pa.Array:
    """Values of a type that is stored as bytes: binary or string."""
    ends = array("i", accumulate(map(len, values), initial=0))
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


def integers(values: Iterable[int], type_: pa.DataType) -> pa.Array:
    """Values of a signed integer type."""
    held = array({8: "b", 32: "i", 64: "q"}[type_.bit_width], values)
    return pa.Array.from_buffers(type_, len(held), [None, pa.py_buffer(held)])


def repeated(value: int, count: int, type_: pa.DataType) -> pa.Array:
    """One value of a signed integer type, `count` times."""
    data = value.to_bytes(type_.bit_width // 8, "little", signed=True) * count
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(data)])
