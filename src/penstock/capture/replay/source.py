"""ReplaySource: a directory of change logs, this machine's or copied from another, captured again.

Origins stay what they are, so what was captured twice folds to the same rows; headers stay too, so eras and schema
versions come in their order. A log that cannot be read on is named and stops alone; it is tried again now and then, in
case somebody mends it. Only the tables' own logs are read: named ones and what they parked hold some of the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from penstock import telemetry
from penstock.capture.replay.log_keys import LogKeys
from penstock.capture.replay.replayed_log import ReplayedLog
from penstock.capture.source import Place, Reading
from penstock.capture.status import Check
from penstock.capture.table_patterns import TablePatterns
from penstock.errors import Exhausted, InvalidSetting, PenstockError
from penstock.log import identity
from penstock.log.log_directory import log_name
from penstock.log.refusal import refused
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableSchema
from penstock.settings import ReplaySettings, Settings, SourceKind
from penstock.system.clock import Clock, SystemClock
from penstock.system.files import Files, OsFiles

log = structlog.get_logger()

# How often the directory is looked through for new logs, and those that stopped are tried again.
_LOOK_S = 1.0


class ReplaySource:
    """The logs below one directory."""

    kind = "replay"

    def __init__(self, settings: ReplaySettings, *, files: Files | None = None, clock: Clock | None = None) -> None:
        assert settings.directory is not None, "the settings are checked"
        self.keys = LogKeys()
        self.ended = False
        self._root = str(settings.directory).rstrip("/") or "/"
        self._follow = settings.follow
        self._ordered_by = settings.ordered_by
        self._patterns = TablePatterns(settings.include, settings.exclude)
        self._files: Files = files or OsFiles()
        self._clock: Clock = clock or SystemClock()
        # By the name of the log's directory: the logs, the places of those that were not seen yet, and what is wrong.
        self._logs: dict[str, ReplayedLog] = {}
        self._places: dict[str, Mapping[str, Any]] = {}
        self._stopped: dict[str, PenstockError] = {}
        # Those of the stopped that are not tried before the next look.
        self._resting: set[str] = set()
        self._passed_over: set[str] = set()
        self._looked_at = 0.0
        self._changes = 0
        # The logs in turn, so that a large one does not hold up the others.
        self._turn = 0

    def open(self, place: Place | None) -> tuple[str, str]:
        self._places = {} if place is None else dict(place["logs"])
        if not self._files.exists(self._root):
            raise InvalidSetting("no such directory", setting="replay.directory", directory=self._root)
        self._look()
        first = next((one for one in self._logs.values() if one.node), None)
        return ("", "") if first is None else (first.node, first.data_centre)

    def read(self, bytes_max: int) -> Reading | None:
        now = self._clock.monotonic()
        if now - self._looked_at >= _LOOK_S:
            self._look()
        found = self._read(bytes_max)
        if found is None and not self._follow:
            # Logs that came meanwhile count, too.
            self._look()
            found = self._read(bytes_max)
            if found is None:
                self._end()
        return found

    def durable(self, place: Place) -> None:
        """Nothing is held for us: who keeps the logs does not know that they are read."""

    def tables(self) -> list[TableSchema]:
        return [one.schema for one in list(self._logs.values()) if one.schema is not None]

    def figures(self) -> dict[str, float | int]:
        return {
            telemetry.REPLAY_TABLES: len(self._logs),
            telemetry.REPLAY_STOPPED_TABLES: len(self._stopped),
            telemetry.REPLAY_CHANGES: self._changes,
            telemetry.REPLAY_BEHIND_ROWS: sum(one.behind for one in list(self._logs.values())),
        }

    def checks(self) -> Sequence[Check]:
        stopped = dict(self._stopped)
        where = "; ".join(f"{name}: {error}" for name, error in sorted(stopped.items()))
        return [Check("replay", not stopped, f"stopped at what cannot be read: {where}" if stopped else None)]

    def close(self) -> None:
        for one in self._logs.values():
            one.rest()

    def _end(self) -> None:
        """All was read. What could not be is told by the end of the agent, when the rest is safe."""
        if self._stopped:
            raise next(iter(self._stopped.values()))
        self.ended = True

    def _read(self, bytes_max: int) -> Reading | None:
        """What is new in the next log that has anything."""
        names = list(self._logs)
        for step in range(len(names)):
            name = names[(self._turn + step) % len(names)]
            if name in self._resting:
                continue
            found = self._read_one(name, bytes_max)
            if found is not None:
                self._turn = (self._turn + step + 1) % len(names)
                batches, schema = found
                self._changes += sum(batch.count for batch in batches)
                return Reading(batches, {"logs": self._place()}, [] if schema is None else [schema])
        return None

    def _read_one(self, name: str, bytes_max: int) -> tuple[list[ChangeBatch], TableSchema | None] | None:
        """What one log has; None when that is nothing, or it cannot be read on."""
        one = self._logs[name]
        before = one.place()
        try:
            batches, schema = one.read(bytes_max)
        except Exhausted:
            raise
        except PenstockError as error:
            self._stop(name, error)
            return None
        self._stopped.pop(name, None)
        return (batches, schema) if one.place() != before else None

    def _place(self) -> dict[str, Mapping[str, Any]]:
        # A log that is not there now may come back, and goes on where it was.
        return {**self._places, **{name: one.place() for name, one in self._logs.items()}}

    def _stop(self, name: str, error: PenstockError) -> None:
        told = self._stopped.get(name)
        if told is None or str(told) != str(error):
            log.error("log not read on", log=name, error=str(error))
        self._stopped[name] = error
        self._resting.add(name)

    def _look(self) -> None:
        """Find logs that have come, and try again those that stopped."""
        self._looked_at = self._clock.monotonic()
        try:
            names = sorted(self._files.list(self._root))
        except OSError as error:
            raise refused(error, "looking for logs", self._root) from error
        self._resting.clear()
        for name in names:
            # A log that stopped is opened anew: its files may have been put back by others.
            if name in self._stopped or (name not in self._logs and name not in self._passed_over):
                self._find(name)

    def _find(self, name: str) -> None:
        directory = f"{self._root}/{name}"
        try:
            if not self._files.exists(f"{directory}/{identity.NAME}"):
                return
            table = identity.load(self._files, directory).table
            if log_name(directory, table) != ("", False) or not self._patterns.names(table):
                self._passed_over.add(name)
                return
            one = ReplayedLog(directory, self._ordered_by, self._files)
            known = self._logs.get(name)
            place = self._places.get(name) if known is None else known.place()
            if place is not None:
                one.go_to(place)
            one.look()
        except OSError as error:
            raise refused(error, "looking for logs", directory) from error
        except Exhausted:
            raise
        except PenstockError as error:
            self._stop(name, error)
            return
        if known is None:
            # Whether one that stopped can be read on shows when it is read.
            self._stopped.pop(name, None)
        else:
            known.rest()
        self._logs[name] = one


def check(settings: Settings) -> None:
    """Refuse settings of a replay that would not be heeded, or that would read what the agent writes."""
    chosen, directory = settings.replay.directory, settings.agent.directory
    if settings.source.kind is not SourceKind.REPLAY:
        if chosen is not None:
            message = f'logs to replay are named, but source.kind is "{settings.source.kind}"'
            raise InvalidSetting(message, setting="replay.directory")
        return
    if chosen is None:
        raise InvalidSetting("a replay needs the directory of the logs", setting="replay.directory")
    if not chosen.is_dir():
        raise InvalidSetting("no such directory", setting="replay.directory", directory=chosen)
    if os.path.realpath(chosen) == os.path.realpath(directory):
        message = "the logs to replay are those that the agent would write"
        raise InvalidSetting(message, setting="replay.directory", directory=directory)
