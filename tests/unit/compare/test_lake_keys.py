"""Keys of lakehouse tables come back as the values that they were made of; what is no key of ours is told apart."""

from __future__ import annotations

import ipaddress
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.compare.lake_keys import check_keys, plain_keys
from penstock.deliver.lakehouse.values import out_of_range, to_lake
from penstock.errors import InvalidInput
from penstock.formats import avro
from penstock.formats.arrow import to_arrow
from penstock.model import types
from penstock.model.change import Change, Op
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Kind, Type, Unit
from tests.every_type import EVERY_TYPE

SOME_UUID = UUID("3b241101-e2bb-4255-8caf-4136c566a962")
VALUES: list[tuple[Type, list[Any]]] = [
    (types.BOOLEAN, [True, False]),
    (types.INT8, [-128, 127]),
    (types.INT16, [-(1 << 15), 7]),
    (types.INT32, [-5, 1 << 30]),
    (types.INT64, [-(1 << 63), (1 << 63) - 1]),
    (types.VARINT, [0, -1, 127, 128, -128, -129, 10**40, -(10**40)]),
    (types.FLOAT32, [1.5, -0.0]),
    (types.FLOAT64, [1e300, float("-inf")]),
    (
        types.DECIMAL,
        [Decimal("1.50"), Decimal("-0.000000001"), Decimal("1E+9"), Decimal("12345678901234567890.1"), Decimal(0)],
    ),
    (types.TEXT, ["", "a|\\'\u2028"]),
    (types.ASCII, ["x"]),
    (types.BYTES, [b"", b"\x00\xff"]),
    (types.UUID, [SOME_UUID]),
    (types.TIMEUUID, [UUID("d2177dd0-eaa2-11de-a572-001b779c76e3")]),
    (types.INET, [ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("2001:db8::1")]),
    (types.DATE, [0, -719_162, 40_000_000]),
    (types.time(Unit.NS), [0, 86_399_999_999_999]),
    (types.timestamp(Unit.MS), [0, -1, 1_700_000_000_123, 300_000_000_000_000]),
]


_NO_KEYS = {Kind.COUNTER, Kind.DURATION, Kind.TIME_TZ, Kind.FLAGS}
SCALARS = [
    (type_, [value for value in values if value == value])
    for type_, values in EVERY_TYPE
    if not type_.elements and type_.kind not in _NO_KEYS
]


def schema_of(type_: Type) -> TableSchema:
    return TableSchema(TableId("k", "t"), (Column("id", type_, Role.PARTITION), Column("v", types.TEXT)))


def plain(type_: Type, values: list[Any]) -> pa.Array:
    schema = schema_of(type_)
    return to_arrow(avro.encode(schema, [Change(Op.INSERT, {"id": value}) for value in values])).column("key").field(0)


@pytest.mark.parametrize(
    ("type_", "values"),
    [*VALUES, *SCALARS],
    ids=[f"{number}-{one[0].kind}" for number, one in enumerate([*VALUES, *SCALARS])],
)
def test_keys_of_every_scalar_type_come_back(type_: Type, values: list[Any]) -> None:
    wanted = plain(type_, values)
    outside = out_of_range(wanted, type_)
    if outside is not None:
        # No table has a key that it cannot hold.
        wanted = wanted.filter(pa.array(~outside))
    found = pa.table({"id": to_lake(wanted, type_)})
    made, fits = plain_keys(schema_of(type_), found)
    assert fits.all()
    assert made.field(0).equals(wanted)


@given(st.lists(st.integers(), min_size=1), st.lists(st.decimals(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_of_any_size_come_back(integers: list[int], decimals: list[Decimal]) -> None:
    for type_, values in ((types.VARINT, integers), (types.DECIMAL, [value + 0 for value in decimals])):
        wanted = plain(type_, values)
        made, fits = plain_keys(schema_of(type_), pa.table({"id": to_lake(wanted, type_)}))
        assert fits.all()
        assert made.field(0).equals(wanted)


@pytest.mark.parametrize(
    ("type_", "found"),
    [
        (types.UUID, pa.array([str(SOME_UUID), "x", None, str(SOME_UUID).upper()])),
        (types.VARINT, pa.array(["7", "seven", None, "007"])),
        (types.DECIMAL, pa.array(["1.0", "NaN", None, "+1.0"])),
        (types.INET, pa.array(["::1", "nowhere", None, "0:0::1"])),
        (types.INT8, pa.array([1, 1000, None, -1000], pa.int32())),
        (
            types.timestamp(Unit.MS),
            pa.array([1_000, 1_001, None, -1], pa.timestamp("us", "UTC")),
        ),
    ],
    ids=["uuid", "varint", "decimal", "inet", "tinyint", "timestamp"],
)
def test_what_the_source_cannot_have_as_a_key_is_told_apart(type_: Type, found: pa.Array) -> None:
    _, fits = plain_keys(schema_of(type_), pa.table({"id": found}))
    assert fits.tolist() == [True, False, False, False]


def test_keys_made_of_several_values_are_refused() -> None:
    check_keys(schema_of(types.INT64))
    with pytest.raises(InvalidInput, match=r"table k\.t, column id"):
        check_keys(schema_of(types.tuple_of(types.INT32, types.TEXT)))
