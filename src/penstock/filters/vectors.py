"""Vectors: what a batch says of the columns that a predicate looks at, as Arrow arrays of one entry per change.

Only these columns are read. A value is null where the change sets null, deletes the cell or does not touch it;
`touched` tells the last from the others. Dates and times are plain numbers, as everywhere in a predicate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats.arrow import to_arrow
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op
from penstock.model.types import Kind

# Arrow has types of its own for these; underneath they are the numbers that literals become.
_NUMBERS = {Kind.DATE: pa.int32(), Kind.TIME: pa.int64(), Kind.TIMESTAMP: pa.int64(), Kind.DATETIME: pa.int64()}
_DELETIONS = pa.array([Op.DELETE.value, Op.DELETE_PARTITION.value, Op.DELETE_RANGE.value, Op.TRUNCATE.value])
# The state of a cell that the change does not touch.
_ABSENT = pa.scalar(0, pa.int8())


class Vectors:
    """One batch's columns."""

    def __init__(self, batch: ChangeBatch, columns: tuple[str, ...]) -> None:
        self._schema = batch.schema
        self._rows = to_arrow(batch, columns)
        self._keys = {column.name for column in batch.schema.key}
        self._values: dict[str, pa.Array] = {}

    def values(self, column: str) -> pa.Array:
        """The column's values."""
        if column not in self._values:
            found = self._cell(column, "value")
            number = _NUMBERS.get(self._schema.by_name[column].type.kind)
            self._values[column] = found if number is None else found.view(number)
        return self._values[column]

    def touched(self, column: str) -> pa.BooleanArray:
        """Whether the change says anything of the column."""
        if column in self._keys:
            return pc.is_valid(self.values(column))
        return pc.not_equal(self._cell(column, "state"), _ABSENT)

    def deletes(self) -> pa.BooleanArray:
        """Whether the change deletes a row or more, alone or before it sets cells anew."""
        operations = pc.is_in(self._rows.column("op").cast(pa.string()), value_set=_DELETIONS)
        return pc.or_(operations, pc.is_valid(self._rows.column("deletion")))

    def scalar(self, column: str, value: Any) -> pa.Scalar:
        """A literal, as Arrow compares it with the column."""
        return pa.scalar(_plain(value), self.values(column).type)

    def array(self, column: str, values: Iterable[Any]) -> pa.Array:
        """Several literals."""
        return pa.array(map(_plain, values), self.values(column).type)

    def _cell(self, column: str, part: str) -> pa.Array:
        if column in self._keys:
            return self._rows.column("key").field(column)
        return self._rows.column("cells").field(column).field(part)


def _plain(value: Any) -> Any:
    return value.bytes if isinstance(value, UUID) else value
