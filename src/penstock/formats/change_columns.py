"""A batch of changes read into columns, each of which becomes an array, or a kernel's input, when it is asked for.

Rows are read once, straight into the buffers of Arrow arrays. An array object costs several microseconds, and a table
has dozens, which is more than the changes of a small batch cost; so who needs the buffers only asks for inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CorruptLog
from penstock.formats._columns import Budget, Column, ColumnReader
from penstock.formats._kernel import RowReader
from penstock.formats._rows import Input
from penstock.formats.arrays import texts
from penstock.formats.arrow_plan import BITS, LIST, STRUCT, VARIABLE, WIDE, Path, Plan, Slot
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op

OPS = texts([op.value for op in Op])
# Steps below an array, beside the names and numbers of a struct's fields: a list's items, a map's keys and values.
ITEMS, KEYS, VALUES = ("items",), ("keys",), ("values",)
# Beyond the columns of fixed width, a batch may take this much and four times its rows.
_BUDGET_BYTES = 64 << 20
_ROWS_BYTES_MAX = (1 << 31) - 1
_NO_OFFSETS = memoryview(b"").cast("i")
_UNSIGNED = frozenset({pa.uint8().id, pa.uint16().id, pa.uint32().id, pa.uint64().id})


class ChangeColumns:
    """The columns of a plan, filled with the changes of a batch that count."""

    def __init__(self, batch: ChangeBatch, chosen: Plan) -> None:
        length = len(batch)
        held = len(batch.rows)
        if batch.count * chosen.program.least_bytes() > held or held > _ROWS_BYTES_MAX or length < 0:
            raise CorruptLog(f"rows are damaged: {held} bytes cannot hold {batch.count} changes")
        self._length = length
        self._budget = Budget(_BUDGET_BYTES + 4 * held + length * chosen.row_bytes)
        self._columns = [
            Column(slot.layout, slot.width, slot.nullable, length if slot.per_row else 0, self._budget)
            for slot in chosen.slots
        ]
        self._plan = chosen
        self._zeros = b""
        reader = RowReader(batch.rows)
        chosen.program.skip_rows(reader, batch.skip)
        ColumnReader(chosen.program, chosen.targets, self._columns).read_rows(reader, length)
        if reader.position != reader.end:
            raise CorruptLog("rows are damaged: bytes are left after the last change", byte=reader.position)

    def __len__(self) -> int:
        return self._length

    def arrays(self) -> list[pa.Array]:
        """Every column of the plan."""
        return [self._array(slot, self._length) for slot in self._plan.tops]

    def array(self, path: Path) -> pa.Array:
        return self._array(*self._find(path))

    def input(self, path: Path) -> Input:
        """The buffers of one array, for the kernels."""
        slot, length = self._find(path)
        column = self._columns[slot.number]
        written = column.finish(length)
        if written and pa.types.is_decimal(slot.type):
            _check_digits(self._array(slot, length))
        valid: Any = b""
        if slot.nullable:
            valid = column.valid_store if written else self._zero((length + 7) // 8)
        data: Any = b""
        offsets: Any = _NO_OFFSETS
        width = -2
        if slot.layout in (BITS, WIDE):
            width = 0 if slot.layout == BITS else slot.width
            data = column.data_store if written else self._zero(_data_bytes(slot, length))
        elif slot.layout != STRUCT:
            width = -1
            offsets = memoryview(column.offset_store if written else self._zero(4 * (length + 1))).cast("i")
            data = column.data_store if slot.layout == VARIABLE else b""
        return Input(length, 0, width, slot.type.id not in _UNSIGNED, valid, data, offsets)

    def is_written(self, path: Path) -> bool:
        """Whether any change has this."""
        slot, length = self._find(path)
        return self._columns[slot.number].finish(length)

    def is_complete(self, path: Path) -> bool:
        """Whether every change has this."""
        slot, length = self._find(path)
        column = self._columns[slot.number]
        if not column.finish(length):
            return False
        if not slot.nullable:
            return True
        held = int.from_bytes(memoryview(column.valid_store)[: (length + 7) // 8], "little")
        return held.bit_count() == length

    def longs(self, path: Path) -> Any:
        """A column of 64-bit integers as a NumPy array, if every change has one; else None."""
        if not self.is_complete(path):
            return None
        slot, length = self._find(path)
        return np.frombuffer(self._columns[slot.number].data_store, np.int64, length)

    def _find(self, path: Path) -> tuple[Slot, int]:
        """A column, and how many entries it has."""
        known = self._plan.found.get(path)
        if known is None:
            known = self._plan.found[path] = _walk(self._plan.tops, path)
        slot, holder = known
        return slot, self._length if holder is None else self._columns[holder.number].used

    def _zero(self, size: int) -> memoryview:
        """What was never written shares one buffer of zeros."""
        if len(self._zeros) < size:
            self._budget.spend(size)
            self._zeros = bytes(size)
        return memoryview(self._zeros)[:size]

    def _array(self, slot: Slot, length: int) -> pa.Array:
        column = self._columns[slot.number]
        written = column.finish(length)
        valid = None
        if slot.nullable:
            size = (length + 7) // 8
            valid = _buffer(column.valid_store, size) if written else pa.py_buffer(self._zero(size))
        type_ = pa.int8() if pa.types.is_dictionary(slot.type) else slot.type
        buffers, children = [valid, *self._buffers(slot, column, written, length)], []
        if slot.layout == STRUCT:
            children = [self._array(child, length) for child in slot.children]
        elif slot.layout == LIST:
            children = [self._array(slot.children[0], column.used)]
        made = pa.Array.from_buffers(type_, length, buffers, children=children or None)
        if written and pa.types.is_decimal(slot.type):
            _check_digits(made)
        return pa.DictionaryArray.from_arrays(made, OPS) if pa.types.is_dictionary(slot.type) else made

    def _buffers(self, slot: Slot, column: Column, written: bool, length: int) -> list[pa.Buffer]:
        if slot.layout == STRUCT:
            return []
        if slot.layout in (BITS, WIDE):
            size = _data_bytes(slot, length)
            return [_buffer(column.data_store, size) if written else pa.py_buffer(self._zero(size))]
        size = 4 * (length + 1)
        offsets = _buffer(column.offset_store, size) if written else pa.py_buffer(self._zero(size))
        return [offsets, _buffer(column.data_store, column.used)] if slot.layout == VARIABLE else [offsets]


def _walk(tops: Sequence[Slot], path: Path) -> tuple[Slot, Slot | None]:
    """The column at a path, and the innermost list or map that it is in."""
    slot = next(top for top in tops if top.name == path[0])
    holder = None
    for step in path[1:]:
        if slot.layout == LIST:
            holder, slot = slot, slot.children[0]
            if step != ITEMS:
                slot = slot.children[0 if step == KEYS else 1]
        elif isinstance(step, int):
            slot = slot.children[step]
        else:
            slot = next(child for child in slot.children if child.name == step)
    return slot, holder


def _data_bytes(slot: Slot, length: int) -> int:
    return (length + 7) // 8 if slot.layout == BITS else length * slot.width


def _check_digits(decimals: pa.Array) -> None:
    """Arrow trusts that decimals keep to their precision; rows from elsewhere may not."""
    limits = pc.min_max(decimals)
    for limit in (limits["min"].as_py(), limits["max"].as_py()):
        if limit is not None and limit.adjusted() + 1 + decimals.type.scale > decimals.type.precision:
            raise CorruptLog("rows are damaged: a decimal has too many digits")


def _buffer(store: bytearray, size: int) -> pa.Buffer:
    return pa.py_buffer(memoryview(store)[:size])
