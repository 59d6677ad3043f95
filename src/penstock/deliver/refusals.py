"""Refusals of the file system that are about one table of a target, as errors that name the table."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import DeliveryFailed, StorageError
from penstock.log.refusal import exhausted

# What somebody has to change; whatever else a file system says may pass.
_LASTING = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    *(errno.ENAMETOOLONG, errno.ELOOP),
}


@contextmanager
def refusals(table: object, doing: str) -> Iterator[None]:
    """What the file system refuses in here, it refuses the table. What ran out is everybody's."""
    try:
        yield
    except OSError as error:
        passing = exhausted(error)
        if passing is not None:
            raise passing from error
        kind = StorageError if error.errno in _LASTING else DeliveryFailed
        raise kind(f"{doing}: {error.strerror or error}", table=table, file=error.filename) from error
