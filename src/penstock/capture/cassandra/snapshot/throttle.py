"""Throttle: how long to wait so that no more than so many rows are read per second, by all workers together."""

from __future__ import annotations

import threading

from penstock.system.clock import Clock


class Throttle:
    """Turns rows into time. Safe to use from many threads."""

    def __init__(self, rows_per_s: float | None, clock: Clock) -> None:
        self._rate = rows_per_s
        self._clock = clock
        self._lock = threading.Lock()
        # When the rows that were taken so far will have been paid for.
        self._paid = 0.0

    def take(self, rows: int) -> float:
        """Count these rows; the seconds to wait before the next ones are asked for."""
        if self._rate is None:
            return 0.0
        with self._lock:
            now = self._clock.monotonic()
            # Time in which nothing was read is not saved up: a snapshot that waited for a node must not rush after it.
            self._paid = max(self._paid, now) + rows / self._rate
            return self._paid - now
