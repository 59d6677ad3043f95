"""Values in lakehouse types: every type at its edges, against a plain conversion value by value."""

from __future__ import annotations

import random
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.deliver.lakehouse.types import lake_type, merged
from penstock.deliver.lakehouse.values import fit, out_of_range, to_lake
from penstock.formats import avro
from penstock.formats.arrow import to_arrow
from penstock.model import types as t
from penstock.model.change import Change, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Kind, Type, Unit
from tests.every_type import EVERY_TYPE

_AS_TEXT = {Kind.VARINT, Kind.DECIMAL, Kind.UUID, Kind.TIMEUUID, Kind.INET}


def plain(type_: Type, *values: Any) -> pa.Array:
    """Values of a column as records have them."""
    schema = TableSchema(
        TableId("k", "t"), (Column("id", t.INT64, Role.PARTITION), Column("c", type_)), source="sandbox"
    )
    changes = [Change(Op.INSERT, {"id": number}, {"c": Set(value)}) for number, value in enumerate(values)]
    return to_arrow(avro.encode(schema, changes)).column("cells").field("c").field("value")


def expected(type_: Type, value: Any) -> Any:
    """What a reader sees of a value, made without Arrow."""
    if value is None:
        return None
    kind, inner = type_.kind, type_.elements
    if kind is Kind.UINT64:
        return Decimal(value)
    if kind in _AS_TEXT or (kind is Kind.FIXED_DECIMAL and type_.precision > 38):
        return str(value)
    if kind in (Kind.LIST, Kind.SET, Kind.VECTOR):
        return [expected(inner[0], item) for item in value]
    if kind is Kind.FLAGS:
        return list(value)
    if kind is Kind.MAP:
        return [(expected(inner[0], key), expected(inner[1], item)) for key, item in value]
    if kind in (Kind.TUPLE, Kind.USER):
        names = type_.names or [f"f{number}" for number in range(len(inner))]
        return {name: expected(part, item) for name, part, item in zip(names, inner, value, strict=True)} or {
            "empty": None
        }
    if kind is Kind.ARRAY:
        items = [expected(inner[0], item) for item in value.items]
        return {"lengths": list(value.lengths), "lower_bounds": list(value.lower_bounds), "items": items}
    if kind in (Kind.DURATION, Kind.TIME_TZ):
        return value._asdict()
    return value


def shown(type_: Type, values: pa.Array) -> Any:
    """Dates and times as the numbers that they are; all else as Python shows it."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).to_pylist()
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64()).to_pylist()
    if pa.types.is_list(values.type) and type_.kind in (Kind.LIST, Kind.SET):
        return [None if one is None else shown(type_.elements[0], one) for one in _lists(values)]
    if pa.types.is_map(values.type):
        return [None if one is None else _pairs(type_, one) for one in _lists(values)]
    return values.to_pylist()


def _lists(values: pa.Array) -> list[Any]:
    return [scalar.values if scalar.is_valid else None for scalar in values]


def _pairs(type_: Type, entries: pa.StructArray) -> list[Any]:
    keys, items = shown(type_.elements[0], entries.field(0)), shown(type_.elements[1], entries.field(1))
    return list(zip(keys, items, strict=True))


def _in_micros(type_: Type, value: int) -> int | None:
    micros = value * {Unit.S: 1_000_000, Unit.MS: 1000}.get(type_.unit or Unit.US, 1)
    return micros if -(1 << 63) <= micros < 1 << 63 else None


@pytest.mark.parametrize(
    ("type_", "values"), EVERY_TYPE, ids=[f"{n}-{type_.kind}" for n, (type_, _) in enumerate(EVERY_TYPE)]
)
def test_every_type_keeps_its_values(type_: Type, values: tuple[Any, ...]) -> None:
    given = plain(type_, *values)
    found = to_lake(given, type_)
    assert found.type == lake_type(type_)
    found.validate(full=True)
    wanted = [expected(type_, value) for value in values]
    if type_.kind in (Kind.TIMESTAMP, Kind.DATETIME) and type_.unit is not Unit.NS:
        wanted = [_in_micros(type_, value) for value in values]
    assert repr(shown(type_, found)) == repr(wanted)
    # A part of an array, and one with nulls before and after, give the same.
    padded = pa.concat_arrays([pa.nulls(2, given.type), given, pa.nulls(1, given.type)])
    assert repr(shown(type_, to_lake(padded, type_).slice(2, len(values)))) == repr(wanted)
    assert repr(shown(type_, to_lake(padded.slice(2, len(values)), type_))) == repr(wanted)
    assert to_lake(padded, type_).null_count == found.null_count + 3


def test_usual_decimals_are_written_as_python_writes_them() -> None:

    rng = random.Random(5)
    values = [Decimal(rng.randrange(-(10**17), 10**17)).scaleb(-rng.randrange(0, 12)) for _ in range(300)]
    values += [Decimal(f"{sign}0.{'0' * zeros}1") for sign in ("", "-") for zeros in range(9)]
    assert to_lake(plain(t.DECIMAL, *values), t.DECIMAL).to_pylist() == [str(value) for value in values]


def test_times_beyond_microseconds_are_told_apart() -> None:
    limit = ((1 << 63) - 1) // 1000
    type_ = t.timestamp(Unit.MS)
    given = plain(type_, 0, limit, limit + 1, -limit, -limit - 1)
    assert out_of_range(given, type_).tolist() == [False, False, True, False, True]
    assert to_lake(given, type_).is_null().to_pylist() == [False, False, True, False, True]
    assert out_of_range(given.slice(0, 2), type_) is None
    assert out_of_range(plain(t.INT64, 1 << 62), t.INT64) is None


def test_values_fit_into_wider_columns_and_structs_with_more_fields() -> None:
    assert fit(pa.array([1, None], pa.int32()), pa.int64()).to_pylist() == [1, None]
    assert fit(pa.array([1.5], pa.float32()), pa.float64()).to_pylist() == [1.5]
    wide = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("x", pa.string()), ("y", pa.int32())])))])
    narrow = pa.array([{"b": [{"x": "t"}]}, None], pa.struct([("b", pa.list_(pa.struct([("x", pa.string())])))]))
    assert fit(narrow, wide).to_pylist() == [{"a": None, "b": [{"x": "t", "y": None}]}, None]
    both = fit(
        pa.array([[("k", {"x": "t"})]], pa.map_(pa.string(), narrow.type[0].type.value_type)),
        pa.map_(pa.string(), wide[1].type.value_type),
    )
    assert both.to_pylist() == [[("k", {"x": "t", "y": None})]]


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int32(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), pa.decimal128(9, 2)),
        (pa.decimal128(5, 2), pa.decimal128(5, 4), pa.decimal128(7, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 38), None),
        (pa.int64(), pa.float64(), None),
        (pa.string(), pa.int64(), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), None),
        (
            pa.struct([("a", pa.int32())]),
            pa.struct([("a", pa.int32()), ("b", pa.int32())]),
            pa.struct([("a", pa.int32()), ("b", pa.int32())]),
        ),
        # Fields of a user type can only be renamed, or follow the others.
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())]), pa.struct([("b", pa.int32())])),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.string())]), None),
    ],
    ids=str,
)
def test_types_merge_only_where_nothing_is_lost(old: pa.DataType, new: pa.DataType, both: pa.DataType | None) -> None:
    assert merged(old, new) == both


def test_conversion_of_many_values_needs_no_python_object_each() -> None:
    count = 50_000
    raw = np.random.default_rng(1).integers(0, 256, (count, 16), np.uint8)
    given = pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(raw)])
    found = to_lake(given, t.UUID)

    assert found[17].as_py() == str(uuid.UUID(bytes=raw[17].tobytes()))
    assert found[count - 1].as_py() == str(uuid.UUID(bytes=raw[-1].tobytes()))
