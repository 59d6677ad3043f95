"""Begun: which targets a checkpoint has written to, so that batches of another checkpoint are not taken for its own.

A table or directory knows the batches of a pipeline by number, and a batch that it has is not written again. A pipeline
whose checkpoint was deleted counts from zero, so a number would stand for two batches and one of them would be left out
or written over in silence. Therefore a small file per target stands in the checkpoint before anything is written, and
a target that has batches of a pipeline of this name is refused where that file is missing.
"""

from __future__ import annotations

from pathlib import Path

from penstock.errors import CorruptCheckpoint, StorageError
from penstock.log import sealed
from penstock.system.files import OsFiles, make_durable_directory


class Begun:
    """The targets of one sink. Used on the driver only; until it has a directory nothing is checked."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self.pipeline = ""

    def keep_in(self, directory: Path, pipeline: str) -> None:
        """Remember in this directory from now on, and what was remembered there before."""
        self._directory, self.pipeline = directory, pipeline

    def begin(self, name: str, *, taken: bool, **place: object) -> None:
        """Note that batches will go to a target. `taken`: it has batches of a pipeline of this name already."""
        if self._directory is None:
            return
        try:
            if (self._directory / name).exists():
                return
            if taken:
                raise CorruptCheckpoint(
                    "the target has batches of this pipeline, and the checkpoint knows of none: it was deleted, or is "
                    "another one. Give the pipeline another name; what has changed since is written again",
                    pipeline=self.pipeline,
                    **place,
                )
            # With the directories above: the target keeps its batches in a power loss, and the note must not be gone.
            make_durable_directory(OsFiles(), str(self._directory))
            sealed.write(OsFiles(), str(self._directory), name, {"pipeline": self.pipeline})
        except OSError as error:
            raise StorageError(
                f"cannot note which targets are written to: {error.strerror}", directory=self._directory
            ) from error
