"""`penstock demo --cassandra`: a real Cassandra node under load, the agent beside it, and the same live view.

The node is a process of its own on a loopback address, made from Cassandra's published jars. The agent runs in a thread
of this process and writes the change logs; subscribers follow them. When the load ends, one last write is made; when
the agent has seen it, all is there, and the folded logs are compared with what the node itself selects.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.capture.cassandra.agent.agent import Agent
from penstock.capture.cassandra.node.connection import Connection, connect
from penstock.cli import output
from penstock.cli.demo_run import (
    CATCH_UP_S,
    PACE,
    VIEW_S,
    Meter,
    Reader,
    finish_readers,
    measure_node,
    measure_readers,
)
from penstock.cli.live_view import Figures, NodeFigures, ReaderFigures
from penstock.errors import PenstockError, ServerFailed
from penstock.log import identity
from penstock.log.names import directory_name
from penstock.sandbox import cassandra_jars
from penstock.sandbox.cassandra_server import CassandraServer
from penstock.sandbox.cassandra_workload import ORDERS, READINGS, TABLES, USERS, Comparison, Load, compare
from penstock.settings import AgentSettings, CassandraSettings, LogSettings, Settings

NODE = "cassandra"
_BATCH = 50
_LOOK_S = 0.05
_READERS = (("billing", ORDERS), ("search", USERS), ("archive", READINGS))
# Small segments, so that one sees them come and go.
_NODE_SETTINGS_SINCE_41 = {"commitlog_segment_size": "8MiB", "cdc_total_space": "512MiB"}
_NODE_SETTINGS_BEFORE = {"commitlog_segment_size_in_mb": 8, "cdc_total_space_in_mb": 512}


@dataclass(frozen=True, slots=True)
class CassandraPlan:
    """What to do. Without `rows` and `seconds` the demo runs until it is stopped."""

    directory: str
    version: str
    seed: int
    rows: int | None = None
    seconds: float | None = None
    # Whether someone looks on: then it is written at a gentle pace, and all that is told goes to the view.
    watched: bool = False
    settings: LogSettings = field(default_factory=LogSettings)


@dataclass(slots=True)
class CassandraOutcome:
    """What came of it."""

    version: str
    figures: Figures
    comparisons: list[Comparison]
    errors: list[PenstockError] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.errors and all(comparison.equal for comparison in self.comparisons)


def run(plan: CassandraPlan, stopped: threading.Event, view: Callable[[Figures], None]) -> CassandraOutcome:
    """Start a node and the agent, write until the plan is fulfilled or `stopped` is set, then compare."""
    figures = Figures(goal=plan.rows, directory=_log(plan))

    def note(text: str) -> None:
        if not plan.watched:
            output.note(text)
            return
        figures.events.append(text)
        view(figures)

    with ExitStack() as opened:
        server = CassandraServer(
            plan.version,
            Path(plan.directory) / NODE,
            cache=cassandra_jars.user_cache(),
            settings=_NODE_SETTINGS_BEFORE
            if cassandra_jars.number_of(plan.version) < (4, 1)
            else _NODE_SETTINGS_SINCE_41,
            note=note,
        )
        opened.enter_context(server)
        settings = _settings(plan, server)
        link = opened.enter_context(connect(settings.cassandra))
        load = Load(link.session, plan.seed)
        running = opened.enter_context(_running(Agent(settings)))
        load.create()
        session = _Session(plan, server, running, load, figures, view)
        session.load(stopped)
        session.catch_up()
        return session.outcome(link)


def _settings(plan: CassandraPlan, server: CassandraServer) -> Settings:
    cassandra = CassandraSettings(
        config_file=server.yaml,
        contact_points=(server.address,),
        port=server.port,
        # Before 4.0 a segment comes to cdc_raw when all in it is in data files too, which may be hours later.
        follow_commitlog=server.number < (4, 0),
        connect_timeout_s=CATCH_UP_S,
    )
    agent = AgentSettings(directory=Path(plan.directory) / "logs", node=NODE)
    return Settings(log=plan.settings, cassandra=cassandra, agent=agent)


def is_log(directory: str) -> bool:
    """Whether a log can be read: its directory is there a moment before what makes it a log."""
    return os.path.exists(f"{directory}/{identity.NAME}")


class _Running:
    """The agent in its thread."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.error: PenstockError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-agent", daemon=True)

    def start(self) -> None:
        self._thread.start()
        deadline = time.monotonic() + CATCH_UP_S
        while not self.agent.begun.wait(_LOOK_S):
            self.check()
            if time.monotonic() > deadline:
                raise ServerFailed("the agent did not begin in time")

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(CATCH_UP_S)

    def _run(self) -> None:
        try:
            self.agent.run(self._stop)
        except PenstockError as error:
            self.error = error


@contextmanager
def _running(agent: Agent) -> Iterator[_Running]:
    running = _Running(agent)
    try:
        running.start()
        yield running
    finally:
        running.stop()


class _Session:
    """The moving parts of one run, and their figures."""

    def __init__(
        self,
        plan: CassandraPlan,
        server: CassandraServer,
        running: _Running,
        load: Load,
        figures: Figures,
        view: Callable[[Figures], None],
    ) -> None:
        self._plan = plan
        self._server = server
        self._running = running
        self._load = load
        self._view = view
        self._logs = {table: _log(plan, directory_name(table)) for table in TABLES}
        self._wait(lambda: all(map(is_log, self._logs.values())), "the first change of each table")
        self._segment: str | None = None
        self._meter = Meter()
        self.figures = figures
        self.figures.nodes = [NodeFigures(NODE, running.agent.data_centre)]
        self.figures.events.append(f"Cassandra {server.version} runs on {server.address}:{server.port}")
        self.readers = [Reader(self._logs[table], name) for name, table in _READERS]
        self.figures.readers = [ReaderFigures(name, str(table), NODE) for name, table in _READERS]

    def load(self, stopped: threading.Event) -> None:
        """Write until the goal is reached, the time is over, or someone stops it."""
        figures, plan = self.figures, self._plan
        goal = plan.rows if plan.rows is not None else 1 << 62
        while figures.written < goal and not stopped.is_set():
            count = min(_BATCH, goal - figures.written)
            self._load.write(count)
            figures.written += count
            self._running.check()
            if self._meter.due:
                self.refresh()
            passed = time.monotonic() - self._meter.begun
            if plan.seconds is not None and passed >= plan.seconds:
                break
            if plan.watched:
                stopped.wait(min(max(0.0, figures.written / PACE - passed), VIEW_S))
        self._load.settle()

    def catch_up(self) -> None:
        """Wait until the agent has seen the last write, then end it and the readers."""
        self.figures.begin(f"the load has ended: {self.figures.written:,} writes")
        self.figures.begin("the agent reads up to the last write")
        self.refresh()
        ages = [shown.lag_ms for shown in self.figures.readers]
        last = self._load.last_write()
        status = self._running.agent.status
        self._wait(lambda: (status().last_write_time_us or 0) >= last, "the last write")
        self._running.stop()
        self._running.check()
        finish_readers(self.figures, self.readers, self.refresh)
        # The last write has a time of its own, which says nothing about its age.
        for shown, age in zip(self.figures.readers, ages, strict=True):
            shown.lag_ms = age

    def outcome(self, link: Connection) -> CassandraOutcome:
        comparisons = []
        for table, directory in self._logs.items():
            self.figures.begin(f"the folded log of {table} is compared with what Cassandra selects")
            self._view(self.figures)
            comparisons.append(compare(link.session, table, directory))
        self.figures.begin("Cassandra ends")
        self._view(self.figures)
        errors = [reader.error for reader in self.readers if reader.error is not None]
        return CassandraOutcome(self._server.version, self.figures, comparisons, errors)

    def refresh(self) -> None:
        """Measure, and show."""
        figures = self.figures
        figures.acknowledged, figures.refused = self._load.acknowledged, self._load.refused
        passed = self._meter.tick(figures)
        (node,) = figures.nodes
        measure_node(node, self._logs.values(), passed)
        node.up = self._server.running
        measure_readers(figures, self.readers, passed)
        status = self._running.agent.status()
        if status.segment != self._segment:
            self._segment = status.segment
            figures.events.append(f"reading {status.segment}; cdc_raw holds {output.size(status.cdc_raw_bytes)}")
        self._view(figures)

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + CATCH_UP_S
        while not ready():
            self._running.check()
            if time.monotonic() > deadline:
                raise ServerFailed(f"{what} did not reach the change logs within {CATCH_UP_S:.0f} s")
            time.sleep(_LOOK_S)


def _log(plan: CassandraPlan, *parts: str) -> str:
    return os.path.join(plan.directory, "logs", *parts)


def print_outcome(outcome: CassandraOutcome, kept: str | None) -> None:
    """The outcome for people."""
    figures = outcome.figures
    output.line(
        f"{output.count(figures.acknowledged, 'write')} acknowledged by Cassandra {outcome.version}, "
        f"{figures.refused:,} refused, in {figures.elapsed_s:.1f} s"
    )
    output.line("")
    headers = ("table", "changes logged", "rows", "only in Cassandra", "only in the log")
    output.table(headers, ((str(c.table), c.changes, c.rows, c.missing, c.invented) for c in outcome.comparisons))
    output.line("")
    readers = ("subscription", "table", "changes read", "behind", "age on arrival")
    output.table(readers, ((r.name, r.table, r.changes, r.behind, f"{r.lag_ms:.1f} ms") for r in figures.readers))
    output.line("")
    rows = sum(comparison.rows for comparison in outcome.comparisons)
    if all(comparison.equal for comparison in outcome.comparisons):
        output.line(f"Checked: the logs, folded, give exactly the {rows:,} rows that Cassandra selects.")
    else:
        output.line("DIFFERENT: the folded logs are not what Cassandra selects.")
    if kept is not None:
        logs = os.path.join(kept, "logs")
        output.line(f"\nThe logs are in {logs}, the node's files in {os.path.join(kept, NODE)}. Look into them:")
        output.line(f"  penstock log ls {logs}")
        output.line(f"  penstock log tail -n 3 {os.path.join(logs, directory_name(ORDERS))}")
    for error in outcome.errors:
        output.report(error)


def summary(outcome: CassandraOutcome) -> dict[str, object]:
    """The outcome as `penstock demo --cassandra --json` prints it."""
    figures = outcome.figures
    return {
        "sound": outcome.sound,
        "version": outcome.version,
        "acknowledged": figures.acknowledged,
        "refused": figures.refused,
        "seconds": round(figures.elapsed_s, 3),
        "directory": figures.directory,
        "tables": [
            {
                "table": str(comparison.table),
                "changes": comparison.changes,
                "rows": comparison.rows,
                "missing": comparison.missing,
                "invented": comparison.invented,
            }
            for comparison in outcome.comparisons
        ],
        "subscriptions": [
            {"name": reader.name, "table": reader.table, "changes": reader.changes, "behind": reader.behind}
            for reader in figures.readers
        ],
        "errors": [str(error) for error in outcome.errors],
    }
