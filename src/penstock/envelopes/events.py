"""Events: the layouts of keys and values, as Debezium's connector for Cassandra has them and as its other ones do.

`change_value` is the Cassandra connector's envelope: op, source, and after with a cell for each column. `row_value` is
the standard envelope: before and after as plain rows. Both have the same source. Names and order of the fields are
those of Debezium 3; docs/formats/debezium-envelope.md shows both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.envelopes import _tree, connect
from penstock.envelopes.connect import Schema, plain
from penstock.envelopes.layout import Node
from penstock.envelopes.values import ValueChoice, ValueLayout
from penstock.formats.change_columns import ITEMS
from penstock.model.schema import Column, Role, TableSchema

CELL_NAME = "cell_value"
# What each operation is called, in the order of `Op`.
CHANGE_OPS = ("i", "u", "d", "d", "r", "t", "i")
ROW_OPS = ("c", "u", "d", "d", "d", "t", "r")
_SNAPSHOT = ("false",) * 6 + ("true",)
_SNAPSHOT_SCHEMA = Schema(
    connect.STRING,
    "io.debezium.data.Enum",
    1,
    parameters=(("allowed", "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"),),
)
_RANGE_VALUE = connect.struct(
    "clustering_value",
    [(name, plain(connect.STRING, optional=False)) for name in ("name", "value", "type")],
    1,
    optional=False,
)
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class EventChoice:
    """What may be chosen about events."""

    prefix: str
    cluster: str = "Test Cluster"
    version: str = ""
    # Field names with the characters that Avro allows only.
    sanitised: bool = False
    values: ValueChoice = field(default_factory=ValueChoice)


def sanitise(name: str) -> str:
    """A name with letters, digits and underscores only, and no digit in front."""
    clean = _ILLEGAL.sub("_", name)
    return f"_{clean}" if not clean or clean[0].isdigit() else clean


def distinct(names: Iterable[str], clean: Callable[[str], str]) -> dict[str, str]:
    """Each name as it may be written; where two would be the same, the later ones get a number."""
    made: dict[str, str] = {}
    for name in names:
        wanted = clean(name)
        number = 1
        while wanted in made.values():
            number += 1
            wanted = f"{clean(name)}_{number}"
        made[name] = wanted
    return made


class EventLayout:
    """Makes the layouts of one table's events."""

    def __init__(self, schema: TableSchema, choice: EventChoice, shown: TableSchema | None = None) -> None:
        self._schema = schema
        # The columns that events have. Where the table has no such column, or one of another type, they are null.
        self._shown = shown or schema
        self._choice = choice
        self._values = ValueLayout(choice.values)
        names = [column.name for column in self._shown.columns]
        self._fields = distinct(names, sanitise) if choice.sanitised else {name: name for name in names}
        table = schema.table
        self._name = f"io.debezium.connector.{_connector(schema)}.{choice.prefix}.{table.keyspace}.{table.table}"

    def key(self) -> Node:
        """A flat struct of the key columns."""
        children = [
            self._values.node(column.type, ("key", column.name)).called(self._fields[column.name])
            for column in self._schema.key
        ]
        return _struct(f"{self._name}.Key", children)

    def change_value(self) -> Node:
        """What the Cassandra connector writes: the changed columns only, each with its deletion."""
        cells = []
        for column in self._shown.columns:
            if not self._has(column):
                value = self._values.node(column.type, ())
                cell = Node(_tree.CONST, _cell_schema(value.schema))
            elif column.role in (Role.PARTITION, Role.CLUSTERING):
                value = self._values.node(column.type, ("key", column.name))
                cell = Node(_tree.KEY_CELL, _cell_schema(value.schema), children=[value.called("value")])
            else:
                cell = self._cell(column.name)
                cell.factor = 2 if column.role is Role.STATIC else 1
            cells.append(cell.called(self._fields[column.name]))
        cells += [_range("_range_start"), _range("_range_end")]
        children = [
            Node(_tree.INT, plain(connect.INT64, optional=False), ("now",), "ts_ms", divisor=1000, shared=True),
            Node(_tree.WORD, plain(connect.STRING, optional=False), ("op",), "op", words=CHANGE_OPS),
            self._source(),
            _struct(f"{self._name}.Value", cells).called("after"),
        ]
        return _struct(f"{self._name}.Envelope", children)

    def row_value(self, *, before: bool) -> Node:
        """The standard envelope; `before` is always null when the pipeline does not know old rows."""
        rows = [self._row("before") if before else self._no_row("before"), self._row("after")]
        times = [("ts_ms", 1, 1000), ("ts_us", 1, 1), ("ts_ns", 1000, 1)]
        block = [("id", plain(connect.STRING, optional=False))]
        block += [(name, plain(connect.INT64, optional=False)) for name in ("total_order", "data_collection_order")]
        children = [
            *rows,
            self._source(),
            Node(_tree.CONST, connect.struct("event.block", block, 1, optional=True), name="transaction"),
            Node(_tree.WORD, plain(connect.STRING, optional=False), ("row_op",), "op", words=ROW_OPS),
            *[
                Node(_tree.INT, plain(connect.INT64), ("now",), name, factor=factor, divisor=divisor, shared=True)
                for name, factor, divisor in times
            ],
        ]
        return _struct(f"{self._name}.Envelope", children, 2)

    def _cell(self, name: str) -> Node:
        column = self._schema.by_name[name]
        path = ("cells", name)
        value = self._values.node(column.type, (*path, "value")).called("value")
        state = Node(_tree.INT, plain(connect.INT8, optional=False), (*path, "state"))
        expiry = Node(_tree.INT, plain(connect.INT64), (*path, "expires_s"))
        children = [value, state, expiry]
        if column.type.multi_cell:
            delta = self._values.delta(column.type, (*path, "delta")).called("value")
            replaced = Node(_tree.STRUCT, connect.struct(None, [], optional=True), (*path, "delta", "replaced"))
            children += [delta, replaced]
        return Node(_tree.CELL, _cell_schema(value.schema), children=children)

    def _row(self, name: str) -> Node:
        children = []
        for column in self._shown.columns:
            value = self._values.node(column.type, (name, column.name))
            value = value if self._has(column) else Node(_tree.CONST, value.schema)
            children.append(value.called(self._fields[column.name]))
        row = _struct(f"{self._name}.Value", children, optional=True).called(name)
        row.path = (name,)
        return row

    def _has(self, column: Column) -> bool:
        found = self._schema.by_name.get(column.name)
        return found is not None and found.type == column.type

    def _no_row(self, name: str) -> Node:
        return Node(_tree.CONST, self._row(name).schema, name=name)

    def _source(self) -> Node:
        table = self._schema.table
        text, number = plain(connect.STRING, optional=False), plain(connect.INT64)

        def constant(name: str, value: str | None, schema: Schema = text) -> Node:
            return Node(_tree.CONST, schema, name=name, constant=value)

        def time(name: str, factor: int, divisor: int, schema: Schema, source: str = "when") -> Node:
            return Node(_tree.INT, schema, (source,), name, factor=factor, divisor=divisor)

        children = [
            constant("version", self._choice.version),
            constant("connector", _connector(self._schema)),
            constant("name", self._choice.prefix),
            time("ts_ms", 1, 1000, plain(connect.INT64, optional=False)),
            Node(_tree.WORD, _SNAPSHOT_SCHEMA, ("op",), "snapshot", words=_SNAPSHOT),
            constant("db", "NULL"),
            constant("sequence", None, plain(connect.STRING)),
            time("ts_us", 1, 1, number),
            time("ts_ns", 1000, 1, number, "when_ns"),
            constant("cluster", self._choice.cluster),
            Node(_tree.STRING, text, ("file",), "file"),
            Node(_tree.INT, plain(connect.INT32, optional=False), ("pos",), "pos"),
            constant("keyspace", table.keyspace),
            constant("table", table.table),
        ]
        return _struct(f"io.debezium.connector.{_connector(self._schema)}.Source", children).called("source")


def _connector(schema: TableSchema) -> str:
    """The sandbox stands in for Cassandra."""
    return "cassandra" if schema.source in ("", "sandbox") else schema.source


def _struct(name: str, children: list[Node], version: int | None = None, *, optional: bool = False) -> Node:
    fields = [(child.name, child.schema) for child in children]
    return Node(_tree.STRUCT, connect.struct(name, fields, version, optional=optional), children=children)


def _cell_schema(value: Schema) -> Schema:
    fields = [
        ("value", value),
        ("deletion_ts", plain(connect.INT64)),
        ("set", plain(connect.BOOLEAN, optional=False)),
    ]
    return connect.struct(CELL_NAME, fields, 1, optional=True)


def _range(name: str) -> Node:
    """One end of a range tombstone: its kind and the clustering values as text."""
    parts = [
        Node(_tree.STRING, plain(connect.STRING, optional=False), (name, "values", ITEMS, part), part)
        for part in ("name", "value", "type")
    ]
    value = Node(_tree.STRUCT, _RANGE_VALUE, children=parts)
    values = Schema(connect.ARRAY, optional=False, parts=(_RANGE_VALUE,))
    children = [
        Node(_tree.STRING, plain(connect.STRING, optional=False), (name, "method"), "method"),
        Node(_tree.LIST, values, (name, "values"), "values", [value]),
    ]
    fields = [(child.name, child.schema) for child in children]
    return Node(_tree.STRUCT, connect.struct(name, fields, 1, optional=True), (name,), name, children)
