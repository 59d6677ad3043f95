"""Outcomes: what a task tells the driver about its bucket of a batch, as a few small rows.

A row has a kind: `sink` (what a sink's writer delivered, and what its commit needs), `table` (figures of one table),
`dead` (records that no target takes), `state` (what the fold's state became), `schema` (a version of a table that the
sinks have not been prepared for), `error` (why the task stopped; the driver raises it again as what it was).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock import errors
from penstock.errors import DeliveryFailed, PenstockError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)


@cache
def spark_schema() -> StructType:
    """The same for Spark."""
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

    types = (IntegerType(), StringType(), StringType(), LongType(), LongType(), BinaryType())
    made = StructType()
    for name, type_ in zip(SCHEMA.names, types, strict=True):
        made.add(name, type_)
    return made


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row."""

    bucket: int
    kind: str
    name: str = ""
    count: int = 0
    size: int = 0
    data: bytes = b""


def to_arrow(outcomes: Iterable[Outcome]) -> pa.RecordBatch:
    """Outcomes as rows."""
    rows = [(one.bucket, one.kind, one.name, one.count, one.size, one.data) for one in outcomes]
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    made = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(made, schema=SCHEMA)


def from_spark(rows: Iterable[Any]) -> pa.Table:
    """Rows as Spark gives them, in Arrow's form."""
    return pa.Table.from_pylist([{**row.asDict(), "data": bytes(row["data"])} for row in rows], SCHEMA)


def from_arrow(table: pa.Table) -> Iterator[Outcome]:
    """The inverse."""
    for row in table.to_pylist():
        yield Outcome(**row)


def failure(bucket: int, error: PenstockError) -> Outcome:
    """An error as an outcome."""
    facts = {"message": error.message, "place": {name: str(value) for name, value in error.place.items()}}
    return Outcome(bucket, "error", type(error).__name__, data=json.dumps(facts).encode())


def raise_failures(outcomes: Iterable[Outcome]) -> None:
    """Raise the first error that a task met, if any did."""
    for outcome in outcomes:
        if outcome.kind == "error":
            facts: dict[str, Any] = json.loads(outcome.data)
            kind = getattr(errors, outcome.name, DeliveryFailed)
            raise kind(facts["message"], **facts["place"])
