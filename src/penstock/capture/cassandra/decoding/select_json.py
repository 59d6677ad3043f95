"""Values as Cassandra's own `SELECT JSON` writes them, to the letter.

Cassandra's spelling matters, because keys of maps that are no text stand in JSON as the text of their JSON. What it
does that one might not expect: decimals are numbers with all their digits, floats have Java's spelling, NaN and
infinities are null, an IPv6 address has no `::`, years beyond 9999 have a plus sign, a timestamp before year 1 has the
year of its era, an empty duration is an empty text, and a user type's field with capitals has quotes of its own.
"""

from __future__ import annotations

import datetime
import ipaddress
import math
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from penstock.model.types import Duration, Kind, Type

Renderer = Callable[[Any], str]

# Every escape, so that a backslash that is itself escaped begins none.
_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_EPOCH = datetime.date(1970, 1, 1).toordinal()
# The calendar repeats after 400 years.
_CYCLE_DAYS = 146_097
_CYCLE_YEARS = 400
_DAY_MS = 86_400_000
# The first day of the Gregorian calendar, 15 October 1582, and the days from 1 March -4800 in the Julian one to 1970.
_REFORM_DAYS = -141_427
_JULIAN_DAYS = 2_472_670
_FLOAT = struct.Struct(">f")
_FLOAT_MIN_NORMAL = 2.0**-126
_DOUBLE_MIN_NORMAL = 2.0**-1022
_DURATION_PARTS = (
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
)


def value_text(kind: Type, value: Any) -> str:
    """The JSON text of a value."""
    return renderer(kind)(value)


@lru_cache(maxsize=4096)
def as_of_3_11(kind: Type) -> Type:
    """A type that is rendered as Cassandra 3.11 does: its timestamps are of another calendar than those of 4.0."""
    if kind.kind is Kind.TIMESTAMP:
        return replace(kind, kind=Kind.DATETIME)
    return replace(kind, elements=tuple(map(as_of_3_11, kind.elements))) if kind.elements else kind


def text(value: str) -> str:
    """A JSON string with Cassandra's escapes."""
    out = encode_basestring(value)
    return _ESCAPE.sub(lambda match: match[0][:2] + match[0][2:].upper(), out) if "\\u00" in out else out


@lru_cache(maxsize=4096)
def renderer(kind: Type) -> Renderer:
    """A function from values of this type, or None, to JSON text."""
    some = _renderer(kind)
    return lambda value: "null" if value is None else some(value)


def _renderer(kind: Type) -> Renderer:
    simple = _SIMPLE.get(kind.kind)
    if simple is not None:
        return simple
    match kind.kind:
        case Kind.LIST | Kind.SET | Kind.VECTOR:
            item = renderer(kind.elements[0])
            return lambda value: f"[{', '.join(map(item, value))}]"
        case Kind.TUPLE:
            parts = tuple(map(renderer, kind.elements))
            return lambda value: f"[{', '.join(part(item) for part, item in zip(parts, value, strict=False))}]"
        case Kind.MAP:
            return _map(renderer(kind.elements[0]), renderer(kind.elements[1]))
        case Kind.USER:
            return _user(kind)
        case _:
            return lambda value: text(str(value))


def _map(key: Renderer, item: Renderer) -> Renderer:
    def render(pairs: Any) -> str:
        return "{" + ", ".join(f"{_key(key(name))}: {item(value)}" for name, value in pairs) + "}"

    return render


def _key(rendered: str) -> str:
    return rendered if rendered.startswith('"') else text(rendered)


def _user(kind: Type) -> Renderer:
    names = [text(name if name == name.lower() else f'"{name}"') for name in kind.names]
    fields = tuple(zip(names, map(renderer, kind.elements), strict=True))

    def render(values: Any) -> str:
        # A value that was written before the type got its last fields is shorter.
        missing = [None] * (len(fields) - len(values))
        pairs = zip(fields, [*values, *missing], strict=True)
        return "{" + ", ".join(f"{name}: {render_field(value)}" for (name, render_field), value in pairs) + "}"

    return render


def _boolean(value: Any) -> str:
    return "true" if value else "false"


def _blob(value: Any) -> str:
    return f'"0x{bytes(value).hex()}"'


def _quoted(value: Any) -> str:
    return f'"{value}"'


def _double(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    shortest = repr(value)
    if 0.001 <= abs(value) < 10_000_000 or value == 0:
        return shortest
    if abs(value) < _DOUBLE_MIN_NORMAL and len(Decimal(shortest).as_tuple().digits) == 1:
        shortest = f"{value:.1e}"
    return _scientific(shortest)


def _float(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    shortest = _shortest_float(value)
    if 0.001 <= abs(value) < 10_000_000 or value == 0:
        return shortest if "." in shortest else f"{shortest}.0"
    return _scientific(shortest)


def _shortest_float(value: float) -> str:
    """The fewest digits that give the same 32-bit number; Java never writes a single one below the normal range."""
    wanted = _FLOAT.pack(value)
    first = 6 if abs(value) >= _FLOAT_MIN_NORMAL or value == 0 else 2
    for digits in range(first, 9):
        shown = f"{value:.{digits}g}"
        if _FLOAT.pack(float(shown)) == wanted:
            break
    else:
        shown = f"{value:.9g}"
    # Between 1e6 and 1e7 the shortest form may have an exponent, which Java's has not.
    return repr(float(shown)) if "e" in shown and abs(value) >= 0.001 else shown


def _scientific(number: str) -> str:
    """Java's form with an exponent: one digit, a point, at least one more."""
    sign, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    exponent += len(digits) - 1
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{exponent}"


def _decimal(value: Decimal) -> str:
    return str(value)


def _inet(value: Any) -> str:
    if isinstance(value, ipaddress.IPv6Address):
        mapped = value.ipv4_mapped
        if mapped is not None:
            return f'"{mapped}"'
        packed = value.packed
        groups = (f"{packed[at] << 8 | packed[at + 1]:x}" for at in range(0, 16, 2))
        return f'"{":".join(groups)}"'
    return f'"{value}"'


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day, for any day."""
    cycles, rest = divmod(days + _EPOCH - 1, _CYCLE_DAYS)
    day = datetime.date.fromordinal(rest + 1)
    return day.year + cycles * _CYCLE_YEARS, day.month, day.day


def _year(year: int) -> str:
    if year > 9999:
        return f"+{year}"
    return f"{year:04d}" if year >= 0 else f"-{-year:04d}"


def _date(days: int) -> str:
    year, month, day = _civil(days)
    return f'"{_year(year)}-{month:02d}-{day:02d}"'


def _timestamp(ms: int) -> str:
    days, rest = divmod(ms, _DAY_MS)
    year, month, day = _civil(days)
    year = year if year > 0 else 1 - year
    seconds, part = divmod(rest, 1000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{part:03d}Z"
    return f'"{_year(year)}-{month:02d}-{day:02d} {clock}"'


def _julian_timestamp(ms: int) -> str:
    """As 3.11 shows it: before the reform of 1582 in the calendar of then, and no plus sign ever."""
    days, rest = divmod(ms, _DAY_MS)
    year, month, day = _civil(days) if days >= _REFORM_DAYS else _julian(days)
    seconds, part = divmod(rest, 1000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{part:03d}Z"
    return f'"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d} {clock}"'


def _julian(days: int) -> tuple[int, int, int]:
    """Year, month and day of the Julian calendar; years begin in March here, as the leap day then comes last."""
    count = days + _JULIAN_DAYS
    cycles, rest = divmod(4 * count + 3, 1461)
    of_year = rest // 4
    months = (5 * of_year + 2) // 153
    return cycles - 4800 + months // 10, months + 3 - 12 * (months // 10), of_year - (153 * months + 2) // 5 + 1


def _time(ns: int) -> str:
    seconds, part = divmod(ns, 1_000_000_000)
    return f'"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{part:09d}"'


def _duration(value: Duration) -> str:
    years, months = divmod(abs(value.months), 12)
    pieces = [(years, "y"), (months, "mo"), (abs(value.days), "d")]
    rest = abs(value.rest)
    for name, size in _DURATION_PARTS:
        count, rest = divmod(rest, size)
        pieces.append((count, name))
    sign = "-" if min(value) < 0 else ""
    return f'"{sign}{"".join(f"{count}{name}" for count, name in pieces if count)}"'


_SIMPLE: dict[Kind, Renderer] = {
    Kind.ASCII: text,
    Kind.BOOLEAN: _boolean,
    Kind.BYTES: _blob,
    Kind.COUNTER: str,
    Kind.DATE: _date,
    # CQL has no such type: it stands for the timestamps of `as_of_3_11`.
    Kind.DATETIME: _julian_timestamp,
    Kind.DECIMAL: _decimal,
    Kind.DURATION: _duration,
    Kind.FLOAT32: _float,
    Kind.FLOAT64: _double,
    Kind.INET: _inet,
    Kind.INT16: str,
    Kind.INT32: str,
    Kind.INT64: str,
    Kind.INT8: str,
    Kind.TEXT: text,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMEUUID: _quoted,
    Kind.UUID: _quoted,
    # Decimal prints integers of any length; Python's own refuses very long ones.
    Kind.VARINT: lambda value: str(value) if value.bit_length() < 10_000 else str(Decimal(value)),
}
