"""Layouts: the fields of an envelope, and where in the arrays of a batch each of them comes from.

A layout is a tree of nodes that knows nothing of serialisations. A node's path names one array of the batch: the name
of an input, then a step for each level below it. `compilation` turns a layout into the tables of a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.envelopes.connect import Schema
from penstock.formats._rows import Input
from penstock.formats.arrow_plan import Path
from penstock.formats.change_columns import ITEMS, KEYS, VALUES, ChangeColumns


@dataclass(slots=True)
class Node:
    """One field: its kind for the kernels, its schema for consumers, and its place in the arrays."""

    kind: int
    schema: Schema
    path: Path | None = None
    name: str = ""
    children: list[Node] = field(default_factory=list)
    # Of a constant its value, or the very bytes that stand there; of a word all that it can be.
    constant: str | int | bytes | None = None
    words: tuple[str, ...] = ()
    factor: int = 1
    divisor: int = 1
    # The array has one entry for all records.
    shared: bool = False

    def called(self, name: str) -> Node:
        self.name = name
        return self


class Arrays:
    """The arrays of one batch, found by path; each is looked up once.

    `tops` were made for the batch and come first; what they lack is a column of the changes, or else `absent`, which
    may have more entries than there are records.
    """

    def __init__(
        self, tops: Mapping[str, pa.Array | Input], columns: ChangeColumns | None = None, absent: Arrays | None = None
    ) -> None:
        self._found: dict[Path, pa.Array] = {(name,): top for name, top in tops.items() if not isinstance(top, Input)}
        self._inputs: dict[Path, Input] = {(name,): top for name, top in tops.items() if isinstance(top, Input)}
        self._columns = columns
        self._absent = absent

    def add(self, tops: Mapping[str, pa.Array | Input]) -> None:
        """More that was made for the batch."""
        for name, top in tops.items():
            if isinstance(top, Input):
                self._inputs[(name,)] = top
            else:
                self._found[(name,)] = top

    def cut(self, tops: Mapping[str, pa.Array], first: int, count: int) -> Arrays:
        """Some of the records: `tops` are of these alone, and of what was made for the batch their part is taken.

        What all records share, and what is a column of the changes, is left out.
        """
        own = {str(path[0]): top for path, top in self._found.items() if len(path) == 1 and len(top) >= first + count}
        return Arrays({name: top.slice(first, count) for name, top in own.items()} | dict(tops))

    def array(self, name: str) -> pa.Array:
        """What was made for the batch, and is an array."""
        return self._found[(name,)]

    def input(self, path: Path) -> Input:
        """The buffers of one array, for the kernels."""
        known = self._inputs.get(path)
        if known is None:
            known = self._inputs[path] = self._make(path)
        return known

    def _make(self, path: Path) -> Input:
        top = path[:1]
        if self._absent is not None and top in self._absent._found:
            return self._absent.input(path)
        if self._columns is None or top in self._found or isinstance(path[-1], pa.DataType):
            return _input(self._find(path))
        return self._columns.input(path)

    def _find(self, path: Path) -> pa.Array:
        known = self._found.get(path)
        if known is None:
            column = self._column_at(path)
            known = _below(self._find(path[:-1]), path[-1]) if column is None else column.array(path)
            self._found[path] = known
        return known

    def _column_at(self, path: Path) -> ChangeColumns | None:
        """The columns, if an array is just one of them: no top's, and not cast to another type."""
        return None if path[:1] in self._found or isinstance(path[-1], pa.DataType) else self._columns


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
# Kinds of types by their numbers in Arrow, which are quicker to ask for than anything else of a type.
_BOOLEAN, _STRUCT = pa.bool_().id, pa.struct([]).id
_BYTES = frozenset({pa.string().id, pa.binary().id})
_LISTS = frozenset({pa.list_(pa.null()).id, pa.map_(pa.string(), pa.null()).id})
_UNSIGNED = frozenset({pa.uint8().id, pa.uint16().id, pa.uint32().id, pa.uint64().id})


def _input(array: pa.Array) -> Input:
    buffers = array.buffers()
    valid: Any = b"" if buffers[0] is None or array.null_count == 0 else memoryview(buffers[0]).cast("B")
    data: Any = b""
    offsets: Any = _NO_OFFSETS
    width = -2
    length = len(array)
    kind = array.type.id
    if kind == _BOOLEAN:
        width = 0
        data = _bytes(buffers[1])
    elif kind in _BYTES or kind in _LISTS:
        width = -1
        if buffers[1] is None:
            length = 0
        else:
            offsets = memoryview(buffers[1]).cast("B")[: buffers[1].size // 4 * 4].cast("i")
        if kind in _BYTES:
            data = _bytes(buffers[2])
    elif kind != _STRUCT:
        width = array.type.bit_width // 8
        data = _bytes(buffers[1])
    return Input(length, array.offset, width, kind not in _UNSIGNED, valid, data, offsets)


def _bytes(buffer: pa.Buffer | None) -> memoryview | bytes:
    return b"" if buffer is None else memoryview(buffer).cast("B")
