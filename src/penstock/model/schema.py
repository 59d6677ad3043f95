"""Tables: their columns and the versions of their schema.

A schema version is a whole `TableSchema`, not a difference: every file of the change log carries the one its rows
were written with, so no reader ever has to guess.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from penstock.errors import InvalidSchema
from penstock.model.types import Type


class TableId(NamedTuple):
    """A table's full name. For MariaDB and PostgreSQL, keyspace is the database or schema."""

    keyspace: str
    table: str

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.table}"


class Role(StrEnum):
    """What a column is in its table."""

    PARTITION = "partition"
    CLUSTERING = "clustering"
    STATIC = "static"
    REGULAR = "regular"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Tables of SQL databases have partition (primary key) and regular columns only."""

    name: str
    type: Type
    role: Role = Role.REGULAR
    # Clustering order DESC.
    descending: bool = False
    # The type in the source's own words, for people and for exact DDL.
    source_type: str = ""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"name": self.name, "type": self.type.to_json(), "role": self.role.value}
        if self.descending:
            out["descending"] = True
        if self.source_type:
            out["source_type"] = self.source_type
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Column:
        try:
            rest = dict(data)
            return cls(type=Type.from_json(rest.pop("type")), role=Role(rest.pop("role")), **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidSchema(f"not a column: {error}") from error


@dataclass(frozen=True)
class TableSchema:
    """One version of a table's schema. Columns keep their order; the key columns come first in `key`."""

    table: TableId
    columns: tuple[Column, ...]
    version: int = 1
    # The kind of database it comes from: cassandra, scylla, mariadb, postgres, yugabyte, sandbox.
    source: str = ""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names:
            raise InvalidSchema("a table needs at least one column", table=self.table)
        if len(set(names)) != len(names):
            raise InvalidSchema("two columns have the same name", table=self.table)
        if self.version < 1:
            raise InvalidSchema("schema versions count from 1", table=self.table)
        for column in self.key:
            if column.type.multi_cell:
                raise InvalidSchema("a key column must be frozen", table=self.table, column=column.name)

    def __getstate__(self) -> dict[str, Any]:
        # What was derived from the fields is kept in the object, and is neither copied nor pickled with it.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def partition(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.role is Role.PARTITION)

    @cached_property
    def clustering(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.role is Role.CLUSTERING)

    @cached_property
    def key(self) -> tuple[Column, ...]:
        """Partition, then clustering columns."""
        return self.partition + self.clustering

    @cached_property
    def cells(self) -> tuple[Column, ...]:
        """The static and regular columns, in table order."""
        return tuple(c for c in self.columns if c.role in (Role.STATIC, Role.REGULAR))

    @cached_property
    def by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    @cached_property
    def fingerprint(self) -> str:
        """Names everything but the version: equal fingerprints mean that rows mean the same."""
        data = self.to_json()
        del data["version"]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]

    def to_json(self) -> dict[str, Any]:
        return {
            "keyspace": self.table.keyspace,
            "table": self.table.table,
            "version": self.version,
            "source": self.source,
            "columns": [column.to_json() for column in self.columns],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TableSchema:
        try:
            return cls(
                table=TableId(data["keyspace"], data["table"]),
                columns=tuple(Column.from_json(column) for column in data["columns"]),
                version=data["version"],
                source=data["source"],
            )
        except (KeyError, TypeError) as error:
            raise InvalidSchema(f"not a table schema: {error}") from error
