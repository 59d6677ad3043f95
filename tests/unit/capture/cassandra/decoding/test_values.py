"""Values of every CQL type, from their bytes; and bytes that are no value of their type."""

from __future__ import annotations

import ipaddress
import struct
import uuid
from decimal import Decimal
from typing import Any

import pytest

from penstock.capture.cassandra.decoding.decoder import MemoryParking
from penstock.capture.cassandra.decoding.value_plan import fixed_bytes, value_plan
from penstock.errors import InvalidSchema
from penstock.model import types as t
from penstock.model.change import Set
from penstock.model.schema import Column, Role
from penstock.model.types import Duration, Type, Unit
from tests.mutation_bytes import (
    ALL,
    END,
    ROW_TIME,
    TIMED,
    counted,
    decoded,
    decoder,
    mutation,
    names,
    refusal,
    section,
    table,
    update,
    uv,
)

UNFIT = "a value does not fit its type"
ID = uuid.UUID("8f0d1860-0d3c-11f0-8000-000000000001")
PAIR = t.user("pair", {"a": t.INT32, "b": t.TEXT})


def sized(*values: bytes | None) -> bytes:
    """Values with lengths of four bytes, as they stand inside frozen types."""
    return b"".join(struct.pack(">i", -1) if v is None else struct.pack(">i", len(v)) + v for v in values)


def items(*values: bytes | None, count: int | None = None) -> bytes:
    return struct.pack(">i", len(values) if count is None else count) + sized(*values)


def written(kind: Type, value: bytes) -> tuple[Any, bytes]:
    """A table with one column of this type, and a mutation that sets it."""
    one = table(Column("k", t.INT32, Role.PARTITION), Column("v", kind))
    cell = value if fixed_bytes(kind) >= 0 else counted(value)
    row = bytes([TIMED | ALL]) + uv(5) + bytes([ROW_TIME]) + cell + END
    return one, mutation(update(one, bytes(4), row, columns=names("v")))


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (t.BOOLEAN, b"\0", False),
        (t.BOOLEAN, b"\1", True),
        (t.BOOLEAN, b"\x80", True),
        (t.INT8, b"\x80", -128),
        (t.INT8, b"\x7f", 127),
        (t.INT16, b"\xff\xfe", -2),
        (t.INT16, b"\x7f\xff", 32767),
        (t.INT32, b"\x80\0\0\0", -(1 << 31)),
        (t.INT64, b"\x7f" + b"\xff" * 7, (1 << 63) - 1),
        (t.INT64, b"\x80" + bytes(7), -(1 << 63)),
        (t.FLOAT32, struct.pack(">f", -1.5), -1.5),
        (t.FLOAT64, struct.pack(">d", 1e300), 1e300),
        (t.TEXT, "aé€😀".encode(), "aé€😀"),
        (t.TEXT, "plain text of some length é".encode(), "plain text of some length é"),
        (t.TEXT, b"", ""),
        (t.ASCII, b"~ ", "~ "),
        (t.ASCII, b"", ""),
        (t.BYTES, b"\xff\0", b"\xff\0"),
        (t.BYTES, b"", b""),
        (t.UUID, bytes(range(16)), uuid.UUID(bytes=bytes(range(16)))),
        (t.TIMEUUID, ID.bytes, ID),
        (t.VARINT, b"\0", 0),
        (t.VARINT, b"\xff\xff\x80", -128),
        (t.VARINT, b"\0\0\x80", 128),
        (t.VARINT, b"\0\x7f", 127),
        (t.VARINT, b"\x01" + bytes(20), 1 << 160),
        (t.DECIMAL, struct.pack(">i", 2) + b"\x07\xc6", Decimal("19.90")),
        (t.DECIMAL, struct.pack(">i", -3) + b"\xff", Decimal("-1E+3")),
        (t.DECIMAL, struct.pack(">i", 1), Decimal("0.0")),
        (t.INET, bytes([127, 0, 0, 1]), ipaddress.ip_address("127.0.0.1")),
        (t.INET, bytes(15) + b"\1", ipaddress.ip_address("::1")),
        (t.DATE, b"\x80\0\0\0", 0),
        (t.DATE, bytes(4), -(1 << 31)),
        (t.DATE, b"\xff" * 4, (1 << 31) - 1),
        (t.time(Unit.NS), struct.pack(">q", 5), 5),
        (t.timestamp(Unit.MS), struct.pack(">q", -5), -5),
        (t.duration(Unit.NS), b"\2\4\6", Duration(1, 2, 3)),
        (t.duration(Unit.NS), b"\1\3\5", Duration(-1, -2, -3)),
        (
            t.duration(Unit.NS),
            uv(0xFFFFFFFE) + uv(0xFFFFFFFE) + b"\xff" * 8 + b"\xfe",
            Duration((1 << 31) - 1, (1 << 31) - 1, (1 << 63) - 1),
        ),
        (t.list_of(t.INT32), items(bytes(4), b"\0\0\0\1"), (0, 1)),
        (t.list_of(t.INT32), items(), ()),
        (t.list_of(t.TEXT), items(b"", b"x"), ("", "x")),
        (t.set_of(t.TEXT), items(b"a"), ("a",)),
        (
            t.map_of(t.TEXT, t.INT32),
            struct.pack(">i", 3) + sized(b"a", bytes(4), b"b", None, b"", b""),
            (("a", 0), ("b", None), ("", None)),
        ),
        (t.tuple_of(t.INT32, t.TEXT), sized(bytes(4), b"x"), (0, "x")),
        (t.tuple_of(t.INT32, t.TEXT), sized(None, b""), (None, "")),
        (t.tuple_of(t.INT32, t.TEXT), sized(b""), (None, None)),
        (PAIR, sized(bytes(4)), (0, None)),
        (PAIR, sized(bytes(4), b"x"), (0, "x")),
        (t.user("none", {}), b"", None),
        (t.list_of(PAIR), items(sized(bytes(4)), sized(None, b"y")), ((0, None), (None, "y"))),
        (t.vector(t.FLOAT32, 2), struct.pack(">ff", 1, 2), (1.0, 2.0)),
        (t.vector(t.TEXT, 2), counted(b"a") + counted(b""), ("a", "")),
        (t.vector(t.INT8, 2), counted(b"\1") + counted(b"\2"), (1, 2)),
        (t.vector(t.vector(t.INT32, 2), 2), struct.pack(">iiii", 1, 2, 3, 4), ((1, 2), (3, 4))),
        (
            t.map_of(t.TEXT, t.list_of(t.set_of(t.INT32))),
            struct.pack(">i", 1) + sized(b"k", items(items(bytes(4)), items())),
            (("k", ((0,), ())),),
        ),
        # No bytes at all are null where no value has none.
        (t.VARINT, b"", None),
        (t.INET, b"", None),
        (t.list_of(t.INT32), b"", None),
    ],
)
def test_a_value_is_read(kind: Type, data: bytes, value: Any) -> None:
    one, payload = written(kind, data)
    (change,) = decoded([one], payload)
    assert change.cells == {"v": Set(value)}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (t.INT8, b"\0\0"),
        (t.INT16, b"\0"),
        (t.DATE, bytes(3)),
        (t.DATE, bytes(5)),
        (t.time(Unit.NS), bytes(7)),
        (t.TEXT, b"\xff"),
        (t.TEXT, b"abcdefgh\xc3"),
        (t.TEXT, b"\xc0\x80"),
        (t.TEXT, b"\xed\xa0\x80"),
        (t.TEXT, b"\xf5\x80\x80\x80"),
        (t.TEXT, b"\xe0\x80\x80"),
        (t.TEXT, b"\xf0\x80\x80\x80"),
        (t.TEXT, b"\xf4\x90\x80\x80"),
        (t.TEXT, b"\x80"),
        (t.TEXT, b"\xe2\x82"),
        (t.TEXT, b"\xf0\x9f\x98"),
        (t.ASCII, b"aaaaaaaa\x80"),
        (t.TIMEUUID, bytes(16)),
        (t.DECIMAL, b"\0\0\0"),
        (t.INET, bytes(5)),
        (t.duration(Unit.NS), b"\2\4"),
        (t.duration(Unit.NS), b"\2\4\6\0"),
        (t.duration(Unit.NS), b"\2\4\5"),
        (t.duration(Unit.NS), uv(1 << 33) + b"\0\0"),
        (t.duration(Unit.NS), b"\0\0\xff"),
        (t.list_of(t.INT32), b"\0"),
        (t.list_of(t.INT32), items(count=-1)),
        (t.list_of(t.INT32), items(count=1)),
        (t.list_of(t.INT32), items(bytes(4), count=(1 << 31) - 1)),
        (t.list_of(t.INT32), items(None)),
        (t.list_of(t.INT32), items(b"")),
        (t.list_of(t.INT32), items(bytes(3))),
        (t.list_of(t.INT32), items(bytes(4)) + b"\0"),
        (t.list_of(t.INT32), items(bytes(4), count=0)),
        (t.list_of(t.INT32), struct.pack(">ii", 1, 5) + bytes(4)),
        (t.map_of(t.TEXT, t.INT32), items(count=1)),
        (t.map_of(t.TEXT, t.INT32), struct.pack(">i", 1) + sized(None, bytes(4))),
        (t.map_of(t.TEXT, t.INT32), struct.pack(">i", 1) + sized(b"a", bytes(5))),
        (t.map_of(t.INT32, t.INT32), struct.pack(">i", 1) + sized(b"", bytes(4))),
        (t.map_of(t.TEXT, t.INT32), struct.pack(">i", 1) + sized(b"a", bytes(4)) + b"\0"),
        (t.tuple_of(t.INT32), sized(bytes(3))),
        (t.tuple_of(t.INT32), sized(bytes(4), bytes(4))),
        (t.tuple_of(t.INT32), b"\0\0\0"),
        (t.tuple_of(t.INT32), struct.pack(">i", 9) + bytes(4)),
        (t.vector(t.TEXT, 2), counted(b"a")),
        (t.vector(t.TEXT, 2), counted(b"a") * 3),
        (t.vector(t.TEXT, 2), counted(b"a") + b"\xff"),
        (t.vector(t.TEXT, 2), counted(b"a") + uv(5)),
        (t.vector(t.INT8, 2), counted(b"a") + counted(b"")),
    ],
)
def test_what_is_no_value_of_its_type_is_damage(kind: Type, data: bytes) -> None:
    one, payload = written(kind, data)
    assert refusal([one], payload) == UNFIT


def test_a_user_type_with_more_fields_than_known_waits_for_its_definition() -> None:
    one, payload = written(t.list_of(PAIR), items(sized(bytes(4), b"x", b"new")))
    parking = MemoryParking()
    made = decoder(one, parking=parking)
    made.decode(section(payload))
    assert made.damage == []
    assert [entry.reason for entry in parking.entries()] == ["a user type has a field that is not known"]


def test_fields_that_are_left_out_cannot_become_a_flood() -> None:
    wide = t.user("wide", {f"f{number}": t.INT32 for number in range(5000)})
    one, payload = written(t.list_of(wide), items(*[sized(None)] * 100_000))
    assert refusal([one], payload) == UNFIT


def test_only_types_that_cassandra_has_can_be_planned() -> None:
    with pytest.raises(InvalidSchema, match="Cassandra has no type"):
        value_plan([t.list_of(t.JSON)])
