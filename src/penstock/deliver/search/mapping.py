"""Mappings: which field each column becomes, and whether an index that is there fits.

Mappings are static (`dynamic: false`): the table's schema decides, not the first document. Every value that a database
can hold is accepted: what a field cannot index (a date beyond its range, a text longer than a term) stays in the
document and is only not found by that field. The table's name is kept in the mapping, so that two tables never get
into one index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.formats.search_fields import field_name
from penstock.model.schema import Column, Role, TableSchema
from penstock.model.types import Kind, Type
from penstock.settings.sinks import MapFields, TextFields

Properties = dict[str, Any]

# A term has at most 32,766 bytes, a character at most four.
_TERM_CHARACTERS = 8191
_KEYWORD = {"type": "keyword", "ignore_above": _TERM_CHARACTERS}
_TEXT = {"type": "text", "fields": {"keyword": _KEYWORD}}
_DATE = {"type": "date", "format": "strict_date_optional_time||epoch_millis", "ignore_malformed": True}
# The exact text, and a number beside it for ranges and sums.
_EXACT_NUMBER = {**_KEYWORD, "fields": {"number": {"type": "double", "ignore_malformed": True}}}

_SIMPLE: dict[Kind, Mapping[str, Any]] = {
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.INT8: {"type": "byte"},
    Kind.INT16: {"type": "short"},
    Kind.INT32: {"type": "integer"},
    Kind.INT64: {"type": "long"},
    Kind.COUNTER: {"type": "long"},
    Kind.UINT8: {"type": "short"},
    Kind.UINT16: {"type": "integer"},
    Kind.UINT32: {"type": "long"},
    Kind.UINT64: {"type": "unsigned_long"},
    # NaN and the infinities are text in JSON.
    Kind.FLOAT32: {"type": "float", "ignore_malformed": True},
    Kind.FLOAT64: {"type": "double", "ignore_malformed": True},
    Kind.VARINT: _EXACT_NUMBER,
    Kind.DECIMAL: _EXACT_NUMBER,
    Kind.FIXED_DECIMAL: _EXACT_NUMBER,
    Kind.NUMERIC: _EXACT_NUMBER,
    Kind.BYTES: {"type": "binary"},
    Kind.INET: {"type": "ip"},
    Kind.DATE: _DATE,
    Kind.TIMESTAMP: _DATE,
    Kind.DATETIME: _DATE,
    Kind.TIME_TZ: {"type": "object", "properties": {"time": _KEYWORD, "offset_s": {"type": "integer"}}},
}
_WORDS = {Kind.TEXT, Kind.ASCII, Kind.JSON}
_REPEATED = {Kind.LIST, Kind.SET, Kind.VECTOR, Kind.ARRAY}

_STRINGS = frozenset({"text", "keyword", "wildcard", "match_only_text", "search_as_you_type"})
_NUMBERS = ("byte", "short", "integer", "long")
_REALS = frozenset({"double", "scaled_float"})
_OBJECTS = frozenset({"object", "nested", "flattened", "flat_object"})
# Which types of field take the values of the one that we would make.
_TAKEN: dict[str, frozenset[str]] = {
    "boolean": _STRINGS | {"boolean"},
    "unsigned_long": _STRINGS | _REALS | {"unsigned_long"},
    "float": _STRINGS | _REALS | {"float"},
    "double": _STRINGS | {"double"},
    "binary": _STRINGS | {"binary"},
    "ip": _STRINGS | {"ip"},
    "date": _STRINGS | {"date", "date_nanos"},
    "keyword": _STRINGS,
    "text": _STRINGS,
    "object": _OBJECTS,
    "flattened": _OBJECTS,
    "flat_object": _OBJECTS,
    **{name: _STRINGS | _REALS | {"float"} | set(_NUMBERS[at:]) for at, name in enumerate(_NUMBERS)},
}


@dataclass(frozen=True, slots=True)
class IndexNote:
    """What an index has noted of its table, in the mapping's `_meta`. Indices of older versions have the name only."""

    table: str | None = None
    id: str = ""
    # Of the newest schema that altered the index.
    order: tuple[int, int, str] = (-1, -1, "")
    # The fields of the key columns, in order: a renamed one is known by its place.
    key: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: TableSchema) -> IndexNote:
        return cls(str(schema.table), schema.id, schema.order, tuple(field_name(column.name) for column in schema.key))

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> IndexNote:
        """What a mapping says; nothing where it is someone else's."""
        meta = mapping.get("_meta")
        mark = meta.get("penstock") if isinstance(meta, dict) else None
        if not isinstance(mark, dict) or not isinstance(mark.get("table"), str):
            return cls()
        altered, version, fingerprint = mark.get("order", (-1, -1, ""))
        key = tuple(map(str, mark.get("key", ())))
        return cls(mark["table"], str(mark.get("id", "")), (int(altered), int(version), str(fingerprint)), key)

    def to_json(self) -> dict[str, Any]:
        return {"table": self.table, "id": self.id, "order": list(self.order), "key": list(self.key)}

    def is_of_another_table(self, schema: TableSchema) -> bool:
        """Whether a schema is that of another table of the same name, made before or after the one that is noted."""
        return bool(self.id and schema.id and self.id != schema.id)


class MappingMaker:
    """Makes mappings in the words of one product: they differ in the name of the field for maps."""

    def __init__(self, *, opensearch: bool, text: TextFields, maps: MapFields = MapFields.FLATTENED) -> None:
        self._map: dict[str, Any] = {"type": "object", "enabled": False}
        if maps is MapFields.FLATTENED:
            flattened = {"type": "flattened", "ignore_above": _TERM_CHARACTERS}
            self._map = {"type": "flat_object"} if opensearch else flattened
        self._text = _TEXT if text is TextFields.TEXT else _KEYWORD

    def mapping(self, schema: TableSchema) -> dict[str, Any]:
        """The whole mapping of a table's index."""
        return {
            "dynamic": False,
            "_meta": {"penstock": IndexNote.of(schema).to_json()},
            "properties": self.properties(schema),
        }

    def properties(self, schema: TableSchema) -> Properties:
        return {field_name(column.name): self._column(column) for column in schema.columns}

    def _column(self, column: Column) -> Mapping[str, Any]:
        is_key = column.role in (Role.PARTITION, Role.CLUSTERING)
        return _KEYWORD if is_key and column.type.kind in _WORDS else self._field(column.type)

    def _field(self, type_: Type) -> Mapping[str, Any]:
        kind = type_.kind
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if kind in _WORDS:
            return self._text
        if kind in _REPEATED:
            # Every field takes several values.
            return self._field(type_.elements[0])
        if kind is Kind.MAP:
            return self._map
        if kind in (Kind.TUPLE, Kind.USER):
            names = type_.names if kind is Kind.USER else [f"f{at}" for at in range(len(type_.elements))]
            fields = zip(names, type_.elements, strict=True)
            return {"type": "object", "properties": {field_name(name): self._field(part) for name, part in fields}}
        return _KEYWORD


def missing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Properties:
    """The part of the wanted properties that an index does not have."""
    out: Properties = {}
    for name, field in wanted.items():
        there = found.get(name)
        if there is None:
            out[name] = field
        elif "properties" in field and _type(there) in ("object", "nested"):
            deeper = missing(field["properties"], there.get("properties", {}))
            if deeper:
                out[name] = {"type": _type(there), "properties": deeper}
    return out


def conflicts(wanted: Mapping[str, Any], found: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    """Fields of the index that do not take their column's values: path, wanted type, type that is there."""
    for name, field in wanted.items():
        there = found.get(name)
        if there is None:
            continue
        want, have = _type(field), _type(there)
        if have not in _TAKEN[want]:
            yield path + name, want, have
        elif "properties" in field and have in ("object", "nested"):
            yield from conflicts(field["properties"], there.get("properties", {}), f"{path}{name}.")


def _type(field: Mapping[str, Any]) -> str:
    # A field without a type has fields of its own.
    return str(field.get("type", "object"))
