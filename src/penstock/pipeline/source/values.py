"""Arrow values in the types that Spark takes: no unsigned numbers, no fixed-size binary, no durations.

Conversion goes by whole arrays. The table of types is in docs/reference/spark-source.md. Numbers without a bound
(varint, decimal) and everything that has its own notation (uuid, inet) become text, which loses nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.errors import CorruptLog
from penstock.model.types import Kind, Type, Unit

log = structlog.get_logger()

TIMESTAMP = pa.timestamp("us", "UTC")
_SAME: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT8: pa.int8(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.COUNTER: pa.int64(),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.date32(),
}
_WIDER: dict[Kind, pa.DataType] = {
    Kind.UINT8: pa.int16(),
    Kind.UINT16: pa.int32(),
    Kind.UINT32: pa.int64(),
    Kind.UINT64: pa.decimal128(20, 0),
    Kind.TIME: pa.int64(),
}
_PER_US = {Unit.S: 1_000_000, Unit.MS: 1000, Unit.US: 1}
_INT64 = np.iinfo(np.int64)
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
# Where the 32 hexadecimal digits of a uuid stand among its 36 characters.
_DIGITS = np.array([at for at in range(36) if at not in (8, 13, 18, 23)])
_SCALE_MAX = 38


def unique_names(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Names that differ also for Spark, which ignores case: a name that is taken gets `_` put behind it."""
    used = {name.lower() for name in taken}
    out = []
    for name in names:
        while name.lower() in used:
            name += "_"
        used.add(name.lower())
        out.append(name)
    return out


def spark_type(type_: Type) -> pa.DataType:
    """The Arrow type in which Spark gets values of a logical type."""
    kind = type_.kind
    if kind in _SAME:
        return _SAME[kind]
    if kind in _WIDER:
        return _WIDER[kind]
    if kind is Kind.FIXED_DECIMAL and 0 < type_.precision <= 38:
        return pa.decimal128(type_.precision, type_.scale)
    if kind is Kind.TIMESTAMP:
        return TIMESTAMP
    if kind is Kind.DATETIME:
        return pa.timestamp("us")
    if kind in (Kind.LIST, Kind.SET, Kind.VECTOR):
        return list_type(spark_type(type_.elements[0]))
    if kind is Kind.FLAGS:
        return list_type(pa.string())
    if kind is Kind.MAP:
        return map_type(*map(spark_type, type_.elements))
    parts = _parts(type_)
    return pa.string() if parts is None else pa.struct(parts)


def list_type(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element))


def map_type(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))


def _parts(type_: Type) -> list[tuple[str, pa.DataType]] | None:
    """The fields of a type that is a struct for Spark."""
    kind = type_.kind
    if kind is Kind.DURATION:
        return [("months", pa.int32()), ("days", pa.int32()), ("rest", pa.int64())]
    if kind is Kind.TIME_TZ:
        return [("time", pa.int64()), ("offset_s", pa.int32())]
    if kind is Kind.ARRAY:
        shape = list_type(pa.int32())
        return [("lengths", shape), ("lower_bounds", shape), ("items", list_type(spark_type(type_.elements[0])))]
    if kind is Kind.USER and not type_.elements:
        return [("empty", pa.int32())]
    if kind in (Kind.TUPLE, Kind.USER):
        names = type_.names or [f"f{index}" for index in range(len(type_.elements))]
        return list(zip(unique_names(names), map(spark_type, type_.elements), strict=True))
    return None


def to_spark(array: pa.Array, type_: Type) -> pa.Array:
    """Values of a logical type, as the formats' Arrow columns have them, in the type of `spark_type`."""
    kind, wanted = type_.kind, spark_type(type_)
    if kind in _SAME or array.type == wanted:
        return array
    if kind is Kind.TIME:
        return array.cast(pa.int64())
    if kind in _WIDER:
        return array.cast(wanted)
    if kind in (Kind.TIMESTAMP, Kind.DATETIME):
        assert type_.unit is not None
        return _microseconds(array, type_.unit).cast(wanted)
    if kind in (Kind.LIST, Kind.SET, Kind.VECTOR):
        return list_array(array, wanted, to_spark(array.values, type_.elements[0]))
    if kind is Kind.MAP:
        key, value = type_.elements
        return map_array(array, wanted, to_spark(array.keys, key), to_spark(array.items, value))
    if pa.types.is_struct(wanted) or pa.types.is_list(wanted):
        return _struct(array, wanted, type_)
    return _text(array, type_)


def _struct(array: pa.Array, wanted: pa.DataType, type_: Type) -> pa.Array:
    """A struct whose fields may themselves need another type."""
    kind = type_.kind
    if kind in (Kind.TUPLE, Kind.USER) and type_.elements:
        fields = [to_spark(array.field(at), element) for at, element in enumerate(type_.elements)]
        return struct_array(array, wanted, fields)
    if kind is Kind.ARRAY:
        items = array.field(2)
        made = list_array(items, wanted.field(2).type, to_spark(items.values, type_.elements[0]))
        return struct_array(array, wanted, [loosen(array.field(0)), loosen(array.field(1)), made])
    if kind is Kind.TIME_TZ:
        return struct_array(array, wanted, [array.field(0).cast(pa.int64()), array.field(1)])
    return loosen(array)


def loosen(array: pa.Array) -> pa.Array:
    """The same values in a type that says of nothing that it cannot be null, as Spark's types do by default."""
    type_ = array.type
    if pa.types.is_struct(type_):
        fields = [loosen(array.field(at)) for at in range(type_.num_fields)]
        wanted = pa.struct([(type_.field(at).name, one.type) for at, one in enumerate(fields)])
        return struct_array(array, wanted, fields)
    if pa.types.is_map(type_):
        keys, items = loosen(array.keys), loosen(array.items)
        return map_array(array, map_type(keys.type, items.type), keys, items)
    if pa.types.is_list(type_):
        values = loosen(array.values)
        return list_array(array, list_type(values.type), values)
    return array


def struct_array(array: pa.Array, wanted: pa.DataType, fields: list[pa.Array]) -> pa.Array:
    """A struct with other fields; where `array` is null it is null too."""
    return pa.Array.from_buffers(wanted, len(array), [_validity(array)], children=fields)


def list_array(array: pa.Array, wanted: pa.DataType, values: pa.Array) -> pa.Array:
    """A list with the places of `array` and other values."""
    return pa.Array.from_buffers(wanted, len(array), [_validity(array), array.buffers()[1]], children=[values])


def map_array(array: pa.Array, wanted: pa.DataType, keys: pa.Array, items: pa.Array) -> pa.Array:
    """A map with the places of `array`, a list or a map, and other keys and values."""
    entries = pa.struct([wanted.key_field, wanted.item_field])
    pairs = pa.Array.from_buffers(entries, len(keys), [None], children=[keys, items])
    return pa.Array.from_buffers(wanted, len(array), [_validity(array), array.buffers()[1]], children=[pairs])


def _validity(array: pa.Array) -> pa.Buffer | None:
    # Arrays come from whole batches, so their buffers begin where they do.
    if array.offset:
        raise ValueError("a slice cannot be converted")
    found: pa.Buffer | None = array.buffers()[0]
    return found


def _microseconds(array: pa.Array, unit: Unit) -> pa.Array:
    """Times as whole microseconds. What lies beyond 64 bits becomes the nearest time that does not."""
    numbers = array.cast(pa.int64())
    if unit is Unit.NS:
        return pa.Array.from_buffers(pa.int64(), len(array), [_validity(array), pa.py_buffer(_plain(numbers) // 1000)])
    factor = _PER_US[unit]
    if factor == 1:
        return numbers
    values = _plain(numbers)
    clipped = np.clip(values, _INT64.min // factor + 1, _INT64.max // factor)
    beyond = int(np.count_nonzero(clipped != values))
    if beyond:
        log.warning("times beyond Spark's range were clipped", count=beyond)
    return pa.Array.from_buffers(pa.int64(), len(array), [_validity(array), pa.py_buffer(clipped * factor)])


def _plain(numbers: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The values of an array of 64-bit numbers; anything where it is null."""
    return np.frombuffer(numbers.buffers()[1], np.int64, len(numbers))


def _text(array: pa.Array, type_: Type) -> pa.Array:
    kind = type_.kind
    if kind in (Kind.UUID, Kind.TIMEUUID):
        return _uuids(array)
    if kind is Kind.INET:
        return _by_value(array, lambda data: str(ipaddress.ip_address(data)))
    if kind is Kind.VARINT:
        return _numbers(array, None)
    if kind is Kind.DECIMAL:
        return _numbers(array.field("unscaled"), array.field("scale"), _validity(array))
    if pa.types.is_decimal(array.type):
        return array.cast(pa.string())
    scale = type_.scale
    return _by_value(array, lambda data: _decimal(data, scale))


def _uuids(array: pa.Array) -> pa.Array:
    """Sixteen bytes each as 36 characters each."""
    count = len(array)
    data = np.frombuffer(array.buffers()[1], np.uint8, 16 * count).reshape(count, 16)
    text = np.full((count, 36), ord("-"), np.uint8)
    text[:, _DIGITS] = _HEX[data].reshape(count, 32)
    offsets = np.arange(0, 36 * count + 1, 36, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [_validity(array), pa.py_buffer(offsets), pa.py_buffer(text.reshape(-1))]
    )


def _by_value(array: pa.Array, render: Callable[[bytes], str]) -> pa.Array:
    """Text of each distinct value."""
    encoded = array.dictionary_encode()
    try:
        texts = pa.array([render(value) for value in encoded.dictionary.to_pylist()], pa.string())
    except ValueError as error:
        raise CorruptLog("rows are damaged: a value is not of its type") from error
    return texts.take(encoded.indices)


def _decimal(unscaled: bytes, scale: int) -> str:
    number = int.from_bytes(unscaled, "big", signed=True)
    return str(Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


def _numbers(unscaled: pa.Array, scales: pa.Array | None, valid: pa.Buffer | None = None) -> pa.Array:
    """Whole numbers of any size, with a scale each, as text."""
    small = _small_numbers(unscaled)
    distinct = [0] if scales is None else pc.unique(scales).to_pylist()
    if small is None or len(distinct) > 16 or not all(0 <= scale <= _SCALE_MAX for scale in distinct):
        each = [0] * len(unscaled) if scales is None else scales.to_pylist()
        parts = zip(unscaled.to_pylist(), each, strict=True)
        texts = pa.array([None if data is None else _decimal(data, scale) for data, scale in parts], pa.string())
    else:
        whole = pa.array(small).cast(pa.decimal128(38, 0))
        by_scale = []
        for scale in distinct:
            scaled = pa.Array.from_buffers(pa.decimal128(38, scale), len(whole), [None, whole.buffers()[1]])
            by_scale.append(scaled.cast(pa.string()))
        texts = by_scale[0]
        for scale, other in zip(distinct[1:], by_scale[1:], strict=True):
            texts = pc.if_else(pc.equal(scales, scale), other, texts)
        valid = valid if scales is not None else _validity(unscaled)
    if valid is None:
        return texts
    buffers = texts.buffers()
    return pa.Array.from_buffers(pa.string(), len(texts), [valid, *buffers[1:]], offset=texts.offset)


def _small_numbers(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Big-endian numbers of at most eight bytes each; None when one has more."""
    count = len(array)
    if not count:
        return np.zeros(0, np.int64)
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1)
    lengths = np.diff(offsets)
    if lengths.max() > 8:
        return None
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)
    out = np.zeros(count, np.int64)
    for length in np.unique(lengths):
        if not length:
            continue
        which = np.flatnonzero(lengths == length)
        # The first byte carries the sign.
        value = data[offsets[which]].astype(np.int8).astype(np.int64)
        for at in range(1, int(length)):
            value = (value << 8) | data[offsets[which] + at]
        out[which] = value
    return out
