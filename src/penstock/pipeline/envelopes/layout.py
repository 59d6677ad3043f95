"""Layouts: the fields of an envelope, and where in the arrays of a batch each of them comes from.

A layout is a tree of nodes that knows nothing of serialisations. A node's path names one array of the batch: the name
of an input, then a step for each level below it. `compilation` turns a layout into the tables of a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.formats._rows import Input
from penstock.pipeline.envelopes.connect import Schema

Path = tuple[Any, ...]
# Steps below an array, beside the names and numbers of a struct's fields: a list's items, a map's keys and values.
ITEMS, KEYS, VALUES = ("items",), ("keys",), ("values",)


@dataclass(slots=True)
class Node:
    """One field: its kind for the kernels, its schema for consumers, and its place in the arrays."""

    kind: int
    schema: Schema
    path: Path | None = None
    name: str = ""
    children: list[Node] = field(default_factory=list)
    # Of a constant its value, of a word all that it can be.
    constant: str | int | None = None
    words: tuple[str, ...] = ()
    factor: int = 1
    divisor: int = 1
    # The array has one entry for all records.
    shared: bool = False

    def called(self, name: str) -> Node:
        self.name = name
        return self


class Arrays:
    """The arrays of one batch, found by path; each is looked up once."""

    def __init__(self, tops: dict[str, pa.Array]) -> None:
        self._found: dict[Path, pa.Array] = {(name,): array for name, array in tops.items()}

    def input(self, path: Path) -> Input:
        """The buffers of one array, for the kernels."""
        return _input(self._find(path))

    def _find(self, path: Path) -> pa.Array:
        known = self._found.get(path)
        if known is None:
            known = self._found[path] = _below(self._find(path[:-1]), path[-1])
        return known


def _below(array: pa.Array, step: Any) -> pa.Array:
    """One level down. A struct's fields are cut as the struct is; offsets of lists and maps count from the first."""
    if step == ITEMS:
        return array.values
    if step == KEYS:
        return array.keys
    if step == VALUES:
        return array.items
    if isinstance(step, pa.DataType):
        return array.cast(step)
    return array.field(step)


_NO_OFFSETS = memoryview(b"").cast("i")


def _input(array: pa.Array) -> Input:
    buffers = array.buffers()
    valid: Any = b"" if buffers[0] is None or array.null_count == 0 else memoryview(buffers[0]).cast("B")
    data: Any = b""
    offsets: Any = _NO_OFFSETS
    width = -2
    type_ = array.type
    if pa.types.is_boolean(type_):
        width = 0
        data = _bytes(buffers[1])
    elif pa.types.is_string(type_) or pa.types.is_binary(type_) or pa.types.is_list(type_) or pa.types.is_map(type_):
        width = -1
        if buffers[1] is not None:
            offsets = memoryview(buffers[1]).cast("B")[: buffers[1].size // 4 * 4].cast("i")
        if len(buffers) > 2 and (pa.types.is_string(type_) or pa.types.is_binary(type_)):
            data = _bytes(buffers[2])
    elif not pa.types.is_struct(type_):
        width = type_.bit_width // 8
        data = _bytes(buffers[1])
    length = len(array)
    if width == -1 and buffers[1] is None:
        length = 0
    return Input(length, array.offset, width, not _unsigned(type_), valid, data, offsets)


def _unsigned(type_: pa.DataType) -> bool:
    return bool(pa.types.is_unsigned_integer(type_))


def _bytes(buffer: pa.Buffer | None) -> memoryview | bytes:
    return b"" if buffer is None else memoryview(buffer).cast("B")
