"""SnapshotSource: what a snapshot asks of the cluster besides rows: its ring, its tables, and how to read each."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from penstock.capture.cassandra.node.connection import Connection, driver_errors
from penstock.capture.cassandra.schema import query as schema_query
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.snapshot.copy import Reading
from penstock.capture.cassandra.snapshot.encoding import TableEncoder
from penstock.capture.cassandra.snapshot.pages import PageReader
from penstock.capture.cassandra.snapshot.ring import FULL, TOKEN_MAX, TokenRange, primary_ranges, width
from penstock.capture.cassandra.snapshot.statement import Times, statement, table_name, times_of
from penstock.errors import InvalidSetting
from penstock.model.schema import TableId
from penstock.settings import Share, SnapshotSettings
from penstock.system.clock import Clock

if TYPE_CHECKING:
    from cassandra.cluster import Cluster
    from cassandra.pool import Host

_PARTITIONER = "Murmur3Partitioner"
# A range without tokens: a statement can be tried with it.
_NOTHING = TokenRange(TOKEN_MAX, TOKEN_MAX)


class SnapshotSource:
    """One connection's view of the cluster. `node` is the own node's address or host id; None: the contact point."""

    def __init__(self, connection: Connection, settings: SnapshotSettings, node: str | None, clock: Clock) -> None:
        self._connection = connection
        self._settings = settings
        self._cluster: Cluster = connection.session.cluster
        self.host = own_host(self._cluster, node)
        if self.host is None and settings.share is Share.OWN:
            raise InvalidSetting(
                f"the cluster has no node {node or 'at the contact point'}; its own address must be the first of "
                'cassandra.contact_points, or snapshot.share must be "all" or "none"'
            )
        partitioner = str(self._cluster.metadata.partitioner or "")
        if not partitioner.endswith(_PARTITIONER):
            raise InvalidSetting(
                f"snapshots need {_PARTITIONER}, this cluster has {partitioner.rsplit('.', 1)[-1] or 'none'}; "
                'set snapshot.mode = "never"'
            )
        self.pages = PageReader(connection, settings.consistency, settings.timeout_s, clock)

    def close(self) -> None:
        self.pages.close()
        self._connection.close()

    def ranges(self) -> list[TokenRange]:
        """The part of the ring that this agent copies, by the ring as it is now."""
        if self._settings.share is Share.NONE:
            return []
        if self._settings.share is Share.ALL:
            return [FULL]
        return self._primary()

    def _primary(self) -> list[TokenRange]:
        chosen = self._settings.data_centres
        owners = self._cluster.metadata.token_map.token_to_host_owner
        ring = [
            (token.value, host.host_id) for token, host in owners.items() if not chosen or host.datacenter in chosen
        ]
        return primary_ranges(ring, {self.host.host_id}) if self.host is not None else []

    def tables(self) -> list[CassandraTable]:
        """All tables of the cluster but Cassandra's own, as they are now."""
        return [table for table in schema_query.read(self._connection.session) if not table.view]

    def partitions_estimate(self, table: TableId) -> int | None:
        """How many partitions the agent's share may have, by the estimate that the node makes every few minutes."""
        query = "SELECT partitions_count FROM system.size_estimates WHERE keyspace_name = %s AND table_name = %s"
        if self.host is None:
            return None
        try:
            rows = list(self._connection.session.execute(query, tuple(table), host=self.host))
        except driver_errors():
            # It is a figure for people; the snapshot does without.
            return None
        primary = width(self._primary())
        if not rows or not primary:
            return None
        counted: int = sum(row.partitions_count for row in rows)
        return round(counted * width(self.ranges()) / primary)

    def reading(self, table: CassandraTable) -> Reading:
        """All that is needed to read a table as it is now. Raises what the driver raises."""
        from cassandra import InvalidRequest

        name = table.schema.table
        visible = set(self.pages.column_names(f"SELECT * FROM {table_name(name)} LIMIT 1"))  # noqa: S608 - quoted
        compact = self._is_compact(name)
        times = times_of(self._release_version())
        while True:
            chosen = statement(table, times, visible=visible, compact=compact)
            try:
                self.pages.column_names(chosen.text(_NOTHING))
                break
            except InvalidRequest:
                # A server may tell less than its version promises, as in a cluster of several versions.
                if times is Times.CELLS:
                    raise
                times = Times.CELLS
        encoder = TableEncoder(table, chosen, assume_inserted=self._settings.assume_inserted)
        shape = self._shape(name)
        return Reading(self.pages, encoder, self.host, lambda: self._shape(name) != shape)

    def _release_version(self) -> str:
        versions = [host.release_version for host in self._cluster.metadata.all_hosts() if host.release_version]
        # All nodes must be able to answer, so the oldest counts.
        return min(versions, key=times_of, default="")

    def _is_compact(self, table: TableId) -> bool:
        query = "SELECT flags FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
        row = self._connection.session.execute(query, tuple(table)).one()
        return row is not None and "compound" not in (row.flags or ())

    def _shape(self, table: TableId) -> object:
        """The columns of a table as the driver has last heard of them; it listens to the cluster's schema events."""
        keyspace = self._cluster.metadata.keyspaces.get(table.keyspace)
        found = keyspace.tables.get(table.table) if keyspace is not None else None
        return found and tuple((name, column.cql_type) for name, column in found.columns.items())


def own_host(cluster: Cluster, node: str | None) -> Host | None:
    """The agent's own node among the cluster's, by its address, its name or its host id."""
    for name in [node] if node else [str(point) for point in cluster.contact_points]:
        for known in (name, *_addresses(name, cluster.port)):
            for host in cluster.metadata.all_hosts():
                if known in _names(host):
                    return host
    return None


def _addresses(name: str, port: int) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def _names(host: Host) -> set[str]:
    addresses = (host.address, host.broadcast_rpc_address, host.broadcast_address, host.listen_address, host.host_id)
    return {str(address) for address in addresses if address}
