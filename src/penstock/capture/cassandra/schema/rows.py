"""Rows of Cassandra's schema tables, made from a table that is known otherwise.

A schema file or another program gives whole tables. As rows of `system_schema` they merge with what the log says, by
their write time, exactly as rows that Cassandra wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from penstock.capture.cassandra.schema import cql_types
from penstock.capture.cassandra.schema.system_tables import SCHEMA_KEYSPACE
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.model.change import Change, Marker, Op, Set
from penstock.model.schema import Role, TableId
from penstock.model.types import Kind, Type

# What `system_schema.columns.kind` says.
KINDS = {
    "partition_key": Role.PARTITION,
    "clustering": Role.CLUSTERING,
    "static": Role.STATIC,
    "regular": Role.REGULAR,
}


class SchemaRow(NamedTuple):
    """A change of one row of a schema table."""

    table: TableId
    change: Change


def rows_of(table: CassandraTable, time_us: int) -> Iterator[SchemaRow]:
    """A table as rows of the schema tables, written at one time."""
    keyspace, name = table.schema.table
    kind = "views" if table.view else "tables"
    key = {"keyspace_name": keyspace, "view_name" if table.view else "table_name": name}
    yield _schema_row(kind, key, {"id": table.id, "cdc": table.cdc}, time_us)
    yield from _type_rows(keyspace, (column.type for column in table.schema.columns), time_us)
    words = {role: word for word, role in KINDS.items()}
    positions = {
        column.name: i for part in (table.schema.partition, table.schema.clustering) for i, column in enumerate(part)
    }
    for column in table.schema.columns:
        key = {"keyspace_name": keyspace, "table_name": name, "column_name": column.name}
        values: dict[str, Any] = {
            "kind": words[column.role],
            "position": positions.get(column.name, -1),
            "type": column.source_type or cql_types.text_of(column.type),
            "clustering_order": "desc" if column.descending else "asc",
        }
        yield _schema_row("columns", key, values, time_us)
    for gone in table.dropped.values():
        key = {"keyspace_name": keyspace, "table_name": name, "column_name": gone.column.name}
        values = {
            "kind": words[gone.column.role],
            "type": gone.column.source_type or cql_types.dropped_text(gone.column.type),
            "dropped_time": gone.time_us // 1000,
        }
        yield _schema_row("dropped_columns", key, values, time_us)


def _type_rows(keyspace: str, kinds: Iterable[Type], time_us: int) -> Iterator[SchemaRow]:
    for kind in kinds:
        yield from _type_rows(keyspace, kind.elements, time_us)
        if kind.kind is Kind.USER:
            key = {"keyspace_name": keyspace, "type_name": kind.name}
            texts = tuple(map(cql_types.text_of, kind.elements))
            yield _schema_row("types", key, {"field_names": kind.names, "field_types": texts}, time_us)


def _schema_row(table: str, key: dict[str, Any], values: dict[str, Any], time_us: int) -> SchemaRow:
    cells = {name: Set(value) for name, value in values.items()}
    change = Change(Op.INSERT, key, cells, time=time_us, marker=Marker())
    return SchemaRow(TableId(SCHEMA_KEYSPACE, table), change)
