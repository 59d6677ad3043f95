"""Clock: the time, passed in so that the simulator can turn it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what people read, monotonic time for waiting."""

    def now_us(self) -> int:
        """Microseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()
