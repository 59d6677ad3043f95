"""Patience: what an agent does when something ran out: it waits and tries again, and says what it waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from penstock.errors import DiskFull, Exhausted

log = structlog.get_logger()

_ROOM_S = 0.5


class Patience:
    """The waiting of one agent. A stop ends it."""

    def __init__(self, stop: threading.Event) -> None:
        # What it waits for, for the status; None when it waits for nothing.
        self.waiting: str | None = None
        self._stop = stop

    def pause(self, lack: Exhausted) -> None:
        """Something ran out: wait a while, unless we are to stop. What is not durable is read again after a start."""
        if self.waiting is None:
            log.error("something ran out, waiting", error=str(lack))
        self.waiting = "room on the disk" if isinstance(lack, DiskFull) else "file descriptors"
        if self._stop.wait(_ROOM_S):
            raise lack

    def over(self) -> None:
        """What was waited for is there."""
        if self.waiting is not None:
            log.info("going on")
            self.waiting = None

    def until_done(self, action: Callable[[], None]) -> None:
        """Do it, waiting as long as something has run out."""
        while True:
            try:
                action()
            except Exhausted as lack:
                self.pause(lack)
            else:
                self.over()
                return
