"""SourcePlace: a source's place on disk, with the ends that the change logs had there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.capture.source import Place
from penstock.capture.state_file import StateFile
from penstock.errors import CorruptCheckpoint, InvalidSetting
from penstock.system.files import Files

NAME = "place"


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where to read on. What stands in a log after its noted end was appended after this place was saved."""

    # None: nothing was read yet.
    place: Place | None = None
    # Where each change log ended, by its directory's name, as text.
    logs: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    data_centre: str = ""


class SourcePlaceFile:
    """The place of one kind of source in a state directory."""

    def __init__(self, files: Files, directory: str, kind: str) -> None:
        self._directory = directory
        self._kind = kind
        self._state = StateFile(files, directory, NAME)

    def load(self) -> SourcePlace | None:
        """The saved place; None when there is none."""
        content = self._state.load()
        if content is None:
            return None
        found = content.get("source", "cassandra")
        if found != self._kind:
            message = f"the state directory belongs to a source of kind {found!r}, and not {self._kind!r}"
            raise InvalidSetting(message, setting="source.kind", directory=self._directory)
        try:
            place = content["place"]
            return SourcePlace(
                None if place is None else dict(place),
                {str(name): str(end) for name, end in content["logs"].items()},
                str(content["node"]),
                str(content["data_centre"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptCheckpoint(f"the agent's place makes no sense: {error}", directory=self._directory) from error

    def save(self, place: SourcePlace) -> None:
        """Make the place durable."""
        self._state.save(
            {
                "source": self._kind,
                "place": None if place.place is None else dict(place.place),
                "logs": dict(place.logs),
                "node": place.node,
                "data_centre": place.data_centre,
            }
        )
