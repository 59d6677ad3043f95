"""Changes of Cassandra's schema tables, as its own DDL writes them."""

from __future__ import annotations

import uuid
from typing import Any

from penstock.capture.cassandra.schema.rows import SchemaRow
from penstock.model.change import Cell, Change, Deleted, Deletion, Marker, Op, Range, Set
from penstock.model.schema import TableId

KEYS = {
    "tables": ("table_name",),
    "views": ("view_name",),
    "columns": ("table_name", "column_name"),
    "dropped_columns": ("table_name", "column_name"),
    "types": ("type_name",),
    "indexes": ("table_name", "index_name"),
}


def place(table: str) -> TableId:
    return TableId("system_schema", table)


def row(table: str, time: int, key: tuple[str, ...], *, keyspace: str = "ks", **values: Any) -> SchemaRow:
    """An inserted row; a value of None is a deleted cell."""
    cells: dict[str, Cell] = {name: Deleted() if value is None else Set(value) for name, value in values.items()}
    names = dict(zip(("keyspace_name", *KEYS[table]), (keyspace, *key), strict=True))
    return SchemaRow(place(table), Change(Op.INSERT, names, cells, time=time, marker=Marker()))


def gone(table: str, time: int, key: tuple[str, ...], *, keyspace: str = "ks") -> SchemaRow:
    """A deleted row."""
    names = dict(zip(("keyspace_name", *KEYS[table]), (keyspace, *key), strict=True))
    return SchemaRow(place(table), Change(Op.DELETE, names, time=time, deletion=Deletion(time)))


def dropped_keyspace(time: int, keyspace: str = "ks") -> list[SchemaRow]:
    """What DROP KEYSPACE writes."""
    change = Change(Op.DELETE_PARTITION, {"keyspace_name": keyspace}, time=time, deletion=Deletion(time))
    return [SchemaRow(place(table), change) for table in KEYS]


def range_gone(table: str, time: int, where: Range, keyspace: str = "ks") -> SchemaRow:
    change = Change(Op.DELETE_RANGE, {"keyspace_name": keyspace}, time=time, deletion=Deletion(time), range=where)
    return SchemaRow(place(table), change)


def column(time: int, table: str, name: str, kind: str, position: int, type_: str, order: str = "none") -> SchemaRow:
    values: dict[str, Any] = {"kind": kind, "position": position, "type": type_, "clustering_order": order}
    return row("columns", time, (table, name), column_name_bytes=name.encode(), **values)


def table_row(time: int, name: str, table_id: uuid.UUID, *, cdc: bool = False, **more: Any) -> SchemaRow:
    return row("tables", time, (name,), id=table_id, cdc=cdc, comment="", **more)
