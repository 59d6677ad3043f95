"""Begun: which targets a checkpoint has written to, so that batches of another checkpoint are not taken for its own.

A table or directory knows the batches of a pipeline by number, and a batch that it has is not written again. A pipeline
whose checkpoint was deleted counts from zero, and one whose checkpoint was restored from an older copy counts once more
from there, so a number would stand for two batches and one of them would be left out or written over in silence.

Therefore a small file per target stands in the checkpoint before anything is written, and a target that has batches of
a pipeline of this name is refused where that file is missing. Of targets that tell which batch they have last
(`batch_plan`), another file says which those can be: the one that the target had before, and the one that it was to be
given then. It is durable before the target is given anything. A target that has another one got it from another
checkpoint, or from this one after the copy was made that is in its place now, and is refused, whatever the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.deliver.batch_plan import BatchMark, BatchPlan
from penstock.errors import CorruptCheckpoint, StorageError
from penstock.log import sealed
from penstock.system.files import OsFiles, make_durable_directory

_GIVEN = "given.json"
_FORMAT = 1
# Far more than the targets of ten thousand tables.
_GIVEN_BYTES_MAX = 16 << 20


class Begun:
    """The targets of one sink. Used on the driver only; until it has a directory nothing is checked."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self.pipeline = ""
        self._given: dict[str, list[BatchMark]] | None = None

    def keep_in(self, directory: Path, pipeline: str) -> None:
        """Remember in this directory from now on, and what was remembered there before."""
        self._directory, self.pipeline = directory, pipeline
        self._given = None

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
            raise self._refused(error) from error

    def knows(self, name: str, found: BatchMark | None, plan: BatchPlan) -> bool:
        """Whether a target's last batch can be of this checkpoint; one that does not tell its plan always can."""
        if self._directory is None or not plan.id or found is None or not found.plan or found == plan.mark:
            return True
        return found in self._read().get(name, ())

    def gives(self, targets: Mapping[str, BatchMark | None], plan: BatchPlan) -> None:
        """Note that targets are to be given a batch, with the last one that each has now."""
        if self._directory is None or not plan.id:
            return
        # Of one that is in the note with this batch, it is done again.
        changed = {name: found for name, found in targets.items() if plan.mark not in self._read().get(name, ())}
        if not changed:
            return
        marks = {name: [one for one in (found, plan.mark) if one and one.plan] for name, found in changed.items()}
        known = {**self._read(), **marks}
        content = {name: [[mark.batch, mark.plan] for mark in marks] for name, marks in known.items()}
        try:
            make_durable_directory(OsFiles(), str(self._directory))
            sealed.write(OsFiles(), str(self._directory), _GIVEN, {"format": _FORMAT, "targets": content})
        except OSError as error:
            raise self._refused(error) from error
        self._given = known

    def _read(self) -> dict[str, list[BatchMark]]:
        if self._given is None:
            assert self._directory is not None
            file = self._directory / _GIVEN
            try:
                found: dict[str, Any] = sealed.read(OsFiles(), str(file), _GIVEN_BYTES_MAX)
                if found["format"] != _FORMAT:
                    raise ValueError("of another version")
                listed = found["targets"].items()
                self._given = {
                    name: [BatchMark(int(batch), str(plan)) for batch, plan in marks] for name, marks in listed
                }
            except FileNotFoundError:
                self._given = {}
            except OSError as error:
                raise self._refused(error) from error
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CorruptCheckpoint("the note of what targets were given is damaged", file=file) from error
        return self._given

    def _refused(self, error: OSError) -> StorageError:
        return StorageError(f"cannot note which targets are written to: {error.strerror}", directory=self._directory)
