"""Values of a lakehouse table as the plain values that they were made of: the way back from values.py.

A value that the source's type cannot hold comes out null; whoever must know converts what came out once more and looks
whether it is the same.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.model.types import Kind, Type


def from_lake(values: pa.Array, type_: Type, wanted: pa.DataType) -> pa.Array:
    """The values of a column of this type in the Arrow type of its plain values."""
    kind = type_.kind
    convert = _CONVERTERS.get(kind)
    if kind is Kind.FIXED_DECIMAL and pa.types.is_binary(wanted):
        convert = partial(_fixed, type_.scale)
    if convert is not None:
        return pa.array([_tried(convert, value) for value in values.to_pylist()], wanted)
    if values.type == wanted:
        return values
    nested = type_.elements and kind in (Kind.LIST, Kind.SET, Kind.VECTOR, Kind.MAP, Kind.TUPLE, Kind.USER)
    return _nested(values, type_, wanted) if nested else _cast(values, wanted)


def _nested(values: pa.Array, type_: Type, wanted: pa.DataType) -> pa.Array:
    # A copy begins where its buffers do, and has nothing under its nulls.
    values = values.take(pa.array(range(len(values)), pa.int64()))
    nulls = values.is_null() if values.null_count else None
    if pa.types.is_map(wanted):
        keys, items = (
            from_lake(part, element, field.type)
            for part, element, field in zip(
                (values.keys, values.items), type_.elements, (wanted.key_field, wanted.item_field), strict=True
            )
        )
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=wanted, mask=nulls)
    if pa.types.is_struct(wanted):
        fields = [
            from_lake(values.field(at), element, field.type)
            for at, (element, field) in enumerate(zip(type_.elements, wanted, strict=True))
        ]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=nulls)
    items = from_lake(values.values, type_.elements[0], wanted.value_type)
    return pa.ListArray.from_arrays(values.offsets, items, type=wanted, mask=nulls)


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return values.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.concat_arrays([_cast_one(values.slice(place, 1), wanted) for place in range(len(values))])


def _cast_one(value: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return value.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(1, wanted)


def _tried(convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return None if value is None else convert(value)
    except (ValueError, ArithmeticError):
        return None


def _integer_bytes(number: int) -> bytes:
    """The shortest two's complement, as Cassandra has it."""
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _decimal(text: str) -> dict[str, Any]:
    unscaled, scale = _parts(text)
    return {"unscaled": _integer_bytes(unscaled), "scale": scale}


def _fixed(scale: int, text: str) -> bytes:
    unscaled, there = _parts(text)
    if there > scale:
        raise ValueError("more digits than the column has")
    return _integer_bytes(unscaled * 10 ** (scale - there))


def _parts(text: str) -> tuple[int, int]:
    """All digits of a decimal as an integer, and its scale."""
    sign, digits, exponent = Decimal(text).as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number, -int(exponent)


_CONVERTERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.UUID: lambda text: uuid.UUID(text).bytes,
    Kind.TIMEUUID: lambda text: uuid.UUID(text).bytes,
    Kind.VARINT: lambda text: _integer_bytes(int(text)),
    Kind.DECIMAL: _decimal,
    Kind.INET: lambda text: ipaddress.ip_address(text).packed,
}
