"""Values of table columns as a lakehouse table has them, converted column by column.

`to_lake` takes the plain values of a column (pipeline/records.py `row_type`) to the type that types.py gives it;
`fit` takes them on to the type of an existing column, which may be wider or have more fields. Values of usual size go
through NumPy and Arrow; only numbers beyond 64 bits and network addresses pass through Python, once per distinct value.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.deliver.lakehouse.types import lake_type, struct_pairs
from penstock.model.types import Kind, Type, Unit

_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
# Where the dashes of a UUID stand between its 16 bytes, as places in 36 characters.
_DASHES = (8, 13, 18, 23)
_HEX_PLACES = np.array([0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34])
_MICROS = {Unit.S: 1_000_000, Unit.MS: 1000, Unit.US: 1}
_LONG_MAX = (1 << 63) - 1


def to_lake(values: pa.Array, type_: Type) -> pa.Array:
    """The values in the column's lakehouse type. Times that do not fit come out null; `out_of_range` tells which."""
    kind = type_.kind
    if kind in _CONVERTERS:
        return _CONVERTERS[kind](values)
    if kind is Kind.FIXED_DECIMAL and pa.types.is_binary(values.type):
        return _per_value(values, lambda raw: str(Decimal(_integer(raw)).scaleb(-type_.scale, _exact(raw))))
    if kind in (Kind.TIMESTAMP, Kind.DATETIME):
        return _micros(values, type_)
    if kind in (Kind.LIST, Kind.SET, Kind.VECTOR):
        values = _unsliced(values)
        items = to_lake(values.values, type_.elements[0])
        return pa.ListArray.from_arrays(values.offsets, items, mask=_nulls(values))
    if kind is Kind.MAP:
        return _map(_unsliced(values), type_)
    if kind in (Kind.TUPLE, Kind.USER, Kind.ARRAY, Kind.TIME_TZ):
        return _struct(_unsliced(values), type_)
    wanted = lake_type(type_)
    return values if values.type == wanted else values.cast(wanted)


def out_of_range(values: pa.Array, type_: Type) -> Any:
    """Which values (a NumPy mask) are times that microseconds in 64 bits cannot hold; None when there are none."""
    micros = _MICROS.get(type_.unit, 1) if type_.unit is not None else 1
    if type_.kind not in (Kind.TIMESTAMP, Kind.DATETIME) or micros == 1:
        return None
    limit = _LONG_MAX // micros
    plain = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    outside = (plain > limit) | (plain < -limit)
    return outside if outside.any() else None


def fit(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Values of a lakehouse type in another that can hold them: wider numbers, structs with more or renamed fields."""
    if values.type == wanted:
        return values
    if pa.types.is_struct(wanted):
        values = _unsliced(values)
        sources = {now.name: before.name for before, now in struct_pairs(values.type, wanted) if before and now}
        fields = [
            fit(values.field(sources[field.name]), field.type)
            if field.name in sources
            else pa.nulls(len(values), field.type)
            for field in wanted
        ]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=_nulls(values))
    if pa.types.is_list(wanted):
        values = _unsliced(values)
        return pa.ListArray.from_arrays(
            values.offsets, fit(values.values, wanted.value_type), type=wanted, mask=_nulls(values)
        )
    if pa.types.is_map(wanted):
        values = _unsliced(values)
        keys, items = fit(values.keys, wanted.key_type), fit(values.items, wanted.item_type)
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=wanted, mask=_nulls(values))
    return values.cast(wanted)


def _unsliced(values: pa.Array) -> pa.Array:
    """The same values in an array that begins at its buffers' beginning, as rebuilding nested arrays wants it."""
    if values.offset == 0:
        return values
    return values.take(pa.array(np.arange(len(values)), pa.int64()))


def _nulls(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _map(values: pa.MapArray, type_: Type) -> pa.MapArray:
    keys, items = to_lake(values.keys, type_.elements[0]), to_lake(values.items, type_.elements[1])
    return pa.MapArray.from_arrays(values.offsets, keys, items, type=lake_type(type_), mask=_nulls(values))


def _struct(values: pa.StructArray, type_: Type) -> pa.StructArray:
    wanted = lake_type(type_)
    if type_.kind in (Kind.TUPLE, Kind.USER) and type_.elements:
        parts = [to_lake(values.field(index), element) for index, element in enumerate(type_.elements)]
    elif type_.kind is Kind.ARRAY:
        inner = _unsliced(values.field("items"))
        items = pa.ListArray.from_arrays(inner.offsets, to_lake(inner.values, type_.elements[0]), mask=_nulls(inner))
        parts = [values.field("lengths").cast(wanted[0].type), values.field("lower_bounds").cast(wanted[1].type), items]
    else:
        parts = [values.field(field.name).cast(field.type) for field in wanted]
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=_nulls(values))


def _micros(values: pa.Array, type_: Type) -> pa.Array:
    wanted = lake_type(type_)
    outside = out_of_range(values, type_)
    if outside is not None:
        values = values.take(pa.array(np.arange(len(values)), pa.int64(), mask=outside))
    return values.cast(wanted)


def _uuids(values: pa.Array) -> pa.Array:
    """36 characters each, without a Python object per value."""
    count = len(values)
    raw = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * 16 : (values.offset + count) * 16]
    text = np.full((count, 36), ord("-"), np.uint8)
    pairs = _HEX[raw.reshape(count, 16)].view(np.uint8).reshape(count, 16, 2)
    text[:, _HEX_PLACES] = pairs[:, :, 0]
    text[:, _HEX_PLACES + 1] = pairs[:, :, 1]
    made = pa.Array.from_buffers(pa.binary(36), count, [None, pa.py_buffer(text)]).cast(pa.binary()).cast(pa.string())
    return _with_nulls(made, values)


def _with_nulls(made: pa.Array, like: pa.Array) -> pa.Array:
    return made if like.null_count == 0 else pc.if_else(like.is_valid(), made, pa.scalar(None, made.type))


def _small_integers(values: pa.Array) -> tuple[Any, Any]:
    """Big-endian two's complement of at most eight bytes as int64, and which values have more bytes."""
    count = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    lengths = np.diff(offsets)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    out = np.zeros(count, np.uint64)
    for place in range(int(min(lengths.max(initial=0), 8))):
        there = lengths > place
        out[there] = (out[there] << np.uint64(8)) | data[offsets[:-1][there] + place]
    shift = (np.uint64(64) - 8 * np.clip(lengths, 1, 8).astype(np.uint64)).astype(np.uint64)
    return (out << shift).view(np.int64) >> shift.astype(np.int64), lengths > 8


def _varints(values: pa.Array) -> pa.Array:
    small, large = _small_integers(values)
    made = _with_nulls(pa.array(small, pa.int64()).cast(pa.string()), values)
    return _patched(made, values, large, lambda raw: str(_integer(raw)))


def _decimals(values: pa.StructArray) -> pa.Array:
    """Decimals of any scale as text, with all their digits."""
    values = _unsliced(values)
    unscaled, scales = values.field("unscaled"), values.field("scale").to_numpy(zero_copy_only=False)
    small, large = _small_integers(unscaled)
    scales = np.nan_to_num(scales).astype(np.int64)
    # Beyond this, Arrow and Python write numbers in different ways; such scales are rare.
    odd = large | (scales < 0) | (scales > 6)
    made = pa.nulls(len(values), pa.string())
    for scale in np.unique(scales[~odd]):
        mine = ~odd & (scales == scale)
        wide = np.zeros((len(small), 2), np.int64)
        wide[:, 0] = small
        wide[:, 1] = small >> 63
        numbers = pa.Array.from_buffers(pa.decimal128(38, int(scale)), len(small), [None, pa.py_buffer(wide)])
        made = pc.if_else(pa.array(mine), numbers.cast(pa.string()), made)
    made = _with_nulls(made, values)
    if not odd.any():
        return made
    places = np.flatnonzero(odd & values.is_valid().to_numpy(zero_copy_only=False))
    texts = [_decimal_text(values[int(place)].as_py()) for place in places]
    return pc.replace_with_mask(made, _mask(len(values), places), pa.array(texts, pa.string()))


def _decimal_text(value: dict[str, Any]) -> str:
    digits = _integer(value["unscaled"])
    return str(Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -value["scale"])))


def _mask(count: int, places: Any) -> pa.Array:
    mask = np.zeros(count, bool)
    mask[places] = True
    return pa.array(mask)


def _patched(made: pa.Array, values: pa.Array, odd: Any, text: Callable[[bytes], str]) -> pa.Array:
    """`made`, with the values where `odd` is true converted one by one."""
    places = np.flatnonzero(odd & values.is_valid().to_numpy(zero_copy_only=False))
    if not len(places):
        return made
    texts = [text(values[int(place)].as_py()) for place in places]
    return pc.replace_with_mask(made, _mask(len(values), places), pa.array(texts, pa.string()))


def _per_value(values: pa.Array, text: Callable[[bytes], str]) -> pa.Array:
    """Each distinct value converted once."""
    encoded = values.dictionary_encode()
    texts = pa.array([text(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _integer(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _exact(raw: bytes) -> Any:
    from decimal import Context

    return Context(prec=max(28, 3 * len(raw)))


_CONVERTERS: dict[Kind, Callable[[pa.Array], pa.Array]] = {
    Kind.UUID: _uuids,
    Kind.TIMEUUID: _uuids,
    Kind.VARINT: _varints,
    Kind.DECIMAL: _decimals,
    Kind.INET: lambda values: _per_value(values, lambda raw: str(ipaddress.ip_address(raw))),
    Kind.TIME: lambda values: values.cast(pa.int64()),
}
