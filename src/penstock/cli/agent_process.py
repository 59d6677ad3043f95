"""One agent as a process: signals, the HTTP endpoints, the listener, and the catalog around it.

The tail runs in a thread, because a signal handler of the main thread must not wait for a lock that the thread it
interrupted holds. The first SIGTERM or SIGINT ends the agent in good order; a second SIGINT ends the process at once.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from penstock.capture.agent import Agent, Snapshots
from penstock.capture.cassandra.snapshot.snapshotter import snapshot_directory
from penstock.capture.replay.source import ReplaySource
from penstock.capture.replay.source import check as check_replay
from penstock.capture.source_agent import SourceAgent
from penstock.capture.state_directory import state_directory
from penstock.capture.status import AgentStatus
from penstock.control.execute import log_specs
from penstock.filters.functions import Functions
from penstock.log import snapshot_requests
from penstock.log.catalog import Catalog
from penstock.log.survey import Survey
from penstock.log.table_logs import LogSpec
from penstock.log.upkeep import Upkeep
from penstock.model.schema import TableId, TableSchema
from penstock.serve.http import HttpServer
from penstock.serve.listener import Listener
from penstock.serve.log_blocks import LogBlocks
from penstock.serve.tally import Tally
from penstock.settings import Settings, Share, SourceKind
from penstock.system import umask
from penstock.system.clock import SystemClock
from penstock.system.files import OsFiles

if TYPE_CHECKING:
    from penstock.capture.cassandra.agent.agent import Agent as CassandraAgent

log = structlog.get_logger()

_LOOK_S = 0.1


class AgentProcess:
    """The agent and all that goes with it in one process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._signals: list[int] = []
        self._error: BaseException | None = None

    def run(self, began: Callable[[dict[str, object]], None]) -> Agent[Any]:
        """Run until a signal comes or the agent fails; `began` is told the facts once the tail runs."""
        settings = self._settings
        check_replay(settings)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note_signal)
        if settings.log.group_read:
            umask.open_to_group()
            # The catalog, which is for nobody else, would make it closed.
            OsFiles(group_read=True).make_directory(str(settings.agent.directory))
        with ExitStack() as opened:
            catalog = opened.enter_context(Catalog.open(str(settings.agent.directory)))
            logs = CatalogLogs(catalog)
            agent = make_agent(settings, logs)
            # One thread looks after all logs, whoever reads them: commits of clients delete nothing here.
            upkeep = Upkeep(str(settings.agent.directory), settings.retention)
            survey = Survey(str(settings.agent.directory))
            tally = Tally("listener")
            listener = ListenerThread(settings, tally) if settings.agent.listen else None

            def status() -> AgentStatus:
                clients = None if listener is None else listener.clients
                found: AgentStatus = agent.status()
                return replace(found, logs=survey.look(), lost_changes=upkeep.lost, listener_clients=clients)

            facts: dict[str, object] = {}
            if settings.http.enabled:
                blocks = LogBlocks(str(settings.agent.directory), ask_snapshot=snapshot_asker(settings), upkeep=upkeep)
                facts["http"] = opened.enter_context(HttpServer(settings.http, status, blocks, [tally])).address
            thread = threading.Thread(target=self._run_agent, args=(agent,), name="penstock-agent", daemon=True)
            thread.start()
            while thread.is_alive() and not agent.begun.is_set() and not self._signals:
                agent.begun.wait(_LOOK_S)
            if agent.begun.is_set() and self._error is None:
                opened.enter_context(upkeep.running())
                if listener is not None:
                    facts["listener"] = opened.enter_context(listener).address
                began({"node": agent.node, "data_centre": agent.data_centre, **facts})
            while thread.is_alive():
                thread.join(_LOOK_S)
                if self._signals and not self._stop.is_set():
                    self._stop.set()
                    log.info("agent ends; what was read is made durable", signal=self._signals[0])
        if self._error is not None:
            raise self._error
        return agent

    def _run_agent(self, agent: Agent[Any]) -> None:
        try:
            agent.run(self._stop)
        except BaseException as error:  # noqa: BLE001
            # It is raised where the process can end with it.
            self._error = error

    def _note_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT and self._signals:
            raise KeyboardInterrupt
        self._signals.append(number)


def make_agent(settings: Settings, logs: CatalogLogs) -> Agent[Any]:
    """The agent of the settings' kind of source."""
    functions = Functions.load(settings.functions)
    if settings.source.kind is SourceKind.REPLAY:
        source = ReplaySource(settings.replay)
        return SourceAgent(settings, source, functions=functions, specs=logs.specs, announce=logs.announce)
    from penstock.capture.cassandra.agent.agent import Agent as CassandraAgent

    return CassandraAgent(
        settings, functions=functions, specs=logs.specs, announce=logs.announce, snapshots=make_snapshots
    )


class CatalogLogs:
    """The logs of tables as the catalog has them; a table that it does not describe has its default log."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def specs(self, table: TableId) -> Sequence[LogSpec]:
        """The logs of one table."""
        if self._catalog.table(table) is None:
            return [LogSpec()]
        # A table whose changes the node logs is never without a log, or they would be lost in silence.
        return log_specs(self._catalog, table) or [LogSpec()]

    def announce(self, schema: TableSchema) -> None:
        """Note a captured table, so that statements can name it."""
        if not self._catalog.add_table(schema, cdc=True):
            self._catalog.set_schema(schema)


class ListenerThread:
    """The listener with an event loop of its own."""

    def __init__(self, settings: Settings, tally: Tally) -> None:
        self.address = ""
        self._settings = settings
        self._tally = tally
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-listener", daemon=True)

    @property
    def clients(self) -> int:
        """How many clients are connected now."""
        return 0 if self._listener is None else self._listener.clients

    def __enter__(self) -> ListenerThread:
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._ended is not None:
            # The loop may have ended by itself.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._listen())
        except BaseException as error:  # noqa: BLE001
            self._error = error
        finally:
            self._ready.set()

    async def _listen(self) -> None:
        settings = self._settings
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        listener = Listener(str(settings.agent.directory), settings.listener, tally=self._tally)
        async with listener:
            self._listener, self.address = listener, listener.address
            self._ready.set()
            await self._ended.wait()


def snapshot_asker(settings: Settings) -> Callable[[TableId], None] | None:
    """What has a table copied again; None when this agent copies none."""
    if not _copies(settings):
        return None
    directory = snapshot_directory(state_directory(settings))
    return lambda table: snapshot_requests.request(OsFiles(), directory, table, SystemClock().now_us())


def _copies(settings: Settings) -> bool:
    of_node = settings.source.kind is SourceKind.CASSANDRA and bool(settings.cassandra.contact_points)
    return of_node and settings.snapshot.share is not Share.NONE


def make_snapshots(agent: CassandraAgent) -> Snapshots | None:
    """What copies tables beside the tail; None when there is no node to ask, or nothing is wanted."""
    settings = agent.settings
    if not _copies(settings):
        return None
    from penstock.capture.cassandra.snapshot.snapshotter import Snapshotter

    return Snapshotter(
        agent.connection,
        agent.append,
        agent.state_directory,
        settings.snapshot,
        captures=agent.captures,
        node=settings.cassandra.contact_points[0],
    )
