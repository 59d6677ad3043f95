"""RowFilter: which records of a table are delivered, by a condition in the language of CREATE CDC_LOG … WHERE.

With whole rows the condition is asked of the row before and after the change: a row that enters is delivered as it is,
one that leaves as a delete, and one that is outside both times not at all. With changes only, it is asked of the
change, as a filtered log does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.filters.filter import Filter
from penstock.filters.functions import Functions
from penstock.formats.arrow import from_arrow, to_arrow
from penstock.model.change import Op
from penstock.model.predicate import Predicate, column_names
from penstock.model.schema import TableSchema
from penstock.records.records import Records
from penstock.records.row_changes import row_changes


class RowFilter:
    """A condition made ready for one version of a table."""

    def __init__(self, predicate: Predicate, schema: TableSchema, functions: Functions) -> None:
        self._changes = Filter(predicate, schema, functions)
        wanted = set(column_names(predicate))
        columns = tuple(c for c in schema.columns if c in schema.key or c.name in wanted)
        # The rows are asked as if they had just been inserted, with the columns that the condition looks at.
        self._asked = replace(schema, columns=columns)
        self._rows = Filter(predicate, self._asked, functions)

    def apply(self, records: Records) -> Records | None:
        """The records that are left."""
        if records.after is None:
            return select(records, self._changes.truths(records.changes))
        there = pc.is_valid(records.after)
        inside = self._holds(records.after)
        before = pc.is_valid(records.before) if records.before is not None else pa.array([True] * len(records))
        was_inside = self._holds(records.before) if records.before is not None else before
        leaves = pc.and_(was_inside, pc.invert(inside))
        # A deletion of more than one row is no row, and passes: what it deletes may have been inside.
        whole = pc.or_(inside, pc.or_(leaves, pc.invert(pc.or_(there, before))))
        left = select(records, whole)
        gone = leaves.filter(whole)
        return as_deletes(left, gone) if left is not None and pc.any(gone).as_py() else left

    def _holds(self, rows: pa.StructArray) -> pa.BooleanArray:
        """Whether the condition is true for each row; where there is no row it is false."""
        there = pc.is_valid(rows)
        if not len(rows):
            return there
        # A column of many cells is asked by its whole value, as SELECT gives it.
        return pc.and_(there, self._rows.truths(row_changes(self._asked, Op.INSERT, rows, nulls=True)))


def select(records: Records, keep: pa.BooleanArray) -> Records | None:
    """The records for which `keep` is true; None when there are none."""
    places = np.flatnonzero(keep.to_numpy(zero_copy_only=False))
    if not len(places):
        return None
    return records if len(places) == len(records) else records.take(places)


def as_deletes(records: Records, gone: pa.BooleanArray) -> Records:
    """The same records, of which some say that their row is gone."""
    assert records.after is not None
    old = to_arrow(records.changes)
    arrays = []
    for field in old.schema:
        found = old.column(field.name)
        if field.name == "op":
            texts = pc.if_else(gone, Op.DELETE.value, found.cast(pa.string()))
            arrays.append(texts)
        elif field.name == "cells":
            cells = [_absent_where(found.field(part.name), gone) for part in field.type]
            arrays.append(pa.StructArray.from_arrays(cells, fields=list(field.type)))
        elif field.name == "marker":
            arrays.append(_null_where(found, gone))
        else:
            arrays.append(found)
    names = old.schema.names
    changes = from_arrow(records.schema, pa.RecordBatch.from_arrays(arrays, names=names))
    return replace(records, source=changes, after=_null_where(records.after, gone), ops=None)


def _absent_where(cell: pa.StructArray, gone: pa.BooleanArray) -> pa.StructArray:
    states = pc.if_else(gone, pa.scalar(0, pa.int8()), cell.field("state"))
    parts = [states if part.name == "state" else cell.field(part.name) for part in cell.type]
    return pa.StructArray.from_arrays(parts, fields=list(cell.type))


def _null_where(found: pa.StructArray, gone: pa.BooleanArray) -> pa.StructArray:
    children = [found.field(part.name) for part in found.type]
    return pa.StructArray.from_arrays(children, fields=list(found.type), mask=pc.or_(gone, found.is_null()))
