"""Mutations byte by byte, for tests that need what no writer would write."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence

from penstock.capture.cassandra.decoding.decoder import Decoder, MemoryParking
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.sections import Section
from penstock.capture.cassandra.segments.segment import SegmentHeader
from penstock.formats import avro
from penstock.model.change import Change
from penstock.model.schema import Column, TableId
from tests.commit_logs import as_table

# What the differences of an update count from when its header has zeros.
T0 = 1_442_880_000_000_000
S0 = 1_442_880_000
START = 100
# The flags of a partition, a row and a cell.
ESTIMATE, STATIC, DELETED, EMPTY = 0x10, 0x08, 0x04, 0x01
ALL, TIMED, EXPIRES, ROW_DELETED, COMPLEX = 0x20, 0x04, 0x08, 0x10, 0x40
ROW_TIME, NO_VALUE = 0x08, 0x04
END = b"\x01"


def uv(number: int) -> bytes:
    """A variable-length unsigned number."""
    for extra in range(8):
        if number < 1 << (7 * (extra + 1)):
            first = 256 - (1 << (8 - extra)) if extra else 0
            return (number | first << (8 * extra)).to_bytes(extra + 1, "big")
    return b"\xff" + number.to_bytes(8, "big")


def counted(data: bytes) -> bytes:
    """Bytes with their length before them."""
    return uv(len(data)) + data


def names(*columns: str) -> bytes:
    return uv(len(columns)) + b"".join(counted(name.encode()) for name in columns)


def update(
    table: CassandraTable,
    key: bytes,
    body: bytes,
    *,
    format_: int = 7,
    flags: int = ESTIMATE,
    columns: bytes = b"\0",
    static_columns: bytes = b"",
    before: bytes = b"",
    rows: int = 1,
) -> bytes:
    """One table's part of a mutation; `before` stands between the columns and the number of rows."""
    epoch = uv(7) if format_ >= 9 else b""
    head = table.id.bytes + epoch + counted(key) + bytes([flags]) + uv(0) * 3
    return head + static_columns + columns + before + uv(rows) + body


def mutation(*updates: bytes, format_: int = 7) -> bytes:
    return (b"\0" if format_ >= 9 else b"") + uv(len(updates)) + b"".join(updates)


def entry(payload: bytes) -> bytes:
    size = struct.pack(">i", len(payload))
    crc = zlib.crc32(size)
    return size + struct.pack(">I", crc) + payload + struct.pack(">I", zlib.crc32(payload, crc))


def section(*payloads: bytes, sealed: bool = True, padding: int = 0) -> Section:
    return Section(b"".join(map(entry, payloads)) + bytes(padding), START, sealed)


def table(*columns: Column, number: int = 1, name: str = "t") -> CassandraTable:
    return as_table(TableId("ks", name), columns, uuid.UUID(int=number))


def decoder(*tables: CassandraTable, format_: int = 7, parking: MemoryParking | None = None) -> Decoder:
    """A decoder that captures every table of the keyspace `ks`, at the begin of a segment."""
    schemas = Schemas()
    for one in tables:
        schemas.add(one)
    made = Decoder(
        schemas,
        captures=lambda one: one.schema.table.keyspace == "ks",
        parking=MemoryParking() if parking is None else parking,
    )
    made.begin(SegmentHeader(format_, 5, 42), f"CommitLog-{format_}-5.log")
    return made


def changes(made: Decoder) -> list[Change]:
    return [change for batch in made.take() for change in avro.decode(batch)]


def decoded(tables: Sequence[CassandraTable], *payloads: bytes, format_: int = 7) -> list[Change]:
    """The changes of mutations that are sound."""
    made = decoder(*tables, format_=format_)
    made.decode(section(*payloads))
    assert made.damage == []
    return changes(made)


def refusal(tables: Sequence[CassandraTable], payload: bytes, format_: int = 7) -> str:
    """What is wrong with a mutation, of which nothing may be left."""
    made = decoder(*tables, format_=format_)
    made.decode(section(payload))
    assert changes(made) == []
    assert [damage.what for damage in made.damage] == ["mutation"]
    return made.damage[0].message
