"""Several nodes with several tables, as log directories whose changes are numbered, for tests of the Spark source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import LogSettings

SMALL_FILES = LogSettings(file_bytes_max=8192)


def schema_of(table: str, *more: Column, version: int = 1) -> TableSchema:
    """A table of keyspace `shop`: a number, a text, and what else is given."""
    columns = (Column("id", t.INT64, Role.PARTITION), Column("note", t.TEXT), *more)
    return TableSchema(TableId("shop", table), columns, version=version, source="cassandra")


def batch(schema: TableSchema, first: int, count: int = 1, note: str = "x") -> ChangeBatch:
    """Changes whose ids are numbers from `first` on."""
    changes = [
        Change(
            Op.INSERT,
            {"id": first + at},
            {"note": Set(note)},
            time=1_000_000 + first + at,
            origin=Origin(node="n", file="log", position=first + at),
        )
        for at in range(count)
    ]
    return avro.encode(schema, changes)


def write(
    root: Path,
    table: str,
    first: int,
    count: int,
    *,
    each: int = 1,
    node: str = "",
    note: str = "x",
    schema: TableSchema | None = None,
    settings: LogSettings | None = None,
) -> str:
    """Append `count` blocks of `each` changes; the log's directory."""
    schema = schema or schema_of(table)
    directory = str(root / f"{schema.table.keyspace}.{schema.table.table}")
    with TableLog.open(directory, schema, settings=settings, node=node or root.name) as log:
        for at in range(count):
            log.append(batch(schema, first + at * each, each, note))
    return directory


def with_column(schema: TableSchema, name: str, type_: t.Type) -> TableSchema:
    """The next version of a table."""
    return replace(schema, columns=(*schema.columns, Column(name, type_)), version=schema.version + 1)


def ids_in(directory: str) -> list[int]:
    """The ids of all changes of a log, in order."""
    with LogReader(directory) as reader:
        return [change.key["id"] for found in reader.read() for change in avro.decode(found)]


def remove_first_files(directory: str, count: int) -> None:
    """As retention does, or a person."""
    with LogReader(directory) as reader:
        for number in reader.numbers()[:count]:
            for kind in ("avro", "idx"):
                Path(reader.path(number, kind)).unlink()
