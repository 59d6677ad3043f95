"""The files of one lakehouse table: written whole, made durable, and some of them only where there is none yet.

Local and mounted file systems. Files get the permissions that the process's umask says: where `pipeline.group_read`
lets the group in, other programs read the table.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from penstock.system.files import OsFiles, sync_parents

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")
# Most of the time of a small table goes by in waiting for the disk, so several wait at once.
_THREADS = 8
# Directories that this process has made durable: syncing all those above takes longer than a small file does.
_durable: set[str] = set()


def side_by_side(call: Callable[[_Given], _Made], given: Sequence[_Given]) -> list[_Made]:
    """What `call` makes of each, in order; the first error is raised when all have ended."""
    if len(given) <= 1:
        return [call(one) for one in given]
    with ThreadPoolExecutor(min(_THREADS, len(given))) as threads:
        return [future.result() for future in [threads.submit(call, one) for one in given]]


class Storage:
    """A directory. Paths are relative to it, with slashes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def write(self, name: str, content: bytes | memoryview) -> None:
        """A new file, durable when this returns. A crash may leave a part of it, under a name that nobody knows."""
        self._write(name, content)
        self._sync_directory(name)

    def write_if_absent(self, name: str, content: bytes) -> bool:
        """The same as a whole or not at all; False when the name is taken."""
        temporary = f"{name}.{uuid.uuid4().hex}.tmp"
        self._write(temporary, content)
        try:
            os.link(self.path(temporary), self.path(name))
        except FileExistsError:
            return False
        finally:
            os.unlink(self.path(temporary))
        self._sync_directory(name)
        return True

    def rename(self, old: str, new: str) -> None:
        os.replace(self.path(old), self.path(new))
        self._sync_directory(new)

    def delete(self, name: str) -> None:
        try:
            os.unlink(self.path(name))
        except FileNotFoundError:
            pass

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        with open(self.path(name), "rb") as file:
            file.seek(offset)
            return file.read(size)

    def list(self, name: str = ".") -> list[str]:
        try:
            return sorted(os.listdir(self.path(name)))
        except FileNotFoundError:
            return []

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def make_directory(self, name: str) -> None:
        """A directory that a power loss does not take, together with those above it."""
        path = os.path.normpath(self.path(name))
        if path in _durable and os.path.isdir(path):
            return
        os.makedirs(path, exist_ok=True)
        sync_parents(OsFiles(), path)
        _durable.add(path)

    def _write(self, name: str, content: bytes | memoryview) -> None:
        with open(self.path(name), "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def _sync_directory(self, name: str) -> None:
        fd = os.open(os.path.dirname(self.path(name)), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
