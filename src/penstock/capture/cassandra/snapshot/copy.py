"""TableCopy: one table's snapshot, split by split, by several workers at once.

A worker reads the pages of a split in order, asks for the next page before it encodes the one at hand, hands the
changes on, and notes how far it came once they are durable. Whatever the cluster answers, nothing is skipped: a worker
waits and asks for the same again. What needs a look at the schema or a new connection ends the copy for the moment;
the state says where the next one goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import structlog

from penstock.capture.cassandra.node.connection import driver_errors, reason
from penstock.capture.cassandra.snapshot.encoding import Page, SplitEncoder, TableEncoder
from penstock.capture.cassandra.snapshot.pages import PageReader, PendingPage, Trouble, trouble
from penstock.capture.cassandra.snapshot.ring import TokenRange
from penstock.capture.cassandra.snapshot.state import StateDirectory, TableState
from penstock.capture.cassandra.snapshot.throttle import Throttle
from penstock.errors import InvalidValue, PenstockError, Retry
from penstock.model.batch import ChangeBatch
from penstock.settings import SnapshotSettings
from penstock.system.clock import Clock

if TYPE_CHECKING:
    from cassandra.pool import Host

log = structlog.get_logger()

# How long to wait before trying again: this, then twice as long each time, up to the greatest.
BACKOFF_S = 0.5
BACKOFF_S_MAX = 30.0
# Nothing is known of the rows' size at first, and a page of large rows would be more than anyone can hold.
_PAGE_ROWS_FIRST = 200
# Pages are kept below this by asking for fewer rows.
_PAGE_BYTES = 4 << 20
# How often a copy looks whether it is to stop.
_STOP_LOOK_S = 0.1
# How often the state is saved, at most.
_SAVE_S = 0.2
# How often it asks whether there is something more urgent.
WANTED_LOOK_S = 1.0


class Outcome(Enum):
    """How a copy ended."""

    DONE = "done"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    SCHEMA = "schema"
    CONNECTION = "connection"


class Notices(Protocol):
    """Who is told that the snapshot waits, and that it goes on."""

    def waits(self, why: str) -> None: ...

    def goes_on(self) -> None: ...


@dataclass(frozen=True)
class Reading:
    """What the copy of a table needs of a connection: how to read it, and how to see that its schema has moved."""

    pages: PageReader
    encoder: TableEncoder
    host: Host | None
    moved: Callable[[], bool]


class _Split:
    """A split that a worker reads."""

    def __init__(self, rest: TokenRange, page_rows: int) -> None:
        self.rest = rest
        self.page_rows = page_rows
        self.failures = 0


class TableCopy:
    """Copies what is pending of one table. `run` once."""

    def __init__(
        self,
        reading: Reading,
        state: TableState,
        states: StateDirectory,
        sink: Callable[[ChangeBatch], None],
        settings: SnapshotSettings,
        throttle: Throttle,
        notices: Notices,
        clock: Clock,
    ) -> None:
        self._reading = reading
        self._state = state
        self._states = states
        self._sink = sink
        self._settings = settings
        self._throttle = throttle
        self._notices = notices
        self._clock = clock
        self._queue = sorted(state.pending, reverse=True)
        # What the pages so far have shown to be a good size; splits begin with it.
        self._page_rows = min(settings.page_rows, _PAGE_ROWS_FIRST)
        self._lock = threading.Lock()
        self._sink_lock = threading.Lock()
        self._halt = threading.Event()
        self._outcome: Outcome | None = None
        self._saved_at = clock.monotonic() - _SAVE_S
        self.error: BaseException | None = None

    def run(self, stop: threading.Event, wanted: Callable[[], bool]) -> Outcome:
        """Copy until all is done, or someone else must act; `error` may say why. Raises what the sink raises.

        `wanted` is asked now and then whether there is something more urgent to do.
        """
        count = max(1, min(self._settings.workers, len(self._queue)))
        workers = [threading.Thread(target=self._work, name=f"snapshot-{n}", daemon=True) for n in range(count)]
        for worker in workers:
            worker.start()
        looked_at = self._clock.monotonic()
        for worker in workers:
            while worker.is_alive():
                if stop.is_set():
                    self._end(Outcome.STOPPED)
                if self._clock.monotonic() - looked_at > WANTED_LOOK_S:
                    looked_at = self._clock.monotonic()
                    if wanted():
                        self._end(Outcome.INTERRUPTED)
                worker.join(_STOP_LOOK_S)
        self._save(0)
        if self._outcome is None and self.error is not None:
            raise self.error
        return self._outcome or Outcome.DONE

    def _end(self, outcome: Outcome | None, error: BaseException | None = None) -> None:
        """Let all workers come to an end; the first who says so tells why."""
        with self._lock:
            if not self._halt.is_set():
                self._outcome = outcome
                self.error = error
                self._halt.set()

    def _work(self) -> None:
        try:
            while (split := self._take()) is not None:
                self._copy(split)
        except BaseException as error:  # noqa: BLE001
            # The thread that started us raises it again.
            self._end(None, error)

    def _take(self) -> _Split | None:
        with self._lock:
            if self._halt.is_set() or not self._queue:
                return None
            return _Split(self._queue.pop(), self._page_rows)

    def _copy(self, split: _Split) -> None:
        """Read a split to its end, however long that takes."""
        while not self._halt.is_set():
            try:
                self._read(split)
                return
            except driver_errors() as error:
                self._recover(split, error)
            except InvalidValue as error:
                # A type that has changed looks like this; if it has not, the error stands.
                self._end(Outcome.SCHEMA, error)
            except PenstockError as error:
                if error.retry is not Retry.TIMED:
                    raise
                self._wait(split, str(error))

    def _recover(self, split: _Split, error: Exception) -> None:
        kind = trouble(error)
        if kind is Trouble.SCHEMA:
            self._end(Outcome.SCHEMA, error)
        elif kind is Trouble.CONNECTION:
            self._end(Outcome.CONNECTION, error)
        else:
            if kind is Trouble.SLOW:
                self._page_rows = split.page_rows = max(1, split.page_rows // 2)
            self._wait(split, reason(error))

    def _wait(self, split: _Split, why: str) -> None:
        delay = min(BACKOFF_S_MAX, BACKOFF_S * 2.0**split.failures)
        # Ten doublings are beyond any bound, and a wait may go on for days.
        split.failures = min(split.failures + 1, 10)
        self._notices.waits(why)
        log.warning(
            "snapshot waits", table=str(self._state.table), reason=why, seconds=delay, page_rows=split.page_rows
        )
        self._halt.wait(delay)

    def _read(self, split: _Split) -> None:
        encoder = self._reading.encoder.split()
        asked = split.rest
        pending: PendingPage | None = self._ask(split, asked, None)
        while pending is not None:
            page = pending.wait(self._halt)
            if page is None or self._halt.is_set():
                return
            if split.failures:
                split.failures = 0
                self._notices.goes_on()
            self._fit(split, page)
            pending = None if page.more is None else self._ask(split, asked, page.more)
            self._hand_on(split, encoder, page)
            if self._reading.moved():
                self._end(Outcome.SCHEMA)
                return
            self._halt.wait(self._throttle.take(page.rows))

    def _ask(self, split: _Split, range_: TokenRange, more: bytes | None) -> PendingPage:
        reading = self._reading
        return reading.pages.ask(reading.encoder.statement.text(range_), split.page_rows, more, reading.host)

    def _fit(self, split: _Split, page: Page) -> None:
        """Choose how many rows the next page may have: fewer when they are large, more again when that went well."""
        size = len(page.body)
        if size > _PAGE_BYTES:
            self._page_rows = split.page_rows = max(1, split.page_rows * _PAGE_BYTES // size)
        elif page.rows >= split.page_rows and 4 * size < _PAGE_BYTES:
            self._page_rows = split.page_rows = min(self._settings.page_rows, 2 * split.page_rows)

    def _hand_on(self, split: _Split, encoder: SplitEncoder, page: Page) -> None:
        """Make a page's changes durable, then the place behind it."""
        for batch in encoder.batches(page, self._clock.now_us()):
            with self._sink_lock:
                self._sink(batch)
        reached = split.rest.end
        if page.more is not None:
            if not page.rows:
                return
            # The last row's partition may go on in the next page, so its token is not behind us yet.
            reached = encoder.last_token() - 1
        with self._lock:
            rest = self._state.advance(split.rest, reached, page.rows)
            self._save(_SAVE_S)
        if rest is not None:
            split.rest = rest

    def _save(self, after_s: float) -> None:
        """Save the state unless that was done a moment ago: what is read again after a crash stays as little."""
        now = self._clock.monotonic()
        if now - self._saved_at >= after_s:
            self._saved_at = now
            self._states.save(self._state)
