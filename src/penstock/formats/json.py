"""A change as JSON for people and scripts: readable, exact, and ready for `json.dumps`.

Values are written as Cassandra's SELECT JSON writes them where CQL has the type, with these additions, which keep every
value: decimals are strings (a JSON number would pass through a double in most readers), integers are numbers however
long up to 4,000 digits and strings beyond, NaN and infinities are strings, and a time that no calendar shows is the
integer that the database holds. Parts that a change does not have are left out. docs/formats/change-record.md has the
table.
"""

from __future__ import annotations

import datetime
import json
import math
import uuid
from decimal import Decimal
from typing import Any

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
    Origin,
    Set,
)
from penstock.model.schema import TableSchema
from penstock.model.types import Duration, Kind, NdArray, Type, Unit

Json = Any

# How values are written, for whoever writes them and whoever reads them back.
UNITS_PER_S = {Unit.S: 1, Unit.MS: 1_000, Unit.US: 1_000_000, Unit.NS: 1_000_000_000}
_DIGITS = {Unit.S: 0, Unit.MS: 3, Unit.US: 6, Unit.NS: 9}
EPOCH = datetime.date(1970, 1, 1).toordinal()
DAY_S = 86_400
# Python refuses to print longer integers as a guard against quadratic time; Decimal prints them in good time.
_INTEGER_DIGITS_MAX = 4_000
_INTEGER_MAX = 10**_INTEGER_DIGITS_MAX
INTERVAL_PARTS = (
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
)


def to_json(change: Change, schema: TableSchema) -> dict[str, Json]:
    """The whole change; what it does not have is left out."""
    columns = schema.by_name
    out: dict[str, Json] = {"op": change.op.value}
    for name in ("time", "commit_time", "capture_time"):
        _put(out, name, getattr(change, name))
    out["key"] = {name: value_json(columns[name].type, value) for name, value in change.key.items()}
    out["cells"] = {name: _cell(columns[name].type, cell) for name, cell in change.cells.items()}
    if change.marker is not None:
        out["marker"] = _marker(change.marker)
    if change.deletion is not None:
        out["deletion"] = _deletion(change.deletion)
    if change.range is not None:
        ends = {"start": change.range.start, "end": change.range.end}
        out["range"] = {end: _bound(schema, bound) for end, bound in ends.items() if bound is not None}
    if change.before is not None:
        out["before"] = {name: value_json(columns[name].type, value) for name, value in change.before.items()}
    if change.origin != NO_ORIGIN:
        out["origin"] = _origin(change.origin)
    return out


def _put(out: dict[str, Json], name: str, value: Json) -> None:
    if value is not None:
        out[name] = value


def _cell(type_: Type, cell: Cell) -> dict[str, Json]:
    if isinstance(cell, Set):
        return _stamped({"value": value_json(type_, cell.value)}, cell.time, cell.expiry)
    if isinstance(cell, Deleted):
        out: dict[str, Json] = {"deleted": True}
        _put(out, "time", cell.time)
        _put(out, "local_s", cell.local_s)
        return out
    return _delta(type_, cell)


def _stamped(out: dict[str, Json], time: int | None, expiry: Expiry | None) -> dict[str, Json]:
    _put(out, "time", time)
    if expiry is not None:
        out["ttl_s"] = expiry.ttl_s
        out["expires_s"] = expiry.expires_s
    return out


def _delta(type_: Type, delta: Delta) -> dict[str, Json]:
    out: dict[str, Json] = {}
    if delta.replaced is not None:
        out["replaced"] = _deletion(delta.replaced)
    out["set"] = [_element(type_, element) for element in delta.elements]
    out["removed"] = []
    for removed in delta.removed:
        gone = {"path": _path(type_, removed.path)}
        _put(gone, "time", removed.time)
        _put(gone, "local_s", removed.local_s)
        out["removed"].append(gone)
    return out


def _element(type_: Type, element: Element) -> dict[str, Json]:
    out = {"path": _path(type_, element.path)}
    if type_.kind is Kind.USER:
        out["value"] = value_json(type_.elements[element.path], element.value)
    elif type_.item_type is not None:
        out["value"] = value_json(type_.item_type, element.value)
    return _stamped(out, element.time, element.expiry)


def _path(type_: Type, path: Any) -> Json:
    """A list's cell id, a user type's field name, a set's element, a map's key or a counter's shard."""
    return type_.names[path] if type_.path_type is None else value_json(type_.path_type, path)


def _marker(marker: Marker) -> dict[str, Json]:
    return _stamped({}, marker.time, marker.expiry)


def _deletion(deletion: Deletion) -> dict[str, Json]:
    out: dict[str, Json] = {"time": deletion.time}
    _put(out, "local_s", deletion.local_s)
    return out


def _bound(schema: TableSchema, bound: Bound) -> dict[str, Json]:
    pairs = zip(schema.clustering, bound.values, strict=False)
    values = {column.name: value_json(column.type, value) for column, value in pairs}
    return {"values": values, "inclusive": bound.inclusive}


def _origin(origin: Origin) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for name in ("node", "data_centre", "file", "position", "ordinal"):
        _put(out, name, getattr(origin, name))
    if origin.transaction is not None:
        out["transaction"] = origin.transaction._asdict()
    return out


def value_json(type_: Type, value: Any) -> Json:
    """One value of a column."""
    if value is None or isinstance(value, bool):
        return value
    kind = type_.kind
    if kind is Kind.DATE:
        return _date(value)
    if kind is Kind.TIME and type_.unit is not None:
        return _time(value, type_.unit)
    if kind in (Kind.TIMESTAMP, Kind.DATETIME) and type_.unit is not None:
        return _timestamp(value, type_.unit, "Z" if kind is Kind.TIMESTAMP else "")
    if kind is Kind.TIME_TZ and type_.unit is not None:
        return {"time": _time(value.time, type_.unit), "offset_s": value.offset_s}
    if kind is Kind.DURATION and type_.unit is not None:
        return _duration(value, type_.unit)
    if isinstance(value, int):
        return value if abs(value) < _INTEGER_MAX else str(Decimal(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else ("NaN" if math.isnan(value) else _infinity(value))
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal | uuid.UUID) or kind is Kind.INET:
        return str(value)
    return _composite(type_, value)


def _composite(type_: Type, value: Any) -> Json:
    kind = type_.kind
    if kind is Kind.FLAGS:
        return list(value)
    if kind is Kind.MAP:
        return _map(type_, value)
    if kind is Kind.ARRAY:
        return _array(type_, value)
    if kind is Kind.USER:
        parts = zip(type_.names, type_.elements, value, strict=True)
        return {name: value_json(element, part) for name, element, part in parts}
    if kind is Kind.TUPLE:
        return [value_json(element, part) for element, part in zip(type_.elements, value, strict=True)]
    return [value_json(type_.elements[0], item) for item in value]


def _map(type_: Type, pairs: Any) -> Json:
    """An object, whose keys are the JSON of the map's keys where they are not text; pairs if that merged two keys."""
    key_type, value_type = type_.elements
    rendered = [(value_json(key_type, key), value_json(value_type, value)) for key, value in pairs]
    out = {key if isinstance(key, str) else json.dumps(key): value for key, value in rendered}
    return out if len(out) == len(rendered) else [list(pair) for pair in rendered]


def _array(type_: Type, value: NdArray) -> Json:
    items = [value_json(type_.elements[0], item) for item in value.items]
    if value.lower_bounds == (1,) and value.lengths == (len(items),):
        return items
    return {"lengths": list(value.lengths), "lower_bounds": list(value.lower_bounds), "items": items}


def _infinity(value: float) -> str:
    return "Infinity" if value > 0 else "-Infinity"


def _date(days: int) -> Json:
    ordinal = days + EPOCH
    if 1 <= ordinal <= datetime.date.max.toordinal():
        return datetime.date.fromordinal(ordinal).isoformat()
    return days


def _clock(units: int, unit: Unit) -> str:
    """A time within a day."""
    seconds, part = divmod(units, UNITS_PER_S[unit])
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{part:0{_DIGITS[unit]}d}" if _DIGITS[unit] else text


def _time(units: int, unit: Unit) -> Json:
    return _clock(units, unit) if 0 <= units < DAY_S * UNITS_PER_S[unit] else units


def _timestamp(units: int, unit: Unit, zone: str) -> Json:
    days, rest = divmod(units, DAY_S * UNITS_PER_S[unit])
    date = _date(days)
    return f"{date} {_clock(rest, unit)}{zone}" if isinstance(date, str) else units


def _duration(value: Duration, unit: Unit) -> Json:
    """As Cassandra writes it; as its three parts where their signs differ, which Cassandra does not allow."""
    parts = (value.months, value.days, value.rest)
    if any(part < 0 for part in parts) and any(part > 0 for part in parts):
        return {"months": value.months, "days": value.days, "rest": value.rest, "unit": unit.value}
    years, months = divmod(abs(value.months), 12)
    rest = abs(value.rest) * (UNITS_PER_S[Unit.NS] // UNITS_PER_S[unit])
    pieces = [(years, "y"), (months, "mo"), (abs(value.days), "d")]
    for name, size in INTERVAL_PARTS:
        count, rest = divmod(rest, size)
        pieces.append((count, name))
    pieces.append((rest, "ns"))
    text = "".join(f"{count}{name}" for count, name in pieces if count)
    return f"{'-' if any(part < 0 for part in parts) else ''}{text or '0ns'}"
