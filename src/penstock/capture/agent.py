"""Agent: what runs a source of changes and writes them to the tables' change logs, whatever kind of source it is.

One thread does it all (`Loop`): it reads, makes the changes durable, and then saves its place. A snapshot may run
beside it in its own threads, and appends through the same logs. When the source cannot be read on, `run` raises, and
the status says why. What is opened, and in which order, each kind of agent says in `_open`.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import structlog

from penstock.capture.captured_logs import CapturedLogs
from penstock.capture.column_masks import ColumnMasks
from penstock.capture.repeats import ChangeKeys
from penstock.capture.state_directory import state_directory
from penstock.capture.status import AgentStatus, SnapshotProgress
from penstock.errors import InvalidSetting, PenstockError
from penstock.filters.functions import Functions
from penstock.log import checkpoint
from penstock.log.table_logs import LogSpec, Storage
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableId, TableSchema
from penstock.settings import Settings
from penstock.system.clock import Clock, SystemClock
from penstock.system.files import Files, OsFiles

log = structlog.get_logger()

# All checkpoints are looked at no more often than this.
_LOOK_S = 10.0

_BLOCK_BYTES = 64 << 20

Status = TypeVar("Status", bound=AgentStatus)


class Snapshots(Protocol):
    """First copies of tables, made beside the tail. `run` ends soon after `stop` is set."""

    def run(self, stop: threading.Event) -> None: ...

    def status(self) -> SnapshotProgress: ...


class Loop(Protocol):
    """What reads and appends until it is to stop. `append` may be called from any thread."""

    def run(self) -> None: ...

    def append(self, batches: Iterable[ChangeBatch]) -> None: ...


class Agent(ABC, Generic[Status]):
    """One agent. `run` blocks; `status` and `append` may be called from any thread while it runs."""

    def __init__(
        self,
        settings: Settings,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        functions: Functions | None = None,
        specs: Callable[[TableId], Sequence[LogSpec]] | None = None,
        announce: Callable[[TableSchema], None] | None = None,
        snapshots: Callable[[Any], Snapshots | None] | None = None,
        background: bool = True,
    ) -> None:
        """`specs` are a table's logs, by default one that takes everything; `announce` is told captured tables.

        `background`: places may be saved by a thread of their own; the simulator wants all calls in one.
        """
        self.settings = settings
        self.state_directory = state_directory(settings)
        self.node = settings.agent.node
        self.data_centre = ""
        # Set when the tail has begun, and when it has ended.
        self.begun = threading.Event()
        self._files: Files = files or OsFiles()
        # The state stays closed where the logs are not.
        self._log_files: Files = files or OsFiles(group_read=settings.log.group_read)
        self._clock: Clock = clock or SystemClock()
        self._functions = functions
        self._specs = specs or (lambda _table: (LogSpec(),))
        self._announce = announce
        self._make_snapshots = snapshots
        self._background = background
        self._snapshots: Snapshots | None = None
        self._appender: Loop | None = None
        self._started_us = self._clock.now_us()
        self._running = False
        self._failure: str | None = None
        self._last: Status | None = None
        self._look_again = 0.0
        self._unreadable_found: Mapping[str, int] = {}

    @abstractmethod
    def _open(self, stop: threading.Event, opened: ExitStack) -> Loop:
        """Make everything ready to read on. What was opened is closed with `opened`, in reverse order."""

    @abstractmethod
    def _describe(self) -> Status:
        """The status at this moment, as far as the kind of agent goes."""

    def run(self, stop: threading.Event) -> None:
        """Capture until `stop` is set; everything that was read is durable and the place saved when it returns."""
        try:
            with ExitStack() as opened:
                loop = self._appender = self._open(stop, opened)
                self._start_snapshots(opened)
                self._running = True
                self.begun.set()
                log.info("agent began", node=self.node, data_centre=self.data_centre, directory=self._directory())
                try:
                    loop.run()
                finally:
                    # What is closed now has nothing more to say.
                    self._last = self.status()
            log.info("agent ended", node=self.node)
        except PenstockError as error:
            self._failure = str(error)
            raise
        except BaseException as error:
            self._failure = f"a fault of the agent: {type(error).__name__}"
            raise
        finally:
            self._running = False

    def append(self, batch: ChangeBatch) -> None:
        """Append changes that come from elsewhere, as a snapshot's do. Durable when it returns."""
        assert self._appender is not None, "the agent runs"
        self._appender.append([batch])

    def status(self) -> Status:
        """What the agent does, at this moment."""
        if self._last is not None:
            return replace(self._last, running=self._running, failure=self._failure)
        found = self._describe()
        return replace(
            found,
            running=self._running,
            failure=self._failure,
            snapshot=self._snapshots.status() if self._snapshots is not None else None,
            unreadable_checkpoints=self._unreadable(),
            time_us=self._clock.now_us(),
        )

    def _unreadable(self) -> Mapping[str, int]:
        """Checkpoints of subscriptions that cannot be read; looked for now and then, because it reads all of them."""
        now = self._clock.monotonic()
        if self._running and now >= self._look_again:
            self._look_again = now + _LOOK_S
            with suppress(PenstockError):
                self._unreadable_found = checkpoint.unreadable(self._files, str(self.settings.agent.directory))
        return self._unreadable_found

    # What every kind opens.

    def _open_logs(self, ends: Mapping[str, str] | None, keys: ChangeKeys, masks: ColumnMasks) -> CapturedLogs:
        """The change logs; `ends` are those of the saved place."""
        settings = self.settings
        # One change is one block at least, and a mutation may be as large as half a segment.
        written = settings.log.model_copy(update={"block_bytes_max": max(settings.log.block_bytes_max, _BLOCK_BYTES)})
        return CapturedLogs(
            Storage(self._directory(), written, self._log_files, node=self.node, data_centre=self.data_centre),
            self._specs,
            ends,
            keys,
            functions=self._functions,
            masks=masks,
            open_max=settings.agent.open_logs_max,
        )

    def _announcer(self, masks: ColumnMasks) -> Callable[[TableSchema], None] | None:
        """What is told of each captured table."""
        return None if self._announce is None else partial(_announce, self._announce, masks)

    def _start_snapshots(self, opened: ExitStack) -> None:
        if self._make_snapshots is None:
            return
        snapshots = self._snapshots = self._make_snapshots(self)
        if snapshots is None:
            return
        # It ends with the tail, also when that fails and nobody has asked to stop.
        ending = threading.Event()
        thread = threading.Thread(target=self._run_snapshots, args=(snapshots, ending), name="penstock-snapshot")

        def end() -> None:
            ending.set()
            thread.join()

        opened.callback(end)
        thread.start()

    @staticmethod
    def _run_snapshots(snapshots: Snapshots, stop: threading.Event) -> None:
        try:
            snapshots.run(stop)
        except PenstockError as error:
            # Its own status says so too. The tail goes on: what is written now must not be lost for an old copy.
            log.error("snapshot failed", error=str(error))
        except Exception:
            log.exception("snapshot failed by a fault of its own")

    def _directory(self) -> str:
        directory = str(self.settings.agent.directory)
        if os.path.isfile(directory):
            raise InvalidSetting("agent.directory is a file", file=directory)
        return directory


def _announce(announce: Callable[[TableSchema], None], masks: ColumnMasks, schema: TableSchema) -> None:
    """Tell of a table as its log has it: statements cannot name what is not logged."""
    announce(masks.schema(schema))
