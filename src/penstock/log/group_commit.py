"""Group commit: appends that wait at the same time share one block and one sync.

Batches that arrive while a commit is under way gather in the next group. A group's first appender is its leader: when
the group's turn comes it writes the whole group; the others wait at one gate. The next leader begins its sync before
the followers of the last one are woken, so waking costs the disk no time. Groups that begin with a `submit`, which
nobody waits for, are led by a background thread. Turns go in the order in which the groups were formed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from penstock.errors import LogError, LogFailed, PenstockError
from penstock.model.batch import ChangeBatch
from penstock.model.position import Position

# Writes a group's batches as one block; where the block is (file, offset). Raises PenstockError when it is not durable.
Write = Callable[[list[ChangeBatch]], tuple[int, int]]
Callback = Callable[["Ticket"], None]

# What may be queued before `submit` itself waits.
_PENDING_BYTES_MAX = 64 << 20
_CUT_SHORT = LogFailed("the commit was cut short")


class _Group:
    """Batches that become one block. Fields are changed under the queue's mutex; the outcome is read after the gate."""

    __slots__ = ("batches", "bytes", "callbacks", "error", "gate", "place", "rows", "turn")

    def __init__(self) -> None:
        self.batches: list[ChangeBatch] = []
        self.bytes = 0
        self.rows = 0
        self.callbacks: list[tuple[Callback, Ticket]] | None = []
        self.place: tuple[int, int] | None = None
        self.error: PenstockError | None = None
        # Bare locks as wake-ups; both begin locked. An Event costs ten times as much.
        self.gate = threading.Lock()
        self.gate.acquire()
        self.turn = threading.Lock()
        self.turn.acquire()


class Ticket:
    """One batch on its way. `wait` gives the position of its last change once that is durable."""

    __slots__ = ("_group", "_mutex", "_ordinal")

    def __init__(self, group: _Group, ordinal: int, mutex: threading.Lock) -> None:
        self._group = group
        self._ordinal = ordinal
        self._mutex = mutex

    @property
    def done(self) -> bool:
        return self._group.place is not None or self._group.error is not None

    def wait(self, timeout_s: float | None = None) -> Position:
        """Wait for the outcome; raises what prevented it, or TimeoutError."""
        if not self.done:
            gate = self._group.gate
            if not gate.acquire(timeout=-1 if timeout_s is None else timeout_s):
                raise TimeoutError("the append is not durable yet")
            gate.release()
        group = self._group
        if group.place is None:
            error = group.error
            assert error is not None, "a gate opens when the outcome is known"
            # A fresh copy: one exception object must not be raised in many threads.
            raise type(error)(error.message, **error.place) from error
        return Position(*group.place, self._ordinal)

    def on_done(self, callback: Callback) -> None:
        """Call back once when done: from the committing thread, or at once when the outcome is known already."""
        with self._mutex:
            if self._group.callbacks is not None:
                self._group.callbacks.append((callback, self))
                return
        callback(self)


class GroupCommit:
    """The queue of groups before one file."""

    def __init__(self, write: Write, block_bytes_max: int) -> None:
        self._write = write
        self._block_bytes_max = block_bytes_max
        self._mutex = threading.Lock()
        self._moved = threading.Condition(self._mutex)
        self._groups: deque[_Group] = deque()
        self._open: _Group | None = None
        # Stands in the queue for an append that has it to itself.
        self._alone = _Group()
        self._pending_bytes = 0
        self._waiting = 0
        self._refusal: LogError | None = None
        self._background: SimpleQueue[_Group | None] | None = None
        self._thread: threading.Thread | None = None

    def append(self, batch: ChangeBatch) -> Position:
        """Commit the batch with whatever else is waiting, and wait for it."""
        with self._mutex:
            if not self._groups and self._refusal is None:
                self._groups.append(self._alone)
                group = self._alone
            else:
                group, leads = self._join(batch)
                ticket = Ticket(group, group.rows - 1, self._mutex)
        if group is self._alone:
            # Nobody else is here: no group, no gate. Whoever comes meanwhile forms a group behind this.
            try:
                number, offset = self._write([batch])
            except BaseException as error:
                self._leave_alone(error)
                raise
            with self._mutex:
                if len(self._groups) == 1 and not self._waiting:
                    self._groups.clear()
                else:
                    self._pass_turn()
            return Position(number, offset, batch.count - 1)
        if leads:
            try:
                group.turn.acquire()
            except BaseException:
                # Interrupted while waiting: others may have joined, so somebody must lead them.
                threading.Thread(target=self._lead_in_turn, args=(group,), name="penstock-commit").start()
                raise
            self._lead(group)
        return ticket.wait()

    def _leave_alone(self, error: BaseException) -> None:
        """A lone append failed: let the others go on, unless the fault was ours."""
        if not isinstance(error, PenstockError):
            self.refuse(_CUT_SHORT)
        with self._mutex:
            self._pass_turn()

    def submit(self, batch: ChangeBatch, done: Callback | None = None) -> Ticket:
        """Queue the batch, and call `done` when it has its outcome. Waits only while too much is queued already."""
        with self._mutex:
            # Not in a callback of the committing thread: it would wait for itself.
            if self._pending_bytes > _PENDING_BYTES_MAX and threading.current_thread() is not self._thread:
                self._wait_for_room()
            group, leads = self._join(batch)
            ticket = Ticket(group, group.rows - 1, self._mutex)
            if done is not None and group.callbacks is not None:
                group.callbacks.append((done, ticket))
            if leads:
                self._lead_in_background(group)
        return ticket

    def _wait_for_room(self) -> None:
        """Wait until less is queued. The mutex is held, but not while waiting."""
        self._waiting += 1
        while self._pending_bytes > _PENDING_BYTES_MAX and self._refusal is None:
            self._moved.wait()
        self._waiting -= 1

    def refuse(self, reason: LogError) -> None:
        """Take nothing new from now on."""
        with self._mutex:
            self._refusal = self._refusal or reason
            self._moved.notify_all()

    def drain(self) -> None:
        """Wait until all that was queued has its outcome."""
        with self._mutex:
            self._waiting += 1
            while self._groups:
                self._moved.wait()
            self._waiting -= 1
            background, self._background = self._background, None
        if background is not None and self._thread is not None:
            background.put(None)
            self._thread.join()

    def _join(self, batch: ChangeBatch) -> tuple[_Group, bool]:
        """Put the batch into the open group, or open a new one and lead it. The mutex is held."""
        if self._refusal is not None:
            raise type(self._refusal)(self._refusal.message, **self._refusal.place)
        group = self._open
        leads = group is None or not self._fits(group, batch)
        if group is None or leads:
            group = self._open = _Group()
            self._groups.append(group)
            if len(self._groups) == 1:
                group.turn.release()
        size = len(batch.rows)
        group.batches.append(batch)
        group.bytes += size
        group.rows += batch.count
        self._pending_bytes += size
        return group, leads

    def _fits(self, group: _Group, batch: ChangeBatch) -> bool:
        schema = group.batches[0].schema
        same = schema is batch.schema or schema == batch.schema
        return same and group.bytes + len(batch.rows) <= self._block_bytes_max

    def _lead_in_background(self, group: _Group) -> None:
        """Let the background thread lead it. The mutex is held, so groups arrive there in their order."""
        if self._background is None:
            self._background = SimpleQueue()
            self._thread = threading.Thread(
                target=self._run, args=(self._background,), name="penstock-commit", daemon=True
            )
            self._thread.start()
        self._background.put(group)

    def _run(self, queue: SimpleQueue[_Group | None]) -> None:
        while (group := queue.get()) is not None:
            self._lead_in_turn(group)

    def _lead_in_turn(self, group: _Group) -> None:
        group.turn.acquire()
        self._lead(group)

    def _lead(self, group: _Group) -> None:
        """Write the group, pass the turn on, and only then wake those who wait."""
        with self._mutex:
            if self._open is group:
                self._open = None
        try:
            group.place = self._write(group.batches)
        except PenstockError as error:
            group.error = error
        finally:
            if group.place is None and group.error is None:
                # A fault of ours is on its way up. Nobody may wait for ever, and nothing more is acknowledged.
                group.error = _CUT_SHORT
                self.refuse(_CUT_SHORT)
            self._finish(group)

    def _pass_turn(self) -> None:
        """Let the next group begin. The mutex is held."""
        self._groups.popleft()
        if self._groups:
            self._groups[0].turn.release()
        if self._waiting:
            self._moved.notify_all()

    def _finish(self, group: _Group) -> None:
        with self._mutex:
            self._pending_bytes -= group.bytes
            callbacks, group.callbacks = group.callbacks or [], None
            self._pass_turn()
        group.gate.release()
        for callback, ticket in callbacks:
            callback(ticket)
