"""SourceLoop: the one thread of an agent that runs a source: read, make durable, save the place, tell the source.

While changes may come that the logs hold already, no place is saved: the one before stays true, and another crash finds
them again from there. They have come when all were seen, or when the source has nothing new.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import structlog

from penstock.capture.captured_logs import CapturedLogs
from penstock.capture.patience import Patience
from penstock.capture.place_saver import PlaceSaver
from penstock.capture.source import Reading, Source
from penstock.capture.source_place import SourcePlace, SourcePlaceFile
from penstock.capture.status import SourceStatus
from penstock.errors import Exhausted, PenstockError
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableId, TableSchema
from penstock.settings import AgentSettings
from penstock.system.clock import Clock

log = structlog.get_logger()

# After so many looks without anything new, the wait between looks grows step by step.
_ACTIVE_LOOKS = 50
# Now and then: redefined logs, requests to end a file.
_UPKEEP_S = 2.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop works with."""

    source: Source
    logs: CapturedLogs
    places: SourcePlaceFile
    announce: Callable[[TableSchema], None] | None = None


class SourceLoop:
    """One run of a source. `append` and `describe` may be used from other threads."""

    def __init__(
        self,
        settings: AgentSettings,
        parts: Parts,
        place: SourcePlace,
        stop: threading.Event,
        clock: Clock,
        *,
        background: bool = True,
    ) -> None:
        """`background`: places may be saved by another thread."""
        self._settings = settings
        self._source, self._logs, self._announce = parts.source, parts.logs, parts.announce
        self._stop = stop
        self._clock = clock
        self._patience = Patience(stop)
        self._at = place
        self._saver: PlaceSaver[SourcePlace] = PlaceSaver(
            lambda place: lambda: parts.places.save(place), place, background=background
        )
        self._saved_at = clock.monotonic()
        # What the source was told last.
        self._told: SourcePlace = place
        self._replaying = True
        self._tables: dict[TableId, TableSchema] = {}
        self._behind = True
        self._last_write_us: int | None = None
        self._last_capture_us: int | None = None

    def run(self) -> None:
        """Capture until the stop, or until the source has ended; what was read is durable then, and the place saved."""
        upkeep = self._clock.monotonic() - _UPKEEP_S
        quiet = 0
        while not self._stop.is_set():
            reading = self._read()
            if reading is not None:
                quiet = 0
                self._take(reading)
                self._save_now_and_then()
                continue
            self._behind = False
            self._end_of_repeats()
            if self._source.ended:
                break
            self._save_now_and_then()
            now = self._clock.monotonic()
            if now - upkeep >= _UPKEEP_S:
                upkeep = now
                self._logs.refresh()
            quiet += 1
            self._stop.wait(self._pause_s(quiet))
        self._save()

    def append(self, batches: Iterable[ChangeBatch]) -> None:
        """Append changes from elsewhere, from any thread."""
        self._logs.append(batches, self._patience.pause)

    def describe(self, status: SourceStatus) -> SourceStatus:
        """The status with all that the loop and the source know."""
        logs = self._logs
        lag_s = 0.0
        if self._behind and self._last_write_us is not None:
            lag_s = max(0.0, (self._clock.now_us() - self._last_write_us) / 1e6)
        return replace(
            status,
            waiting=self._patience.waiting,
            changes=sum(list(logs.changes.values())),
            appended_bytes=logs.appended_bytes,
            table_changes={str(table): count for table, count in list(logs.changes.items())},
            lag_s=lag_s,
            last_write_time_us=self._last_write_us,
            last_capture_time_us=self._last_capture_us,
            append_durations=logs.append_timing.read(),
            sync_durations=logs.sync_timing.read(),
            figures=dict(self._source.figures()),
            checks=tuple(self._source.checks()),
        )

    # One step.

    def _read(self) -> Reading | None:
        while True:
            try:
                found = self._source.read(self._settings.chunk_bytes)
            except Exhausted as lack:
                if self._stop.is_set():
                    return None
                try:
                    self._patience.pause(lack)
                except Exhausted:
                    # We are to stop, and nothing was read that could be lost.
                    return None
            except PenstockError:
                self._save()
                raise
            else:
                self._patience.over()
                return found

    def _take(self, reading: Reading) -> None:
        """Make durable what was read, and then move the place."""
        if reading.batches:
            self._behind = True
            self._logs.append(reading.batches, self._patience.pause, again=self._replaying)
            self._last_capture_us = self._clock.now_us()
        self._logs.begin_files(reading.schemas, self._patience.pause)
        self._patience.over()
        for batch in reading.batches:
            if batch.when_max is not None and batch.when_max > (self._last_write_us or 0):
                self._last_write_us = batch.when_max
        self._tell_tables()
        self._at = replace(self._at, place=reading.place)
        if self._replaying and not self._logs.has_repeats:
            self._end_of_repeats()

    def _tell_tables(self) -> None:
        for schema in self._source.tables():
            if self._tables.get(schema.table) is not schema:
                self._tables[schema.table] = schema
                if self._announce is not None:
                    self._announce(schema)

    def _end_of_repeats(self) -> None:
        if self._replaying:
            self._replaying = False
            self._logs.caught_up(lambda _key: False)

    # Places.

    def _save_now_and_then(self) -> None:
        now = self._clock.monotonic()
        if now - self._saved_at < self._settings.place_interval_s or not self._saver.look():
            return
        self._tell_durable()
        place = self._place()
        if place is not None:
            self._saved_at = now
            self._saver.offer(place)

    def _save(self) -> None:
        """Save the place now."""
        self._saver.wait()
        place = self._place()
        if place is not None:
            self._patience.until_done(lambda: self._saver.save(place))
        self._tell_durable()

    def _place(self) -> SourcePlace | None:
        """The place to save; None when it is the one that is saved, or repeats may still come."""
        if self._replaying:
            return None
        ends = self._logs.ends()
        assert ends is not None, "an agent of a source begins with a place"
        place = replace(self._at, logs=ends)
        return place if place != self._saver.saved else None

    def _tell_durable(self) -> None:
        saved = self._saver.saved
        if saved is not None and saved.place is not None and saved != self._told:
            self._told = saved
            self._source.durable(saved.place)

    def _pause_s(self, quiet: int) -> float:
        active, idle = self._settings.poll_active_s, self._settings.poll_idle_s
        if quiet < _ACTIVE_LOOKS:
            return active
        return min(idle, active * (1 + (quiet - _ACTIVE_LOOKS) / _ACTIVE_LOOKS))
