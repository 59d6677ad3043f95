"""SegmentTransfer: what happens to a segment when the agent is done with it.

A segment is handed over only when every change in it is durable in the change logs and the agent's place lies beyond
it, so a transfer may do with the file what it likes. It waits for nobody: segments go although subscribers lag, or the
node's cdc space would fill. Only links in cdc_raw are ever handed over; files in commitlog are the node's. After a
crash a segment may be handed over a second time.
"""

from __future__ import annotations

import errno
import importlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from penstock.errors import InvalidSetting, StorageError
from penstock.log.refusal import refused
from penstock.settings import AgentSettings
from penstock.system.files import OsFiles

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ProcessedSegment:
    """A segment that is done. Paths lie in cdc_raw; the index file may be missing."""

    name: str
    path: str
    index_path: str | None
    # How far it was read, and how many changes it gave since the agent was started.
    position: int
    changes: int
    # Why it counts as failed: damage inside, or an unknown format. None when all of it was read.
    error: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The files to take care of: the index last, so that a segment is never without its own."""
        return (self.path,) if self.index_path is None else (self.path, self.index_path)


class SegmentTransfer(Protocol):
    """Takes segments over. Raise any exception to refuse: the segment stays, and is offered again later."""

    def done(self, segment: ProcessedSegment) -> None:
        """A segment of which everything was read."""
        ...

    def failed(self, segment: ProcessedSegment) -> None:
        """A segment that was damaged or could not be read; what could be read is in the change logs."""
        ...


class Keep:
    """Leaves every file where it is. The node's cdc space fills unless somebody else removes them."""

    def done(self, segment: ProcessedSegment) -> None:
        pass

    def failed(self, segment: ProcessedSegment) -> None:
        pass


class Delete:
    """Deletes what is done, and keeps what failed: in `errors` if given, else where it is."""

    def __init__(self, errors: str | None = None) -> None:
        self._errors = errors

    def done(self, segment: ProcessedSegment) -> None:
        for path in segment.paths:
            _unlink(path)

    def failed(self, segment: ProcessedSegment) -> None:
        if self._errors is not None:
            for path in segment.paths:
                move(path, self._errors)


class Archive(Delete):
    """Moves what is done to a directory. A segment that gave no change and has no index is deleted, as by Cassandra."""

    def __init__(self, directory: str, errors: str | None = None) -> None:
        super().__init__(errors)
        self._directory = directory

    def done(self, segment: ProcessedSegment) -> None:
        if segment.index_path is None and not segment.changes:
            super().done(segment)
            return
        for path in segment.paths:
            move(path, self._directory)


def choose(settings: AgentSettings) -> SegmentTransfer:
    """The transfer that the settings name."""
    errors = _directory(settings.error_directory, "agent.error_directory")
    if settings.transfer == "keep":
        return Keep()
    if settings.transfer == "delete":
        return Delete(errors)
    if settings.transfer == "archive":
        archive = _directory(settings.archive_directory, "agent.archive_directory")
        if archive is None:
            raise InvalidSetting('transfer = "archive" needs agent.archive_directory')
        return Archive(archive, errors)
    return _own(settings.transfer, settings.transfer_options)


def move(path: str, directory: str) -> None:
    """Move a file, also to another file system; one that is gone already is no error. Durable when it returns."""
    target = os.path.join(directory, os.path.basename(path))
    try:
        try:
            os.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(path, target)
            os.unlink(path)
        OsFiles().sync_directory(directory)
    except FileNotFoundError:
        if not os.path.isdir(directory):
            raise StorageError("no such directory", directory=directory) from None
    except OSError as error:
        raise refused(error, "moving a segment", target) from error


def _copy(path: str, target: str) -> None:
    """Copy under another name first, so that no half of a file ever has the segment's name."""
    temporary = f"{target}.tmp"
    shutil.copyfile(path, temporary)
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, target)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise refused(error, "deleting a segment", path) from error


def _directory(path: object, setting: str) -> str | None:
    """A directory that the settings name, made when it is missing."""
    if path is None:
        return None
    try:
        os.makedirs(str(path), mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidSetting(f"{setting} cannot be used: {error.strerror}", directory=path) from error
    return str(path)


def _own(name: str, options: Mapping[str, str]) -> SegmentTransfer:
    """An operator's own class, `module:Class`, made with the options as keyword arguments."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        known = "delete, archive, keep, or an own class as module:Class"
        raise InvalidSetting(f"agent.transfer is {name!r}; known are {known}")
    try:
        found = getattr(importlib.import_module(module), attribute)
        made = found(**options)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InvalidSetting(f"agent.transfer {name!r} cannot be made: {error}") from error
    if not callable(getattr(made, "done", None)) or not callable(getattr(made, "failed", None)):
        raise InvalidSetting(f"agent.transfer {name!r} has no methods done and failed")
    chosen: SegmentTransfer = made
    return chosen
