"""Comparison: which values may be compared, what a literal means beside a column, and the comparison itself.

A literal takes the type of the column beside it ('2026-11-15' is a date there and a text elsewhere) and must fit it.
Numbers compare by value whatever their kinds, exactly. What has no order (uuids, addresses, booleans) can only be equal
or not. A misfit is a ValueError with a text for people; the filter adds the place.
"""

from __future__ import annotations

import datetime
import ipaddress
import math
import operator
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

from penstock.model.predicate import Constant, Operator
from penstock.model.types import Kind, Type, Unit

_COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.MORE: operator.gt,
    Operator.MORE_OR_EQUAL: operator.ge,
}
_INTEGER_BITS = {
    Kind.INT8: (8, True),
    Kind.INT16: (16, True),
    Kind.INT32: (32, True),
    Kind.INT64: (64, True),
    Kind.COUNTER: (64, True),
    Kind.UINT8: (8, False),
    Kind.UINT16: (16, False),
    Kind.UINT32: (32, False),
    Kind.UINT64: (64, False),
}
_NUMBERS = {*_INTEGER_BITS, *(Kind.VARINT, Kind.FLOAT32, Kind.FLOAT64, Kind.DECIMAL, Kind.FIXED_DECIMAL, Kind.NUMERIC)}
_TEXTS = {Kind.TEXT, Kind.ASCII, Kind.JSON, Kind.ENUM, Kind.BITS, Kind.OTHER, Kind.CIVIL_DATE, Kind.CIVIL_DATETIME}
_TIMES = {Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.DATETIME}
_PER_SECOND = {Unit.S: 1, Unit.MS: 10**3, Unit.US: 10**6, Unit.NS: 10**9}
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_CLOCK = r"(?P<hour>\d{2}):(?P<minute>\d{2})(:(?P<second>\d{2})(\.(?P<fraction>\d{1,9}))?)?"
_TIME = re.compile(_CLOCK, re.ASCII)
_MOMENT = re.compile(
    rf"(?P<date>\d{{4}}-\d{{2}}-\d{{2}})([ T]{_CLOCK})?(?P<zone>Z|[+-]\d{{2}}:?\d{{2}})?", re.ASCII | re.IGNORECASE
)


def family(type_: Type) -> str | None:
    """The name of the group of types that compare with each other; None for types that do not compare at all."""
    kind = type_.kind
    if kind in _NUMBERS:
        return "number"
    if kind in _TEXTS:
        return "text"
    if kind in (Kind.UUID, Kind.TIMEUUID):
        return "uuid"
    if kind in _TIMES:
        return f"{kind.value} in {type_.unit.value}" if type_.unit is not None else kind.value
    return kind.value if kind in (Kind.BOOLEAN, Kind.BYTES, Kind.INET) else None


def has_order(name: str) -> bool:
    """Whether values of the family can be less or more."""
    return name not in ("uuid", "boolean", "inet")


def natural_family(value: object) -> str:
    """The family of a value that has no column: a literal beside a function, or what a function returned."""
    match value:
        case bool():
            return "boolean"
        case int() | float() | Decimal():
            return "number"
        case str():
            return "text"
        case bytes():
            return "bytes"
        case UUID():
            return "uuid"
        case ipaddress.IPv4Address() | ipaddress.IPv6Address():
            return "inet"
        case _:
            return type(value).__name__


def compare(left: Any, chosen: Operator, right: Any) -> bool:
    """Compare two values that are not null. TypeError when they are of different families."""
    family_left, family_right = natural_family(left), natural_family(right)
    if family_left != family_right or (chosen.is_order and not has_order(family_left)):
        raise TypeError(f"{family_left} and {family_right} do not compare by {chosen.value}")
    if _is_nan(left) or _is_nan(right):
        # Arrow's rule for floats. Python has it too, but raises where a decimal takes part.
        return chosen is Operator.NOT_EQUAL
    return bool(_COMPARE[chosen](left, right))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | Decimal) and math.isnan(value)


def comparable(value: Any, type_: Type) -> Any:
    """A column's value in the form that `compare` takes."""
    if type_.kind is Kind.NUMERIC and isinstance(value, str):
        number = Decimal(value)
        return number if number.is_finite() else float(number)
    return value


def fitted(value: Constant, type_: Type) -> Any:
    """The literal as a value of the column's type. ValueError says why it is none."""
    kind = type_.kind
    if kind in _NUMBERS:
        return _number(value, type_)
    if kind is Kind.BOOLEAN:
        return _instance(value, bool, "true or false")
    if kind is Kind.BYTES:
        return _instance(value, bytes, "a blob such as 0xcafe")
    if kind in (Kind.UUID, Kind.TIMEUUID):
        return _instance(value, UUID, "a uuid without quotes")
    text: str = _instance(value, str, "a 'string'")
    if kind in _TEXTS:
        return _text(text, type_)
    if kind is Kind.INET:
        try:
            return ipaddress.ip_address(text)
        except ValueError:
            raise ValueError("an IP address such as '192.0.2.1' is needed") from None
    if kind is Kind.DATE:
        return _date(text) - _EPOCH
    if kind is Kind.TIME:
        return _time_of_day(text, type_)
    return _moment(text, type_)


def _instance(value: Constant, kind: type, wanted: str) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{wanted} is needed")
    return value


def _number(value: Constant, type_: Type) -> int | float | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError("a number is needed")
    if type_.kind in (Kind.DECIMAL, Kind.FIXED_DECIMAL, Kind.NUMERIC):
        return value
    if type_.kind in (Kind.FLOAT32, Kind.FLOAT64):
        # As the database itself would store it, so that 0.1 equals a stored 0.1.
        return _float(value, type_.kind)
    if not isinstance(value, int):
        raise ValueError("a whole number is needed")
    if type_.kind in _INTEGER_BITS:
        bits, signed = _INTEGER_BITS[type_.kind]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        if not low <= value <= high:
            raise ValueError(f"the number must lie in {low} … {high}")
    return value


def _float(value: int | Decimal, kind: Kind) -> float:
    try:
        number = float(value)
        if kind is Kind.FLOAT32:
            (number,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise ValueError("the number is too large for the column")
    return number


def _text(text: str, type_: Type) -> str:
    if type_.kind is Kind.ENUM and type_.names and text not in type_.names:
        raise ValueError("the text is none of the column's labels")
    if type_.kind is Kind.ASCII and not text.isascii():
        raise ValueError("only ASCII characters fit")
    return text


def _date(text: str) -> int:
    try:
        if len(text) == 10:
            return datetime.date.fromisoformat(text).toordinal()
    except ValueError:
        pass
    raise ValueError("a date such as '2026-11-15' is needed")


def _time_of_day(text: str, type_: Type) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("a time such as '18:30:00' is needed")
    return _clock(match, type_.unit)


def _moment(text: str, type_: Type) -> int:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("a time such as '2026-11-15 18:30:00' is needed")
    zone = match["zone"]
    if zone and type_.kind is Kind.DATETIME:
        raise ValueError("the column has no time zone, so the literal cannot have one")
    assert type_.unit is not None
    per_second = _PER_SECOND[type_.unit]
    days = _date(match["date"]) - _EPOCH
    clock = _clock(match, type_.unit) if match["hour"] else 0
    offset_s = 0
    if zone and zone not in "Zz":
        digits = zone[1:].replace(":", "")
        offset_s = (int(digits[:2]) * 3600 + int(digits[2:]) * 60) * (-1 if zone[0] == "-" else 1)
    return (days * 86_400 - offset_s) * per_second + clock


def _clock(match: re.Match[str], unit: Unit | None) -> int:
    assert unit is not None
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("the time of day does not exist")
    nanoseconds = int((match["fraction"] or "").ljust(9, "0"))
    step = 10**9 // _PER_SECOND[unit]
    if nanoseconds % step:
        raise ValueError(f"the column counts in {unit.value} and the literal is finer")
    return (hour * 3600 + minute * 60 + second) * _PER_SECOND[unit] + nanoseconds // step
