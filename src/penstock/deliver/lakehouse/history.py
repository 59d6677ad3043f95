"""The history of a table: every change as a row of its own, and the SCD2 view of it.

A history row has the columns of the whole row after the change, all null but the key where the row is gone, and
columns about the change, whose names begin with an underscore. Rows are only ever added.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.deliver.lakehouse.evolution import TargetShape, places
from penstock.deliver.lakehouse.rows import Poison, complete_rows
from penstock.deliver.lakehouse.types import TIMESTAMP
from penstock.errors import SchemaUnfit
from penstock.formats.arrow import to_arrow
from penstock.model.schema import TableSchema
from penstock.records.records import Records

CHANGE_FIELDS: tuple[pa.Field, ...] = (
    pa.field("_op", pa.string()),
    pa.field("_deleted", pa.bool_()),
    pa.field("_time", TIMESTAMP),
    pa.field("_commit_time", TIMESTAMP),
    pa.field("_capture_time", TIMESTAMP),
    pa.field("_version", pa.int64()),
    pa.field("_node", pa.string()),
    pa.field("_file", pa.string()),
    pa.field("_position", pa.int64()),
    pa.field("_batch", pa.int64()),
)


def check_no_clash(schema: TableSchema) -> None:
    """Refuse a source that has columns with the names of those that a history table adds."""
    for field in CHANGE_FIELDS:
        if field.name in schema.by_name:
            raise SchemaUnfit(
                "a column has the name of one that a history table adds", table=schema.table, column=field.name
            )


def history_rows(records: Records, target: TargetShape, batch: int) -> tuple[pa.Table, Poison]:
    """The records as rows of a history table; and those that it cannot hold, which are left out."""
    rows, _, poison = complete_rows(records, target)
    assert records.after is not None
    changes = to_arrow(records.changes, ())
    origin = changes.column("origin")
    values = [
        changes.column("op").cast(pa.string()),
        records.after.is_null(),
        *(_time(changes.column(name)) for name in ("time", "commit_time", "capture_time")),
        records.versions,
        *(pc.struct_field(origin, name) for name in ("node", "file", "position")),
        pa.repeat(pa.scalar(batch, pa.int64()), len(records)),
    ]
    for field, column in zip(CHANGE_FIELDS, values, strict=True):
        rows = rows.append_column(field, column.cast(field.type))
    return (rows.filter(pa.array(~poison.mask)) if poison.columns else rows), poison


def _time(micros: pa.Array) -> pa.Array:
    return micros.cast(pa.int64()).cast(TIMESTAMP)


def scd2_query(schema: TableSchema, history: str, target: TargetShape | None = None) -> str:
    """SQL, for Spark and for DataFusion, that gives each state of each row with the time from which and until which it
    held. `history` is the table's name in the query, `target` its shape, where its names are not the source's.
    Deletions end a row's last state and are no state themselves."""
    names = {name: name for name in schema.by_name} if target is None else places(schema, target)
    keys = [_quoted(names[column.name]) for column in schema.key]
    columns = ", ".join(_quoted(names[column.name]) for column in schema.columns if column.name in names)
    whole = " AND ".join(f"{name} IS NOT NULL" for name in keys)
    # Names are quoted, and they are the schema's own.
    return (
        f"SELECT {columns}, _version AS valid_from, _next AS valid_to, "  # noqa: S608 - see above
        "_next IS NULL AS is_current FROM ("
        f"SELECT *, LEAD(_version) OVER (PARTITION BY {', '.join(keys)} ORDER BY _version) AS _next "
        f"FROM {history} WHERE {whole}) AS changes WHERE NOT _deleted"
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
