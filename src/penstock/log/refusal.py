"""Refusals of the file system, told apart: a full disk passes by itself, the rest needs someone."""

from __future__ import annotations

import errno

from penstock.errors import DiskFull, LogError, StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_HELD_BACK = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.ENOENT: "no such file or directory",
    errno.ENOTDIR: "not a directory",
}


def refused(error: OSError, doing: str, path: str) -> LogError:
    """The error to raise, from `error`, when the file system refused."""
    if isinstance(error.filename, str):
        path = error.filename
    if error.errno in _FULL:
        return DiskFull(f"no room while {doing}", file=path)
    reason = _HELD_BACK.get(error.errno or 0) or errno.errorcode.get(error.errno or 0, "I/O error")
    return StorageError(f"{reason} while {doing}", file=path)


def full_disk(error: BaseException | None) -> DiskFull | None:
    """The error to raise instead when a full disk is at the bottom of this one; None when it is not."""
    while error is not None:
        if isinstance(error, DiskFull):
            return error
        if isinstance(error, OSError) and error.errno in _FULL:
            return DiskFull("no room on a disk", file=error.filename)
        error = error.__cause__
    return None
