"""Serialized values against known bytes of Cassandra, and orders against its comparators."""

from __future__ import annotations

from decimal import Decimal
from ipaddress import ip_address
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import InvalidValue
from penstock.merge.cql_value import Reversed, order_key, partition_id, serialized
from penstock.model import types
from penstock.model.schema import Column, Role
from penstock.model.types import Duration, NdArray, Type, Unit

EXAMPLES: list[tuple[Type, Any, str]] = [
    (types.BOOLEAN, True, "01"),
    (types.INT8, -1, "ff"),
    (types.INT16, 258, "0102"),
    (types.INT32, -2, "fffffffe"),
    (types.INT64, 1, "0000000000000001"),
    (types.FLOAT32, 1.5, "3fc00000"),
    (types.FLOAT64, -2.0, "c000000000000000"),
    (types.TEXT, "é", "c3a9"),
    (types.BYTES, b"\x00\xff", "00ff"),
    (types.VARINT, 0, "00"),
    (types.VARINT, 127, "7f"),
    (types.VARINT, 128, "0080"),
    (types.VARINT, -1, "ff"),
    (types.VARINT, -128, "80"),
    (types.VARINT, -129, "ff7f"),
    (types.DECIMAL, Decimal("1.5"), "000000010f"),
    (types.DECIMAL, Decimal("-1E+3"), "fffffffdff"),
    (types.DATE, 0, "80000000"),
    (types.DATE, -1, "7fffffff"),
    (types.timestamp(Unit.MS), 1, "0000000000000001"),
    (types.INET, ip_address("127.0.0.1"), "7f000001"),
    (types.UUID, UUID(int=1), "00" * 15 + "01"),
    (types.duration(Unit.NS), Duration(1, 2, 3), "020406"),
    (types.duration(Unit.NS), Duration(0, -1, 1_000_000_000), "0001f077359400"),
    (types.duration(Unit.NS), Duration(0, 0, (1 << 63) - 1), "0000fffffffffffffffffe"),
    (types.list_of(types.INT8), (1, 2), "00000002" + "0000000101" + "0000000102"),
    (types.set_of(types.INT8), (2, 1), "00000002" + "0000000101" + "0000000102"),
    (
        types.map_of(types.INT8, types.TEXT),
        ((2, "b"), (1, "a")),
        "00000002" + "0000000101000000016100000001020000000162",
    ),
    (types.tuple_of(types.INT8, types.TEXT), (None, "a"), "ffffffff" + "0000000161"),
    (types.vector(types.FLOAT32, 2), (1.0, 2.0), "3f80000040000000"),
    # Small integers have no fixed length for Cassandra, so each element says its own.
    (types.vector(types.INT8, 2), (1, 2), "01010102"),
    (types.vector(types.vector(types.INT32, 1), 2), ((1,), (2,)), "0000000100000002"),
    (types.vector(types.TEXT, 2), ("", "a" * 200), "00" + "80c8" + "61" * 200),
]


@pytest.mark.parametrize(("kind", "value", "wanted"), EXAMPLES, ids=lambda item: str(item)[:30])
def test_values_have_the_bytes_that_cassandra_stores(kind: Type, value: Any, wanted: str) -> None:
    assert serialized(kind, value).hex() == wanted


def test_other_databases_types_have_stable_and_different_forms() -> None:
    array = types.array(types.INT32)
    assert serialized(array, NdArray((1,), (1,), (5,))) != serialized(array, NdArray((1,), (0,), (5,)))
    assert serialized(types.BITS, "101") != serialized(types.BITS, "11")
    assert serialized(types.TEXT, None) == b""


def test_a_value_of_another_type_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidValue) as caught:
        serialized(types.INT8, 70_000)
    assert "70000" not in str(caught.value)
    with pytest.raises(InvalidValue):
        serialized(types.DECIMAL, Decimal("NaN"))


def test_floats_sort_as_java_sorts_them() -> None:
    values = [float("nan"), 1.0, 0.0, -0.0, float("-inf")]
    ordered = sorted(values, key=lambda value: order_key(types.FLOAT64, value))
    assert [str(value) for value in ordered] == ["-inf", "-0.0", "0.0", "1.0", "nan"]


def test_uuids_sort_by_version_and_time_based_ones_by_time() -> None:
    early = UUID("ffffffff-0000-1000-8000-000000000000")
    late = UUID("00000000-0001-1000-8000-000000000000")
    random = UUID("00000000-0000-4000-8000-000000000000")
    assert sorted([random, late, early], key=lambda one: order_key(types.UUID, one)) == [early, late, random]


def test_timeuuids_of_one_time_compare_their_low_half_as_signed_bytes() -> None:
    negative = UUID("00000000-0000-1000-8000-0000000000ff")
    positive = UUID("00000000-0000-1000-8000-000000000001")
    assert sorted([positive, negative], key=lambda one: order_key(types.TIMEUUID, one)) == [negative, positive]
    assert sorted([positive, negative], key=lambda one: order_key(types.UUID, one)) == [positive, negative]


def test_nulls_in_tuples_come_first() -> None:
    kind = types.tuple_of(types.INT32)
    assert order_key(kind, (None,)) < order_key(kind, (-5,))


def test_reversed_keys_turn_every_comparison_round() -> None:
    assert Reversed(2) < Reversed(1)
    assert Reversed(1) > Reversed(2)
    assert Reversed(1) <= Reversed(1) >= Reversed(1)
    assert hash(Reversed(1)) == hash(Reversed(1))
    assert Reversed(1) != 1


def test_composite_partition_keys_cannot_be_confused() -> None:
    columns = (Column("a", types.TEXT, Role.PARTITION), Column("b", types.TEXT, Role.PARTITION))
    assert partition_id(columns, {"a": "x", "b": "yz"}) != partition_id(columns, {"a": "xy", "b": "z"})
    assert partition_id(columns[:1], {"a": "x"}) == b"x"
