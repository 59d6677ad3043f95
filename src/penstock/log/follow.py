"""Following a log: who waits at its end gets each change as soon as it is durable.

A `Follower` has one thread. It sleeps until the writer, in this process or another, publishes a new watermark; then it
reads the new blocks once, from the page cache, and hands the same batch to every listener. A `Tail` is a listener with
a bounded queue: when its owner is slow the queue is dropped, and the tail reads the files until it has caught up. So a
slow reader costs nobody anything, memory is bounded, and nothing is missed or given twice.

Owners that sleep are woken one by the other: the follower wakes the first, and each wakes the next before it looks at
its own batch. Woken all at once they would only wait again, for the interpreter's lock, and be woken a second time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import TracebackType
from typing import Self

from penstock.errors import ChangesLost, CorruptLog, Exhausted, LogClosed, PenstockError
from penstock.log import segment, watermark
from penstock.log.block import TornBlock
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.segment import Heading
from penstock.model.batch import ChangeBatch
from penstock.model.position import START, Position
from penstock.system.files import File, Files
from penstock.system.watch import FileWatch, Watch
from penstock.telemetry import Logger

log = Logger()

_QUEUE_BYTES = 1 << 20
# After a lack of descriptors, when nothing is written meanwhile.
_LACK_S = 1.0
# A wake-up that was on its way at an interruption has come by then, or it had been taken already.
_TAKEN_S = 1.0


class Listener:
    """One listener of a follower. `start` is the position behind which batches are handed to it."""

    def __init__(
        self,
        follower: Follower,
        callback: Callable[[ChangeBatch], None],
        failed: Callable[[PenstockError], None] | None,
        lapsed: Callable[[], None] | None,
        start: Position,
    ) -> None:
        self._follower = follower
        self.callback = callback
        self.failed = failed
        self.lapsed = lapsed
        self.start = start

    def cancel(self) -> None:
        """No call begins after this returns, unless one is under way just now."""
        self._follower.drop(self)


class Follower:
    """Reads what is new in one log once, for any number of listeners."""

    def __init__(self, directory: str, *, files: Files | None = None, watch: Watch | None = None) -> None:
        self.directory = directory
        self._files = files
        self._reader = LogReader(directory, files=files)
        try:
            self._watch: Watch = watch or FileWatch(f"{directory}/{watermark.NAME}")
        except OSError as error:
            self._reader.close()
            raise refused(error, "watching the log", f"{directory}/{watermark.NAME}") from error
        self._mutex = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()
        self._cursor = Cursor(self._reader, self._reader.end())
        self._at = self._cursor.position
        self._closed = False
        # Tails whose owners are to be woken with the batch that is handed out just now. For the follower's thread.
        self._asleep: list[Tail] = []
        # Set when the log cannot be read on.
        self.failure: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-follow", daemon=True)
        self._thread.start()

    @property
    def position(self) -> Position:
        """Everything up to here has been handed to the listeners."""
        return self._at

    def reader(self) -> LogReader:
        """A reader of the same log, for the caller's own thread."""
        return LogReader(self.directory, files=self._files)

    def listen(
        self,
        callback: Callable[[ChangeBatch], None],
        failed: Callable[[PenstockError], None] | None = None,
        lapsed: Callable[[], None] | None = None,
    ) -> Listener:
        """Call `callback` in the follower's thread with every batch from now on. It must not block.

        `failed` is called when the log cannot be read on and no more batches will come; `lapsed` when batches will be
        left out, because retention was quicker: the files say what of them is gone for whom.
        """
        with self._mutex:
            if self.failure is not None:
                raise self.failure
            if self._closed:
                raise LogClosed("the follower is closed", directory=self.directory)
            listener = Listener(self, callback, failed, lapsed, self._at)
            self._listeners += (listener,)
            return listener

    def drop(self, listener: Listener) -> None:
        with self._mutex:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

    def close(self) -> None:
        with self._mutex:
            if self._closed:
                return
            self._closed = True
        self._watch.wake()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._watch.close()
        self._cursor.close()
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closed:
            try:
                self._hand_out_all()
            except Exhausted as error:
                # Others close files again, and nothing was handed out that would come twice.
                log.warning("following waits", directory=self.directory, error=str(error))
                self._watch.wait(_LACK_S)
                continue
            except PenstockError as error:
                log.error("cannot follow the log", directory=self.directory, error=str(error))
                with self._mutex:
                    self.failure = error
                    listeners = self._listeners
                for listener in listeners:
                    if listener.failed is not None:
                        listener.failed(error)
                return
            self._watch.wait()

    def _hand_out_all(self) -> None:
        while not self._closed:
            try:
                self._hand_out()
            except ChangesLost as error:
                log.warning("following was too slow for retention", directory=self.directory, error=str(error))
                self._pass_over()
            else:
                return

    def _hand_out(self) -> None:
        for batch in self._cursor.read():
            if self._at == START and batch.file > 1 and (first := self._reader.first()) > START:
                raise ChangesLost("the first files were removed", after=START, through=first)
            # Position and calls move together, so that a new listener's start is exact.
            with self._mutex:
                self._at = batch.last
                listeners = self._listeners
            for listener in listeners:
                if listener.start < batch.last:
                    self._call(listener, batch)
            self._wake_in_turn()
            if self._closed:
                return

    def _pass_over(self) -> None:
        """Go on with the first change that is left. What was lost is each listener's to find, behind its own place."""
        self._cursor.close()
        self._cursor = Cursor(self._reader, self._reader.first())
        with self._mutex:
            self._at = self._cursor.position
            listeners = self._listeners
        for listener in listeners:
            if listener.lapsed is not None:
                listener.lapsed()

    def rouse(self, tail: Tail) -> None:
        """In a callback: wake the owner of a tail when all listeners have the batch, and in its turn."""
        self._asleep.append(tail)

    def _wake_in_turn(self) -> None:
        asleep, self._asleep = self._asleep, []
        for tail, following in pairwise(asleep):
            tail.following = following
        if asleep:
            asleep[0].wake()

    def _call(self, listener: Listener, batch: ChangeBatch) -> None:
        try:
            listener.callback(batch)
        except Exception:
            # One listener's fault must not reach the others.
            log.exception("listener failed and was dropped", directory=self.directory)
            self.drop(listener)


class Tail:
    """A blocking cursor at the end of a log. One thread uses it; `close` may come from another."""

    def __init__(self, follower: Follower, after: Position = START, *, queue_bytes: int = _QUEUE_BYTES) -> None:
        self.position = after
        self._follower = follower
        self._reader = follower.reader()
        self._queue_bytes_max = queue_bytes
        self._mutex = threading.Lock()
        # A bare lock as the wake-up, locked while there is nothing to wake for; a Condition costs several times more.
        self._wake = threading.Lock()
        self._wake.acquire()
        self._asleep = False
        self._woken = False
        # Whose owner is woken by ours.
        self.following: Tail | None = None
        self._queue: deque[ChangeBatch] = deque()
        self._queue_bytes = 0
        # Batches up to here were dropped from the queue, or came before we listened: they are read from the files.
        self._behind = True
        self._closed = False
        self._catching_up: Iterator[ChangeBatch] | None = None
        # Held while the files are read, so that `close` does not take them away from under the owner.
        self._reading = threading.Lock()
        self._failure: PenstockError | None = None
        self._listener = follower.listen(self._offer, self._fail, self._lapse)

    def next(self, timeout_s: float | None = None) -> ChangeBatch | None:
        """The next batch; None after the timeout, or when the tail was closed."""
        while not self._closed:
            catching_up = self._behind
            if catching_up:
                with self._reading:
                    batch = self._from_files()
            else:
                batch = self._from_queue(timeout_s)
            if batch is not None:
                self.position = batch.last
                return batch
            # Between files and queue a tail may change over either way without having waited yet.
            if not catching_up and not self._behind:
                return None
        return None

    def __iter__(self) -> Iterator[ChangeBatch]:
        while (batch := self.next()) is not None:
            yield batch

    def close(self) -> None:
        """End the tail; whoever waits in `next` gets None."""
        self._listener.cancel()
        with self._mutex:
            self._closed = True
            self._rouse()
        with self._reading:
            self._catching_up = None
            self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _offer(self, batch: ChangeBatch) -> None:
        """From the follower's thread: queue the batch, or drop the queue when it is full."""
        with self._mutex:
            if self._behind:
                return
            self._queue.append(batch)
            self._queue_bytes += len(batch.rows)
            if self._queue_bytes > self._queue_bytes_max and len(self._queue) > 1:
                self._drop_queue()
            if self._asleep:
                self._asleep = False
                self._follower.rouse(self)

    def wake(self) -> None:
        """Let the owner go on: called once for each time that it was asleep and is to be roused."""
        self._woken = True
        self._wake.release()

    def _fail(self, error: PenstockError) -> None:
        """From the follower's thread: nothing more will come."""
        with self._mutex:
            self._failure = error
            self._rouse()

    def _lapse(self) -> None:
        """From the follower's thread: batches are left out, and the files must be asked."""
        with self._mutex:
            self._drop_queue()
            self._rouse()

    def _rouse(self) -> None:
        """Wake the owner if it sleeps. The mutex is held."""
        if self._asleep:
            self._asleep = False
            self.wake()

    def _sleep(self, timeout_s: float | None) -> bool:
        """Wait to be roused; False after the timeout. The mutex is held, but not while waiting."""
        self._asleep, self._woken = True, False
        self._mutex.release()
        try:
            roused = self._wake.acquire(timeout=-1 if timeout_s is None else timeout_s)
            self._pass_on()
        except BaseException:
            # Nobody can tell whether the wake-up was taken, if there was one.
            self._get_up(_TAKEN_S)
            raise
        return self._get_up() if not roused else self._up()

    def _get_up(self, taken_s: float = -1) -> bool:
        """Take the mutex again, and the wake-up if one is on its way: others wait behind it. Whether one was."""
        self._mutex.acquire()
        if not self._asleep:
            self._mutex.release()
            self._wake.acquire(timeout=taken_s if self._woken else -1)
            self._pass_on()
            return self._up()
        self._asleep = False
        return False

    def _up(self) -> bool:
        self._mutex.acquire()
        return True

    def _pass_on(self) -> None:
        """Wake whoever comes next, if this tail was in a row of sleepers."""
        following, self.following = self.following, None
        if following is not None:
            following.wake()

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._queue_bytes = 0
        self._behind = True

    def _from_files(self) -> ChangeBatch | None:
        """The next batch from the files; None once the files hold no more, and the queue takes over."""
        while not self._closed:
            if self._catching_up is None:
                self._catching_up = self._reader.read(self.position)
            batch = next(self._catching_up, None)
            if batch is not None:
                return batch
            self._catching_up = None
            with self._mutex:
                # Whatever the follower hands out from here on is queued; what it has handed out must be read first.
                if self._follower.position <= self.position:
                    self._behind = False
                    return None
        return None

    def _from_queue(self, timeout_s: float | None) -> ChangeBatch | None:
        with self._mutex:
            while True:
                while not self._queue:
                    if self._closed or self._behind:
                        return None
                    if self._failure is not None:
                        raise self._failure
                    if not self._sleep(timeout_s):
                        return None
                batch = self._queue.popleft()
                self._queue_bytes -= len(batch.rows)
                # The files may have given this one already, while it was on its way here.
                if batch.last > self.position:
                    return batch


# Cursor: a place in a log that is read again and again as the log grows.
#
# It keeps the newest file open, so that one more look at the end costs two reads from the page cache: the watermark
# and the new block.


class Cursor:
    """Reads what is new behind `position`, each time that it is asked."""

    def __init__(self, reader: LogReader, after: Position) -> None:
        self.position = after
        self._reader = reader
        # The newest file and how far it was read, once everything before was.
        self._file: File | None = None
        self._heading: Heading | None = None
        self._offset = 0

    def read(self) -> Iterator[ChangeBatch]:
        """The changes behind `position` that are durable now; `position` moves with every batch taken."""
        mark = self._reader.watermark()
        if mark.last <= self.position:
            return
        if self._file is not None and self._heading is not None and self._heading.number == mark.file:
            yield from self._read_newest(self._file, self._heading, mark.end)
            return
        self.close()
        for batch in self._reader.read_to(mark, self.position):
            self.position = batch.last
            yield batch
        if mark.last.file == mark.file:
            # A file without changes may still be made anew under its number.
            self._file, self._heading = self._reader.open(mark.file), self._reader.heading(mark.file)
            self._offset = mark.end

    def _read_newest(self, file: File, heading: Heading, limit: int) -> Iterator[ChangeBatch]:
        try:
            for block in segment.blocks(file, heading, self._offset, limit):
                batch = self._reader.batch(heading, block)
                self.position, self._offset = batch.last, block.end
                yield batch
        except TornBlock as torn:
            path = self._reader.path(heading.number)
            raise CorruptLog(f"damage inside the log: {torn.reason}", file=path, offset=self._offset) from torn
        except OSError as error:
            raise refused(error, "reading a file of the log", self._reader.path(heading.number)) from error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = self._heading = None
