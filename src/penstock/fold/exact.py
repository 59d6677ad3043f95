"""The exact fold: partitions whose changes need more than joining plain cells of rows.

Deletions of partitions and ranges, static cells, collections, counters, and rows whose keys share a hash come here, a
few partitions at a time, as Python objects and through `penstock.merge.table_state`. What a change does to rows other
than its own is told in records of their own: a static cell shows in every row of its partition, and a range deletion
takes rows away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from penstock.merge.cql_value import one_spelling, partition_id
from penstock.merge.range_deletions import NEVER, Place, rank, row_place
from penstock.merge.row_state import (
    EXPIRING,
    LASTING,
    TOMBSTONE,
    CellState,
    ComplexState,
    CounterState,
    PartitionState,
    RowState,
    normal_row,
)
from penstock.merge.table_state import TableState
from penstock.model.change import Change, Deleted, Deletion, Delta, Element, Expiry, Marker, Op, Removed, Set
from penstock.model.schema import Role, TableSchema

# A row's name: the partition's serialized key and the place in it; the empty place is the partition's static row.
RowName = tuple[bytes, Place]
_STATIC: Place = ()
_NO_ROW = RowState(())
_WIDE = (Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE)


class Told(NamedTuple):
    """One record: the change, and the row's state after and before it (None: no row)."""

    change: Change
    after: Change | None
    before: Change | None
    version: int


class Kept(NamedTuple):
    """What is to be kept under one key: encoded later; no states when the entry is gone."""

    key: int
    states: list[Change]
    due_s: int
    dead_s: int


class ExactFold:
    """The partitions that share the upper half of their keys in the state."""

    def __init__(
        self, schema: TableSchema, now_s: int, truncation: Deletion | None = None, version: int = NEVER
    ) -> None:
        """Versions of rows that nothing is known of begin above `version`."""
        self.schema = schema
        self.now_s = now_s
        self.version = version
        self.state = TableState(schema)
        if truncation is not None:
            self.state.apply(Change(Op.TRUNCATE, time=truncation.time, deletion=truncation))
        self._versions: dict[RowName, int] = {}
        self._keys: dict[RowName, int] = {}
        # The key columns of each row, as they were first spelled (1.0 and 1.00 are one clustering value), and the rows
        # of which only a version is kept.
        self._row_keys: dict[RowName, Mapping[str, Any]] = {}
        self._ghosts: set[RowName] = set()
        self._dirty: set[RowName] = set()
        self._statics = [column for column in schema.cells if column.role is Role.STATIC]
        self._regulars = [column for column in schema.cells if column.role is Role.REGULAR]
        self._columns = schema.by_name
        self._clustering = tuple(column.name for column in schema.clustering)
        self._spellings = not all(one_spelling(column.type) for column in schema.clustering)

    def load(self, key: int, states: Iterable[Change]) -> None:
        """One entry of the state."""
        for state in states:
            name = self._name(state)
            self._keys[name] = key
            if state.op not in _WIDE:
                self._row_keys[name] = state.key
                if state.capture_time is not None:
                    self._versions[name] = state.capture_time
                if not state.cells and state.marker is None and state.deletion is None:
                    self._ghosts.add(name)
                    continue
            self.state.apply(state)

    def _spelled(self, change: Change, name: RowName, key: int, partition_key: int) -> Change:
        """The change in its row's own spelling of the key; notes where row and partition have their entries."""
        identity, place = name
        self._keys.setdefault(name, key if place else partition_key)
        self._row_keys.setdefault(name, change.key if place else self._partition_only(change))
        if self._clustering:
            self._keys.setdefault((identity, _STATIC), partition_key)
            self._row_keys.setdefault((identity, _STATIC), self._partition_only(change))
        # The row's own spelling, as Cassandra has it: a target must not see two rows.
        return replace(change, key=self._row_keys[name]) if self._spellings and place else change

    def _name(self, change: Change) -> RowName:
        identity = partition_id(self.schema.partition, change.key)
        values = tuple(change.key.get(name) for name in self._clustering)
        if change.op in _WIDE or None in values:
            return identity, _STATIC
        return identity, row_place(self.schema.clustering, values)

    def apply(self, change: Change, key: int, partition_key: int) -> Iterator[Told]:
        """Join one change; the records that it makes. `key` is its row's key in the state."""
        if not self._clustering and change.op is Op.DELETE_PARTITION:
            # A partition that is one row: the row's own deletion says the same, and has one place in the state.
            change = replace(change, op=Op.DELETE, deletion=change.deletion or Deletion(_greatest(change)))
        name = self._name(change)
        identity, place = name
        change = self._spelled(change, name, key, partition_key)
        near = self.state.partitions.get(identity)
        shared = change.op in _WIDE or any(self._columns[cell].role is Role.STATIC for cell in change.cells)
        places = set(near.rows) if near is not None and shared else set()
        before = _Picture(self, identity, places | {place})
        self.state.apply(change)
        yield from self._told(change, name, before, _Picture(self, identity, places | {place}))

    def repair(self, change: Change, key: int, partition_key: int) -> Iterator[Told]:
        """Let a row be what the change says, but for what was written after the change's commit time."""
        name = self._name(change)
        identity, place = name
        change = self._spelled(change, name, key, partition_key)
        partition = self.state.partitions.get(identity)
        places = set() if partition is None else set(partition.rows)
        before = _Picture(self, identity, places | {place})
        if partition is not None:
            row = partition.rows.get(place) if place else partition.static
            if row is not None:
                row.keep_above(change.commit_time or NEVER)
            if place and row is not None and not row:
                del partition.rows[place]
        if change.op is not Op.DELETE:
            self.state.apply(change)
        yield from self._told(change, name, before, _Picture(self, identity, places | {place}))

    def truncate(self, change: Change) -> Iterator[Told]:
        """Join the deletion of the table; records of the rows that it takes away or changes, without its own."""
        before = {
            identity: _Picture(self, identity, set(partition.rows))
            for identity, partition in self.state.partitions.items()
        }
        self.state.apply(change)
        for identity, picture in before.items():
            after = _Picture(self, identity, set(picture.norms) - {_STATIC})
            yield from self._others(change, identity, picture, after, own=None)
            yield from self._lone(change, identity, picture, after)
            if picture.header != after.header:
                self._dirty.add((identity, _STATIC))

    def clear(self, change: Change) -> Iterator[Told]:
        """Forget everything, because the table's era has ended; records of the rows that go by that."""
        for identity, partition in self.state.partitions.items():
            picture = _Picture(self, identity, set(partition.rows))
            shown = [(place, picture.living(place)) for place in sorted(picture.norms)] + [(_STATIC, picture.lone)]
            for place, was in shown:
                if was is not None:
                    version = self._grown((identity, place), _greatest(change))
                    yield Told(self._derived(change, was, None), None, was, version)
        self.version = max([self.version, *self._versions.values()])
        self._versions.clear()
        self._ghosts.clear()
        self._dirty = set(self._keys)
        self.state = TableState(self.schema)

    def drop_columns(self, before: ExactFold, floors: Mapping[str, int]) -> Iterator[Told]:
        """Records of the rows that look different since columns were dropped, some of which were added again.

        `before` has loaded the same entries under the version of the schema that they were of before. `floors` has the
        times of drops that are greater than those which the schema knows of; what they took was not loaded.
        """
        times = {column.name: column.dropped_us for column in self.schema.cells if column.dropped_us is not None}
        times |= {name: time for name, time in floors.items() if name in self._columns}
        latest = max([self.schema.last_drop, *floors.values()])
        for identity, partition in before.state.partitions.items():
            places = set(partition.rows)
            then, now = _Picture(before, identity, places), _Picture(self, identity, places)
            if then.header != now.header:
                self._dirty.add((identity, _STATIC))
            pairs = [(place, then.living(place), now.living(place)) for place in sorted(places)]
            for place, shown, is_ in [*pairs, (_STATIC, then.lone, now.lone)]:
                was = None if shown is None else self._as_of_now(shown, before.schema)
                own = then.norms.get(place) != now.norms.get(place)
                if own:
                    self._dirty.add((identity, place))
                # Static cells show in every row, or by themselves when there is none.
                changed = own or then.static != now.static or (was is None) != (is_ is None)
                if not changed or (was is None and is_ is None):
                    continue
                like = is_ or was
                assert like is not None
                cells = {name: Deleted(time) for name, time in times.items() if was is not None and name in was.cells}
                op = Op.DELETE if is_ is None else Op.UPDATE
                deletion = Deletion(latest) if is_ is None else None
                change = Change(op, like.key, cells, time=latest, deletion=deletion)
                version = self._grown((identity, place), _greatest(change))
                yield Told(change, is_, was, version)
                self._dropped((identity, place), now, version)

    def _as_of_now(self, image: Change, old: TableSchema) -> Change:
        """A row's image under an older version of the schema: with the columns that are left, and their names."""
        names = {was.name: now.name for was, now in zip(old.key, self.schema.key, strict=True)}
        key = {names[name]: value for name, value in image.key.items()}
        cells = {name: cell for name, cell in image.cells.items() if name in self._columns}
        # It was a row, also when none of these columns made it one.
        return replace(image, key=key, cells=cells, marker=image.marker or Marker(image.time))

    def _told(self, change: Change, name: RowName, before: _Picture, after: _Picture) -> Iterator[Told]:
        identity, place = name
        wide = change.op in _WIDE
        if before.header != after.header:
            self._dirty.add((identity, _STATIC))
        static = before.static != after.static
        altered = bool(place) and before.norms.get(place) != after.norms.get(place)
        shown = bool(place) and static and (before.living(place) or after.living(place)) is not None
        if (altered or shown) and not wide:
            version = self._grown(name, _greatest(change))
            yield Told(change, after.living(place), before.living(place), version)
            self._dropped(name, after, version)
        yield from self._others(change, identity, before, after, own=place if place else None)
        alone = static and not after.rows_alive() and not wide
        if alone and (not altered or before.lone is not None or after.lone is not None):
            cells = {cell: value for cell, value in change.cells.items() if self._columns[cell].role is Role.STATIC}
            op = Op.UPDATE if place else change.op
            lone = replace(change, op=op, key=self._partition_only(change), cells=cells, marker=None, deletion=None)
            version = self._grown((identity, _STATIC), _greatest(change))
            yield Told(lone, after.lone, before.lone, version)
        else:
            yield from self._lone(change, identity, before, after)
        if wide and (before.header != after.header or before.norms != after.norms):
            yield Told(change, None, None, self._grown((identity, _STATIC), _greatest(change)))

    def _others(
        self, change: Change, identity: bytes, before: _Picture, after: _Picture, own: Place | None
    ) -> Iterator[Told]:
        """What the change does to the partition's other rows."""
        static = before.static != after.static
        for place in sorted(set(before.norms) - {_STATIC, own}):
            name = (identity, place)
            changed = before.norms.get(place) != after.norms.get(place)
            was, now = before.living(place), after.living(place)
            version = self._versions.get(name)
            if (changed or static) and (was or now):
                version = self._grown(name, _greatest(change))
                yield Told(self._derived(change, was, now), now, was, version)
            if changed:
                self._dropped(name, after, version)

    def _lone(self, change: Change, identity: bytes, before: _Picture, after: _Picture) -> Iterator[Told]:
        """A partition with living static cells and no row shows as one row without clustering values."""
        was, now = before.lone, after.lone
        if (was is None) != (now is None) or (was is not None and before.static != after.static):
            version = self._grown((identity, _STATIC), _greatest(change))
            yield Told(self._derived(change, was, now), now, was, version)

    def _derived(self, change: Change, was: Change | None, now: Change | None) -> Change:
        """What a change is for a row that it does not name."""
        like = now or was
        assert like is not None
        if now is None:
            deletion = change.deletion or Deletion(_greatest(change))
            return Change(
                Op.DELETE,
                like.key,
                time=change.time,
                commit_time=change.commit_time,
                capture_time=change.capture_time,
                deletion=deletion,
                origin=change.origin,
            )
        cells = {name: cell for name, cell in change.cells.items() if self._columns[name].role is Role.STATIC}
        return replace(change, op=Op.UPDATE, key=like.key, cells=cells, marker=None, deletion=None, range=None)

    def _partition_only(self, change: Change) -> dict[str, Any]:
        return {column.name: change.key[column.name] for column in self.schema.partition}

    def _grown(self, name: RowName, time: int) -> int:
        old = self._versions.get(name, self.version)
        version = time if time > old else old + 1
        self._versions[name] = version
        self._dirty.add(name)
        return version

    def _dropped(self, name: RowName, after: _Picture, version: int | None) -> None:
        """A row that nothing is known of any more keeps its version as long as a new one could be less."""
        self._dirty.add(name)
        if name[1] not in after.norms and version is not None and version > after.floor_at(name[1]):
            self._ghosts.add(name)
        else:
            self._ghosts.discard(name)

    def expire(self, since_s: int) -> Iterator[Told]:
        """What expired after one second and until now."""
        for identity, partition in list(self.state.partitions.items()):
            static = _latest(partition.static, since_s, self.now_s)
            then = _Picture(self, identity, set(partition.rows), since_s)
            now = _Picture(self, identity, set(partition.rows))
            for place, row in sorted(partition.rows.items()):
                second = _latest(row, since_s, self.now_s)
                was, is_ = then.living(place), now.living(place)
                if second is None and (static is None or not is_):
                    continue
                if was is None and is_ is None:
                    self._dirty.add((identity, place))
                    continue
                gone = _expired(row, since_s, self.now_s) | _expired(partition.static, since_s, self.now_s)
                yield self._expiry((identity, place), was, is_, max(second or 0, static or 0), gone)
            if static is not None:
                self._dirty.add((identity, _STATIC))
            if (then.lone is None) != (now.lone is None) or (static is not None and now.lone is not None):
                seconds = [_latest(row, since_s, self.now_s) or 0 for row in partition.rows.values()]
                gone = _expired(partition.static, since_s, self.now_s)
                yield self._expiry((identity, _STATIC), then.lone, now.lone, max([static or 0, *seconds]), gone)

    def _expiry(self, name: RowName, was: Change | None, now: Change | None, second: int, gone: dict[str, Any]) -> Told:
        like = now or was
        assert like is not None
        op = Op.UPDATE if now is not None else Op.DELETE
        version = self._versions.get(name)
        version = self._grown(name, 0 if version is None else version)
        return Told(Change(op, like.key, gone, commit_time=second * 1_000_000), now, was, version)

    def kept(self) -> Iterator[Kept]:
        """The entries that are to be written."""
        names: dict[int, list[RowName]] = {}
        for name, key in self._keys.items():
            names.setdefault(key, []).append(name)
        for key in sorted({self._keys[name] for name in self._dirty}):
            states: list[Change] = []
            due: list[int] = []
            alive = False
            for name in sorted(names[key]):
                one, second, living = self._state_of(name)
                states += one
                due += [second] if second else []
                alive |= living
            yield Kept(key, states, min(due, default=0), 0 if alive else max(self.now_s, 1))

    def _state_of(self, name: RowName) -> tuple[list[Change], int, bool]:
        identity, place = name
        partition = self.state.partitions.get(identity)
        version = self._versions.get(name)
        states: list[Change] = []
        row = None
        if partition is not None and place:
            row = partition.rows.get(place)
        elif partition is not None:
            key = dict(zip((c.name for c in self.schema.partition), partition.key, strict=True))
            if partition.deletion is not None:
                states.append(
                    Change(Op.DELETE_PARTITION, key, time=partition.deletion.time, deletion=partition.deletion)
                )
            states += [
                Change(Op.DELETE_RANGE, key, time=step.deletion.time, deletion=step.deletion, range=step.range)
                for step in partition.ranges.steps
            ]
            row = partition.static or None
        if row is None:
            if version is not None and (name in self._ghosts or (not place and version > self._floor(partition))):
                states.append(Change(Op.UPDATE, self._row_keys[name], capture_time=version))
            return states, 0, False
        assert partition is not None
        states.append(replace(_image(self._key_of(partition, row, place), row, None), capture_time=version))
        columns = self._regulars if place else self._statics
        return states, _next(row, self.now_s), _row_alive(row, [c.name for c in columns], self.now_s)

    def _floor(self, partition: PartitionState | None) -> int:
        floor = NEVER if self.state.truncation is None else self.state.truncation.time
        deletion = None if partition is None else partition.deletion
        return floor if deletion is None else max(floor, deletion.time)

    def _key_of(self, partition: PartitionState, row: RowState, place: Place) -> dict[str, Any]:
        key = dict(zip((c.name for c in self.schema.partition), partition.key, strict=True))
        return key | dict(zip(self._clustering, row.key, strict=True)) if place else key


class _Picture:
    """What is seen of a partition's rows at one moment, as far as a change can touch them."""

    def __init__(self, fold: ExactFold, identity: bytes, places: set[Place], now_s: int | None = None) -> None:
        self._fold = fold
        self._now_s = fold.now_s if now_s is None else now_s
        self._partition = fold.state.partitions.get(identity)
        partition = self._partition
        self._states: dict[Place, Change | None] = {}
        self.norms: dict[Place, Any] = {}
        self.static: Any = normal_row(_NO_ROW, fold._columns)
        self.header: Any = None
        self.lone: Change | None = None
        if partition is None:
            return
        self.static = normal_row(partition.static, fold._columns)
        ranges = tuple((step.start, step.end, rank(step.deletion)) for step in partition.ranges.steps)
        if partition.deletion is not None or ranges or partition.static:
            self.header = partition.deletion and rank(partition.deletion), ranges, self.static
        for place in places:
            row = partition.rows.get(place)
            if row is not None:
                self.norms[place] = normal_row(row, fold._columns)
                self._states[place] = self._living(partition, row, place)
        if partition.static and not self.rows_alive() and self._alive(partition.static, fold._statics):
            self.lone = _image(fold._key_of(partition, partition.static, _STATIC), partition.static, None)

    def _alive(self, row: RowState, columns: list[Any]) -> bool:
        return _row_alive(row, [column.name for column in columns], self._now_s)

    def _living(self, partition: PartitionState, row: RowState, place: Place) -> Change | None:
        if not self._alive(row, self._fold._regulars):
            return None
        return _image(self._fold._key_of(partition, row, place), row, partition.static)

    def living(self, place: Place) -> Change | None:
        """The row's image; None when there is no row."""
        return self._states.get(place)

    def floor_at(self, place: Place) -> int:
        """The greatest write time that is covered at a place."""
        floor = self._fold._floor(self._partition)
        return floor if self._partition is None else max(floor, self._partition.ranges.at(place))

    def rows_alive(self) -> bool:
        partition = self._partition
        if partition is None:
            return False
        return any(self._alive(row, self._fold._regulars) for row in partition.rows.values())


def _cell_alive(cell: CellState | None, now_s: int) -> bool:
    return cell is not None and (cell.kind == LASTING or (cell.kind == EXPIRING and now_s < cell.second))


def _row_alive(row: RowState, columns: list[str], now_s: int) -> bool:
    if _cell_alive(row.marker, now_s):
        return True
    for name in columns:
        complex_ = row.complexes.get(name)
        if isinstance(complex_, CounterState):
            if complex_.total() is not None:
                return True
        elif complex_ is not None:
            if any(_cell_alive(cell, now_s) for _, cell in complex_.elements.values()):
                return True
        elif _cell_alive(row.cells.get(name), now_s):
            return True
    return False


def _cells_of(row: RowState) -> Iterator[CellState]:
    if row.marker is not None:
        yield row.marker
    yield from row.cells.values()
    for complex_ in row.complexes.values():
        for _, cell in complex_.elements.values():
            yield cell


def _latest(row: RowState, since_s: int, now_s: int) -> int | None:
    """The last second of an expiry in a span."""
    return max((c.second for c in _cells_of(row) if c.kind == EXPIRING and since_s < c.second <= now_s), default=None)


def _next(row: RowState, now_s: int) -> int:
    return min((c.second for c in _cells_of(row) if c.kind == EXPIRING and c.second > now_s), default=0)


def _expired(row: RowState, since_s: int, now_s: int) -> dict[str, Any]:
    """The cells and elements that expired in a span, as deleted ones."""

    def gone(cell: CellState) -> bool:
        return cell.kind == EXPIRING and since_s < cell.second <= now_s

    out: dict[str, Any] = {
        name: Deleted(cell.time, cell.second) for name, cell in sorted(row.cells.items()) if gone(cell)
    }
    for name, complex_ in sorted(row.complexes.items()):
        removed = tuple(
            Removed(path, cell.time, cell.second) for _, (path, cell) in sorted(complex_.elements.items()) if gone(cell)
        )
        if removed:
            out[name] = Delta(None, (), removed)
    return out


def _greatest(change: Change) -> int:
    """The greatest write time in a change."""
    times = [
        change.time,
        change.deletion.time if change.deletion else None,
        change.marker.time if change.marker else None,
    ]
    for cell in change.cells.values():
        if isinstance(cell, Delta):
            times += [element.time for element in cell.elements] + [removed.time for removed in cell.removed]
            times.append(cell.replaced.time if cell.replaced else None)
        else:
            times.append(cell.time)
    return max((time for time in times if time is not None), default=0)


def _image(key: dict[str, Any], row: RowState, static: RowState | None) -> Change:
    """A row's state as one change, with the static cells of its partition; elements stand in the order of paths."""
    cells: dict[str, Any] = {}
    times: list[int] = [] if row.deletion is None else [row.deletion.time]
    for part in (row,) if static is None else (row, static):
        for name, cell in part.cells.items():
            times.append(cell.time)
            dead = cell.kind == TOMBSTONE
            cells[name] = Deleted(cell.time, _noted(cell)) if dead else Set(cell.value, cell.time, _expiry(cell))
        for name, complex_ in part.complexes.items():
            times += [cell.time for _, cell in complex_.elements.values()]
            times += [] if complex_.deletion is None else [complex_.deletion.time]
            cells[name] = _delta(complex_)
    marker = None
    if row.marker is not None:
        times.append(row.marker.time)
        marker = Marker(row.marker.time, _expiry(row.marker))
    op = Op.INSERT if marker is not None else Op.UPDATE if cells else Op.DELETE
    return Change(op, key, cells, time=max(times, default=0), marker=marker, deletion=row.deletion)


def _delta(complex_: ComplexState) -> Delta:
    ordered = [complex_.elements[key] for key in sorted(complex_.elements)]
    return Delta(
        complex_.deletion,
        tuple(Element(path, c.value, c.time, _expiry(c)) for path, c in ordered if c.kind != TOMBSTONE),
        tuple(Removed(path, c.time, _noted(c)) for path, c in ordered if c.kind == TOMBSTONE),
    )


def _expiry(cell: CellState) -> Expiry | None:
    return Expiry(cell.ttl_s, cell.second) if cell.kind == EXPIRING else None


def _noted(cell: CellState) -> int | None:
    return None if cell.second < 0 else cell.second
