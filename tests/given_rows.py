"""A source of rows made by hand, for tests of comparisons and repairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.compare.shape import Shape
from penstock.compare.sides import SourceRows
from penstock.model.schema import TableSchema
from penstock.records.records import row_type


class GivenRows(SourceRows):
    """Rows of plain values. `before` is called before each reading and may change them."""

    def __init__(
        self,
        schema: TableSchema,
        shape: Shape,
        rows: list[dict[str, Any] | None] | pa.StructArray,
        before: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.name = "given rows"
        self.schema = schema
        self.shape = shape
        self.rows = rows
        self._before = before
        self.readings = 0

    def images(self) -> Iterator[pa.StructArray]:
        self._before(self.readings)
        self.readings += 1
        for start in range(0, len(self.rows), 3):
            some = self.rows[start : start + 3]
            yield some if isinstance(some, pa.Array) else pa.array(some, row_type(self.schema))
