"""The spool: changed rows that tasks leave for the driver to merge, as Parquet files.

A spooled row has the target's columns, of which a deleted one has only the key, and says whether the row is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.deliver.lakehouse.evolution import TargetShape
from penstock.deliver.lakehouse.key_hash import key_hashes
from penstock.deliver.lakehouse.key_index import last_of_each, sort_order
from penstock.deliver.lakehouse.rows import Poison, complete_rows
from penstock.records.records import Records

SPOOL = "_penstock/spool"
GONE = "_penstock_gone"


def spooled_rows(records: Records, target: TargetShape) -> tuple[pa.Table, Poison]:
    """The records of single rows, in the target's columns; and those that it cannot hold."""
    rows, whole, poison = complete_rows(records, target)
    assert records.after is not None
    rows = rows.append_column(GONE, records.after.is_null())
    chosen = whole & ~poison.mask
    return (rows if chosen.all() else rows.filter(pa.array(chosen))), poison


def read_spool(paths: Iterable[str], target: pa.Schema, key: tuple[str, ...]) -> pa.Table:
    """All rows of a batch, the last of each key, with every column of the target."""
    tables = [pq.read_table(path) for path in paths]
    rows = pa.concat_tables(tables, promote_options="default").combine_chunks()
    high, low = key_hashes([rows.column(name).combine_chunks() for name in key])
    order = sort_order(high, low)
    rows = rows.take(pa.array(order[last_of_each(high[order], low[order])]))
    there = set(rows.schema.names)
    columns = [
        rows.column(field.name) if field.name in there else pa.nulls(rows.num_rows, field.type) for field in target
    ]
    return pa.table([*columns, rows.column(GONE)], schema=pa.schema([*target, pa.field(GONE, pa.bool_())]))
