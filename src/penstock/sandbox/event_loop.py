"""EventLoop: one queue of things to happen, in virtual time or in real time. No threads.

With a `VirtualClock` nothing ever waits: the loop jumps to the moment of the next event, so an hour of faults takes a
second. With any other clock (the demo has the machine's) an event happens when its moment has come. Events of the same
moment happen in the order in which they were scheduled, so a run depends on nothing but what was scheduled.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable

from penstock.system.clock import Clock

# 2023-11-14T22:13:20Z: virtual time begins at a round number, not at the time of the run.
START_US = 1_700_000_000_000_000


class VirtualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start_us: int = START_US) -> None:
        self._start_us = start_us
        self._now_us = start_us

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return (self._now_us - self._start_us) / 1e6

    def move_to(self, moment_us: int) -> None:
        """Move forward; a moment in the past changes nothing."""
        self._now_us = max(self._now_us, moment_us)


class SkewedClock:
    """A node's own clock, which is wrong by some microseconds."""

    def __init__(self, clock: Clock, skew_us: int = 0) -> None:
        self._clock = clock
        self.skew_us = skew_us

    def now_us(self) -> int:
        return self._clock.now_us() + self.skew_us

    def monotonic(self) -> float:
        return self._clock.monotonic()


class EventLoop:
    """What is to happen, soonest first."""

    def __init__(self, clock: Clock, *, wait: Callable[[float], None] = time.sleep) -> None:
        self.clock = clock
        self._wait = wait
        self._virtual = clock if isinstance(clock, VirtualClock) else None
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def now_us(self) -> int:
        """Where the loop stands. In real time this never goes back, even when the wall clock does."""
        if self._virtual is not None:
            return self._virtual.now_us()
        return int(self.clock.monotonic() * 1e6)

    def schedule(self, delay_us: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_us() + delay_us, self._count, action))

    @property
    def next_us(self) -> int | None:
        """The moment of the next event."""
        return self._queue[0][0] if self._queue else None

    @property
    def idle(self) -> bool:
        """Whether nothing is left to happen; in real time, nothing that is due."""
        return not self._queue or (self._virtual is None and self._queue[0][0] > self.now_us())

    def step(self) -> bool:
        """Let the next event happen. False when there is none, or (in real time) when its moment has not come."""
        if not self._queue:
            return False
        if self._virtual is not None:
            self._virtual.move_to(self._queue[0][0])
        elif self._queue[0][0] > self.now_us():
            return False
        heapq.heappop(self._queue)[2]()
        return True

    def run_until(self, done: Callable[[], bool], *, limit_us: int | None = None) -> bool:
        """Go on until `done`, until nothing is left to happen, or until the limit. The last answer of `done`."""
        end = None if limit_us is None else self.now_us() + limit_us
        while not done():
            due = self.next_us
            if due is None or (end is not None and due > end):
                if end is not None:
                    self._pass_until(end)
                return done()
            if not self.step():
                self._pass_until(due)
        return True

    def run_for(self, duration_us: int) -> None:
        """Let this much time pass."""
        self.run_until(lambda: False, limit_us=duration_us)

    def _pass_until(self, moment_us: int) -> None:
        if self._virtual is not None:
            self._virtual.move_to(moment_us)
        elif moment_us > self.now_us():
            self._wait((moment_us - self.now_us()) / 1e6)
