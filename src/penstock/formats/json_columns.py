"""Columns of values as JSON text, a whole Arrow column at a time.

Two forms. `PENSTOCK` is the JSON of formats/json.py, which keeps every value and is for people and scripts. `SEARCH` is
what Elasticsearch and OpenSearch index without loss of meaning: ISO times, base64 for bytes, tuples as objects, long
integers as text. Text of a value that is null is null. Most kinds are rendered by Arrow itself; only those that Arrow
has no words for (decimals of any scale, addresses, durations, bytes) are rendered value by value.
"""

from __future__ import annotations

import binascii
import ipaddress
import json
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats.json import DAY_S, TEXT_KINDS, UNITS_PER_S, value_json
from penstock.formats.search_fields import field_name
from penstock.formats.values import from_datum
from penstock.model.types import Duration, Kind, Type, Unit

# The days and seconds between 0001-01-01 and 9999-12-31, which is what calendars show.
_DAY_MIN, _DAY_MAX = -719_162, 2_932_896
_SPECIAL = r'[\x00-\x1f"\\]'
_CONTROL = r"[\x00-\x1f]"
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
# Where the 32 digits of a UUID stand in its text.
_UUID_PLACES = np.array([place for place in range(36) if place not in (8, 13, 18, 23)])

_INTEGERS = {
    Kind.INT8,
    Kind.INT16,
    Kind.INT32,
    Kind.INT64,
    Kind.UINT8,
    Kind.UINT16,
    Kind.UINT32,
    Kind.UINT64,
    Kind.COUNTER,
}
# Keys of these kinds are JSON with spaces, or numbers that Arrow spells in another way.
_RESPACED = {
    Kind.FLOAT32,
    Kind.FLOAT64,
    Kind.DURATION,
    Kind.TIME_TZ,
    Kind.FLAGS,
    Kind.LIST,
    Kind.SET,
    Kind.VECTOR,
    Kind.MAP,
    Kind.TUPLE,
    Kind.USER,
    Kind.ARRAY,
}
_PIECEMEAL = {Kind.VARINT, Kind.DECIMAL, Kind.INET, Kind.DURATION, Kind.BYTES}


class Form(Enum):
    """Who reads the text."""

    PENSTOCK = auto()
    SEARCH = auto()


def render(type_: Type, values: pa.Array, form: Form) -> pa.Array:
    """The JSON text of each value of a column of this type; null where the value is null."""
    kind = type_.kind
    if kind in TEXT_KINDS:
        return quote(values)
    if kind in _INTEGERS:
        return values.cast(pa.string())
    if kind is Kind.BOOLEAN:
        return pc.if_else(values, "true", "false")
    if kind in (Kind.FLOAT32, Kind.FLOAT64):
        # In a search index a float32 is parsed as one; anyone else takes a JSON number for a float64.
        return _floats(values if form is Form.SEARCH else values.cast(pa.float64()))
    if kind in (Kind.UUID, Kind.TIMEUUID):
        return wrap(uuid_text(values), '"', '"')
    if kind in (Kind.TIMESTAMP, Kind.DATETIME):
        return _timestamps(type_, values, form)
    if kind is Kind.DATE:
        return _dates(values, form)
    if kind is Kind.TIME:
        return _times(type_.unit or Unit.US, values)
    if kind is Kind.FIXED_DECIMAL and pa.types.is_decimal(values.type):
        return wrap(values.cast(pa.string()), '"', '"')
    if kind in _PIECEMEAL or kind is Kind.FIXED_DECIMAL:
        return _piecemeal(type_, values, form)
    return _composite(type_, values, form)


def _composite(type_: Type, values: pa.Array, form: Form) -> pa.Array:
    kind = type_.kind
    if kind is Kind.TIME_TZ:
        time = _times(type_.unit or Unit.US, field(values, 0))
        return mask(values, members([("time", time), ("offset_s", field(values, 1).cast(pa.string()))]))
    if kind is Kind.FLAGS:
        return _list(values, quote)
    if kind is Kind.MAP:
        return _map(type_, values, form)
    if kind is Kind.ARRAY:
        return _nd_array(type_, values, form)
    if kind in (Kind.TUPLE, Kind.USER):
        return _struct(type_, values, form)
    return _list(values, lambda items: render(type_.elements[0], items, form))


def quote(text: pa.Array) -> pa.Array:
    """Text as JSON strings. Text without anything to escape, nearly all of it, is only wrapped."""
    if pc.any(pc.match_substring_regex(text, _SPECIAL)).as_py():
        text = pc.replace_substring(text, "\\", "\\\\")
        text = pc.replace_substring(text, '"', '\\"')
        if pc.any(pc.match_substring_regex(text, _CONTROL)).as_py():
            for code in range(32):
                text = pc.replace_substring(text, chr(code), json.dumps(chr(code))[1:-1])
    return wrap(text, '"', '"')


def wrap(text: pa.Array, before: str, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, text, after, "")


def members(parts: Sequence[tuple[str, pa.Array]], length: int = 0) -> pa.Array:
    """Objects with these members; a member whose text is null is left out. Without parts, `length` empty objects."""
    if not parts:
        return pa.repeat(pa.scalar("{}"), length)
    names = [f",{json.dumps(name, ensure_ascii=False)}:" for name, _ in parts]
    named = [pc.binary_join_element_wise(name, text, "") for name, (_, text) in zip(names, parts, strict=True)]
    text = pc.binary_join_element_wise("{", *named, "}", "", null_handling="replace", null_replacement="")
    return pc.replace_substring(text, "{,", "{", max_replacements=1)


def mask(values: pa.Array, text: pa.Array) -> pa.Array:
    """The text where there is a value, else null."""
    return text if values.null_count == 0 else pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))


def field(values: pa.StructArray, index: int) -> pa.Array:
    """A field of structs, null where the struct is."""
    return pc.struct_field(values, [index])


def join_lists(lists: pa.Array, items: pa.Array, offsets: pa.Array) -> pa.Array:
    """`[a,b]` of each list, null where the list is; `items` is the text of the items from the first offset on."""
    moved = pc.subtract(offsets, offsets[0]) if len(offsets) else offsets
    joined = pc.binary_join(pa.ListArray.from_arrays(moved.cast(pa.int32()), items), ",")
    return mask(lists, wrap(joined, "[", "]"))


def items_of(lists: pa.Array) -> pa.Array:
    """The items of all lists, one after another, also of a part of a column."""
    offsets = lists.offsets
    if not len(offsets):
        return lists.values.slice(0, 0)
    first = offsets[0].as_py()
    return lists.values.slice(first, offsets[len(offsets) - 1].as_py() - first)


def _list(lists: pa.Array, make: Callable[[pa.Array], pa.Array]) -> pa.Array:
    # An item of an array may be null; nothing else's.
    items = make(items_of(lists)).fill_null("null")
    return join_lists(lists, items, lists.offsets)


def _map(type_: Type, maps: pa.MapArray, form: Form) -> pa.Array:
    key_type, value_type = type_.elements
    offsets = maps.offsets
    first = offsets[0].as_py() if len(offsets) else 0
    count = (offsets[len(offsets) - 1].as_py() - first) if len(offsets) else 0
    raw = render(key_type, maps.keys.slice(first, count), form)
    keys = raw
    if key_type.kind not in TEXT_KINDS:
        # A key that is no text is the text of its JSON; one that is a string in JSON is itself.
        spaced = form is Form.PENSTOCK and key_type.kind in _RESPACED
        keys = pa.array([_key_text(key) for key in raw.to_pylist()], pa.string()) if spaced else quote(unquote(raw))
    values = render(value_type, maps.items.slice(first, count), form).fill_null("null")
    text = join_lists(maps, pc.binary_join_element_wise(keys, values, ":"), offsets)
    made = pc.replace_substring(text, "[", "{", max_replacements=1)
    made = wrap(pc.binary_slice(made.cast(pa.binary()), 0, -1).cast(pa.string()), "", "}")
    merged = _with_equal_keys(maps, keys) if form is Form.PENSTOCK else None
    if merged is None:
        return made
    pairs = join_lists(maps, wrap(pc.binary_join_element_wise(raw, values, ","), "[", "]"), offsets)
    return pc.if_else(merged, pairs, made)


def _key_text(key: str) -> str:
    """A key's JSON as the text of a member's name, spaced as formats/json.py does it."""
    found = json.loads(key)
    return key if isinstance(found, str) else json.dumps(json.dumps(found))


def _with_equal_keys(maps: pa.MapArray, keys: pa.Array) -> pa.Array | None:
    """Which maps have two keys with the same text, as two kinds of NaN have; None when no map does."""
    offsets = maps.offsets.to_numpy(zero_copy_only=False)
    parents = pa.array(np.repeat(np.arange(len(maps)), np.diff(offsets)), pa.int64())
    named = pc.binary_join_element_wise(parents.cast(pa.string()), keys, " ")
    if pc.count_distinct(named).as_py() == len(named):
        return None
    counts = Counter(named.to_pylist())
    double = {int(name.split(" ", 1)[0]) for name, count in counts.items() if count > 1}
    return pa.array([number in double for number in range(len(maps))], pa.bool_())


def unquote(text: pa.Array) -> pa.Array:
    """JSON text of simple values without its quotes. Only for kinds whose text has nothing to escape."""
    return pc.utf8_trim(text, '"')


def _struct(type_: Type, values: pa.StructArray, form: Form) -> pa.Array:
    if not type_.elements:
        return mask(values, pa.repeat(pa.scalar("{}"), len(values)))
    parts = [render(element, field(values, at), form) for at, element in enumerate(type_.elements)]
    if form is Form.SEARCH:
        user = type_.kind is Kind.USER
        names = [field_name(type_.names[at]) if user else f"f{at}" for at in range(len(parts))]
        return mask(values, members(list(zip(names, parts, strict=True))))
    parts = [part.fill_null("null") for part in parts]
    if type_.kind is Kind.USER:
        return mask(values, members(list(zip(type_.names, parts, strict=True))))
    return mask(values, wrap(pc.binary_join_element_wise(*parts, ","), "[", "]"))


def _nd_array(type_: Type, values: pa.StructArray, form: Form) -> pa.Array:
    items = _list(field(values, 2), lambda found: render(type_.elements[0], found, form))
    if form is Form.SEARCH:
        return items
    lengths, bounds = (_list(field(values, at), lambda found: found.cast(pa.string())) for at in (0, 1))
    counts = wrap(pc.list_value_length(field(values, 2)).cast(pa.string()), "[", "]")
    plain = pc.and_(pc.equal(bounds, "[1]"), pc.equal(lengths, counts))
    whole = members([("lengths", lengths), ("lower_bounds", bounds), ("items", items)])
    return mask(values, pc.if_else(plain, items, whole))


def _floats(values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    # Arrow leaves out the point of whole numbers, and with it -0.0 would be the integer 0 to many readers.
    text = pc.if_else(pc.match_substring_regex(text, r"[.en]"), text, pc.binary_join_element_wise(text, ".0", ""))
    if pc.all(pc.is_finite(values)).as_py() is not False:
        return text
    names = pc.if_else(pc.is_nan(values), '"NaN"', pc.if_else(pc.greater(values, 0), '"Infinity"', '"-Infinity"'))
    return pc.if_else(pc.is_finite(values), text, names)


def uuid_text(values: pa.Array) -> pa.Array:
    """UUIDs as people write them."""
    count = len(values)
    data = values.buffers()[1]
    if data is None or not count:
        return pa.array([None] * count, pa.string())
    found = np.frombuffer(data, np.uint8, count * 16, values.offset * 16).reshape(count, 16)
    text = np.full((count, 36), ord("-"), np.uint8)
    text[:, _UUID_PLACES] = _HEX[found].reshape(count, 32)
    offsets = pa.py_buffer(np.arange(0, 36 * (count + 1), 36, dtype=np.int32))
    made = pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(text)])
    return mask(values, made)


def _shown(values: pa.Array, least: int, greatest: int) -> pa.Array:
    return pc.and_(pc.greater_equal(values, least), pc.less_equal(values, greatest))


def _timestamps(type_: Type, values: pa.Array, form: Form) -> pa.Array:
    unit = type_.unit or Unit.US
    per_s = UNITS_PER_S[unit]
    numbers = values.cast(pa.int64())
    # Nanoseconds never leave the calendar.
    least = max(_DAY_MIN * DAY_S * per_s, -(1 << 63))
    shown = _shown(numbers, least, min((_DAY_MAX + 1) * DAY_S * per_s - 1, (1 << 63) - 1))
    safe = pc.if_else(shown, numbers, 0).cast(pa.timestamp(unit.value))
    text = safe.cast(pa.string())
    if form is Form.SEARCH:
        text = pc.utf8_replace_slice(text, 10, 11, "T")
    text = wrap(text, '"', 'Z"' if type_.kind is Kind.TIMESTAMP else '"')
    if pc.all(shown).as_py() is not False:
        return text
    if form is Form.SEARCH:
        numbers = _milliseconds(numbers, per_s)
    return pc.if_else(shown, text, numbers.cast(pa.string()))


def _milliseconds(numbers: pa.Array, per_s: int) -> pa.Array:
    """What is too far away for a calendar, in milliseconds as far as they fit."""
    if per_s >= 1000:
        return pc.divide(numbers, per_s // 1000)
    limit = (1 << 63) // 1000
    return pc.multiply(pc.min_element_wise(pc.max_element_wise(numbers, -limit), limit), 1000 // per_s)


def _dates(values: pa.Array, form: Form) -> pa.Array:
    days = values.cast(pa.int32())
    shown = _shown(days, _DAY_MIN, _DAY_MAX)
    text = wrap(pc.if_else(shown, days, pa.scalar(0, pa.int32())).cast(pa.date32()).cast(pa.string()), '"', '"')
    if pc.all(shown).as_py() is not False:
        return text
    numbers = days.cast(pa.int64())
    if form is Form.SEARCH:
        numbers = pc.multiply(numbers, DAY_S * 1000)
    return pc.if_else(shown, text, numbers.cast(pa.string()))


def _times(unit: Unit, values: pa.Array) -> pa.Array:
    numbers = values.cast(pa.int64())
    shown = _shown(numbers, 0, DAY_S * UNITS_PER_S[unit] - 1)
    clock = pc.if_else(shown, numbers, 0).cast(pa.timestamp(unit.value)).cast(pa.string())
    text = wrap(pc.utf8_slice_codeunits(clock, 11), '"', '"')
    return pc.if_else(shown, text, numbers.cast(pa.string()))


def _piecemeal(type_: Type, values: pa.Array, form: Form) -> pa.Array:
    make = _maker(type_, form)
    found = values.to_pylist()
    return pa.array([None if value is None else make(value) for value in found], pa.string())


def _maker(type_: Type, form: Form) -> Callable[[Any], str]:
    kind = type_.kind
    if kind is Kind.BYTES:
        if form is Form.SEARCH:
            return lambda value: f'"{binascii.b2a_base64(value, newline=False).decode()}"'
        return lambda value: f'"0x{value.hex()}"'
    if kind is Kind.INET:
        return lambda value: f'"{ipaddress.ip_address(value)}"'
    if kind is Kind.DURATION:
        return lambda value: _duration(type_, Duration(**value), form)
    convert = from_datum(type_)
    assert convert is not None
    if kind is Kind.DECIMAL:
        return lambda value: json.dumps(value_json(type_, convert((value["unscaled"], value["scale"]))))
    if kind is Kind.VARINT and form is Form.SEARCH:
        # A JSON number of any length is not one that a search engine takes.
        return lambda value: f'"{json.dumps(value_json(type_, convert(value)))}"'.replace('""', '"')
    return lambda value: json.dumps(value_json(type_, convert(value)))


def _duration(type_: Type, value: Duration, form: Form) -> str:
    made = value_json(type_, value)
    if form is Form.SEARCH and isinstance(made, dict):
        # Parts of different signs have no text in CQL.
        return f'"{value.months}mo{value.days}d{value.rest}{type_.unit}"'
    return json.dumps(made)
