"""Files: the few file-system calls that the change log stands on, as one small contract.

Everything durable goes through a `Files` that is passed in, so that the simulator can drop, tear or refuse each call.
Paths are plain strings. Errors are the operating system's own `OSError`; naming the place is the caller's duty.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.system.descriptors import patiently


class File(Protocol):
    """An open file."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def fetch(self, into: memoryview, offset: int, *, keep: bool) -> int:
        """Fill `into` and tell how much came; less only at the end of the file.

        Without `keep`, what the disk must give for this need not stay in memory: nobody is expected to read it again.
        """
        ...

    def pwrite(self, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data`, or raise; after an error any part of it may have been written."""
        ...

    def pwritev(self, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        """`pwrite` of the parts one after another, `size` bytes together, without joining them first."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make content and length durable (fdatasync)."""
        ...

    def reserve(self, offset: int, size: int) -> bool:
        """Set space aside for `size` bytes at `offset` without changing the length; whether that could be done."""
        ...

    def size(self) -> int: ...

    def lock(self) -> bool:
        """Take the exclusive advisory lock without waiting; False when someone else has it. Released on close."""
        ...

    def close(self) -> None: ...


class Files(Protocol):
    """A file system."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File: ...

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents; durable together with a `sync_directory` of each parent."""
        ...

    def list(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def sync_directory(self, path: str) -> None: ...


# RWF_DONTCACHE of linux/fs.h, which Linux has since 6.14; the standard library does not name it.
_DONT_CACHE = 0x80
# Fewer bytes than this are copied faster than the kernel takes them in parts.
_JOIN_BYTES_MAX = 16 << 10
# From linux/falloc.h; the standard library has no fallocate that keeps the length.
_KEEP_SIZE = 1
_fallocate = None
if sys.platform.startswith("linux") and ctypes.sizeof(ctypes.c_long) == 8:
    _fallocate = ctypes.CDLL(None).fallocate
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)


def make_durable_directory(files: Files, path: str) -> None:
    """Create a directory and its missing parents so that all of them survive power loss.

    Parents that are there are synced too: whoever made them may not have lived, or may have failed, to do so.
    """
    files.make_directory(path)
    sync_parents(files, path)


def sync_parents(files: Files, path: str) -> None:
    """Sync all directories above this one."""
    parent = path.rstrip("/")
    while parent not in ("", "."):
        parent = os.path.dirname(parent).rstrip("/")
        try:
            files.sync_directory(parent or ("/" if path.startswith("/") else "."))
        except PermissionError:
            # We may not even look into it, so we have made nothing in it.
            continue


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._fd, size - got, offset + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def fetch(self, into: memoryview, offset: int, *, keep: bool) -> int:
        got = 0
        while got < len(into):
            more = self._fetch(into[got:], offset + got, keep)
            if not more:
                break
            got += more
        return got

    def _fetch(self, into: memoryview, offset: int, keep: bool) -> int:
        if not keep and sys.platform.startswith("linux"):
            try:
                return os.preadv(self._fd, [into], offset, _DONT_CACHE)
            except OSError as error:
                # An older kernel, or a file system that cannot do it: then it stays in memory.
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
        return os.preadv(self._fd, [into], offset)

    def pwrite(self, data: bytes | memoryview, offset: int) -> None:
        done, size = os.pwrite(self._fd, data, offset), len(data)
        while done < size:
            done += os.pwrite(self._fd, memoryview(data)[done:], offset + done)

    def pwritev(self, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        if size <= _JOIN_BYTES_MAX:
            self.pwrite(b"".join(parts), offset)
            return
        done = os.pwritev(self._fd, parts, offset)
        if done < size:
            self.pwrite(memoryview(b"".join(parts))[done:], offset + done)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def reserve(self, offset: int, size: int) -> bool:
        return _fallocate is not None and _fallocate(self._fd, _KEEP_SIZE, offset, size) == 0

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def lock(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsFiles:
    """The operating system's own files. Created files are 0600, directories 0700; with `group_read` 0640 and 0750.

    A link is never followed as the last part of a file's path: whoever may write into a directory of ours could
    otherwise have any file read, or written to, with our rights.
    """

    # How a while is waited for a descriptor.
    _pause: Callable[[float], None] = staticmethod(time.sleep)
    _file_mode, _directory_mode = 0o600, 0o700

    def __init__(self, pause: Callable[[float], None] | None = None, *, group_read: bool = False) -> None:
        if pause is not None:
            self._pause = pause
        if group_read:
            self._file_mode, self._directory_mode = 0o640, 0o750

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_RDWR if write else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT
        return OsFile(patiently(lambda: os.open(path, flags, self._file_mode), self._pause))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=self._directory_mode, exist_ok=True)

    def list(self, path: str) -> list[str]:
        return patiently(lambda: os.listdir(path), self._pause)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def sync_directory(self, path: str) -> None:
        fd = patiently(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), self._pause)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
