"""Records: what happened to one table in one task of one micro-batch, in the order of delivery.

A record is an encoded change, and where whole rows were asked for, the row after it and the row before it as columns
of plain values. Records of one row stand in order, and their versions grow, over batches and restarts too. `images`
makes whole rows of encoded row states with Arrow's own functions: no Python object is made per row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats import avro
from penstock.formats.arrow import row_columns, to_arrow
from penstock.formats.arrow_plan import plan
from penstock.merge.row_state import UNKNOWN_SHARD
from penstock.model.batch import ChangeBatch
from penstock.model.schema import Column, Role, TableSchema
from penstock.model.types import Kind
from penstock.records import keys

_SET, _DELTA = 1, 3


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one table that were written with one version of its schema."""

    schema: TableSchema
    # One encoded change per record, without positions; or what makes them, when nobody may want them.
    source: ChangeBatch | Callable[[], ChangeBatch]
    # Whole rows after and before each change, of `row_type(schema)`; null where there is no row. None: not asked for.
    after: pa.StructArray | None
    before: pa.StructArray | None
    # Per record, int64: grows with every record of the same row.
    versions: pa.Int64Array
    # What the fold has seen of the changes anyway, so that they need not be read again for it: the numbers of their
    # operations and their write times (NumPy arrays; None: not known), and that no row has a second record.
    ops: Any = None
    times: Any = None
    single: bool = False

    def __len__(self) -> int:
        return len(self.versions)

    @property
    def changes(self) -> ChangeBatch:
        if not isinstance(self.source, ChangeBatch):
            object.__setattr__(self, "source", self.source())
        assert isinstance(self.source, ChangeBatch)
        return self.source

    def keys(self) -> pa.LargeBinaryArray:
        """Per record the encoded key columns: equal for records of the same row."""
        return keys.key_bytes(self.changes)

    def wide(self) -> Any:
        """Which records (a NumPy mask) delete more than a row; what that means for each row is a record of its own."""
        ops = op_numbers(self.changes) if self.ops is None else self.ops
        return np.isin(ops, _WIDE_OPS if self.schema.clustering else _WIDE_OPS[1:])

    def since_truncation(self) -> Records | None:
        """The records that come after the last one that begins an era of the table; None when none of them does.

        Only a source that gives its tables ids has eras. Else a truncation is a deletion of what was written before it,
        and each row that it takes has a record of its own.
        """
        if not self.schema.id:
            return None
        ops = op_numbers(self.changes) if self.ops is None else self.ops
        places = np.flatnonzero(ops == _TRUNCATE)
        return self.take(np.arange(places[-1] + 1, len(self))) if len(places) else None

    def newest_time(self) -> int | None:
        """The greatest write time of the changes; None when none has any."""
        if self.times is not None and len(self.times):
            return int(self.times.max())
        found: int | None = pc.max(to_arrow(self.changes, ()).column("time")).as_py()
        return found

    def take(self, chosen: Any) -> Records:
        """The records with these numbers (a numpy array of integers), in that order."""
        indices = pa.array(chosen, pa.int64())
        return replace(
            self,
            source=pick(self.changes, indices),
            after=None if self.after is None else self.after.take(indices),
            before=None if self.before is None else self.before.take(indices),
            versions=self.versions.take(indices),
            ops=None if self.ops is None else self.ops[np.asarray(chosen, np.int64)],
            times=None if self.times is None else self.times[np.asarray(chosen, np.int64)],
        )

    def last(self) -> Records:
        """Only the last record of each row; what it says of before is what the row's first record said.

        Deletions of partitions, ranges and tables stay: they are not a row's.
        """
        if self.single or not len(self):
            return self
        codes = pc.dictionary_encode(self.keys()).indices.to_numpy(zero_copy_only=False)
        count = len(codes)
        # Where a partition is one row, its deletion is the row's.
        wide = self.wide()
        # A partition's own records have the key of its row without clustering values, and do not count as that one's.
        numbers = np.flatnonzero(~wide)
        lasts = np.zeros(codes.max() + 1, np.int64)
        lasts[codes[numbers]] = numbers
        firsts = np.zeros(codes.max() + 1, np.int64)
        firsts[codes[numbers[::-1]]] = numbers[::-1]
        chosen = np.flatnonzero(wide | (lasts[codes] == np.arange(count)))
        if len(chosen) == count:
            return self
        made = replace(self.take(chosen), single=True)
        if self.before is None:
            return made
        origins = np.where(wide[chosen], chosen, firsts[codes[chosen]])
        return replace(made, before=self.before.take(pa.array(origins, pa.int64())))


# Numbers of the operations that concern more than a row: delete_partition, delete_range, truncate.
_TRUNCATE = 5
_WIDE_OPS = (3, 4, _TRUNCATE)


def op_numbers(batch: ChangeBatch) -> Any:
    """Per change the number of its operation (its place in `Op`), as a numpy array."""
    return to_arrow(batch, ()).column("op").indices.to_numpy(zero_copy_only=False)


def pick(batch: ChangeBatch, indices: pa.Int64Array) -> ChangeBatch:
    """The changes with these numbers, counted from the first that counts; a batch without positions or a seal."""
    starts = np.frombuffer(avro.row_offsets(batch.schema, batch.rows, batch.count), np.int64)
    starts = np.ascontiguousarray(starts[batch.skip :])
    rows = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(batch), [None, pa.py_buffer(starts), pa.py_buffer(batch.rows)]
    )
    taken = rows.take(indices)
    offsets = np.frombuffer(taken.buffers()[1], np.int64)[taken.offset : taken.offset + len(taken) + 1]
    data = taken.buffers()[2]
    content = b"" if data is None else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
    return ChangeBatch(batch.schema, len(taken), content)


def row_type(schema: TableSchema) -> pa.StructType:
    """The type of a whole row: each column with the Arrow type of its plain value, in table order."""
    shape = plan(schema).schema
    fields = []
    for column in schema.columns:
        if column.role in (Role.PARTITION, Role.CLUSTERING):
            type_ = shape.field("key").type.field(column.name).type
        else:
            type_ = shape.field("cells").type.field(column.name).type.field("value").type
        fields.append(pa.field(column.name, type_))
    return pa.struct(fields)


def images(schema: TableSchema, states: ChangeBatch, now_s: int) -> pa.StructArray:
    """Whole rows of encoded row states: every column by name, null where there is no row at this second.

    A state is a change that says all that is known of a row, with the static cells of its partition among its cells.
    A state without clustering values stands for a partition that has static cells and no row.
    """
    columns = row_columns(states)
    count = columns.num_rows
    found: dict[str, pa.Array] = {}
    there = {Role.REGULAR: _living_marker(columns.column("marker"), now_s), Role.STATIC: np.zeros(count, bool)}
    for column in schema.cells:
        cell = columns.column("cells").field(column.name)
        found[column.name], present = _plain(cell, column, now_s)
        there[column.role] |= present
    whole = np.ones(count, bool)
    for column in schema.key:
        found[column.name] = columns.column("key").field(column.name)
        if column.role is Role.CLUSTERING:
            whole &= found[column.name].is_valid().to_numpy(zero_copy_only=False)
    alive = np.where(whole, there[Role.REGULAR], there[Role.STATIC])
    type_ = row_type(schema)
    return pa.StructArray.from_arrays(
        [found[field.name] for field in type_], fields=list(type_), mask=pa.array(~alive, pa.bool_())
    )


def _unexpired(expires: pa.Int64Array, now_s: int) -> Any:
    return pc.fill_null(pc.greater(expires, now_s), True).to_numpy(zero_copy_only=False)


def _living_marker(marker: pa.StructArray, now_s: int) -> Any:
    return marker.is_valid().to_numpy(zero_copy_only=False) & _unexpired(marker.field("expires_s"), now_s)


def _plain(cell: pa.StructArray, column: Column, now_s: int) -> tuple[pa.Array, Any]:
    """A column's values at this second, and where it has a living cell."""
    states = cell.field("state").to_numpy(zero_copy_only=False)
    alive = (states == _SET) & _unexpired(cell.field("expires_s"), now_s)
    values = cell.field("value")
    if not column.type.multi_cell or not (states == _DELTA).any():
        return (values if alive.all() else _where(alive, values)), alive
    delta = cell.field("delta")
    if column.type.kind is Kind.COUNTER:
        merged, present = _totals(delta)
    else:
        merged, present = _collections(delta.field("elements"), column, values.type, now_s)
    present &= states == _DELTA
    # The two sides are disjoint: a cell is either set as a whole or a delta.
    numbers = np.arange(len(states))
    both = pa.concat_arrays([values, merged])
    chosen = np.where(present, numbers + len(states), numbers)
    return both.take(pa.array(chosen, pa.int64(), mask=~(alive | present))), alive | present


def _where(alive: Any, values: pa.Array) -> pa.Array:
    if not (values.is_valid().to_numpy(zero_copy_only=False) & ~alive).any():
        return values
    if not alive.any():
        return pa.nulls(len(values), values.type)
    return values.take(pa.array(np.arange(len(alive)), pa.int64(), mask=~alive))


def _collections(elements: pa.ListArray, column: Column, type_: pa.DataType, now_s: int) -> tuple[pa.Array, Any]:
    """Collections and user types of their living elements, which stand in the order of their paths."""
    count = len(elements)
    offsets = elements.offsets.to_numpy(zero_copy_only=False)
    items = elements.values
    alive = _unexpired(items.field("expires_s"), now_s)
    # How many of the elements before each offset are alive: where the lists of the living ones begin.
    before = np.concatenate(([0], np.cumsum(alive)))
    starts = before[offsets]
    present = starts[1:] > starts[:-1]
    living = items.filter(pa.array(alive))
    kind = column.type.kind
    if kind is Kind.USER:
        parents = np.repeat(np.arange(count), np.diff(starts))
        return _structs(living, parents, count, type_), present
    bounds = pa.array(starts.astype(np.int32), pa.int32())
    if kind is Kind.MAP:
        return pa.MapArray.from_arrays(bounds, living.field("path"), living.field("value"), type=type_), present
    values = living.field("path" if kind is Kind.SET else "value")
    return pa.ListArray.from_arrays(bounds, values, type=type_), present


def _structs(living: pa.StructArray, parents: Any, count: int, type_: pa.StructType) -> pa.StructArray:
    """Each element holds the user type with one field filled; together they make one value per row."""
    paths = living.field("path").to_numpy(zero_copy_only=False)
    fields = []
    for number in range(type_.num_fields):
        mine = np.flatnonzero(paths == number)
        places = np.full(count, -1, np.int64)
        places[parents[mine]] = mine
        fields.append(living.field("value").field(number).take(pa.array(places, pa.int64(), mask=places < 0)))
    return pa.StructArray.from_arrays(fields, fields=list(type_))


def _totals(delta: pa.StructArray) -> tuple[pa.Int64Array, Any]:
    """Counters: the sum of the newest count of each shard, or a total without shards that no shard is newer than."""
    elements = delta.field("elements")
    count = len(elements)
    offsets = elements.offsets.to_numpy(zero_copy_only=False)
    items = elements.values
    parents = np.repeat(np.arange(count), np.diff(offsets))
    shards = np.frombuffer(_fixed_bytes(items.field("path")), np.dtype("S16"))
    times = _longs(items.field("time"))
    counts = _longs(items.field("value").field("count"))
    # The clock of a total is its write time.
    read = shards == np.frombuffer(UNKNOWN_SHARD.bytes, np.dtype("S16"))[0]
    clocks = np.where(read, times, _longs(items.field("value").field("clock")))
    latest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(latest, parents[~read], times[~read])
    order = np.lexsort((counts, clocks, shards, parents))
    parents, shards, counts, read, times = (column[order] for column in (parents, shards, counts, read, times))
    # Of the versions of one shard the greatest stands last.
    newest = np.ones(len(parents), bool)
    newest[:-1] = (parents[1:] != parents[:-1]) | (shards[1:] != shards[:-1])
    whole = newest & read & (times >= latest[parents])
    summed = newest & ~read & ~np.isin(parents, parents[whole])
    totals = np.zeros(count, np.int64)
    np.add.at(totals, parents[whole | summed], counts[whole | summed])
    deleted = delta.field("replaced").is_valid().to_numpy(zero_copy_only=False)
    return pa.array(totals, pa.int64()), (np.diff(offsets) > 0) & ~deleted


def _longs(values: pa.Int64Array) -> Any:
    return pc.fill_null(values, 0).to_numpy(zero_copy_only=False)


def _fixed_bytes(values: pa.Array) -> bytes:
    """The bytes of a fixed-size binary array, one value after another."""
    width = values.type.byte_width
    return memoryview(values.buffers()[1])[values.offset * width : (values.offset + len(values)) * width].tobytes()
