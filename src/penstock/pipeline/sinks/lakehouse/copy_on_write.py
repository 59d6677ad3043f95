"""Delta tables without deletion vectors: delta-rs merges the changed rows on the driver.

Every file in which a row has changed is written anew, so the cost of a batch grows with the table. It is for readers
that do not know deletion vectors. delta-rs puts the pipeline's transaction identifier into the commit and tries again
when another program was faster.
"""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction
from deltalake import DeltaTable as Merger
from deltalake.exceptions import CommitFailedError, DeltaError

from penstock.errors import DeliveryFailed
from penstock.model.predicate import always_quoted
from penstock.pipeline.sinks.lakehouse.data_files import by_partition, statistics, stats_text, to_parquet
from penstock.pipeline.sinks.lakehouse.delta_log import Action
from penstock.pipeline.sinks.lakehouse.delta_table import DeltaTable, has_batch, now_ms
from penstock.pipeline.sinks.lakehouse.spool import GONE, read_spool


def commit(table: DeltaTable, app: str, batch: int, reports: list[dict[str, Any]]) -> None:
    """Merge a batch, unless the table has it, and clear its part of the spool."""
    paths = [add["path"] for report in reports for add in report["adds"]]
    truncated = any(report["truncated"] for report in reports)
    table.log.refresh()
    if (paths or truncated) and not has_batch(table.log.transactions, app, batch, table.name):
        key = tuple(reports[0]["key"])
        rows = read_spool([table.storage.path(path) for path in paths], table.schema, key) if paths else None
        try:
            if truncated:
                _replace(table, rows, app, batch)
            else:
                _merge(table, rows, key, CommitProperties(app_transactions=[Transaction(app, batch)]))
        except (CommitFailedError, DeltaError) as error:
            raise DeliveryFailed(f"delta-rs cannot merge a batch: {error}", table=table.name, batch=batch) from error
        table.log.refresh()
    for path in paths:
        table.storage.delete(path)


def _replace(table: DeltaTable, rows: Any, app: str, batch: int) -> None:
    """Take all rows out of the table and put these in, in one commit."""
    written: list[Action] = []
    there = None if rows is None else rows.filter(pc.invert(rows.column(GONE))).drop_columns([GONE])
    if there is not None and there.num_rows:
        for values, group in by_partition(there, tuple(table.partition)):
            part = there.take(pa.array(group)).drop_columns(table.partition)
            content, footer = to_parquet(part, "zstd")
            path = f"part-{batch}-{uuid.uuid4().hex}-{len(written)}.parquet"
            table.storage.write(path, content)
            stats = stats_text(statistics(part, footer))
            add = {"path": path, "partitionValues": values, "size": content.size, "modificationTime": now_ms()}
            written.append({"add": {**add, "dataChange": True, "stats": stats}})
    table.commit(app, batch, lambda: [*table.remove_actions(now_ms()), *written], operation="TRUNCATE")


def _merge(table: DeltaTable, rows: Any, key: tuple[str, ...], properties: CommitProperties) -> None:
    names = {always_quoted(name): f"source.{always_quoted(name)}" for name in table.schema.names}
    same = " AND ".join(_same(name, nulls=rows.column(name).null_count > 0) for name in key)
    (
        Merger(str(table.storage.directory))
        .merge(rows, same, source_alias="source", target_alias="target", commit_properties=properties)
        .when_matched_delete(f"source.{GONE}")
        .when_matched_update(names)
        .when_not_matched_insert(names, f"NOT source.{GONE}")
        .execute()
    )


def _same(name: str, *, nulls: bool) -> str:
    """Clustering values are null in the row that stands for a partition with static values only.

    Such rows are asked for only where there are any: nothing but plain equality is a quick join.
    """
    target, source = f"target.{always_quoted(name)}", f"source.{always_quoted(name)}"
    equal = f"({target} = {source})"
    return f"({equal} OR ({target} IS NULL AND {source} IS NULL))" if nulls else equal
