"""SourceAgent: the agent that runs any `Source`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import structlog

from penstock.capture.agent import Agent
from penstock.capture.column_masks import ColumnMasks
from penstock.capture.source import Source
from penstock.capture.source_loop import Parts, SourceLoop
from penstock.capture.source_place import SourcePlace, SourcePlaceFile
from penstock.capture.state_directory import take_lock
from penstock.capture.status import SourceStatus
from penstock.filters.functions import Functions
from penstock.log.table_logs import LogSpec
from penstock.model.schema import TableId, TableSchema
from penstock.settings import Settings
from penstock.system.clock import Clock
from penstock.system.files import Files

log = structlog.get_logger()


class SourceAgent(Agent[SourceStatus]):
    """One agent with its source."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        functions: Functions | None = None,
        specs: Callable[[TableId], Sequence[LogSpec]] | None = None,
        announce: Callable[[TableSchema], None] | None = None,
        background: bool = True,
    ) -> None:
        super().__init__(
            settings,
            files=files,
            clock=clock,
            functions=functions,
            specs=specs,
            announce=announce,
            background=background,
        )
        self._source = source
        self._loop: SourceLoop | None = None

    def _open(self, stop: threading.Event, opened: ExitStack) -> SourceLoop:
        files, directory, source = self._files, self.state_directory, self._source
        opened.callback(take_lock(files, directory).close)
        places = SourcePlaceFile(files, directory, source.kind)
        saved = places.load()
        masks = ColumnMasks(self.settings.agent)
        opened.callback(source.close)
        node, data_centre = source.open(None if saved is None else saved.place)
        known = saved or SourcePlace()
        self.node = self.settings.agent.node or known.node or node or socket.gethostname()
        self.data_centre = known.data_centre or data_centre
        logs = self._open_logs(None if saved is None else saved.logs, source.keys, masks)
        opened.callback(logs.close)
        place = replace(known, node=self.node, data_centre=self.data_centre)
        if place != saved:
            # Before the first change is appended: whoever finds changes and no place cannot tell where to go on.
            places.save(place)
        if place.place is not None:
            log.info("reading on", source=source.kind)
        parts = Parts(source, logs, places, self._announcer(masks))
        self._loop = SourceLoop(self.settings.agent, parts, place, stop, self._clock, background=self._background)
        return self._loop

    def _describe(self) -> SourceStatus:
        base = SourceStatus(self.node, self.data_centre, self._started_us, source=self._source.kind)
        return base if self._loop is None else self._loop.describe(base)
