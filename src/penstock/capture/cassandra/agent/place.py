"""The agent's place: how far in the commit log everything is durable in the change logs, and what goes with it.

A place is saved only when all changes before it are durable. It comes with the table definitions as they were there,
so that a restart decodes what follows exactly as the first time, and with the ends of the change logs: whatever stands
in a log behind its noted end was appended after the place was saved, and is recognised when it is read again. Segments
that were read to their end are listed too, because Cassandra may bring one back (a replay after a crash links it anew),
and because 3.11 does not deliver them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.state_file import BYTES_MAX, StateFile
from penstock.errors import CorruptCheckpoint, PenstockError
from penstock.log import sealed
from penstock.log.refusal import refused
from penstock.system.files import Files

log = structlog.get_logger()

PLACE = "place"
# More than fit into a node's cdc_raw and commitlog directories as they are sized by default; older ones do not return.
_FINISHED_MAX = 2048


@dataclass(frozen=True, slots=True)
class Place:
    """Where to read on. `position` is logical; everything up to it is durable."""

    segment: int
    # The segment's file name, for people.
    file: str
    position: int
    # Where each change log ended, by its directory's name, as text. None: a place before this one was lost, and it is
    # not known yet what the logs hold of what will be read.
    logs: Mapping[str, str] | None = field(default_factory=dict)
    # How far each file of parked entries was taken; the changes of what was taken are durable.
    unparked: Mapping[str, int] = field(default_factory=dict)
    # Segments that were read to their end, with that end; and the id below which all were.
    finished: Mapping[int, int] = field(default_factory=dict)
    finished_below: int = 0


class PlaceFile:
    """The place and its table definitions on disk."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._state = StateFile(files, directory, PLACE)
        # The revision of the definitions that were saved last, and their number.
        self.revision = -1
        self._number = 0

    def load(self) -> tuple[Place, Schemas] | None:
        """The saved place with its definitions; None when there is none."""
        content = self._state.load()
        if content is None:
            return None
        try:
            place = Place(
                int(content["segment"]),
                str(content["file"]),
                int(content["position"]),
                None if content["logs"] is None else {str(name): str(end) for name, end in content["logs"].items()},
                {str(name): int(offset) for name, offset in content["unparked"].items()},
                {int(id_): int(end) for id_, end in content["finished"].items()},
                int(content["finished_below"]),
            )
            number = int(content["schema"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptCheckpoint(f"the agent's place makes no sense: {error}", directory=self._directory) from error
        schemas = self._load_schemas(number)
        self._number = number
        self.revision = schemas.revision
        return place, schemas

    def prepare(self, place: Place, schemas: Schemas) -> Callable[[], None]:
        """What saves the place with the definitions as they are now; it may be called by another thread."""
        # They are large, and mostly those that were saved last.
        definitions = schemas.to_json() if schemas.revision != self.revision else None
        return partial(self.save, place, schemas.revision, definitions)

    def save(self, place: Place, revision: int, definitions: Mapping[str, Any] | None) -> None:
        """Make the place durable, after its definitions (`Schemas.to_json`), which are given if they changed."""
        before = self._number
        if definitions is not None:
            self._write_definitions(self._number + 1, definitions)
            self.revision = revision
        content = {
            "segment": place.segment,
            "file": place.file,
            "position": place.position,
            "schema": self._number,
            "logs": None if place.logs is None else dict(place.logs),
            "unparked": dict(place.unparked),
            "finished": {str(id_): end for id_, end in place.finished.items()},
            "finished_below": place.finished_below,
        }
        self._state.save(content)
        if before != self._number:
            self._tidy({before, self._number})

    def _write_definitions(self, number: int, definitions: Mapping[str, Any]) -> None:
        try:
            content = {"format": 1, "schemas": definitions}
            sealed.write(self._files, self._directory, _schema_name(number), content)
        except OSError as error:
            raise refused(error, "saving table definitions", f"{self._directory}/{_schema_name(number)}") from error
        self._number = number

    def _load_schemas(self, number: int) -> Schemas:
        path = f"{self._directory}/{_schema_name(number)}"
        try:
            return Schemas.from_json(sealed.read(self._files, path, BYTES_MAX)["schemas"])
        except OSError as error:
            raise refused(error, "reading table definitions", path) from error
        except (KeyError, ValueError, PenstockError) as error:
            raise CorruptCheckpoint(f"the agent's table definitions are damaged: {error}", file=path) from error

    def _tidy(self, used: set[int]) -> None:
        """Remove definitions that neither place names any more. What cannot be removed now goes another time."""
        names = {_schema_name(number) for number in used}
        try:
            for name in self._files.list(self._directory):
                if name.startswith("schema.") and name.endswith(".json") and name not in names:
                    self._files.unlink(f"{self._directory}/{name}")
        except OSError as error:
            log.warning("old table definitions not removed", directory=self._directory, errno=error.errno)


class FinishedSegments:
    """Which segments were read to their end, and to which position. They are saved with the place."""

    def __init__(self, place: Place | None = None) -> None:
        self.ends: Mapping[int, int] = {} if place is None else place.finished
        # Segments below this were finished so long ago that they are not listed any more.
        self.floor = 0 if place is None else place.finished_below

    def __contains__(self, id_: int) -> bool:
        return id_ in self.ends or id_ < self.floor

    def add(self, id_: int, position: int) -> None:
        """Note a segment. Everything in it must be durable before."""
        ends = {**self.ends, id_: position}
        for oldest in sorted(ends)[: max(0, len(ends) - _FINISHED_MAX)]:
            del ends[oldest]
            self.floor = max(self.floor, oldest + 1)
        # Places hold the mapping that was current when they were made.
        self.ends = ends


def _schema_name(number: int) -> str:
    return f"schema.{number}.json"
