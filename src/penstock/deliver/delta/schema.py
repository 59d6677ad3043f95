"""Schemas of Delta tables ↔ Arrow schemas, for the types that types.py uses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.deliver.lakehouse.types import DATETIME, TIMESTAMP
from penstock.errors import UnsupportedFormat
from penstock.system import json_text

_PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": DATETIME,
}
_NAMES = {type_: name for name, type_ in _PRIMITIVES.items()}


def to_delta(schema: pa.Schema) -> str:
    """The schema as it stands in the table's log."""
    return json.dumps({"type": "struct", "fields": [_field(field) for field in schema]})


def altered(text: str, schema: pa.Schema, renamed: Mapping[str, str]) -> str:
    """A table's schema after columns were added, widened or renamed; what else its log says of columns stays."""
    known = {renamed.get(field["name"], field["name"]): field for field in json_text.parse(text)["fields"]}
    fields = []
    for field in schema:
        old, new = known.get(field.name), _field(field)
        if old is None:
            fields.append(new)
            continue
        type_ = old["type"] if _type(old["type"]) == field.type else new["type"]
        fields.append({**old, "name": field.name, "type": type_})
    return json.dumps({"type": "struct", "fields": fields})


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": type_name(field.type), "nullable": True, "metadata": {}}


def type_name(type_: pa.DataType) -> Any:
    """A type in the words of Delta's schemas."""
    if type_ in _NAMES:
        return _NAMES[type_]
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        return {"type": "array", "elementType": type_name(type_.value_type), "containsNull": True}
    if pa.types.is_map(type_):
        key, value = type_name(type_.key_type), type_name(type_.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    assert pa.types.is_struct(type_), type_
    return {"type": "struct", "fields": [_field(field) for field in type_]}


def from_delta(text: str) -> pa.Schema:
    """The Arrow schema of a table, which may be someone else's. Raises UnsupportedFormat for types unknown here."""
    return pa.schema([(field["name"], _type(field["type"])) for field in json_text.parse(text)["fields"]])


def _type(name: Any) -> pa.DataType:
    if isinstance(name, str):
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        if name.startswith("decimal("):
            precision, scale = name[8:-1].split(",")
            return pa.decimal128(int(precision), int(scale))
    elif name["type"] == "array":
        return pa.list_(_type(name["elementType"]))
    elif name["type"] == "map":
        return pa.map_(_type(name["keyType"]), _type(name["valueType"]))
    elif name["type"] == "struct":
        return pa.struct([(field["name"], _type(field["type"])) for field in name["fields"]])
    raise UnsupportedFormat("a column's type is not known here", type=name if isinstance(name, str) else name["type"])


def features(text: str) -> set[str]:
    """Table features that a schema asks for."""
    return {"timestampNtz"} if any(_has(field.type, DATETIME) for field in from_delta(text)) else set()


def _has(type_: pa.DataType, wanted: pa.DataType) -> bool:
    if type_ == wanted:
        return True
    if pa.types.is_map(type_):
        return _has(type_.key_type, wanted) or _has(type_.item_type, wanted)
    if pa.types.is_list(type_):
        return _has(type_.value_type, wanted)
    return pa.types.is_struct(type_) and any(_has(field.type, wanted) for field in type_)
