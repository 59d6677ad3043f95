"""Tickets: how one append waits for its commit, or is chosen to do it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.model.batch import ChangeBatch
from penstock.model.position import Position


class Ticket:
    """One queued batch. A bare lock serves as the wake-up: it costs a tenth of an Event."""

    __slots__ = ("_callback", "_error", "_position", "_promoted", "_wake", "batch")

    def __init__(self, batch: ChangeBatch) -> None:
        self.batch = batch
        self._position: Position | None = None
        self._error: PenstockError | None = None
        self._callback: Callable[[Ticket], None] | None = None
        self._promoted = False
        self._wake = threading.Lock()
        self._wake.acquire()

    @property
    def done(self) -> bool:
        return self._position is not None or self._error is not None

    def wait(self, timeout_s: float | None = None) -> Position:
        """The position of the batch's last change, once durable; raises what prevented it, or TimeoutError."""
        if not self.done:
            if not self._wake.acquire(timeout=-1 if timeout_s is None else timeout_s):
                raise TimeoutError("the append is not durable yet")
            # Others may wait on the same ticket.
            self._wake.release()
        if self._error is not None:
            raise self._error
        assert self._position is not None, "a ticket is woken when it is done"
        return self._position

    def on_done(self, callback: Callable[[Ticket], None]) -> None:
        """Call back when done, from the committing thread, or at once when it is done already. One callback each."""
        self._callback = callback
        if self.done and self._take_callback() is callback:
            callback(self)

    # For the log only.

    def wait_or_lead(self) -> bool:
        """Wait until done (False) or until chosen to commit for all who wait (True)."""
        self._wake.acquire()
        if not self._promoted:
            self._wake.release()
        return self._promoted

    def promote(self) -> None:
        self._promoted = True
        self._wake.release()

    def succeed(self, position: Position) -> None:
        self._position = position
        self._finish()

    def fail(self, error: PenstockError) -> None:
        self._error = error
        self._finish()

    def _finish(self) -> None:
        self._wake.release()
        callback = self._take_callback()
        if callback is not None:
            callback(self)

    def _take_callback(self) -> Callable[[Ticket], None] | None:
        callback, self._callback = self._callback, None
        return callback
