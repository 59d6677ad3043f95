"""One run of the demo: a cluster under load, its faults, its readers, and the proof at the end.

The cluster runs in the caller's thread, because the sandbox has no threads; each reader has one of its own and follows
a node's log as any other program would. When the load ends, every node is brought back, hints are delivered, readers
catch up, and then the logs are searched for every write that a client was told is safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.cli.live_view import Figures, NodeFigures, ReaderFigures
from penstock.errors import PenstockError, Unavailable
from penstock.formats import avro
from penstock.log import recent
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.model.batch import ChangeBatch
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.sandbox.checker import LogPlace, Verdict, check
from penstock.sandbox.cluster import Cluster
from penstock.sandbox.consistency import Consistency
from penstock.sandbox.history import History
from penstock.sandbox.node_log import log_directory
from penstock.sandbox.workload import ORDERS, READINGS, TABLES, USERS, Workload
from penstock.settings import LogSettings
from penstock.system.clock import SystemClock
from penstock.system.files import OsFiles

if TYPE_CHECKING:
    from penstock.cli.demo_lake import Lake, LakeOutcome

# A demo that nobody stops ends by itself here; what was acknowledged is remembered, to be looked for at the end.
WRITES_MAX = 1_000_000
_BATCH = 100
# Writes per second while someone watches: lively, and gentle to a laptop.
PACE = 1500
VIEW_S = 0.25
_COMMIT_S = 0.25
_VISIT_S = 2.0
CATCH_UP_S = 30.0
_SETTLE_US = 100_000
_TIMEOUT_US = 1_000_000
# Crash a node after so many writes, bring it back after so many more.
_CRASH_AFTER = 8_000
_DOWN_FOR = 3_000
# A node reads its whole log at restart, so only young nodes are crashed.
_CRASH_CHANGES_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. Without `rows` the demo runs until it is stopped."""

    directory: str
    nodes: Mapping[str, int]
    seed: int
    rows: int | None = None
    paced: bool = False
    settings: LogSettings = field(default_factory=LogSettings)
    # Whether a pipeline on Spark carries the changes on into Delta tables.
    spark: bool = False


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    figures: Figures
    verdict: Verdict
    crashes: int
    errors: list[PenstockError] = field(default_factory=list)
    lake: LakeOutcome | None = None

    @property
    def sound(self) -> bool:
        return self.verdict.sound and not self.errors and (self.lake is None or self.lake.sound)


class Reader:
    """A subscriber in its own thread. A lazy one only looks now and then, and holds nobody up."""

    def __init__(self, directory: str, name: str, *, lazy: bool = False) -> None:
        self.name = name
        self.directory = directory
        self.changes = 0
        self.lag_ms = 0.0
        self.position = Position(0, 0, 0)
        self.error: PenstockError | None = None
        self._lazy = lazy
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"demo-{name}", daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float) -> bool:
        """Read what is there, commit, and end; whether it has ended by then."""
        self._finishing.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with Subscription.open(self.directory, self.name) as subscription:
                self.position = subscription.position
                if self._lazy:
                    self._visit(subscription)
                else:
                    self._follow(subscription)
        except PenstockError as error:
            self.error = error

    def _follow(self, subscription: Subscription) -> None:
        committed_at = 0.0
        while True:
            ending = self._finishing.is_set()
            batch = subscription.next(0.05 if ending else 0.2)
            if batch is not None:
                self._take(batch)
            if batch is None or time.monotonic() - committed_at > _COMMIT_S:
                subscription.commit(self.position)
                committed_at = time.monotonic()
            if batch is None and ending:
                return

    def _visit(self, subscription: Subscription) -> None:
        while True:
            ending = self._finishing.is_set()
            for batch in subscription.batches():
                self._take(batch)
            subscription.commit(self.position)
            if ending:
                return
            self._finishing.wait(_VISIT_S)

    def _take(self, batch: ChangeBatch) -> None:
        self.changes += len(batch)
        newest, _ = avro.scan(batch.schema, batch.rows, batch.count)
        self.lag_ms = max(0.0, time.time() * 1000 - (newest or 0) / 1000)
        self.position = batch.last


class Faults:
    """Crashes one node at a time, and brings it back."""

    def __init__(self, cluster: Cluster, seed: int, goal: int | None, note: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._random = Random(f"faults/{seed}")  # noqa: S311 - seeded, to be repeated
        self._note = note
        # With a goal: down for the middle third, once.
        self._after = _CRASH_AFTER if goal is None else goal // 3 + 1
        self._down_for = _DOWN_FOR if goal is None else goal // 3 + 1
        self._next = self._after
        self._down: str | None = None
        self.crashes = 0

    def look(self, written: int) -> None:
        """Do what is due after so many writes."""
        if written < self._next:
            return
        if self._down is not None:
            self.mend()
            self._next = written + self._after
            return
        node = self._random.choice(list(self._cluster.nodes.values()))
        self._next = written + self._down_for
        if len(self._cluster.nodes) < 2 or node.changes_written > _CRASH_CHANGES_MAX:
            return
        self._cluster.crash(node.name)
        self._down = node.name
        self.crashes += 1
        self._note(f"{node.name} was killed; the others go on and keep hints for it")

    def mend(self) -> None:
        """Bring the node back that is down, if any."""
        if self._down is not None:
            self._cluster.restart(self._down)
            self._note(f"{self._down} is back, recovered from its change log")
            self._down = None


def run(plan: Plan, stopped: threading.Event, view: Callable[[Figures], None]) -> Outcome:
    """Run the load until the plan is fulfilled or `stopped` is set, then check everything."""
    history = History(limit=2 * WRITES_MAX)
    cluster = Cluster(
        plan.directory,
        data_centres=plan.nodes,
        seed=plan.seed,
        clock=SystemClock(),
        log_settings=plan.settings,
        history=history,
        timeout_us=_TIMEOUT_US,
        hint_delay_us=200_000,
    )
    with cluster:
        for schema in TABLES:
            cluster.create_table(schema)
        session = _Session(plan, cluster, view)
        try:
            session.load(stopped)
            session.settle()
            finish_readers(session.figures, session.readers, session.refresh)
            lake = session.finish_lake()
        except BaseException:
            # Whoever asks twice does not wait for anybody.
            session.let_go()
            raise
        errors = [reader.error for reader in session.readers if reader.error is not None]
        figures, crashes = session.figures, session.faults.crashes
    files = OsFiles()
    places = [
        LogPlace(node, schema.table, log_directory(plan.directory, node, schema.table), files)
        for node in cluster.nodes
        for schema in TABLES
    ]
    shown = _shown(places, figures, view)
    return Outcome(figures, check(history, shown, cluster.data_centres), crashes, errors, lake)


def _shown(places: Sequence[LogPlace], figures: Figures, view: Callable[[Figures], None]) -> Iterator[LogPlace]:
    """The logs one after another, as they are searched."""
    figures.begin("every acknowledged write is looked for")
    for number, place in enumerate(places, start=1):
        log = f"log {number} of {len(places)}, {place.node}/{place.table}"
        figures.tell(f"every acknowledged write is looked for: {log}")
        view(figures)
        yield place
    figures.tell("every acknowledged write was looked for")
    view(figures)


class _Session:
    """The moving parts of one run, and their figures."""

    def __init__(self, plan: Plan, cluster: Cluster, view: Callable[[Figures], None]) -> None:
        self._plan = plan
        self._cluster = cluster
        self._view = view
        self._goal = plan.rows if plan.rows is not None else WRITES_MAX
        self._statements = Workload(plan.seed).statements()
        self._meter = Meter()
        self.figures = Figures(goal=plan.rows, directory=plan.directory)
        self.figures.nodes = [NodeFigures(node.name, node.data_centre) for node in cluster.nodes.values()]
        self.faults = Faults(cluster, plan.seed, plan.rows, self.figures.events.append)
        names = list(cluster.nodes)
        reads = (
            ("billing", ORDERS.table, names[0]),
            ("search", USERS.table, names[len(names) // 2]),
            ("archive", READINGS.table, names[-1]),
        )
        self.readers = [Reader(self._log(node, table), name, lazy=name == "archive") for name, table, node in reads]
        self.figures.readers = [ReaderFigures(name, str(table), node) for name, table, node in reads]
        self._lake = _lake(plan, names)

    def _log(self, node: str, table: TableId) -> str:
        return log_directory(self._plan.directory, node, table)

    def load(self, stopped: threading.Event) -> None:
        """Write until the goal is reached or someone stops it."""
        figures = self.figures
        while figures.written < self._goal and not stopped.is_set():
            count = min(_BATCH, self._goal - figures.written)
            try:
                self._cluster.write_many(islice(self._statements, count), consistency=Consistency.QUORUM)
                figures.acknowledged += count
            except Unavailable:
                # The writes may still take effect; the client was not told that they are safe.
                figures.refused += count
            figures.written += count
            self.faults.look(figures.written)
            if self._meter.due:
                self.refresh()
            if self._plan.paced:
                ahead = figures.written / PACE - (time.monotonic() - self._meter.begun)
                stopped.wait(min(max(0.0, ahead), VIEW_S))

    def settle(self) -> None:
        """Bring every node back and let hints arrive."""
        self.figures.begin(f"the load has ended: {self.figures.written:,} writes")
        self.figures.begin("every node is up, and is given what it missed")
        self.refresh()
        self.faults.mend()
        # What was sent to a node just as it died becomes a hint only when it times out.
        timed_out = time.monotonic() + (_TIMEOUT_US / 1e6 if self.faults.crashes else 0.0)
        deadline = timed_out + CATCH_UP_S
        while (now := time.monotonic()) < deadline:
            self._cluster.run_for(_SETTLE_US)
            self.refresh()
            if now > timed_out and self._cluster.settle(limit_us=_SETTLE_US):
                return

    def let_go(self) -> None:
        """End without waiting for anything."""
        for reader in self.readers:
            reader.finish(0.0)
        if self._lake is not None:
            self._lake.let_go()

    def finish_lake(self) -> LakeOutcome | None:
        """Let the pipeline deliver the rest, and compare its tables with the cluster."""
        if self._lake is None:
            return None
        self.figures.begin("the pipeline delivers the rest")

        def tell(step: str) -> None:
            self.figures.begin(step)
            self._view(self.figures)

        return self._lake.finish(self._cluster, self.refresh, tell)

    def refresh(self) -> None:
        """Measure, and show."""
        figures = self.figures
        if self._lake is not None:
            figures.pipeline = _pipeline_line(self._lake)
        passed = self._meter.tick(figures)
        for node in figures.nodes:
            measure_node(node, [self._log(node.name, schema.table) for schema in TABLES], passed)
            node.up = self._cluster.nodes[node.name].up
        measure_readers(figures, self.readers, passed)
        self._view(figures)


def _lake(plan: Plan, nodes: list[str]) -> Lake | None:
    if not plan.spark:
        return None
    # Spark is heavy to import, and a demo may do without.
    from penstock.cli.demo_lake import Lake

    return Lake(plan.directory, nodes)


def _pipeline_line(lake: Lake) -> str:
    status = lake.status()
    if status is None or not status.batches:
        return lake.stage
    batches = f"{status.batches:,} batch{'' if status.batches == 1 else 'es'}"
    return f"{output.count(status.records, 'record')} in {batches}, of {status.copies:,} logged changes"


def finish_readers(figures: Figures, readers: Sequence[Reader], refresh: Callable[[], None]) -> None:
    """Let the subscribers read what is left, and end."""
    figures.begin("subscribers read the rest")
    deadline = time.monotonic() + CATCH_UP_S
    for reader in readers:
        while not reader.finish(VIEW_S) and time.monotonic() < deadline:
            refresh()
    refresh()


class Meter:
    """The clock of a view: how much time has passed, and how fast writes are acknowledged."""

    def __init__(self) -> None:
        self.begun = self.viewed = time.monotonic()
        self._seen = 0

    @property
    def due(self) -> bool:
        return time.monotonic() - self.viewed >= VIEW_S

    def tick(self, figures: Figures) -> float:
        """Note the rate; gives the seconds since the last look."""
        now = time.monotonic()
        passed = max(1e-6, now - self.viewed)
        self.viewed = now
        before = figures.history[-1] if figures.history else 0.0
        done = figures.acknowledged / max(1e-6, now - self.begun)
        figures.rate = done if before == 0.0 else 0.7 * before + 0.3 * (figures.acknowledged - self._seen) / passed
        self._seen = figures.acknowledged
        figures.history.append(figures.rate)
        figures.elapsed_s = now - self.begun
        return passed


def measure_node(node: NodeFigures, logs: Iterable[str], passed: float) -> None:
    """What a node's change logs hold."""
    rows = node.bytes = node.files = 0
    for directory in logs:
        with LogReader(directory) as log:
            rows += log.watermark().rows
            infos = log.files()
        node.bytes += sum(info.bytes for info in infos)
        node.files += len(infos)
    node.rate = (rows - node.changes) / passed
    node.changes = rows


def measure_readers(figures: Figures, readers: Iterable[Reader], passed: float) -> None:
    """How far each subscription is."""
    for shown, reader in zip(figures.readers, readers, strict=True):
        with LogReader(reader.directory) as log:
            shown.behind = recent.changes_after(log, reader.position)
        shown.rate = (reader.changes - shown.changes) / passed
        shown.changes, shown.lag_ms = reader.changes, reader.lag_ms
