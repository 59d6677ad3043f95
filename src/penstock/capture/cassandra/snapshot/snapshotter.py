"""Snapshotter: copies the tables that are to be copied, one after another, beside the tail of the commit log.

It looks for tables every few seconds, begins their runs, goes on with runs that a restart has interrupted, and takes
requests. It needs no agreement with the tail: a snapshot row carries the write times of its cells, and changes merge by
write time, so any interleaving of the two gives the same rows. When the cluster does not answer it waits and tries
again, and says so in its status; it never leaves anything out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from penstock.capture.cassandra.node.connection import Connection, driver_errors, reason
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.snapshot.copy import BACKOFF_S, BACKOFF_S_MAX, WANTED_LOOK_S, Outcome, TableCopy
from penstock.capture.cassandra.snapshot.ring import TokenRange, cut
from penstock.capture.cassandra.snapshot.source import SnapshotSource
from penstock.capture.cassandra.snapshot.state import StateDirectory, TableState
from penstock.capture.cassandra.snapshot.status import SnapshotStatus, Stage, TableProgress
from penstock.capture.cassandra.snapshot.throttle import Throttle
from penstock.errors import Exhausted, InvalidInput, PenstockError, Unreachable
from penstock.log import snapshot_requests as requests
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableId
from penstock.settings import Share, SnapshotMode, SnapshotSettings
from penstock.system.clock import Clock, SystemClock
from penstock.system.files import Files, OsFiles

log = structlog.get_logger()

# How often requests are looked for.
_REQUEST_LOOK_S = WANTED_LOOK_S
_DIRECTORY = "snapshot"


def snapshot_directory(state_directory: str) -> str:
    """Where a snapshot keeps its state, below the agent's."""
    return f"{state_directory}/{_DIRECTORY}"


@dataclass(frozen=True)
class _Table:
    """A table to be copied, and how far its copy is."""

    definition: CassandraTable
    state: TableState


class Snapshotter:
    """The snapshots of one agent. `run` in a thread of its own; everything else from any thread.

    `connect` opens a connection or raises Unreachable. `captures` says which tables are wanted. `sink` makes a batch
    durable before it returns; it is called by one thread at a time, though not always the same.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        sink: Callable[[ChangeBatch], None],
        state_directory: str,
        settings: SnapshotSettings,
        *,
        captures: Callable[[CassandraTable], bool] = lambda table: table.cdc,
        node: str | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._connect = connect
        self._sink = sink
        self._directory = snapshot_directory(state_directory)
        self._settings = settings
        self._captures = captures
        self._node = node
        self._files = files or OsFiles()
        self._clock = clock or SystemClock()
        self._states = StateDirectory(self._files, self._directory)
        self._throttle = Throttle(settings.rows_per_s, self._clock)
        self._lock = threading.Lock()
        self._tables: dict[TableId, _Table] = {}
        self._dropped: dict[TableId, TableProgress] = {}
        self._begun: set[TableId] = set()
        # How often in a row the copy of a table has failed.
        self._put_off: dict[TableId, int] = {}
        self._source: SnapshotSource | None = None
        self._looked = False
        self._current: TableId | None = None
        self._busy_s = 0.0
        self._busy_since: float | None = None
        self._waiting: str | None = None
        self._retries = 0
        self._failure: str | None = None
        self._ended = False

    def request(self, table: TableId) -> None:
        """Ask for a new copy of a table; durable when this returns."""
        if self._settings.share is Share.NONE:
            raise InvalidInput('this agent copies nothing: snapshot.share is "none"', table=table)
        requests.request(self._files, self._directory, table, self._clock.now_us())

    def status(self) -> SnapshotStatus:
        """One look at it."""
        with self._lock:
            progress = {name: self._progress(one.state) for name, one in self._tables.items()}
            # The table at hand is not done before its last state is on disk.
            remaining = sum(name == self._current or self._is_wanted(one.state) for name, one in self._tables.items())
            busy = self._busy_s
            if self._busy_since is not None:
                busy += self._clock.monotonic() - self._busy_since
            completed = self._looked and not remaining
            return SnapshotStatus(
                mode=self._settings.mode.value,
                running=self._current is not None,
                completed=completed,
                aborted=self._ended and not completed,
                failure=self._failure,
                waiting=self._waiting,
                retries=self._retries,
                tables_total=len(progress),
                tables_remaining=remaining,
                duration_s=busy,
                rows={str(name): one.rows for name, one in progress.items()},
                tables=(*progress.values(), *self._dropped.values()),
            )

    def _progress(self, state: TableState) -> TableProgress:
        done = state.finished_us is not None
        stage = Stage.DONE if done else Stage.RUNNING if state.table == self._current else Stage.WAITING
        return TableProgress(
            state.table,
            stage,
            state.run,
            state.rows,
            len(state.pending),
            state.fraction,
            state.partitions_estimate,
            state.started_us,
            state.finished_us,
        )

    def waits(self, why: str) -> None:
        with self._lock:
            self._waiting = why
            self._retries += 1

    def goes_on(self) -> None:
        with self._lock:
            self._waiting = None

    def run(self, stop: threading.Event) -> None:
        """Copy what there is to copy, then look for more, until `stop` is set. Raises when it cannot go on."""
        try:
            self._states.create()
            self._run(stop)
        except PenstockError as error:
            self._fail(str(error))
            raise
        except BaseException as error:
            # A fault of our own: without a word in the status it would look as if somebody had stopped it. What such
            # an error says may hold values of a row, so only its kind is told.
            self._fail(f"ended by a fault of its own: {type(error).__name__}")
            raise
        finally:
            with self._lock:
                self._ended = True
            self._drop_source()

    def _fail(self, why: str) -> None:
        with self._lock:
            self._failure = why

    def _run(self, stop: threading.Event) -> None:
        failures = 0
        looked_at = -self._settings.scan_interval_s
        while not stop.is_set():
            table: _Table | None = None
            try:
                if not self._has_work():
                    with self._lock:
                        self._looked = True
                    stop.wait(_REQUEST_LOOK_S)
                    continue
                source = self._open_source()
                due = self._clock.monotonic() - looked_at >= self._settings.scan_interval_s
                if due or self._is_asked():
                    self._look(source)
                    looked_at = self._clock.monotonic()
                table = self._next()
                if table is None:
                    failures = 0
                    stop.wait(min(_REQUEST_LOOK_S, self._settings.scan_interval_s))
                    continue
                self._copy(source, table, stop)
                failures = 0
                self._put_off.pop(table.state.table, None)
            except Unreachable as error:
                failures += 1
                self._wait(str(error), table, failures, stop)
            except driver_errors() as error:
                failures += 1
                self._wait(reason(error), table, failures, stop)
            except Exhausted as lack:
                # Of room or descriptors; what was saved until now stands, and the rest is read again.
                failures += 1
                self._wait(str(lack), table, failures, stop)

    def _has_work(self) -> bool:
        """Whether the cluster must be asked at all."""
        if self._settings.share is Share.NONE:
            return False
        if self._settings.mode is not SnapshotMode.NEVER or self._is_asked():
            return True
        return any(map(self._is_wanted, self._states.load_all().values()))

    def _wait(self, why: str, table: _Table | None, failures: int, stop: threading.Event) -> None:
        if table is not None:
            # If it is this table alone that cannot be read, the others need not wait for it.
            name = table.state.table
            self._put_off[name] = self._put_off.get(name, 0) + 1
        self._drop_source()
        delay = min(BACKOFF_S_MAX, BACKOFF_S * 2.0 ** min(failures - 1, 10))
        self.waits(why)
        log.warning("snapshot waits", reason=why, seconds=delay)
        stop.wait(delay)

    def _open_source(self) -> SnapshotSource:
        if self._source is None:
            connection = self._connect()
            try:
                self._source = SnapshotSource(connection, self._settings, self._node, self._clock)
            except BaseException:
                connection.close()
                raise
            self.goes_on()
        return self._source

    def _drop_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _look(self, source: SnapshotSource) -> None:
        """Compare the cluster's tables with what is done, and begin the runs that are due."""
        ranges = source.ranges()
        found = {table.schema.table: table for table in source.tables()}
        states = self._states.load_all()
        asked = requests.waiting(self._files, self._directory)
        for name, state in list(states.items()):
            if name not in found or found[name].id != state.table_id:
                self._forget(state)
                del states[name]
        for name, table in found.items():
            old = states.get(name)
            if not self._captures(table):
                if old is not None and not old.lapsed:
                    old.lapsed = True
                    self._states.save(old)
                states.pop(name, None)
                continue
            due = self._due(table, old, ranges, requested=name in asked)
            if due is not None:
                due.partitions_estimate = source.partitions_estimate(name)
                self._finish_if_done(due)
                self._states.save(due)
                states[name] = due
        for name in asked:
            if name not in states:
                log.warning("snapshot request for a table that is not captured", table=str(name))
            requests.done(self._files, self._directory, name)
        with self._lock:
            self._tables = {name: _Table(found[name], state) for name, state in sorted(states.items())}
            self._looked = True

    def _forget(self, state: TableState) -> None:
        """The table is gone; what was copied of it stays in its change log."""
        if state.pending:
            log.warning("table dropped during its snapshot", table=str(state.table), rows=state.rows)
            with self._lock:
                self._dropped[state.table] = replace(self._progress(state), stage=Stage.DROPPED)
        self._states.forget(state.table)

    def _due(
        self, table: CassandraTable, old: TableState | None, ranges: Sequence[TokenRange], *, requested: bool
    ) -> TableState | None:
        """The state to save when a run begins or grows; None when nothing is new."""
        name = table.schema.table
        automatic = self._settings.mode is not SnapshotMode.NEVER
        first = name not in self._begun
        self._begun.add(name)
        if requested or (automatic and (old is None or self._is_stale(old, first=first))):
            state = old or TableState(name, table.id, run=0)
            state.begin(cut(ranges, self._settings.splits), self._clock.now_us(), requested=requested)
            log.info("snapshot begins", table=str(name), run=state.run, splits=len(state.pending))
            return state
        missing = old.missing(ranges) if old is not None and automatic else []
        if old is None or not missing:
            return None
        # The ring has changed: this node has become the first replica of more than it was.
        old.extend(cut(missing, self._settings.splits))
        log.info("snapshot grows with the node's token ranges", table=str(name), splits=len(old.pending))
        return old

    def _is_stale(self, old: TableState, *, first: bool) -> bool:
        """Whether a copied table is to be copied again by itself; `first` at its first look in this process."""
        if self._settings.mode is SnapshotMode.RESTART and first and not old.pending:
            return True
        if not old.lapsed:
            return False
        if self._settings.mode is SnapshotMode.INITIAL:
            if first:
                log.warning("cdc was off for a while; ask for a snapshot to get what is missing", table=str(old.table))
            return False
        return True

    def _next(self) -> _Table | None:
        due = [one for one in self._tables.values() if self._is_wanted(one.state)]
        # Whoever asks for one table does not want to wait for all others.
        return min(
            due,
            key=lambda one: (self._put_off.get(one.state.table, 0), not one.state.requested, one.state.table),
            default=None,
        )

    def _is_wanted(self, state: TableState) -> bool:
        """Whether there is something to read, and it is to be read."""
        return bool(state.pending) and (self._settings.mode is not SnapshotMode.NEVER or state.requested)

    def _is_asked(self) -> bool:
        return bool(requests.waiting(self._files, self._directory))

    def _copy(self, source: SnapshotSource, table: _Table, stop: threading.Event) -> None:
        """Copy what is pending of a table."""
        state = table.state
        reading = source.reading(table.definition)
        copy = TableCopy(reading, state, self._states, self._sink, self._settings, self._throttle, self, self._clock)
        rows = state.rows
        started = self._clock.monotonic()
        with self._lock:
            self._current = state.table
            self._busy_since = started
        try:
            outcome = copy.run(stop, self._is_asked)
            if outcome is Outcome.DONE:
                self._finish_if_done(state)
                self._states.save(state)
                log.info("snapshot done", table=str(state.table), run=state.run, rows=state.rows)
        finally:
            with self._lock:
                self._busy_s += self._clock.monotonic() - started
                self._busy_since = None
                self._current = None
        if outcome is Outcome.CONNECTION:
            raise Unreachable(reason(copy.error) if isinstance(copy.error, Exception) else "the connection is lost")
        if outcome is Outcome.SCHEMA:
            self._schema_moved(source, table, copy.error, state.rows > rows)

    def _schema_moved(self, source: SnapshotSource, table: _Table, error: BaseException | None, advanced: bool) -> None:
        """Look at the tables again: the one at hand has new columns, or is gone."""
        name = table.state.table
        self._look(source)
        now = self._tables.get(name)
        if now is None or now.definition.id != table.definition.id:
            return
        if now.definition.schema.fingerprint != table.definition.schema.fingerprint or error is None or advanced:
            log.info("snapshot goes on with the table's new columns", table=str(name))
            return
        if isinstance(error, PenstockError):
            raise error
        assert isinstance(error, Exception)
        raise Unreachable(f"the cluster refuses to read {name}: {reason(error)}")

    def _finish_if_done(self, state: TableState) -> None:
        if not state.pending and state.finished_us is None:
            state.finished_us = self._clock.now_us()
