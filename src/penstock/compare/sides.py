"""The two sides of a repair: a source that can give whole rows with plain values, and a target that can be written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.compare.comparison import Kind, Report
from penstock.compare.shape import Shape
from penstock.compare.spelling import Spelling
from penstock.deliver.sink import Sink, Writer
from penstock.merge.table_state import TableState
from penstock.model.schema import TableSchema

# Carries the row with plain values beside the row as the target shows it.
IMAGE = "\x00row"


class SourceRows(ABC):
    """The rows of one table of a source, shown as a target has them."""

    name: str
    schema: TableSchema
    shape: Shape

    @abstractmethod
    def images(self) -> Iterator[pa.StructArray]:
        """All rows as they are now, whole and with plain values (`row_type`)."""

    def states(self) -> Iterator[TableState] | None:
        """The same with the write times of all cells, for the state of a pipeline; None when they are not known."""
        return None

    @property
    def recorded(self) -> TableSchema:
        """The schema that a log of these rows has in its header."""
        return self.schema

    @property
    def left_out(self) -> tuple[str, ...]:
        """The columns that the source has and that never reach a log, so that they cannot be compared."""
        return self.recorded.excluded

    @property
    def masked(self) -> tuple[str, ...]:
        """The columns that are compared as they were hidden before they were logged."""
        return tuple(column.name for column in self.recorded.columns if column.mask)

    def check_repair(self) -> None:  # noqa: B027
        """Raise when rows of a target must not be made what these are."""

    def close(self) -> None:  # noqa: B027
        """Give back what reading took."""

    def key(self) -> Sequence[str]:
        return self.shape.key(self.schema)

    def spelled(self) -> Mapping[str, Spelling]:
        return self.shape.spelled(self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for rows in self.images():
            yield self.shape.rows(self.schema, self.shape.shown(self.schema, rows))


class WithImages:
    """A source whose rows carry their plain values, for a repair."""

    def __init__(self, source: SourceRows) -> None:
        self.name = source.name
        self._source = source

    def key(self) -> Sequence[str]:
        return self._source.key()

    def spelled(self) -> Mapping[str, Spelling]:
        return self._source.spelled()

    def batches(self) -> Iterator[pa.RecordBatch]:
        source = self._source
        for rows in source.images():
            chosen = source.shape.shown(source.schema, rows)
            yield source.shape.rows(source.schema, chosen).append_column(IMAGE, chosen)


class TargetRows(ABC):
    """The rows of one table in a target, and how to change them."""

    name: str

    @abstractmethod
    def key(self) -> Sequence[str]:
        """The names of the key columns."""

    @abstractmethod
    def spelled(self) -> Mapping[str, Spelling]:
        """Key columns in which equal values may be written in several ways."""

    def own_keys(self, found: pa.Table) -> tuple[pa.StructArray, Any] | None:  # noqa: ARG002
        """The plain keys of rows as the target spells them, and a mask of those that are; None: they cannot be told."""
        return None

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows as they are now."""

    @abstractmethod
    def sink(self, report: Report) -> Sink:
        """The sink that writes to this table. Raises when what the report says cannot be repaired."""

    def take_out(self, writer: Writer, found: pa.Table) -> bool:  # noqa: ARG002
        """Rows that are there more than once: make the sink forget all of them.

        Whether one of each can be written in the same batch; else they are to be deleted first.
        """
        return False

    def keys(self, found: pa.Table) -> pa.StructArray | None:  # noqa: ARG002
        """The keys of rows as the source has them; None when they cannot be told."""
        return None

    @abstractmethod
    def versions(self, kind: Kind, found: pa.Table | None, count: int, attempt: int, now_us: int) -> pa.Int64Array:
        """The versions that rows are written with; `found` is what the target has of them, in the same order."""

    @abstractmethod
    def delete(self, writer: Writer, found: pa.Table, now_us: int) -> int:
        """Delete rows that the source does not have; how many of them could be named to the target."""
