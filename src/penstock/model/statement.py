"""Statement: what a parsed statement asks for.

The parser makes them (docs/reference/statements.md); executing one is the control layer's work.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidStatement
from penstock.model.predicate import Predicate, quoted_name
from penstock.model.schema import Column, TableId


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as a statement names it; without a keyspace it is a table of the session's keyspace."""

    keyspace: str | None
    table: str

    def resolve(self, keyspace: str | None) -> TableId:
        """The full name, with the session's keyspace where the statement gives none."""
        chosen = self.keyspace if self.keyspace is not None else keyspace
        if chosen is None:
            name = quoted_name(self.table)
            raise InvalidStatement(f"table {name} has no keyspace: write keyspace.{name}, or choose a keyspace first")
        return TableId(chosen, self.table)


@dataclass(frozen=True, slots=True)
class CreateLog:
    """CREATE CDC_LOG. No data centres means all of them."""

    name: str
    table: TableName
    predicate: Predicate | None = None
    data_centres: frozenset[str] = frozenset()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropLog:
    """DROP CDC_LOG."""

    name: str
    table: TableName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE. Columns are in key order first; `notes` says which options were read but have no effect."""

    table: TableName
    columns: tuple[Column, ...]
    cdc: bool = False
    if_not_exists: bool = False
    notes: tuple[str, ...] = ()


Statement = CreateLog | DropLog | CreateTable
