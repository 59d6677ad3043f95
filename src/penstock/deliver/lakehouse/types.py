"""Which type a column has in a lakehouse table. One table for Delta and Iceberg, shown in docs/guides/lakehouse.md.

The types are Arrow's, but only those that both formats can hold. Nothing is rounded: what has no type of its own there
(decimals of any scale, times of day, UUIDs) becomes text, a long or a struct that holds all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.model.schema import TableSchema
from penstock.model.types import Kind, Type, Unit

TIMESTAMP = pa.timestamp("us", "UTC")
DATETIME = pa.timestamp("us")
_PRECISION_MAX = 38

_PLAIN: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    # Iceberg has no integers below 32 bits, and nobody misses them in a table for people.
    Kind.INT8: pa.int32(),
    Kind.INT16: pa.int32(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    # Neither format has unsigned numbers: each goes to the next wider signed one.
    Kind.UINT8: pa.int32(),
    Kind.UINT16: pa.int32(),
    Kind.UINT32: pa.int64(),
    Kind.UINT64: pa.decimal128(20, 0),
    Kind.COUNTER: pa.int64(),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.int64(),
}
_TEXT = {
    Kind.VARINT,
    Kind.DECIMAL,
    Kind.NUMERIC,
    Kind.TEXT,
    Kind.ASCII,
    Kind.JSON,
    Kind.UUID,
    Kind.TIMEUUID,
    Kind.INET,
    Kind.CIVIL_DATE,
    Kind.CIVIL_DATETIME,
    Kind.ENUM,
    Kind.BITS,
    Kind.OTHER,
}


def lake_type(type_: Type) -> pa.DataType:
    """The type of a column's values in a lakehouse table."""
    kind = type_.kind
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _TEXT:
        return pa.string()
    if kind is Kind.FIXED_DECIMAL:
        fits = type_.precision <= _PRECISION_MAX
        return pa.decimal128(max(type_.precision, 1), type_.scale) if fits else pa.string()
    if kind in (Kind.TIMESTAMP, Kind.DATETIME):
        # Microseconds are the finest that both formats have; finer ones stay whole as a number.
        if type_.unit is Unit.NS:
            return pa.int64()
        return TIMESTAMP if kind is Kind.TIMESTAMP else DATETIME
    if kind is Kind.MAP:
        return pa.map_(lake_type(type_.elements[0]), lake_type(type_.elements[1]))
    if kind is Kind.FLAGS:
        return pa.list_(pa.string())
    if kind in (Kind.LIST, Kind.SET, Kind.VECTOR):
        return pa.list_(lake_type(type_.elements[0]))
    return pa.struct(list(_parts(type_).items()))


def _parts(type_: Type) -> dict[str, pa.DataType]:
    """The fields of a type that is a struct in the table."""
    if type_.kind is Kind.DURATION:
        return {"months": pa.int32(), "days": pa.int32(), "rest": pa.int64()}
    if type_.kind is Kind.TIME_TZ:
        return {"time": pa.int64(), "offset_s": pa.int32()}
    if type_.kind is Kind.ARRAY:
        shape = pa.list_(pa.int32())
        return {"lengths": shape, "lower_bounds": shape, "items": pa.list_(lake_type(type_.elements[0]))}
    names = _told_apart(type_.names or tuple(f"f{index}" for index in range(len(type_.elements))))
    # Neither format has a struct without fields.
    return dict(zip(names, map(lake_type, type_.elements), strict=True)) or {"empty": pa.int32()}


def _told_apart(names: Sequence[str]) -> list[str]:
    """Fields of a user type, of which those that differ by case only get a number: readers do not tell them apart.

    Fields are only ever added, behind the others, so the first keeps its name for ever.
    """
    made: list[str] = []
    taken: set[str] = set()
    for name in names:
        number, new = 1, name
        while new.lower() in taken or (number > 1 and new in names):
            number += 1
            new = f"{name}__{number}"
        taken.add(new.lower())
        made.append(new)
    return made


def lake_schema(schema: TableSchema) -> pa.Schema:
    """The columns of a table of current rows, in the order of the source's."""
    return pa.schema([(column.name, lake_type(column.type)) for column in schema.columns])


_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of `old` is one of `new` too, so that a column may take the new type."""
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) <= _INTEGERS.index(new)
    if pa.types.is_float32(old) and pa.types.is_float64(new):
        return True
    if pa.types.is_decimal128(old) and pa.types.is_decimal128(new):
        return bool(old.scale <= new.scale and old.precision - old.scale <= new.precision - new.scale)
    return bool(old == new)


def merged(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """The least type that holds the values of both, by widening or by more fields in structs; None: there is none."""
    if widens(old, new):
        return new
    if widens(new, old):
        return old
    if pa.types.is_decimal128(old) and pa.types.is_decimal128(new):
        scale = max(old.scale, new.scale)
        whole = max(old.precision - old.scale, new.precision - new.scale)
        return pa.decimal128(whole + scale, scale) if whole + scale <= _PRECISION_MAX else None
    return _with_more_fields(old, new)


def _with_more_fields(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """The nested type with the fields of both. Inside nested types nothing is widened: few readers know how."""
    if old == new:
        return old
    if pa.types.is_list(old) and pa.types.is_list(new):
        item = _with_more_fields(old.value_type, new.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(old) and pa.types.is_map(new):
        key, item = _with_more_fields(old.key_type, new.key_type), _with_more_fields(old.item_type, new.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if not (pa.types.is_struct(old) and pa.types.is_struct(new)):
        return None
    fields: dict[str, pa.DataType] = {}
    for before, now in struct_pairs(old, new):
        one = now or before
        assert one is not None
        both = one.type if before is None or now is None else _with_more_fields(before.type, now.type)
        if both is None or one.name in fields:
            return None
        fields[one.name] = both
    return pa.struct(list(fields.items()))


def struct_pairs(
    old: pa.StructType, new: pa.StructType
) -> Iterator[tuple[pa.Field, pa.Field] | tuple[pa.Field, None] | tuple[None, pa.Field]]:
    """Which fields of two versions of a struct are the same.

    Those of the same name, as long as one version has all names of the other. Else some were renamed: the fields of a
    user type are never dropped or moved, so they are the same by their place.
    """
    before, now = ([field.name for field in one] for one in (old, new))
    if set(before) <= set(now) or set(now) <= set(before):
        yield from ((field, new.field(field.name) if field.name in now else None) for field in old)
        yield from ((None, field) for field in new if field.name not in before)
        return
    for place in range(max(len(before), len(now))):
        yield (
            old.field(place) if place < len(before) else None,
            new.field(place) if place < len(now) else None,
        )


def renamed_fields(old: pa.DataType, new: pa.DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The fields inside of a column that have another name now: where they are, by their old names, and the new name.

    Inner ones come before those around them. Items of lists are called `element`, those of maps `key` and `value`.
    """
    if pa.types.is_list(old) and pa.types.is_list(new):
        yield from renamed_fields(old.value_type, new.value_type, (*path, "element"))
    elif pa.types.is_map(old) and pa.types.is_map(new):
        yield from renamed_fields(old.key_type, new.key_type, (*path, "key"))
        yield from renamed_fields(old.item_type, new.item_type, (*path, "value"))
    elif pa.types.is_struct(old) and pa.types.is_struct(new):
        for before, now in struct_pairs(old, new):
            if before is not None and now is not None:
                yield from renamed_fields(before.type, now.type, (*path, before.name))
                if before.name != now.name:
                    yield (*path, before.name), now.name
