"""Agent: runs beside a Cassandra node and writes every change of its commit log to the tables' change logs.

One thread does it all: it reads what is new (`tail`), decodes it, makes the changes durable (`captured_logs`), and then
saves its place. Nothing is ever handed on, and no segment let go, before the changes in it are durable; and nothing is
appended twice, also not after a crash at any moment (`repeats`). A snapshot may run beside it in its own threads, and
appends through the same logs. When the tail cannot go on, `run` raises, and the status says why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import structlog

from penstock.capture import agent as general
from penstock.capture.agent import Snapshots
from penstock.capture.cassandra.agent import beginning, transfer
from penstock.capture.cassandra.agent.capture_choice import CaptureChoice
from penstock.capture.cassandra.agent.capture_loop import CaptureLoop, Parts
from penstock.capture.cassandra.agent.directory import SegmentDirectory
from penstock.capture.cassandra.agent.failed_segments import FailedSegments
from penstock.capture.cassandra.agent.node_link import NodeLink
from penstock.capture.cassandra.agent.parked_entries import ParkedEntries
from penstock.capture.cassandra.agent.place import FinishedSegments, PlaceFile
from penstock.capture.cassandra.agent.segment_keys import SegmentKeys
from penstock.capture.cassandra.agent.status import CassandraStatus
from penstock.capture.cassandra.agent.tail import Tail
from penstock.capture.cassandra.node.connection import Connection, connect
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.column_masks import ColumnMasks
from penstock.capture.state_directory import take_lock
from penstock.filters.functions import Functions
from penstock.log.table_logs import LogSpec
from penstock.model.schema import TableId, TableSchema
from penstock.settings import Settings
from penstock.system.clock import Clock
from penstock.system.files import Files

log = structlog.get_logger()


class Agent(general.Agent[CassandraStatus]):
    """One agent beside a node. `tables` may be called from any thread while it runs."""

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
        super().__init__(
            settings,
            files=files,
            clock=clock,
            functions=functions,
            specs=specs,
            announce=announce,
            snapshots=snapshots,
            background=background,
        )
        self.data_centre = settings.cassandra.data_centre
        self._connect = connect
        self._loop: CaptureLoop | None = None
        self._link: NodeLink | None = None

    def tables(self) -> list[CassandraTable]:
        """The captured tables, as they are defined now."""
        return list(self._loop.tables) if self._loop is not None else []

    def captures(self, table: CassandraTable) -> bool:
        """Whether changes of this table are captured here."""
        return self._choice().captures(table)

    def connection(self) -> Connection:
        """A new CQL connection to the node."""
        return self._connector()()

    def _describe(self) -> CassandraStatus:
        queryable = self._link.reachable if self._link is not None else None
        base = CassandraStatus(self.node, self.data_centre, self._started_us, queryable=queryable)
        return base if self._loop is None else self._loop.describe(base)

    # Beginning.

    def _open(self, stop: threading.Event, opened: ExitStack) -> CaptureLoop:
        files, directory = self._files, self.state_directory
        cassandra, node, yaml = beginning.node_facts(self.settings.cassandra)
        self.settings = settings = self.settings.model_copy(update={"cassandra": cassandra})
        mover = transfer.choose(settings.agent)
        keys = beginning.open_keys(cassandra, yaml)
        opened.callback(take_lock(files, directory).close)
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
        logs = self._open_logs(place.logs if place is not None else None, SegmentKeys(), masks)
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
        announce = self._announcer(masks)
        self._loop = CaptureLoop(settings.agent, parts, place, stop, self._clock, announce, background=self._background)
        return self._loop

    def _open_masks(self, schemas: Schemas) -> ColumnMasks:
        """What is left out and hidden. Settings that do not suit a table are refused before anything is logged."""
        masks, choice = ColumnMasks(self.settings.agent), self._choice()
        for table in filter(choice.captures, schemas.tables()):
            masks.schema(table.schema)
        return masks

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

    def _choice(self) -> CaptureChoice:
        return CaptureChoice(self.settings.cassandra, self.data_centre)

    def _connector(self) -> Callable[[], Connection]:
        return self._connect or partial(connect, self.settings.cassandra)
