"""What is known of one cell, collection, row or partition: the states that merging joins.

Every state has one normal form: what a deletion covers is not kept. `keep_above(floor)` restores it after a deletion
grew, where the floor is the greatest write time that a deletion around this thing covers. `normal` gives that form as
plain tuples, so that two states can be compared whatever order their parts came in.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from penstock.merge.cql_value import order_key, serialized
from penstock.merge.range_deletions import Place, RangeDeletions, rank
from penstock.model import types
from penstock.model.change import Deletion
from penstock.model.schema import Column
from penstock.model.types import Kind, Type

LASTING, EXPIRING, TOMBSTONE = 0, 1, 2
# Stands for the shards behind a counter's total where only that could be read.
UNKNOWN_SHARD = UUID(int=0)
NO_SHARD = order_key(types.UUID, UNKNOWN_SHARD)


class CellState(NamedTuple):
    """One cell; the first three fields decide unless they are equal. `second` is when it expires or was deleted."""

    time: int
    kind: int
    second: int
    value: Any = None
    ttl_s: int = 0


def wins(new: CellState, old: CellState, kind: Type) -> bool:
    """Whether `new` replaces `old` in the same place: Cassandra's rule for two versions of a cell."""
    if new[:3] != old[:3]:
        return new[:3] > old[:3]
    if new.kind == TOMBSTONE:
        return False
    return _tie(new, kind) > _tie(old, kind)


def _tie(cell: CellState, kind: Type) -> tuple[bool, bytes, int]:
    # Cassandra leaves the time to live out; it is here so that no two different cells are ever equal.
    return cell.value is not None, serialized(kind, cell.value), cell.ttl_s


class ComplexState:
    """A non-frozen collection or user type: its deletion, and its elements by the order of their paths."""

    __slots__ = ("deletion", "elements")

    def __init__(self) -> None:
        self.deletion: Deletion | None = None
        self.elements: dict[Any, tuple[Any, CellState]] = {}

    def keep_above(self, floor: int) -> None:
        if self.deletion is not None:
            if self.deletion.time <= floor:
                self.deletion = None
            else:
                floor = self.deletion.time
        for key in [key for key, (_, cell) in self.elements.items() if cell.time <= floor]:
            del self.elements[key]

    def __bool__(self) -> bool:
        return self.deletion is not None or bool(self.elements)


class CounterState(ComplexState):
    """A counter: the versions of its shards that are not covered by another, by shard and version.

    A shard's version is its clock and count; it covers another of the same shard when neither it nor its write time is
    less, and what counts is the greatest one. A total that was read without its shards is a shard of its own, whose
    clock is its write time: of several the latest counts, be it the smaller one. A deleted counter stays deleted
    whatever the times are, as in Cassandra, but its shards are kept: a deletion of the whole row may still outlive the
    counter's own.
    """

    __slots__ = ()

    def keep_above(self, floor: int) -> None:
        if self.deletion is not None and self.deletion.time <= floor:
            self.deletion = None
        for key in [key for key, (_, cell) in self.elements.items() if cell.time <= floor]:
            del self.elements[key]

    def put(self, shard: Any, path: Any, new: CellState) -> None:
        clock, count = new.value or (0, 0)
        version = (clock, count)
        if shard == NO_SHARD:
            clock, version = 0, (new.time, count)
        for key, (_, old) in list(self.elements.items()):
            if key[0] != shard:
                continue
            if key[1] >= version and old.time >= new.time:
                return
            if key[1] <= version and old.time <= new.time:
                del self.elements[key]
        # Counters have no time to live.
        self.elements[shard, version] = (path, CellState(new.time, LASTING, 0, (clock, count)))

    def total(self) -> int | None:
        """The counter's value: the sum of its shards, or the total that was read, unless a shard is newer than it."""
        if self.deletion is not None or not self.elements:
            return None
        newest = dict(key for key in sorted(self.elements))
        read = newest.pop(NO_SHARD, None)
        if read is not None and all(cell.time <= read[0] for _, cell in self.elements.values()):
            return int(read[1])
        return sum(int(count) for _, count in newest.values())


class RowState:
    """One row, or the static row of a partition."""

    __slots__ = ("cells", "complexes", "deletion", "key", "marker")

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.key = key
        self.deletion: Deletion | None = None
        self.marker: CellState | None = None
        self.cells: dict[str, CellState] = {}
        self.complexes: dict[str, ComplexState] = {}

    def __bool__(self) -> bool:
        return bool(self.cells or self.marker or self.deletion or self.complexes)

    def keep_above(self, floor: int) -> None:
        """Drop what is covered by deletions around this row, or by its own."""
        if self.deletion is not None:
            if self.deletion.time <= floor:
                self.deletion = None
            else:
                floor = self.deletion.time
        if self.marker is not None and self.marker.time <= floor:
            self.marker = None
        for name in [name for name, cell in self.cells.items() if cell.time <= floor]:
            del self.cells[name]
        for name, complex_ in list(self.complexes.items()):
            complex_.keep_above(floor)
            if not complex_:
                del self.complexes[name]


class PartitionState:
    """One partition: its own deletion, range deletions, static row and rows."""

    __slots__ = ("deletion", "key", "ranges", "rows", "static")

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.key = key
        self.deletion: Deletion | None = None
        self.ranges = RangeDeletions()
        self.static = RowState(())
        self.rows: dict[Place, RowState] = {}

    def __bool__(self) -> bool:
        return bool(self.rows or self.static or self.deletion or self.ranges)

    def keep_above(self, floor: int) -> None:
        if self.deletion is not None:
            if self.deletion.time <= floor:
                self.deletion = None
            else:
                floor = self.deletion.time
        self.ranges.keep_above(floor)
        self.static.keep_above(floor)
        for place, row in list(self.rows.items()):
            row.keep_above(max(floor, self.ranges.at(place)))
            if not row:
                del self.rows[place]


def normal_cell(cell: CellState, kind: Type) -> tuple[object, ...]:
    """A cell with its value as bytes, because a NaN is not equal to itself."""
    return cell.time, cell.kind, cell.second, *_tie(cell, kind)


def element_type(kind: Type, path: Any) -> Type:
    """The type of what a non-frozen column holds under a path."""
    return kind.elements[path] if kind.kind is Kind.USER else kind.item_type or kind.elements[-1]


def normal_row(row: RowState, columns: dict[str, Column]) -> tuple[object, ...]:
    """Equal for equal rows; of the marker and deletions, what they are compared by."""
    complexes = []
    for name, complex_ in sorted(row.complexes.items()):
        kind = columns[name].type
        elements = sorted(
            (key, *normal_cell(cell, element_type(kind, path))) for key, (path, cell) in complex_.elements.items()
        )
        complexes.append((name, complex_.deletion and rank(complex_.deletion), tuple(elements)))
    cells = tuple((name, *normal_cell(cell, columns[name].type)) for name, cell in sorted(row.cells.items()))
    return row.deletion and rank(row.deletion), row.marker, cells, tuple(complexes)


def normal_partition(partition: PartitionState, columns: dict[str, Column]) -> tuple[object, ...]:
    """Equal for partitions that hold the same."""
    return (
        partition.deletion and rank(partition.deletion),
        tuple((step.start, step.end, rank(step.deletion)) for step in partition.ranges.steps),
        normal_row(partition.static, columns),
        tuple((place, normal_row(row, columns)) for place, row in sorted(partition.rows.items())),
    )
