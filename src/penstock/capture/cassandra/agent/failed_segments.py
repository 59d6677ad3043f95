"""FailedSegments: which segments could not be read as a whole, what was left out of each, and which to read again.

For each there is a record in the agent's state: the file, and the ranges of positions whose entries were left out. When
the operator has mended the file (or updated Penstock) and asks for it, those ranges are read again, and only those: the
rest is in the change logs already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.capture.cassandra.segments.sections import ENTRY_OVERHEAD_BYTES, Damage, Section
from penstock.errors import CorruptCheckpoint
from penstock.log import sealed
from penstock.log.refusal import refused
from penstock.system.files import Files, make_durable_directory

DIRECTORY = "failed"
_RECORD = ".failed.json"
_REQUEST = ".again.json"
_BYTES_MAX = 16 << 20
# So many ranges are kept for one segment; with more, everything behind the last is read again, perhaps twice.
_RANGES_MAX = 10_000
END = 1 << 62


class Range(NamedTuple):
    """Entries that start at `start` or behind it, and before `end`, were left out."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FailedSegment:
    """One segment that was not read as a whole."""

    name: str
    path: str
    ranges: tuple[Range, ...]
    message: str

    def to_json(self) -> dict[str, Any]:
        ranges = [list(found) for found in self.ranges]
        return {"format": 1, "name": self.name, "path": self.path, "ranges": ranges, "message": self.message}


class FailedSegments:
    """The records in the agent's state directory. May be used by another process beside the agent."""

    def __init__(self, files: Files, state_directory: str) -> None:
        self._files = files
        self._directory = f"{state_directory}/{DIRECTORY}"
        try:
            make_durable_directory(files, self._directory)
        except OSError as error:
            raise refused(error, "opening the records of failed segments", self._directory) from error

    def add(self, segment: FailedSegment) -> None:
        """Note a segment durably."""
        self._write(segment.name + _RECORD, segment.to_json())

    def all(self) -> list[FailedSegment]:
        """Every segment that failed and was not mended since."""
        return [self._read(name) for name in self._names(_RECORD)]

    def request(self, name: str) -> None:
        """Ask the agent, now or at its next start, to read a segment again."""
        self._write(name + _REQUEST, {"format": 1, "name": name})

    def requested(self) -> list[FailedSegment]:
        """The segments that are to be read again."""
        wanted = {name.removesuffix(_REQUEST) for name in self._names(_REQUEST)}
        return [segment for segment in self.all() if segment.name in wanted]

    def answered(self, name: str, *, mended: bool) -> None:
        """The request was met. Once mended, nothing is left of it."""
        try:
            if mended:
                self._files.unlink(f"{self._directory}/{name}{_RECORD}")
            if self._files.exists(f"{self._directory}/{name}{_REQUEST}"):
                self._files.unlink(f"{self._directory}/{name}{_REQUEST}")
            self._files.sync_directory(self._directory)
        except OSError as error:
            raise refused(error, "removing the record of a failed segment", self._directory) from error

    def _names(self, ending: str) -> list[str]:
        try:
            return sorted(name for name in self._files.list(self._directory) if name.endswith(ending))
        except OSError as error:
            raise refused(error, "listing failed segments", self._directory) from error

    def _write(self, name: str, content: dict[str, Any]) -> None:
        try:
            sealed.write(self._files, self._directory, name, content)
        except OSError as error:
            raise refused(error, "noting a failed segment", f"{self._directory}/{name}") from error

    def _read(self, name: str) -> FailedSegment:
        path = f"{self._directory}/{name}"
        try:
            content = sealed.read(self._files, path, _BYTES_MAX)
            ranges = tuple(Range(int(start), int(end)) for start, end in content["ranges"])
            return FailedSegment(str(content["name"]), str(content["path"]), ranges, str(content["message"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpoint(f"the record of a failed segment is damaged: {error}", file=path) from error
        except OSError as error:
            raise refused(error, "reading the record of a failed segment", path) from error


def left_out(damage: Sequence[Damage], section_ends: Sequence[int]) -> tuple[Range, ...]:
    """The ranges that damage made unreadable. `section_ends` are the ends of the sections that were read, in order."""
    ranges = []
    for found in damage[:_RANGES_MAX]:
        if found.what in ("entry", "mutation"):
            ranges.append(Range(found.position, found.position + 1))
        elif found.what in ("entry size", "section"):
            end = next((end for end in section_ends if end > found.position), END)
            ranges.append(Range(found.position, end))
        elif found.what == "marker":
            ranges.append(Range(found.position, END))
    if len(damage) > _RANGES_MAX:
        ranges.append(Range(damage[_RANGES_MAX].position, END))
    return tuple(ranges)


def missing_entries(section: Section, ranges: Sequence[Range]) -> Iterator[Section]:
    """The entries of a section that start in one of the ranges, each as a section of its own."""
    if all(found.end <= section.start or found.start >= section.start + len(section.data) for found in ranges):
        return
    view = memoryview(section.data)
    offset = 0
    while offset < len(view):
        start = section.start + offset
        size = int.from_bytes(view[offset : offset + 4], "big", signed=True)
        end = offset + size + ENTRY_OVERHEAD_BYTES
        whole = size > 0 and end <= len(view)
        if not whole and not any(view[offset:]):
            return
        if any(found.start <= start < found.end for found in ranges):
            # What is damaged still comes as it is: the decoder says what is wrong with it.
            yield Section(view[offset : end if whole else len(view)], start, section.sealed)
        if not whole:
            return
        offset = end
