"""The mutations that Cassandra itself writes for CREATE, ALTER, DROP and TRUNCATE: rows of its own tables.

A reader learns every table from them, in log order. All rows of a keyspace's schema share a partition, so that one
statement is one mutation over several tables.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from penstock.capture.cassandra.schema.rows import SchemaRow, rows_of
from penstock.capture.cassandra.schema.system_tables import LOCAL_ID, SCHEMA_KEYSPACE, SCHEMA_TABLES, SYSTEM
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.model.change import Bound, Change, Deletion, Delta, Element, Marker, Op, Range, Set
from penstock.model.schema import TableId
from penstock.sandbox.commit_log.mutation import Mutation

_REPLICATION = (("class", "org.apache.cassandra.locator.SimpleStrategy"), ("replication_factor", "1"))
_TRUNCATED_AT = struct.Struct(">qiq")


def create_keyspace(keyspace: str, time_us: int) -> Mutation:
    """CREATE KEYSPACE."""
    cells = {"durable_writes": Set(value=True), "replication": Set(_REPLICATION)}
    change = Change(Op.INSERT, {"keyspace_name": keyspace}, cells, time=time_us, marker=Marker())
    return [(SCHEMA_TABLES[TableId(SCHEMA_KEYSPACE, "keyspaces")], [change])]


def create_table(table: CassandraTable, time_us: int) -> Mutation:
    """CREATE TABLE with the user types that it needs; ALTER TABLE when the table is there already."""
    return _together(rows_of(table, time_us))


def drop_table(table: CassandraTable, time_us: int) -> Mutation:
    """DROP TABLE: its row goes, and the rows of all its columns."""
    keyspace, name = table.schema.table
    deletion = Deletion(time_us, time_us // 1_000_000)
    row = Change(Op.DELETE, {"keyspace_name": keyspace, "table_name": name}, time=time_us, deletion=deletion)
    where = Range(Bound((name,), inclusive=True), Bound((name,), inclusive=True))
    columns = Change(Op.DELETE_RANGE, {"keyspace_name": keyspace}, time=time_us, deletion=deletion, range=where)
    dropped = (("tables", row), ("columns", columns), ("dropped_columns", columns))
    return _together(SchemaRow(TableId(SCHEMA_KEYSPACE, part), change) for part, change in dropped)


def truncate(table: CassandraTable, time_us: int, segment: int, position: int) -> Mutation:
    """TRUNCATE: the table leaves no mutation of its own, only this note of when, and of the place in the log."""
    value = _TRUNCATED_AT.pack(segment, position, time_us // 1000)
    cells = {"truncated_at": Delta(None, (Element(table.id, value),))}
    return [(SYSTEM[LOCAL_ID], [Change(Op.UPDATE, {"key": "local"}, cells, time=time_us)])]


def _together(rows: Iterable[SchemaRow]) -> Mutation:
    found: dict[TableId, dict[tuple[object, ...], Change]] = {}
    for table, change in rows:
        # A user type that several columns have comes with each of them.
        found.setdefault(table, {})[tuple(change.key.values())] = change
    return [(SCHEMA_TABLES[table], list(changes.values())) for table, changes in found.items()]
