"""Merge: folding the changes of one table into rows, exactly as Cassandra reconciles replicas.

The state is a semilattice: `apply` and `join` are commutative, associative and idempotent, so copies of a change from
several replicas, in any order and any number, give the same rows. Each cell (each element of a non-frozen collection
is a cell of its own) keeps the greatest of

    write time · tombstone over expiring over lasting · second of expiry or deletion · serialized value · time to live

and deletions of a collection, row, range, partition or table keep the greatest (write time, second). What a deletion
covers (write time not above its own) is dropped at once and never comes back, so the state has one normal form.
Nothing depends on the time of day: an expiring cell is only hidden when `visible` is asked for a later second, and
tombstones are never purged. docs/concepts/merge.md tells the rules at length, and how counters are treated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from penstock.errors import InvalidValue
from penstock.merge.cql_value import order_key, partition_id
from penstock.merge.range_deletions import NEVER, Place, greater, row_place
from penstock.merge.row_state import (
    EXPIRING,
    LASTING,
    TOMBSTONE,
    UNKNOWN_SHARD,
    CellState,
    ComplexState,
    CounterState,
    PartitionState,
    RowState,
    element_type,
    normal_partition,
    normal_row,
    wins,
)
from penstock.model.change import (
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Range,
    Removed,
    Set,
)
from penstock.model.schema import Column, Role, TableSchema
from penstock.model.types import INT16, Kind, Type

_STATIC_PLACE: Place = ()
_LIST_INDEX_MAX = 9 + 0x3FFF


class _Plan(NamedTuple):
    """What merging needs to know of one column."""

    column: Column
    static: bool
    counter: bool
    # Of a non-frozen column: the type of its paths; None for a plain one.
    path: Type | None
    # Cells up to this write time mean nothing: a column of this name was dropped then.
    floor: int


def _plan(column: Column) -> _Plan:
    path: Type | None = None
    if column.type.multi_cell:
        path = column.type.path_type or INT16
    floor = NEVER if column.dropped_us is None else column.dropped_us
    return _Plan(column, column.role is Role.STATIC, column.type.kind is Kind.COUNTER, path, floor)


class TableState:
    """All that is known of one table. Mutable; not for several threads at once."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.truncation: Deletion | None = None
        self.partitions: dict[bytes, PartitionState] = {}
        self._plans = {column.name: _plan(column) for column in schema.cells}
        self._partition_names = tuple(column.name for column in schema.partition)
        self._clustering = schema.clustering
        self._clustering_names = tuple(column.name for column in schema.clustering)

    def apply(self, change: Change) -> None:
        """Join one change. Raises InvalidValue when it has no write time or does not fit the table."""
        deletion = _deletion_of(change)
        if change.op is Op.TRUNCATE:
            self.truncation = greater(self.truncation, deletion)
            self._purge()
            return
        key = change.key
        identity = partition_id(self.schema.partition, key)
        partition = self.partitions.get(identity)
        if partition is None:
            partition = PartitionState(tuple(key[name] for name in self._partition_names))
        if change.op is Op.DELETE_PARTITION:
            partition.deletion = greater(partition.deletion, deletion)
            partition.keep_above(self._floor)
            deletion = None
        elif change.op is Op.DELETE_RANGE:
            assert deletion is not None
            if deletion.time > max(self._floor, _time(partition.deletion)):
                partition.ranges.add(self._clustering, change.range or Range(None, None), deletion)
                partition.keep_above(self._floor)
            deletion = None
        if deletion is not None or change.marker is not None or change.cells:
            self._apply_row(partition, change, deletion)
        if partition:
            self.partitions[identity] = partition
        else:
            self.partitions.pop(identity, None)

    def join(self, other: TableState) -> None:
        """Join all that another state knows."""
        for change in other.changes():
            self.apply(change)

    def partition(self, key: Mapping[str, Any]) -> PartitionState | None:
        """One partition by its key columns."""
        return self.partitions.get(partition_id(self.schema.partition, key))

    @property
    def _floor(self) -> int:
        return _time(self.truncation)

    def _purge(self) -> None:
        floor = self._floor
        for identity, partition in list(self.partitions.items()):
            partition.keep_above(floor)
            if not partition:
                del self.partitions[identity]

    def _apply_row(self, partition: PartitionState, change: Change, deletion: Deletion | None) -> None:
        floor = max(self._floor, _time(partition.deletion))
        row: RowState | None = None
        place = _STATIC_PLACE
        row_floor = floor
        key = tuple([change.key.get(name) for name in self._clustering_names])
        if None not in key:
            place = row_place(self._clustering, key)
            row_floor = max(floor, partition.ranges.at(place)) if partition.ranges else floor
            row = partition.rows.get(place)
            if row is None:
                row = RowState(key)
            if deletion is not None and deletion.time > row_floor:
                row.deletion = greater(row.deletion, deletion)
                row.keep_above(row_floor)
            if row.deletion is not None:
                row_floor = row.deletion.time
            if change.marker is not None:
                _mark(row, change.marker, change.time, row_floor)
        elif deletion is not None or change.marker is not None:
            raise InvalidValue("a row's change lacks a clustering column", table=self.schema.table)
        for name, cell in change.cells.items():
            plan = self._plans.get(name)
            if plan is None:
                raise InvalidValue("no such column", table=self.schema.table, column=name)
            target = partition.static if plan.static else row
            if target is None:
                raise InvalidValue("a row's cell lacks a clustering column", table=self.schema.table, column=name)
            _put(target, plan, cell, change.time, floor if plan.static else row_floor)
        if row is not None:
            if row:
                partition.rows[place] = row
            else:
                partition.rows.pop(place, None)

    def changes(self, partition: PartitionState | None = None) -> Iterator[Change]:
        """The state as changes: folding them gives the state again. With a partition, only what concerns that one."""
        if self.truncation is not None:
            yield Change(Op.TRUNCATE, time=self.truncation.time, deletion=self.truncation)
        for one in [partition] if partition is not None else list(self.partitions.values()):
            yield from self._partition_changes(one)

    def _partition_changes(self, partition: PartitionState) -> Iterator[Change]:
        key = dict(zip(self._partition_names, partition.key, strict=True))
        if partition.deletion is not None:
            yield Change(Op.DELETE_PARTITION, key, time=partition.deletion.time, deletion=partition.deletion)
        for step in partition.ranges.steps:
            deletion = step.deletion
            yield Change(Op.DELETE_RANGE, key, time=deletion.time, deletion=deletion, range=step.range)
        if partition.static:
            yield _row_change(key, partition.static)
        for row in partition.rows.values():
            yield _row_change({**key, **dict(zip(self._clustering_names, row.key, strict=True))}, row)


def _time(deletion: Deletion | None) -> int:
    return NEVER if deletion is None else deletion.time


def _deletion_of(change: Change) -> Deletion | None:
    if change.deletion is not None:
        return change.deletion
    whole = change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE)
    if whole or (change.op is Op.DELETE and not change.cells):
        return Deletion(_known(change.time))
    return None


def _known(time: int | None, fallback: int | None = None) -> int:
    if time is not None:
        return time
    if fallback is None:
        raise InvalidValue("a change without a write time cannot be merged")
    return fallback


def _living(value: Any, time: int, expiry: Expiry | None) -> CellState:
    if expiry is None:
        return CellState(time, LASTING, 0, value)
    return CellState(time, EXPIRING, expiry.expires_s, value, expiry.ttl_s)


def _dead(time: int, local_s: int | None) -> CellState:
    return CellState(time, TOMBSTONE, -1 if local_s is None else local_s)


def _mark(row: RowState, marker: Marker, change_time: int | None, floor: int) -> None:
    state = _living(None, _known(marker.time, change_time), marker.expiry)
    # The same order as for cells; a marker has no value and no tombstone.
    if state.time > floor and (row.marker is None or state > row.marker):
        row.marker = state


def _put(row: RowState, plan: _Plan, cell: Set | Deleted | Delta, change_time: int | None, floor: int) -> None:
    name = plan.column.name
    floor = max(floor, plan.floor)
    if plan.path is not None:
        delta = _as_delta(plan.column.type, cell, change_time)
        complex_ = row.complexes.get(name) or (CounterState() if plan.counter else ComplexState())
        _put_delta(complex_, plan, delta, change_time, floor)
        if complex_:
            row.complexes[name] = complex_
        else:
            row.complexes.pop(name, None)
        return
    if isinstance(cell, Delta):
        raise InvalidValue("a delta needs a non-frozen column", column=name)
    time = _known(cell.time, change_time)
    if time <= floor:
        return
    new = _living(cell.value, time, cell.expiry) if isinstance(cell, Set) else _dead(time, cell.local_s)
    old = row.cells.get(name)
    if old is None or time > old.time or wins(new, old, plan.column.type):
        row.cells[name] = new


def _as_delta(kind: Type, cell: Set | Deleted | Delta, change_time: int | None) -> Delta:
    """A whole value written to a non-frozen column replaces what was there one microsecond before it, as CQL does."""
    if isinstance(cell, Delta):
        return cell
    time = _known(cell.time, change_time)
    if isinstance(cell, Deleted) or cell.value is None:
        local_s = cell.local_s if isinstance(cell, Deleted) else None
        return Delta(Deletion(time, local_s))
    if kind.kind is Kind.COUNTER:
        # A total without its shards, as a SELECT gives it.
        return Delta(None, (Element(UNKNOWN_SHARD, (0, cell.value), time),))
    return Delta(Deletion(time - 1), tuple(_elements(kind, cell.value, time, cell.expiry)))


def _elements(kind: Type, value: Any, time: int, expiry: Expiry | None) -> Iterator[Element]:
    for index, item in enumerate(value):
        if kind.kind is Kind.MAP:
            yield Element(item[0], item[1], time, expiry)
        elif kind.kind is Kind.SET:
            yield Element(item, None, time, expiry)
        elif kind.kind is Kind.LIST:
            yield Element(list_cell_id(time, index), item, time, expiry)
        elif item is not None:
            yield Element(index, item, time, expiry)


def list_cell_id(time: int, index: int, node: int = 0) -> UUID:
    """The time-based id of a list's cell: ids of one write sort by index, ids of different writes by time.

    One id stands for 100 ns, so a write has the ten ticks of its microsecond and then goes on in the clock sequence.
    """
    if index > _LIST_INDEX_MAX:
        raise InvalidValue(f"one write can give a list at most {_LIST_INDEX_MAX + 1} elements")
    ticks = time * 10 + 0x01B21DD213814000 + min(index, 9)
    sequence = max(index - 9, 0)
    fields = (ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF)
    # The low half compares as signed bytes: the variant's upper bit makes the high byte negative for each id alike.
    return UUID(fields=(*fields, 0x80 | sequence >> 8 & 0x3F, (sequence & 0xFF) ^ 0x80, node), version=1)


def _put_delta(complex_: ComplexState, plan: _Plan, delta: Delta, change_time: int | None, floor: int) -> None:
    assert plan.path is not None
    if delta.replaced is not None and delta.replaced.time > floor:
        complex_.deletion = greater(complex_.deletion, delta.replaced)
        complex_.keep_above(floor)
    if not plan.counter:
        floor = max(floor, _time(complex_.deletion))
    for element in delta.elements:
        time = _known(element.time, change_time)
        _put_element(complex_, plan, element.path, _living(element.value, time, element.expiry), floor)
    if plan.counter and delta.removed:
        raise InvalidValue("a counter's shard cannot be removed", column=plan.column.name)
    for removed in delta.removed:
        time = _known(removed.time, change_time)
        _put_element(complex_, plan, removed.path, _dead(time, removed.local_s), floor)


def _put_element(complex_: ComplexState, plan: _Plan, path: Any, new: CellState, floor: int) -> None:
    if new.time <= floor:
        return
    assert plan.path is not None
    key = order_key(plan.path, path)
    if isinstance(complex_, CounterState):
        complex_.put(key, path, new)
        return
    old = complex_.elements.get(key)
    if old is None or wins(new, old[1], element_type(plan.column.type, path)):
        complex_.elements[key] = (path, new)


def _row_change(key: Mapping[str, Any], row: RowState) -> Change:
    cells: dict[str, Set | Deleted | Delta] = {}
    times = [] if row.deletion is None else [row.deletion.time]
    for name, cell in row.cells.items():
        times.append(cell.time)
        if cell.kind == TOMBSTONE:
            cells[name] = Deleted(cell.time, _noted(cell))
        else:
            cells[name] = Set(cell.value, cell.time, _expiry(cell))
    for name, complex_ in row.complexes.items():
        times += [cell.time for _, cell in complex_.elements.values()]
        if complex_.deletion is not None:
            times.append(complex_.deletion.time)
        cells[name] = _delta(complex_)
    marker = None
    if row.marker is not None:
        times.append(row.marker.time)
        marker = Marker(row.marker.time, _expiry(row.marker))
    op = Op.INSERT if marker is not None else Op.UPDATE if cells else Op.DELETE
    return Change(op, key, cells, time=max(times), marker=marker, deletion=row.deletion)


def _delta(complex_: ComplexState) -> Delta:
    living = [(path, cell) for path, cell in complex_.elements.values() if cell.kind != TOMBSTONE]
    dead = [(path, cell) for path, cell in complex_.elements.values() if cell.kind == TOMBSTONE]
    return Delta(
        complex_.deletion,
        tuple(Element(path, cell.value, cell.time, _expiry(cell)) for path, cell in living),
        tuple(Removed(path, cell.time, _noted(cell)) for path, cell in dead),
    )


def _expiry(cell: CellState) -> Expiry | None:
    return Expiry(cell.ttl_s, cell.second) if cell.kind == EXPIRING else None


def _noted(cell: CellState) -> int | None:
    return None if cell.second < 0 else cell.second


def fold(schema: TableSchema, changes: Iterable[Change]) -> TableState:
    """The state after these changes, in whatever order they come."""
    state = TableState(schema)
    for change in changes:
        state.apply(change)
    return state


def covers(state: TableState, change: Change) -> bool:
    """Whether the state already knows all that a change says: joining it would alter nothing."""
    if change.op is Op.TRUNCATE:
        return greater(state.truncation, _deletion_of(change)) == state.truncation
    near = state.partition(change.key) or PartitionState(tuple(change.key[c.name] for c in state.schema.partition))
    grown = fold(state.schema, state.changes(near))
    before = normal(grown)
    grown.apply(change)
    return normal(grown) == before


def normal(state: TableState) -> tuple[object, ...]:
    """Equal for states that know the same."""
    columns = state.schema.by_name
    truncation = state.truncation
    return (
        truncation and (truncation.time, truncation.local_s),
        tuple((identity, normal_partition(one, columns)) for identity, one in sorted(state.partitions.items())),
    )


def missing(have: TableState, want: TableState) -> list[Change]:
    """Changes that bring `have` up to `want`, row by row: what a read repair writes. `want` must cover `have`."""
    out: list[Change] = []
    columns = want.schema.by_name
    if want.truncation != have.truncation:
        out += [change for change in want.changes() if change.op is Op.TRUNCATE]
    for identity, wanted in want.partitions.items():
        had = have.partitions.get(identity) or PartitionState(wanted.key)
        if normal_partition(had, columns) == normal_partition(wanted, columns):
            continue
        lacking = PartitionState(wanted.key)
        lacking.deletion = wanted.deletion if had.deletion != wanted.deletion else None
        lacking.ranges = wanted.ranges if had.ranges.steps != wanted.ranges.steps else lacking.ranges
        if normal_row(had.static, columns) != normal_row(wanted.static, columns):
            lacking.static = wanted.static
        empty = RowState(())
        lacking.rows = {
            place: row
            for place, row in wanted.rows.items()
            if normal_row(had.rows.get(place, empty), columns) != normal_row(row, columns)
        }
        out += [change for change in want.changes(lacking) if change.op is not Op.TRUNCATE]
    return out


def visible(state: TableState, now_s: int) -> list[dict[str, Any]]:
    """The rows that a SELECT at this second would give: every column by name, None where there is no value.

    Partitions come in the order of their serialized keys (Cassandra has them by token), rows in clustering order. A
    partition with nothing but static cells gives one row without clustering values.
    """
    out: list[dict[str, Any]] = []
    schema = state.schema
    statics = [column for column in schema.cells if column.role is Role.STATIC]
    regulars = [column for column in schema.cells if column.role is Role.REGULAR]
    for _, partition in sorted(state.partitions.items()):
        key = dict(zip((column.name for column in schema.partition), partition.key, strict=True))
        shared = {column.name: _value(partition.static, column, now_s) for column in statics}
        found = False
        for _, row in sorted(partition.rows.items()):
            values = {column.name: _value(row, column, now_s) for column in regulars}
            if _alive(row.marker, now_s) or any(_present(row, column, now_s) for column in regulars):
                clustering = dict(zip((column.name for column in schema.clustering), row.key, strict=True))
                out.append(_in_table_order(schema, {**key, **clustering, **shared, **values}))
                found = True
        if not found and any(_present(partition.static, column, now_s) for column in statics):
            out.append(_in_table_order(schema, {**key, **shared}))
    return out


def _in_table_order(schema: TableSchema, values: dict[str, Any]) -> dict[str, Any]:
    return {column.name: values.get(column.name) for column in schema.columns}


def _alive(cell: CellState | None, now_s: int) -> bool:
    return cell is not None and (cell.kind == LASTING or (cell.kind == EXPIRING and now_s < cell.second))


def _present(row: RowState, column: Column, now_s: int) -> bool:
    complex_ = row.complexes.get(column.name)
    if isinstance(complex_, CounterState):
        return complex_.total() is not None
    if complex_ is not None:
        return any(_alive(cell, now_s) for _, cell in complex_.elements.values())
    return _alive(row.cells.get(column.name), now_s)


def _value(row: RowState, column: Column, now_s: int) -> Any:
    complex_ = row.complexes.get(column.name)
    if complex_ is None:
        cell = row.cells.get(column.name)
        return cell.value if cell is not None and _alive(cell, now_s) else None
    if isinstance(complex_, CounterState):
        return complex_.total()
    living = [(path, cell.value) for _, (path, cell) in sorted(complex_.elements.items()) if _alive(cell, now_s)]
    if not living:
        return None
    kind = column.type.kind
    if kind is Kind.MAP:
        return tuple(living)
    if kind is Kind.USER:
        fields = dict(living)
        return tuple(fields.get(index) for index in range(len(column.type.elements)))
    return tuple(path if kind is Kind.SET else value for path, value in living)
