"""The rows that the change logs of all nodes give together, folded by the plain merge and not by the pipeline's own.

It is the source of a comparison where there is no database to ask, as in the sandbox, and a referee for the pipeline:
the two folds have no code in common but the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.merge.table_state import TableState, visible
from penstock.model.change import Change, Marker, Op, Set
from penstock.model.schema import TableId, TableSchema
from penstock.pipeline.compare.shape import Shape
from penstock.pipeline.compare.sides import SourceRows
from penstock.pipeline.records import images

_BATCH_ROWS = 10_000


class LogRows(SourceRows):
    """The rows of one table, from all its logs."""

    def __init__(self, directories: Sequence[str], table: TableId, shape: Shape, now_s: int) -> None:
        self.name = f"the logs of {table}"
        self.shape = shape
        self._directories = directories
        self._now_s = now_s
        self.schema = newest_schema(directories, table)

    def images(self) -> Iterator[pa.StructArray]:
        state = TableState(self.schema)
        names = {column.name for column in self.schema.columns}
        for directory in self._directories:
            with LogReader(directory) as reader:
                for batch in reader.read():
                    for change in avro.decode(batch):
                        # What a dropped column held is of no more interest.
                        kept = {name: cell for name, cell in change.cells.items() if name in names}
                        state.apply(change if len(kept) == len(change.cells) else replace(change, cells=kept))
        yield from as_images(self.schema, visible(state, self._now_s))


def newest_schema(directories: Iterable[str], table: TableId) -> TableSchema:
    """The newest schema that any of the logs has."""
    newest: TableSchema | None = None
    for directory in directories:
        with LogReader(directory) as reader:
            numbers = reader.numbers()
            found = reader.heading(numbers[-1]).schema if numbers else None
        if found is not None and (newest is None or found.version > newest.version):
            newest = found
    if newest is None:
        raise InvalidInput("there is no log of this table", table=table)
    return newest


def as_images(schema: TableSchema, rows: Iterable[dict[str, Any]]) -> Iterator[pa.StructArray]:
    """Rows as `visible` gives them, as columns."""
    keys = {column.name for column in schema.key}
    waiting: list[Change] = []
    for row in rows:
        there = {name: value for name, value in row.items() if value is not None}
        key = {name: value for name, value in there.items() if name in keys}
        cells = {name: Set(value) for name, value in there.items() if name not in keys}
        marker = Marker() if len(key) == len(keys) else None
        waiting.append(Change(Op.INSERT, key, cells, time=0, marker=marker))
        if len(waiting) == _BATCH_ROWS:
            yield images(schema, avro.encode(schema, waiting), 0)
            waiting = []
    if waiting:
        yield images(schema, avro.encode(schema, waiting), 0)
