"""Ending in good order: a signal is noted here, and the command's own loop ends at its next turn.

A KeyboardInterrupt would be raised wherever the program happens to stand. Inside a `__del__` Python prints and forgets
it, and the command would go on for ever.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on(*numbers: signal.Signals) -> Iterator[threading.Event]:
    """An event that the first of these signals sets; a second one does what it did before."""
    stopped = threading.Event()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        stopped.set()
        restore()

    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        restore()
