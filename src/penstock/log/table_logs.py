"""TableLogs: all change logs of one table on this node.

A table has its default log (CREATE TABLE … WITH CDC LOG) and any number of named ones, each with its filter and its
data centres. An append is durable in every log that wants the changes, or it fails, and with it the write that it
stands for. Changes that a filter could not judge are parked in a log beside their own, with the same durability.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, NoReturn, Self

import structlog

from penstock.errors import InvalidInput, InvalidStatement, LogClosed, PenstockError
from penstock.filters.filter import Filter, Filtered
from penstock.filters.functions import Functions
from penstock.log.names import directory_name
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.model.position import Position
from penstock.model.predicate import Predicate
from penstock.model.schema import TableSchema
from penstock.settings import LogSettings
from penstock.system.files import Files
from penstock.system.timing import Timing

log = structlog.get_logger()

# The default log's name in what `append` returns; no named log can have it.
DEFAULT = ""


@dataclass(frozen=True, slots=True)
class LogSpec:
    """What one log takes. No predicate: every change; no data centres: every node."""

    name: str = DEFAULT
    predicate: Predicate | None = None
    data_centres: frozenset[str] = frozenset()

    def includes(self, data_centre: str) -> bool:
        """Whether nodes of the data centre write this log."""
        return not self.data_centres or data_centre in self.data_centres


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a node keeps its logs, and how they are written."""

    root: str
    settings: LogSettings | None = None
    files: Files | None = None
    entropy: Callable[[int], bytes] = os.urandom
    node: str = ""
    data_centre: str = ""
    # Counts how long the disk takes to sync.
    sync_timing: Timing | None = None

    def open(self, schema: TableSchema, name: str, *, parked: bool = False) -> TableLog:
        """Open one log of a table for writing."""
        return self.open_at(os.path.join(self.root, directory_name(schema.table, name or None, parked=parked)), schema)

    def open_at(self, directory: str, schema: TableSchema) -> TableLog:
        """Open the log in this directory for writing."""
        return TableLog.open(
            directory,
            schema,
            settings=self.settings,
            files=self.files,
            entropy=self.entropy,
            node=self.node,
            data_centre=self.data_centre,
            sync_timing=self.sync_timing,
        )


class Counts(NamedTuple):
    """Changes since the logs were opened; an append that failed and was repeated counts twice."""

    kept: int = 0
    dropped: int = 0
    parked: int = 0


class _OneLog:
    """One log with its filter, and the log of what was parked once there is any."""

    def __init__(self, storage: Storage, schema: TableSchema, spec: LogSpec, functions: Functions) -> None:
        self.spec = spec
        self.counts = Counts()
        # Set before the log is closed: an append that is under way then no longer has to reach it.
        self.removed = False
        self._storage = storage
        self._functions = functions
        self._mutex = threading.Lock()
        self._filters: dict[str, Filter | None] = {}
        # A predicate that cannot work must not leave a directory behind.
        if spec.predicate is not None:
            self._filters[schema.fingerprint] = Filter(spec.predicate, schema, functions, name=spec.name)
        self._log = storage.open(schema, spec.name)
        self._parked: TableLog | None = None

    def divide(self, batch: ChangeBatch) -> Filtered:
        """What of the batch this log takes, and what it must park."""
        if self.spec.predicate is None:
            result = Filtered(batch, None, 0)
        else:
            chosen = self._filter(self.spec.predicate, batch.schema)
            result = Filtered(None, batch, 0) if chosen is None else chosen.apply(batch)
        with self._mutex:
            kept = len(result.kept) if result.kept is not None else 0
            parked = len(result.parked) if result.parked is not None else 0
            old = self.counts
            self.counts = Counts(old.kept + kept, old.dropped + result.dropped, old.parked + parked)
        return result

    def targets(self, batch: ChangeBatch) -> list[_Target]:
        """Where parts of the batch must go because of this log."""
        kept, parked, _ = self.divide(batch)
        out = [] if kept is None else [_Target(self, kept, parked=False)]
        return out if parked is None else [*out, _Target(self, parked, parked=True)]

    def log(self) -> TableLog:
        return self._log

    def parked_log(self, schema: TableSchema) -> TableLog:
        """The log of parked changes; it comes into being with the first of them."""
        with self._mutex:
            if self.removed:
                raise LogClosed("the log was removed", table=schema.table, log=self.spec.name)
            if self._parked is None:
                self._parked = self._storage.open(schema, self.spec.name, parked=True)
            return self._parked

    def seal(self) -> None:
        with self._mutex:
            parked = self._parked
        self._log.seal()
        if parked is not None:
            parked.seal()

    def close(self) -> None:
        with self._mutex:
            self.removed = True
            parked = self._parked
        self._log.close()
        if parked is not None:
            parked.close()

    def _filter(self, predicate: Predicate, schema: TableSchema) -> Filter | None:
        """The filter for this version of the schema; None when the predicate does not fit it any more."""
        key = schema.fingerprint
        if key not in self._filters:
            made: Filter | None = None
            try:
                made = Filter(predicate, schema, self._functions, name=self.spec.name)
            except InvalidStatement as error:
                # The table changed under the log. Guessing would lose changes, so they wait until someone decides.
                reason = error.message
                log.error("filter does not fit the schema", table=str(schema.table), log=self.spec.name, reason=reason)
            self._filters[key] = made
        return self._filters[key]


@dataclass(frozen=True, slots=True)
class _Target:
    """A part of a batch and the log it must go to."""

    one: _OneLog
    part: ChangeBatch
    parked: bool

    def append(self) -> Position:
        return self._log().append(self.part)

    def submit(self) -> Callable[[], Position]:
        """Begin the append; what comes back waits for it. It does not raise, so that every log gets its part."""
        try:
            return self._log().submit(self.part).wait
        except PenstockError as error:
            return partial(_raise, error)

    def _log(self) -> TableLog:
        return self.one.parked_log(self.part.schema) if self.parked else self.one.log()


def _raise(error: PenstockError) -> NoReturn:
    raise error


class TableLogs:
    """The open logs of one table. May be used from many threads."""

    def __init__(
        self, storage: Storage, schema: TableSchema, specs: Iterable[LogSpec], functions: Functions | None = None
    ) -> None:
        """Open the logs. A log whose data centres do not include this node's is left out, without a trace on disk."""
        self.schema = schema
        self._storage = storage
        self._functions = functions or Functions()
        self._mutex = threading.Lock()
        self._closed = False
        # Replaced as a whole, never changed, so that appends need no lock.
        self._logs: dict[str, _OneLog] = {}
        try:
            for spec in specs:
                self.add(spec)
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """The logs that this node writes."""
        return tuple(self._logs)

    def counts(self) -> dict[str, Counts]:
        """What each log kept, dropped and parked."""
        return {name: one.counts for name, one in self._logs.items()}

    def log(self, name: str = DEFAULT) -> TableLog:
        """The writer of one log."""
        try:
            return self._logs[name].log()
        except KeyError:
            raise InvalidInput(f"this node writes no log {name!r}", table=self.schema.table) from None

    def add(self, spec: LogSpec) -> bool:
        """Begin to write a log; False when this node has no part in it."""
        with self._mutex:
            self._check_open()
            if spec.name in self._logs:
                raise InvalidInput(f"log {spec.name!r} is open already", table=self.schema.table)
            if not spec.includes(self._storage.data_centre):
                return False
            one = _OneLog(self._storage, self.schema, spec, self._functions)
            self._logs = {**self._logs, spec.name: one}
            return True

    def remove(self, name: str) -> bool:
        """Stop writing a log, and leave its files; False when this node does not write it."""
        with self._mutex:
            remaining = dict(self._logs)
            one = remaining.pop(name, None)
            self._logs = remaining
        if one is None:
            return False
        one.close()
        return True

    def append(self, batch: ChangeBatch) -> dict[str, Position]:
        """Append to every log that takes any of the changes; returns when all of it is durable.

        The result has the position of the last change in each log that took some. If one log fails the call raises, and
        the changes may still stand in others: write them again, and subscribers see them twice, but never not at all.
        """
        targets = self._targets(batch)
        # With a single log this thread can do the commit itself.
        waits = [targets[0].append] if len(targets) == 1 else [target.submit() for target in targets]
        return self._wait(targets, waits)

    def submit(self, batch: ChangeBatch) -> Callable[[], dict[str, Position]]:
        """Begin an append in every log that takes any of the changes. What comes back waits, and answers as `append`.

        It must be called, also when the caller has given up: until then something may be under way.
        """
        targets = self._targets(batch)
        return partial(self._wait, targets, [target.submit() for target in targets])

    def _targets(self, batch: ChangeBatch) -> list[_Target]:
        self._check_open()
        return [target for one in self._logs.values() for target in one.targets(batch)]

    def _wait(self, targets: Sequence[_Target], waits: Sequence[Callable[[], Position]]) -> dict[str, Position]:
        positions: dict[str, Position] = {}
        failure: PenstockError | None = None
        # Every log is waited for, also when one has failed: nothing may be under way afterwards.
        for target, wait in zip(targets, waits, strict=True):
            try:
                position = wait()
            except PenstockError as error:
                if not (target.one.removed and isinstance(error, LogClosed)) or self._closed:
                    failure = failure or error
                continue
            if not target.parked:
                positions[target.one.spec.name] = position
        if failure is not None:
            raise failure
        return positions

    def seal(self) -> None:
        """Let every log, and what is parked of it, end its current file."""
        for one in self._logs.values():
            one.seal()

    def close(self) -> None:
        """Close every log; closing twice is no error."""
        with self._mutex:
            self._closed = True
            logs, self._logs = self._logs, {}
        for one in logs.values():
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed("the table's logs are closed", table=self.schema.table)
