"""Events: the layouts of keys and values, as Debezium's connector for Cassandra has them and as its other ones do.

`change_value` is the Cassandra connector's envelope: op, source, and after with a cell for each column. `row_value` is
the standard envelope: before and after as plain rows. Both have the same source, which `CONNECTORS` has a file for.
Names and order of the fields are those of Debezium 3; docs/formats/debezium-envelope.md shows both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from types import ModuleType

from penstock.envelopes import _tree, connect, debezium_cassandra
from penstock.envelopes.connect import Schema, plain
from penstock.envelopes.contract import Asked, Batch, Contract, Tops
from penstock.envelopes.layout import Arrays, Node
from penstock.envelopes.values import ValueLayout
from penstock.formats.change_columns import ITEMS
from penstock.model.schema import Column, Role, TableSchema

CELL_NAME = "cell_value"
# What each operation is called, in the order of `Op`.
CHANGE_OPS = ("i", "u", "d", "d", "r", "t", "i")
ROW_OPS = ("c", "u", "d", "d", "d", "t", "r")
_RANGE_VALUE = connect.struct(
    "clustering_value",
    [(name, plain(connect.STRING, optional=False)) for name in ("name", "value", "type")],
    1,
    optional=False,
)
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")


# The connectors of Debezium that have a source block of their own here, by the name of the source.
CONNECTORS: dict[str, ModuleType] = {"cassandra": debezium_cassandra}
# One that Debezium has no connector for, or that has no file yet.
_ANY_CONNECTOR: ModuleType = debezium_cassandra


def debezium(asked: Asked) -> Contract:
    """Debezium's envelope: the connector for Cassandra's for changes, the standard one for rows."""
    layout = EventLayout(asked)
    value = layout.row_value() if asked.rows else layout.change_value()
    return Contract(layout.key(), value, layout.arrays)


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

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._schema = asked.schema
        self._shown = asked.shown
        self._choice = asked.choice
        self._values = ValueLayout(asked.choice.values)
        names = [column.name for column in self._shown.columns]
        self._fields = distinct(names, sanitise) if asked.choice.sanitised else {name: name for name in names}
        table = asked.schema.table
        self.connector = connector_name(asked.schema)
        self._block: ModuleType = CONNECTORS.get(self.connector, _ANY_CONNECTOR)
        self._name = f"io.debezium.connector.{self.connector}.{asked.choice.prefix}.{table.keyspace}.{table.table}"

    def arrays(self, batch: Batch, _: Arrays) -> Tops:
        """What of a batch the source block names."""
        tops: Tops = self._block.arrays(batch)
        return tops

    def key(self) -> Node:
        """A flat struct of the key columns."""
        children = [
            self._values.node(column.type, ("key", column.name)).called(self._fields[column.name])
            for column in self._schema.key
        ]
        return _struct(f"{self._name}.Key", children)

    def change_value(self) -> Node:
        """What the Cassandra connector writes: the changed columns only, each with its deletion."""
        children = [
            Node(_tree.INT, plain(connect.INT64, optional=False), ("now",), "ts_ms", divisor=1000, shared=True),
            Node(_tree.WORD, plain(connect.STRING, optional=False), ("op",), "op", words=CHANGE_OPS),
            self._source(),
            self._cells(),
        ]
        return self.struct("Envelope", children)

    def row_value(self) -> Node:
        """The standard envelope; `before` is always null when the pipeline does not know old rows."""
        times = [("ts_ms", 1, 1000), ("ts_us", 1, 1), ("ts_ns", 1000, 1)]
        children = [
            *self.images(),
            self._source(),
            self._block.transaction().called("transaction"),
            Node(_tree.WORD, plain(connect.STRING, optional=False), ("row_op",), "op", words=ROW_OPS),
            *[
                Node(_tree.INT, plain(connect.INT64), ("now",), name, factor=factor, divisor=divisor, shared=True)
                for name, factor, divisor in times
            ],
        ]
        return self.struct("Envelope", children, 2)

    def images(self) -> list[Node]:
        """What the change did: its cells, or the row before and after it."""
        if not self._asked.rows:
            return [self._cells()]
        return [self._row("before") if self._asked.before else self._no_row("before"), self._row("after")]

    def struct(self, name: str, children: list[Node], version: int | None = None) -> Node:
        """A struct of this table's, under its name."""
        return _struct(f"{self._name}.{name}", children, version)

    def _cells(self) -> Node:
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
        return self.struct("Value", cells).called("after")

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
        fields = self._block.source(self._schema, self._choice, self.connector)
        return _struct(f"io.debezium.connector.{self.connector}.Source", fields).called("source")


def connector_name(schema: TableSchema) -> str:
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
