"""Records that write rows as a source has them now, or delete rows that it does not have."""

from __future__ import annotations

import pyarrow as pa

from penstock.model.change import Op
from penstock.model.schema import TableSchema
from penstock.records.records import Records, row_type
from penstock.records.row_changes import row_changes


def repair_records(
    schema: TableSchema, op: Op, keys: pa.StructArray, rows: pa.StructArray | None, versions: pa.Int64Array
) -> Records:
    """One record per key; without rows, each says that its row is gone."""
    after = pa.nulls(len(keys), row_type(schema)) if rows is None else rows
    return Records(schema, row_changes(schema, op, keys, times=versions), after, None, versions)
