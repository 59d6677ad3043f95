"""Changes as JSON."""

from __future__ import annotations

import ipaddress
import json
import math
import uuid
from decimal import Decimal
from typing import Any

import pytest

from bench.object_json import to_json
from penstock.formats.json import value_json
from penstock.model import types as t
from penstock.model.change import Change, Deleted, Deletion, Op, Set
from penstock.model.types import Duration, NdArray, TimeTz, Unit
from tests.every_type import every_type_table


@pytest.mark.parametrize(
    ("type_", "value", "shown"),
    [
        (t.BOOLEAN, True, True),
        (t.INT64, (1 << 63) - 1, 9223372036854775807),
        (t.VARINT, 10**4000, "1" + "0" * 4000),
        (t.DECIMAL, Decimal("-1.500"), "-1.500"),
        (t.DECIMAL, Decimal("1E+2147483648"), "1E+2147483648"),
        (t.FLOAT64, 0.1, 0.1),
        (t.FLOAT64, math.nan, "NaN"),
        (t.FLOAT32, -math.inf, "-Infinity"),
        (t.BYTES, b"\0\xff", "0x00ff"),
        (t.UUID, uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (t.INET, ipaddress.ip_address("::1"), "::1"),
        (t.DATE, 0, "1970-01-01"),
        (t.DATE, 2_932_896, "9999-12-31"),
        (t.DATE, 2_932_897, 2_932_897),
        (t.DATE, -719_163, -719_163),
        (t.time(Unit.NS), 1, "00:00:00.000000001"),
        (t.time(Unit.US), -1, -1),
        (t.time(Unit.US), 86_400_000_000, 86_400_000_000),
        (t.timestamp(Unit.MS), 1_700_000_000_123, "2023-11-14 22:13:20.123Z"),
        (t.timestamp(Unit.MS), -1, "1969-12-31 23:59:59.999Z"),
        (t.timestamp(Unit.S), 0, "1970-01-01 00:00:00Z"),
        (t.timestamp(Unit.MS), 1 << 62, 1 << 62),
        (t.datetime(Unit.US), 0, "1970-01-01 00:00:00.000000"),
        (t.time_tz(Unit.S), TimeTz(60, -3600), {"time": "00:01:00", "offset_s": -3600}),
        (t.duration(Unit.NS), Duration(14, 3, 3_723_004_005_006), "1y2mo3d1h2m3s4ms5us6ns"),
        (t.duration(Unit.NS), Duration(0, 0, 0), "0ns"),
        (t.duration(Unit.MS), Duration(-1, 0, -1), "-1mo1ms"),
        (t.duration(Unit.US), Duration(1, -1, 0), {"months": 1, "days": -1, "rest": 0, "unit": "us"}),
        (t.flags("a", "b"), ("a",), ["a"]),
        (t.list_of(t.INT8), (1, 2), [1, 2]),
        (t.map_of(t.TEXT, t.INT8), (("a", 1), ("b", None)), {"a": 1, "b": None}),
        (t.map_of(t.INT8, t.INT8), ((1, 2),), {"1": 2}),
        (t.map_of(t.INT8, t.INT8), ((1, 2), (1, 3)), [[1, 2], [1, 3]]),
        (t.tuple_of(t.INT8, t.TEXT), (1, None), [1, None]),
        (t.user("u", {"a": t.INT8}), (1,), {"a": 1}),
        (t.array(t.INT8), NdArray((2,), (1,), (1, None)), [1, None]),
        (t.array(t.INT8), NdArray((1,), (0,), (1,)), {"lengths": [1], "lower_bounds": [0], "items": [1]}),
    ],
)
def test_values_are_shown_as_documented(type_: t.Type, value: Any, shown: Any) -> None:
    assert value_json(type_, value) == shown


def test_null_deleted_and_absent_are_told_apart() -> None:
    schema, _ = every_type_table()
    names = [column.name for column in schema.cells[:3]]
    change = Change(Op.UPDATE, {"id": 1}, {names[0]: Set(None, 5), names[1]: Deleted(6, 7)}, deletion=Deletion(1))
    shown = to_json(change, schema)
    assert shown["cells"] == {
        names[0]: {"value": None, "time": 5},
        names[1]: {"deleted": True, "time": 6, "local_s": 7},
    }
    assert shown["deletion"] == {"time": 1}
    assert "before" not in shown
    assert "origin" not in shown


def test_every_change_can_be_dumped_and_different_changes_look_different() -> None:
    schema, changes = every_type_table()
    texts = [json.dumps(to_json(change, schema), allow_nan=False) for change in changes]
    assert len(set(texts)) == len(changes)
