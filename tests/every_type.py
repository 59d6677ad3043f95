"""Every kind of column with values at its edges, and a table that has a column of each."""

from __future__ import annotations

import ipaddress
import math
import uuid
from decimal import Context, Decimal
from typing import Any

from penstock.model import types as t
from penstock.model.change import (
    Bound,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Origin,
    Range,
    Removed,
    Set,
    Transaction,
)
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Duration, Kind, NdArray, TimeTz, Type, Unit

_TIME_UUID = uuid.UUID("5132b130-ae79-11e4-ab27-0800200c9a66")
_ADDRESS = t.user("address", {"street": t.TEXT, "no": t.INT32, "zip code": t.list_of(t.ASCII)})
_WIDE = Context(prec=100)
_INT64 = (-(1 << 63), -1, 0, 1, (1 << 63) - 1)
_INT32 = (-(1 << 31), 0, (1 << 31) - 1)

EVERY_TYPE: list[tuple[Type, tuple[Any, ...]]] = [
    (t.BOOLEAN, (True, False)),
    (t.INT8, (-128, 0, 127)),
    (t.INT16, (-(1 << 15), (1 << 15) - 1)),
    (t.INT32, _INT32),
    (t.INT64, _INT64),
    (t.UINT8, (0, 255)),
    (t.UINT16, (0, (1 << 16) - 1)),
    (t.UINT32, (0, (1 << 32) - 1)),
    (t.UINT64, (0, 1, 127, 128, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)),
    (t.COUNTER, _INT64),
    (t.VARINT, (0, -1, 127, 128, -128, -129, 1 << 900, -(1 << 900))),
    (t.FLOAT32, (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1.401298464324817e-45)),
    (t.FLOAT64, (0.0, -0.0, 0.1, math.inf, -math.inf, math.nan, 5e-324)),
    (
        t.DECIMAL,
        (Decimal(0), Decimal("1E+2147483648"), Decimal("-123.4500"), Decimal("1E-2147483647"), Decimal(1 << 500)),
    ),
    (t.fixed_decimal(5, 2), (Decimal("999.99"), Decimal("-999.99"), Decimal("0.00"))),
    (t.fixed_decimal(38, 0), (Decimal(10**38 - 1), Decimal(1 - 10**38))),
    (t.fixed_decimal(65, 30), (Decimal(10**65 - 1).scaleb(-30, _WIDE),)),
    (t.fixed_decimal(90, 10), (Decimal(10**90 - 1).scaleb(-10, _WIDE), Decimal("-0.0000000001"))),
    (t.NUMERIC, ("NaN", "Infinity", "-1.50")),
    (t.TEXT, ("", "x", "żółć \U0001f30a", "\0")),
    (t.ASCII, ("", "plain")),
    (t.JSON, ("{}", '{"a": [1, 2.50]}')),
    (t.BYTES, (b"", b"\0\xff", bytes(range(256)))),
    (t.UUID, (uuid.UUID(int=0), uuid.UUID(int=(1 << 128) - 1))),
    (t.TIMEUUID, (_TIME_UUID,)),
    (t.INET, (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("2001:db8::1"))),
    (t.DATE, (-(1 << 31), -1, 0, 2_932_897, (1 << 31) - 1)),
    (t.CIVIL_DATE, ("0000-00-00", "2024-02-00")),
    (t.CIVIL_DATETIME, ("0000-00-00 00:00:00",)),
    (t.time(Unit.US), (-3_020_399_000_000, 0, 3_020_399_000_000)),
    (t.time(Unit.NS), (0, 86_399_999_999_999)),
    (t.time_tz(Unit.US), (TimeTz(0, -57_599), TimeTz(86_400_000_000, 57_599))),
    (t.timestamp(Unit.S), (0, 253_402_300_800)),
    (t.timestamp(Unit.MS), _INT64),
    (t.timestamp(Unit.US), _INT64),
    (t.timestamp(Unit.NS), _INT64),
    (t.datetime(Unit.US), _INT64),
    (t.duration(Unit.NS), (Duration(0, 0, 0), Duration(14, -3, 5), Duration(-(1 << 31), -(1 << 31), -(1 << 63)))),
    (t.enum("new", "paid & sent"), ("new", "paid & sent", "")),
    (t.flags("a", "b"), ((), ("a",), ("a", "b"))),
    (t.BITS, ("", "0101")),
    (t.OTHER, ("(1,2)",)),
    (t.list_of(t.INT32), ((), (1, 2, 2), tuple(range(100)))),
    (t.set_of(t.TEXT), ((), ("a", "b"))),
    (t.map_of(t.TEXT, t.VARINT), ((), (("a", 1), ("b", None)))),
    (t.map_of(t.tuple_of(t.INT32, t.TEXT), t.list_of(t.UUID)), ((((1, None), (uuid.UUID(int=3),)),),)),
    (t.tuple_of(t.INT32, t.TEXT, t.DECIMAL), ((None, None, None), (1, "x", Decimal("0.10")))),
    (_ADDRESS, ((None, None, None), ("Elm", 7, ("a", "b")))),
    (t.user("nothing", {}), ((),)),
    (t.vector(t.FLOAT32, 3), ((0.5, -1.0, math.inf),)),
    (t.array(t.TEXT), (NdArray((), (), ()), NdArray((2, 2), (1, -5), ("a", None, "c", "")))),
    (t.list_of(t.map_of(t.INT32, t.set_of(t.DATE))), ((((1, (0, 1)), (2, None)), ()),)),
]
MULTI_CELL: list[tuple[Type, tuple[Any, ...]]] = [
    (t.list_of(t.TEXT, multi_cell=True), (Delta(None, (Element(_TIME_UUID, "x", 5),), (Removed(_TIME_UUID, 6, 7),)),)),
    (t.set_of(t.INET, multi_cell=True), (Delta(Deletion(4, 1), (Element(ipaddress.ip_address("::1")),)), Delta())),
    (
        t.map_of(t.TEXT, t.UINT64, multi_cell=True),
        (Delta(Deletion(4), (Element("k", (1 << 64) - 1, 5, Expiry(60, 99)), Element("n", None)), (Removed("g"),)),),
    ),
    (
        t.user("person", {"name": t.TEXT, "home": _ADDRESS}, multi_cell=True),
        (Delta(None, (Element(1, ("Oak", None, None)), Element(0, None, 9)), (Removed(0, 1, 2),)),),
    ),
    (t.SHARDED_COUNTER, (Delta(None, (Element(uuid.UUID(int=5), (3, -7)), Element(_TIME_UUID, (1 << 60, 9)))),)),
]


def every_type_table() -> tuple[TableSchema, list[Change]]:
    """A table with a column of every type (as key, as cell and as clustering column) and changes of every shape."""
    columns = [
        Column("id", t.INT64, Role.PARTITION),
        Column("at", t.timestamp(Unit.MS), Role.CLUSTERING, descending=True),
    ]
    columns.append(Column("part of the key", _ADDRESS, Role.CLUSTERING))
    columns.append(Column("owner", t.TEXT, Role.STATIC))
    examples = EVERY_TYPE + MULTI_CELL
    columns += [Column(f"c{number} {type_.kind}", type_) for number, (type_, _) in enumerate(examples)]
    schema = TableSchema(TableId("ks", "every"), tuple(columns), source="sandbox")
    changes = []
    for row in range(max(len(values) for _, values in examples)):
        cells: dict[str, Any] = {}
        before: dict[str, Any] = {}
        for number, (type_, values) in enumerate(examples):
            name = f"c{number} {type_.kind}"
            value = values[row % len(values)]
            if type_.multi_cell:
                cells[name] = value
            else:
                cells[name] = Set(value, row or None, Expiry(row, 10 * row) if row % 2 else None)
                before[name] = values[(row + 1) % len(values)]
        key = {"id": row, "at": 1000 + row, "part of the key": ("Elm", row, None)}
        transaction = Transaction("0", row // 2, f"0-1-{row // 2}")
        origin = Origin("n1", "dc1", "log.1", 100 * row, transaction, row)
        changes.append(
            Change(Op.INSERT, key, cells, row, row + 1, row + 2, Marker(row, Expiry(1, 2)), None, None, before, origin)
        )
    bound = Bound((1000,), True)
    first, second = f"c0 {Kind.BOOLEAN}", f"c1 {Kind.INT8}"
    changes += [
        Change(Op.UPDATE, {"id": 1}, {"owner": Set(None), first: Deleted(3, 4), second: Deleted()}),
        Change(Op.DELETE, {"id": 1, "at": 5}, deletion=Deletion(8, 9), before={}),
        Change(Op.DELETE_RANGE, {"id": 1}, range=Range(bound, Bound((2000, ("Oak", None, ())), False))),
        Change(Op.DELETE_RANGE, {"id": 1}, range=Range(None, None), marker=Marker()),
        Change(Op.DELETE_PARTITION, {"id": 1}, deletion=Deletion(8)),
        Change(Op.TRUNCATE, time=5),
        Change(Op.SNAPSHOT, {"id": 2}, origin=Origin(ordinal=1)),
    ]
    return schema, changes
