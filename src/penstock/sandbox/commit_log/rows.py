"""Rows and range markers of a partition update, before they are bytes: what of a change goes where, in which order.

Cassandra keeps columns by kind and name, rows and range markers in clustering order, cells of a collection in the order
of their paths; overlapping range deletions become disjoint ones, joined by boundaries where they touch. A change that
writes static and other cells becomes the static row and a row. Each cell has its own time here, whether or not it is
the row's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.errors import InvalidValue
from penstock.merge.cql_value import order_key, serialized
from penstock.merge.range_deletions import Place, RangeDeletions, Step, greater, row_place
from penstock.model.change import Cell, Change, Deleted, Deletion, Delta, Element, Expiry, Op, Range, Removed, Set
from penstock.model.schema import Column, Role, TableSchema
from penstock.model.types import Kind

# Marker kinds by their number in Cassandra's enum.
_EXCLUSIVE_END, _INCLUSIVE_START, _BEFORE_BOUNDARY = 0, 1, 2
_BEHIND_BOUNDARY, _INCLUSIVE_END, _EXCLUSIVE_START = 5, 6, 7
_SHARD = struct.Struct(">16sqq")
# A cut that lies before the rows of its prefix, as the merge's range deletions have it.
_BEFORE = (0,)


class WireCell(NamedTuple):
    """A cell as Cassandra stores it. With a local time and no TTL it is a tombstone."""

    time: int
    local_s: int | None = None
    ttl_s: int | None = None
    path: bytes | None = None
    value: bytes = b""

    @property
    def is_tombstone(self) -> bool:
        return self.local_s is not None and self.ttl_s is None


@dataclass(slots=True)
class WireColumn:
    """What a row says about one column: the deletion of all it held, and cells. A simple column has one cell."""

    deletion: Deletion | None
    cells: list[WireCell]


@dataclass(slots=True)
class WireRow:
    """A row; without a clustering key it is the partition's static row."""

    clustering: tuple[Any, ...] | None = None
    time: int | None = None
    expiry: Expiry | None = None
    deletion: Deletion | None = None
    columns: dict[str, WireColumn] = field(default_factory=dict)


class WireMarker(NamedTuple):
    """A range marker. A boundary has two deletions: the one that ends, then the one that starts."""

    kind: int
    values: tuple[Any, ...]
    deletions: tuple[Deletion, ...]


@dataclass(slots=True)
class PartitionUpdate:
    """All that one mutation says about one partition of one table."""

    key: tuple[Any, ...]
    deletion: Deletion | None = None
    static: WireRow | None = None
    unfiltered: list[WireRow | WireMarker] = field(default_factory=list)

    @property
    def rows(self) -> list[WireRow]:
        return [item for item in self.unfiltered if isinstance(item, WireRow)]


def partition_update(schema: TableSchema, changes: Sequence[Change]) -> PartitionUpdate:
    """The update that these changes of one partition make together; each row may come once."""
    if not changes:
        raise InvalidValue("an update needs a change", table=schema.table)
    key = _values(schema, schema.partition, changes[0])
    update = PartitionUpdate(key)
    ranges = RangeDeletions()
    rows: dict[Place, WireRow] = {}
    for change in changes:
        if _values(schema, schema.partition, change) != key:
            raise InvalidValue("a mutation holds one partition", table=schema.table)
        if change.op is Op.DELETE_PARTITION:
            update.deletion = greater(update.deletion, _deletion(schema, change))
        elif change.op is Op.DELETE_RANGE:
            ranges.add(schema.clustering, change.range or Range(None, None), _deletion(schema, change))
        elif change.op in (Op.TRUNCATE, Op.SNAPSHOT):
            raise InvalidValue(f"a commit log holds no {change.op}", table=schema.table)
        else:
            _add_row(schema, change, update, rows)
    update.unfiltered = _interleaved(rows, ranges)
    return update


def wire_columns(schema: TableSchema, touched: Iterable[str], role: Role) -> list[Column]:
    """The columns of a role that an update names, in the order of its header: simple ones first, then by name."""
    names = set(touched)
    found = [column for column in schema.cells if column.name in names and column.role is role]
    return sorted(found, key=lambda column: (is_complex(column), column.name.encode()))


def is_complex(column: Column) -> bool:
    """Whether the column has several cells. A counter's shards are one cell."""
    return column.type.multi_cell and column.type.kind is not Kind.COUNTER


def _add_row(schema: TableSchema, change: Change, update: PartitionUpdate, rows: dict[Place, WireRow]) -> None:
    cells = {name: wire_column(schema, schema.by_name[name], cell, change) for name, cell in change.cells.items()}
    static = {name: cell for name, cell in cells.items() if schema.by_name[name].role is Role.STATIC}
    regular = {name: cell for name, cell in cells.items() if name not in static}
    if static:
        if update.static is None:
            update.static = WireRow()
        if update.static.columns.keys() & static.keys():
            raise InvalidValue("two changes of one static column in an update", table=schema.table)
        update.static.columns |= static
    whole = all(column.name in change.key for column in schema.clustering)
    if not (regular or change.marker is not None or change.deletion is not None or (whole and not static)):
        return
    if not whole:
        raise InvalidValue("a row without its clustering key", table=schema.table)
    clustering = _values(schema, schema.clustering, change)
    row = WireRow(clustering, deletion=change.deletion, columns=regular)
    if change.marker is not None:
        row.time = _time(schema, change.marker.time, change)
        row.expiry = change.marker.expiry
    place = row_place(schema.clustering, clustering)
    if place in rows:
        raise InvalidValue("two changes of one row in an update", table=schema.table)
    rows[place] = row


def wire_column(schema: TableSchema, column: Column, cell: Cell, change: Change) -> WireColumn:
    """One column's cells, in the order of their paths."""
    if column.type.kind is Kind.COUNTER and isinstance(cell, Delta):
        return WireColumn(None, [_counter(schema, cell, change)])
    if isinstance(cell, Deleted) and not is_complex(column):
        return WireColumn(None, [_tombstone(schema, cell, change)])
    if isinstance(cell, Set) and not column.type.multi_cell:
        value = serialized(column.type, cell.value)
        return WireColumn(None, [_live(schema, cell, change, None, value)])
    if not isinstance(cell, Delta) or not is_complex(column):
        wanted = "a delta" if column.type.multi_cell else "a value"
        raise InvalidValue(f"the column takes {wanted}", table=schema.table, column=column.name)
    found: dict[Any, WireCell] = {}
    touched: list[Element | Removed] = [*cell.elements, *cell.removed]
    for each in touched:
        place, path = _path(column, each.path)
        if place in found:
            raise InvalidValue("two cells with one path in an update", table=schema.table, column=column.name)
        found[place] = (
            _tombstone(schema, each, change, path)
            if isinstance(each, Removed)
            else _live(schema, each, change, path, _item(column, each))
        )
    return WireColumn(cell.replaced, [found[place] for place in sorted(found)])


def _item(column: Column, element: Element) -> bytes:
    kind = column.type
    if kind.kind is Kind.USER:
        return serialized(kind.elements[element.path], element.value)
    item = kind.item_type
    return b"" if item is None else serialized(item, element.value)


def _path(column: Column, path: Any) -> tuple[Any, bytes]:
    """What the path sorts by, and its bytes."""
    kind = column.type.path_type
    if kind is None:
        return path, struct.pack(">H", path)
    return order_key(kind, path), serialized(kind, path)


def _live(schema: TableSchema, cell: Set | Element, change: Change, path: bytes | None, value: bytes) -> WireCell:
    ttl_s, expires_s = cell.expiry if cell.expiry is not None else (None, None)
    return WireCell(_time(schema, cell.time, change), expires_s, ttl_s, path, value)


def _tombstone(schema: TableSchema, cell: Deleted | Removed, change: Change, path: bytes | None = None) -> WireCell:
    time = _time(schema, cell.time, change)
    return WireCell(time, local_second(Deletion(time, cell.local_s)), None, path)


def _counter(schema: TableSchema, cell: Delta, change: Change) -> WireCell:
    """A counter's context: how many shards are global, which, and then the shards by id."""
    if cell.replaced is not None:
        return WireCell(cell.replaced.time, local_second(cell.replaced))
    shards = sorted((shard.path.bytes, *shard.value) for shard in cell.elements)
    head = struct.pack(f">{1 + len(shards)}h", len(shards), *(index - 0x8000 for index in range(len(shards))))
    time = max((_time(schema, shard.time, change) for shard in cell.elements), default=change.time or 0)
    return WireCell(time, value=head + b"".join(_SHARD.pack(*shard) for shard in shards))


def local_second(deletion: Deletion) -> int:
    """The second at which a deletion was noted; made up from its time where it is not known."""
    if deletion.local_s is not None:
        return deletion.local_s
    return min(max(deletion.time // 1_000_000, 0), (1 << 31) - 2)


def _time(schema: TableSchema, own: int | None, change: Change) -> int:
    time = change.time if own is None else own
    if time is None:
        raise InvalidValue("a write without a time", table=schema.table)
    return time


def _deletion(schema: TableSchema, change: Change) -> Deletion:
    if change.deletion is None:
        return Deletion(_time(schema, None, change))
    return change.deletion


def _values(schema: TableSchema, columns: tuple[Column, ...], change: Change) -> tuple[Any, ...]:
    missing = next((column.name for column in columns if column.name not in change.key), None)
    if missing is not None:
        raise InvalidValue("a key column has no value", table=schema.table, column=missing)
    return tuple(change.key[column.name] for column in columns)


def _interleaved(rows: dict[Place, WireRow], ranges: RangeDeletions) -> list[WireRow | WireMarker]:
    found: dict[Place, WireRow | WireMarker] = dict(rows)
    steps: list[Step] = ranges.steps
    for number, step in enumerate(steps):
        before = steps[number - 1] if number else None
        behind = steps[number + 1] if number + 1 < len(steps) else None
        if before is None or before.end != step.start:
            kind = _INCLUSIVE_START if step.start[-1] == _BEFORE else _EXCLUSIVE_START
            found[step.start] = WireMarker(kind, step.start_values, (step.deletion,))
        if behind is not None and behind.start == step.end:
            kind = _BEFORE_BOUNDARY if step.end[-1] == _BEFORE else _BEHIND_BOUNDARY
            found[step.end] = WireMarker(kind, step.end_values, (step.deletion, behind.deletion))
        else:
            kind = _EXCLUSIVE_END if step.end[-1] == _BEFORE else _INCLUSIVE_END
            found[step.end] = WireMarker(kind, step.end_values, (step.deletion,))
    return [found[place] for place in sorted(found)]
