"""Survey: the size of every log of a node, and how far its subscriptions are, as plain numbers.

Everything is read from the files, as any other process could: whoever delivers changes, over a socket, over HTTP or
from the files themselves, is counted by what it has committed. A look costs a few reads for each log and subscription,
so one that is asked for again within a few seconds is answered from the last. A log that cannot be read is left out.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from penstock.errors import PenstockError
from penstock.log import names, subscriptions
from penstock.log.reader import LogReader
from penstock.log.subscriptions import SubscriptionState
from penstock.log.upkeep import logs_below
from penstock.system.clock import Clock, SystemClock
from penstock.system.files import Files, OsFiles

log = structlog.get_logger()

# No more often than this are the files looked at.
_LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class LogFigures:
    """One log. `parked` counts changes that a filter could not judge; None for a log of others."""

    files: int
    bytes: int
    parked: int | None = None
    subscriptions: tuple[SubscriptionState, ...] = field(default=())


class Survey:
    """The logs below `root`. May be asked from many threads."""

    def __init__(
        self, root: str, *, files: Files | None = None, clock: Clock | None = None, look_s: float = _LOOK_S
    ) -> None:
        self._root = root
        self._files = files or OsFiles()
        self._clock = clock or SystemClock()
        self._look_s = look_s
        self._mutex = threading.Lock()
        self._found: Mapping[str, LogFigures] = {}
        self._until: float | None = None

    def look(self) -> Mapping[str, LogFigures]:
        """The figures of each log by the name of its directory."""
        with self._mutex:
            now = self._clock.monotonic()
            if self._until is None or now >= self._until:
                self._found = self._read()
                self._until = now + self._look_s
            return self._found

    def _read(self) -> dict[str, LogFigures]:
        found: dict[str, LogFigures] = {}
        try:
            for directory in logs_below(self._root, self._files):
                figures = self._figures(directory)
                if figures is not None:
                    found[os.path.basename(directory)] = figures
        except PenstockError as error:
            log.warning("logs not surveyed", directory=self._root, error=str(error))
        return found

    def _figures(self, directory: str) -> LogFigures | None:
        try:
            with LogReader(directory, files=self._files) as reader:
                infos = reader.files()
                parked = reader.watermark().rows if directory.endswith(names.PARKED) else None
                states = tuple(subscriptions.states(reader, self._files))
        except PenstockError as error:
            # Retention may have deleted a file between two looks; what stays wrong is told by whoever reads.
            log.debug("log not surveyed", directory=directory, error=str(error))
            return None
        return LogFigures(len(infos), sum(info.bytes for info in infos), parked, states)
