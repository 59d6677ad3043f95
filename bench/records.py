"""Records: the small table that the pipeline's benchmarks write to, and its changes."""

from __future__ import annotations

from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Marker, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema

# Changes of one block, which is what an agent appends at once.
BLOCK = 2_000
_START_US = 1_700_000_000_000_000


def schema_of(table: str) -> TableSchema:
    columns = (Column("id", t.INT64, Role.PARTITION), Column("name", t.TEXT), Column("note", t.TEXT))
    return TableSchema(TableId("bench", table), (*columns, Column("amount", t.INT64)), source="cassandra")


def changes_of(schema: TableSchema, first: int, count: int) -> ChangeBatch:
    """Changes that all differ, as INSERT statements make them."""
    return avro.encode(
        schema,
        [
            Change(
                Op.INSERT,
                {"id": number},
                {"name": Set(f"name {number % 977}"), "note": Set(f"note {number:010d}"), "amount": Set(number)},
                time=_START_US + number,
                marker=Marker(),
                origin=Origin(node="n1", file="CommitLog-7-1.log", position=number),
            )
            for number in range(first, first + count)
        ],
    )


def append(log: TableLog, schema: TableSchema, first: int, count: int, block: int = BLOCK) -> None:
    for at in range(first, first + count, block):
        log.append(changes_of(schema, at, min(block, first + count - at)))
