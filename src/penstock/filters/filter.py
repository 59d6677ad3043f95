"""Filter: which changes of a table go into a log.

A change is kept when the log's predicate is true for it. A column that the change does not touch is unknown, and so is
what depends on it; a change for which the predicate is unknown is dropped, except deletions: to miss one is worse than
to apply one that was not needed. A change at which a user function raises is neither kept nor dropped but parked.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.filters.evaluation import Rows
from penstock.filters.functions import Functions
from penstock.filters.plan import Planner
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.predicate import Predicate, column_names
from penstock.model.schema import TableSchema

log = structlog.get_logger()


class Filtered(NamedTuple):
    """One batch after the filter."""

    kept: ChangeBatch | None
    parked: ChangeBatch | None
    dropped: int


class Filter:
    """A predicate made ready for one schema of a table. May be used from many threads."""

    def __init__(self, predicate: Predicate, schema: TableSchema, functions: Functions, *, name: str = "") -> None:
        """Raises InvalidStatement when the predicate cannot be evaluated. `name` is the log's, for messages."""
        self.predicate = predicate
        self.schema = schema
        self._name = name
        self._step = Planner(schema, functions).plan(predicate)
        self._columns = column_names(predicate)
        self._mutex = threading.Lock()
        # Changes kept, dropped and parked since the start.
        self.kept = 0
        self.dropped = 0
        self.parked = 0

    def truths(self, batch: ChangeBatch) -> pa.BooleanArray:
        """Whether each change is kept; one at which a user function raises is not, and is counted as parked."""
        rows = Rows(batch, self._columns)
        truth = self._step.run(rows, pa.array([True] * rows.count, pa.bool_()))
        keep = pc.if_else(pc.is_valid(truth), truth, rows.vectors.deletes())
        if rows.failed:
            keep = pc.and_(keep, pa.array([index not in rows.failed for index in range(rows.count)]))
            self._note_failures(rows)
        return keep

    def apply(self, batch: ChangeBatch) -> Filtered:
        """Cut the batch. A batch that is kept as a whole is returned as it is."""
        rows = Rows(batch, self._columns)
        everything = pa.array([True] * rows.count, pa.bool_())
        truth = self._step.run(rows, everything)
        keep = pc.if_else(pc.is_valid(truth), truth, rows.vectors.deletes())
        chosen: list[bool] = keep.to_pylist()
        for index in rows.failed:
            chosen[index] = False
        kept, parked = sum(chosen), len(rows.failed)
        result = Filtered(
            batch if kept == rows.count and not batch.skip else avro.select(batch, chosen) if kept else None,
            avro.select(batch, [index in rows.failed for index in range(rows.count)]) if parked else None,
            rows.count - kept - parked,
        )
        with self._mutex:
            self.kept += kept
            self.dropped += result.dropped
            self.parked += parked
        if parked:
            self._note_failures(rows)
        return result

    def _note_failures(self, rows: Rows) -> None:
        (function, error), count = rows.raised.most_common(1)[0]
        log.warning(
            "filter function raised",
            table=str(self.schema.table),
            log=self._name,
            function=function,
            error=error,
            count=count,
            parked=len(rows.failed),
        )
