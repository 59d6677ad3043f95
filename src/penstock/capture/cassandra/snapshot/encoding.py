"""Encoding: pages of one table's SELECT to batches of changes, with the plan of its columns made once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from penstock.capture.cassandra.decoding.value_plan import value_plan
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.snapshot._page import PageEncoder
from penstock.capture.cassandra.snapshot.statement import Statement
from penstock.errors import InvalidValue
from penstock.formats._encoder import NO_TIME, RowEncoder
from penstock.model.batch import ChangeBatch

# A batch is handed on when it has grown to this; the log's blocks take several times as much.
BATCH_BYTES = 2 << 20
# Clocks of clients may be behind ours by this much before an item of a list is lost that was appended while the page
# was read (servers before 5.0, which do not tell when a list was written).
LIST_CLOCK_MARGIN_US = 1_000_000


class Page(NamedTuple):
    """Rows as they came over the wire, and when they were asked for."""

    rows: int
    body: bytes
    more: bytes | None
    asked_us: int


class TableEncoder:
    """Makes encoders for a table's splits."""

    def __init__(self, table: CassandraTable, statement: Statement, *, assume_inserted: bool) -> None:
        self.table = table
        self.statement = statement
        self._assume_inserted = assume_inserted
        layout = statement.layout
        columns = (*layout.key_types, *layout.cell_types)
        self._values, nodes = value_plan([column.type for column in columns])
        self._key_nodes = array("i", nodes[: layout.keys])
        self._cell_nodes = array("i", nodes[layout.keys :])

    def split(self) -> SplitEncoder:
        """For the pages of one split, in order."""
        layout = self.statement.layout
        encoder = PageEncoder(
            RowEncoder(self.table.schema),
            self._values,
            layout,
            self._key_nodes,
            self._cell_nodes,
            self._assume_inserted,
        )
        return SplitEncoder(self.table, self.statement, encoder)


class SplitEncoder:
    """Encodes the pages of one split."""

    def __init__(self, table: CassandraTable, statement: Statement, kernel: PageEncoder) -> None:
        self._table = table
        self._statement = statement
        self._kernel = kernel

    def batches(self, page: Page, now_us: int) -> Iterator[ChangeBatch]:
        """The page's changes. Raises InvalidValue, naming the column, when the bytes are not what the schema says."""
        kernel = self._kernel
        kernel.open(page.body or b"\0", page.rows, page.asked_us // 10**6, page.asked_us - LIST_CLOCK_MARGIN_US, now_us)
        left = page.rows
        while left:
            try:
                left = kernel.encode(BATCH_BYTES)
            except ValueError as error:
                raise self._misfit(kernel.column) from error
            count, rows, when_max = kernel.take()
            if count:
                yield ChangeBatch(self._table.schema, count, rows, None if when_max == NO_TIME else when_max)

    def last_token(self) -> int:
        """The token of the last row of the page."""
        return int(self._kernel.last_token())

    def _misfit(self, column: int) -> InvalidValue:
        layout = self._statement.layout
        names = [(index, one.name) for index, one in enumerate(layout.key_types)]
        names += [(first, one.name) for one, first in zip(layout.cell_types, layout.columns, strict=False)]
        # A cell's write time and time to live stand behind it.
        name = max((pair for pair in names if pair[0] <= column), default=(0, "token"))[1]
        return InvalidValue(
            "a value of the snapshot does not fit its type", table=self._table.schema.table, column=name
        )
