"""A change back from its JSON: the inverse of `formats.json_rows`, with the table's schema as the key.

What stands in a line comes back equal. Anything else is refused with `InvalidValue`, which names the column.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from penstock.errors import InvalidValue
from penstock.formats.json import DAY_S, EPOCH, INTERVAL_PARTS, TEXT_KINDS, UNITS_PER_S
from penstock.model.change import (
    NO_ORIGIN,
    Bound,
    Cell,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Origin,
    Range,
    Removed,
    Set,
    Transaction,
)
from penstock.model.schema import TableSchema
from penstock.model.types import Duration, Kind, NdArray, TimeTz, Type, Unit

Json = Any

_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?", re.ASCII)
_DURATION = re.compile(
    r"(-)?(?:(\d+)y)?(?:(\d+)mo)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?(?:(\d+)us)?(?:(\d+)ns)?",
    re.ASCII,
)
# How many nanoseconds each part of a duration after its days has.
_PART_NS = (*(size for _, size in INTERVAL_PARTS), 1)
_INTEGERS = {
    Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.UINT64,
    Kind.COUNTER, Kind.VARINT,
}  # fmt: skip
# Their JSON is always text, so as a map's key they stand as they are.
_ALWAYS_TEXT = TEXT_KINDS | {Kind.DECIMAL, Kind.FIXED_DECIMAL, Kind.BYTES, Kind.UUID, Kind.TIMEUUID, Kind.INET}
_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)


def from_json(record: Mapping[str, Json], schema: TableSchema) -> Change:
    """The change that a line of JSON says."""
    reading = _Reading(schema)
    try:
        return Change(
            op=Op(record["op"]),
            key={name: reading.value(name, value) for name, value in record["key"].items()},
            cells={name: reading.cell(name, cell) for name, cell in record["cells"].items()},
            time=record.get("time"),
            commit_time=record.get("commit_time"),
            capture_time=record.get("capture_time"),
            marker=None if "marker" not in record else Marker(*_stamp(record["marker"])),
            deletion=None if "deletion" not in record else _deletion(record["deletion"]),
            range=None if "range" not in record else reading.range(record["range"]),
            before=None
            if "before" not in record
            else {name: reading.value(name, value) for name, value in record["before"].items()},
            origin=NO_ORIGIN if "origin" not in record else _origin(record["origin"]),
        )
    except _WRONG as error:
        place = {"column": reading.column} if reading.column else {}
        raise InvalidValue("not the JSON of a change of this table", table=schema.table, **place) from error


class _Reading:
    """One record. `column` is the one being read, for the error."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self.column = ""

    def _type(self, name: str) -> Type:
        self.column = name
        return self._schema.by_name[name].type

    def value(self, name: str, value: Json) -> Any:
        return value_of(self._type(name), value)

    def cell(self, name: str, cell: Mapping[str, Json]) -> Cell:
        type_ = self._type(name)
        if "deleted" in cell:
            return Deleted(cell.get("time"), cell.get("local_s"))
        if "value" in cell:
            return Set(value_of(type_, cell["value"]), *_stamp(cell))
        elements = tuple(_element(type_, element) for element in cell["set"])
        removed = tuple(
            Removed(_path(type_, gone["path"]), gone.get("time"), gone.get("local_s")) for gone in cell["removed"]
        )
        return Delta(_deletion(cell["replaced"]) if "replaced" in cell else None, elements, removed)

    def range(self, record: Mapping[str, Json]) -> Range:
        return Range(*[self._bound(record[end]) if end in record else None for end in ("start", "end")])

    def _bound(self, record: Mapping[str, Json]) -> Bound:
        values = record["values"]
        names = [column.name for column in self._schema.clustering[: len(values)]]
        return Bound(tuple(self.value(name, values[name]) for name in names), record["inclusive"])


def _stamp(record: Mapping[str, Json]) -> tuple[int | None, Expiry | None]:
    expiry = Expiry(record["ttl_s"], record["expires_s"]) if "ttl_s" in record else None
    return record.get("time"), expiry


def _deletion(record: Mapping[str, Json]) -> Deletion:
    return Deletion(record["time"], record.get("local_s"))


def _origin(record: Mapping[str, Json]) -> Origin:
    rest = dict(record)
    transaction = rest.pop("transaction", None)
    return Origin(**rest, transaction=None if transaction is None else Transaction(**transaction))


def _element(type_: Type, record: Mapping[str, Json]) -> Element:
    path = _path(type_, record["path"])
    element = type_.elements[path] if type_.kind is Kind.USER else type_.item_type
    if element is None:
        return Element(path, None, *_stamp(record))
    return Element(path, value_of(element, record["value"]), *_stamp(record))


def _path(type_: Type, path: Json) -> Any:
    return type_.names.index(path) if type_.path_type is None else value_of(type_.path_type, path)


def value_of(type_: Type, value: Json) -> Any:
    """One value of a column."""
    if value is None or isinstance(value, bool):
        return value
    kind = type_.kind
    if kind in TEXT_KINDS:
        return _text(value)
    if kind in _INTEGERS:
        # A long integer comes as text, which only Decimal reads in good time.
        return value if isinstance(value, int) else int(Decimal(_text(value)))
    if kind in (Kind.FLOAT32, Kind.FLOAT64):
        return float(value)
    if kind in (Kind.DECIMAL, Kind.FIXED_DECIMAL):
        return Decimal(_text(value))
    if kind is Kind.BYTES:
        return bytes.fromhex(_text(value).removeprefix("0x"))
    if kind in (Kind.UUID, Kind.TIMEUUID):
        return uuid.UUID(value)
    if kind is Kind.INET:
        return ipaddress.ip_address(_text(value))
    if type_.unit is not None or kind is Kind.DATE:
        return _moment(type_, value)
    return _composite(type_, value)


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError("text was expected")
    return value


def _moment(type_: Type, value: Json) -> Any:
    """Dates, times and durations; those that no calendar shows are the integers that the database holds."""
    if isinstance(value, int):
        return value
    kind, unit = type_.kind, type_.unit
    if kind is Kind.DATE:
        return _days(value)
    assert unit is not None, "every other kind here has a unit"
    if kind is Kind.TIME_TZ:
        time = value["time"]
        return TimeTz(time if isinstance(time, int) else _clock(time, unit), value["offset_s"])
    if kind is Kind.DURATION:
        return _duration(value, unit)
    if kind is Kind.TIME:
        return _clock(value, unit)
    date, clock = _text(value).removesuffix("Z").split(" ")
    return _days(date) * DAY_S * UNITS_PER_S[unit] + _clock(clock, unit)


def _days(text: str) -> int:
    return datetime.date.fromisoformat(text).toordinal() - EPOCH


def _clock(text: str, unit: Unit) -> int:
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError("a time of day was expected")
    hours, minutes, seconds = (int(part) for part in match.groups()[:3])
    return (hours * 3600 + minutes * 60 + seconds) * UNITS_PER_S[unit] + int(match.group(4) or 0)


def _duration(value: Json, unit: Unit) -> Duration:
    if isinstance(value, Mapping):
        return Duration(value["months"], value["days"], value["rest"])
    match = _DURATION.fullmatch(_text(value))
    if match is None:
        raise ValueError("a duration was expected")
    sign = -1 if match.group(1) else 1
    years, months, days, *parts = (int(part or 0) for part in match.groups()[1:])
    rest = sum(part * size for part, size in zip(parts, _PART_NS, strict=True))
    return Duration(sign * (12 * years + months), sign * days, sign * rest * UNITS_PER_S[unit] // UNITS_PER_S[Unit.NS])


def _composite(type_: Type, value: Json) -> Any:
    kind = type_.kind
    if kind is Kind.FLAGS:
        return tuple(map(_text, value))
    if kind is Kind.MAP:
        key_type, value_type = type_.elements
        pairs = value if isinstance(value, list) else [(_key(key_type, key), item) for key, item in value.items()]
        return tuple((value_of(key_type, key), value_of(value_type, item)) for key, item in pairs)
    if kind is Kind.ARRAY:
        return _array(type_, value)
    if kind is Kind.USER:
        return tuple(value_of(part, value[name]) for name, part in zip(type_.names, type_.elements, strict=True))
    if kind is Kind.TUPLE:
        return tuple(value_of(part, item) for part, item in zip(type_.elements, value, strict=True))
    return tuple(value_of(type_.elements[0], item) for item in value)


def _key(type_: Type, key: str) -> Json:
    """A map's key as JSON: what is not text stands in the key's own JSON."""
    if type_.kind in _ALWAYS_TEXT:
        return key
    try:
        return json.loads(key)
    except ValueError:
        return key


def _array(type_: Type, value: Json) -> NdArray:
    if isinstance(value, list):
        value = {"lengths": [len(value)], "lower_bounds": [1], "items": value}
    items = tuple(value_of(type_.elements[0], item) for item in value["items"])
    return NdArray(tuple(value["lengths"]), tuple(value["lower_bounds"]), items)
