"""Timing: how long something took, counted by steps of duration, for whoever wants to know how it is spread."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# Upper bounds in seconds: from a sync of a fast disk to one that makes people wait. What took longer counts above.
BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class Durations:
    """How many took at most as long as each bound and longer than the one before; the last took longer than all."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    total_s: float = 0.0


class Timing:
    """Counts durations. May be used from many threads."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self._mutex = threading.Lock()
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._total_s = 0.0

    def end(self, began: float) -> None:
        """What began at that time has ended now."""
        took = self.now() - began
        with self._mutex:
            self._counts[bisect_left(BOUNDS_S, took)] += 1
            self._total_s += took

    def read(self) -> Durations:
        """All that has ended so far."""
        with self._mutex:
            return Durations(tuple(self._counts), self._total_s)
