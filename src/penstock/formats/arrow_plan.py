"""Which Arrow column each place of the change record goes to, and what the columns look like.

The record's Avro shape is made for rows, the Arrow shape for people: unions become a struct with a state, a stamp's
fields stand beside the value, empty records are left out. docs/formats/change-record.md shows both.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa

from penstock.formats._kernel import Program
from penstock.formats.program import ARRAY, BIG, NULLABLE, Node, compile_tree, number_nodes, tree
from penstock.model.schema import Column, TableSchema
from penstock.model.types import INT32, Kind, Type, Unit

STRUCT, BITS, WIDE, VARIABLE, LIST = range(5)
# What stands in `targets` for a place without a column of its own, and for one that is not read at all.
NO_COLUMN, SKIPPED = -1, -2
# What can be left unread, beside columns of the table.
PARTS = frozenset(("origin", "marker", "deletion", "range", "before"))

_UTC = "UTC"
_WIDE: dict[Kind, pa.DataType] = {
    Kind.INT8: pa.int8(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.UINT8: pa.uint8(),
    Kind.UINT16: pa.uint16(),
    Kind.UINT32: pa.uint32(),
    Kind.UINT64: pa.uint64(),
    Kind.COUNTER: pa.int64(),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
    Kind.UUID: pa.binary(16),
    Kind.TIMEUUID: pa.binary(16),
    Kind.DATE: pa.date32(),
}
_BINARY = {Kind.BYTES, Kind.VARINT, Kind.INET}


# Where an array is: the name of a column, then a step for each level below it.
Path = tuple[Any, ...]


@dataclass(slots=True)
class Slot:
    """One Arrow array of the batch."""

    name: str
    layout: int
    type: pa.DataType
    nullable: bool = True
    width: int = 0
    children: list[Slot] = field(default_factory=list)
    number: int = -1
    # Stands once per row, so that its length is known before.
    per_row: bool = True

    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, nullable=self.nullable)


@dataclass(frozen=True, slots=True)
class Plan:
    """The program with the columns of its places."""

    schema: pa.Schema
    program: Program
    targets: array[int]
    probe_first: array[int]
    probes: array[int]
    # The top-level columns, and all of them in the order of their numbers.
    tops: tuple[Slot, ...]
    slots: tuple[Slot, ...]
    # The bytes that a row takes in columns of fixed width.
    row_bytes: int
    # Columns that were looked up, each with the innermost list or map that it is in.
    found: dict[Path, tuple[Slot, Slot | None]] = field(default_factory=dict)


def plan(schema: TableSchema, columns: frozenset[str] | None = None, parts: frozenset[str] | None = None) -> Plan:
    """The plan of a table, for all its columns or only some, and all of `PARTS` or only some; kept with the schema."""
    plans = schema.__dict__.setdefault("_arrow_plans", {})
    known = plans.get((columns, parts))
    if known is None:
        if len(plans) >= 64:
            plans.clear()
        known = plans[columns, parts] = _Planner(schema, columns, parts).plan()
    return cast(Plan, known)


def row_plan(schema: TableSchema) -> Plan:
    """The plan of what tells a row's values: keys, cells with the seconds at which they expire, and counters' times."""
    known = schema.__dict__.get("_arrow_row_plan")
    if known is None:
        known = schema.__dict__["_arrow_row_plan"] = _RowPlanner(schema, None, None).plan()
    return cast(Plan, known)


class _Planner:
    """Walks the tree of the record and gives each place its column."""

    def __init__(self, schema: TableSchema, columns: frozenset[str] | None, parts: frozenset[str] | None) -> None:
        self._schema = schema
        self._columns = columns
        self._chosen = PARTS if parts is None else parts
        self._targets: dict[int, Slot] = {}
        self._skipped: set[int] = set()

    def plan(self) -> Plan:
        root = tree(self._schema)
        nodes = number_nodes(root)
        tops = self._tops(root)
        slots: list[Slot] = []
        for top in tops:
            _number(top, slots, per_row=True)
        targets = array("i", [NO_COLUMN] * len(nodes))
        for number, slot in self._targets.items():
            targets[number] = slot.number
        for node in nodes:
            if node.number in self._skipped:
                self._skipped.update(child.number for child in node.children)
                targets[node.number] = SKIPPED
        probe_first = array("i", [0])
        probes = array("i")
        for node in nodes:
            if node.kind == NULLABLE and node.number not in self._skipped:
                probes.extend(self._probes(node.children[0]))
            probe_first.append(len(probes))
        probes.append(0)
        metadata = {"penstock.schema": json.dumps(self._schema.to_json())}
        return Plan(
            schema=pa.schema([top.field() for top in tops] + self._positions(), metadata=metadata),
            program=compile_tree(root),
            targets=targets,
            probe_first=probe_first,
            probes=probes,
            tops=tuple(tops),
            slots=tuple(slots),
            row_bytes=sum(_entry_bytes(slot) for slot in slots if slot.per_row),
        )

    def _positions(self) -> list[pa.Field]:
        return POSITION_FIELDS

    def _probes(self, node: Node) -> list[int]:
        """The columns that tell whether a nullable place has a value."""
        slot = self._targets.get(node.number)
        if slot is not None:
            return [slot.number]
        out: list[int] = []
        for child in node.children:
            out += self._probes(child)
        return out

    def _tops(self, root: Node) -> list[Slot]:
        op = self._leaf(root["op"], "op", pa.dictionary(pa.int8(), pa.string()), 1, nullable=False)
        tops = [op]
        tops += [self._long(root[name], name) for name in ("time", "commit_time", "capture_time")]
        for name in ("origin", "marker", "deletion", "range"):
            if name in self._chosen:
                tops.append(self._part(root[name], name))
            else:
                self._skipped.add(root[name].number)
        tops += self._group(root["key"], "key", self._schema.key, self._key_column)
        tops += self._group(root["cells"], "cells", self._schema.cells, self._cell)
        before = root["before"]
        old = self._fields(before.children[0], self._schema.columns, self._old) if "before" in self._chosen else []
        if old:
            tops.append(self._struct(before.children[0], "before", old))
        else:
            self._skipped.add(before.number)
        self._skipped.add(root["seal"].number)
        return tops

    def _part(self, node: Node, name: str) -> Slot:
        """A part of the record that not every change has."""
        inner = node.children[0]
        if name == "origin":
            return self._struct(inner, name, self._origin(inner))
        if name == "marker":
            return self._struct(inner, name, [self._long(inner["time"], "time"), *self._expiry(inner)])
        return self._deletion(node, name) if name == "deletion" else self._range(inner)

    def _group(self, node: Node, name: str, columns: tuple[Column, ...], make: object) -> list[Slot]:
        """A struct of columns, or nothing where it would be empty: not every reader knows structs without fields."""
        fields = self._fields(node, columns, make)
        if not fields:
            return []
        struct = pa.struct([slot.field() for slot in fields])
        # Every row has it, so nothing is written for the struct itself.
        return [Slot(name, STRUCT, struct, nullable=False, children=fields)]

    def _fields(self, node: Node, columns: tuple[Column, ...], make: object) -> list[Slot]:
        out = []
        assert callable(make)
        for child, column in zip(node.children, columns, strict=True):
            if self._columns is None or column.name in self._columns:
                out.append(make(child, column))
            else:
                self._skipped.add(child.number)
        return out

    def _origin(self, node: Node) -> list[Slot]:
        out = [self._string(node[name], name) for name in ("node", "data_centre", "file")]
        out.append(self._long(node["position"], "position"))
        transaction = node["transaction"].children[0]
        parts = [
            self._string(transaction["domain"], "domain", nullable=False),
            self._long(transaction["sequence"], "sequence", nullable=False),
            self._string(transaction["id"], "id", nullable=False),
        ]
        return [*out, self._struct(transaction, "transaction", parts), self._long(node["ordinal"], "ordinal")]

    def _range(self, node: Node) -> Slot:
        return self._struct(node, "range", [self._bound(node[end], end) for end in ("start", "end")])

    def _bound(self, node: Node, name: str) -> Slot:
        bound = node.children[0]
        fields = [
            self._leaf(bound["count"], "count", pa.int32(), 4, nullable=False),
            self._boolean(bound["inclusive"], "inclusive"),
            *self._group(bound["values"], "values", self._schema.clustering, self._key_column),
        ]
        return self._struct(bound, name, fields)

    def _key_column(self, node: Node, column: Column) -> Slot:
        return self._value(node.children[0], column.name, column.type)

    def _old(self, node: Node, column: Column) -> Slot:
        old = node.children[0]
        return self._struct(old, column.name, [self._value(old["value"].children[0], "value", column.type)])

    def _cell(self, node: Node, column: Column) -> Slot:
        _, set_, deleted, *delta = node.children
        state = self._leaf(node, "state", pa.int8(), 1, nullable=False)
        value = self._value(set_["value"].children[0], "value", column.type)
        stamp = self._stamp(set_)
        self._targets[deleted["time"].children[0].number] = stamp[0]
        fields = [state, value, *stamp, self._long(deleted["local_s"], "local_s")]
        if delta:
            fields.append(self._delta(delta[0], column.type))
        struct = pa.struct([slot.field() for slot in fields])
        return Slot(column.name, STRUCT, struct, nullable=False, children=fields)

    def _delta(self, node: Node, type_: Type) -> Slot:
        element = node["elements"].children[0]
        removed = node["removed"].children[0]
        path, value = type_.path_type or INT32, type_ if type_.kind is Kind.USER else type_.item_type
        fields = [self._value(element["path"], "path", path, nullable=False)]
        if value is not None:
            fields.append(self._value(element["value"].children[0], "value", value))
        fields += self._element_stamp(element, type_)
        gone = [self._value(removed["path"], "path", path, nullable=False)]
        gone += [self._long(removed[name], name) for name in ("time", "local_s")]
        parts = [
            self._deletion(node["replaced"], "replaced"),
            self._list(
                node["elements"], "elements", self._struct(element, "item", fields, nullable=False), nullable=False
            ),
            self._list(node["removed"], "removed", self._struct(removed, "item", gone, nullable=False), nullable=False),
        ]
        return self._struct(node, "delta", parts)

    def _stamp(self, node: Node) -> list[Slot]:
        stamp = node["stamp"].children[0]
        return [self._long(stamp["time"], "time"), *self._expiry(stamp)]

    def _element_stamp(self, node: Node, type_: Type) -> list[Slot]:  # noqa: ARG002
        return self._stamp(node)

    def _expiry(self, node: Node) -> list[Slot]:
        expiry = node["expiry"].children[0]
        return [self._leaf(expiry["ttl_s"], "ttl_s", pa.int32(), 4), self._long(expiry["expires_s"], "expires_s")]

    def _deletion(self, node: Node, name: str) -> Slot:
        deletion = node.children[0]
        fields = [self._long(deletion["time"], "time", nullable=False), self._long(deletion["local_s"], "local_s")]
        return self._struct(deletion, name, fields)

    def _aim(self, node: Node, slot: Slot) -> Slot:
        self._targets[node.number] = slot
        return slot

    def _leaf(self, node: Node, name: str, type_: pa.DataType, width: int, nullable: bool = True) -> Slot:
        return self._aim(node, Slot(name, WIDE, type_, nullable, width))

    def _long(self, node: Node, name: str, nullable: bool = True) -> Slot:
        return self._leaf(node.children[0] if node.kind == NULLABLE else node, name, pa.int64(), 8, nullable)

    def _string(self, node: Node, name: str, nullable: bool = True) -> Slot:
        place = node.children[0] if node.kind == NULLABLE else node
        return self._aim(place, Slot(name, VARIABLE, pa.string(), nullable))

    def _boolean(self, node: Node, name: str, nullable: bool = False) -> Slot:
        return self._aim(node, Slot(name, BITS, pa.bool_(), nullable))

    def _struct(self, node: Node, name: str, fields: list[Slot], nullable: bool = True) -> Slot:
        struct = pa.struct([slot.field() for slot in fields])
        return self._aim(node, Slot(name, STRUCT, struct, nullable, children=fields))

    def _list(self, node: Node, name: str, item: Slot, nullable: bool = True) -> Slot:
        assert node.kind == ARRAY
        return self._aim(node, Slot(name, LIST, pa.list_(item.field()), nullable, children=[item]))

    def _value(self, node: Node, name: str, type_: Type, nullable: bool = True) -> Slot:
        """The column of a table column's own value."""
        kind = type_.kind
        if kind is Kind.BOOLEAN:
            return self._boolean(node, name, nullable)
        wide = _wide_type(type_)
        if wide is not None:
            if kind in (Kind.UINT64, Kind.FIXED_DECIMAL):
                node.kind = BIG
                node.high = int(kind is Kind.UINT64)
            return self._leaf(node, name, wide, wide.bit_width // 8, nullable)
        if kind in _BINARY or kind is Kind.FIXED_DECIMAL:
            return self._aim(node, Slot(name, VARIABLE, pa.binary(), nullable))
        if kind in (Kind.LIST, Kind.SET, Kind.VECTOR):
            item = self._value(node.children[0], "item", type_.elements[0], nullable=False)
            return self._list(node, name, item, nullable)
        if kind is Kind.FLAGS:
            return self._list(node, name, self._string(node.children[0], "item", nullable=False), nullable)
        if kind is Kind.MAP:
            return self._map(node, name, type_, nullable)
        fields = self._parts(node, type_)
        if fields:
            return self._struct(node, name, fields, nullable)
        return self._aim(node, Slot(name, VARIABLE, pa.string(), nullable))

    def _map(self, node: Node, name: str, type_: Type, nullable: bool) -> Slot:
        entry = node.children[0]
        key = self._value(entry["key"], "key", type_.elements[0], nullable=False)
        value = self._value(entry["value"].children[0], "value", type_.elements[1])
        entries = self._struct(entry, "entries", [key, value], nullable=False)
        map_type = pa.map_(key.field(), value.field())
        return self._aim(node, Slot(name, LIST, map_type, nullable, children=[entries]))

    def _parts(self, node: Node, type_: Type) -> list[Slot]:
        """The fields of a type that is a struct; none of any other type."""
        kind = type_.kind
        if kind is Kind.DECIMAL:
            unscaled = self._aim(node["unscaled"], Slot("unscaled", VARIABLE, pa.binary(), nullable=False))
            return [unscaled, self._leaf(node["scale"], "scale", pa.int32(), 4, nullable=False)]
        if kind is Kind.DURATION:
            parts = [self._leaf(node[part], part, pa.int32(), 4, nullable=False) for part in ("months", "days")]
            return [*parts, self._long(node["rest"], "rest", nullable=False)]
        if kind is Kind.TIME_TZ:
            time = self._value(node["time"], "time", Type(Kind.TIME, unit=type_.unit), nullable=False)
            return [time, self._leaf(node["offset_s"], "offset_s", pa.int32(), 4, nullable=False)]
        if kind is Kind.ARRAY:
            shape = []
            for part in ("lengths", "lower_bounds"):
                item = self._leaf(node[part].children[0], "item", pa.int32(), 4, nullable=False)
                shape.append(self._list(node[part], part, item, nullable=False))
            item = self._value(node["items"].children[0].children[0], "item", type_.elements[0])
            return [*shape, self._list(node["items"], "items", item, nullable=False)]
        if kind is Kind.USER and not type_.elements:
            return [self._leaf(node["empty"].children[0], "empty", pa.int32(), 4)]
        if kind not in (Kind.TUPLE, Kind.USER):
            return []
        names = type_.names or [f"f{index}" for index in range(len(type_.elements))]
        fields = zip(node.children, names, type_.elements, strict=True)
        return [self._value(child.children[0], name, element) for child, name, element in fields]


class _RowPlanner(_Planner):
    """The same without what nobody asks of a row."""

    def _positions(self) -> list[pa.Field]:
        return []

    def _leave_out(self, node: Node, *names: str) -> None:
        self._skipped |= {node[name].number for name in names}

    def _tops(self, root: Node) -> list[Slot]:
        self._leave_out(root, "op", "time", "commit_time", "capture_time", "origin", "deletion", "range", "before")
        self._leave_out(root, "seal")
        marker = root["marker"].children[0]
        self._leave_out(marker, "time")
        tops = [self._struct(marker, "marker", self._expiry(marker))]
        tops += self._group(root["key"], "key", self._schema.key, self._key_column)
        return tops + self._group(root["cells"], "cells", self._schema.cells, self._cell)

    def _cell(self, node: Node, column: Column) -> Slot:
        _, set_, deleted, *delta = node.children
        self._leave_out(deleted, "time", "local_s")
        value = self._value(set_["value"].children[0], "value", column.type)
        fields = [self._leaf(node, "state", pa.int8(), 1, nullable=False), value, *self._stamp(set_)]
        if delta:
            fields.append(self._delta(delta[0], column.type))
        struct = pa.struct([slot.field() for slot in fields])
        return Slot(column.name, STRUCT, struct, nullable=False, children=fields)

    def _stamp(self, node: Node) -> list[Slot]:
        stamp = node["stamp"].children[0]
        self._leave_out(stamp, "time")
        return self._expiry(stamp)

    def _element_stamp(self, node: Node, type_: Type) -> list[Slot]:
        # The times of a counter's shards tell whether a total that was read without them still counts.
        return _Planner._stamp(self, node) if type_.kind is Kind.COUNTER else self._stamp(node)

    def _expiry(self, node: Node) -> list[Slot]:
        expiry = node["expiry"].children[0]
        self._leave_out(expiry, "ttl_s")
        return [self._long(expiry["expires_s"], "expires_s")]


POSITION_FIELDS = [pa.field(name, pa.int64(), nullable=False) for name in ("file", "offset", "ordinal")]


def _wide_type(type_: Type) -> pa.DataType | None:
    """The Arrow type of a kind whose values all have the same width."""
    if type_.kind in _WIDE:
        return _WIDE[type_.kind]
    if type_.kind is Kind.FIXED_DECIMAL:
        precision = max(type_.precision, 1)
        if precision <= 38:
            return pa.decimal128(precision, type_.scale)
        return pa.decimal256(precision, type_.scale) if precision <= 76 else None
    if type_.unit is None:
        return None
    unit = Unit(type_.unit).value
    if type_.kind is Kind.TIMESTAMP:
        return pa.timestamp(unit, _UTC)
    if type_.kind is Kind.DATETIME:
        return pa.timestamp(unit)
    # A time of MariaDB may be negative or longer than a day, which Arrow's times of day cannot be.
    return pa.duration(unit) if type_.kind is Kind.TIME else None


def _number(slot: Slot, slots: list[Slot], per_row: bool) -> None:
    slot.number = len(slots)
    slot.per_row = per_row
    slots.append(slot)
    for child in slot.children:
        _number(child, slots, per_row and slot.layout != LIST)


def _entry_bytes(slot: Slot) -> int:
    return {STRUCT: 0, BITS: 1, WIDE: slot.width, VARIABLE: 12, LIST: 4}[slot.layout] + 1
