"""Records as lines of JSON: what the file and console sinks write.

A record of type CHANGE is the line of JSON that subscribers get of the change, without its position. Records of type
AFTER and ALL have the operation, times and origin of the change that made them, its key, a version that grows with
every change of the row, and the whole row before (ALL) and after; `null` says that there is no row. These lines are
made a column at a time.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats import json_rows
from penstock.formats.arrow import to_arrow
from penstock.formats.json_columns import Form, field, mask, members, quote, render
from penstock.formats.json_rows import Spelling
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableSchema
from penstock.records.records import Records
from penstock.settings import RecordType

Parts = list[tuple[str, pa.Array]]

_NO_TEXT = pa.scalar(None, pa.string())


def lines(records: Records, record: RecordType) -> pa.Array:
    """One JSON object per record, without line ends."""
    return change_lines(records.changes) if record is RecordType.CHANGE else _row_lines(records, record)


def key_text(changes: ChangeBatch) -> pa.Array:
    """The key of each change as an object."""
    names = frozenset(column.name for column in changes.schema.key)
    return _key(changes.schema, to_arrow(changes, names))


def row_text(schema: TableSchema, rows: pa.StructArray) -> pa.Array:
    """Whole rows as objects; null where there is no row."""
    parts = [
        (column.name, render(column.type, field(rows, at), Form.PENSTOCK).fill_null("null"))
        for at, column in enumerate(schema.columns)
    ]
    return mask(rows, members(parts, len(rows)))


def _row_lines(records: Records, record: RecordType) -> pa.Array:
    schema = records.schema
    names = frozenset(column.name for column in schema.key)
    batch = to_arrow(records.changes, names)
    parts = [*_times(batch), ("version", records.versions.cast(pa.string())), ("key", _key(schema, batch))]
    if record is RecordType.ALL and records.before is not None:
        parts.append(("before", row_text(schema, records.before).fill_null("null")))
    if records.after is not None:
        parts.append(("after", row_text(schema, records.after).fill_null("null")))
    return members([*parts, ("origin", _origin(batch))])


def change_lines(changes: ChangeBatch) -> pa.Array:
    """Each change as its line of JSON, which is the same everywhere."""
    return pa.array(str(json_rows.lines(changes, Spelling.UTF8), "utf-8").split("\n")[:-1], pa.string())


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _times(batch: pa.RecordBatch) -> Parts:
    parts: Parts = [("op", quote(batch.column("op").cast(pa.string())))]
    return parts + [(name, batch.column(name).cast(pa.string())) for name in ("time", "commit_time", "capture_time")]


def _key(schema: TableSchema, batch: pa.RecordBatch) -> pa.Array:
    key = _column(batch, "key")
    if key is None:
        return pa.repeat(pa.scalar("{}"), batch.num_rows)
    return members([(c.name, render(c.type, field(key, at), Form.PENSTOCK)) for at, c in enumerate(schema.key)])


def _origin(batch: pa.RecordBatch) -> pa.Array:
    origin = batch.column("origin")
    parts: Parts = []
    for at in range(origin.type.num_fields):
        name, found = origin.type.field(at).name, field(origin, at)
        if pa.types.is_struct(found.type):
            inner = [
                ("domain", quote(field(found, 0))),
                ("sequence", field(found, 1).cast(pa.string())),
                ("id", quote(field(found, 2))),
            ]
            parts.append((name, mask(found, members(inner))))
        else:
            text = pa.types.is_string(found.type)
            parts.append((name, quote(found) if text else found.cast(pa.string())))
    # The transaction stands last, as in the line of a change.
    parts.sort(key=lambda part: part[0] == "transaction")
    made = members(parts)
    return pc.if_else(pc.equal(made, "{}"), _NO_TEXT, made)
