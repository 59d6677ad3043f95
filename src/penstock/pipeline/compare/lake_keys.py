"""Keys of a lakehouse table turned back into plain values, so that a row that nobody else has can be deleted."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.model.schema import Role, TableSchema
from penstock.model.types import Kind, Type
from penstock.pipeline.records import row_type
from penstock.pipeline.sinks.lakehouse.values import to_lake

_COMPOSITE = {
    Kind.LIST,
    Kind.SET,
    Kind.MAP,
    Kind.TUPLE,
    Kind.USER,
    Kind.VECTOR,
    Kind.ARRAY,
    Kind.FLAGS,
    Kind.TIME_TZ,
    Kind.DURATION,
}


def check_keys(schema: TableSchema) -> None:
    """Refuse keys that are not made of single values."""
    for column in schema.key:
        if column.type.kind in _COMPOSITE:
            raise InvalidInput(
                "rows that are too many cannot be deleted where a collection, tuple or user type is part of the key",
                table=schema.table,
                column=column.name,
            )


def plain_keys(schema: TableSchema, found: pa.Table) -> tuple[pa.StructArray, Any]:
    """The keys of rows of a lakehouse table, and which of them (a NumPy mask) the source's types can hold."""
    plain = row_type(schema)
    fits = np.ones(found.num_rows, bool)
    arrays, fields = [], []
    for column in schema.key:
        there = found.column(column.name).combine_chunks()
        made = _plain(there, column.type, plain.field(column.name).type)
        # A text that is not written as we would write it names no key of ours.
        again = zip(to_lake(made, column.type), there, strict=True)
        fits &= np.array([one.equals(other) for one, other in again], bool)
        if column.role is Role.PARTITION:
            fits &= made.is_valid().to_numpy(zero_copy_only=False)
        arrays.append(made)
        fields.append(plain.field(column.name))
    return pa.StructArray.from_arrays(arrays, fields=fields), fits


def _plain(values: pa.Array, type_: Type, wanted: pa.DataType) -> pa.Array:
    convert = _CONVERTERS.get(type_.kind)
    if type_.kind is Kind.FIXED_DECIMAL and pa.types.is_binary(wanted):
        convert = partial(_fixed, type_.scale)
    if convert is not None:
        return pa.array([_tried(convert, value) for value in values.to_pylist()], wanted)
    if values.type == wanted:
        return values
    try:
        return values.cast(wanted)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_cast(values.slice(place, 1), wanted) for place in range(len(values))])


def _cast(value: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return value.cast(wanted)
    except pa.ArrowInvalid:
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
