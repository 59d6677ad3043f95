"""The shelf: cells of columns that a table does not have at the moment.

A column that is dropped takes its cells with it, up to the write time of the drop. A cell that is newer, which a client
can write with a timestamp of its own, is still there when the column is added again. So the cells of columns that go
are looked through: those newer than the drop are kept beside the rows, as changes that name nothing else, and when a
version of the schema has their column again, they are joined like any other change.

Of a column that is dropped again as of an earlier time, the version after that knows the last drop only. What went with
the drops before it is taken out of runs, rows and the shelf by their times (`above`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from penstock.fold.bucket import BucketState
from penstock.fold.entries import Entries, binary_array, joined_bytes
from penstock.formats import avro
from penstock.formats.arrow import to_arrow
from penstock.merge.dropped import newer, without_older
from penstock.model.batch import ChangeBatch
from penstock.model.change import Cell, Change, Delta, Op
from penstock.model.schema import Role, TableId, TableSchema
from penstock.model.types import Kind
from penstock.records import keys
from penstock.records.runs import Run


def drops(old: TableSchema, new: TableSchema) -> dict[str, int]:
    """The columns of one version that another has no more, with the write times of their drops, where known.

    The cells of counters are not kept: such a column can never be added again.
    """
    if not new.dropped:
        return {}
    times = dict(new.dropped)
    gone = (column for column in old.cells if column.name not in new.by_name and column.type.kind is not Kind.COUNTER)
    return {column.name: times[column.name] for column in gone if column.name in times}


def newer_changes(batch: ChangeBatch, times: Mapping[str, int]) -> Iterator[Change]:
    """Of the changes of a batch those cells of some columns that are newer than the columns' drops."""
    if not len(batch) or not times:
        return
    rows = np.flatnonzero(_candidates(batch, times))
    if not len(rows):
        return
    picked = keys.scan(batch, content=False).pick(rows)
    for change in avro.decode(ChangeBatch(batch.schema, len(rows), picked)):
        yield from newer_cells(change, batch.schema, times)


def _candidates(batch: ChangeBatch, times: Mapping[str, int]) -> Any:
    """Which changes may have such cells; of collections every one that names the column."""
    found = to_arrow(batch, times)
    own = found.column("time")
    cells = found.column("cells")
    out = np.zeros(len(found), bool)
    for name, dropped_us in times.items():
        cell = cells.field(name)
        there = pc.greater(cell.field("state"), 0)
        if cell.type.get_field_index("delta") < 0:
            newer = pc.greater(pc.coalesce(cell.field("time"), own), dropped_us)
            there = pc.and_(there, newer.fill_null(fill_value=True))
        out |= there.to_numpy(zero_copy_only=False)
    return out


def newer_cells(change: Change, schema: TableSchema, times: Mapping[str, int]) -> Iterator[Change]:
    """The cells of a change that are newer than the drops of their columns; static ones as a change of their own."""
    kept: dict[bool, dict[str, Cell]] = {False: {}, True: {}}
    for name, dropped_us in times.items():
        cell = change.cells.get(name)
        left = None if cell is None else newer(cell, change.time, dropped_us)
        if left is not None:
            kept[schema.by_name[name].role is Role.STATIC][name] = left
    for static, cells in kept.items():
        if cells:
            named = schema.partition if static else schema.key
            key = {column.name: change.key[column.name] for column in named if column.name in change.key}
            yield Change(Op.UPDATE, key, cells, time=max(map(_greatest, cells.values())))


def above(run: Run, floors: Mapping[str, int]) -> Run:
    """A run without the cells up to the floors of their columns."""
    if not any(name in run.schema.by_name for name in floors):
        return run
    changes = [without_older(change, floors) for change in avro.decode(run.batch())]
    return replace(run, rows=bytes(avro.encode(run.schema, changes).rows))


def _greatest(cell: Cell) -> int:
    if not isinstance(cell, Delta):
        return cell.time or 0
    times = [one.time or 0 for one in cell.elements] + [one.time or 0 for one in cell.removed]
    return max(times + ([cell.replaced.time] if cell.replaced is not None else []))


def put(state: BucketState, schema: TableSchema, changes: Iterable[Change]) -> None:
    """Keep such changes; one that is kept already is kept once."""
    found: dict[int, bytes] = {}
    for change in changes:
        row = bytes(avro.encode(schema, [change]).rows)
        found[int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "little")] = row
    if found:
        order = sorted(found)
        bounds = np.concatenate(([0], np.cumsum([len(found[key]) for key in order])))
        rows = binary_array(bounds, b"".join(found[key] for key in order))
        state.put(Entries.of_shelf(schema, np.array(order, np.uint64), rows))


def take(state: BucketState, schema: TableSchema) -> list[ChangeBatch]:
    """What is kept for columns that this version of the schema has again. It is on the shelf no more.

    Of another table that had the name, everything is forgotten.
    """
    out: list[ChangeBatch] = []
    for entries in state.shelves(schema.table):
        other = bool(entries.schema.id and schema.id and entries.schema.id != schema.id)
        data, _ = joined_bytes(entries.rows)
        changes = avro.decode(ChangeBatch(entries.schema, len(entries), data))
        back = np.array([other or any(name in schema.by_name for name in change.cells) for change in changes])
        if not back.any():
            continue
        taken = entries.take(np.flatnonzero(back))
        state.put(Entries.of_shelf(taken.schema, taken.keys, taken.rows, gone=True))
        if not other:
            mine = [change for change, is_back in zip(changes, back, strict=True) if is_back]
            out.append(avro.encode(entries.schema, mine))
            # A change may be of several columns, of which others are still gone.
            times = drops(entries.schema, schema)
            put(state, entries.schema, (one for change in mine for one in newer_cells(change, entries.schema, times)))
    return out


def forget(state: BucketState, table: TableId, floors: Mapping[str, int]) -> None:
    """Keep nothing up to the floors of columns."""
    for entries in state.shelves(table) if floors else ():
        data, _ = joined_bytes(entries.rows)
        changes = avro.decode(ChangeBatch(entries.schema, len(entries), data))
        kept = [without_older(change, floors) for change in changes]
        less = [number for number, change in enumerate(changes) if kept[number] != change]
        taken = entries.take(np.array(less, np.int64))
        state.put(Entries.of_shelf(taken.schema, taken.keys, taken.rows, gone=True))
        put(state, entries.schema, (kept[number] for number in less if kept[number].cells))


def clear(state: BucketState, schema: TableSchema) -> None:
    """Forget what is kept of a table."""
    for entries in state.shelves(schema.table):
        state.put(Entries.of_shelf(entries.schema, entries.keys, entries.rows, gone=True))
