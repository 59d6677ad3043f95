"""Values of columns as JSON for people and scripts: readable, exact, and ready for `json.dumps`.

Values are written as Cassandra's SELECT JSON writes them where CQL has the type, with these additions, which keep every
value: decimals are strings (a JSON number would pass through a double in most readers), integers are numbers however
long up to 4,000 digits and strings beyond, NaN and infinities are strings, and a time that no calendar shows is the
integer that the database holds. docs/formats/change-record.md has the table. Whole changes are rendered by json_rows.
"""

from __future__ import annotations

import datetime
import json
import math
import uuid
from decimal import Decimal
from typing import Any

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
# Kinds whose values are text in JSON as they are.
TEXT_KINDS = frozenset(
    {
        Kind.TEXT,
        Kind.ASCII,
        Kind.JSON,
        Kind.NUMERIC,
        Kind.CIVIL_DATE,
        Kind.CIVIL_DATETIME,
        Kind.ENUM,
        Kind.BITS,
        Kind.OTHER,
    }
)
INTERVAL_PARTS = (
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
)


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
