"""Narrowing: rows of which dropped columns are taken, many at once.

When columns were dropped, every row that showed one of them changes, and that can be a whole table. Rows that stand by
themselves, without static cells of their partition, are read, changed and told as Arrow columns; the exact fold has the
others. The two give the same rows, which a property test holds them to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.fold.adapt import absent
from penstock.fold.collector import News
from penstock.fold.entries import Entries, binary_array, joined_bytes
from penstock.formats import avro
from penstock.formats.arrow import from_arrow, to_arrow
from penstock.formats.change_columns import OPS
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op
from penstock.model.schema import TableSchema
from penstock.records.records import images

_NUMBERS = {op: number for number, op in enumerate(Op)}
# The states of a cell, as rows have them.
_ABSENT, _DELETED = 0, 2


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What came of it: the records' changes, the rows after and before, and the entries for the state."""

    news: News
    after: bytes
    before: bytes
    entries: Entries


def showing(entries: Entries, now_s: int, floors: dict[str, int | None]) -> Any:
    """Which of the entries show a cell of these columns; where a column has a floor, a cell that is not newer."""
    data, _ = joined_bytes(entries.rows)
    found = to_arrow(ChangeBatch(entries.schema, len(entries), data), floors)
    out = np.zeros(len(entries), bool)
    for name, floor in floors.items():
        cell = found.column("cells").field(name)
        state = cell.field("state")
        there = pc.and_(pc.not_equal(state, _ABSENT), pc.not_equal(state, _DELETED))
        there = pc.and_(there, pc.fill_null(pc.greater(cell.field("expires_s"), now_s), True))
        if floor is not None:
            there = pc.and_(there, pc.fill_null(pc.less_equal(_times(cell, found), floor), True))
        out |= there.to_numpy(zero_copy_only=False)
    return out


def _times(cell: pa.StructArray, of: pa.RecordBatch) -> pa.Array:
    return pc.coalesce(cell.field("time"), of.column("time"))


def narrow(entries: Entries, floors: dict[str, int], latest: int, version: int, now_s: int) -> Narrowed:
    """Rows without what their columns held up to the columns' `floors`.

    The entries are of the new version of the schema already, in which other dropped columns are not; each is one row.
    `latest` is the time of what is told, and versions of rows that have none begin above `version`.
    """
    schema = entries.schema
    data, _ = joined_bytes(entries.rows)
    found = to_arrow(ChangeBatch(schema, len(entries), data))
    old = pc.fill_null(found.column("capture_time"), version).to_numpy()
    versions = np.where(old < latest, latest, old + 1)
    cells, cleared = _cleared(found, floors)
    states = from_arrow(schema, _with(found, capture_time=pa.array(versions), cells=cells))
    alive = images(schema, states, now_s).is_valid().to_numpy(zero_copy_only=False)
    starts = np.frombuffer(avro.row_offsets(schema, states.rows, len(entries)), np.int64)
    dead = np.where(alive, 0, max(now_s, 1))
    kept = binary_array(starts, bytes(states.rows))
    ops = np.where(alive, np.uint8(_NUMBERS[Op.UPDATE]), np.uint8(_NUMBERS[Op.DELETE]))
    times = np.full(len(entries), latest, np.int64)
    news = News(lambda: _changes(schema, found, cleared, ops, latest), versions, ops, times)
    before = from_arrow(schema, _with(found, marker=_marked(found)))
    ones = np.ones(len(entries), np.uint64)
    return Narrowed(
        news,
        bytes(states.rows),
        bytes(before.rows),
        Entries.of_rows(schema, entries.keys, ones, entries.due, dead, kept),
    )


def _cleared(found: pa.RecordBatch, floors: dict[str, int]) -> tuple[pa.Array, pa.Array]:
    """The cells without those up to the floors of their columns; and these, as deleted ones, with nothing else."""
    if found.schema.get_field_index("cells") < 0:
        # The table has no column left but those of its key.
        return pa.nulls(0), pa.nulls(0)
    cells = found.column("cells")
    left, gone = [], []
    for field, cell in zip(cells.type, cells.flatten(), strict=True):
        none = absent(field.type, len(found))
        floor = floors.get(field.name)
        if floor is None:
            left.append(cell)
            gone.append(none)
            continue
        there = pc.greater(cell.field("state"), _ABSENT)
        is_dead = pc.and_(there, pc.fill_null(pc.less_equal(_times(cell, found), floor), True))
        left.append(pc.if_else(is_dead, none, cell))
        gone.append(pc.if_else(is_dead, _deleted(none, floor), none))
    fields = list(cells.type)
    return pa.StructArray.from_arrays(left, fields=fields), pa.StructArray.from_arrays(gone, fields=fields)


def _deleted(none: pa.StructArray, time: int) -> pa.StructArray:
    values = {"state": pa.array(np.full(len(none), _DELETED, np.int8)), "time": pa.array(np.full(len(none), time))}
    arrays = [values.get(field.name, child) for field, child in zip(none.type, none.flatten(), strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(none.type))


def _marked(found: pa.RecordBatch) -> pa.StructArray:
    """The markers, with one where there is none: these were rows, also when nothing that is left made them so."""
    marker = found.column("marker")
    times = pc.coalesce(marker.field("time"), found.column("time"))
    missing = marker.is_null()
    children = [
        pc.if_else(missing, times if field.name == "time" else pa.nulls(len(found), field.type), child)
        for field, child in zip(marker.type, marker.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(marker.type))


def _changes(schema: TableSchema, found: pa.RecordBatch, cleared: pa.Array, ops: Any, latest: int) -> bytes:
    """What is told: that the cells are gone, or the row is."""
    count = len(found)
    deletes = ops == _NUMBERS[Op.DELETE]
    type_ = found.schema.field("deletion").type
    time = pa.array(np.full(count, latest))
    parts = [time if field.name == "time" else pa.nulls(count, field.type) for field in type_]
    unsaid = ("commit_time", "capture_time", "marker")
    batch = _with(
        found,
        op=pa.DictionaryArray.from_arrays(pa.array(ops.astype(np.int8)), OPS),
        time=time,
        deletion=pa.StructArray.from_arrays(parts, fields=list(type_), mask=pa.array(~deletes)),
        cells=cleared,
        **{name: pa.nulls(count, found.schema.field(name).type) for name in unsaid},
    )
    return bytes(from_arrow(schema, batch).rows)


def _with(found: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    """The batch with other columns of these names, where it has such."""
    arrays = [columns.get(name, found.column(name)) for name in found.schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=found.schema)
