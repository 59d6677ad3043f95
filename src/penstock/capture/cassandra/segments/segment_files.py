"""Which commit-log segments a list of paths means: files as they are given, directories as all their segments by id."""

from __future__ import annotations

import os
import stat

from penstock.capture.cassandra.segments.segment import segment_name
from penstock.errors import InvalidInput, StorageError


def find(paths: list[str]) -> list[str]:
    """The segments, each once: Cassandra links one segment into two directories. An error when there is none."""
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    for path in paths:
        for file in _below(path):
            try:
                status = os.stat(file)
            except OSError as error:
                raise StorageError(f"cannot read the segment: {error.strerror}", file=file) from error
            identity = status.st_dev, status.st_ino
            if identity not in seen:
                seen.add(identity)
                found.append(file)
    if not found:
        where = ", ".join(paths)
        raise InvalidInput(f"no commit-log segment here: no file is named CommitLog-<format>-<id>.log: {where}")
    return found


def _below(path: str) -> list[str]:
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            # A path that somebody gives may be a link; what lies in a directory may not.
            return [os.path.realpath(path) if os.path.islink(path) else path]
    except FileNotFoundError:
        raise StorageError("no such file or directory", path=path) from None
    except OSError as error:
        raise StorageError(f"cannot look there: {error.strerror}", path=path) from error
    try:
        names = [name for entry in os.listdir(path) if (name := segment_name(entry)) is not None]
    except OSError as error:
        raise StorageError(f"cannot list the directory: {error.strerror}", directory=path) from error
    return [os.path.join(path, name.name) for name in sorted(names, key=lambda name: (name.id, name.format))]


def is_unused(path: str) -> bool:
    """Whether a segment was only just made: Cassandra keeps the next one ready, empty or full of zeros."""
    try:
        with open(path, "rb") as file:
            return not any(file.read(64))
    except OSError as error:
        raise StorageError(f"cannot read the segment: {error.strerror}", file=path) from error
