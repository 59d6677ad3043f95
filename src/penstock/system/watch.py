"""Watch: wait until a file is written, without polling.

On Linux the kernel tells (inotify); elsewhere the file is looked at a hundred times a second. `wake` ends a wait from
another thread.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Protocol

from penstock.system.descriptors import patiently

_IN_MODIFY = 0x2
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = os.O_CLOEXEC
_POLL_MS = 10


class Watch(Protocol):
    """A wait for writes to one file."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a write, `wake` or the timeout; False after the timeout. May wake without a reason."""
        ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class FileWatch:
    """The operating system's own watch on one existing file."""

    def __init__(self, path: str, pause: Callable[[float], None] = time.sleep) -> None:
        # This first: without it there is no watch, while what inotify does can be done by looking.
        self._wake_read, self._wake_write = patiently(lambda: os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK), pause)
        try:
            self._notify = _inotify(path)
        except BaseException:
            os.close(self._wake_read)
            os.close(self._wake_write)
            raise
        self._poll = select.poll()
        self._poll.register(self._wake_read, select.POLLIN)
        if self._notify is not None:
            self._poll.register(self._notify, select.POLLIN)

    def wait(self, timeout_s: float | None = None) -> bool:
        if self._notify is None:
            # Somebody has to look; the caller finds nothing new and waits again.
            self._poll.poll(_POLL_MS if timeout_s is None else min(_POLL_MS, timeout_s * 1000))
            return True
        ready = self._poll.poll(None if timeout_s is None else timeout_s * 1000)
        for fd, _ in ready:
            try:
                os.read(fd, 65536)
            except BlockingIOError:
                continue
        return bool(ready)

    def wake(self) -> None:
        try:
            os.write(self._wake_write, b"x")
        except BlockingIOError:
            return

    def close(self) -> None:
        for fd in (self._notify, self._wake_read, self._wake_write):
            if fd is not None:
                os.close(fd)


def _inotify(path: str) -> int | None:
    """An inotify descriptor that watches the file, or None where there is no inotify."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    if fd < 0:
        # The user's limit of inotify instances, or that of descriptors, is reached; looking now and then still works.
        return None
    if libc.inotify_add_watch(fd, os.fsencode(path), _IN_MODIFY) < 0:
        code = ctypes.get_errno()
        os.close(fd)
        raise OSError(code, os.strerror(code), path)
    return fd
