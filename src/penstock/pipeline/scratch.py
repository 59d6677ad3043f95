"""Scratch: the directory below which Spark leaves what is not to last, rows among it, in files that anyone may read.

Spark writes shuffles and broadcasts with the permissions that the system's defaults give, and leaves them when it is
killed. So they lie below one directory that only this user may enter, and which each start empties.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from penstock.errors import StorageError


def prepare(directory: Path) -> Path:
    """Make the directory, ours alone and empty, and return its full path. For the driver that has the pipeline's lock.

    StorageError when something else stands there: a link, a file, or a directory of another user, who could read all
    that is put into it.
    """
    path = directory.absolute()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise StorageError("this is no directory of this user", directory=path) from None
        path.chmod(0o700)
        for left in path.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
    except OSError as error:
        raise StorageError(f"cannot use the scratch directory: {error.strerror}", directory=path) from error
    return path
