"""Rows that a task only adds: to a history table, or to the spool from which the driver merges them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.deliver.delta.schema import from_delta
from penstock.deliver.delta.writer import Layout
from penstock.deliver.lakehouse.data_files import (
    by_partition,
    sorted_by,
    statistics,
    stats_text,
    to_parquet,
    with_partition,
)
from penstock.deliver.lakehouse.evolution import TargetShape
from penstock.deliver.lakehouse.history import history_rows
from penstock.deliver.lakehouse.rows import Poison, is_of_another_table
from penstock.deliver.lakehouse.source_note import SourceNote
from penstock.deliver.lakehouse.spool import SPOOL, spooled_rows
from penstock.deliver.lakehouse.storage import Storage
from penstock.records.records import Records


class AppendedRows:
    """The writer of one table in one task."""

    def __init__(
        self, storage: Storage, description: dict[str, Any], batch: int, stem: str, layout: Layout, *, spooled: bool
    ) -> None:
        self._storage = storage
        self._shape = TargetShape(
            from_delta(description["schema"]), SourceNote.from_json(description.get("source", {}))
        )
        self._schema = self._shape.schema
        self._partition = () if spooled else tuple(description["partition"])
        self._batch = batch
        self._stem = f"{SPOOL}/{stem}" if spooled else stem
        self._layout = layout
        self._spooled = spooled
        self._rows: list[pa.Table] = []
        self._adds: list[dict[str, Any]] = []
        self._truncated = False
        self.buffered_bytes = 0
        if spooled:
            storage.make_directory(SPOOL)

    def add(self, records: Records) -> Poison:
        """Take records; those that no table can hold come back."""
        if not self._spooled:
            rows, poison = history_rows(records, self._shape, self._batch)
        elif is_of_another_table(records, self._shape):
            return Poison.none(len(records))
        else:
            later = records.since_truncation()
            if later is not None:
                self._truncate()
            rows, poison = spooled_rows(records if later is None else later, self._shape)
            poison = poison if later is None else poison.moved(len(records) - len(later), len(records))
        self._rows.append(rows)
        self.buffered_bytes += rows.nbytes
        return poison

    def _truncate(self) -> None:
        """Forget what was taken so far. The driver takes out what the table has."""
        self._truncated = True
        self._rows, self.buffered_bytes = [], 0
        for add in self._adds:
            self._storage.delete(add["path"])
        self._adds = []

    def flush(self) -> None:
        """Write what was taken."""
        taken, self._rows, self.buffered_bytes = self._rows, [], 0
        if not taken:
            return
        everything = with_partition(pa.concat_tables(taken, promote_options="default"), self._schema, self._partition)
        for values, group in by_partition(everything, self._partition):
            part = everything if len(group) == everything.num_rows else everything.take(pa.array(group))
            # The order of records is kept in the spool: of two of one row, the later counts.
            order = None if self._spooled else sorted_by(part, self._shape.note.current_names(self._layout.clustering))
            part = part if order is None else part.take(pa.array(order))
            for start in range(0, part.num_rows, self._layout.rows_per_file):
                self._write(part.slice(start, self._layout.rows_per_file).drop_columns(list(self._partition)), values)

    def _write(self, rows: pa.Table, values: dict[str, str | None]) -> None:
        path = f"{self._stem}-{len(self._adds)}.parquet"
        content, footer = to_parquet(rows, self._layout.codec)
        self._storage.write(path, content)
        stats = {} if self._spooled else {"stats": stats_text(statistics(rows, footer))}
        add = {"path": path, "partitionValues": values, "size": content.size, "modificationTime": 0, "dataChange": True}
        self._adds.append({**add, **stats})

    def finish(self) -> dict[str, Any]:
        """Write the rest and say what is to be committed."""
        self.flush()
        return {"adds": self._adds, "key": self._shape.note.key, "truncated": self._truncated}
