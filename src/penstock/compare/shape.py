"""Shape: how a target shows a row, so that a source's rows can be shown the same way and compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.compare.spelling import Spelling, spelled_columns
from penstock.model.schema import TableSchema


class Shape(ABC):
    """The columns of one target."""

    @abstractmethod
    def key(self, schema: TableSchema) -> Sequence[str]:
        """The names of the columns that tell rows apart."""

    def spelled(self, schema: TableSchema) -> Mapping[str, Spelling]:
        """Key columns in which equal values may be written in several ways."""
        return spelled_columns(schema)

    @abstractmethod
    def shown(self, schema: TableSchema, rows: pa.StructArray) -> pa.StructArray:
        """Of whole rows with plain values (`row_type`), those that the target has a place for."""

    @abstractmethod
    def rows(self, schema: TableSchema, rows: pa.StructArray) -> pa.RecordBatch:
        """These rows, as the target has them."""
