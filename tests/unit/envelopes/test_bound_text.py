"""Bounds of ranges as text. The wanted texts are what `getString` of Cassandra 5.0's own types gave."""

from __future__ import annotations

import ipaddress
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.envelopes.range_bounds import bound_text, bound_texts, range_bounds
from penstock.formats import avro
from penstock.formats.arrow import change_columns
from penstock.formats.arrow_plan import plan
from penstock.model import types as t
from penstock.model.change import Bound, Change, Deletion, Op, Range
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Kind, Type, Unit
from tests.kafka_records import WRITTEN_US, json_events, records_of

_TIMESTAMP = Type(Kind.TIMESTAMP, unit=Unit.MS)
_UUID = "550e8400-e29b-41d4-a716-446655440000"


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (_TIMESTAMP, 0, "1970-01-01T00:00:00.000Z"),
        (_TIMESTAMP, 1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (Type(Kind.DATE), 19000, "2022-01-08"),
        (Type(Kind.TIME, unit=Unit.NS), 3_661_000_000_123, "01:01:01.000000123"),
        (Type(Kind.FLOAT32), 1.5, "1.5"),
        (Type(Kind.FLOAT32), 0.10000000149011612, "0.1"),
        (Type(Kind.FLOAT32), 1.0000000200408773e20, "1.0E20"),
        (Type(Kind.FLOAT64), 100.0, "100.0"),
        (Type(Kind.FLOAT64), 1e-5, "1.0E-5"),
        (Type(Kind.FLOAT64), -1.25e21, "-1.25E21"),
        (Type(Kind.FLOAT64), float("nan"), "NaN"),
        (Type(Kind.FLOAT64), float("-inf"), "-Infinity"),
        (Type(Kind.DECIMAL), Decimal("1.50"), "1.50"),
        (Type(Kind.DECIMAL), Decimal("1E+3"), "1E+3"),
        (Type(Kind.VARINT), 123456789012345678901234567890, "123456789012345678901234567890"),
        (t.INT64, 9_007_199_254_740_993, "9007199254740993"),
        (Type(Kind.BOOLEAN), True, "true"),
        (Type(Kind.BYTES), b"\x01\xab", "01ab"),
        (Type(Kind.INET), ipaddress.ip_address("127.0.0.1"), "127.0.0.1"),
        (Type(Kind.INET), ipaddress.ip_address("2001:db8::1"), "2001:db8:0:0:0:0:0:1"),
        (Type(Kind.UUID), uuid.UUID(_UUID), _UUID),
        (t.TEXT, 'a"b c', 'a"b c'),
    ],
)
def test_a_bound_has_the_text_that_cassandra_gives_its_value(type_: Type, value: Any, text: str) -> None:
    assert bound_text(type_, value) == text


_MANY = {
    t.TEXT: st.text(max_size=8),
    t.INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    t.INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    Type(Kind.DATE): st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-719_164, 2_932_898),
    **{
        Type(Kind.TIMESTAMP, unit=unit): st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(10**13), 10**13)
        for unit in Unit
    },
}


@pytest.mark.parametrize("type_", _MANY, ids=str)
@given(data=st.data())
def test_many_bounds_at_once_have_the_texts_that_each_has(type_: Type, data: st.DataObject) -> None:
    values = data.draw(st.lists(_MANY[type_] | st.none(), max_size=5))
    shape = plan(TableSchema(TableId("lab", "t"), (Column("k", type_, Role.PARTITION),))).schema
    written = bound_texts(type_, pa.array(values, shape.field("key").type.field("k").type))
    if written is None:
        # A date that does not fit the usual form.
        assert any(value is not None and bound_text(type_, value).lstrip("-").isdecimal() for value in values)
        return
    assert written.to_pylist() == [None if value is None else bound_text(type_, value) for value in values]


def test_bounds_of_all_kinds_stand_where_their_changes_do() -> None:
    columns = (
        Column("a", t.INT32, Role.PARTITION),
        Column("b", t.TEXT, Role.CLUSTERING),
        Column("at", _TIMESTAMP, Role.CLUSTERING, descending=True),
    )
    ends = [None, Bound(("x",), True), Bound(("y", 5), False), Bound((), True)]
    # One that has no date lets all be written one by one.
    odd = Bound(("z", 1 << 62), True)
    for more in (ends, [*ends, odd]):
        table = TableSchema(TableId("lab", "times"), columns, source="cassandra")
        changes = [
            Change(Op.DELETE_RANGE, {"a": 1}, range=Range(start, end), time=5, deletion=Deletion(5, 1))
            for start in more
            for end in more
        ]
        changes.insert(3, Change(Op.INSERT, {"a": 1, "b": "n", "at": 0}, time=4))
        batch = avro.encode(table, changes)
        made = range_bounds(table, batch, change_columns(batch, frozenset({"range"})).array(("range",)))
        for name, field in (("_range_start", "start"), ("_range_end", "end")):
            for change, found in zip(changes, made[name].to_pylist(), strict=True):
                bound = getattr(change.range, field, None)
                assert (found is None) == (bound is None)
                if bound is not None:
                    assert found["method"] == f"{'INCL' if bound.inclusive else 'EXCL'}_{field.upper()}_BOUND"
                    texts = [bound_text(c.type, v) for c, v in zip(columns[1:], bound.values, strict=False)]
                    assert [value["value"] for value in found["values"]] == texts
                    assert [value["name"] for value in found["values"]] == ["b", "at"][: len(texts)]
                    assert [value["type"].count("Reversed") for value in found["values"]] == [0, 1][: len(texts)]


def test_a_range_of_timestamps_is_written_with_a_t_as_debezium_writes_it() -> None:
    table = TableSchema(
        TableId("lab", "times"),
        (Column("a", t.INT32, Role.PARTITION), Column("at", _TIMESTAMP, Role.CLUSTERING), Column("v", t.TEXT)),
        source="cassandra",
    )
    bounds = Range(Bound((0,), True), None)
    change = Change(Op.DELETE_RANGE, {"a": 1}, time=WRITTEN_US, deletion=Deletion(9, 1), range=bounds)
    [(_, value)] = json_events(records_of(table, [change]))
    [found] = value["after"]["_range_start"]["values"]
    assert found["value"] == "1970-01-01T00:00:00.000Z"
    assert value["after"]["_range_end"] is None
