"""Agent: runs beside a Cassandra node and writes every change of its commit log to the tables' change logs.

One thread does it all: it reads what is new (`tail`), decodes it, makes the changes durable (`captured_logs`), and then
saves its place. Nothing is ever handed on, and no segment let go, before the changes in it are durable; and nothing is
appended twice, also not after a crash at any moment (`repeats`). A snapshot may run beside it in its own threads, and
appends through the same logs. When the tail cannot go on, `run` raises, and the status says why.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

import structlog

from penstock.capture.cassandra.agent import beginning, transfer
from penstock.capture.cassandra.agent.capture_choice import CaptureChoice
from penstock.capture.cassandra.agent.capture_loop import CaptureLoop, Parts
from penstock.capture.cassandra.agent.captured_logs import CapturedLogs
from penstock.capture.cassandra.agent.column_masks import ColumnMasks
from penstock.capture.cassandra.agent.directory import SegmentDirectory
from penstock.capture.cassandra.agent.failed_segments import FailedSegments
from penstock.capture.cassandra.agent.node_link import NodeLink
from penstock.capture.cassandra.agent.parked_entries import ParkedEntries
from penstock.capture.cassandra.agent.place import FinishedSegments, Place, PlaceFile
from penstock.capture.cassandra.agent.status import AgentStatus, SnapshotProgress
from penstock.capture.cassandra.agent.tail import Tail
from penstock.capture.cassandra.node.connection import Connection, connect
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable
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


class Snapshots(Protocol):
    """First copies of tables, made beside the tail. `run` ends soon after `stop` is set."""

    def run(self, stop: threading.Event) -> None: ...

    def status(self) -> SnapshotProgress: ...


class Agent:
    """One agent. `run` blocks; `status`, `append` and `tables` may be called from any thread while it runs."""

    def __init__(
        self,
        settings: Settings,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        connect: Callable[[], Connection] | None = None,
        functions: Functions | None = None,
        specs: Callable[[TableId], Sequence[LogSpec]] | None = None,
        announce: Callable[[TableSchema], None] | None = None,
        snapshots: Callable[[Agent], Snapshots | None] | None = None,
        background: bool = True,
    ) -> None:
        """`specs` are a table's logs, by default one that takes everything; `announce` is told captured tables.

        `background`: places may be saved by a thread of their own; the simulator wants all calls in one.
        """
        self.settings = settings
        self.state_directory = beginning.state_directory(settings)
        self.node = settings.agent.node
        self.data_centre = settings.cassandra.data_centre
        # Set when the tail has begun, and when it has ended.
        self.begun = threading.Event()
        self._files: Files = files or OsFiles()
        # The state stays closed where the logs are not.
        self._log_files: Files = files or OsFiles(group_read=settings.log.group_read)
        self._clock: Clock = clock or SystemClock()
        self._connect = connect
        self._functions = functions
        self._specs = specs or (lambda _table: (LogSpec(),))
        self._announce = announce
        self._make_snapshots = snapshots
        self._background = background
        self._snapshots: Snapshots | None = None
        self._loop: CaptureLoop | None = None
        self._link: NodeLink | None = None
        self._started_us = self._clock.now_us()
        self._running = False
        self._failure: str | None = None
        self._last: AgentStatus | None = None
        self._look_again = 0.0
        self._unreadable_found: Mapping[str, int] = {}

    def run(self, stop: threading.Event) -> None:
        """Capture until `stop` is set; everything that was read is durable and the place saved when it returns."""
        try:
            with ExitStack() as opened:
                loop = self._open(stop, opened)
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
        assert self._loop is not None, "the agent runs"
        self._loop.append([batch])

    def tables(self) -> list[CassandraTable]:
        """The captured tables, as they are defined now."""
        return list(self._loop.tables) if self._loop is not None else []

    def captures(self, table: CassandraTable) -> bool:
        """Whether changes of this table are captured here."""
        return self._choice().captures(table)

    def connection(self) -> Connection:
        """A new CQL connection to the node."""
        return self._connector()()

    def status(self) -> AgentStatus:
        """What the agent does, at this moment."""
        if self._last is not None:
            return replace(self._last, running=self._running, failure=self._failure)
        base = AgentStatus(
            self.node,
            self.data_centre,
            self._started_us,
            running=self._running,
            failure=self._failure,
            queryable=self._link.reachable if self._link is not None else None,
            snapshot=self._snapshots.status() if self._snapshots is not None else None,
            unreadable_checkpoints=self._unreadable(),
            time_us=self._clock.now_us(),
        )
        return base if self._loop is None else self._loop.describe(base)

    def _unreadable(self) -> Mapping[str, int]:
        """Checkpoints of subscriptions that cannot be read; looked for now and then, because it reads all of them."""
        now = self._clock.monotonic()
        if self._running and now >= self._look_again:
            self._look_again = now + _LOOK_S
            with suppress(PenstockError):
                self._unreadable_found = checkpoint.unreadable(self._files, str(self.settings.agent.directory))
        return self._unreadable_found

    # Beginning.

    def _open(self, stop: threading.Event, opened: ExitStack) -> CaptureLoop:
        """Make everything ready to read on. What was opened is closed with `opened`, in reverse order."""
        files, directory = self._files, self.state_directory
        cassandra, node, yaml = beginning.node_facts(self.settings.cassandra)
        self.settings = settings = self.settings.model_copy(update={"cassandra": cassandra})
        mover = transfer.choose(settings.agent)
        keys = beginning.open_keys(cassandra, yaml)
        opened.callback(beginning.take_lock(files, directory).close)
        connector = self._connector()
        places = PlaceFile(files, directory)
        saved = places.load()
        place, schemas = saved or (None, beginning.first_schemas(cassandra, connector, stop))
        beginning.know_truncations(schemas, cassandra, connector, stop)
        name = beginning.node_name(files, directory, settings, connector, stop)
        self.node, self.data_centre = name.node, name.data_centre
        if place is not None:
            log.info("reading on", segment=place.file, position=place.position)
        parked = ParkedEntries(files, directory, bytes_max=settings.agent.parked_bytes_max)
        opened.callback(parked.close)
        parked.open(place.unparked if place is not None else {})
        masks = self._open_masks(schemas)
        logs = self._open_logs(place, masks)
        opened.callback(logs.close)
        finished = FinishedSegments(place)
        tail = Tail(
            SegmentDirectory(node.cdc_raw, node.commitlog if cassandra.follow_commitlog else None),
            finished,
            self._clock,
            mode=settings.agent.tail,
            keys=keys,
            start=None if place is None else (place.segment, place.position),
            scan_s=settings.agent.scan_s,
        )
        opened.callback(tail.close)
        parts = Parts(
            tail=tail,
            schemas=schemas,
            choice=self._choice(),
            parked=parked,
            logs=logs,
            places=places,
            finished=finished,
            failed=self._open_failed(),
            transfer=mover,
            link=self._open_link(opened),
            space_bytes_max=node.cdc_total_space_bytes,
            keys=keys,
        )
        announce = None if self._announce is None else partial(_announce, self._announce, masks)
        self._loop = CaptureLoop(settings.agent, parts, place, stop, self._clock, announce, background=self._background)
        return self._loop

    def _open_masks(self, schemas: Schemas) -> ColumnMasks:
        """What is left out and hidden. Settings that do not suit a table are refused before anything is logged."""
        masks, choice = ColumnMasks(self.settings.agent), self._choice()
        for table in filter(choice.captures, schemas.tables()):
            masks.schema(table.schema)
        return masks

    def _open_logs(self, place: Place | None, masks: ColumnMasks) -> CapturedLogs:
        settings = self.settings
        # One change is one block at least, and a mutation may be as large as half a segment.
        written = settings.log.model_copy(update={"block_bytes_max": max(settings.log.block_bytes_max, _BLOCK_BYTES)})
        return CapturedLogs(
            Storage(self._directory(), written, self._log_files, node=self.node, data_centre=self.data_centre),
            self._specs,
            place.logs if place is not None else None,
            functions=self._functions,
            masks=masks,
            open_max=settings.agent.open_logs_max,
        )

    def _open_failed(self) -> FailedSegments:
        failed = FailedSegments(self._files, self.state_directory)
        if self.settings.agent.reprocess_errors:
            for segment in failed.all():
                failed.request(segment.name)
        return failed

    def _open_link(self, opened: ExitStack) -> NodeLink:
        cassandra = self.settings.cassandra
        addresses = tuple((address, cassandra.port) for address in cassandra.contact_points)
        self._link = NodeLink(self._connector(), addresses, refresh_s=self.settings.agent.schema_refresh_s)
        opened.callback(self._link.stop)
        self._link.start()
        return self._link

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

    def _choice(self) -> CaptureChoice:
        return CaptureChoice(self.settings.cassandra, self.data_centre)

    def _connector(self) -> Callable[[], Connection]:
        return self._connect or partial(connect, self.settings.cassandra)

    def _directory(self) -> str:
        directory = str(self.settings.agent.directory)
        if os.path.isfile(directory):
            raise InvalidSetting("agent.directory is a file", file=directory)
        return directory


def _announce(announce: Callable[[TableSchema], None], masks: ColumnMasks, schema: TableSchema) -> None:
    """Tell of a table as its log has it: statements cannot name what is not logged."""
    announce(masks.schema(schema))
