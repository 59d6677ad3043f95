"""Records made of changes that say all of a row, for tests of sinks: no fold is needed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.formats import avro
from penstock.model.change import Change, Deletion, Marker, Op, Set
from penstock.model.schema import TableSchema
from penstock.records.records import Records, images


def records_of(schema: TableSchema, changes: Sequence[Change], versions: Sequence[int] | None = None) -> Records:
    """One record per change, whose `after` is the row that the change alone makes, and `before` the row without it."""
    batch = avro.encode(schema, changes)
    made = images(schema, batch, 0)
    if versions is None:
        versions = [change.time or 0 for change in changes]
    nothing = pa.nulls(len(made), made.type)
    return Records(schema, batch, made, nothing, pa.array(versions, pa.int64()))


def put(key: dict[str, object], version: int, **cells: object) -> Change:
    """A row as it is from this version on."""
    sets = {name: Set(value) for name, value in cells.items()}
    return Change(Op.INSERT, key, sets, time=version, marker=Marker())


def gone(key: dict[str, object], version: int) -> Change:
    """A row that is deleted."""
    return Change(Op.DELETE, key, time=version, deletion=Deletion(version))
