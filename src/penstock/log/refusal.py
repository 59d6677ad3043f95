"""Refusals of the file system, told apart: a full disk and a lack of descriptors pass by themselves."""

from __future__ import annotations

import errno

from penstock.errors import DiskFull, Exhausted, LogError, StorageError, TooManyFiles
from penstock.system.descriptors import EXHAUSTED, scarce

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What SQLite says, SQLITE_CANTOPEN and SQLITE_IOERR, when it gets no descriptor; it says so of other things, too.
_SQLITE_UNOPENED = {14, 10}
_HELD_BACK = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.ENOENT: "no such file or directory",
    errno.ENOTDIR: "not a directory",
    errno.ELOOP: "a symbolic link stands where a file should be",
}


def refused(error: OSError, doing: str, path: str) -> LogError:
    """The error to raise, from `error`, when the file system refused."""
    if isinstance(error.filename, str):
        path = error.filename
    if error.errno in _FULL:
        return DiskFull(f"no room while {doing}", file=path)
    if error.errno in EXHAUSTED:
        return TooManyFiles(f"too many open files while {doing}", file=path)
    reason = _HELD_BACK.get(error.errno or 0) or errno.errorcode.get(error.errno or 0, "I/O error")
    return StorageError(f"{reason} while {doing}", file=path)


def exhausted(error: BaseException | None) -> Exhausted | None:
    """The error to raise instead when something that ran out is at the bottom of this one; None when nothing did."""
    while error is not None:
        if isinstance(error, Exhausted):
            return error
        if isinstance(error, OSError) and error.errno in _FULL:
            return DiskFull("no room on a disk", file=error.filename)
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            return TooManyFiles("too many open files", file=error.filename)
        if sqlite_lacks_files(error):
            return TooManyFiles("too many open files")
        error = error.__cause__
    return None


def sqlite_lacks_files(error: BaseException) -> bool:
    """Whether SQLite could not open a file because there is no descriptor now. It does not say the reason itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _SQLITE_UNOPENED and scarce()
