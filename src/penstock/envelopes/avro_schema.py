"""The Avro schema of a Connect schema, as Confluent's AvroConverter makes it.

Names and meanings that Avro has no place for stand in attributes (`connect.name`, `connect.version`, `connect.type`).
A type that may be null is a union with null first, and null is its default: so a column can come and go, and both old
and new readers cope. Where one name would stand for two different records, the later ones are called after their field.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.envelopes import connect
from penstock.envelopes.connect import Schema
from penstock.envelopes.events import CELL_NAME, distinct, sanitise

_TYPES = {
    connect.BOOLEAN: "boolean",
    connect.INT8: "int",
    connect.INT16: "int",
    connect.INT32: "int",
    connect.INT64: "long",
    connect.FLOAT32: "float",
    connect.FLOAT64: "double",
    connect.STRING: "string",
    connect.BYTES: "bytes",
}
_NARROW = (connect.INT8, connect.INT16)
_MAP_ENTRY = "MapEntry"
_NAMESPACE = "io.confluent.connect.avro"


def avro_schema(schema: Schema) -> str:
    """The text for the registry."""
    return json.dumps(_Builder().type(schema, ""), separators=(",", ":"), ensure_ascii=True)


class _Builder:
    def __init__(self) -> None:
        # The named types so far, and what each of them is.
        self._named: dict[str, Schema] = {}

    def field(self, name: str, schema: Schema, place: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "type": self.nullable(schema, f"{place}.{name}")}
        if schema.optional:
            made["default"] = None
        return made

    def nullable(self, schema: Schema, place: str) -> Any:
        made = self.type(schema, place)
        return ["null", made] if schema.optional else made

    def type(self, schema: Schema, place: str) -> Any:
        if schema.type == connect.STRUCT:
            return self._record(schema, place)
        if schema.type == connect.ARRAY:
            return {"type": "array", "items": self.nullable(schema.parts[0], place)}
        if schema.type == connect.MAP:
            return {"type": "array", "items": self._entry(schema, place)}
        plain = _TYPES[schema.type]
        attributes: dict[str, Any] = {}
        if schema.type in _NARROW:
            attributes["connect.type"] = schema.type
        attributes |= _meaning(schema)
        return {"type": plain, **attributes} if attributes else plain

    def _record(self, schema: Schema, place: str) -> Any:
        # A name without a namespace would get that of whatever stands around it.
        full = _clean(schema.name or "ConnectDefault")
        full = full if "." in full else f"{_NAMESPACE}.{full}"
        if schema.name == CELL_NAME:
            # A cell of each column is a type of its own.
            full = f"{place}.{CELL_NAME}".lstrip(".")
        elif self._named.get(full, schema) != schema:
            full = f"{place}.{full.rpartition('.')[2]}".lstrip(".")
        if full in self._named:
            return full
        self._named[full] = schema
        namespace, _, name = full.rpartition(".")
        made: dict[str, Any] = {"type": "record", "name": name, "namespace": namespace}
        names = distinct((part for part, _ in schema.fields), sanitise)
        made["fields"] = [self.field(names[part], below, full) for part, below in schema.fields]
        return made | _meaning(schema)

    def _entry(self, schema: Schema, place: str) -> Any:
        full = f"{place}.{_MAP_ENTRY}".lstrip(".")
        if full in self._named:
            return full
        self._named[full] = schema
        namespace, _, name = full.rpartition(".")
        fields = [self.field(part, below, full) for part, below in zip(("key", "value"), schema.parts, strict=True)]
        entry = {"type": "record", "name": name, "namespace": namespace, "fields": fields}
        return entry | {"connect.internal.type": _MAP_ENTRY}


def _meaning(schema: Schema) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if schema.version is not None:
        made["connect.version"] = schema.version
    if schema.parameters:
        made["connect.parameters"] = dict(schema.parameters)
    if schema.name is not None:
        made["connect.name"] = schema.name
    if schema.name == "org.apache.kafka.connect.data.Decimal":
        made |= {"logicalType": "decimal", "scale": 0, "precision": 64}
    return made


def _clean(name: str) -> str:
    return ".".join(sanitise(part) for part in name.split("."))
