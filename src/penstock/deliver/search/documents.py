"""Documents: records as the lines of a bulk request, made a column at a time.

A row that is there becomes an `index` line and its document, a row that is gone a `delete` line. Both carry the row's
version as an external one, so a cluster never takes an older state over a newer one, and the same state twice has no
effect. The id is made of the key: readable, the same each time, and different for different keys. A partition that has
static cells and no row is a document too, as it is a row to SELECT. Records about more than a row (the deletion of a
partition, say) have no document; the rows that they take away have records of their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats.arrow import to_arrow
from penstock.formats.json import TEXT_KINDS
from penstock.formats.json_columns import Form, field, members, quote, render, unquote
from penstock.formats.search_fields import field_name
from penstock.model.schema import TableSchema
from penstock.records.records import Records

ID_BYTES_MAX = 512
# So much text is made at once, about: enough for a bulk request, and no more memory than that.
_PIECE_BYTES = 16 << 20
_PIECE_ROWS_MAX = 8192
# Cassandra lets writers choose any time; a version cannot be less than zero.
_VERSION_MIN = 0
# Numbers of the operations that concern more than a row. Where a partition is one row, its deletion is the row's.
_STATIC = "\\static"
_NO_TEXT = pa.scalar(None, pa.string())


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines for a bulk request, one entry per record: an action and, for rows that are there, the document."""

    records: Records
    # The number of each entry's record.
    numbers: Any
    data: memoryview
    # Where each entry begins in the data, and the end.
    offsets: Any

    def __len__(self) -> int:
        return len(self.numbers)


def bulk_lines(records: Records, index: str, fields: Mapping[str, str] | None = None) -> Iterator[Lines]:
    """The entries of all records that are about a whole row; with `fields` (column → field), only these columns."""
    schema = records.schema
    assert records.after is not None
    batch = to_arrow(records.changes, frozenset(column.name for column in schema.key))
    wide = pa.array(records.wide())
    key = batch.column("key")
    versions = pc.max_element_wise(records.versions, _VERSION_MIN)
    step = _piece_rows(records)
    for start in range(0, len(records), step):
        part = slice(start, start + step)
        ids = pc.if_else(wide[part], _NO_TEXT, document_ids(schema, key[part]))
        made = _entries(schema, index, ids, records.after[part], versions[part], fields)
        whole = made.is_valid().to_numpy(zero_copy_only=False)
        numbers = np.flatnonzero(whole)
        if not len(numbers):
            continue
        kept = made if len(numbers) == len(made) else made.drop_null()
        offsets = np.frombuffer(kept.buffers()[1], np.int32, len(kept) + 1, 4 * kept.offset)
        yield Lines(records, numbers + start, memoryview(kept.buffers()[2]), offsets)


def _piece_rows(records: Records) -> int:
    row_bytes = len(records.changes.rows) // max(len(records), 1) + 1
    if records.after is not None:
        row_bytes = max(row_bytes, records.after.nbytes // max(len(records), 1))
    return max(1, min(_PIECE_ROWS_MAX, _PIECE_BYTES // row_bytes))


def _entries(
    schema: TableSchema,
    index: str,
    ids: pa.StringArray,
    after: pa.StructArray,
    versions: pa.Int64Array,
    fields: Mapping[str, str] | None,
) -> pa.Array:
    """One text per record; null where there is no id."""
    there = after.is_valid()
    action = pc.if_else(there, '{"index":{"_index":', '{"delete":{"_index":')
    target = f'{json.dumps(index)},"_id":'
    end = pc.if_else(there, ',"version_type":"external_gte"}}\n', ',"version_type":"external_gte"}}')
    body = pc.if_else(there, documents(schema, after, fields), "")
    return pc.binary_join_element_wise(
        action, target, quote(ids), ',"version":', versions.cast(pa.string()), end, body, "\n", ""
    )


def documents(schema: TableSchema, rows: pa.StructArray, fields: Mapping[str, str] | None = None) -> pa.Array:
    """Whole rows as documents. A column that is null has no field."""
    parts = [
        (
            field_name(column.name) if fields is None else fields[column.name],
            render(column.type, field(rows, at), Form.SEARCH),
        )
        for at, column in enumerate(schema.columns)
        if fields is None or column.name in fields
    ]
    return members(parts, len(rows))


def document_ids(schema: TableSchema, key: pa.StructArray) -> pa.Array:
    """The id of each key; null where a key column is null.

    The columns' text with `|` between them. A `|` or a backslash inside is written with a backslash before it, so that
    different keys have different ids; a backslash before anything else stands for what has no text of its own. A key
    without any clustering value is that of a partition's static cells.
    """
    parts = []
    for at, column in enumerate(schema.key):
        values = field(key, at)
        text = values if column.type.kind in TEXT_KINDS else unquote(render(column.type, values, Form.SEARCH))
        text = pc.replace_substring(text, "\\", "\\\\")
        parts.append(pc.replace_substring(text, "|", "\\|"))
    ids = pc.binary_join_element_wise(*parts, "|") if len(parts) > 1 else parts[0]
    partition, clustering = parts[: len(schema.partition)], parts[len(schema.partition) :]
    if clustering and ids.null_count:
        lone = pc.binary_join_element_wise(*partition, _STATIC, "|")
        given = pc.coalesce(*clustering) if len(clustering) > 1 else clustering[0]
        ids = pc.if_else(given.is_null(), lone, ids)
    lengths = pc.binary_length(ids)
    if pc.any(pc.or_(pc.equal(lengths, 0), pc.greater(lengths, ID_BYTES_MAX))).as_py():
        ids = pa.array([None if text is None else _short(text) for text in ids.to_pylist()], pa.string())
    return ids


def _short(text: str) -> str:
    if not text:
        return "\\empty"
    encoded = text.encode()
    return text if len(encoded) <= ID_BYTES_MAX else f"\\sha256|{hashlib.sha256(encoded).hexdigest()}"
