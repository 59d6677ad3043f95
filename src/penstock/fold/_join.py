# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The join kernel: row states and changes of plain cells, joined as the bytes they are encoded in.

It does what `penstock.merge.table_state` does for one row, for columns that are one cell each: the greatest write time
wins, then tombstone over expiring over lasting, then the second, then the value's bytes as Cassandra stores them. Only
the last of these needs values, and a Python function decides it; it is asked when two copies of a cell differ in their
value alone. Elsewhere values are never decoded: the winner's bytes are copied. A state is a row of the change record in
which every cell has its own write time and `capture_time` is the version of the last record of the row.

Of a table that is ordered by its source's log nothing is compared here: the changes come in their order, each with a
time that is greater than the one before, and each makes the row what it says. Its state keeps the origin of its last
change, by which a repetition is known.
"""

from __future__ import annotations

from typing import Any

import cython

from penstock.errors import InvalidValue
from penstock.formats._kernel import Program, RowBuffer, RowReader
from penstock.records._keys import plain_cells

if not cython.compiled:
    from penstock.fold._parts import (
        ABSENT,
        EXPIRING,
        LASTING,
        NEVER,
        OPAQUE,
        TOMBSTONE,
        RowParts,
        put_second,
        put_stamp,
        put_tombstone,
    )
    from penstock.records._keys import append, same_bytes, short_value

compiled: bool = cython.compiled

_INSERT = 0
_UPDATE = 1
_DELETE = 2
_DELETE_PARTITION = 3
_SET = 1
_DELETED = 2
# Columns of a scan's places, and the flags of changes that are more than plain cells with one time: static cells, cells
# of non-frozen columns, the row's marker, a deletion, no write time.
_KEY = 1
_CELLS = 3
_ODD = 2 | 8 | 16 | 32 | 128
# How many changes ahead memory is asked, and how many bytes it gives at a time.
_AHEAD = 8
_LINE = 64


class Joiner:
    """Joins rows of one table. `tie` decides between two values of one column: (column, bytes, bytes) -> first wins.

    `floors` has for each column the write time up to which its cells mean nothing, because it was dropped then.
    Versions of rows that nothing is known of begin above `version`. With `by_log` the later change wins, whatever times
    it has of its own: those that the scan is given say when it was.
    """

    def __init__(
        self, program: Program, multi: Any, floors: Any, tie: Any, version: int, room: int = 0, *, by_log: bool = False
    ) -> None:
        self.by_log = by_log
        self.program = program
        self.tie = tie
        self.cells = self.program.counts[self.program.child(0, 9)]
        self.multi = memoryview(multi)
        self.floors = memoryview(floors)
        if len(self.multi) < self.cells or len(self.floors) < self.cells:
            raise ValueError("a column of the record is not described")
        self.version = version
        self.plain = memoryview(plain_cells(program))
        self.commit_time = self.program.child(0, 2)
        self.origin = self.program.child(0, 4)
        self.range = self.program.child(0, 7)
        self.key = self.program.child(0, 8)
        self.state = RowParts(self.cells)
        self.change = RowParts(self.cells)
        # Room for all states at once: it would be copied whenever it grows.
        self.out = RowBuffer(max(room, 4096))
        self.news = RowBuffer(256)
        self.records = 0
        self.rows = 0
        self.unsure = 0
        # Groups whose prior state is another row's; nothing was done for them.
        self.clashes: list[int] = []

    def join(
        self,
        changes: RowReader,
        places: Any,
        marks: Any,
        times: Any,
        order: Any,
        bounds: Any,
        priors: RowReader,
        prior_starts: Any,
        floor: int,
        now_s: int,
        every: bool,
        record_table: Any,
        row_table: Any,
    ) -> None:
        """Join groups of changes, each to its row's prior state (-1: none).

        `places`, `marks` and `times` are what a scan has found of the changes. `order` has their numbers group by
        group, and `bounds` where each group begins in it. Each record adds a line to `record_table` (change, version,
        end of its state in `out`, the record before it in the group or -1) and each altered row one to `row_table`
        (group, last record, due second, alive).
        """
        groups = len(bounds) - 1
        most = len(order) if every else groups
        if (
            len(prior_starts) < groups
            or len(row_table) < groups
            or len(record_table) < most
            or len(marks) < len(places)
            or len(times) < len(places)
        ):
            raise ValueError("the tables of a join are too short")
        for at in range(len(order)):
            if order[at] < 0 or order[at] >= len(places):
                raise ValueError("no such change")
        self.changes = changes
        self.priors = priors
        self.places = places
        self.marks = marks
        self.times = times
        self.record_table = record_table
        self.row_table = row_table
        for group in range(groups):
            self._group(order, bounds, group, prior_starts[group], floor, now_s, every)

    @cython.boundscheck(False)
    def _group(self, order: Any, bounds: Any, group: int, prior: int, floor: int, now_s: int, every: bool) -> int:
        state = self.state
        state.clear()
        state.version = self.version
        if prior >= 0:
            self._parse(state, self.priors, prior, 1)
        last = -1
        record = -1
        first = bounds[group]
        stop = bounds[group + 1]
        if first < 0 or stop < first or stop > len(order):
            raise ValueError("a group lies outside the order")
        for place in range(first, stop):
            self._come(order, place)
            number = order[place]
            self.change.key_start = self.places[number, _KEY]
            self.change.key_end = self.places[number, _CELLS]
            if place == first and prior >= 0 and not self._same_row():
                self.clashes.append(group)
                return 0
            if not self._joined(number, floor):
                continue
            if state.key_end == state.key_start:
                state.key_source = 0
                state.key_start = self.change.key_start
                state.key_end = self.change.key_end
            state.version = state.time_max if state.time_max > state.version else state.version + 1
            last = number
            if every:
                record = self._record(last, record)
        if last < 0:
            return 0
        if not every:
            record = self._record(last, -1)
        self.row_table[self.rows, 0] = group
        self.row_table[self.rows, 1] = record
        self.row_table[self.rows, 2] = state.due(now_s)
        self.row_table[self.rows, 3] = state.alive(now_s)
        self.rows += 1
        return 0

    @cython.boundscheck(False)
    def _come(self, order: Any, place: int) -> int:
        """Let changes that are needed soon come from memory: groups have their changes from all over the rows."""
        if not cython.compiled:
            return 0
        if place + 2 * _AHEAD < len(order):
            start = order[place + 2 * _AHEAD]
            fetch(cython.address(self.places[start, 0]))  # noqa: F821
            fetch(cython.address(self.marks[start, 0]))  # noqa: F821
            fetch(cython.address(self.times[start]))  # noqa: F821
        if place + _AHEAD < len(order):
            start = self.places[order[place + _AHEAD], _CELLS]
            if 0 <= start < self.changes.end - _LINE:
                fetch(cython.address(self.changes.data[start]))  # noqa: F821
                fetch(cython.address(self.changes.data[start + _LINE]))  # noqa: F821
        return 0

    @cython.boundscheck(False)
    def _joined(self, number: int, floor: int) -> int:
        """Join a change to the state; whether the state is another one then."""
        altered = 0
        if self.by_log:
            self._parse(self.change, self.changes, self.places[number, 0], 0)
            return self.state.follow(self.change, self.times[number])
        if self.marks[number, 0] <= _UPDATE and self.marks[number, 1] & _ODD == 0:
            self.unsure = 0
            altered = self._apply_plain(self.places[number, _CELLS], self.times[number], floor)
            if not self.unsure:
                return altered
        # What was joined of it already does not alter the state a second time.
        self._parse(self.change, self.changes, self.places[number, 0], 0)
        return 1 if self._apply(floor) or altered else 0

    @cython.boundscheck(False)
    def _apply_plain(self, start: int, time: int, floor: int) -> int:
        """Join a change that only sets cells, all of them at its own time, as most do, straight from its bytes.

        Where a cell is not as simple, or has the same time as the state's, `unsure` says that it is not done.
        """
        state = self.state
        reader = self.changes
        altered = 0
        at = start
        if start < 0:
            raise ValueError("a row lies outside the rows")
        if state.deleted and state.deletion_time > floor:
            floor = state.deletion_time
        for index in range(self.cells):
            if at < reader.end and reader.data[at] == 0:
                at += 1
                continue
            end = -1
            if self.plain[index] and at < reader.end and reader.data[at] == 2 * _SET:
                end = short_value(reader, at + 1, self.plain[index])
            if end < 0 or end >= reader.end or reader.data[end] != 0:
                self.unsure = 1
                return altered
            if (
                time > floor
                and time > self.floors[index]
                and (state.kinds[index] == ABSENT or time >= state.times[index])
            ):
                if state.kinds[index] != ABSENT and time == state.times[index]:
                    self.unsure = 1
                    return altered
                state.kinds[index] = LASTING
                state.times[index] = time
                state.seconds[index] = 0
                state.ttls[index] = 0
                state.starts[index] = at + 1
                state.ends[index] = end
                state.sources[index] = 0
                state.seen(time)
                altered = 1
            at = end + 1
        return altered

    def _same_row(self) -> int:
        """Whether the change's key is the prior state's, byte for byte."""
        state = self.state
        change = self.change
        size = change.key_end - change.key_start
        if size != state.key_end - state.key_start:
            return 0
        return same_bytes(self.changes, change.key_start, self.priors, state.key_start, size)

    @cython.boundscheck(False)
    def _record(self, number: int, previous: int) -> int:
        self._write(self.state)
        record = self.records
        self.record_table[record, 0] = number
        self.record_table[record, 1] = self.state.version
        self.record_table[record, 2] = self.out.size
        self.record_table[record, 3] = previous
        self.records = record + 1
        return record

    def expire(self, priors: RowReader, starts: Any, since_s: int, now_s: int, record_table: Any) -> None:
        """What expired after one second and until another, in these states.

        Each state with such a cell adds a line to `record_table` (state, version, end of the new state in `out`, end
        of the change in `news`, due second, alive).
        """
        if len(record_table) < len(starts):
            raise ValueError("the tables of an expiry are too short")
        self.priors = priors
        self.record_table = record_table
        for number in range(len(starts)):
            self.state.clear()
            self._parse(self.state, priors, starts[number], 1)
            self._expire(number, since_s, now_s)

    @cython.boundscheck(False)
    def _expire(self, number: int, since_s: int, now_s: int) -> int:
        state = self.state
        latest = NEVER
        if state.marker_kind == EXPIRING and since_s < state.marker_second <= now_s:
            latest = state.marker_second
        for index in range(self.cells):
            second = state.seconds[index]
            if state.kinds[index] == EXPIRING and since_s < second <= now_s and second > latest:
                latest = second
        if latest == NEVER:
            return 0
        state.version += 1
        self._write(state)
        self._write_expiry(state, latest, since_s, now_s)
        record = self.records
        self.record_table[record, 0] = number
        self.record_table[record, 1] = state.version
        self.record_table[record, 2] = self.out.size
        self.record_table[record, 3] = self.news.size
        self.record_table[record, 4] = state.due(now_s)
        self.record_table[record, 5] = state.alive(now_s)
        self.records = record + 1
        return 0

    @cython.boundscheck(False)
    def _write_expiry(self, state: RowParts, latest: int, since_s: int, now_s: int) -> int:
        """The change that an expiry is: the cells that are gone, and the second as the time of its commit."""
        out = self.news
        out.put_long(_UPDATE if state.alive(now_s) else _DELETE)
        out.put_byte(0)
        out.put_byte(2)
        out.put_long(latest * 1_000_000)
        for _ in range(5):
            out.put_byte(0)
        append(out, self.priors, state.key_start, state.key_end)
        for index in range(self.cells):
            if state.kinds[index] == EXPIRING and since_s < state.seconds[index] <= now_s:
                put_tombstone(out, state.times[index], state.seconds[index])
            else:
                out.put_byte(0)
        out.put_byte(0)
        out.put_byte(0)
        return 0

    @cython.boundscheck(False)
    def _parse(self, parts: RowParts, reader: RowReader, start: int, is_state: int) -> int:
        program = self.program
        if start < 0 or start > reader.end:
            raise ValueError("a row lies outside the rows")
        reader.position = start
        if not is_state:
            parts.clear()
        parts.op = program.read_integer(reader, program.child(0, 0))
        timed = reader.read_present()
        time = reader.read_long() if timed else 0
        self._pass(reader, self.commit_time)
        if reader.read_present():
            version = reader.read_long()
            if is_state:
                parts.version = version
        parts.origin_source = is_state
        parts.origin_start = reader.position
        self._pass(reader, self.origin)
        parts.origin_end = reader.position
        if self.by_log and not timed:
            # Nobody asks for it: what comes later is given its time.
            timed = 1
        if reader.read_present():
            self._parse_marker(parts, reader, timed, time)
        if reader.read_present():
            parts.deleted = 1
            parts.deletion_time = reader.read_long()
            parts.deletion_second = reader.read_long() if reader.read_present() else -1
            parts.seen(parts.deletion_time)
        self._pass(reader, self.range)
        parts.key_source = is_state
        parts.key_start = reader.position
        program.skip(reader, self.key)
        parts.key_end = reader.position
        touched = self._parse_cells(parts, reader, timed, time, is_state)
        implied = parts.op == _DELETE_PARTITION or (parts.op == _DELETE and not touched)
        if implied and not parts.deleted and not is_state:
            parts.deleted = 1
            parts.deletion_time = self._known(timed, time)
            parts.deletion_second = -1
            parts.seen(parts.deletion_time)
        return 0

    @cython.boundscheck(False)
    def _pass(self, reader: RowReader, node: int) -> int:
        """Step over what is mostly not there."""
        if reader.position < reader.end and reader.data[reader.position] == 0:
            reader.position += 1
        else:
            self.program.skip(reader, node)
        return 0

    def _known(self, timed: int, time: int) -> int:
        if not timed:
            raise InvalidValue("a change without a write time cannot be merged")
        return time

    def _parse_marker(self, parts: RowParts, reader: RowReader, timed: int, time: int) -> int:
        parts.marker_time = reader.read_long() if reader.read_present() else self._known(timed, time)
        parts.marker_kind = LASTING
        parts.marker_second = 0
        parts.marker_ttl = 0
        if reader.read_present():
            parts.marker_kind = EXPIRING
            parts.marker_ttl = reader.read_long()
            parts.marker_second = reader.read_long()
        parts.seen(parts.marker_time)
        return 0

    @cython.boundscheck(False)
    def _parse_cells(self, parts: RowParts, reader: RowReader, timed: int, time: int, source: int) -> int:
        program = self.program
        node = program.child(0, 9)
        touched = 0
        for index in range(self.cells):
            if reader.position < reader.end and reader.data[reader.position] == 0:
                reader.position += 1
                continue
            touched = 1
            cell = program.child(node, index)
            parts.sources[index] = source
            parts.starts[index] = reader.position
            if self.multi[index]:
                program.skip(reader, cell)
                parts.kinds[index] = OPAQUE
                parts.ends[index] = reader.position
                parts.opaques += 1
                continue
            branch = program.read_branch(reader, cell)
            parts.seconds[index] = 0
            parts.ttls[index] = 0
            if branch == _SET:
                parts.kinds[index] = LASTING
                parts.starts[index] = reader.position
                end = short_value(reader, reader.position, self.plain[index]) if self.plain[index] else -1
                if end >= 0:
                    reader.position = end
                else:
                    program.skip(reader, program.child(program.child(cell, _SET), 0))
                parts.ends[index] = reader.position
                own = 0
                if reader.read_present():
                    if reader.read_present():
                        own = 1
                        parts.times[index] = reader.read_long()
                    if reader.read_present():
                        parts.kinds[index] = EXPIRING
                        parts.ttls[index] = reader.read_long()
                        parts.seconds[index] = reader.read_long()
                if not own:
                    parts.times[index] = self._known(timed, time)
            elif branch == _DELETED:
                parts.kinds[index] = TOMBSTONE
                parts.times[index] = reader.read_long() if reader.read_present() else self._known(timed, time)
                parts.seconds[index] = reader.read_long() if reader.read_present() else -1
                parts.ends[index] = parts.starts[index]
            else:
                continue
            if parts.times[index] <= self.floors[index]:
                parts.kinds[index] = ABSENT
                continue
            parts.seen(parts.times[index])
        return touched

    @cython.boundscheck(False)
    def _apply(self, floor: int) -> int:
        """Join the change to the state; whether the state is another one then."""
        state = self.state
        change = self.change
        altered = 0
        if change.deleted and change.deletion_time > floor:
            greater = not state.deleted or change.deletion_time > state.deletion_time
            if not greater and change.deletion_time == state.deletion_time:
                greater = change.deletion_second > state.deletion_second
            if greater:
                if state.opaques and change.deletion_time > state.deletion_time:
                    raise ValueError("a collection's elements cannot be joined here")
                state.deleted = 1
                state.deletion_time = change.deletion_time
                state.deletion_second = change.deletion_second
                state.seen(change.deletion_time)
                state.keep_above(change.deletion_time)
                altered = 1
        if state.deleted and state.deletion_time > floor:
            floor = state.deletion_time
        if change.marker_kind != ABSENT and change.marker_time > floor and change.marker_wins(state):
            state.marker_kind = change.marker_kind
            state.marker_time = change.marker_time
            state.marker_second = change.marker_second
            state.marker_ttl = change.marker_ttl
            state.seen(change.marker_time)
            altered = 1
        for index in range(self.cells):
            if change.kinds[index] == ABSENT or change.times[index] <= floor:
                continue
            if change.kinds[index] == OPAQUE:
                raise ValueError("a collection's elements cannot be joined here")
            if self._cell_wins(index):
                state.kinds[index] = change.kinds[index]
                state.times[index] = change.times[index]
                state.seconds[index] = change.seconds[index]
                state.ttls[index] = change.ttls[index]
                state.starts[index] = change.starts[index]
                state.ends[index] = change.ends[index]
                state.sources[index] = change.sources[index]
                state.seen(change.times[index])
                altered = 1
        return altered

    @cython.boundscheck(False)
    def _cell_wins(self, index: int) -> int:
        state = self.state
        change = self.change
        if state.kinds[index] == ABSENT:
            return 1
        if change.times[index] != state.times[index]:
            return change.times[index] > state.times[index]
        if change.kinds[index] != state.kinds[index]:
            return change.kinds[index] > state.kinds[index]
        if change.seconds[index] != state.seconds[index]:
            return change.seconds[index] > state.seconds[index]
        if change.kinds[index] == TOMBSTONE:
            return 0
        other = self.priors if state.sources[index] else self.changes
        size = change.ends[index] - change.starts[index]
        if size == state.ends[index] - state.starts[index] and same_bytes(
            self.changes, change.starts[index], other, state.starts[index], size
        ):
            return change.ttls[index] > state.ttls[index]
        new = (bytes(self.changes.data[change.starts[index] : change.ends[index]]), change.ttls[index])
        old = (bytes(other.data[state.starts[index] : state.ends[index]]), state.ttls[index])
        return 1 if self.tie(index, new, old) else 0

    @cython.boundscheck(False)
    def _write(self, state: RowParts) -> int:
        out = self.out
        if state.marker_kind != ABSENT:
            op = _INSERT
        else:
            op = _DELETE if state.deleted else _UPDATE
            for index in range(self.cells):
                if state.kinds[index] != ABSENT:
                    op = _UPDATE
                    break
        out.put_long(op)
        out.put_byte(2)
        out.put_long(state.time_max)
        out.put_byte(0)
        out.put_byte(2)
        out.put_long(state.version)
        if self.by_log:
            append(out, self.priors if state.origin_source else self.changes, state.origin_start, state.origin_end)
        else:
            out.put_byte(0)
        if state.marker_kind == ABSENT:
            out.put_byte(0)
        else:
            out.put_byte(2)
            put_stamp(out, state.marker_time, state.marker_kind, state.marker_ttl, state.marker_second)
        if state.deleted:
            out.put_byte(2)
            out.put_long(state.deletion_time)
            put_second(out, state.deletion_second)
        else:
            out.put_byte(0)
        out.put_byte(0)
        append(out, self.priors if state.key_source else self.changes, state.key_start, state.key_end)
        for index in range(self.cells):
            kind = state.kinds[index]
            if kind == ABSENT:
                out.put_byte(0)
            elif kind == TOMBSTONE:
                put_tombstone(out, state.times[index], state.seconds[index])
            else:
                source = self.priors if state.sources[index] else self.changes
                if kind != OPAQUE:
                    out.put_long(_SET)
                append(out, source, state.starts[index], state.ends[index])
                if kind != OPAQUE:
                    out.put_byte(2)
                    put_stamp(out, state.times[index], kind, state.ttls[index], state.seconds[index])
        out.put_byte(0)
        out.put_byte(0)
        return 0
