"""Shape: how a target shows a row, so that a source's rows can be shown the same way and compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from penstock.model.schema import TableSchema


class Shape(ABC):
    """The columns of one target."""

    @abstractmethod
    def key(self, schema: TableSchema) -> Sequence[str]:
        """The names of the columns that tell rows apart."""

    @abstractmethod
    def shown(self, schema: TableSchema, rows: pa.StructArray) -> pa.StructArray:
        """Of whole rows with plain values (`row_type`), those that the target has a place for."""

    @abstractmethod
    def rows(self, schema: TableSchema, rows: pa.StructArray) -> pa.RecordBatch:
        """These rows, as the target has them."""
