"""Subscription: a named reader of one log that goes on where it left off.

What it has committed is in its checkpoint file, in the log's own directory; after any crash it continues behind that,
so changes come at least once and none is left out. Any number of subscriptions read one log and none knows of another.
One process at a time may use a name: a lock file that goes with the process is the lease. Names come from clients and
never become paths as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Literal, Self

from penstock.errors import (
    ChangesLost,
    LogClosed,
    LogError,
    LogLocked,
    PositionAhead,
    SubscriptionLocked,
)
from penstock.log import names, retention, watermark
from penstock.log.checkpoint import Checkpoint, CheckpointFile, is_in_log
from penstock.log.follow import Follower, Tail
from penstock.log.lock import try_lock
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.retention import Limits, Loss
from penstock.model.batch import ChangeBatch
from penstock.model.position import START, Position
from penstock.system.clock import Clock, SystemClock
from penstock.system.files import File, Files, OsFiles
from penstock.system.watch import FileWatch
from penstock.telemetry import Logger

log = Logger()

Start = Literal["earliest", "latest"] | Position


class Subscription:
    """An open subscription, for one thread. Open it with `Subscription.open`."""

    def __init__(
        self,
        reader: LogReader,
        directory: str,
        name: str,
        *,
        files: Files,
        clock: Clock,
        lease: File,
        owns_reader: bool,
        follower: Follower | None,
        retention_settings: Limits | None,
    ) -> None:
        self.name = name
        self._reader = reader
        self._directory = directory
        self._files = files
        self._clock = clock
        self._lease: File | None = lease
        self._owns_reader = owns_reader
        self._follower = follower
        self._owns_follower = follower is None
        self._retention = retention_settings
        self._file = CheckpointFile(files, directory, name)
        self._tail: Tail | None = None
        # The last change that was handed out: reading goes on behind it, committed or not.
        self._cursor = self._load()
        # Changes that were passed over since this was opened, because they were erased.
        self.erased = 0
        self._loss: Loss | None = None

    @classmethod
    def open(
        cls,
        log_or_directory: LogReader | str,
        name: str,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        start: Start = "earliest",
        follower: Follower | None = None,
        retention_settings: Limits | None = None,
    ) -> Subscription:
        """Open a subscription, creating it at `start` when it is new; one that exists goes on at its checkpoint.

        With `retention_settings`, a commit that finishes a file also runs retention. Raises SubscriptionLocked while
        another process has the name, CorruptCheckpoint, UnsupportedFormat or PositionAhead when the checkpoint cannot
        be trusted (it is left as it is), ChangesLost when a new subscription is to start before the first change left.
        """
        files, clock = files or OsFiles(), clock or SystemClock()
        owned = isinstance(log_or_directory, str)
        reader = LogReader(log_or_directory, files=files) if isinstance(log_or_directory, str) else log_or_directory
        lease: File | None = None
        try:
            lease = take_lease(files, reader.directory, name)
            opened = cls(
                reader,
                reader.directory,
                name,
                files=files,
                clock=clock,
                lease=lease,
                owns_reader=owned,
                follower=follower,
                retention_settings=retention_settings,
            )
            opened._begin(start)
        except BaseException:
            if lease is not None:
                lease.close()
            if owned:
                reader.close()
            raise
        return opened

    @property
    def position(self) -> Position:
        """What is committed: everything up to and including it is done."""
        current = self._file.current
        assert current is not None
        return current.position

    @property
    def loss(self) -> Loss | None:
        """The changes that retention took before they were committed, until the loss is accepted."""
        return self._loss

    def batches(self) -> Iterator[ChangeBatch]:
        """The changes that are durable now and were not handed out yet, in written order."""
        self._check_open()
        self._drop_tail()
        self.check_loss()
        if self._cursor > self._reader.end():
            return
        try:
            for batch in self._reader.read(self._cursor):
                self._advance(batch)
                yield batch
        except ChangesLost as error:
            raise self._as_loss(error) from error

    def next(self, timeout_s: float | None = None) -> ChangeBatch | None:
        """The next changes, as soon as they are durable; None when `timeout_s` have passed without any."""
        self._check_open()
        if self._tail is None:
            self.check_loss()
            if self._cursor > self._reader.end() and not self._wait_for_writer(timeout_s):
                return None
            if self._follower is None:
                self._follower = Follower(self._directory, files=self._files)
            self._tail = Tail(self._follower, self._cursor)
        try:
            batch = self._tail.next(timeout_s)
        except ChangesLost as error:
            self._drop_tail()
            raise self._as_loss(error) from error
        if batch is not None:
            self._advance(batch)
        return batch

    def check_loss(self) -> None:
        """Raise ChangesLost, with the exact range, when retention took changes that were not committed."""
        if self._loss is None:
            self._loss = self._look_for_loss()
        if self._loss is not None:
            raise _changes_lost(self._loss)

    def commit(self, position: Position) -> None:
        """Make it durable that everything up to and including `position` is done. Going back is refused."""
        self._check_open()
        if self._loss is not None:
            raise _changes_lost(self._loss)
        before = self.position
        if position == before:
            return
        if position > self._cursor and not is_in_log(self._reader, position):
            raise PositionAhead(
                "this position is not in the log yet", subscription=self.name, position=position, end=self._reader.end()
            )
        self._save(position)
        if position > self._cursor:
            # The caller has read elsewhere; what is done is not handed out any more.
            self._drop_tail()
            self._cursor = position
        if self._retention is not None and position.file > before.file:
            self._apply_retention(self._retention)

    def accept_loss(self) -> Loss | None:
        """Go on behind what was lost. Says what that is; None when nothing was."""
        self._check_open()
        loss = self._look_for_loss()
        if loss is not None:
            self._drop_tail()
            self._save(loss.through)
            self._cursor = max(self._cursor, loss.through)
        self._loss = None
        return loss

    def drop(self) -> None:
        """Forget the subscription: its checkpoint goes and no longer holds files back. This closes it."""
        self._check_open()
        try:
            self._files.unlink(self._file.path)
            self._files.sync_directory(self._directory)
        except OSError as error:
            raise refused(error, "dropping the subscription", self._file.path) from error
        # The lock file stays: a process that has it open must not come to hold a lock that nobody else sees.
        self.close()

    def close(self) -> None:
        """Give the lease back. What was handed out but not committed comes again."""
        self._drop_tail()
        if self._owns_follower and self._follower is not None:
            self._follower.close()
            self._follower = None
        if self._lease is not None:
            self._lease.close()
            self._lease = None
            if self._owns_reader:
                self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, start: Start) -> None:
        if self._file.current is None:
            # Retention waits until the new checkpoint is there, so that it cannot take what was just promised.
            with retention.paused(self._files, self._directory, self._clock):
                self._cursor = self._first_position(start)
                self._save(self._cursor)
        self._loss = self._look_for_loss()

    def _first_position(self, start: Start) -> Position:
        if start == "latest":
            return self._reader.end()
        gone = self._reader.first()
        if start == "earliest":
            return gone
        end = self._reader.end()
        if start > end:
            raise PositionAhead("the start lies ahead of the log", subscription=self.name, position=start, end=end)
        if start < gone:
            raise _changes_lost(Loss(self.name, start, gone))
        return start

    def _load(self) -> Position:
        found = self._file.load(self._reader)
        return found.position if found is not None else START

    def _advance(self, batch: ChangeBatch) -> None:
        if self._cursor == START and batch.file > 1:
            # Reading from START gives what is left; a cap may have taken files since we looked.
            self.check_loss()
        before = self._cursor
        done = before.ordinal + 1 if (before.file, before.offset) == (batch.file, batch.offset) else 0
        self.erased += batch.skip - done
        self._cursor = batch.last

    def _wait_for_writer(self, timeout_s: float | None) -> bool:
        """After power loss, wait until a writer has opened the log and said again how far it is durable."""
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        watch = FileWatch(f"{self._directory}/{watermark.NAME}")
        try:
            while self._cursor > self._reader.end():
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    return False
                watch.wait(left)
        finally:
            watch.close()
        return True

    def _look_for_loss(self) -> Loss | None:
        return retention.lost(self._reader, self.name, self._cursor)

    def _as_loss(self, error: ChangesLost) -> ChangesLost:
        """The reader's refusal in this subscription's words."""
        self._loss = self._look_for_loss()
        return error if self._loss is None else _changes_lost(self._loss)

    def _save(self, position: Position) -> None:
        self._file.save(
            Checkpoint(
                log_id=self._reader.log_id,
                table=self._reader.table,
                subscription=self.name,
                position=position,
                time=self._clock.now_us(),
            )
        )

    def _apply_retention(self, settings: Limits) -> None:
        try:
            retention.apply(self._directory, settings, files=self._files, clock=self._clock)
        except LogLocked:
            # Someone else is at it; the next finished file is another chance.
            return
        except LogError as error:
            # The commit itself is durable, so a failure to clean up must not look like a failed commit.
            log.warning("retention failed", directory=self._directory, error=str(error))

    def _drop_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _check_open(self) -> None:
        if self._lease is None:
            raise LogClosed("the subscription is closed", subscription=self.name)


def _changes_lost(loss: Loss) -> ChangesLost:
    return ChangesLost(
        "retention removed changes that this subscription had not committed",
        subscription=loss.subscription,
        after=loss.after,
        through=loss.through,
    )


def take_lease(files: Files, directory: str, name: str) -> File:
    """The lock of who uses a subscription; closing it gives it back. SubscriptionLocked while another has it."""
    path = f"{directory}/{names.checkpoint_name(name)}.lock"
    lease = try_lock(files, path, "taking the subscription's lease")
    if lease is None:
        raise SubscriptionLocked("another process uses this subscription", subscription=name, file=path)
    return lease
