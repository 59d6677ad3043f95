"""The rows of a table in a real Cassandra cluster, read over CQL by token ranges, as one side of a comparison.

What the agents of the settings leave out or hide is left out and hidden here too: a target cannot have more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import structlog

from penstock.capture.cassandra.node.connection import connect, driver_errors, reason
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.snapshot.copy import BACKOFF_S, BACKOFF_S_MAX, Reading
from penstock.capture.cassandra.snapshot.pages import Trouble, trouble
from penstock.capture.cassandra.snapshot.ring import FULL, TokenRange, cut
from penstock.capture.cassandra.snapshot.source import SnapshotSource
from penstock.capture.column_masks import ColumnMasks
from penstock.compare.log_rows import as_images
from penstock.compare.shape import Shape
from penstock.compare.sides import SourceRows
from penstock.errors import InvalidInput, Unreachable
from penstock.formats import avro
from penstock.merge.table_state import TableState, visible
from penstock.model.schema import TableId, TableSchema
from penstock.settings import Settings, Share
from penstock.system.clock import Clock, SystemClock

log = structlog.get_logger()

_SPLITS = 256
# Nothing is known of the rows' size at first.
_PAGE_ROWS_FIRST = 200
_PAGE_BYTES = 4 << 20
# A snapshot waits for its cluster for ever; whoever compares wants to know.
_TRIES = 10


class CassandraRows(SourceRows):
    """One table. Whole partitions are read at a time, so memory holds one token range of them."""

    def __init__(
        self,
        settings: Settings,
        table: TableId,
        shape: Shape,
        clock: Clock | None = None,
        *,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self.name = f"{table} in Cassandra"
        self.shape = shape
        self._clock = clock or SystemClock()
        self._wait = wait or threading.Event().wait
        self._settings = settings.snapshot.model_copy(update={"share": Share.ALL})
        self._page_rows = min(self._settings.page_rows, _PAGE_ROWS_FIRST)
        self._masks = ColumnMasks(settings.agent)
        connection = connect(settings.cassandra)
        try:
            self._source = SnapshotSource(connection, self._settings, None, self._clock)
            self._table = self._find(table)
            logged = self._masks.schema(self._table.schema)
        except BaseException:
            connection.close()
            raise
        # The cluster itself leaves out what dropped columns held; nothing more is to be left out here.
        columns = tuple(replace(column, dropped_us=None) for column in logged.columns)
        self.schema = replace(logged, columns=columns)

    def close(self) -> None:
        self._source.close()

    def images(self) -> Iterator[pa.StructArray]:
        for state in self.states():
            yield from as_images(self.schema, visible(state, self._clock.now_us() // 1_000_000))

    def states(self) -> Iterator[TableState]:
        reading = self._source.reading(self._table)
        return (self._read(reading, tokens) for tokens in cut([FULL], _SPLITS))

    @property
    def recorded(self) -> TableSchema:
        return self._masks.schema(self._table.schema)

    def _read(self, reading: Reading, tokens: TokenRange) -> TableState:
        """The rows of a range. What cannot be read now is asked for again a few times, as a snapshot does."""
        for failures in range(_TRIES):
            try:
                return self._read_once(reading, tokens)
            except driver_errors() as error:
                kind = trouble(error)
                if kind is Trouble.SCHEMA:
                    raise InvalidInput(
                        f"the table has changed while it was read; compare again: {reason(error)}",
                        table=self.schema.table,
                    ) from error
                if failures == _TRIES - 1:
                    raise Unreachable(
                        f"a token range cannot be read: {reason(error)}", table=self.schema.table
                    ) from error
                if kind is Trouble.SLOW:
                    self._page_rows = max(1, self._page_rows // 2)
                delay = min(BACKOFF_S_MAX, BACKOFF_S * 2.0**failures)
                log.warning("comparison waits", table=str(self.schema.table), reason=reason(error), seconds=delay)
                self._wait(delay)
        raise AssertionError("unreachable")

    def _read_once(self, reading: Reading, tokens: TokenRange) -> TableState:
        state = TableState(self.schema)
        encoder = reading.encoder.split()
        text = reading.encoder.statement.text(tokens)
        never = threading.Event()
        more: bytes | None = None
        while True:
            page = reading.pages.ask(text, self._page_rows, more, reading.host).wait(never)
            assert page is not None
            self._fit(page.rows, len(page.body))
            for batch in map(self._masks.apply, encoder.batches(page, self._clock.now_us())):
                for change in avro.decode(batch):
                    state.apply(change)
            more = page.more
            if more is None:
                return state

    def _fit(self, rows: int, size: int) -> None:
        """Fewer rows per page where they are large, more again where they are small."""
        if size > _PAGE_BYTES:
            self._page_rows = max(1, self._page_rows * _PAGE_BYTES // size)
        elif rows >= self._page_rows and 4 * size < _PAGE_BYTES:
            self._page_rows = min(self._settings.page_rows, 2 * self._page_rows)

    def _find(self, table: TableId) -> CassandraTable:
        for found in self._source.tables():
            if found.schema.table == table:
                return found
        raise InvalidInput("there is no such table in the cluster", table=table)
