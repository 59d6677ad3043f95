"""Connect schemas: what a key or value looks like to a consumer that speaks Kafka Connect.

A schema is a plain tree. `to_json` is the form that JsonConverter puts beside each payload; avro_schema.py and
protobuf_schema.py make the registry's schemas of the same tree, so the three can never disagree about a field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Connect's names for its types, as JsonConverter spells them.
BOOLEAN, INT8, INT16, INT32, INT64 = "boolean", "int8", "int16", "int32", "int64"
FLOAT32, FLOAT64, STRING, BYTES = "float", "double", "string", "bytes"
STRUCT, ARRAY, MAP = "struct", "array", "map"


@dataclass(frozen=True, slots=True)
class Schema:
    """One type, with the name that gives it a meaning."""

    type: str
    name: str | None = None
    version: int | None = None
    optional: bool = True
    # Of a struct.
    fields: tuple[tuple[str, Schema], ...] = ()
    # Of an array the items, of a map keys and values.
    parts: tuple[Schema, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The schema as JsonConverter writes it."""
        out: dict[str, Any] = {"type": self.type}
        if self.type == STRUCT:
            out["fields"] = [{**schema.to_json(), "field": name} for name, schema in self.fields]
        elif self.type == ARRAY:
            out["items"] = self.parts[0].to_json()
        elif self.type == MAP:
            out["keys"], out["values"] = (part.to_json() for part in self.parts)
        out["optional"] = self.optional
        if self.name is not None:
            out["name"] = self.name
        if self.version is not None:
            out["version"] = self.version
        if self.parameters:
            out["parameters"] = dict(self.parameters)
        return out


def plain(type_: str, *, optional: bool = True) -> Schema:
    """A type without a meaning beyond itself."""
    return Schema(type_, optional=optional)


def named(type_: str, name: str, version: int | None = 1, *, optional: bool = True) -> Schema:
    """A type with a meaning."""
    return Schema(type_, name, version, optional)


def struct(name: str | None, fields: list[tuple[str, Schema]], version: int | None = None, *, optional: bool) -> Schema:
    return Schema(STRUCT, name, version, optional, tuple(fields))
