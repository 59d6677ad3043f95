"""Plays scenarios of schema changes on real nodes, through agents and pipelines, and lets the nodes judge Delta.

All scenarios are played at once, each in a keyspace of its own, step by step; so whatever one of them breaks shows in
the others. The agents follow one node, or each another one, which all have every row:

- *steady* runs all the time;
- *unread* does too, and nobody reads its logs before the end, so that they stay whole;
- *interrupted* is stopped while the statements of one step are done, and killed in the middle of the next, after which
  its place is an older one; in the middle of the play it copies the tables (`penstock agent snapshot`);
- *successor* begins in the middle, with an empty directory, when the earlier segments are gone, as on a new machine.

Each of these paths is a pipeline with a checkpoint and tables of its own:

- `each`: the log of *steady*, delivered and judged after every step;
- `end`: the log of *unread*, delivered once at the end;
- `interrupted`: the log of *interrupted*, in the middle and at the end;
- `replaced`: the log of *unread* up to the middle, where it ends for good, and the log of *successor*;
- `late`: first the log of *successor*, then that of *unread*, whose every change comes late;
- `all`: the logs of *unread*, *interrupted* and *successor*, as they are, at the end.

A table is judged while it has CDC on. While it is off nothing of the table goes to its log, and its copies stay as they
are; when it is on again, they must have followed what became of the table, but for rows that were written meanwhile.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cassandra import ConsistencyLevel, ReadFailure
from cassandra.cluster import ResultSet, Session
from cassandra.protocol import ConfigurationException, InvalidRequest, SyntaxException
from cassandra.query import SimpleStatement

from penstock.capture.cassandra.segments.segment import segment_name
from penstock.model.schema import TableId
from penstock.sandbox.cassandra_server import CassandraServer
from tests.integration.cassandra.ddl.judge import Judge
from tests.integration.cassandra.ddl.processes import AgentProcess, PipelineProcess, run_command, wait_until
from tests.integration.cassandra.ddl.scenario import Scenario
from tests.integration.cassandra.three_nodes import agreed

CLOCK = TableId("clock", "ticks")
AGENTS = ("steady", "interrupted", "successor", "unread")
PATHS = ("each", "end", "interrupted", "replaced", "late", "all")
CONFIG = """
[pipeline]
name = "{name}"
checkpoint_directory = "{home}/checkpoint-{name}"
logs = [{logs}]
include = [{include}]
sinks = ["delta"]
buckets = 2
master = "local[2]"
retries = 1

[delta]
directory = "{lake}"
"""


@dataclass
class Difference:
    """One table that was not as Cassandra has it, or one run that failed."""

    path: str
    step: int
    place: str
    said: str

    def __str__(self) -> str:
        return f"path {self.path}, after step {self.step}, {self.place}: {self.said}"


@dataclass
class Play:
    """What came of it, by the scenarios' keyspaces."""

    differences: dict[str, list[Difference]] = field(default_factory=dict)
    comparisons: int = 0
    rows: int = 0
    # How often Cassandra failed to read a table, by keyspace.
    unanswered: Counter[str] = field(default_factory=Counter)
    refused: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0


@dataclass
class _Path:
    """A way from logs to tables: the logs that its pipeline is given now, and where its tables are."""

    name: str
    home: Path
    logs: list[Path] = field(default_factory=list)

    @property
    def lake(self) -> Path:
        return self.home / "lake"

    def config(self, group: str, keyspaces: Sequence[str]) -> Path:
        self.home.mkdir(parents=True, exist_ok=True)
        file = self.home / f"{group}.toml"
        file.write_text(
            CONFIG.format(
                name=f"{self.name}-{group}",
                home=self.home,
                logs=", ".join(f'"{path}"' for path in self.logs),
                include=", ".join(f'"{keyspace}.*"' for keyspace in (*keyspaces, CLOCK.keyspace)),
                lake=self.lake,
            ),
            encoding="utf-8",
        )
        return file


class Runner:
    """Nodes, agents and paths. The scenarios that `alone` names have pipelines of their own."""

    def __init__(
        self,
        nodes: Sequence[CassandraServer],
        session: Session,
        home: Path,
        scenarios: Sequence[Scenario],
        *,
        alone: Collection[str] = (),
    ) -> None:
        self._nodes = nodes
        self._session = session
        self._home = home
        self._scenarios = scenarios
        self._steps = max(len(one.steps) for one in scenarios)
        self._groups = {one.keyspace: [one] for one in scenarios if one.name in alone}
        self._groups["all"] = [one for one in scenarios if one.name not in alone]
        self._judge = Judge(session)
        self._ticks = 0
        self._agents = [AgentProcess(name, nodes[number % len(nodes)], home) for number, name in enumerate(AGENTS)]
        self._steady, self._interrupted, self._successor, self._unread = self._agents
        self._paths = {name: _Path(name, home / f"path-{name}") for name in PATHS}
        self._play = Play({one.keyspace: [] for one in scenarios})

    def play(self) -> Play:
        begun = time.monotonic()
        with self._running() as pipelines:
            self._prepare()
            middle = (self._steps + 1) // 2 - 1
            for step in range(self._steps):
                self._do(step)
                self._deliver(pipelines, "each", step)
                if step == middle:
                    self._replace(pipelines, step)
            self._finish(pipelines, self._steps - 1)
        self._play.seconds = time.monotonic() - begun
        return self._play

    @contextmanager
    def _running(self) -> Iterator[PipelineProcess]:
        pipelines = PipelineProcess(self._home / "spark")
        try:
            yield pipelines
        finally:
            for agent in self._agents:
                agent.close()
            pipelines.close()

    def _prepare(self) -> None:
        for keyspace in (CLOCK.keyspace, *(one.keyspace for one in self._scenarios)):
            self._ask(f"CREATE KEYSPACE {keyspace} WITH replication = EVERYWHERE")
        self._ask(f"CREATE TABLE {CLOCK} (k int PRIMARY KEY) WITH cdc = true")
        self._ask(f"CREATE TABLE {CLOCK.keyspace}.lives (k int PRIMARY KEY)")
        self._paths["each"].logs = [self._steady.logs]
        self._paths["interrupted"].logs = [self._interrupted.logs]
        for agent in (self._steady, self._interrupted, self._unread):
            agent.start()

    def _ask(self, query: str) -> ResultSet:
        """A statement at ALL; one that changes the schema is waited for on all nodes."""
        everywhere = f"{{'class': 'SimpleStrategy', 'replication_factor': {len(self._nodes)}}}"
        query = query.replace("EVERYWHERE", everywhere)
        found = self._session.execute(SimpleStatement(query, consistency_level=ConsistencyLevel.ALL))
        if len(self._nodes) > 1 and query.split(maxsplit=1)[0] in ("CREATE", "ALTER", "DROP"):
            agreed(self._session)
        return found

    def _do(self, step: int) -> None:
        """The statements of one step, while an agent is stopped or killed."""
        if step % 2:
            self._interrupted.stop()
        else:
            self._interrupted.keep_place()
        for number, scenario in enumerate(self._scenarios):
            if number == len(self._scenarios) // 2 and not step % 2:
                self._interrupted.kill()
                self._interrupted.restore_place()
                self._interrupted.start()
            self._session.set_keyspace(scenario.keyspace)
            for statement in scenario.at(step, self._steps):
                self._execute(scenario, statement)
        if step % 2:
            self._interrupted.start()
        self._caught_up()

    def _execute(self, scenario: Scenario, statement: str) -> None:
        if statement.startswith("! "):
            for node in self._nodes:
                node.nodetool("flush", scenario.keyspace)
                node.nodetool("compact", scenario.keyspace, statement.removeprefix("! "))
            return
        optional = statement.startswith("? ")
        try:
            self._ask(statement.removeprefix("? "))
        except (InvalidRequest, ConfigurationException, SyntaxException) as error:
            if not optional:
                raise AssertionError(f"{scenario.name}: {statement}: {error}") from error
            self._play.refused.setdefault(scenario.name, []).append(f"{statement}: {error}")

    def _caught_up(self) -> None:
        """Wait until what has seconds to live is gone, and every agent that runs has logged all that was written."""
        self._ask(f"INSERT INTO {CLOCK.keyspace}.lives (k) VALUES (1) USING TTL 3")
        self._ask(f"INSERT INTO {CLOCK} (k) VALUES ({self._ticks})")
        for agent in self._agents:
            if agent.runs:
                wait_until(partial(self._has_tick, agent, self._ticks), agent.said)
        self._ticks += 1
        wait_until(lambda: self._ask(f"SELECT k FROM {CLOCK.keyspace}.lives").one() is None, str)

    def _has_tick(self, agent: AgentProcess, tick: int) -> bool:
        return any(change.key["k"] == tick for change in agent.logged(CLOCK))

    def _deliver(self, pipelines: PipelineProcess | None, path: str, step: int, *, judged: bool = True) -> None:
        """Run a path's pipelines, by the command when there is no process for them, and compare all tables."""
        way = self._paths[path]
        for name, group in self._groups.items():
            config = way.config(name, [one.keyspace for one in group])
            error = run_command(config) if pipelines is None else pipelines.run(config)
            if error is not None:
                for scenario in group:
                    found = Difference(path, step, "pipeline", f"failed: {error}")
                    self._play.differences[scenario.keyspace].append(found)
                sys.stderr.write(f"pipeline of {name}: path {path}, after step {step}, failed: {error}\n")
        for scenario in self._scenarios if judged else ():
            for table, captured in self._judge.tables(scenario.keyspace).items():
                if captured:
                    self._compare(way, step, scenario.keyspace, table)

    def _compare(self, way: _Path, step: int, keyspace: str, table: str) -> None:
        try:
            verdict = self._judge.compare(keyspace, table, way.lake / keyspace / table)
        except ReadFailure as error:
            # While a column is dropped that has cells of a later time, Cassandra cannot read such a table itself.
            if self._judge.dropped(keyspace, table):
                self._play.unanswered[keyspace] += 1
            else:
                self._note(way.name, step, keyspace, table, f"Cassandra cannot read it: {error}")
            return
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # Values that are none of the column's type.
            self._note(way.name, step, keyspace, table, f"{type(error).__name__}: {error}")
            return
        self._play.comparisons += 1
        self._play.rows += verdict.rows
        if verdict.missing or verdict.extra:
            self._note(way.name, step, keyspace, table, verdict.told())

    def _note(self, path: str, step: int, keyspace: str, place: str, said: str) -> None:
        found = Difference(path, step, place, said)
        self._play.differences[keyspace].append(found)
        sys.stderr.write(f"{keyspace}: {found}\n")

    def _replace(self, pipelines: PipelineProcess, step: int) -> None:
        """In the middle: copy tables, let the first log end, and begin another one without the earlier segments."""
        tables = [
            f"{one.keyspace}.{table}"
            for one in self._scenarios
            if one.copied
            for table, captured in self._judge.tables(one.keyspace).items()
            if captured and self._is_read(one.keyspace, table)
        ]
        self._interrupted.snapshot(tables)
        self._deliver(pipelines, "interrupted", step)
        # The drop of a table begins a new segment.
        self._ask(f"CREATE TABLE {CLOCK.keyspace}.dropped (k int PRIMARY KEY) WITH cdc = true")
        self._ask(f"DROP TABLE {CLOCK.keyspace}.dropped")
        self._caught_up()
        self._unread.stop()
        self._paths["replaced"].logs = [self._copy(self._unread, "replaced")]
        self._unread.start()
        self._deliver(pipelines, "replaced", step)
        self._remove_old_segments(self._nodes[AGENTS.index("successor") % len(self._nodes)])
        self._successor.start()

    def _is_read(self, keyspace: str, table: str) -> bool:
        """Whether Cassandra can read a table; its copy would wait until it can."""
        try:
            self._judge.selected(keyspace, table)
        except ReadFailure:
            return False
        return True

    def _remove_old_segments(self, node: CassandraServer) -> None:
        """Leave the segment that is written, and the one that Cassandra keeps ready behind it."""
        found = [path for path in node.cdc_raw.iterdir() if segment_name(path.name) is not None]
        found.sort(key=lambda path: path.name)
        for path in found[:-2]:
            path.unlink()
            path.with_name(path.name.replace(".log", "_cdc.idx")).unlink(missing_ok=True)

    def _finish(self, pipelines: PipelineProcess, step: int) -> None:
        for agent in self._agents:
            agent.stop()
        late, replaced = self._paths["late"].logs, self._paths["replaced"].logs
        late.append(self._copy(self._successor, "late"))
        self._deliver(pipelines, "late", step, judged=False)
        late.append(self._copy(self._unread, "late"))
        replaced.append(self._copy(self._successor, "replaced"))
        self._paths["all"].logs = [self._copy(agent, "all") for agent in self._agents[1:]]
        self._paths["end"].logs = [self._copy(self._unread, "end")]
        for path in ("late", "replaced", "all", "interrupted"):
            self._deliver(pipelines, path, step)
        # A real command at least once, as an operator starts it.
        self._deliver(None if len(self._groups) == 1 else pipelines, "end", step)

    def _copy(self, agent: AgentProcess, path: str) -> Path:
        """The logs of an agent that does not run, for one path alone: what all readers have read, a log deletes."""
        assert not agent.runs
        there = self._home / f"logs-of-{path}" / agent.name
        shutil.copytree(agent.logs, there, ignore=shutil.ignore_patterns(".agent"))
        return there


def summary(play: Play) -> str:
    """The figures, and what Cassandra did not take."""
    broken = [keyspace for keyspace, found in play.differences.items() if found]
    lines = [
        (
            f"{len(play.differences)} scenarios, {play.comparisons} tables compared, {play.rows} rows, "
            f"{len(broken)} scenarios with differences, {play.unanswered.total()} without an answer, "
            f"{play.seconds:.0f} s"
        ),
        *(f"not read by Cassandra, {count} times: {keyspace}" for keyspace, count in play.unanswered.items()),
        *(f"refused by Cassandra in {name}: {text}" for name, texts in play.refused.items() for text in texts),
    ]
    return "\n".join(lines)
