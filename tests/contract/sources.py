"""The sources that the contract's tests run, each with a database that is played: what it is given, and its agent.

A `Played` source takes changes in (`write`), runs its agent until it is at rest (`run`), and gives the settings and the
directory of the logs. The judge is what `LogReader` finds in the logs, against what was given in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from penstock.capture.agent import Agent
from penstock.capture.cassandra.agent.agent import Agent as CassandraAgent
from penstock.capture.replay.source import ReplaySource
from penstock.capture.source_agent import SourceAgent
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.log.table_logs import LogSpec
from penstock.model import types as t
from penstock.model.change import Change, Origin
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import LogSettings, Settings
from penstock.system.files import Files
from tests.scripted_agent import Node, Script, SteppedClock, cassandra_table, row

Specs = Callable[[TableId], Sequence[LogSpec]]
AGENT = {"node": "n1", "chunk_bytes": 4096, "place_interval_s": 3, "transfer": "keep"}


class Played(Protocol):
    """One source and the agents that run it, one after another."""

    clock: SteppedClock
    data: Path

    def create(self, table: str = "orders", *, wider: bool = False) -> None:
        """Make a table, or give it one more column."""
        ...

    def write(self, *numbers: int, table: str = "orders", note: str = "") -> None:
        """One change for each number, in this order."""
        ...

    def agent(self, files: Files | None = None, specs: Specs | None = None, **agent: Any) -> Agent[Any]:
        """A new agent, which goes on where the one before was."""
        ...


class PlayedCassandra:
    """A node that writes genuine commit logs."""

    def __init__(self, root: Path) -> None:
        self.clock = SteppedClock()
        self.data = root / "data"
        self._node = Node(root)

    def create(self, table: str = "orders", *, wider: bool = False) -> None:
        self._tables(table, wider=wider)

    def _tables(self, name: str, *, wider: bool) -> None:
        more = (Column("paid", t.TEXT, source_type="text"),) if wider else ()
        self._node.create(cassandra_table(name, *more))

    def write(self, *numbers: int, table: str = "orders", note: str = "") -> None:
        for number in numbers:
            self._node.log.append([(cassandra_table(table), [row(number, note)])])
        # What is not synced at the end of a segment is not complete; the agent reads what is written.
        self._node.log.sync()

    def agent(self, files: Files | None = None, specs: Specs | None = None, **agent: Any) -> Agent[Any]:
        tree: dict[str, Any] = {
            "cassandra": {"cdc_raw_directory": self._node.cdc_raw, "schema_from": "log", "data_centre": "dc1"},
            "agent": {**AGENT, "directory": self.data, **agent},
            "log": {"reserve_bytes": 0},
        }
        return CassandraAgent(
            Settings.model_validate(tree), clock=self.clock, files=files, specs=specs, background=False
        )


class PlayedLogs:
    """Change logs that another agent writes."""

    def __init__(self, root: Path) -> None:
        self.clock = SteppedClock()
        self.data = root / "data"
        self.source = root / "source"
        self.source.mkdir()
        self.follow = True
        self._schemas: dict[str, TableSchema] = {}
        self._position = 0
        self._settings = LogSettings(reserve_bytes=0)

    def create(self, table: str = "orders", *, wider: bool = False) -> None:
        columns: tuple[Column, ...] = (Column("id", t.INT32, Role.PARTITION), Column("note", t.TEXT))
        if wider:
            columns += (Column("paid", t.TEXT),)
        before = self._schemas.get(table)
        altered = 1 if before is None else before.altered + 1
        made = TableSchema(TableId("shop", table), columns, source="sandbox", altered=altered)
        self._schemas[table] = made
        with self.open(table) as log:
            log.begin(made)

    def open(self, table: str = "orders") -> TableLog:
        schema = self._schemas[table]
        return TableLog.open(str(self.source / f"shop.{table}"), schema, settings=self._settings, node="n7")

    def write(self, *numbers: int, table: str = "orders", note: str = "") -> None:
        changes = [self.placed(row(number, note)) for number in numbers]
        with self.open(table) as log:
            # Blocks of several changes, so that a place may lie inside one.
            for first in range(0, len(changes), 3):
                log.append(avro.encode(self._schemas[table], changes[first : first + 3]))

    def placed(self, change: Change) -> Change:
        self._position += 1
        return replace(change, origin=Origin(node="n7", file="first.log", position=self._position, ordinal=0))

    def agent(self, files: Files | None = None, specs: Specs | None = None, **agent: Any) -> Agent[Any]:
        tree: dict[str, Any] = {
            "source": {"kind": "replay"},
            "replay": {"directory": self.source, "follow": self.follow},
            "agent": {**AGENT, "directory": self.data, **agent},
            "log": {"reserve_bytes": 0},
        }
        settings = Settings.model_validate(tree)
        # The source's own files are on a disk that does not crash.
        source = ReplaySource(settings.replay, clock=self.clock)
        return SourceAgent(settings, source, clock=self.clock, files=files, specs=specs, background=False)


SOURCES: dict[str, Callable[[Path], Played]] = {"cassandra": PlayedCassandra, "replay": PlayedLogs}


def run(played: Played, *steps: Callable[[], object], files: Files | None = None, **options: Any) -> Any:
    """Run an agent through the steps, until it has nothing left to do; its status."""
    agent = played.agent(files, **options)
    stop: threading.Event = Script(played.clock, steps)
    agent.run(stop)
    return agent.status()


def stored(played: Played, name: str = "shop.orders", files: Files | None = None) -> list[Change]:
    """All changes of a log, in its order."""
    with LogReader(str(played.data / name), files=files) as reader:
        return [change for batch in reader.read() for change in avro.decode(batch)]


def numbers(played: Played, name: str = "shop.orders", files: Files | None = None) -> list[int]:
    """The keys of all changes of a log, in its order."""
    return [change.key["id"] for change in stored(played, name, files)]
