"""Runs: what the pipeline sends through Spark, a few large rows instead of one per change.

A run is a stretch of encoded changes of one table, one schema version, one node and one bucket of partition keys, in
the order of the node's log. It carries its schema as text, so one stream can hold any number of tables, and a table
that is new or has changed needs no other plan. `rows` are Avro rows as an encoder writes them: no row has a seal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from penstock.errors import CorruptData, PenstockError
from penstock.formats.arrays import binaries, integers, texts
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableSchema
from penstock.system import json_text

RUN_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("keyspace", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("schema", pa.string(), nullable=False),
        pa.field("node", pa.string(), nullable=False),
        pa.field("place", pa.int64(), nullable=False),
        pa.field("count", pa.int32(), nullable=False),
        pa.field("left_out", pa.int32(), nullable=False),
        pa.field("rows", pa.binary(), nullable=False),
    ]
)
# Schemas kept per process: more than the tables of a pipeline, so that each text is parsed once.
_SCHEMAS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Run:
    """Encoded changes of one table from one node, all of one bucket."""

    schema: TableSchema
    node: str
    bucket: int
    count: int
    rows: bytes | memoryview
    # Grows with the place in the node's log at which the run begins: several tasks may have read the log, and what each
    # has read may arrive in any order.
    place: int = 0
    # How many more changes were read that say the same as some of another node's: these stand in a run already.
    left_out: int = 0

    def batch(self) -> ChangeBatch:
        """The changes as a batch without positions."""
        return ChangeBatch(self.schema, self.count, self.rows)


def schema_text(schema: TableSchema) -> str:
    """A schema as the text that runs carry; it is kept with the schema."""
    known = schema.__dict__.get("_run_text")
    if known is None:
        known = schema.__dict__["_run_text"] = json.dumps(schema.to_json(), separators=(",", ":"))
    return str(known)


@lru_cache(maxsize=_SCHEMAS_MAX)
def schema_of(text: str) -> TableSchema:
    """The inverse of `schema_text`: one object per text, for what the formats prepare for a schema is kept with it."""
    try:
        return TableSchema.from_json(json_text.parse(text))
    except (ValueError, PenstockError) as error:
        raise CorruptData("a run's schema is not readable") from error


def to_arrow(runs: Sequence[Run]) -> pa.RecordBatch:
    """Runs as rows of `RUN_SCHEMA`."""
    columns = [
        integers([run.bucket for run in runs], pa.int32()),
        texts([run.schema.table.keyspace for run in runs]),
        texts([run.schema.table.table for run in runs]),
        texts([schema_text(run.schema) for run in runs]),
        texts([run.node for run in runs]),
        integers([run.place for run in runs], pa.int64()),
        integers([run.count for run in runs], pa.int32()),
        integers([run.left_out for run in runs], pa.int32()),
        binaries([run.rows for run in runs], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RUN_SCHEMA)


def from_arrow(batch: pa.RecordBatch) -> Iterator[Run]:
    """The inverse of `to_arrow`. The rows are views into the batch, which must stay as long as they do."""
    names = ("bucket", "schema", "node", "count", "place", "left_out")
    rows = batch.column("rows")
    told = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    for at, (bucket, text, node, count, place, left_out) in enumerate(told):
        held = memoryview(rows[at].as_buffer()).cast("B")
        yield Run(schema_of(text), node, bucket, count, held, place, left_out)
