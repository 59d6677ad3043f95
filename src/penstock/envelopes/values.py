"""Values of table columns as fields of an envelope: which Connect type each logical type becomes.

The table is in docs/formats/debezium-envelope.md. Types of Cassandra follow Debezium's connector, types of the other
databases what Debezium does for these. Everything may be null, elements of collections and keys of maps too, because
that is how Debezium declares them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.envelopes import _tree, connect
from penstock.envelopes.connect import Schema, named, plain
from penstock.envelopes.layout import Node
from penstock.formats.arrow_plan import Path
from penstock.formats.change_columns import ITEMS, KEYS, VALUES
from penstock.model.types import Kind, Type, Unit
from penstock.settings.kafka import Handling


@dataclass(frozen=True, slots=True)
class ValueChoice:
    """What may be chosen about values."""

    decimals: Handling = Handling.DOUBLE
    varints: Handling = Handling.LONG


_INTEGERS: dict[Kind, str] = {
    Kind.INT8: connect.INT8,
    Kind.INT16: connect.INT16,
    Kind.INT32: connect.INT32,
    Kind.INT64: connect.INT64,
    Kind.COUNTER: connect.INT64,
    Kind.UINT8: connect.INT16,
    Kind.UINT16: connect.INT32,
    Kind.UINT32: connect.INT64,
}
# The simple names of Cassandra's own types, without their ending "Type".
MARSHAL: dict[Kind, str] = {
    Kind.BOOLEAN: "Boolean",
    Kind.INT8: "Byte",
    Kind.INT16: "Short",
    Kind.INT32: "Int32",
    Kind.INT64: "Long",
    Kind.COUNTER: "CounterColumn",
    Kind.VARINT: "Integer",
    Kind.FLOAT32: "Float",
    Kind.FLOAT64: "Double",
    Kind.DECIMAL: "Decimal",
    Kind.TEXT: "UTF8",
    Kind.ASCII: "Ascii",
    Kind.BYTES: "Bytes",
    Kind.UUID: "UUID",
    Kind.TIMEUUID: "TimeUUID",
    Kind.INET: "InetAddress",
    Kind.DATE: "SimpleDate",
    Kind.TIME: "Time",
    Kind.TIMESTAMP: "Timestamp",
    Kind.DURATION: "Duration",
    Kind.LIST: "List",
    Kind.SET: "Set",
    Kind.MAP: "Map",
    Kind.TUPLE: "Tuple",
    Kind.USER: "User",
    Kind.VECTOR: "Vector",
}
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


class ValueLayout:
    """Makes nodes of types."""

    def __init__(self, choice: ValueChoice) -> None:
        self._choice = choice

    def node(self, type_: Type, path: Path) -> Node:
        """A value whose array is at this path."""
        kind = type_.kind
        if kind in _INTEGERS:
            return Node(_tree.INT, plain(_INTEGERS[kind]), path)
        if kind in _LEAVES:
            number, schema = _LEAVES[kind]
            return Node(number, schema, path)
        if kind in (Kind.TIME, Kind.TIMESTAMP, Kind.DATETIME):
            return _time(type_, path)
        if kind in (Kind.VARINT, Kind.DECIMAL, Kind.FIXED_DECIMAL, Kind.UINT64):
            return self._number(type_, path)
        if kind is Kind.DURATION:
            return self._duration(type_, path)
        if kind in (Kind.LIST, Kind.SET, Kind.VECTOR):
            return self._array(self.node(type_.elements[0], (*path, ITEMS)), path)
        if kind is Kind.FLAGS:
            return self._array(Node(_tree.STRING, plain(connect.STRING), (*path, ITEMS)), path)
        if kind is Kind.MAP:
            key = self.node(type_.elements[0], (*path, KEYS)).called("key")
            return self.map(key, self.node(type_.elements[1], (*path, VALUES)).called("value"), path)
        if kind in (Kind.TUPLE, Kind.USER, Kind.TIME_TZ, Kind.ARRAY):
            return self._struct(type_, path)
        # What is left is text: of other databases, too.
        return Node(_tree.STRING, plain(connect.STRING), path)

    def delta(self, type_: Type, path: Path) -> Node:
        """What a change wrote into a non-frozen type, as a value of that type; `path` is the cell's delta."""
        elements: Path = (*path, "elements")
        items: Path = (*elements, ITEMS)
        kind = type_.kind
        if kind is Kind.MAP:
            key = self.node(type_.elements[0], (*items, "path")).called("key")
            return self.map(key, self.node(type_.elements[1], (*items, "value")).called("value"), elements)
        if kind is Kind.COUNTER:
            count = Node(_tree.INT, plain(connect.INT64), (*items, "value", "count"))
            return Node(_tree.COUNTER_DELTA, plain(connect.INT64), elements, children=[count])
        if kind is Kind.USER:
            whole = self.node(type_, (*items, "value"))
            number = Node(_tree.INT, plain(connect.INT32), (*items, "path"))
            return Node(_tree.FIELD_DELTA, whole.schema, elements, children=[number, *whole.children])
        return self._array(self.node(type_.elements[0], (*items, "path" if kind is Kind.SET else "value")), elements)

    def _array(self, item: Node, path: Path) -> Node:
        schema = Schema(connect.ARRAY, parts=(item.schema,))
        return Node(_tree.LIST, schema, path, children=[item])

    def map(self, key: Node, value: Node, path: Path) -> Node:
        """A map; the flag that makes it an object in JSON follows from its schema."""
        return Node(_tree.MAP, Schema(connect.MAP, parts=(key.schema, value.schema)), path, children=[key, value])

    def _number(self, type_: Type, path: Path) -> Node:
        """Numbers without a bound, or with a bound that Connect's integers do not have."""
        kind = type_.kind
        decimals = self._choice.decimals
        if kind is Kind.VARINT:
            varints = self._choice.varints
            if varints is Handling.LONG:
                return Node(_tree.VARINT_LONG, plain(connect.INT64), path)
            if varints is Handling.STRING:
                return Node(_tree.VARINT_TEXT, plain(connect.STRING), path)
            schema = Schema(connect.BYTES, _DECIMAL, 1, parameters=(("scale", "0"),))
            return Node(_tree.BYTES, schema, path)
        if kind is not Kind.DECIMAL:
            # Arrow has these as numbers of its own, and prints them exactly.
            if kind is Kind.FIXED_DECIMAL and decimals is Handling.DOUBLE and type_.precision <= _ARROW_DIGITS:
                return Node(_tree.DOUBLE, plain(connect.FLOAT64), (*path, pa.float64()))
            step: Path = () if type_.precision > _ARROW_DIGITS else (pa.string(),)
            leaf = _tree.BYTES if type_.precision > _ARROW_DIGITS else _tree.STRING
            shape = plain(connect.BYTES if type_.precision > _ARROW_DIGITS else connect.STRING)
            return Node(leaf, shape, (*path, *step))
        unscaled = Node(_tree.BYTES, plain(connect.BYTES, optional=False), (*path, "unscaled"), "value")
        scale = Node(_tree.INT, plain(connect.INT32, optional=False), (*path, "scale"), "scale")
        if decimals is Handling.PRECISE:
            fields = [("scale", scale.schema), ("value", unscaled.schema)]
            shape = connect.struct(_VARIABLE_SCALE, fields, 1, optional=True)
            return Node(_tree.STRUCT, shape, path, children=[scale, unscaled])
        if decimals is Handling.STRING:
            return Node(_tree.DECIMAL_TEXT, plain(connect.STRING), path, children=[unscaled, scale])
        return Node(_tree.DECIMAL_DOUBLE, plain(connect.FLOAT64), path, children=[unscaled, scale])

    def _duration(self, type_: Type, path: Path) -> Node:
        whole = plain(connect.INT64, optional=False)
        parts = [Node(_tree.INT, whole, (*path, part)) for part in ("months", "days", "rest")]
        parts[2].factor = _NS_PER[type_.unit or Unit.NS]
        schema = named(connect.INT64, "io.debezium.time.NanoDuration")
        return Node(_tree.DURATION, schema, path, children=parts)

    def _struct(self, type_: Type, path: Path) -> Node:
        kind = type_.kind
        if kind is Kind.TUPLE:
            name = (
                "".join(MARSHAL.get(element.kind, element.kind.value.title()) for element in type_.elements) + "Tuple"
            )
            children = [
                self.node(element, (*path, f"f{number}")).called(f"field{number + 1}")
                for number, element in enumerate(type_.elements)
            ]
        elif kind is Kind.USER:
            name = type_.name
            pairs = zip(type_.names, type_.elements, strict=True)
            children = [self.node(element, (*path, part)).called(part) for part, element in pairs]
        elif kind is Kind.TIME_TZ:
            name = "penstock.TimeWithZone"
            children = [
                self.node(Type(Kind.TIME, unit=type_.unit), (*path, "time")).called("time"),
                Node(_tree.INT, plain(connect.INT32), (*path, "offset_s"), "offset_s"),
            ]
        else:
            name = "penstock.Array"
            bounds = [
                self._array(Node(_tree.INT, plain(connect.INT32), (*path, part, ITEMS)), (*path, part)).called(part)
                for part in ("lengths", "lower_bounds")
            ]
            item = self.node(type_.elements[0], (*path, "items", ITEMS))
            children = [*bounds, self._array(item, (*path, "items")).called("items")]
        schema = connect.struct(name, [(child.name, child.schema) for child in children], optional=True)
        return Node(_tree.STRUCT, schema, path, children=children)


# More digits than an Arrow decimal holds; such numbers stay the bytes that they are.
_ARROW_DIGITS = 76
_NS_PER = {Unit.S: 1_000_000_000, Unit.MS: 1_000_000, Unit.US: 1_000, Unit.NS: 1}
_LEAVES: dict[Kind, tuple[int, Schema]] = {
    Kind.BOOLEAN: (_tree.BOOL, plain(connect.BOOLEAN)),
    Kind.FLOAT32: (_tree.FLOAT, plain(connect.FLOAT32)),
    Kind.FLOAT64: (_tree.DOUBLE, plain(connect.FLOAT64)),
    Kind.TEXT: (_tree.STRING, plain(connect.STRING)),
    Kind.ASCII: (_tree.STRING, plain(connect.STRING)),
    Kind.JSON: (_tree.STRING, named(connect.STRING, "io.debezium.data.Json")),
    Kind.BYTES: (_tree.BYTES, plain(connect.BYTES)),
    Kind.UUID: (_tree.UUID, named(connect.STRING, "io.debezium.data.Uuid")),
    Kind.TIMEUUID: (_tree.UUID, named(connect.STRING, "io.debezium.data.Uuid")),
    Kind.INET: (_tree.INET, plain(connect.STRING)),
    Kind.DATE: (_tree.INT, named(connect.INT32, "io.debezium.time.Date")),
}
_INSTANTS = {Unit.MS: "Timestamp", Unit.US: "MicroTimestamp", Unit.NS: "NanoTimestamp"}


def _time(type_: Type, path: Path) -> Node:
    """Times: in the unit that the column has, and seconds as milliseconds."""
    unit = type_.unit or Unit.MS
    factor = 1
    if type_.kind is Kind.TIME:
        # Debezium gives Cassandra's times of day no name.
        if unit is Unit.NS:
            return Node(_tree.INT, plain(connect.INT64), path)
        factor = _NS_PER[unit] // _NS_PER[Unit.US]
        return Node(_tree.INT, named(connect.INT64, "io.debezium.time.MicroTime"), path, factor=factor)
    if unit is Unit.S:
        unit, factor = Unit.MS, 1000
    return Node(_tree.INT, named(connect.INT64, f"io.debezium.time.{_INSTANTS[unit]}"), path, factor=factor)
