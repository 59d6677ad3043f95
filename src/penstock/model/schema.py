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


class Order(StrEnum):
    """What decides which of two changes of a row is the later one."""

    # The greatest write time wins, cell by cell. Who says the same with the same times says it of the same change:
    # replicas log copies, in any order.
    WRITE_TIME = "write_time"
    # The source's own order: the sequence of the transaction, then the place in it. Nothing is a copy but what has the
    # same place; the same said twice is two changes.
    LOG = "log"


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
    # The table had a column of this name before, which was dropped at this write time: cells up to it mean nothing.
    dropped_us: int | None = None
    # How its values were hidden before they were logged: `hash`, `truncate:N` or `null`. Empty: not at all.
    mask: str = ""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"name": self.name, "type": self.type.to_json(), "role": self.role.value}
        if self.descending:
            out["descending"] = True
        if self.source_type:
            out["source_type"] = self.source_type
        if self.dropped_us is not None:
            out["dropped_us"] = self.dropped_us
        if self.mask:
            out["mask"] = self.mask
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Column:
        try:
            rest = dict(data)
            return cls(type=Type.from_json(rest.pop("type")), role=Role(rest.pop("role")), **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidSchema(f"not a column: {error}") from error


# Fields of a schema that say which table and when, and nothing of what a row looks like.
_OF_THE_MOMENT = ("id", "altered", "remade_us", "truncated_us", "since_us")


class Era(NamedTuple):
    """The stretch of a node's log in which one table has its name and is not truncated."""

    id: str
    remade_us: int
    truncated_us: int


@dataclass(frozen=True)
class TableSchema:
    """One version of a table's schema. Columns keep their order; the key columns come first in `key`.

    `version` counts the versions of one log, and each node counts for itself. What all nodes agree on without talking
    is `altered`: of two versions the one that was altered later is the newer one, whoever says it.
    """

    table: TableId
    columns: tuple[Column, ...]
    version: int = 1
    # The kind of database it comes from: cassandra, scylla, mariadb, postgres, yugabyte, sandbox.
    source: str = ""
    # What the source itself knows the table by; a table that is dropped and made anew has another. Empty: not known.
    id: str = ""
    # When the source last altered the definition, as a number that all nodes have alike. 0: not known.
    altered: int = 0
    # A table with this very id was there before and was dropped: when that one was last altered, so that rows of a
    # version which is not newer are of that one. 0: none was, or whoever logs this has not seen it.
    remade_us: int = 0
    # When the node that logs these rows last truncated the table, by its own clock: what it logged before is gone.
    truncated_us: int = 0
    # When the node's log begins that these rows were read from, by its own clock: of a node that joined the cluster
    # after a truncation nothing else says that its rows came later. 0: not known.
    since_us: int = 0
    # The columns that the table has no more, by name with the write times of their drops, where the source knows them.
    # When such a column is added again, it still holds the cells that are newer.
    dropped: tuple[tuple[str, int], ...] = ()
    ordered_by: Order = Order.WRITE_TIME
    # The columns that the table has and that are left out before anything is logged.
    excluded: tuple[str, ...] = ()

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
        if self.ordered_by is Order.LOG:
            self._check_rows()

    def _check_rows(self) -> None:
        """A log's order is one of whole rows: nothing in such a table has an order of its own, or is shared by rows."""
        for column in self.columns:
            if column.role in (Role.CLUSTERING, Role.STATIC) or column.type.multi_cell:
                message = "a table that is ordered by its log has key and plain columns only"
                raise InvalidSchema(message, table=self.table, column=column.name)

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
        """Names the columns and what they mean: rows of equal fingerprints are read alike.

        It says nothing of when: neither the version, nor which table of that name it was, nor its truncation.
        """
        data = self.to_json()
        for name in ("version", *_OF_THE_MOMENT):
            data.pop(name, None)
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]

    @cached_property
    def last_drop(self) -> int:
        """A write time by which every drop of a column that this version knows of has come to be; 0 where none has."""
        again = (column.dropped_us or 0 for column in self.columns)
        return max([self.altered, *again, *(time for _, time in self.dropped)])

    @property
    def order(self) -> tuple[int, int, str]:
        """What versions of a table are compared by, also those of different nodes: the greatest is the newest."""
        return self.altered, self.version, self.fingerprint

    @property
    def era(self) -> Era:
        """Which table, since which truncation: of two eras of a node the rows of the older one are gone."""
        return Era(self.id, self.remade_us, self.truncated_us)

    def continues(self, other: TableSchema) -> bool:
        """Whether rows may stand in one file with rows of the other: the same columns, in the same era."""
        return self.fingerprint == other.fingerprint and self.era == other.era

    def supersedes(self, other: TableSchema) -> bool:
        """Whether one node says this after the other, and anything else by it."""
        later = (self.altered, self.truncated_us) > (other.altered, other.truncated_us)
        return later and not self.continues(other)

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "keyspace": self.table.keyspace,
            "table": self.table.table,
            "version": self.version,
            "source": self.source,
            "columns": [column.to_json() for column in self.columns],
        }
        if self.dropped:
            out["dropped_columns"] = dict(self.dropped)
        if self.ordered_by is not Order.WRITE_TIME:
            out["ordered_by"] = self.ordered_by.value
        if self.excluded:
            out["excluded_columns"] = list(self.excluded)
        return out | {name: value for name in _OF_THE_MOMENT if (value := getattr(self, name))}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TableSchema:
        try:
            return cls(
                table=TableId(data["keyspace"], data["table"]),
                columns=tuple(Column.from_json(column) for column in data["columns"]),
                version=data["version"],
                source=data["source"],
                dropped=tuple(data.get("dropped_columns", {}).items()),
                ordered_by=Order(data.get("ordered_by", Order.WRITE_TIME)),
                excluded=tuple(data.get("excluded_columns", ())),
                **{name: data[name] for name in _OF_THE_MOMENT if name in data},
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidSchema(f"not a table schema: {error}") from error
