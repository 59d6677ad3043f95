"""CaptureLoop: the agent's one thread: read, decode, make durable, note the place, let segments go.

The order of steps is what makes a crash harmless at any moment. Decoded changes are appended to the change logs and
entries that must wait are parked, both durable; only then may the place move past them; only when the place has moved
past a whole segment is it noted as finished; and only then does the transfer get it.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

import structlog

from penstock.capture.captured_logs import CapturedLogs
from penstock.capture.cassandra.agent.capture_choice import CaptureChoice
from penstock.capture.cassandra.agent.failed_segments import END, FailedSegment, FailedSegments, Range, left_out
from penstock.capture.cassandra.agent.node_link import NodeLink
from penstock.capture.cassandra.agent.parked_entries import ParkedEntries
from penstock.capture.cassandra.agent.place import FinishedSegments, Place, PlaceFile
from penstock.capture.cassandra.agent.released import Released
from penstock.capture.cassandra.agent.reprocessing import decode_overtaken, read_again
from penstock.capture.cassandra.agent.segment_keys import Key, reach, segment_id
from penstock.capture.cassandra.agent.status import CassandraStatus
from penstock.capture.cassandra.agent.tail import Ended, Opened, Tail
from penstock.capture.cassandra.agent.transfer import ProcessedSegment, SegmentTransfer
from penstock.capture.cassandra.decoding.decoder import EPOCH_FORMAT, Decoder
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import Damage, Section
from penstock.capture.cassandra.segments.segment import index_name
from penstock.capture.patience import Patience
from penstock.capture.place_saver import PlaceSaver
from penstock.errors import CorruptSegment, Exhausted, StorageError, UnsupportedFormat
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableSchema
from penstock.settings import AgentSettings
from penstock.system.clock import Clock

log = structlog.get_logger()

# After so many looks without anything new, the wait between looks grows step by step.
_ACTIVE_LOOKS = 50
# Now and then: cdc space, redefined logs, segments that a transfer refused, requests to read again.
_UPKEEP_S = 2.0
_DEFINITIONS_S = 5.0
_ASK_AGAIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop works with."""

    tail: Tail
    schemas: Schemas
    choice: CaptureChoice
    parked: ParkedEntries
    logs: CapturedLogs
    places: PlaceFile
    finished: FinishedSegments
    failed: FailedSegments
    transfer: SegmentTransfer
    link: NodeLink
    space_bytes_max: int
    keys: KeyStore | None = None


class CaptureLoop:
    """One run of an agent. `append`, `tables` and `describe` may be used from other threads."""

    def __init__(
        self,
        settings: AgentSettings,
        parts: Parts,
        place: Place | None,
        stop: threading.Event,
        clock: Clock,
        announce: Callable[[TableSchema], None] | None = None,
        *,
        background: bool = True,
    ) -> None:
        """`background`: places may be saved by another thread."""
        self.tables: tuple[CassandraTable, ...] = ()
        self._settings = settings
        self._parts = parts
        self._stop = stop
        self._clock = clock
        self._announce = announce
        self._decoder = Decoder(
            parts.schemas, captures=parts.choice.captures, parking=parts.parked, clock=clock, tells_tables=True
        )
        self._released = Released(parts.tail, parts.transfer, parts.space_bytes_max, settings, clock, parts.failed)
        parts.parked.before_taking = self._make_room
        # How far everything is durable, and what is saved of that.
        self._at = place or Place(0, "", 0)
        self._saver = PlaceSaver(lambda place: parts.places.prepare(place, parts.schemas), place, background=background)
        self._saved_at = clock.monotonic()
        self._defined_at = self._saved_at - _DEFINITIONS_S
        # Until the tail has passed these places, changes may come that the logs hold already.
        self._reach = {id_: end for id_, end in reach(parts.logs.repeats()).items() if id_ not in parts.finished}
        self._replaying = True
        # Tables that the node was asked about and did not know, and when that was.
        self._asked: set[UUID] = set()
        self._answered_at = clock.monotonic()
        self._revision = -1
        # The definitions that the logs' headers say; and whether versions can be ordered without a change of the table.
        self._begun = -1
        self._ordered = False
        # How often a table had CDC off for a while: what was written then is in no log.
        self._gaps: Counter[str] = Counter()
        self._section_ends: list[int] = []
        # Segments that are done, and go when a saved place says so too.
        self._to_release: dict[int, ProcessedSegment] = {}
        self._segment_changes = 0
        self._behind = True
        self._patience = Patience(stop)
        self._tail_waits = False
        self._damaged = 0
        self._failed_count = 0
        self._lost = 0
        self._last_write_us: int | None = None
        self._last_capture_us: int | None = None
        self._note_tables()

    def run(self) -> None:
        """Capture until the stop; then make durable what was read, and save the place."""
        # A crash may have come between a definition and the entries that waited for it.
        self._decoder.learned(list(self._parts.parked.tables()))
        upkeep = self._clock.monotonic() - _UPKEEP_S
        quiet = 0
        while not self._stop.is_set():
            if self._step():
                quiet = 0
                continue
            if not quiet or self._has_work:
                self._flush()
            self._behind = False
            self._save_now_and_then()
            now = self._clock.monotonic()
            if now - upkeep >= _UPKEEP_S:
                upkeep = now
                self._keep_up()
            quiet += 1
            self._stop.wait(self._pause_s(quiet))
        self._flush()
        self._save()
        self._released.keep_up(self._saver.saved, self._to_release)

    def append(self, batches: Iterable[ChangeBatch]) -> None:
        """Append changes from elsewhere, from any thread."""
        self._parts.logs.append(batches, self._patience.pause)

    def describe(self, status: CassandraStatus) -> CassandraStatus:
        """The status with all that the loop knows."""
        parts, counts, saved = self._parts, self._decoder.counts, self._saver.saved
        listing, segment, position = parts.tail.listing, parts.tail.segment, parts.tail.position
        lag_s = 0.0
        if self._behind and self._last_write_us is not None:
            lag_s = max(0.0, (self._clock.now_us() - self._last_write_us) / 1e6)
        return replace(
            status,
            waiting=self._patience.waiting,
            segment=segment.name.name if segment is not None else None,
            position=position,
            saved_segment=saved.file if saved is not None else None,
            saved_position=saved.position if saved is not None else -1,
            mutations=counts.mutations,
            changes=sum(list(parts.logs.changes.values())),
            skipped=counts.skipped,
            parked=counts.parked,
            parked_waiting=parts.parked.waiting,
            parked_bytes=parts.parked.bytes,
            damaged=self._damaged,
            segments_done=self._released.done,
            segments_failed=self._failed_count,
            segments_lost=self._lost,
            cdc_gaps=dict(self._gaps),
            foreign_files=listing.foreign,
            appended_bytes=parts.logs.appended_bytes,
            table_changes={str(table): count for table, count in list(parts.logs.changes.items())},
            cdc_raw_bytes=listing.bytes,
            cdc_raw_bytes_max=parts.space_bytes_max,
            cdc_raw_segments=len(listing.segments),
            lag_bytes=sum(file.bytes for file in listing.segments if segment is not None and file.id > segment.id),
            lag_s=lag_s,
            last_write_time_us=self._last_write_us,
            last_capture_time_us=self._last_capture_us,
            append_durations=parts.logs.append_timing.read(),
            sync_durations=parts.logs.sync_timing.read(),
        )

    # One step.

    def _step(self) -> bool:
        """Take the next thing from the tail; False when there is nothing now."""
        try:
            item = self._parts.tail.read()
        except Exhausted as lack:
            # A segment that could not be opened for this is not read yet, and not lost. A stop ends the wait.
            with suppress(Exhausted):
                self._patience.pause(lack)
            self._tail_waits = True
            return False
        if self._tail_waits:
            self._tail_waits, self._patience.waiting = False, None
        if item is None:
            return False
        if isinstance(item, Section):
            return self._decode(item)
        if isinstance(item, Opened):
            self._section_ends = []
            self._segment_changes = 0
            # A segment's id is the time at which the node was started that wrote it, or a little more.
            self._parts.schemas.begin(item.reader.header.id * 1000)
            self._decoder.begin(item.reader.header, item.reader.name)
            self._ordered = item.reader.header.format < EPOCH_FORMAT
            log.info("segment begun", segment=item.reader.name, position=self._parts.tail.position)
        elif isinstance(item, Damage):
            self._note_damage(item)
        else:
            self._end(item)
        return True

    def _decode(self, section: Section) -> bool:
        """Decode a section in chunks; whether it brought us on."""
        tail = self._parts.tail
        end = section.start + len(section.data)
        self._section_ends.append(end)
        while True:
            before = tail.position
            reached = self._decoder.decode(section, before, bytes_max=self._settings.chunk_bytes)
            tail.moved(reached)
            for damage in self._take_damage():
                tail.note(damage)
                self._note_damage(damage)
            if self._decoder.pending_bytes >= self._settings.chunk_bytes:
                self._behind = True
                self._flush()
                self._save_now_and_then()
            if reached >= end or reached == before or self._stop.is_set():
                return reached > before

    def _take_damage(self) -> list[Damage]:
        found, self._decoder.damage = self._decoder.damage, []
        return found

    def _note_damage(self, damage: Damage) -> None:
        self._damaged += 1
        log.error(
            "damage in a segment",
            segment=damage.file,
            offset=damage.offset,
            position=damage.position,
            what=damage.what,
            reason=damage.message,
        )

    # Making durable.

    @property
    def _has_work(self) -> bool:
        """Whether a look that found nothing leaves something to do: what was decoded, a definition, an answer."""
        parts = self._parts
        if self._decoder.pending_bytes or parts.tail.position != self._at.position:
            return True
        return bool(parts.parked.waiting) or self._replaying or parts.schemas.revision != self._revision

    def _flush(self, *, again: bool = False) -> None:
        """Make durable all that was decoded, and decode what was parked as soon as that can be done."""
        parts = self._parts
        # What was parked comes with its own place, which may be one that was appended before the last crash.
        again = again or self._replaying or parts.parked.has_taken
        # Most looks find nothing, and there may be many tables to ask.
        self._append(self._decoder.take() if self._decoder.pending_bytes else [], again=again)
        self._decode_overtaken()
        self._patience.until_done(parts.parked.sync)
        segment = parts.tail.segment
        if segment is not None:
            self._at = replace(self._at, segment=segment.id, file=segment.name.name, position=parts.tail.position)
        if parts.schemas.revision != self._revision:
            self._note_tables()
        self._unpark()
        self._begin_files()
        if self._replaying:
            self._look_for_the_end_of_repeats()

    def _begin_files(self) -> None:
        """Let the change logs say what their tables are now: of an ALTER or a new table no change may ever come.

        All that was decoded before is appended by now. A header must say since when the node's log is read.
        """
        if self._begun == self._revision or not self._ordered:
            return
        known = [table.schema for table in self.tables if table.schema.since_us]
        self._parts.logs.begin_files(known, self._patience.pause)
        self._begun = self._revision

    def _decode_overtaken(self) -> None:
        """Append once more, as of the new era, what was appended before its table was known to be truncated.

        It came while the table was truncated: the node notes a truncation later than the place up to which it reaches.
        """
        overtaken, self._decoder.overtaken = self._decoder.overtaken, []
        parts = self._parts
        for one in overtaken:
            for batches in decode_overtaken(one, parts.tail.listing.segments, parts.schemas, parts.keys, self._clock):
                self._append(batches, again=False)

    def _append(self, batches: list[ChangeBatch], *, again: bool) -> None:
        if not batches:
            return
        self._parts.logs.append(batches, self._patience.pause, again=again)
        self._patience.waiting = None
        self._last_capture_us = self._clock.now_us()
        for batch in batches:
            self._segment_changes += batch.count
            if batch.when_max is not None and batch.when_max > (self._last_write_us or 0):
                self._last_write_us = batch.when_max

    def _make_room(self) -> None:
        """In the middle of decoding what was parked: bring away what there is, before more of it is made."""
        if self._decoder.pending_bytes >= self._settings.chunk_bytes:
            self._append(self._decoder.take(), again=True)

    def _unpark(self) -> None:
        """Decode entries whose table has become known, before anything newer of it."""
        parked = self._parts.parked
        if not parked.waiting:
            return
        answer = self._parts.link.answer()
        if answer is not None:
            self._decoder.learned(self._parts.schemas.load(answer) | set(parked.tables()))
            self._append(self._decoder.take(), again=True)
            self._patience.until_done(parked.sync)
            self._note_tables()
            self._asked = set(parked.tables())
            self._answered_at = self._clock.monotonic()
        # A node that did not know a table will hardly know it a moment later.
        news = not set(parked.tables()) <= self._asked
        if news or (parked.waiting and self._clock.monotonic() - self._answered_at >= _ASK_AGAIN_S):
            self._parts.link.want_definitions()

    def _look_for_the_end_of_repeats(self) -> None:
        at, finished = self._at, self._parts.finished
        self._reach = {
            id_: end
            for id_, end in self._reach.items()
            if id_ not in finished and not (id_ == at.segment and at.position >= end)
        }
        if self._reach:
            return
        self._replaying = False
        requested = {segment.name for segment in self._parts.failed.requested()}

        def may_come_again(key: Key) -> bool:
            """From what was parked, or from a segment that is read again."""
            return key[0] in requested or self._parts.parked.knows(segment_id(key), key[1])

        self._parts.logs.caught_up(may_come_again)

    # Places.

    def _save_now_and_then(self) -> None:
        """Have the place saved, if it was not for a while. Everything before it is durable."""
        now = self._clock.monotonic()
        if now - self._saved_at < self._settings.place_interval_s or not self._saver.look():
            return
        self._let_go()
        if self._parts.places.revision != self._parts.schemas.revision:
            # They are large, and statements that change them come in swarms.
            if now - self._defined_at < _DEFINITIONS_S:
                return
            self._defined_at = now
        place = self._place()
        if place is not None:
            self._saved_at = now
            self._saver.offer(place)

    def _save_soon(self) -> None:
        self._saved_at = self._clock.monotonic() - self._settings.place_interval_s
        self._save_now_and_then()

    def _save(self) -> None:
        """Save the place now."""
        self._saver.wait()
        place = self._place()
        if place is not None:
            self._patience.until_done(lambda: self._saver.save(place))
            self._saved_at = self._clock.monotonic()
        self._let_go()

    def _let_go(self) -> None:
        """Let go what the saved place lies beyond: parked entries that were decoded, and whole segments."""
        saved = self._saver.saved
        if saved is None:
            return
        self._parts.parked.tidy(saved.unparked)
        for id_ in [id_ for id_ in self._to_release if id_ in saved.finished]:
            self._released.release(self._to_release.pop(id_))

    def _place(self) -> Place | None:
        """The place to save; None when it is the one that is saved."""
        parts, finished = self._parts, self._parts.finished
        place = replace(
            self._at,
            logs=parts.logs.ends(),
            unparked=parts.parked.taken(),
            finished=finished.ends,
            finished_below=finished.floor,
        )
        return place if place.file and place != self._saver.saved else None

    def _end(self, ended: Ended) -> None:
        """A segment is done: note that; when it is safe on disk, the segment is let go."""
        parts, name = self._parts, ended.file.name.name
        self._flush()
        self._at = replace(self._at, segment=ended.file.id, file=name, position=ended.position)
        error = None
        if ended.refusal is not None or ended.damage:
            error = str(ended.refusal) if ended.refusal is not None else ended.damage[0].message
            ranges = (Range(0, END),) if ended.refusal is not None else left_out(ended.damage, self._section_ends)
            self._failed_count += 1
            self._patience.until_done(
                lambda: parts.failed.add(FailedSegment(name, ended.file.path, ranges, str(error)))
            )
            log.error("segment not read as a whole", segment=name, reason=error)
        self._lost += ended.lost
        parts.finished.add(ended.file.id, ended.position)
        log.info("segment finished", segment=name, position=ended.position, changes=self._segment_changes)
        file = ended.file
        segment = ProcessedSegment(name, file.path, file.index_path, ended.position, self._segment_changes, error)
        if file.in_cdc_raw:
            self._to_release[file.id] = segment
        self._save_soon()

    # Upkeep.

    def _keep_up(self) -> None:
        self._parts.logs.refresh()
        self._released.keep_up(self._saver.saved, self._to_release)
        for segment in self._parts.failed.requested():
            self._read_again(segment)

    def _read_again(self, segment: FailedSegment) -> None:
        """Read what was left out of a segment. The place is saved first, so that a crash repeats nothing."""
        parts = self._parts
        self._save()
        moved = self._settings.error_directory
        if moved is not None and (moved / segment.name).exists():
            segment = replace(segment, path=str(moved / segment.name))
        damage: list[Damage] = []
        try:
            for found in read_again(segment, self._decoder, parts.keys, self._settings.chunk_bytes):
                if found is not None:
                    damage.append(found)
                    self._note_damage(found)
                self._append(self._decoder.take(), again=True)
                self._patience.until_done(parts.parked.sync)
        except (CorruptSegment, UnsupportedFormat, StorageError) as error:
            log.error("failed segment is still not readable", segment=segment.name, error=str(error))
            parts.failed.answered(segment.name, mended=False)
            return
        finally:
            self._begin_again()
        self._flush(again=True)
        self._save()
        if damage:
            log.error("failed segment is still damaged", segment=segment.name, places=len(damage))
            parts.failed.add(replace(segment, ranges=left_out(damage, ()), message=damage[0].message))
            parts.failed.answered(segment.name, mended=False)
            return
        log.info("failed segment mended", segment=segment.name)
        parts.failed.answered(segment.name, mended=True)
        index = index_name(segment.path)
        self._released.release(
            ProcessedSegment(segment.name, segment.path, index if os.path.exists(index) else None, 0, 0)
        )

    def _begin_again(self) -> None:
        """Tell the decoder which segment the tail is in, after it has read another."""
        reader = self._parts.tail.reader
        if reader is not None:
            self._decoder.begin(reader.header, reader.name)

    def _note_tables(self) -> None:
        """Definitions have changed: tell who wants to know."""
        parts = self._parts
        self._revision = parts.schemas.revision
        captured = tuple(table for table in parts.schemas.tables() if parts.choice.captures(table))
        known = {table.id: table for table in self.tables}
        for table in parts.schemas.tables():
            statement = parts.choice.missing_cdc(table)
            if statement is not None:
                log.warning("table has CDC off", table=str(table.schema.table), statement=statement)
            if table.id in known and not table.cdc:
                log.warning("table has CDC off from here on", table=str(table.schema.table))
        for table in filter(parts.choice.captures, parts.schemas.take_resumed()):
            name = str(table.schema.table)
            self._gaps[name] += 1
            log.error(
                "table had CDC off for a while, and its log lacks what was written then",
                table=name,
                command=f"penstock agent snapshot CONFIG {name}",
            )
        for table in captured:
            if known.get(table.id) != table and self._announce is not None:
                self._announce(table.schema)
        self.tables = captured

    # Waiting.

    def _pause_s(self, quiet: int) -> float:
        active, idle = self._settings.poll_active_s, self._settings.poll_idle_s
        if quiet >= _ACTIVE_LOOKS:
            active = min(idle, active * (1 + (quiet - _ACTIVE_LOOKS) / _ACTIVE_LOOKS))
        return max(active, self._parts.tail.rest_s())
