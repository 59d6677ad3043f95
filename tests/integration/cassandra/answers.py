"""What a node itself says about its tables: every row as `SELECT JSON` gives it, and each cell's WRITETIME and TTL.

Times to live of single elements come as lists with nulls in them, which the driver cannot read; so those answers are
taken as bytes. 5.0 and later tell the times of elements; the versions before only those of whole columns.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any, cast

from cassandra import ConsistencyLevel
from cassandra.cluster import Cluster, ResultSet, Session
from cassandra.protocol import ResultMessage, _ProtocolHandler, read_int
from cassandra.query import SimpleStatement

from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.model.types import Kind

# SELECT JSON of an empty value is an error inside Cassandra; the driver reads such values as None.
PLAIN = {"empty_values"}
_EXPIRED_S = 30


@dataclass(frozen=True)
class Stamp:
    """WRITETIME and TTL of a column, or of each element of a non-frozen one."""

    written: int | list[int | None] | None
    ttl: int | list[int | None] | None


@dataclass
class Answer:
    """A table's rows in the spelling and order of SELECT JSON, and the seconds between which the node was asked."""

    rows: list[str]
    stamps: list[dict[str, Stamp]]
    seconds: tuple[int, int]
    # Of the version that answered: 3.11 spells old times in another way.
    number: tuple[int, int]


class _RawResult(ResultMessage):  # type: ignore[misc]
    """A result whose values stay bytes."""

    def recv_results_rows(self, f: Any, *rest: Any) -> None:
        self.recv_results_metadata(f, rest[1])
        metadata = self.column_metadata
        self.column_names = [column[2] for column in metadata]
        self.column_types = [column[3] for column in metadata]
        self.parsed_rows = [tuple(self.recv_row(f, len(metadata))) for _ in range(read_int(f))]


class _RawHandler(_ProtocolHandler):  # type: ignore[misc]
    message_types_by_opcode = {**_ProtocolHandler.message_types_by_opcode, ResultMessage.opcode: _RawResult}  # noqa: RUF012


class Asker:
    """Asks one node."""

    def __init__(
        self, cluster: Cluster, keyspace: str, number: tuple[int, int], level: int = ConsistencyLevel.ONE
    ) -> None:
        self._number = number
        self._level = level
        self._session: Session = cluster.connect(keyspace)
        self._raw: Session = cluster.connect(keyspace)
        self._raw.client_protocol_handler = _RawHandler

    def _execute(self, session: Session, query: str) -> ResultSet:
        return session.execute(SimpleStatement(query, consistency_level=self._level))

    def wait_for_expiry(self, query: str) -> None:
        """Until this query gives no row: what has one second to live is gone."""
        deadline = time.monotonic() + _EXPIRED_S
        while self._execute(self._session, query).one() is not None:
            assert time.monotonic() < deadline, f"still there: {query}"
            threading.Event().wait(0.1)

    def ask(self, table: CassandraTable) -> Answer:
        name = quoted(table.schema.table.table)
        before = int(time.time())
        rows = self._plain(name) if table.schema.table.table in PLAIN else self._json(name)
        stamps = self._stamps(table, name, rows)
        return Answer(rows, stamps, (before, int(time.time()) + 1), self._number)

    def _json(self, name: str) -> list[str]:
        return [text for (text,) in self._execute(self._session, f"SELECT JSON * FROM {name}")]

    def _plain(self, name: str) -> list[str]:
        result = self._execute(self._session, f"SELECT * FROM {name}")
        names = result.column_names
        return [json.dumps(dict(zip(names, map(_plain_value, row), strict=True))) for row in result]

    def _stamps(self, table: CassandraTable, name: str, rows: list[str]) -> list[dict[str, Stamp]]:
        shown = parsed(rows[0]).keys() if rows else ()
        columns = [column for column in table.schema.cells if column.name in shown]
        if self._number < (5, 0):
            # A counter is one cell in Cassandra's eyes.
            columns = [c for c in columns if not c.type.multi_cell or c.type.kind is Kind.COUNTER]
        if not columns:
            return [{} for _ in rows]
        asked = ", ".join(f"writetime({quoted(c.name)}), ttl({quoted(c.name)})" for c in columns)
        out = []
        for values in self._execute(self._raw, f"SELECT {asked} FROM {name}"):
            stamps = {}
            for index, column in enumerate(columns):
                written, ttl = values[2 * index : 2 * index + 2]
                many = column.type.multi_cell and column.type.kind is not Kind.COUNTER
                read = _numbers if many else _number
                stamps[column.name] = Stamp(cast(Any, read(written)), cast(Any, read(ttl)))
            out.append(stamps)
        assert len(out) == len(rows)
        return out


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def parsed(text: str) -> dict[str, Any]:
    """A row of SELECT JSON, numbers as they are spelled. Names with capitals stand in quotes of their own."""
    row = json.loads(text, parse_float=str, parse_int=str)
    return {_unquoted(name): value for name, value in row.items()}


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _plain_value(value: Any) -> Any:
    return f"0x{value.hex()}" if isinstance(value, bytes) else value


def _number(data: bytes | None) -> int | None:
    return None if data is None else int.from_bytes(data, "big", signed=True)


def _numbers(data: bytes | None) -> list[int | None] | None:
    if data is None:
        return None
    (count,) = struct.unpack_from(">i", data)
    out: list[int | None] = []
    at = 4
    for _ in range(count):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        out.append(None if length < 0 else _number(data[at : at + length]))
        at += max(length, 0)
    return out
