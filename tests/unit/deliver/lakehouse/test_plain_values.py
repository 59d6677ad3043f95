"""Every value goes to a lakehouse table and back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.deliver.lakehouse.plain_values import from_lake
from penstock.deliver.lakehouse.values import out_of_range, to_lake
from penstock.formats import avro
from penstock.model.change import Change, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import INT32, Type
from penstock.records.records import images
from tests.every_type import EVERY_TYPE


def plain(kind: Type, values: tuple[object, ...]) -> pa.Array:
    """Values as the rows of a table have them, with a null between any two."""
    schema = TableSchema(TableId("ks", "t"), (Column("k", INT32, Role.PARTITION), Column("v", kind)))
    several = [value for each in values for value in (each, None)]
    changes = [
        Change(Op.INSERT, {"k": number}, {} if value is None else {"v": Set(value)}, time=1, marker=Marker())
        for number, value in enumerate(several)
    ]
    return images(schema, avro.encode(schema, changes), 0).field("v")


def shown(values: pa.Array) -> str:
    """Values to compare by: a NaN is not equal to itself, and Python has not all days."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return repr(values.to_pylist())


@pytest.mark.parametrize(("kind", "values"), EVERY_TYPE, ids=lambda value: str(getattr(value, "kind", "")))
def test_what_came_from_a_plain_value_becomes_it_again(kind: Type, values: tuple[object, ...]) -> None:
    there = plain(kind, values)
    lake = to_lake(there, kind)
    back = from_lake(lake, kind, there.type)
    assert back.type == there.type
    if out_of_range(there, kind) is None:
        assert shown(back) == shown(there)
    # What cannot be held is null, and what is not null goes there once more.
    assert shown(to_lake(back.drop_null(), kind)) == shown(lake.filter(back.is_valid()))
    # A part of an array is as good as the whole.
    assert shown(from_lake(lake[1:], kind, there.type)) == shown(back[1:])
