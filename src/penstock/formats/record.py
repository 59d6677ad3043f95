"""The Avro schema of a table's changes: one record `Change` whose parts follow the table's columns.

The layout is described in docs/formats/change-record.md. Columns keep their names, escaped where Avro does not allow
them, and every Avro node that does not say by itself what the column holds carries the logical type in the attribute
`penstock`. Avro's own logical types are used only where every value is legal for every reader, which leaves decimals of
fixed scale: readers raise on dates after the year 9999 or times beyond a day, and such values exist.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from penstock.model.change import Op
from penstock.model.schema import Column, TableSchema
from penstock.model.types import Kind, Type

Node = Any

NAMESPACE = "penstock"
_NAME_CHARACTER = re.compile(r"[A-Za-z0-9_]")
_ESCAPE = re.compile(r"_x([0-9A-F]{4,6})_")
# The kinds that their Avro type says completely.
_PLAIN: dict[Kind, str] = {
    Kind.BOOLEAN: "boolean",
    Kind.INT32: "int",
    Kind.INT64: "long",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    Kind.TEXT: "string",
    Kind.BYTES: "bytes",
}
# The kinds that are one Avro value, and need the attribute to say what they mean.
_ATTRIBUTED: dict[Kind, str] = {
    Kind.INT8: "int",
    Kind.INT16: "int",
    Kind.UINT8: "int",
    Kind.UINT16: "int",
    Kind.UINT32: "long",
    Kind.COUNTER: "long",
    Kind.VARINT: "bytes",
    Kind.NUMERIC: "string",
    Kind.ASCII: "string",
    Kind.JSON: "string",
    Kind.INET: "bytes",
    Kind.DATE: "int",
    Kind.CIVIL_DATE: "string",
    Kind.CIVIL_DATETIME: "string",
    Kind.TIME: "long",
    Kind.TIMESTAMP: "long",
    Kind.DATETIME: "long",
    Kind.ENUM: "string",
    Kind.BITS: "string",
    Kind.OTHER: "string",
}


def avro_name(name: str) -> str:
    """A name that Avro accepts, different for every different name; `column_name` is the inverse."""
    if not name:
        return "_x_"
    out = []
    for index, character in enumerate(name):
        starts_escape = character == "_" and name[index + 1 : index + 2] == "x"
        legal = _NAME_CHARACTER.match(character) and not (index == 0 and character.isdigit())
        out.append(character if legal and not starts_escape else f"_x{ord(character):04X}_")
    return "".join(out)


def column_name(name: str) -> str:
    """The column that an Avro field name stands for."""
    if name == "_x_":
        return ""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), name)


def nullable(node: Node) -> Node:
    return ["null", node]


@lru_cache(maxsize=256)
def schema_json(schema: TableSchema) -> str:
    """The text of the Avro schema, as it stands in the file header."""
    return json.dumps(_Builder().change(schema), separators=(",", ":"), ensure_ascii=True)


class _Builder:
    """Builds one schema; a named type is defined where it is first used and named afterwards."""

    def __init__(self) -> None:
        self._named: dict[object, str] = {}

    def change(self, schema: TableSchema) -> Node:
        long_or_null = nullable("long")
        fields = [
            _field("op", {"type": "enum", "name": "Op", "symbols": [op.value for op in Op]}),
            _field("time", long_or_null),
            _field("commit_time", long_or_null),
            _field("capture_time", long_or_null),
            _field("origin", nullable(self._origin())),
            _field("marker", nullable(_record("Marker", [_field("time", long_or_null), self._expiry()]))),
            _field("deletion", nullable(self._deletion())),
            _field("range", nullable(self._range(schema))),
            _field("key", _record("Key", [self._column(c, nullable(self.type(c.type))) for c in schema.key])),
            _field("cells", _record("Cells", [self._column(c, self._cell(i, c)) for i, c in enumerate(schema.cells)])),
            _field("before", nullable(self._before(schema))),
            _field("seal", nullable(_record("Seal", [_field("epoch", "long"), _field("crc", _fixed("Crc", 4))]))),
        ]
        return {**_record("Change", fields), "namespace": NAMESPACE}

    def _once(self, key: object, name: str, node: Node) -> Node:
        """The node where `key` is met for the first time, its name later."""
        if key in self._named:
            return self._named[key]
        self._named[key] = name
        return node

    def _origin(self) -> Node:
        transaction = [_field("domain", "string"), _field("sequence", "long"), _field("id", "string")]
        fields = [
            _field("node", nullable("string")),
            _field("data_centre", nullable("string")),
            _field("file", nullable("string")),
            _field("position", nullable("long")),
            _field("transaction", nullable(_record("Transaction", transaction))),
            _field("ordinal", nullable("long")),
        ]
        return _record("Origin", fields)

    def _expiry(self) -> Node:
        record = _record("Expiry", [_field("ttl_s", "int"), _field("expires_s", "long")])
        return _field("expiry", nullable(self._once("expiry", "Expiry", record)))

    def _stamp(self) -> Node:
        if "stamp" in self._named:
            return _field("stamp", nullable("Stamp"))
        record = _record("Stamp", [_field("time", nullable("long")), self._expiry()])
        return _field("stamp", nullable(self._once("stamp", "Stamp", record)))

    def _deletion(self) -> Node:
        record = _record("Deletion", [_field("time", "long"), _field("local_s", nullable("long"))])
        return self._once("deletion", "Deletion", record)

    def _deleted(self) -> Node:
        record = _record("Deleted", [_field("time", nullable("long")), _field("local_s", nullable("long"))])
        return self._once("deleted", "Deleted", record)

    def _range(self, schema: TableSchema) -> Node:
        values = _record("BoundValues", [self._column(c, nullable(self.type(c.type))) for c in schema.clustering])
        bound = [_field("count", "int"), _field("inclusive", "boolean"), _field("values", values)]
        start = nullable(_record("Bound", bound))
        return _record("Range", [_field("start", start), _field("end", nullable("Bound"))])

    def _before(self, schema: TableSchema) -> Node:
        fields = []
        for index, column in enumerate(schema.columns):
            old = _record(f"Old_{index}", [_field("value", nullable(self.type(column.type)))])
            fields.append(self._column(column, nullable(old)))
        return _record("Before", fields)

    def _column(self, column: Column, node: Node) -> Node:
        name = avro_name(column.name)
        field = _field(name, node)
        if name != column.name:
            field["column"] = column.name
        return field

    def _cell(self, index: int, column: Column) -> Node:
        value = _field("value", nullable(self.type(column.type)))
        branches = ["null", _record(f"Set_{index}", [value, self._stamp()]), self._deleted()]
        if column.type.multi_cell:
            branches.append(self._delta(index, column.type))
        return branches

    def _delta(self, index: int, type_: Type) -> Node:
        path, value = self._path_and_value(type_)
        element = [_field("path", path)] + ([_field("value", nullable(value))] if value is not None else [])
        removed = [_field("path", self._path_and_value(type_)[0])]
        removed += [_field("time", nullable("long")), _field("local_s", nullable("long"))]
        fields = [
            _field("replaced", nullable(self._deletion())),
            _field("elements", _array(_record(f"Element_{index}", [*element, self._stamp()]))),
            _field("removed", _array(_record(f"Removed_{index}", removed))),
        ]
        return _record(f"Delta_{index}", fields)

    def _path_and_value(self, type_: Type) -> tuple[Node, Node]:
        """What names an element of a non-frozen type, and what it holds (nothing for a set)."""
        if type_.path_type is None:
            return "int", self.type(type_)
        path = self.type(type_.path_type)
        return path, None if type_.item_type is None else self.type(type_.item_type)

    def type(self, type_: Type) -> Node:
        """The Avro node of a column's type."""
        kind = type_.kind
        if kind in _PLAIN:
            return _PLAIN[kind]
        attribute = {NAMESPACE: type_.to_json()}
        if kind in _ATTRIBUTED:
            return {"type": _ATTRIBUTED[kind], **attribute}
        if kind is Kind.UINT64:
            return {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0, **attribute}
        if kind is Kind.FIXED_DECIMAL:
            precision = max(type_.precision, 1)
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": precision,
                "scale": type_.scale,
                **attribute,
            }
        if kind in (Kind.LIST, Kind.SET, Kind.VECTOR):
            return {**_array(self.type(type_.elements[0])), **attribute}
        if kind is Kind.FLAGS:
            return {**_array("string"), **attribute}
        if kind is Kind.MAP:
            return {**_array(self._named_type(type_)), **attribute}
        return self._named_type(type_)

    def _named_type(self, type_: Type) -> Node:
        if type_ in self._named:
            return self._named[type_]
        # The number comes before the parts are built, so that the outer type has the lower one.
        number = len(self._named)
        name = f"{type_.kind.value.title().replace('_', '')}_{number}"
        self._named[type_] = name
        if type_.kind in (Kind.UUID, Kind.TIMEUUID):
            return {**_fixed(name, 16), NAMESPACE: type_.to_json()}
        record = _record(name, self._parts(type_))
        return record if type_.kind is Kind.MAP else {**record, NAMESPACE: type_.to_json()}

    def _parts(self, type_: Type) -> list[Node]:
        kind = type_.kind
        if kind is Kind.DECIMAL:
            return [_field("unscaled", "bytes"), _field("scale", "int")]
        if kind is Kind.DURATION:
            return [_field("months", "int"), _field("days", "int"), _field("rest", "long")]
        if kind is Kind.TIME_TZ:
            return [_field("time", "long"), _field("offset_s", "int")]
        if kind is Kind.MAP:
            key, value = type_.elements
            return [_field("key", self.type(key)), _field("value", nullable(self.type(value)))]
        if kind is Kind.ARRAY:
            items = _array(nullable(self.type(type_.elements[0])))
            return [_field("lengths", _array("int")), _field("lower_bounds", _array("int")), _field("items", items)]
        if kind is Kind.TUPLE:
            return [_field(f"f{i}", nullable(self.type(e))) for i, e in enumerate(type_.elements)]
        if not type_.elements:
            # A record without fields takes no bytes, and no count of such records could be checked against the input.
            return [_field("empty", nullable("int"))]
        out = []
        for name, element in zip(type_.names, type_.elements, strict=True):
            field = _field(avro_name(name), nullable(self.type(element)))
            if field["name"] != name:
                field["column"] = name
            out.append(field)
        return out


def _record(name: str, fields: list[Node]) -> dict[str, Node]:
    return {"type": "record", "name": name, "fields": fields}


def _field(name: str, node: Node) -> dict[str, Node]:
    field = {"name": name, "type": node}
    if isinstance(node, list) and node[0] == "null":
        field["default"] = None
    return field


def _array(items: Node) -> dict[str, Node]:
    return {"type": "array", "items": items}


def _fixed(name: str, size: int) -> dict[str, Node]:
    return {"type": "fixed", "name": name, "size": size}
