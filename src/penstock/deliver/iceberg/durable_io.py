"""Files of Iceberg tables that are durable when they are closed.

pyiceberg syncs nothing. Its catalog does, so after a power loss the catalog could name a version of the table of which
no file is left. With this, all that a commit names is on the disk before the catalog is told. Object stores keep what
they have taken, and are spoken to as before.
"""

from __future__ import annotations

import io
import os
from typing import Any

from pyarrow.fs import LocalFileSystem
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.system.files import OsFiles, sync_parents


class DurableFileIO(PyArrowFileIO):
    """What pyiceberg uses for local files, with a sync at the end of each."""

    def new_output(self, location: str) -> PyArrowFile:
        made = super().new_output(location)
        if isinstance(made._filesystem, LocalFileSystem):
            return _LocalFile(fs=made._filesystem, location=location, path=made._path, buffer_size=made._buffer_size)
        return made


class _LocalFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        directory = os.path.dirname(self._path)
        if not os.path.isdir(directory):
            os.makedirs(directory, exist_ok=True)
            sync_parents(OsFiles(), directory)
        return _Synced(io.FileIO(self._path, "wb" if overwrite else "xb"))


class _Synced(io.BufferedWriter):
    """A file that is on the disk when `close` returns."""

    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            name = os.fsdecode(self.raw.name)  # type: ignore[attr-defined]
            super().close()
            OsFiles().sync_directory(os.path.dirname(name))
