"""A small table and its changes, for tests that care about the log and not about types."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.model import types
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op, Origin, Set, Transaction
from penstock.model.schema import Column, Role, TableId, TableSchema

TABLE = TableId("shop", "orders")
SCHEMA = TableSchema(TABLE, (Column("id", types.INT64, Role.PARTITION), Column("note", types.TEXT)), source="sandbox")
WIDER = TableSchema(TABLE, (*SCHEMA.columns, Column("paid", types.BOOLEAN)), version=2, source="sandbox")


def change(number: int, note: str = "", *, when: int | None = None, domain: str | None = None) -> Change:
    """Change number `number`: its id, its time and its transaction all say so."""
    origin = Origin() if domain is None else Origin(transaction=Transaction(domain, number, f"{domain}-1-{number}"))
    time = 1_000_000 + number if when is None else when
    return Change(Op.INSERT, {"id": number}, {"note": Set(note)}, time=time, origin=origin)


def batch(*numbers: int, note: str = "", schema: TableSchema = SCHEMA, domain: str | None = None) -> ChangeBatch:
    return avro.encode(schema, [change(number, note, domain=domain) for number in numbers])


def numbers(batches: Iterable[ChangeBatch]) -> list[int]:
    """The ids of the changes, in order."""
    return [found.key["id"] for each in batches for found in avro.decode(each)]


def stored(directory: str) -> list[int]:
    """The ids of all changes in a log."""
    with LogReader(directory) as reader:
        return numbers(reader.read())
