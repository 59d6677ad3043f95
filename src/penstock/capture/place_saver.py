"""PlaceSaver: saves places beside the tail, so that nobody waits for the disk who only wants to read on.

A place is made by the tail's thread, at a moment when everything before it is durable; that it reaches the disk later
changes nothing about it. At most one is under way. Where the order matters, as before a segment is let go, the tail
saves it itself and waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from penstock.errors import Exhausted

log = structlog.get_logger()

Place = TypeVar("Place")


class PlaceSaver(Generic[Place]):
    """The thread that saves, while there is one. Called by the tail's thread only."""

    def __init__(
        self, prepare: Callable[[Place], Callable[[], None]], saved: Place | None, *, background: bool
    ) -> None:
        """`prepare` is called by the tail's thread and gives what saves the place, which another thread may call."""
        # The last place that is known to be safe.
        self.saved = saved
        self._prepare = prepare
        self._background = background
        self._thread: threading.Thread | None = None
        self._under_way: Place | None = None
        self._error: BaseException | None = None

    def offer(self, place: Place) -> None:
        """Save this place soon, unless another is under way. When something ran out, a later place will do."""
        if not self.look():
            return
        write = self._prepare(place)
        self._under_way = place
        if not self._background:
            self._save(write)
            self.look()
            return
        self._thread = threading.Thread(target=self._save, args=(write,), name="penstock-place", daemon=True)
        self._thread.start()

    def save(self, place: Place) -> None:
        """Save this place now. Raises Exhausted when something ran out, and may be called again then."""
        self.wait()
        self._prepare(place)()
        self.saved = place

    def look(self) -> bool:
        """Whether nothing is under way; what was is taken note of."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self.wait()
        return True

    def wait(self) -> None:
        """Wait for what is under way. Raises what went wrong with it, but for what ran out."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, place = self._error, self._under_way
        self._error = self._under_way = None
        if isinstance(error, Exhausted):
            log.warning("place not saved, something ran out", error=str(error))
        elif error is not None:
            raise error
        elif place is not None:
            self.saved = place

    def _save(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException as error:  # noqa: BLE001
            # It is raised where the agent can end with it.
            self._error = error
