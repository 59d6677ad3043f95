"""Definitions of tables, built from merged rows of Cassandra's schema tables.

Rows are merged as Cassandra merges them: the greater write time wins, and deletions cover what is older. From them each
table's definition is built, and rebuilt only when one of its own rows, or a user type of its keyspace, has changed. A
definition is used when it is whole: a row of the table with its id, all key columns, all user types. Until then the
last whole one stays. Definitions of dropped tables are kept by id, because the log may still hold writes to them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from penstock.capture.cassandra.schema import cql_types
from penstock.capture.cassandra.schema.cql_types import Fields, UserTypes
from penstock.capture.cassandra.schema.rows import KINDS, SchemaRow
from penstock.capture.cassandra.schema.system_tables import SCHEMA_KEYSPACE, SCHEMA_TABLES, SYSTEM
from penstock.capture.cassandra.schema.table import CassandraTable, DroppedColumn, in_order
from penstock.errors import InvalidSchema
from penstock.formats import avro, json_change, json_rows
from penstock.merge.range_deletions import Place, row_place
from penstock.merge.row_state import TOMBSTONE, RowState
from penstock.merge.table_state import TableState
from penstock.model.change import Change, Op
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Kind, Type

# What a definition is built from; the other columns of the schema tables are options that do not concern a reader.
_USED: dict[str, frozenset[str]] = {
    "tables": frozenset({"id", "cdc", "flags"}),
    "views": frozenset({"id", "cdc"}),
    "columns": frozenset({"clustering_order", "kind", "position", "type"}),
    "dropped_columns": frozenset({"dropped_time", "kind", "type"}),
    "types": frozenset({"field_names", "field_types"}),
}
# So many dropped tables are remembered; the oldest go first.
_DROPPED_MAX = 1000
# A statement that drops a column is done within this; a drop time that is further from its write time was given.
_DROP_US_MAX = 10_000_000


class _Row(NamedTuple):
    """The living values of one row of a schema table; `key` has its clustering columns, `time` its last write time."""

    key: tuple[Any, ...]
    values: dict[str, Any]
    time: int


class TableDefinitions:
    """The tables that one set of schema rows describes; versions are not counted here."""

    def __init__(self, types_elsewhere: Callable[[str], Mapping[str, Fields]] = lambda _: {}) -> None:
        """`types_elsewhere` gives the user types of a keyspace that these rows do not have."""
        self.by_id: dict[uuid.UUID, CassandraTable] = {}
        self.by_name: dict[TableId, CassandraTable] = {}
        self._types_elsewhere = types_elsewhere
        self._states = {name: TableState(_narrowed(name)) for name in _USED}
        # Where the rows of each table's columns stand, so that no keyspace is searched for them.
        self._places: dict[str, dict[TableId, set[Place]]] = {"columns": {}, "dropped_columns": {}}
        # Tables that keep an older definition, because their rows are not whole just now.
        self._partial: set[TableId] = set()
        self._dropped: dict[uuid.UUID, None] = {}
        # Tables that were made again with the id of a dropped one: when that one was last altered.
        self.remade: dict[uuid.UUID, int] = {}

    def load(self, rows: Iterable[SchemaRow]) -> set[uuid.UUID]:
        """Take in rows. Returns the ids of tables that are new, altered or dropped by them."""
        touched: dict[str, set[str] | None] = {}
        for table, change in rows:
            self._apply(table.table, change)
            _touch(touched, table.table, change)
        altered: set[uuid.UUID] = set()
        for keyspace, names in touched.items():
            altered |= self._rebuild(keyspace, self._names(keyspace) if names is None else names)
        return altered

    def _apply(self, table: str, change: Change) -> None:
        state = self._states[table]
        state.apply(change)
        places = self._places.get(table)
        if places is not None and "column_name" in change.key:
            key = change.key
            name = TableId(key["keyspace_name"], key["table_name"])
            place = row_place(state.schema.clustering, (key["table_name"], key["column_name"]))
            places.setdefault(name, set()).add(place)

    def _names(self, keyspace: str) -> set[str]:
        """All tables that a keyspace has or had."""
        names = {name.table for name in self.by_name if name.keyspace == keyspace}
        for table in ("tables", "views"):
            partition = self._states[table].partition({"keyspace_name": keyspace})
            names |= {row.key[0] for row in partition.rows.values()} if partition is not None else set()
        return names

    def _rebuild(self, keyspace: str, names: set[str]) -> set[uuid.UUID]:
        """Build these tables anew."""
        altered: set[uuid.UUID] = set()
        types = self._user_types(keyspace)
        for name in map(TableId, [keyspace] * len(names), sorted(names)):
            view = False
            row = self._row("tables", name)
            if row is None:
                row, view = self._row("views", name), True
            if row is None:
                gone = self.by_name.pop(name, None)
                if gone is not None:
                    altered |= self._drop(gone)
                continue
            columns, dropped = self._members("columns", name), self._members("dropped_columns", name)
            built = _definition(name, row, columns, dropped, types, view=view)
            if built is not None:
                built = self._dated(built, [row, *columns, *dropped])
            if built is None:
                self._partial.add(name)
            else:
                self._partial.discard(name)
                self._note_remade(built, columns)
                altered |= self._put(built)
        return altered

    def _note_remade(self, table: CassandraTable, columns: list[_Row]) -> None:
        """Note it when a table has the id of one that was dropped: CREATE wrote all its columns after that one."""
        gone = self.by_id[table.id] if table.id in self._dropped else None
        if gone is not None and min(row.time for row in columns) > gone.schema.altered:
            self.remade[table.id] = gone.schema.altered

    def _dated(self, table: CassandraTable, rows: list[_Row]) -> CassandraTable:
        """The table with the time of its last alteration: the greatest write time of what defines it, on every node."""
        partition = self._states["types"].partition({"keyspace_name": table.schema.table.keyspace})
        if partition is not None:
            used = {name for column in table.schema.columns for name in _type_names(column.type)}
            rows = rows + [row for row in map(_living, partition.rows.values()) if row and row.key[0] in used]
        return replace(table, schema=replace(table.schema, altered=max(0, *(row.time for row in rows))))

    def _drop(self, table: CassandraTable) -> set[uuid.UUID]:
        """Remember a table that is gone by its id alone. Returns it, and what had to be forgotten for it."""
        self._partial.discard(table.schema.table)
        self._dropped[table.id] = None
        altered = {table.id}
        while len(self._dropped) > _DROPPED_MAX:
            oldest = next(iter(self._dropped))
            del self._dropped[oldest]
            self.by_id.pop(oldest, None)
            self.remade.pop(oldest, None)
            altered.add(oldest)
        return altered

    def _put(self, table: CassandraTable) -> set[uuid.UUID]:
        name = table.schema.table
        system = SYSTEM.get(table.id)
        if system is not None:
            table = _with_all_columns(table, system)
        before = self.by_name.get(name)
        if before == table:
            return set()
        altered = {table.id}
        if before is not None and before.id != table.id:
            altered |= self._drop(before)
        self._dropped.pop(table.id, None)
        self.by_name[name] = table
        self.by_id[table.id] = table
        return altered

    def _row(self, table: str, name: TableId) -> _Row | None:
        """The row of one table in `tables` or `views`."""
        state = self._states[table]
        partition = state.partition({"keyspace_name": name.keyspace})
        row = None if partition is None else partition.rows.get(row_place(state.schema.clustering, (name.table,)))
        return None if row is None else _living(row)

    def _members(self, table: str, name: TableId) -> list[_Row]:
        """The rows of one table's columns."""
        partition = self._states[table].partition({"keyspace_name": name.keyspace})
        if partition is None:
            return []
        places = self._places[table].get(name, ())
        rows = [_living(partition.rows[place]) for place in places if place in partition.rows]
        return [row for row in rows if row is not None]

    def _user_types(self, keyspace: str) -> UserTypes:
        return UserTypes({**self._types_elsewhere(keyspace), **self.user_types(keyspace)})

    def user_types(self, keyspace: str) -> dict[str, Fields]:
        """The user types of a keyspace by name."""
        partition = self._states["types"].partition({"keyspace_name": keyspace})
        rows = [] if partition is None else [row for row in map(_living, partition.rows.values()) if row is not None]
        return {row.key[0]: (row.values.get("field_names") or (), row.values.get("field_types") or ()) for row in rows}

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": {
                name: json_rows.objects(avro.encode(state.schema, state.changes()))
                for name, state in self._states.items()
            },
            "dropped": [self.by_id[table_id].to_json() for table_id in self._dropped],
            # A table that is not whole could not be built again from its rows.
            "kept": [self.by_name[name].to_json() for name in self._partial if name in self.by_name],
            "remade": [[str(table_id), altered] for table_id, altered in self.remade.items()],
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take in what `to_json` gave. Whatever a wrong structure raises goes up."""
        for name, state in self._states.items():
            for record in data["rows"][name]:
                self._apply(name, json_change.from_json(record, state.schema))
        for keyspace in {row["key"]["keyspace_name"] for rows in data["rows"].values() for row in rows}:
            self._rebuild(keyspace, self._names(keyspace))
        for record in data["kept"]:
            table = CassandraTable.from_json(record)
            self.by_name[table.schema.table] = self.by_id[table.id] = table
            self._partial.add(table.schema.table)
        for record in data["dropped"]:
            table = CassandraTable.from_json(record)
            self.by_id[table.id] = table
            self._dropped[table.id] = None
        self.remade = {uuid.UUID(text): int(altered) for text, altered in data.get("remade", ())}


def narrowed(row: SchemaRow) -> SchemaRow | None:
    """The part of a row that definitions are built from; None when there is none."""
    used = _USED.get(row.table.table) if row.table.keyspace == SCHEMA_KEYSPACE else None
    change = None if used is None else _narrow(row.change, used)
    return None if change is None else SchemaRow(row.table, change)


def _narrowed(name: str) -> TableSchema:
    """A schema table with no more columns than are used."""
    schema = SCHEMA_TABLES[TableId(SCHEMA_KEYSPACE, name)].schema
    cells = tuple(column for column in schema.cells if column.name in _USED[name])
    return TableSchema(schema.table, schema.key + cells, source=schema.source)


def _narrow(change: Change, used: frozenset[str]) -> Change | None:
    """The part of a change that matters here; None when nothing does."""
    cells = {name: cell for name, cell in change.cells.items() if name in used}
    if not cells and change.marker is None and change.deletion is None and change.range is None:
        whole = change.op in (Op.DELETE, Op.DELETE_PARTITION, Op.TRUNCATE)
        return change if whole else None
    return replace(change, cells=cells, before=None)


def _touch(touched: dict[str, set[str] | None], table: str, change: Change) -> None:
    """Note which tables of which keyspace a change of a schema table concerns."""
    keyspace = change.key.get("keyspace_name")
    if keyspace is None:
        return
    name = change.key.get("view_name" if table == "views" else "table_name")
    names = touched.setdefault(keyspace, set())
    if name is None:
        # A whole partition, a range, or a user type: any table of the keyspace may look different now.
        touched[keyspace] = None
    elif names is not None:
        names.add(name)


def _living(row: RowState) -> _Row | None:
    """The row without what was deleted; None when nothing is left."""
    living = ((name, cell.value) for name, cell in row.cells.items() if cell.kind != TOMBSTONE)
    values = {name: value for name, value in living if value is not None}
    if not values and row.marker is None:
        return None
    times = [cell.time for name, cell in row.cells.items() if name in values]
    return _Row(row.key, values, max(times, default=0 if row.marker is None else row.marker.time))


def _definition(
    name: TableId, row: _Row, columns: list[_Row], dropped: list[_Row], types: UserTypes, *, view: bool
) -> CassandraTable | None:
    """The table that these rows describe; None when they are not whole."""
    table_id = row.values.get("id")
    if table_id is None:
        return None
    try:
        found = _columns(columns, types)
        if found is None:
            return None
        gone = {one.column.name: one for one in map(_dropped_column, dropped) if one is not None}
        known = {column.name for column in found}
        lost = tuple((column, one.time_us) for column, one in sorted(gone.items()) if column not in known)
        schema = TableSchema(name, _with_drops(found, gone), source="cassandra", id=str(table_id), dropped=lost)
    except InvalidSchema:
        # A user type is not there yet, or the text is of a Cassandra that nobody has seen.
        return None
    return CassandraTable(table_id, schema, row.values.get("cdc") is True, view, gone)


def _columns(rows: list[_Row], types: UserTypes) -> tuple[Column, ...] | None:
    """The columns in table order; None while a key column is missing."""
    keys: dict[Role, dict[int, Column]] = {Role.PARTITION: {}, Role.CLUSTERING: {}}
    others = []
    for row in rows:
        role = KINDS.get(row.values.get("kind", ""))
        text = row.values.get("type")
        if role is None or text is None:
            return None
        descending = row.values.get("clustering_order") == "desc"
        column = Column(row.key[1], cql_types.parse(text, types), role, descending, text)
        if role in keys:
            keys[role][row.values.get("position", -1)] = column
        else:
            others.append(column)
    ordered = []
    for role, by_position in keys.items():
        if sorted(by_position) != list(range(len(by_position))) or (role is Role.PARTITION and not by_position):
            return None
        ordered += [by_position[position] for position in range(len(by_position))]
    if len(ordered) + len(others) != len(rows):
        # Two key columns with one position: one of them is being renamed.
        return None
    return in_order([*ordered, *others])


def _dropped_column(row: _Row) -> DroppedColumn | None:
    text, time_ms = row.values.get("type"), row.values.get("dropped_time")
    if text is None or time_ms is None:
        return None
    role = Role.STATIC if row.values.get("kind") == "static" else Role.REGULAR
    column = Column(row.key[1], cql_types.parse_dropped(text), role, source_type=text)
    time_us = time_ms * 1000
    if 0 <= row.time - time_us < _DROP_US_MAX:
        # A node that runs knows the drop to the microsecond, its table only to the millisecond. Nobody can write to the
        # column again within that. Where USING TIMESTAMP gave the time, the table's is all there is.
        time_us += 999
    return DroppedColumn(column, time_us)


def _with_drops(columns: tuple[Column, ...], gone: Mapping[str, DroppedColumn]) -> tuple[Column, ...]:
    """The columns, those that were dropped and added again with the time of the drop."""
    return tuple(
        replace(column, dropped_us=gone[column.name].time_us) if column.name in gone else column for column in columns
    )


def _type_names(kind: Type) -> Iterator[str]:
    """The user types that a type is made of."""
    if kind.kind is Kind.USER:
        yield kind.name
    for element in kind.elements:
        yield from _type_names(element)


def _with_all_columns(table: CassandraTable, system: CassandraTable) -> CassandraTable:
    """One of Cassandra's own tables as learned, with columns that other versions have."""
    known = table.schema.by_name
    more = [column for column in system.schema.cells if column.name not in known]
    return replace(table, schema=replace(table.schema, columns=in_order([*table.schema.columns, *more])))
