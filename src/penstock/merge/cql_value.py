"""The serialized form of values and their order, as Cassandra has them.

Two rules of Cassandra depend on more than a value's meaning. When two live cells have the same write time, the one
whose serialized bytes are greater wins (compared as unsigned bytes, as Cassandra 4.0 and later do); `serialized` gives
those bytes. And rows of a partition, elements of a set and keys of a map stand in the order of their type; `order_key`
gives a Python object that sorts so. Types that CQL does not have get a form that is stable and injective: no Cassandra
ever compares them, but merging must not depend on the order of arrival either.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from decimal import Decimal
from itertools import zip_longest
from typing import Any
from uuid import UUID

from penstock.errors import InvalidValue
from penstock.model.schema import Column
from penstock.model.types import Kind, Type

_FIXED = {
    Kind.INT8: struct.Struct(">b"),
    Kind.INT16: struct.Struct(">h"),
    Kind.INT32: struct.Struct(">i"),
    Kind.INT64: struct.Struct(">q"),
    Kind.UINT8: struct.Struct(">B"),
    Kind.UINT16: struct.Struct(">H"),
    Kind.UINT32: struct.Struct(">I"),
    Kind.UINT64: struct.Struct(">Q"),
    Kind.COUNTER: struct.Struct(">q"),
    Kind.FLOAT32: struct.Struct(">f"),
    Kind.FLOAT64: struct.Struct(">d"),
    Kind.TIME: struct.Struct(">q"),
    Kind.TIMESTAMP: struct.Struct(">q"),
    Kind.DATETIME: struct.Struct(">q"),
}
# Cassandra's AbstractType.valueLengthIfFixed.
_FIXED_LENGTHS = {
    Kind.BOOLEAN: 1,
    Kind.INT32: 4,
    Kind.INT64: 8,
    Kind.FLOAT32: 4,
    Kind.FLOAT64: 8,
    Kind.TIMESTAMP: 8,
    Kind.UUID: 16,
    Kind.TIMEUUID: 16,
}
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)
# Day 0 stands in the middle of the unsigned range (docs of the native protocol, section on dates).
_DATE_ZERO = 1 << 31


def serialized(kind: Type, value: Any) -> bytes:
    """The bytes that Cassandra would store for a value of this type; None has none."""
    if value is None:
        return b""
    try:
        return _serialized(kind, value)
    except (struct.error, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise InvalidValue(f"a value does not fit the type {kind.kind}: {type(error).__name__}") from error


def _serialized(kind: Type, value: Any) -> bytes:
    of = kind.kind
    fixed = _FIXED.get(of)
    if fixed is not None:
        return fixed.pack(value)
    if of in (Kind.TEXT, Kind.ASCII):
        return bytes(value.encode("utf-8", "surrogatepass"))
    if of is Kind.BYTES:
        return bytes(value)
    if of is Kind.BOOLEAN:
        return b"\x01" if value else b"\x00"
    if of in (Kind.UUID, Kind.TIMEUUID):
        return bytes(value.bytes)
    if of is Kind.VARINT:
        return _varint(value)
    if of is Kind.DECIMAL:
        unscaled, scale = _unscaled(value)
        return _LENGTH.pack(scale) + _varint(unscaled)
    if of is Kind.DATE:
        return struct.pack(">I", value + _DATE_ZERO)
    if of is Kind.INET:
        return bytes(value.packed)
    if of is Kind.DURATION:
        return b"".join(map(_signed_vint, value))
    if kind.elements:
        return _composite(kind, value)
    # Kinds of other databases: the exact text of the value is stable and injective within one type.
    return repr(value).encode("utf-8", "surrogatepass")


def _composite(kind: Type, value: Any) -> bytes:
    of = kind.kind
    if of in (Kind.LIST, Kind.SET):
        items = sorted(value, key=lambda item: order_key(kind.elements[0], item)) if of is Kind.SET else value
        return _LENGTH.pack(len(value)) + b"".join(_sized(kind.elements[0], item) for item in items)
    if of is Kind.MAP:
        key_type, value_type = kind.elements
        pairs = sorted(value, key=lambda pair: order_key(key_type, pair[0]))
        return _LENGTH.pack(len(value)) + b"".join(_sized(key_type, k) + _sized(value_type, v) for k, v in pairs)
    if of is Kind.VECTOR:
        element = kind.elements[0]
        items = [_serialized(element, item) for item in value]
        if fixed_length(element) is not None:
            return b"".join(items)
        return b"".join(unsigned_vint(len(item)) + item for item in items)
    if of is Kind.ARRAY:
        shape = ",".join(map(str, (*value.lengths, *value.lower_bounds))).encode()
        return shape + b";" + b"".join(_sized(kind.elements[0], item) for item in value.items)
    return b"".join(_sized(element, item) for element, item in zip(kind.elements, value, strict=False))


def _sized(kind: Type, value: Any) -> bytes:
    if value is None:
        return _NULL
    data = _serialized(kind, value)
    return _LENGTH.pack(len(data)) + data


def _varint(value: int) -> bytes:
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return value.to_bytes(size, "big", signed=True)


def _unscaled(value: Decimal) -> tuple[int, int]:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError("not a finite decimal")
    unscaled = int("".join(map(str, digits)))
    return -unscaled if sign else unscaled, -exponent


def fixed_length(kind: Type) -> int | None:
    """How many bytes every value of a type has, where Cassandra relies on it; small integers are not among those."""
    if kind.kind is Kind.VECTOR:
        element = fixed_length(kind.elements[0])
        return None if element is None else element * kind.length
    return _FIXED_LENGTHS.get(kind.kind)


def unsigned_vint(value: int) -> bytes:
    """Cassandra's variable-length integer of up to 64 bits: leading one bits count the bytes that follow."""
    extra = min(8, max(0, (value.bit_length() - 1) // 7))
    if extra == 8:
        return b"\xff" + value.to_bytes(8, "big")
    body = bytearray(value.to_bytes(extra + 1, "big"))
    body[0] |= (0xFF << (8 - extra)) & 0xFF
    return bytes(body)


def _signed_vint(value: int) -> bytes:
    """The same for negative numbers too: zigzag first."""
    return unsigned_vint((value << 1) ^ (value >> 63))


class Reversed:
    """Turns an order round, for clustering columns with DESC."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: Reversed) -> bool:
        return bool(other.key < self.key)

    def __le__(self, other: Reversed) -> bool:
        return bool(other.key <= self.key)

    def __gt__(self, other: Reversed) -> bool:
        return bool(other.key > self.key)

    def __ge__(self, other: Reversed) -> bool:
        return bool(other.key >= self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reversed) and self.key == other.key

    def __hash__(self) -> int:
        return hash((Reversed, self.key))

    def __repr__(self) -> str:
        return f"Reversed({self.key!r})"


# Kinds whose Python values already sort as Cassandra sorts them.
_NATURAL = {
    Kind.BOOLEAN,
    Kind.INT8,
    Kind.INT16,
    Kind.INT32,
    Kind.INT64,
    Kind.UINT8,
    Kind.UINT16,
    Kind.UINT32,
    Kind.UINT64,
    Kind.COUNTER,
    Kind.VARINT,
    Kind.DECIMAL,
    Kind.FIXED_DECIMAL,
    Kind.TEXT,
    Kind.ASCII,
    Kind.BYTES,
    Kind.DATE,
    Kind.TIME,
    Kind.TIMESTAMP,
    Kind.DATETIME,
}


# Kinds whose values are equal for Cassandra exactly when they are written alike in a change.
_ONE_SPELLING = {
    *(Kind.BOOLEAN, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.UINT64),
    *(Kind.VARINT, Kind.TEXT, Kind.ASCII, Kind.BYTES, Kind.UUID, Kind.TIMEUUID, Kind.INET, Kind.DATE, Kind.TIME),
    *(Kind.TIMESTAMP, Kind.DATETIME, Kind.ENUM, Kind.JSON),
}


def one_spelling(kind: Type) -> bool:
    """Whether equal values of a type are always written alike.

    Clustering values and elements of sets go by the type's order, in which 1.0 equals 1.00 and every NaN every other;
    so decimals, floats, and whatever may hold them, can be one row in several spellings.
    """
    return kind.kind in _ONE_SPELLING


def order_key(kind: Type, value: Any) -> Any:
    """A hashable that sorts as Cassandra's comparator of the type does; equal keys mean the same row or element."""
    of = kind.kind
    if of in _NATURAL:
        return value
    if of in (Kind.FLOAT32, Kind.FLOAT64):
        # Java's order: all numbers, then NaN; minus zero before zero.
        return (1, 0.0, 0.0) if math.isnan(value) else (0, value, math.copysign(1.0, value))
    if of is Kind.UUID:
        return _uuid_order(value)
    if of is Kind.TIMEUUID:
        return _timeuuid_order(value)
    if of in (Kind.TUPLE, Kind.USER):
        # Fields that are missing at the end are null.
        return tuple(
            (0,) if item is None else (1, order_key(element, item))
            for element, item in zip_longest(kind.elements, value[: len(kind.elements)])
        )
    if of in (Kind.LIST, Kind.VECTOR):
        return tuple(order_key(kind.elements[0], item) for item in value)
    if of is Kind.SET:
        return tuple(sorted(order_key(kind.elements[0], item) for item in value))
    if of is Kind.MAP:
        key_type, value_type = kind.elements
        return tuple(sorted((order_key(key_type, k), order_key(value_type, v)) for k, v in value))
    return serialized(kind, value)


def _uuid_order(value: UUID) -> tuple[int, int, int]:
    version = (value.int >> 76) & 0xF
    return version, _uuid_time(value) if version == 1 else value.int >> 64, value.int & (1 << 64) - 1


def _timeuuid_order(value: UUID) -> tuple[int, bytes]:
    # The low half compares byte by byte as signed bytes, for compatibility with the oldest Cassandra.
    return _uuid_time(value), bytes(byte ^ 0x80 for byte in value.bytes[8:])


def _uuid_time(value: UUID) -> int:
    return (value.time_hi_version & 0xFFF) << 48 | value.time_mid << 32 | value.time_low


def partition_id(columns: tuple[Column, ...], key: Mapping[str, Any]) -> bytes:
    """The bytes that name a partition: equal keys have equal ones, and the ring hashes them."""
    try:
        if len(columns) == 1:
            return serialized(columns[0].type, key[columns[0].name])
        return b"".join(_sized(column.type, key[column.name]) for column in columns)
    except KeyError as error:
        raise InvalidValue("a change lacks a partition column", column=error.args[0]) from error
