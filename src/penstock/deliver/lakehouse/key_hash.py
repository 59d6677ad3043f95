"""128-bit hashes of row keys, computed over whole Arrow columns.

They name rows in the key index. A hash depends on the values alone, not on how the columns are laid out, so that keys
read back from a table's files give the hashes that they had when they were written. With 128 bits, two of a billion
rows have the same hash with a probability below 10⁻²⁰; the index takes equal hashes for equal keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Odd constants of SplitMix64 and of xxHash; the two lanes use different ones so that they are independent.
_LANES = (
    (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
    (np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x9FB21C651E98DF25), np.uint64(0xD6E8FEB86659FD93)),
)
_NULL = np.uint64(0x27D4EB2F165667C5)


def key_hashes(columns: Sequence[pa.Array]) -> tuple[Any, Any]:
    """The high and the low half (uint64 arrays) of each row's hash over these columns, in order."""
    lanes = []
    for lane in _LANES:
        mixed = np.zeros(len(columns[0]), np.uint64)
        for column in columns:
            mixed = _mix(mixed ^ _hash(column, lane), lane)
        lanes.append(mixed)
    return lanes[0], lanes[1]


def _mix(values: Any, lane: Any) -> Any:
    """A bijection of 64 bits in which every bit of the input moves about half of the output's."""
    step, first, second = lane
    values = values + step
    values = (values ^ (values >> np.uint64(30))) * first
    values = (values ^ (values >> np.uint64(27))) * second
    return values ^ (values >> np.uint64(31))


def _hash(column: pa.Array, lane: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    hashed = _valid_hash(column, lane)
    if column.null_count:
        hashed = np.where(column.is_valid().to_numpy(zero_copy_only=False), hashed, _NULL)
    return hashed


def _valid_hash(column: pa.Array, lane: Any) -> Any:
    type_ = column.type
    if pa.types.is_struct(type_):
        mixed = np.zeros(len(column), np.uint64)
        for index in range(type_.num_fields):
            mixed = _mix(mixed ^ _hash(pc.struct_field(column, [index]), lane), lane)
        return mixed
    if pa.types.is_map(type_):
        items = _mix(_hash(column.keys, lane), lane) ^ _hash(column.items, lane)
        return _list_hash(column.offsets, items, lane)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _list_hash(column.offsets, _hash(column.values, lane), lane)
    if pa.types.is_boolean(type_):
        return _mix(column.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64), lane)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return _bytes_hash(column, np.int32, lane)
    if pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
        return _bytes_hash(column, np.int64, lane)
    return _fixed_hash(column, lane)


def _fixed_hash(column: pa.Array, lane: Any) -> Any:
    """Values of one width: integers are widened first, so that widening a key column does not change its hashes."""
    type_ = column.type
    if pa.types.is_integer(type_) and type_.bit_width < 64:
        column = column.cast(pa.int64())
    width = column.type.bit_width // 8
    raw = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * width : (column.offset + len(column)) * width]
    words = raw.reshape(len(column), width)
    if width % 8:
        padded = np.zeros((len(column), -(-width // 8) * 8), np.uint8)
        padded[:, :width] = words
        words = padded
    words = np.ascontiguousarray(words).view(np.uint64)
    mixed = _mix(words[:, 0], lane)
    for place in range(1, words.shape[1]):
        mixed = _mix(mixed ^ words[:, place], lane)
    return mixed


def _bytes_hash(column: pa.Array, offset_type: Any, lane: Any) -> Any:
    """Strings in words of eight bytes: one pass over the column for each word of the longest."""
    count = len(column)
    if not count:
        return np.zeros(0, np.uint64)
    offsets = np.frombuffer(column.buffers()[1], offset_type)[column.offset : column.offset + count + 1]
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    mixed = _mix(lengths.astype(np.uint64), lane)
    base, end = int(starts[0]), int(offsets[-1])
    # Eight bytes more, so that a word can be read from any place.
    data = np.zeros(end - base + 8, np.uint8)
    if end > base:
        data[: end - base] = np.frombuffer(column.buffers()[2], np.uint8)[base:end]
    words = np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))
    rows = np.arange(count)
    place = 0
    while True:
        rows = rows[lengths[rows] > place]
        if not len(rows):
            return mixed
        left = np.minimum(lengths[rows] - place, 8).astype(np.uint64)
        found = words[starts[rows] - base + place]
        keep = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - np.uint64(8) * left)
        mixed[rows] = _mix(mixed[rows] ^ (found & keep), lane)
        place += 8


def _list_hash(offsets: pa.Array, items: Any, lane: Any) -> Any:
    """The sum of the items' hashes, each mixed with its place in its list."""
    bounds = offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = np.diff(bounds)
    items = items[bounds[0] : bounds[-1]]
    bounds = bounds - bounds[0]
    places = np.arange(len(items)) - np.repeat(bounds[:-1], lengths)
    # Not symmetric in item and place, or lists such as [0, 0] and [1, 1] would have the same sum.
    mixed = _mix(items + places.astype(np.uint64) * lane[1], lane)
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)))
    return _mix(sums[bounds[1:]] - sums[bounds[:-1]] + lengths.astype(np.uint64), lane)
