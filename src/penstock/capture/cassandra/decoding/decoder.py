"""Decoder: sections of commit-log segments become batches of changes, table by table.

The kernel (`_mutations.py`) does the work; here is what needs deciding between two entries. Mutations of Cassandra's
own schema tables are learned before the next entry is read, so that each entry is decoded with the schema of its place
in the log. TRUNCATE, which the log tells only by a row of `system.local`, becomes a change of its table, and so does a
table that takes the name of a dropped one: what follows is of another era, which the schema of its batches says. What
came earlier than the place up to which a truncation reaches stays in the era before, whenever it is decoded. An entry
whose table, column or field is not known is parked as a whole, and later entries of its table after it, until the
definition comes; then they are decoded first, with their own file and position as origin. A column that was dropped is
read with a schema that has it again. Damage is collected, never raised: what is damaged is left out, and nothing else.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from penstock.capture.cassandra.decoding._cells import PROBLEMS, TablePlan
from penstock.capture.cassandra.decoding._mutations import Mutations
from penstock.capture.cassandra.decoding.era_division import Overtaken, divided, of_era
from penstock.capture.cassandra.decoding.value_plan import READ, WAIT, WRITE, table_plan
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.system_tables import LOCAL_ID, SCHEMA_KEYSPACE, SYSTEM
from penstock.capture.cassandra.schema.table import CassandraTable, Truncation, in_order, truncation_of
from penstock.capture.cassandra.segments.sections import Damage, Section
from penstock.capture.cassandra.segments.segment import SegmentHeader
from penstock.errors import DiskFull, InvalidSchema, PenstockError
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Deletion, Delta, Element, Op, Origin
from penstock.model.schema import Role, TableSchema
from penstock.system.clock import Clock, SystemClock

# From this format on a table's alterations are ordered by an epoch, which only the table's own updates tell.
EPOCH_FORMAT = 9
# As _mutations.pxd numbers them.
_DONE, _LEARNED, _PARKED, _DAMAGED, _FULL = range(5)
# As _cells.pxd numbers them.
_UNKNOWN_TABLE, _UNKNOWN_COLUMN = 1, 2
_FRAMES = (
    ("entry size", "an entry's size has a wrong checksum; the rest of the section is left out"),
    ("entry size", "an entry is longer than the rest of its section"),
    ("entry", "an entry has a wrong checksum"),
    ("entry", "zeros where an entry should be"),
)
_NO_LIMIT = 1 << 62
_NO_TIME = -(1 << 63)
# What stands before an entry: its size and a checksum.
_FRAME_BYTES = 8
# Epochs of a cluster's metadata count as later than any time of day, which older clusters have instead.
_EPOCHS = 1 << 62
# A table's buffer beyond this is given back when its rows are taken.
_KEPT_BYTES = 16 << 20


class ParkedEntry(NamedTuple):
    """An entry that waits for a schema: the mutation's bytes and where they stood. `table` is what it waits for."""

    table: uuid.UUID
    reason: str
    file: str
    segment: int
    position: int
    format: int
    data: bytes


class Parking(Protocol):
    """Where entries wait, in order, by the table that they wait for."""

    def park(self, entry: ParkedEntry) -> None: ...

    def holds(self, table: uuid.UUID) -> bool:
        """Whether entries wait for this table."""
        ...

    def take(self, table: uuid.UUID) -> list[ParkedEntry]:
        """The next entries that wait for this table, in order; empty when none are left."""
        ...


class MemoryParking:
    """Parking in memory, up to a bound."""

    def __init__(self, bytes_max: int = 256 << 20) -> None:
        self._entries: dict[uuid.UUID, list[ParkedEntry]] = {}
        self._bytes_max = bytes_max
        self.bytes = 0

    def park(self, entry: ParkedEntry) -> None:
        if self.bytes + len(entry.data) > self._bytes_max:
            raise DiskFull(f"parked entries would take more than {self._bytes_max} bytes", table=entry.table)
        self.bytes += len(entry.data)
        self._entries.setdefault(entry.table, []).append(entry)

    def holds(self, table: uuid.UUID) -> bool:
        return table in self._entries

    def take(self, table: uuid.UUID) -> list[ParkedEntry]:
        taken = self._entries.pop(table, [])
        self.bytes -= sum(len(entry.data) for entry in taken)
        return taken

    def tables(self) -> list[uuid.UUID]:
        """The tables that entries wait for."""
        return list(self._entries)

    def entries(self) -> Iterable[ParkedEntry]:
        """All that waits."""
        for entries in self._entries.values():
            yield from entries


@dataclass(slots=True)
class Counts:
    """What happened since the beginning. A skipped mutation has no captured table; a parked one counts as a mutation
    when it is decoded."""

    mutations: int = 0
    changes: int = 0
    skipped: int = 0
    parked: int = 0
    damaged: int = 0


@dataclass(slots=True)
class _Table:
    """A table as the kernel has it."""

    table: CassandraTable
    plan: TablePlan
    captured: bool
    # Where in the log its pending rows begin: a segment's id and a position.
    begins: tuple[int, int] = (0, 0)
    # The epoch that the log had of the table before it was told to the kernel again.
    epoch_before: int = 0
    # The schema that batches are given, with the epoch for which it was made.
    schema_epoch: int = 0
    schema: TableSchema | None = None

    @property
    def epoch(self) -> int:
        """When the table was altered, by the cluster's metadata; 0: the log has not said it, or never does."""
        return int(self.plan.epoch) or self.epoch_before


class Decoder:
    """Decodes one node's segments, one after another. Not for several threads at once."""

    def __init__(
        self,
        schemas: Schemas,
        *,
        captures: Callable[[CassandraTable], bool],
        parking: Parking,
        clock: Clock | None = None,
        batch_bytes_max: int = 8 << 20,
        tells_tables: bool = False,
    ) -> None:
        """`tells_tables`: a table that takes the name of a dropped one begins with a truncation, for its change log.

        One that was truncated, or made anew, while it was not captured does so as soon as it is.
        """
        self._schemas = schemas
        self._tells_tables = tells_tables
        self._captures = captures
        self._parking = parking
        self._clock = clock or SystemClock()
        self._batch_bytes_max = batch_bytes_max
        # The last mutation goes beyond the mark at which the kernel stops; only a huge one makes a batch too large.
        self._batch_bytes = batch_bytes_max // 2
        self._kernel = Mutations()
        self._tables: dict[uuid.UUID, _Table] = {}
        self._file = ""
        self._format = 0
        self._segment = 0
        self._now = 0
        self._reached = -1
        # How far the log was read: a segment's id and a position. Entries that waited do not move it.
        self._at = (0, 0)
        # What was decoded before a schema changed or a batch was full.
        self._closed: list[ChangeBatch] = []
        self._closed_bytes = 0
        self._extra = Counts()
        self.damage: list[Damage] = []
        self.overtaken: list[Overtaken] = []

    @property
    def pending_bytes(self) -> int:
        """The bytes of rows that `take` would give."""
        return self._closed_bytes + int(self._kernel.pending)

    @property
    def counts(self) -> Counts:
        kernel, extra = self._kernel, self._extra
        return Counts(
            int(kernel.mutations),
            int(kernel.changes) + extra.changes,
            int(kernel.skipped),
            extra.parked,
            extra.damaged,
        )

    def begin(self, header: SegmentHeader, file_name: str) -> None:
        """The sections that follow are of this segment."""
        self._file = file_name
        self._format = header.format
        self._segment = header.id
        self._reached = -1
        self._at = (header.id, 0)

    def decode(self, section: Section, after: int = 0, bytes_max: int | None = None) -> int:
        """Decode the whole entries that end behind `after`; returns the position up to which all is handled.

        That is the section's end when it is sealed, else the end of the last entry that is whole. With `bytes_max` it
        is an earlier one when so many bytes of rows are pending: `take`, and call again with what was returned.
        """
        self._now = self._clock.now_us()
        kernel = self._kernel
        kernel.begin(self._format, self._file.encode(), self._now)
        # Where the last call has stopped is the end of an entry for sure; from elsewhere the sizes lead there.
        known = after == self._reached and after >= section.start
        kernel.open(section.data, section.start, section.sealed, after, after - section.start if known else 0)
        self._at = (self._segment, max(after, section.start))
        if len(section.data) == 0:
            return section.start
        self._reached = self._decode_section(section, after, bytes_max)
        return self._reached

    def _decode_section(self, section: Section, after: int, bytes_max: int | None) -> int:
        kernel = self._kernel
        while True:
            limit = _NO_LIMIT if bytes_max is None else bytes_max - self._closed_bytes
            outcome = kernel.run(min(limit, self._batch_bytes))
            # An entry that cannot be read yet is the next one, or waits.
            reached = section.start + kernel.entry - _FRAME_BYTES if outcome == _PARKED else kernel.position
            self._at = (self._segment, int(reached))
            if outcome == _DONE:
                return int(kernel.position)
            if outcome == _FULL:
                if kernel.pending >= self._batch_bytes:
                    self._close_all()
                if bytes_max is not None and self.pending_bytes >= bytes_max:
                    return int(kernel.position)
            elif outcome == _LEARNED:
                self._learn_within(section, after)
            elif outcome == _PARKED:
                self._unknown(section, after)
            else:
                self._damaged(section)

    def take(self) -> list[ChangeBatch]:
        """All that was decoded, in log order for each table. The memory is handed over."""
        self._close_all()
        taken = self._closed
        self._closed = []
        self._closed_bytes = 0
        return taken

    def learned(self, tables: Iterable[uuid.UUID]) -> None:
        """Definitions of these tables are new or have changed: use them, and decode what waited for them."""
        if not self._now:
            self._now = self._clock.now_us()
        for table in self._schemas.untold() if self._tells_tables else ():
            if self._captures(table) and (table.id in self._tables or self._put(table)):
                self._renew(table.id)
                self._tell(self._tables[table.id])
        for table_id in tables:
            if table_id in self._tables or self._parking.holds(table_id):
                self._renew(table_id)

    # Tables.

    def _renew(self, table_id: uuid.UUID) -> None:
        """Use the table's definition as it is now, then decode what waits for it."""
        table = self._schemas.table(table_id)
        if table is None:
            return
        known = self._tables.get(table_id)
        if known is None or known.table != table or known.captured != self._captures(table):
            if known is not None:
                self._close(known)
            if not self._put(table):
                return
        else:
            known.plan.mode = self._mode(known)
        self._decode_parked(table_id)

    def _put(self, table: CassandraTable) -> bool:
        """Tell the kernel a table; False when it cannot be read at all."""
        try:
            plan = table_plan(table, READ, learns=_teaches(table))
        except InvalidSchema:
            return False
        before = self._tables.get(table.id)
        known = _Table(table, plan, self._captures(table), self._at, before.epoch if before is not None else 0)
        plan.mode = self._mode(known)
        self._tables[table.id] = known
        self._kernel.add(plan)
        return True

    def _mode(self, known: _Table) -> int:
        return WRITE if known.captured or _teaches(known.table) else READ

    def _restore(self, table: CassandraTable, name: bytes, *, static: bool) -> bool:
        """Give a table a column back that was dropped. False when it never had it."""
        dropped = table.dropped.get(name.decode(errors="replace"))
        role = Role.STATIC if static else Role.REGULAR
        if dropped is None or dropped.column.role is not role or dropped.column.name in table.schema.by_name:
            return False
        known = self._tables[table.id]
        columns = in_order([*known.table.schema.columns, dropped.column])
        self._close(known)
        mode = known.plan.mode
        # It is an older version that has the column: of the two, the one without it is the newer.
        altered = max(known.table.schema.altered - 1, 0)
        lost = tuple(one for one in known.table.schema.dropped if one[0] != dropped.column.name)
        schema = replace(table.schema, columns=columns, altered=altered, dropped=lost)
        if not self._put(replace(table, schema=schema)):
            return False
        self._tables[table.id].plan.mode = mode
        return True

    # What was decoded.

    def _schema(self, known: _Table) -> TableSchema:
        """The table's schema for its batches: altered at the cluster's epoch, if the log has it."""
        if known.schema is None or known.schema_epoch != known.epoch:
            schema, known.schema_epoch = known.table.schema, known.epoch
            if self._format >= EPOCH_FORMAT:
                # Each node has its own times of the schema, and they order nothing.
                schema = replace(schema, remade_us=0)
            altered = _EPOCHS + min(known.epoch, _EPOCHS - 1)
            known.schema = replace(schema, altered=altered) if known.epoch else schema
        return known.schema

    def _close(self, known: _Table) -> None:
        """Make a batch of what a table has."""
        begins, known.begins = known.begins, self._at
        plan = known.plan
        if not plan.count:
            return
        count, rows, when = plan.take(_KEPT_BYTES)
        self._kernel.pending -= len(rows)
        batch = ChangeBatch(self._schema(known), count, rows, when if when != _NO_TIME else None)
        if self._tells_tables and known.captured and self._format >= EPOCH_FORMAT:
            self._tell(known)
        truncation = self._schemas.truncation(known.table.id)
        if truncation is None:
            self._keep(batch)
        elif begins >= truncation.place:
            self._keep(of_era(batch, truncation.time_us))
        else:
            for part in divided(batch, truncation):
                self._keep(part)

    def _keep(self, batch: ChangeBatch) -> None:
        self._closed_bytes += len(batch.rows)
        if len(batch.rows) <= self._batch_bytes_max or batch.count == 1:
            self._closed.append(batch)
            return
        offsets = avro.row_offsets(batch.schema, batch.rows, batch.count)
        rows = memoryview(batch.rows)
        first = 0
        for row in range(1, batch.count + 1):
            if row == batch.count or offsets[row + 1] - offsets[first] > self._batch_bytes_max:
                part = bytes(rows[offsets[first] : offsets[row]])
                when, _ = avro.scan(batch.schema, part, row - first)
                self._closed.append(ChangeBatch(batch.schema, row - first, part, when))
                first = row

    def _close_all(self) -> None:
        for known in self._tables.values():
            self._close(known)

    # What the kernel stops for.

    def _learn_within(self, section: Section, after: int) -> None:
        """Learn from the entry that was just decoded, then go on in the section."""
        cursor = self._kernel.cursor
        self._learn(ParkedEntry(LOCAL_ID, "", self._file, self._segment, int(self._kernel.position), self._format, b""))
        self._reopen(section, after, cursor)

    def _reopen(self, section: Section, after: int, cursor: int) -> None:
        """Go on in a section after entries that waited were decoded."""
        self._kernel.begin(self._format, self._file.encode(), self._now)
        self._kernel.open(section.data, section.start, section.sealed, after, cursor)

    def _learn(self, entry: ParkedEntry) -> None:
        """Take in what the tables that teach have, each with the changes of this entry alone."""
        changed: set[uuid.UUID] = set()
        for known in [known for known in self._tables.values() if known.plan.count and _teaches(known.table)]:
            count, rows, when = known.plan.take(_KEPT_BYTES)
            self._kernel.pending -= len(rows)
            batch = ChangeBatch(known.table.schema, count, rows, when if when != _NO_TIME else None)
            if known.captured:
                self._keep(batch)
            else:
                self._extra.changes -= count
            changes = avro.decode(batch)
            if known.table.id == LOCAL_ID:
                self._truncate(changes, entry)
            else:
                changed |= self._learn_schema(known.table, changes, entry)
        self.learned(sorted(changed, key=lambda table_id: table_id.bytes))

    def _learn_schema(self, table: CassandraTable, changes: list[Change], entry: ParkedEntry) -> set[uuid.UUID]:
        try:
            return self._schemas.learn(table.schema.table, changes)
        except PenstockError as error:
            # Sound bytes that say what no schema can be.
            self._extra.damaged += 1
            self.damage.append(Damage(entry.file, entry.position, entry.position, "mutation", error.message))
            return set()

    def _truncate(self, changes: list[Change], entry: ParkedEntry) -> None:
        """TRUNCATE stands in the log as an element of a map: table, and place and time of the truncation."""
        for change in changes:
            cell = change.cells.get("truncated_at")
            for element in cell.elements if isinstance(cell, Delta) else ():
                self._truncate_table(element, entry)

    def _truncate_table(self, element: Element, entry: ParkedEntry) -> None:
        noted = truncation_of(element.value) if isinstance(element.value, bytes) else None
        if noted is None or not isinstance(element.path, uuid.UUID):
            return
        table_id = element.path
        table = self._schemas.table(table_id)
        # Nothing after the note itself can be gone by it.
        place = min(noted.place, (entry.segment, entry.position))
        truncation = Truncation(noted.time_us, *place, told=True)
        if table is None or not self._captures(table):
            # It may be captured later, and have a log from before.
            if self._tells_tables and table_id not in SYSTEM and not (table is not None and table.view):
                self._schemas.truncate_untold(table_id, truncation)
            return
        if table_id not in self._tables and not self._put(table):
            return
        begins = self._tables[table_id].begins
        # Cassandra writes the map's element once; an older one can only be a repetition.
        if not self._schemas.truncate(table_id, truncation):
            return
        if begins > place:
            self.overtaken.append(Overtaken(table_id, place, begins))
        self._renew(table_id)
        self._tell_era(table_id, truncation.time_us, entry.file, entry.position)

    def _tell(self, known: _Table) -> None:
        """Let a table's log know of an era that it was not told of, if there is one.

        Where epochs order everything, that is when the table's first change has said its own.
        """
        if not self._schemas.is_untold(known.table.id) or (self._format >= EPOCH_FORMAT and not known.epoch):
            return
        schema = known.table.schema
        self._schemas.tell(known.table.id)
        for other in self._tables.values():
            if other is not known and other.table.schema.table == schema.table:
                # What is pending of the table that had the name comes before this.
                self._close(other)
        time_us = schema.truncated_us or schema.altered
        self._tell_era(known.table.id, time_us, self._file, int(self._kernel.position))

    def _tell_era(self, table_id: uuid.UUID, time_us: int, file: str, position: int) -> None:
        """Let the table's log begin an era: what stands in it before is gone."""
        known = self._tables[table_id]
        origin = Origin(file=file or None, position=position if file else None, ordinal=0)
        change = Change(Op.TRUNCATE, time=time_us, capture_time=self._now, deletion=Deletion(time_us), origin=origin)
        schema = self._schema(known)
        row = bytes(avro.encode(schema, [change]).rows)
        # What came after the truncation and is pending still comes after this.
        later: list[ChangeBatch] = []
        while (
            self._closed and self._closed[-1].schema.continues(schema) and self._closed[-1].schema.table == schema.table
        ):
            later.append(self._closed.pop())
        self._closed += [ChangeBatch(schema, 1, row, time_us), *reversed(later)]
        self._closed_bytes += len(row)
        self._extra.changes += 1

    def _unknown(self, section: Section, after: int) -> None:
        """An entry that cannot be read yet: find what it lacks and read it again, or park it."""
        kernel = self._kernel
        data = section.data
        table_id = uuid.UUID(bytes=bytes(data[kernel.unknown_at : kernel.unknown_at + 16]))
        cursor = kernel.entry - _FRAME_BYTES
        if self._supply(table_id):
            # Decoding what was parked may have moved the kernel elsewhere.
            self._reopen(section, after, cursor)
            return
        payload = bytes(data[kernel.entry : kernel.entry + kernel.entry_size])
        entry = ParkedEntry(
            table_id, _reason(kernel), self._file, self._segment, int(kernel.position), self._format, payload
        )
        self._extra.parked += 1
        self._park(entry)

    def _park(self, entry: ParkedEntry) -> None:
        """Park an entry; what comes later of its table has to wait as well."""
        self._parking.park(entry)
        known = self._tables.get(entry.table)
        if known is not None and self._parking.holds(entry.table):
            known.plan.mode = WAIT

    def _supply(self, table_id: uuid.UUID) -> bool:
        """Whether what the kernel lacked is there now."""
        kernel = self._kernel
        if kernel.problem == _UNKNOWN_TABLE:
            if table_id in self._tables:
                return False
            table = self._schemas.table(table_id)
            if table is None or not self._put(table):
                return False
            self._decode_parked(table_id)
            return True
        known = self._tables[table_id]
        if kernel.problem == _UNKNOWN_COLUMN:
            return self._restore(known.table, kernel.unknown, static=bool(kernel.unknown_static))
        return False

    # What waited.

    def _decode_parked(self, table_id: uuid.UUID) -> None:
        """Decode what waited for a table. From the first that still has to wait for it, all wait again, in order."""
        while entries := self._parking.take(table_id):
            for index, entry in enumerate(entries):
                waiting = self._decode_single(entry)
                if waiting is None:
                    continue
                if waiting.table != table_id:
                    self._park(waiting)
                    continue
                rest = entries[index + 1 :]
                while more := self._parking.take(table_id):
                    rest += more
                self._park(waiting)
                for later in rest:
                    self._park(later)
                return

    def _decode_single(self, entry: ParkedEntry) -> ParkedEntry | None:
        """Decode one entry that waited; returned with its reason when it still has to wait."""
        truncated = [
            known
            for known in self._tables.values()
            if (truncation := self._schemas.truncation(known.table.id)) is not None
            and (entry.segment, entry.position) <= truncation.place
        ]
        for known in truncated:
            self._close(known)
            # What this entry has of the table came before its truncation.
            known.begins = (entry.segment, 0)
        waiting = self._decode_entry(entry)
        for known in truncated:
            self._close(known)
        return waiting

    def _decode_entry(self, entry: ParkedEntry) -> ParkedEntry | None:
        kernel = self._kernel
        while True:
            kernel.begin(entry.format, entry.file.encode(), self._now)
            outcome = kernel.single(entry.data, entry.position)
            if outcome == _LEARNED:
                self._learn(entry)
            elif outcome == _DAMAGED:
                self._extra.damaged += 1
                message = PROBLEMS[kernel.problem]
                self.damage.append(Damage(entry.file, entry.position, entry.position, "mutation", message))
            elif outcome == _PARKED:
                blocking = uuid.UUID(bytes=entry.data[kernel.unknown_at : kernel.unknown_at + 16])
                if self._supply(blocking):
                    continue
                return entry._replace(table=blocking, reason=_reason(kernel))
            return None

    def _damaged(self, section: Section) -> None:
        kernel = self._kernel
        self._extra.damaged += 1
        if kernel.problem:
            what, message, place = "mutation", PROBLEMS[kernel.problem], section.start + kernel.entry - _FRAME_BYTES
        else:
            what, message = _FRAMES[kernel.what]
            place = section.start + kernel.entry
        self.damage.append(Damage(self._file, place, place, what, message))


def _teaches(table: CassandraTable) -> bool:
    return table.id == LOCAL_ID or table.schema.table.keyspace == SCHEMA_KEYSPACE


def _reason(kernel: Mutations) -> str:
    return PROBLEMS[kernel.problem]
