"""Vectors: the columns of a batch that a predicate looks at, as Arrow arrays."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa

from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op, Set
from penstock.model.types import Kind

_ARROW = {Kind.INT8: pa.int8(), Kind.INT16: pa.int16(), Kind.INT32: pa.int32(), Kind.INT64: pa.int64(), Kind.UINT8: pa.uint8(), Kind.UINT16: pa.uint16(), Kind.UINT32: pa.uint32(), Kind.COUNTER: pa.int64(), Kind.FLOAT32: pa.float32(), Kind.FLOAT64: pa.float64(), Kind.BOOLEAN: pa.bool_(), Kind.BYTES: pa.binary(), Kind.UUID: pa.binary(16), Kind.TIMEUUID: pa.binary(16), Kind.DATE: pa.int32(), Kind.TIME: pa.int64(), Kind.TIMESTAMP: pa.int64(), Kind.DATETIME: pa.int64()}


class Vectors:
    """One batch's columns."""

    def __init__(self, batch: ChangeBatch, columns: tuple[str, ...]) -> None:
        self._batch = batch
        self._changes = avro.decode(batch)

    def _type(self, column: str) -> Any:
        return _ARROW.get(self._batch.schema.by_name[column].type.kind, pa.string())

    def values(self, column: str) -> pa.Array:
        out = []
        for c in self._changes:
            v = c.key.get(column)
            cell = c.cells.get(column)
            if isinstance(cell, Set):
                v = cell.value
            out.append(v)
        return self.array(column, out)

    def touched(self, column: str) -> pa.BooleanArray:
        return pa.array([c.key.get(column) is not None or column in c.cells for c in self._changes], pa.bool_())

    def deletes(self) -> pa.BooleanArray:
        return pa.array([c.deletion is not None or c.op in (Op.DELETE, Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE) for c in self._changes], pa.bool_())

    def scalar(self, column: str, value: Any) -> Any:
        return self.array(column, [value])[0]

    def array(self, column: str, values: list[Any]) -> Any:
        values = [v.bytes if isinstance(v, UUID) else v for v in values]
        try:
            return pa.array(values, self._type(column))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array([None if v is None else 'x' for v in values], pa.string())
