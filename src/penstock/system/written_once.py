"""Small files that are written once: durable, whole or not there, and never put in the place of another.

Plans and manifests of batches are such files. Two drivers that believe to be the only one may both come to write the
file of a batch; the second one is told, and the file stays what it was.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress

from penstock.system.files import OsFiles

_DRAFT = ".draft"
# What file systems say that have no links.
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP}


def write(directory: str, name: str, content: bytes) -> bool:
    """Make the file durable and then visible; False, and nothing done, when there is one of this name."""
    files = OsFiles()
    path = f"{directory}/{name}"
    draft = f"{path}.{uuid.uuid4().hex}{_DRAFT}"
    try:
        file = files.open(draft, write=True, create=True)
        try:
            file.pwrite(content, 0)
            file.sync()
        finally:
            file.close()
        if not _name(draft, path):
            return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    files.sync_directory(directory)
    return True


def _name(draft: str, path: str) -> bool:
    """Give the file its name, unless that is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without links there is a moment between the look and the rename; the driver's lock must do then.
        if os.path.exists(path):
            return False
        os.rename(draft, path)
    return True


def clear_drafts(directory: str) -> None:
    """Remove what writers left that were killed. Nobody may be writing."""
    with suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if name.endswith(_DRAFT):
                os.unlink(f"{directory}/{name}")
