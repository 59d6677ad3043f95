"""CassandraTable: all that reading a commit log needs to know about one table."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.errors import InvalidSchema
from penstock.model.schema import Column, Role, TableSchema

_TRUNCATION = struct.Struct(">qiq")
_TIME_MS_MAX = (1 << 63) // 1000 - 1
_ROLES = (Role.PARTITION, Role.CLUSTERING, Role.STATIC, Role.REGULAR)


class DroppedColumn(NamedTuple):
    """A column that the table had. Older cells of it may still come; those up to `time_us` mean nothing any more."""

    column: Column
    time_us: int


class Truncation(NamedTuple):
    """What a node notes of a TRUNCATE: when, and how far in its commit log everything of the table is gone by it.

    `told`: the change log has been told of it.
    """

    time_us: int
    segment: int
    position: int
    told: bool = False

    @property
    def place(self) -> tuple[int, int]:
        return self.segment, self.position


def truncation_of(value: bytes) -> Truncation | None:
    """As `system.local` has it: a place of the commit log and milliseconds; None when it makes no sense."""
    if len(value) != _TRUNCATION.size:
        return None
    segment, position, time_ms = _TRUNCATION.unpack(value)
    return Truncation(time_ms * 1000, segment, position) if 0 < time_ms <= _TIME_MS_MAX else None


@dataclass(frozen=True)
class CassandraTable:
    """One table, or one materialized view, as it is at one place of the log.

    `schema` has the columns as SELECT * gives them: partition key, clustering key, static columns by name, regular
    columns by name. A column of `dropped` may also stand in `schema`, when it was added again.
    """

    id: uuid.UUID
    schema: TableSchema
    cdc: bool = False
    view: bool = False
    dropped: Mapping[str, DroppedColumn] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it, and a schema file has it (docs/concepts/cassandra-schema.md)."""
        out: dict[str, Any] = {"id": str(self.id), **self.schema.to_json()}
        del out["source"]
        for name in ("cdc", "view"):
            if getattr(self, name):
                out[name] = True
        if self.dropped:
            out["dropped"] = [{**gone.column.to_json(), "time": gone.time_us} for gone in self.dropped.values()]
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CassandraTable:
        try:
            schema = TableSchema.from_json({"version": 1, **data, "source": "cassandra"})
            dropped = {}
            for gone in data.get("dropped", ()):
                column = Column.from_json({name: value for name, value in gone.items() if name != "time"})
                dropped[column.name] = DroppedColumn(column, int(gone["time"]))
            table_id = uuid.UUID(data["id"])
            return cls(table_id, schema, data.get("cdc", False) is True, data.get("view", False) is True, dropped)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidSchema(f"not a Cassandra table: {type(error).__name__}: {error}") from error


def in_order(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Columns as SELECT * has them. Key columns come in the order given, the others by the bytes of their names."""
    parts: dict[Role, list[Column]] = {role: [] for role in _ROLES}
    for column in columns:
        parts[column.role].append(column)
    for role in (Role.STATIC, Role.REGULAR):
        parts[role].sort(key=lambda column: column.name.encode())
    return tuple(column for role in _ROLES for column in parts[role])
