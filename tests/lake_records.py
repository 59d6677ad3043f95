"""Records and tables for tests of lakehouse sinks, made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from penstock.deliver.sink import Sink, Task
from penstock.formats import avro
from penstock.model import types
from penstock.model.change import Change, Deletion, Op, Origin
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records.records import Records, row_type

TABLE = TableId("shop", "orders")
SCHEMA = TableSchema(
    TABLE,
    (
        Column("id", types.INT64, Role.PARTITION),
        Column("line", types.TEXT, Role.CLUSTERING),
        Column("note", types.TEXT),
        Column("amount", types.INT32),
    ),
    source="sandbox",
)
Key = tuple[Any, ...]
Row = Mapping[str, Any]


def records(schema: TableSchema, changes: Iterable[tuple[Key, Row | None]], *, version: int = 1) -> Records:
    """One record per (key, row after it or None); versions count from `version`."""
    listed = list(changes)
    names = [column.name for column in schema.key]
    made = [
        Change(
            Op.DELETE if row is None else Op.INSERT,
            dict(zip(names, key, strict=False)),
            {},
            time=version + number,
            origin=Origin(node="n1", file="CommitLog-1.log", position=number),
        )
        for number, (key, row) in enumerate(listed)
    ]
    rows = [None if row is None else {**dict(zip(names, key, strict=False)), **row} for key, row in listed]
    return Records(
        schema,
        avro.encode(schema, made),
        pa.array(rows, row_type(schema)),
        None,
        pa.array(range(version, version + len(listed)), pa.int64()),
    )


def truncation(schema: TableSchema, *, version: int = 1) -> Records:
    """The record that says that the table was truncated."""
    made = [Change(Op.TRUNCATE, time=version, deletion=Deletion(version))]
    nothing = pa.nulls(1, row_type(schema))
    return Records(schema, avro.encode(schema, made), nothing, nothing, pa.array([version], pa.int64()))


def deliver(sink: Sink, batch: int, parts: Mapping[int, Iterable[Records]], *, pipeline: str = "p") -> list[bytes]:
    """One batch: a task for each bucket, then the commit; the payloads."""
    payloads = []
    for bucket, given in parts.items():
        with sink.writer(Task(pipeline, batch, bucket, 0)) as writer:
            for each in given:
                writer.write(each)
            payloads.append(writer.finish().payload)
    sink.commit(pipeline, batch, [payload for payload in payloads if payload])
    return payloads


def query(directory: Path, sql: str = "SELECT * FROM t") -> list[dict[str, Any]]:
    """What delta-rs reads of a table, named t in the query."""
    found = QueryBuilder().register("t", DeltaTable(str(directory))).execute(sql).read_all()
    rows: list[dict[str, Any]] = pa.table(found).to_pylist()
    return rows


def by_key(rows: Iterable[dict[str, Any]], schema: TableSchema = SCHEMA) -> dict[Key, dict[str, Any]]:
    """Rows by their keys. Fails when two rows have the same key."""
    names = [column.name for column in schema.key]
    out: dict[Key, dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        assert key not in out, key
        out[key] = {name: value for name, value in row.items() if name not in names}
    return out


def actions(directory: Path, version: int) -> list[dict[str, Any]]:
    """The actions of one commit of a Delta table."""
    text = (directory / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]
