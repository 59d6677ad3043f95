"""Descriptors: how many files and sockets a process may hold open, and what happens when there are no more.

A process that has run out of descriptors is not broken: others are being closed. So whatever opens a file here waits
for one, for a bounded time, instead of taking the system's refusal for a verdict about the file.
"""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

# The process, or the machine, has none left.
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})
# More than any part needs; some systems allow a thousand millions, and programs that go through all of them.
_LIMIT_MAX = 65_536
_PAUSE_S = 0.05
# Three seconds: whoever holds them only for a moment has let go by then. A caller that can wait longer asks again.
_TRIES = 60


def raise_limit() -> int:
    """Allow this process, and those it starts, as many descriptors as the system lets us. How many there are now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, _LIMIT_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _LIMIT_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        # What we have is enough to work; the servers' bounds keep clients from using it up.
        return soft
    return wanted


def scarce() -> bool:
    """Whether there is none now. For libraries that do not say why they could not open a file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in EXHAUSTED
    return False


def patiently(opening: Callable[[], T], pause: Callable[[float], None] = time.sleep) -> T:
    """Open something, waiting for a descriptor when there is none. Raises what the last try raised."""
    for _ in range(_TRIES):
        try:
            return opening()
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
        pause(_PAUSE_S)
    return opening()
