"""Eras: which of a table's rows still count: those of the newest table of its name, since its last truncation.

A table that is dropped and made anew under its name, and a TRUNCATE, begin an era; what was logged before it on a node
is gone. The header of each file of a log says which table its rows are of and when its node had last truncated it.
Tables are ordered by when they were altered, which all nodes know alike; also two that had the same id, one after the
other, as soon as one node has seen it. A truncation each node times by its own clock,
so those of different nodes are brought together: in the order of time, the notes of different nodes that lie within a
few seconds are of one TRUNCATE, and a node's second note begins another. Nodes whose clocks differ by more than the
time between two truncations cannot be told apart by this.

A column that is dropped as of an earlier time than it was dropped before, and added again, says nothing of the first
drop any more. What that one took stays gone: such drops are remembered, and hold for what was logged before them.

`Eras` is a pure value: learning a header twice, or headers in another order, gives the same. The driver keeps the eras
that each batch began with, so that a batch which is done again finds the same ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import CorruptCheckpoint, StorageError
from penstock.log import sealed
from penstock.model.schema import TableId, TableSchema
from penstock.system.files import OsFiles

# Nodes truncate a table within this of each other.
TOGETHER_US = 10_000_000
# So many truncations of a table are remembered; what is older than all of them is of an era before.
_GROUPS_MAX = 64
_BYTES_MAX = 256 << 20
_NAME = re.compile(r"eras-(\d{12})\.json")
# So many files are kept: those of batches that may be done again, and some for whoever looks.
_FILES_KEPT = 20


class Header(NamedTuple):
    """What a run says of its rows: the node that logged them, and the table's schema in that file of its log."""

    node: str
    schema: TableSchema

    @property
    def digest(self) -> bytes:
        """Names the header; kept with the schema, because a task asks it for every run."""
        known: dict[str, bytes] = self.schema.__dict__.setdefault("_header_digests", {})
        found = known.get(self.node)
        if found is None:
            text = json.dumps([self.node, self.schema.to_json()])
            found = known[self.node] = hashlib.blake2b(text.encode(), digest_size=12).digest()
        return found


def prepared_as(schema: TableSchema) -> str:
    """What sinks are prepared for: the columns of one table, not of another that had its name."""
    return f"{schema.fingerprint}/{schema.id}"


Group = Mapping[str, int]


class Drop(NamedTuple):
    """The drop of a column: cells up to a write time are gone, of what was logged under versions up to `altered`."""

    altered: int
    column: str
    time_us: int

    def includes(self, other: Drop) -> bool:
        return self.column == other.column and self.altered >= other.altered and self.time_us >= other.time_us


def _drops(schema: TableSchema) -> set[Drop]:
    """The last drops of a version's columns, and of those that it has no more."""
    again = ((column.name, column.dropped_us) for column in schema.cells if column.dropped_us is not None)
    return {Drop(schema.altered, name, time_us) for name, time_us in (*again, *schema.dropped)}


def floors_of(drops: Iterable[Drop], altered: int) -> dict[str, int]:
    """By column the time up to which cells are gone that were logged under a version."""
    floors: dict[str, int] = {}
    for drop in drops:
        if drop.altered >= altered:
            floors[drop.column] = max(drop.time_us, floors.get(drop.column, drop.time_us))
    return floors


@dataclass(frozen=True)
class TableEra:
    """What is known of one table: its newest schema, when each node truncated it, and how often an era began."""

    schema: TableSchema
    # The truncations of this table, oldest first: by node, when it noted it.
    groups: tuple[Group, ...] = ()
    number: int = 0
    # The table before this one had its id, and was last altered at this time; 0: none had.
    remade_us: int = 0
    # Drops of columns that took more than the drops which the newest schema knows of, in their order.
    drops: tuple[Drop, ...] = ()

    def is_stale(self, header: Header) -> bool:
        """Whether the rows under a header are of an era before this one."""
        schema = header.schema
        if not schema.id or not self.schema.id:
            return False
        if schema.id != self.schema.id:
            return schema.order < self.schema.order
        if self._is_before(schema):
            return True
        if not self.groups:
            return False
        newest = self.groups[-1]
        if schema.truncated_us:
            return newest.get(header.node) != schema.truncated_us
        return schema.since_us < min(newest.values())

    def learn(self, header: Header) -> TableEra:
        """With what a header says."""
        schema = header.schema
        if schema.id and self.schema.id and schema.id != self.schema.id:
            return self if schema.order <= self.schema.order else self._followed_by(header)
        if self._is_before(schema):
            return self
        if schema.id and schema.remade_us > self.remade_us:
            return self._followed_by(header)
        # Logs that say no ids are of the table as far as anybody knows.
        newest = schema if schema.order > self.schema.order else self.schema
        drops = self._drops_with(schema, newest)
        if not schema.id or not schema.truncated_us:
            same = newest is self.schema and drops == self.drops
            return self if same else replace(self, schema=newest, drops=drops)
        groups = self._with(header.node, schema.truncated_us)
        moved = len(groups) > len(self.groups) and groups[-1].get(header.node) == schema.truncated_us
        return TableEra(newest, groups[-_GROUPS_MAX:], self.number + moved, self.remade_us, drops)

    def _drops_with(self, schema: TableSchema, newest: TableSchema) -> tuple[Drop, ...]:
        """The drops to remember with one more version, beside those that the newest one knows of."""
        known = _drops(newest)
        found = {*self.drops, *_drops(self.schema), *_drops(schema)} - known
        if not found:
            return ()
        others = found | known
        return tuple(sorted(one for one in found if not any(it.includes(one) for it in others if it != one)))

    def _is_before(self, schema: TableSchema) -> bool:
        """Whether a schema is of the table that had the id before."""
        return bool(schema.id and self.remade_us) and schema.altered <= self.remade_us

    def _followed_by(self, header: Header) -> TableEra:
        """The era of another table of the name; what is known of truncations was of this one."""
        schema = header.schema
        groups: tuple[Group, ...] = ({header.node: schema.truncated_us},) if schema.truncated_us else ()
        # A node that has not seen the drop may have told of a version that is newer still.
        newest = self.schema if self.schema.id == schema.id and self.schema.order > schema.order else schema
        return TableEra(newest, groups, self.number + 1, schema.remade_us)

    def _with(self, node: str, time_us: int) -> tuple[Group, ...]:
        """The truncations with one more note, brought together anew."""
        if len(self.groups) == _GROUPS_MAX and time_us < min(self.groups[0].values()):
            return self.groups
        notes = {(time, who) for group in self.groups for who, time in group.items()} | {(time_us, node)}
        groups: list[dict[str, int]] = []
        for time, who in sorted(notes):
            if not groups or who in groups[-1] or time - min(groups[-1].values()) > TOGETHER_US:
                groups.append({})
            groups[-1][who] = time
        return tuple(groups)

    def to_json(self) -> dict[str, Any]:
        groups = [dict(sorted(group.items())) for group in self.groups]
        out = {"schema": self.schema.to_json(), "groups": groups, "number": self.number}
        out |= {"remade_us": self.remade_us} if self.remade_us else {}
        return out | ({"drops": [list(drop) for drop in self.drops]} if self.drops else {})

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TableEra:
        groups = tuple({str(node): int(time) for node, time in group.items()} for group in data["groups"])
        schema = TableSchema.from_json(data["schema"])
        drops = tuple(Drop(int(altered), str(name), int(time)) for altered, name, time in data.get("drops", ()))
        return TableEra(schema, groups, int(data["number"]), int(data.get("remade_us", 0)), drops)


class Move(NamedTuple):
    """What a batch changes about a table: its newest schema, the number of its era, and whether that is another one.

    `began_us` is when the era began: 0 when it is the one before. `floors` has columns whose cells up to a time went
    with versions since the one before, though the newest does not say so.
    """

    schema: TableSchema
    number: int
    began_us: int = 0
    floors: Mapping[str, int] = {}


@dataclass(frozen=True)
class Eras:
    """All tables of a pipeline."""

    tables: Mapping[TableId, TableEra] = field(default_factory=dict)

    def learn(self, headers: Sequence[Header]) -> Eras:
        """With what these headers say, in whatever order they come."""
        if not headers:
            return self
        tables = dict(self.tables)
        for header in sorted(headers, key=lambda one: (one.schema.order, one.schema.truncated_us, one.node)):
            known = tables.get(header.schema.table)
            if known is None:
                known = TableEra(header.schema, remade_us=header.schema.remade_us)
            tables[header.schema.table] = known.learn(header)
        return self if tables == self.tables else Eras(tables)

    def is_stale(self, header: Header) -> bool:
        known = self.tables.get(header.schema.table)
        return known is not None and known.is_stale(header)

    def moves(self, before: Eras) -> dict[TableId, Move]:
        """What has changed since `before`."""
        out = {}
        for table, era in self.tables.items():
            known = before.tables.get(table)
            if known is None:
                continue
            if known.number != era.number:
                began_us = min(era.groups[-1].values()) if era.groups else era.schema.altered
                out[table] = Move(era.schema, era.number, max(began_us, 1))
            elif known.schema != era.schema:
                out[table] = Move(era.schema, era.number, floors=floors_of(era.drops, known.schema.altered))
        return out

    def newer_than(self, headers: Iterable[Header]) -> dict[TableId, TableSchema]:
        """The newest versions of tables of which these headers have older ones."""
        out = {}
        for header in headers:
            known = self.tables.get(header.schema.table)
            if known is not None and known.schema.fingerprint != header.schema.fingerprint:
                out[header.schema.table] = known.schema
        return out

    def drops(self) -> dict[TableId, tuple[Drop, ...]]:
        """The drops of tables that are remembered beside those which their newest versions know of."""
        return {table: era.drops for table, era in self.tables.items() if era.drops}

    def numbers(self) -> dict[TableId, int]:
        """The era's number of tables that have had one before."""
        return {table: era.number for table, era in self.tables.items() if era.number}


class EraStore:
    """The eras after each batch that changed any, one file each; the newest before a batch are what it begins with."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cached: tuple[int, Eras] | None = None

    def before(self, batch: int) -> Eras:
        """What was known when a batch began."""
        older = [known for known in self._batches() if known < batch]
        if not older:
            return Eras()
        if self._cached is None or self._cached[0] != older[-1]:
            self._cached = older[-1], self._read(older[-1])
        return self._cached[1]

    def noted(self, batch: int) -> bool:
        """Whether anything is noted of a batch."""
        return (self._directory / f"eras-{batch:012d}.json").exists()

    def write(self, batch: int, eras: Eras) -> None:
        """Make durable what is known after a batch, before the batch is."""
        content = {"format": 1, "tables": [[*table, era.to_json()] for table, era in sorted(eras.tables.items())]}
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            sealed.write(OsFiles(), str(self._directory), f"eras-{batch:012d}.json", content)
            for old in self._batches()[:-_FILES_KEPT]:
                (self._directory / f"eras-{old:012d}.json").unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot note the eras of tables: {error.strerror}", file=self._directory) from error
        self._cached = batch, eras

    def _batches(self) -> list[int]:
        names = os.listdir(self._directory) if self._directory.exists() else []
        return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))

    def _read(self, batch: int) -> Eras:
        file = self._directory / f"eras-{batch:012d}.json"
        try:
            content = sealed.read(OsFiles(), str(file), _BYTES_MAX)
            return Eras({TableId(k, t): TableEra.from_json(era) for k, t, era in content["tables"]})
        except OSError as error:
            raise StorageError(f"cannot read the eras of tables: {error.strerror}", file=file) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptCheckpoint("the eras of tables are damaged", file=file) from error
