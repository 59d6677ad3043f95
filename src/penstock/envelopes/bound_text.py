"""Ends of range tombstones as text: a clustering value as Cassandra's own types print it, which is what Debezium takes.

Cassandra prints a timestamp with a `T`, bytes without `0x`, an IPv6 address with all its groups, and floats as Java
does. A frozen collection, a tuple or a user type in a clustering column is the one exception: it stays JSON.
"""

from __future__ import annotations

import ipaddress
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats.json import DAY_S, UNITS_PER_S, value_json
from penstock.model.types import Kind, Type

# Java writes an exponent below the first and from the second on.
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
_INTEGERS = frozenset({Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64})
# The days since 1970 that have a date with four digits for the year.
_DAYS = range(-719_162, 2_932_897)


def bound_text(type_: Type, value: Any) -> str:
    """One clustering value of a bound."""
    kind = type_.kind
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return _float(value, single=kind is Kind.FLOAT32)
    if kind is Kind.INET:
        return _address(str(value))
    text = str(value_json(type_, value))
    return text.replace(" ", "T", 1) if kind is Kind.TIMESTAMP else text


def bound_texts(type_: Type, values: pa.Array) -> pa.StringArray | None:
    """Many of them at once, where the type is one for which that is easy; None where it is not."""
    kind = type_.kind
    if kind is Kind.TEXT:
        return values
    if kind in _INTEGERS:
        return values.cast(pa.string())
    if kind is Kind.DATE and _have_dates(values.cast(pa.int32()), 1):
        return values.cast(pa.string())
    if kind is Kind.TIMESTAMP and type_.unit is not None:
        numbers = values.cast(pa.int64())
        if _have_dates(numbers, DAY_S * UNITS_PER_S[type_.unit]):
            written = numbers.cast(pa.timestamp(type_.unit.value)).cast(pa.string())
            return pc.binary_join_element_wise(pc.replace_substring(written, " ", "T"), "Z", "")
    return None


def _have_dates(numbers: pa.Array, per_day: int) -> bool:
    """Whether all of them have a date that has four digits for its year."""
    found = numbers.drop_null().to_numpy(zero_copy_only=False)
    return not len(found) or (int(found.min()) // per_day in _DAYS and int(found.max()) // per_day in _DAYS)


def _float(value: float, *, single: bool) -> str:
    """The shortest digits that stand for this number, and at least one behind the point."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return np.format_float_positional(np.float32(value) if single else np.float64(value), trim="0")
    sign, digits, exponent = Decimal(str(np.float32(value)) if single else repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"


def _address(text: str) -> str:
    """Java does not shorten runs of zeros."""
    address = ipaddress.ip_address(text)
    if address.version == 4:
        return text
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
