"""CommitLogs: sandbox nodes that write Cassandra's commit log, so that whoever reads the disk sees Cassandra nodes.

Every node has `commitlog` and `cdc_raw` under its directory, and one writer that all its tables share. A table is
announced in the log by the mutations of its CREATE TABLE, and of its ALTER TABLE when its schema changed; a table that
is not captured is logged as well, without `cdc`, as in Cassandra. Each change is a mutation of its own.

Markers and syncs are written when they are due at an append or at `tick`, which whoever drives the cluster calls when
nothing is written. A node that comes back replays: its old segments leave `commitlog` and are complete.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from penstock.capture.cassandra.schema import cql_types
from penstock.capture.cassandra.schema.table import CassandraTable, in_order
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.formats import avro
from penstock.log.names import encode
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op
from penstock.model.schema import TableId, TableSchema
from penstock.sandbox.commit_log.statements import create_keyspace, create_table, truncate
from penstock.sandbox.commit_log.writer import CommitLogWriter, recover
from penstock.sandbox.node_log import Captures, LoggingNode, everywhere
from penstock.system.clock import Clock, SystemClock

# As Cassandra does in its periodic mode.
MARK_PERIOD_US = 100_000
SYNC_PERIOD_US = 10_000_000
# Table ids follow from the names, so that all nodes have the same without asking each other.
_NAMES = uuid.UUID("7d1f2a52-3f0c-5b0e-9c55-6e0c3b1f9a10")

OpenWriter = Callable[[str, str], CommitLogWriter]


def table_id(table: TableId) -> uuid.UUID:
    """The id that the sandbox gives a table."""
    return uuid.uuid5(_NAMES, f"{table.keyspace}\0{table.table}")


def cassandra_table(schema: TableSchema, *, cdc: bool = True) -> CassandraTable:
    """A table of the sandbox as Cassandra would have it. Raises InvalidSchema for types that CQL does not have."""
    columns = [replace(column, source_type=cql_types.text_of(column.type)) for column in schema.columns]
    return CassandraTable(table_id(schema.table), replace(schema, columns=in_order(columns), source="cassandra"), cdc)


class CommitLogs:
    """The commit logs of all nodes; a factory for a Cluster's `open_log`."""

    def __init__(
        self,
        root: str,
        *,
        captures: Captures = everywhere,
        open_writer: OpenWriter = CommitLogWriter,
        clock: Clock | None = None,
        sync_period_us: int = SYNC_PERIOD_US,
        keys: KeyStore | None = None,
    ) -> None:
        self._root = root
        # Where the writers encrypt: what replay opens old segments with.
        self._keys = keys
        self._captures = captures
        self._open_writer = open_writer
        self._clock = clock or SystemClock()
        self._sync_period_us = sync_period_us
        self._open: dict[str, NodeCommitLog] = {}
        self._captured: dict[str, set[uuid.UUID]] = {}

    def directories(self, node: str) -> tuple[str, str]:
        """A node's `commitlog` and `cdc_raw`."""
        return f"{self._root}/{encode(node)}/commitlog", f"{self._root}/{encode(node)}/cdc_raw"

    def __call__(self, node: LoggingNode, schema: TableSchema) -> TableCommitLog:
        log = self._open.get(node.name)
        if log is None or log.closed:
            directories = self.directories(node.name)
            writer = self._open_writer(*directories)
            # The new writer's segments are empty: replay takes only what was there before.
            recover(*directories, self._captured.get(node.name, set()), below=writer.place.segment, keys=self._keys)
            log = self._open[node.name] = NodeCommitLog(writer, self._clock, self._sync_period_us)
        table = cassandra_table(schema, cdc=self._captures(schema.table, node.data_centre))
        if table.cdc:
            self._captured.setdefault(node.name, set()).add(table.id)
        return log.table(table)

    def tick(self) -> None:
        """Write the markers and syncs that are due."""
        for log in self._open.values():
            log.tick()


class NodeCommitLog:
    """One node's log: its writer, and the tables that the log has announced."""

    def __init__(self, writer: CommitLogWriter, clock: Clock, sync_period_us: int) -> None:
        self.writer = writer
        self._clock = clock
        self._sync_period_us = sync_period_us
        self._marked_us = self._synced_us = clock.now_us()
        self._schema_time = 0
        self._keyspaces: set[str] = set()
        self._tables: dict[TableId, CassandraTable] = {}
        self._users = 0
        self.closed = False

    def table(self, table: CassandraTable) -> TableCommitLog:
        """A table's part of the log."""
        self._users += 1
        self.announce(table)
        return TableCommitLog(self, table)

    def announce(self, table: CassandraTable) -> None:
        """Say in the log what a table is, if that is news."""
        name = table.schema.table
        known = self._tables.get(name)
        if known is not None and known.schema.fingerprint == table.schema.fingerprint:
            return
        self._schema_time = max(self._clock.now_us(), self._schema_time + 1)
        if name.keyspace not in self._keyspaces:
            self.writer.append(create_keyspace(name.keyspace, self._schema_time))
            self._keyspaces.add(name.keyspace)
        self.writer.append(create_table(table, self._schema_time))
        self._tables[name] = table

    def write(self, table: CassandraTable, changes: list[Change]) -> None:
        for change in changes:
            if change.op is Op.TRUNCATE:
                time = change.deletion.time if change.deletion is not None else change.time or 0
                self.writer.append(truncate(table, time, *self.writer.place))
            else:
                self.writer.append([(table, [change])])
        self.tick()

    def tick(self) -> None:
        if self.closed:
            return
        now = self._clock.now_us()
        if now - self._synced_us >= self._sync_period_us:
            self.writer.sync()
            self._synced_us = self._marked_us = now
        elif now - self._marked_us >= MARK_PERIOD_US:
            self.writer.mark()
            self._marked_us = now

    def release(self) -> None:
        """One table less; the last one closes the log."""
        self._users -= 1
        if not self._users:
            self.closed = True
            self.writer.close()


class TableCommitLog:
    """A table's part of a node's commit log."""

    def __init__(self, log: NodeCommitLog, table: CassandraTable) -> None:
        self._log = log
        self._table = table
        self._closed = False

    def append(self, batch: ChangeBatch) -> None:
        """Write a batch; every change is in the log when this returns."""
        if batch.schema.version != self._table.schema.version:
            self._table = cassandra_table(batch.schema, cdc=self._table.cdc)
            self._log.announce(self._table)
        self._log.write(self._table, list(avro.decode(batch)))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._log.release()
