"""The schema over CQL: the rows of `system_schema`, with their write times.

With its write time a row merges with what the commit log says, whichever is read first. A node answers these queries
from its own copy, so they need no other node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.capture.cassandra.node import connection
from penstock.capture.cassandra.schema.rows import SchemaRow
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.system_tables import SCHEMA_KEYSPACE
from penstock.capture.cassandra.schema.table import CassandraTable, Truncation, truncation_of
from penstock.errors import Unreachable
from penstock.model.change import Cell, Change, Marker, Op, Set
from penstock.model.schema import TableId

if TYPE_CHECKING:
    from cassandra.cluster import Session

# By schema table: its key, and the columns that a definition is built from.
_COLUMNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "types": (("keyspace_name", "type_name"), ("field_names", "field_types")),
    "tables": (("keyspace_name", "table_name"), ("id", "cdc", "flags")),
    "views": (("keyspace_name", "view_name"), ("id", "cdc")),
    "columns": (("keyspace_name", "table_name", "column_name"), ("clustering_order", "kind", "position", "type")),
    "dropped_columns": (("keyspace_name", "table_name", "column_name"), ("dropped_time", "kind", "type")),
}
# As a number, because some of Cassandra's own tables have drop times that no calendar reaches.
_AS_NUMBER = {"dropped_time": "tounixtimestamp(dropped_time)"}


def read_rows(session: Session) -> list[SchemaRow]:
    """All rows that definitions are built from, for `Schemas.load`. Unreachable when the node does not answer."""
    out: list[SchemaRow] = []
    try:
        for table in _COLUMNS:
            out.extend(_rows(session, table))
    except connection.driver_errors() as error:
        raise Unreachable(f"the node did not tell its schema: {connection.reason(error)}") from error
    return out


def read_truncations(session: Session) -> dict[UUID, Truncation]:
    """What the node notes of truncations, by table."""
    try:
        row = session.execute("SELECT truncated_at FROM system.local").one()
    except connection.driver_errors() as error:
        raise Unreachable(f"the node did not tell its truncations: {connection.reason(error)}") from error
    noted = dict(row[0] or {}) if row is not None else {}
    found = {table: truncation_of(bytes(value)) for table, value in noted.items()}
    return {table: truncation for table, truncation in found.items() if truncation is not None}


def read(session: Session) -> list[CassandraTable]:
    """The tables and views that the node has now, without Cassandra's own."""
    schemas = Schemas()
    schemas.load(read_rows(session))
    return schemas.tables()


def _rows(session: Session, table: str) -> Iterator[SchemaRow]:
    key, columns = _COLUMNS[table]
    times = [f"writetime({name})" for name in columns]
    selected = [_AS_NUMBER.get(name, name) for name in columns]
    query = f"SELECT {', '.join([*key, *selected, *times])} FROM {SCHEMA_KEYSPACE}.{table}"  # noqa: S608 - our names
    for row in session.execute(query):
        parts = tuple(row)
        values, stamps = parts[len(key) : len(key) + len(columns)], parts[len(key) + len(columns) :]
        cells: dict[str, Cell] = {
            name: Set(_value(value), time)
            for name, value, time in zip(columns, values, stamps, strict=True)
            if value is not None and time is not None
        }
        if cells:
            time = max(time for time in stamps if time is not None)
            change = Change(Op.INSERT, dict(zip(key, parts, strict=False)), cells, time=time, marker=Marker())
            yield SchemaRow(TableId(SCHEMA_KEYSPACE, table), change)


def _value(value: Any) -> Any:
    """A value of the driver as Penstock has it."""
    if isinstance(value, str | int) or not hasattr(value, "__iter__"):
        return value
    return tuple(value)
