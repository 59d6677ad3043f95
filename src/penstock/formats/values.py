"""Python values of columns ↔ Avro datums: one pair of functions per logical type.

A datum is what the kernels read and write: None, bool, int, float, bytes, str and tuples of them. Most kinds are their
own datum; for those there is no function, and whole columns pass untouched. The functions raise TypeError or ValueError
on a misfit; the caller knows the column and says so.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import lru_cache
from typing import Any

from penstock.model.types import Duration, Kind, NdArray, TimeTz, Type

Convert = Callable[[Any], Any]

# Exact for any finite decimal; memory is only used as far as there are digits.
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_INT32_MAX = (1 << 31) - 1


@lru_cache(maxsize=4096)
def to_datum(type_: Type) -> Convert | None:
    """From the Python value to the datum; None when they are the same."""
    scalar = _SCALARS.get(type_.kind)
    if scalar is not None:
        return scalar[0]
    if type_.kind is Kind.FIXED_DECIMAL:
        return lambda value: _unscaled_fixed(value, type_.precision, type_.scale)
    parts = [to_datum(element) for element in type_.elements]
    if type_.kind in (Kind.LIST, Kind.SET):
        return _each(parts[0])
    if type_.kind is Kind.VECTOR:
        return _vector(_each(parts[0]), type_.length)
    if type_.kind is Kind.MAP:
        return _pairs(parts[0], parts[1])
    if type_.kind is Kind.ARRAY:
        return _nd_array(parts[0])
    if type_.kind is Kind.USER and not parts:
        return _no_fields
    if type_.kind in (Kind.TUPLE, Kind.USER):
        return _fields(parts)
    return None


@lru_cache(maxsize=4096)
def from_datum(type_: Type) -> Convert | None:
    """From the datum to the Python value; None when they are the same."""
    scalar = _SCALARS.get(type_.kind)
    if scalar is not None:
        return scalar[1]
    if type_.kind is Kind.FIXED_DECIMAL:
        return lambda datum: _fixed(datum, type_.precision, type_.scale)
    if type_.kind is Kind.DURATION:
        return Duration._make
    if type_.kind is Kind.TIME_TZ:
        return TimeTz._make
    parts = [from_datum(element) for element in type_.elements]
    if type_.kind in (Kind.LIST, Kind.SET):
        return _each(parts[0])
    if type_.kind is Kind.VECTOR:
        return _vector(_each(parts[0]), type_.length)
    if type_.kind is Kind.MAP:
        return _pairs(parts[0], parts[1])
    if type_.kind is Kind.ARRAY:
        items = _each_or_none(parts[0])
        return lambda datum: NdArray(datum[0], datum[1], items(datum[2]))
    if type_.kind is Kind.USER and not parts:
        return lambda _: ()
    if type_.kind in (Kind.TUPLE, Kind.USER):
        return _fields(parts)
    return None


def _each(part: Convert | None) -> Convert | None:
    if part is None:
        return None
    return lambda values: tuple([part(value) for value in values])


def _each_or_none(part: Convert | None) -> Convert:
    if part is None:
        return lambda values: values
    return lambda values: tuple([None if value is None else part(value) for value in values])


def _vector(each: Convert | None, length: int) -> Convert:
    def convert(values: Any) -> Any:
        if len(values) != length:
            raise ValueError(f"a vector of {length} has {len(values)} elements")
        return values if each is None else each(values)

    return convert


def _pairs(key: Convert | None, value: Convert | None) -> Convert | None:
    if key is None and value is None:
        return None

    def convert(pairs: Any) -> Any:
        return tuple([(k if key is None else key(k), v if value is None or v is None else value(v)) for k, v in pairs])

    return convert


def _fields(parts: list[Convert | None]) -> Convert | None:
    if not any(parts):
        return None

    def convert(values: Any) -> Any:
        pairs = zip(values, parts, strict=True)
        return tuple([v if v is None or part is None else part(v) for v, part in pairs])

    return convert


def _nd_array(part: Convert | None) -> Convert:
    items = _each_or_none(part)

    def convert(value: Any) -> Any:
        if not isinstance(value, NdArray):
            raise TypeError("not an NdArray")
        return value.lengths, value.lower_bounds, items(value.items)

    return convert


def _no_fields(value: Any) -> Any:
    if value != ():
        raise ValueError("a type without fields takes no values")
    return (None,)


def _bytes(value: Any) -> bytes:
    """Two's complement, big-endian, as short as possible."""
    if not isinstance(value, int):
        raise TypeError("not an integer")
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def _integer(datum: bytes) -> int:
    if not datum:
        raise ValueError("an integer without bytes")
    return int.from_bytes(datum, "big", signed=True)


def _uint64_bytes(value: Any) -> bytes:
    if not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise ValueError("not an unsigned 64-bit integer")
    return _bytes(value)


def _uint64(datum: bytes) -> int:
    value = _integer(datum)
    if not 0 <= value < 1 << 64:
        raise ValueError("not an unsigned 64-bit integer")
    return value


def _exponent(value: Any) -> int:
    if not isinstance(value, Decimal):
        raise TypeError("not a Decimal")
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError("not a finite decimal")
    return exponent


def _unscaled(value: Decimal) -> tuple[bytes, int]:
    scale = -_exponent(value)
    if not -_INT32_MAX - 1 <= scale <= _INT32_MAX:
        raise ValueError("the scale does not fit 32 bits")
    return _bytes(int(_EXACT.scaleb(value, scale))), scale


def _decimal(datum: tuple[bytes, int]) -> Decimal:
    return _EXACT.scaleb(Decimal(_integer(datum[0])), -datum[1])


def _unscaled_fixed(value: Decimal, precision: int, scale: int) -> bytes:
    exponent = _exponent(value)
    if value and value.adjusted() + 1 + scale > max(precision, 1):
        raise ValueError("too many digits for the precision")
    unscaled = int(_EXACT.scaleb(value, -exponent)) if value else 0
    shift = exponent + scale
    if shift >= 0 or not unscaled:
        return _bytes(unscaled * 10**shift if unscaled else 0)
    if -shift > len(value.as_tuple().digits):
        raise ValueError("too many digits for the scale")
    quotient, rest = divmod(abs(unscaled), 10**-shift)
    if rest:
        raise ValueError("too many digits for the scale")
    return _bytes(-quotient if unscaled < 0 else quotient)


def _fixed(datum: bytes, precision: int, scale: int) -> Decimal:
    unscaled = _integer(datum)
    if abs(unscaled) >= 10 ** max(precision, 1):
        raise ValueError("too many digits for the precision")
    return _EXACT.scaleb(Decimal(unscaled), -scale)


def _uuid_bytes(value: Any) -> bytes:
    if not isinstance(value, uuid.UUID):
        raise TypeError("not a UUID")
    return value.bytes


def _uuid(datum: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=datum)


def _inet_bytes(value: Any) -> bytes:
    if isinstance(value, ipaddress.IPv6Address) and value.scope_id is not None:
        raise ValueError("an address with a scope")
    if not isinstance(value, ipaddress.IPv4Address | ipaddress.IPv6Address):
        raise TypeError("not an IP address")
    return value.packed


def _inet(datum: bytes) -> Any:
    return ipaddress.IPv4Address(datum) if len(datum) == 4 else ipaddress.IPv6Address(datum)


_SCALARS: dict[Kind, tuple[Convert, Convert]] = {
    Kind.VARINT: (_bytes, _integer),
    Kind.UINT64: (_uint64_bytes, _uint64),
    Kind.DECIMAL: (_unscaled, _decimal),
    Kind.UUID: (_uuid_bytes, _uuid),
    Kind.TIMEUUID: (_uuid_bytes, _uuid),
    Kind.INET: (_inet_bytes, _inet),
}
