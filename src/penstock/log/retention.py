"""Retention: files of a log go when nobody needs them any more, and, by cap, even earlier, but never in silence.

The writer never deletes; the agent runs this beside it (`upkeep`), or a consumer's side does. Files go oldest first and
the newest always stays, so what is left is one unbroken run. What every subscription has read stays for a while, so
that one of them can be rewound; the time counts from the run that found it read, which a small file notes. The header
of each file says where the last change before it was: with that, every subscription can tell a file that it had
finished from changes that it lost, and names the lost range exactly, whenever it looks. A checkpoint that cannot be
read counts as one that has read nothing, because nobody knows what it still needs: it holds every file until the caps
take it, as any slow subscription does, and each run names it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from penstock.errors import CorruptData, LogLocked, PenstockError
from penstock.log import checkpoint, names, read_times, recent
from penstock.log.checkpoint import Checkpoint
from penstock.log.lock import try_lock
from penstock.log.read_times import ReadTimes
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.model.position import START, Position
from penstock.system.clock import Clock, SystemClock
from penstock.system.files import Files, OsFiles
from penstock.telemetry import Logger

log = Logger()

LOCK = "retention.lock"
# Whoever holds the lock deletes a few files; whoever waits longer than this waits for a stuck process.
_WAIT_S = 10.0
_LOOK_S = 0.005
_UNKNOWN = ReadTimes()


class Limits(Protocol):
    """When files go, as `RetentionSettings` says it. Each may be None, which means no limit."""

    @property
    def bytes_max(self) -> int | None: ...

    @property
    def age_s_max(self) -> int | None: ...

    @property
    def subscriber_expiry_s(self) -> int | None: ...

    @property
    def keep_s(self) -> int: ...

    @property
    def keep_bytes_max(self) -> int | None: ...


class Reason(StrEnum):
    """Why a file went."""

    CONSUMED = "consumed"
    SIZE = "size"
    AGE = "age"


@dataclass(frozen=True, slots=True)
class Loss:
    """Changes that a subscription will not get: those behind `after` up to and including `through`."""

    subscription: str
    after: Position
    through: Position
    # How many they are.
    changes: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Span:
    """One file of the log: its number, size, last change and time of its last write."""

    number: int
    bytes: int
    last: Position
    modified_us: int


@dataclass(frozen=True, slots=True)
class Report:
    """What one run did. `unreadable` are the checkpoints that hold all that the caps leave, until they are repaired.

    `unread` counts changes that a cap took while the log had no subscription: nobody lost them, and nobody has them.
    """

    removed: tuple[tuple[int, Reason], ...] = ()
    bytes: int = 0
    losses: tuple[Loss, ...] = ()
    unreadable: tuple[PenstockError, ...] = ()
    unread: int = 0

    def to_json(self) -> dict[str, Any]:
        """As the command line and HTTP show it."""
        return {
            "removed": [{"file": number, "reason": reason.value} for number, reason in self.removed],
            "bytes": self.bytes,
            "losses": [
                {
                    "subscription": loss.subscription,
                    "after": str(loss.after),
                    "through": str(loss.through),
                    "changes": loss.changes,
                }
                for loss in self.losses
            ],
            "unread": self.unread,
        }


def modified_us(path: str) -> int:
    """When the operating system last saw the file written."""
    return os.stat(path).st_mtime_ns // 1000


def apply(
    directory: str,
    settings: Limits,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    modified: Callable[[str], int] = modified_us,
    dry_run: bool = False,
) -> Report:
    """Delete what may go. Running it again, also after a crash in the middle, changes nothing more.

    With `dry_run` the report says what would go, and nothing is changed or logged.

    LogLocked when another run is at work. Errors of the file system are raised; files deleted until then stay deleted.
    """
    files, clock = files or OsFiles(), clock or SystemClock()
    lock = try_lock(files, f"{directory}/{LOCK}", "locking")
    if lock is None:
        raise LogLocked("another retention run is at work", directory=directory)
    try:
        reader = LogReader(directory, files=files)
        try:
            return _Run(files, directory, reader, modified).apply(settings, clock.now_us(), dry_run=dry_run)
        finally:
            reader.close()
    except OSError as error:
        raise refused(error, "deleting old files", directory) from error
    finally:
        lock.close()


def removable(
    spans: Sequence[Span],
    subscribers: Sequence[Checkpoint],
    settings: Limits,
    now_us: int,
    times: ReadTimes = _UNKNOWN,
) -> list[tuple[Span, Reason]]:
    """Which files may go, oldest first, and why. The newest file is never among them."""
    read = _read_by_all(spans, subscribers, settings, now_us)
    total = sum(span.bytes for span in spans)
    read_bytes = sum(span.bytes for span in read)
    out: list[tuple[Span, Reason]] = []
    for place, span in enumerate(spans[:-1]):
        if place < len(read) and not _kept(span, read_bytes, settings, now_us, times):
            reason = Reason.CONSUMED
        elif settings.bytes_max is not None and total > settings.bytes_max:
            reason = Reason.SIZE
        elif settings.age_s_max is not None and now_us - span.modified_us > settings.age_s_max * 1_000_000:
            reason = Reason.AGE
        else:
            # What is left must stay one unbroken run, so nothing behind this file can go either.
            break
        out.append((span, reason))
        total -= span.bytes
        read_bytes -= span.bytes
    return out


def _read_by_all(spans: Sequence[Span], subscribers: Sequence[Checkpoint], settings: Limits, now_us: int) -> list[Span]:
    """The files that every live subscription has committed, without the newest; none while there is no subscription."""
    live = [subscriber for subscriber in subscribers if not _expired(subscriber, spans, settings, now_us)]
    if not live:
        return []
    slowest = min(subscriber.position for subscriber in live)
    return [span for span in spans[:-1] if slowest >= span.last]


def _kept(span: Span, read_bytes: int, settings: Limits, now_us: int, times: ReadTimes) -> bool:
    """Whether a file that was read stays, so that a subscription can be rewound to it."""
    if settings.keep_bytes_max is not None and read_bytes > settings.keep_bytes_max:
        return False
    return settings.keep_s > 0 and now_us - times.of(span.number, now_us) <= settings.keep_s * 1_000_000


def _expired(subscriber: Checkpoint, spans: Sequence[Span], settings: Limits, now_us: int) -> bool:
    """Whether a subscription let changes lie for too long.

    One that had nothing to do does not age: the clock starts when the oldest file that it has not finished was full.
    """
    if settings.subscriber_expiry_s is None:
        return False
    waiting = next((span for span in spans if subscriber.position < span.last), None)
    if waiting is None:
        return False
    return now_us - max(subscriber.time, waiting.modified_us) > settings.subscriber_expiry_s * 1_000_000


def _needs_times(settings: Limits) -> bool:
    return settings.age_s_max is not None or settings.subscriber_expiry_s is not None


class _Run:
    """One run over one directory, under the retention lock."""

    def __init__(self, files: Files, directory: str, reader: LogReader, modified: Callable[[str], int]) -> None:
        self._files = files
        self._directory = directory
        self._reader = reader
        self._modified = modified

    def apply(self, settings: Limits, now_us: int, *, dry_run: bool) -> Report:
        modified = self._modified if _needs_times(settings) else None
        spans = self._spans(modified)
        if not spans:
            return Report()
        subscribers, unreadable = self._subscribers()
        stand_ins = [self._stand_in(path, modified) for path in unreadable]
        everyone = [*subscribers, *stand_ins]
        noted = read_times.load(self._files, self._directory, self._reader.log_id) if settings.keep_s else _UNKNOWN
        plan = removable(spans, everyone, settings, now_us, noted)
        report = Report(
            tuple((span.number, reason) for span, reason in plan),
            sum(span.bytes for span, _ in plan),
            tuple(self._losses(subscribers, plan)),
            tuple(unreadable.values()),
            0 if everyone else self._taken(START, plan),
        )
        if dry_run:
            return report
        self._sweep(spans[0].number)
        # The warning comes first: a run that is killed halfway has told of everything that it may have deleted.
        self._warn(report, self._losses(stand_ins, plan))
        for span, reason in plan:
            self._delete(span.number)
            # Each deletion is durable before the next, so that a crash cannot bring back a file from the middle.
            self._files.sync_directory(self._directory)
            log.info("file deleted", directory=self._directory, file=span.number, reason=reason.value)
        if settings.keep_s:
            self._note_read(noted, spans[len(plan) :], _read_by_all(spans, everyone, settings, now_us), now_us)
        return report

    def _note_read(self, noted: ReadTimes, left: Sequence[Span], read: Sequence[Span], now_us: int) -> None:
        times = noted.seen(left[0].number, read[-1].number if read else 0, now_us)
        if times != noted:
            read_times.save(self._files, self._directory, self._reader.log_id, times)

    def _warn(self, report: Report, unreadable: Sequence[Loss]) -> None:
        """Say what nobody will get, and what holds files back without a readable word of how far it is."""
        for error in report.unreadable:
            log.warning(
                "unreadable checkpoint holds every file that no cap takes", directory=self._directory, error=str(error)
            )
        for loss in report.losses:
            log.warning(
                "changes lost",
                directory=self._directory,
                subscription=loss.subscription,
                after=str(loss.after),
                through=str(loss.through),
                changes=loss.changes,
            )
        for loss in unreadable:
            # How far it had come stands in the file that cannot be read; restored from a copy, it says the rest itself.
            log.warning(
                "changes lost",
                directory=self._directory,
                subscription=os.path.basename(loss.subscription),
                after="unknown",
                through=str(loss.through),
            )
        if report.unread:
            log.warning("changes deleted that no subscription read", directory=self._directory, changes=report.unread)

    def _losses(self, subscribers: Sequence[Checkpoint], plan: Sequence[tuple[Span, Reason]]) -> list[Loss]:
        if not plan:
            return []
        through = plan[-1][0].last
        return [
            Loss(one.subscription, one.position, through, self._taken(one.position, plan))
            for one in subscribers
            if one.position < through
        ]

    def _taken(self, position: Position, plan: Sequence[tuple[Span, Reason]]) -> int:
        """How many changes behind the position the plan deletes; of a file that cannot be read, all."""
        if not plan:
            return 0
        until = self._reader.heading(plan[-1][0].number + 1).rows_before
        first = max(plan[0][0].number, position.file)
        try:
            done = recent.changes_through(self._reader, position)
        except CorruptData:
            done = self._reader.heading(first).rows_before
        return max(0, until - done)

    def _spans(self, modified: Callable[[str], int] | None) -> list[Span]:
        infos = self._reader.files()
        # A file's last change stands in the next one's header; a file without changes ends where the one before did.
        lasts = [self._reader.heading(info.number).last for info in infos[1:]]
        lasts.append(self._reader.end())
        times = [modified(info.path) if modified is not None else 0 for info in infos]
        return [
            Span(info.number, info.bytes, last, time_us)
            for info, last, time_us in zip(infos, lasts, times, strict=True)
        ]

    def _subscribers(self) -> tuple[list[Checkpoint], dict[str, PenstockError]]:
        """Those that can be read, and by their files those that cannot."""
        good: list[Checkpoint] = []
        bad: dict[str, PenstockError] = {}
        for path, found in checkpoint.load_all(self._files, self._directory).items():
            if isinstance(found, PenstockError):
                bad[path] = found
                continue
            try:
                checkpoint.check(found, path, self._reader, found.subscription)
            except PenstockError as error:
                bad[path] = error
            else:
                good.append(found)
        return good, bad

    def _stand_in(self, path: str, modified: Callable[[str], int] | None) -> Checkpoint:
        """For one that cannot be read: it has read nothing, and last said something when its file was written."""
        time_us = modified(path) if modified is not None else 0
        return Checkpoint(self._reader.log_id, self._reader.table, path, START, time_us)

    def _delete(self, number: int) -> None:
        """Delete a file's data first: an index without data is swept later, data without index costs a slow look."""
        for kind in (names.DATA, names.INDEX, names.TRANSACTIONS):
            path = f"{self._directory}/{names.file_name(self._reader.table, number, kind)}"
            if self._files.exists(path):
                self._files.unlink(path)

    def _sweep(self, first: int) -> None:
        """Delete what a killed run left: the indexes of data files that are gone."""
        for name in self._files.list(self._directory):
            for kind in (names.INDEX, names.TRANSACTIONS):
                number = names.file_number(self._reader.table, name, kind)
                if number is not None and number < first:
                    self._files.unlink(f"{self._directory}/{name}")


def lost(reader: LogReader, subscription: str, position: Position) -> Loss | None:
    """What a subscription at `position` has lost to retention, exactly."""
    through = reader.first()
    return Loss(subscription, position, through) if position < through else None


@contextmanager
def paused(files: Files, directory: str, clock: Clock) -> Iterator[None]:
    """Hold retention back, after a run that is at work: a new subscription must not start in its middle."""
    deadline = clock.monotonic() + _WAIT_S
    while True:
        lock = try_lock(files, f"{directory}/{LOCK}", "locking")
        if lock is not None:
            break
        if clock.monotonic() >= deadline:
            raise LogLocked("a retention run does not come to its end", directory=directory)
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        lock.close()
