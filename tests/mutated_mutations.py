"""Small mutations that together have every type and every kind of change, and ways to spoil them."""

from __future__ import annotations

import ipaddress
import uuid
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.model import types as t
from penstock.model.change import (
    Bound,
    Cell,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Range,
    Removed,
    Set,
)
from penstock.model.schema import Column, Role
from penstock.model.types import Duration, Type, Unit
from penstock.sandbox.commit_log.mutation import encode_mutation
from tests.mutation_bytes import table

TIME = 1_700_000_000_000_000
SECOND = 1_700_000_000
ID = uuid.UUID("8f0d1860-0d3c-11f0-8000-000000000001")
# Where an update's key begins at the latest: behind the mutation's flags, count and table id.
_ID_END = 18
# Numbers at the edges, as the log writes them.
EDGES = (
    b"\0",
    b"\1",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 9,
    b"\xff" + bytes(8),
    b"\xf0\x7f\xff\xff\xff",
    b"\xf0\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\0",
)
_PAIR = t.user("pair", {"a": t.INT32, "b": t.TEXT})
_VALUES: list[tuple[Type, Any]] = [
    (t.BOOLEAN, True),
    (t.INT8, -3),
    (t.INT16, 300),
    (t.INT32, 7),
    (t.INT64, 1 << 40),
    (t.FLOAT32, 1.5),
    (t.FLOAT64, 2.5),
    (t.TEXT, "añb"),
    (t.ASCII, "ascii"),
    (t.BYTES, b"\0\xff"),
    (t.UUID, uuid.UUID(int=5)),
    (t.TIMEUUID, ID),
    (t.VARINT, -(1 << 70)),
    (t.DECIMAL, Decimal("19.90")),
    (t.INET, ipaddress.ip_address("::1")),
    (t.DATE, 19000),
    (t.time(Unit.NS), 86_000),
    (t.timestamp(Unit.MS), 1_700_000_000_000),
    (t.duration(Unit.NS), Duration(1, 2, 3)),
    (t.list_of(t.INT32), (1, 2)),
    (t.set_of(t.TEXT), ("a", "b")),
    (t.map_of(t.TEXT, t.INT32), (("a", 1),)),
    (t.tuple_of(t.INT32, t.TEXT), (1, None)),
    (_PAIR, (4, "x")),
    (t.list_of(_PAIR), ((1, "y"), (None, None))),
    (t.vector(t.FLOAT32, 2), (0.5, 1.0)),
    (t.vector(t.TEXT, 2), ("p", "q")),
]
_DELTAS: list[tuple[Type, Delta]] = [
    (t.list_of(t.INT32, multi_cell=True), Delta(None, (Element(ID, 5),))),
    (t.set_of(t.TEXT, multi_cell=True), Delta(Deletion(TIME - 1, SECOND), (Element("e", expiry=Expiry(9, SECOND)),))),
    (t.map_of(t.TEXT, t.INT64, multi_cell=True), Delta(None, (Element("k", 1),), (Removed("gone", TIME, SECOND),))),
    (
        t.user("pair", {"a": t.INT32, "b": t.TEXT}, multi_cell=True),
        Delta(None, (Element(0, 3),), (Removed(1, TIME, SECOND),)),
    ),
]


def _scalars(first: int, number: int) -> tuple[CassandraTable, list[Change]]:
    """A table of some types, and rows of it."""
    part = _VALUES[first : first + 7]
    key, (kind, value) = Column("k", t.INT32, Role.PARTITION), part[0]
    one = table(
        key,
        Column("c", t.TEXT, Role.CLUSTERING),
        Column("s", kind, Role.STATIC),
        *[Column(f"v{index}", each) for index, (each, _) in enumerate(part)],
        number=number,
        name=f"t{number}",
    )
    cells: dict[str, Cell] = {f"v{index}": Set(each) for index, (_, each) in enumerate(part)}
    row = {"k": 7, "c": "row"}
    expiring: dict[str, Cell] = {"v0": Set(value, TIME - 5, Expiry(60, SECOND)), "v1": Deleted(TIME, SECOND)}
    return one, [
        Change(Op.INSERT, row, cells, TIME, marker=Marker()),
        Change(Op.UPDATE, row, expiring, TIME, deletion=Deletion(TIME - 9, SECOND)),
        Change(Op.UPDATE, {"k": 7}, {"s": Set(value)}, TIME),
        Change(Op.DELETE, row, time=TIME, deletion=Deletion(TIME, SECOND)),
        Change(Op.DELETE_PARTITION, {"k": 7}, time=TIME, deletion=Deletion(TIME, SECOND)),
        Change(Op.INSERT, row, {"v0": Set(value)}, TIME, marker=Marker(None, Expiry(60, SECOND))),
    ]


def _complex() -> tuple[CassandraTable, list[Change]]:
    one = table(
        Column("a", t.TEXT, Role.PARTITION),
        Column("b", t.INT32, Role.PARTITION),
        *[Column(f"v{index}", kind) for index, (kind, _) in enumerate(_DELTAS)],
        number=20,
        name="deltas",
    )
    key = {"a": "x", "b": 1}
    cells: dict[str, Cell] = {f"v{index}": delta for index, (_, delta) in enumerate(_DELTAS)}
    return one, [
        Change(Op.UPDATE, key, cells, TIME),
        Change(Op.INSERT, key, {"v1": Delta(Deletion(TIME, SECOND))}, TIME, marker=Marker()),
    ]


def _counters() -> tuple[CassandraTable, list[Change]]:
    one = table(Column("k", t.INT32, Role.PARTITION), Column("n", t.SHARDED_COUNTER), number=21, name="counters")
    shards = Element(ID, (1, 5)), Element(uuid.UUID(int=9), (2, -5))
    return one, [Change(Op.UPDATE, {"k": 1}, {"n": Delta(None, shards)}, TIME)]


def _wide() -> tuple[CassandraTable, list[Change]]:
    one = table(
        Column("k", t.INT32, Role.PARTITION), *[Column(f"v{n:02}", t.INT32) for n in range(70)], number=22, name="wide"
    )
    chosen: dict[str, Cell] = {"v03": Set(1), "v69": Set(2)}
    many: dict[str, Cell] = {f"v{n:02}": Set(n) for n in range(66)}
    key = {"k": 1}
    return one, [
        Change(Op.INSERT, key, chosen, TIME, marker=Marker()),
        Change(Op.INSERT, key, many, TIME, marker=Marker()),
    ]


def _ranges() -> tuple[CassandraTable, list[list[Change]]]:
    one = table(
        Column("k", t.INT32, Role.PARTITION),
        Column("c", t.INT32, Role.CLUSTERING),
        Column("d", t.TEXT, Role.CLUSTERING, descending=True),
        Column("v", t.INT32),
        number=23,
        name="ranges",
    )
    key = {"k": 1}

    def gone(time: int, start: Bound | None, end: Bound | None) -> Change:
        return Change(Op.DELETE_RANGE, key, time=time, deletion=Deletion(time, SECOND), range=Range(start, end))

    row = Change(Op.INSERT, {"k": 1, "c": 4, "d": "x"}, {"v": Set(1)}, TIME, marker=Marker())
    return one, [
        [gone(TIME, Bound((1,), True), Bound((3,), False)), row],
        [gone(TIME, Bound((1, "a"), True), Bound((3,), True)), gone(TIME + 1, Bound((2,), False), None), row],
    ]


@cache
def sources(format_: int) -> tuple[list[CassandraTable], list[bytes]]:
    """The tables, and mutations of them."""
    tables, payloads = [], []
    singles = [_scalars(first, 1 + first) for first in range(0, len(_VALUES), 6)] + [_complex(), _counters(), _wide()]
    for one, changes in singles:
        tables.append(one)
        payloads += [encode_mutation([(one, [change])], format_) for change in changes]
    one, several = _ranges()
    tables.append(one)
    payloads += [encode_mutation([(one, changes)], format_) for changes in several]
    together = [(one, changes[:1]) for one, changes in singles[:3]]
    payloads.append(encode_mutation(together, format_))
    return tables, payloads


def damaged(payloads: list[bytes], chance: Random) -> bytes:
    """A copy of one of the payloads, spoiled in one to three places; seldom before what follows the table's id."""
    unit = chance.random
    data = bytearray(payloads[int(unit() * len(payloads))])
    spared = 0 if unit() < 0.03 else _ID_END
    for _ in range(1 + int(unit() * 3)):
        size = len(data)
        at = min(size, spared + int(unit() * (size - spared)))
        choice = int(unit() * 7)
        if choice == 0 and at < size:
            data[at] ^= 1 << int(unit() * 8)
        elif choice == 1 and at < size:
            data[at] = int(unit() * 256)
        elif choice == 2:
            data[at : at + 1] = EDGES[int(unit() * len(EDGES))]
        elif choice == 3:
            del data[at : at + int(unit() * 8)]
        elif choice == 4:
            data[at:at] = data[at : at + int(unit() * 16)]
        elif choice == 5:
            edge = EDGES[int(unit() * len(EDGES))]
            data[at : at + len(edge)] = edge
        else:
            del data[at + int(unit() * (size - at)) :]
    if len(data) < 10:
        data += bytes(10 - len(data))
    return bytes(data)
