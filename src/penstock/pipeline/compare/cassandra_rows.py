"""The rows of a table in a real Cassandra cluster, read over CQL by token ranges, as one side of a comparison."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.capture.cassandra.node.connection import Connection, connect
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.snapshot.copy import Reading
from penstock.capture.cassandra.snapshot.ring import FULL, TokenRange, cut
from penstock.capture.cassandra.snapshot.source import SnapshotSource
from penstock.errors import InvalidInput
from penstock.formats import avro
from penstock.merge.table_state import TableState, visible
from penstock.model.change import Change
from penstock.model.schema import TableId
from penstock.pipeline.compare.log_rows import as_batches
from penstock.pipeline.compare.shape import Shape
from penstock.settings import Settings, Share
from penstock.system.clock import Clock, SystemClock

_SPLITS = 256


class CassandraRows:
    """One table. Whole partitions are read at a time, so memory holds one token range of them."""

    def __init__(self, settings: Settings, table: TableId, shape: Shape, clock: Clock | None = None) -> None:
        self.name = f"{table} in Cassandra"
        self._clock = clock or SystemClock()
        self._settings = settings.snapshot.model_copy(update={"share": Share.ALL})
        self._shape = shape
        self._connection: Connection = connect(settings.cassandra)
        self._source = SnapshotSource(self._connection, self._settings, None, self._clock)
        self._table = self._find(table)
        self.schema = self._table.schema

    def close(self) -> None:
        self._source.close()

    def key(self) -> Sequence[str]:
        return self._shape.key(self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        reading = self._source.reading(self._table)
        for tokens in cut([FULL], _SPLITS):
            state = TableState(self.schema)
            for change in self._changes(reading, tokens):
                state.apply(change)
            rows = visible(state, self._clock.now_us() // 1_000_000)
            yield from as_batches(self.schema, rows, self._shape)

    def _changes(self, reading: Reading, tokens: TokenRange) -> Iterator[Change]:
        encoder = reading.encoder.split()
        text = reading.encoder.statement.text(tokens)
        never = threading.Event()
        more: bytes | None = None
        while True:
            page = reading.pages.ask(text, self._settings.page_rows, more, reading.host).wait(never)
            assert page is not None
            for batch in encoder.batches(page, self._clock.now_us()):
                yield from avro.decode(batch)
            more = page.more
            if more is None:
                return

    def _find(self, table: TableId) -> CassandraTable:
        for found in self._source.tables():
            if found.schema.table == table:
                return found
        raise InvalidInput("there is no such table in the cluster", table=table)
