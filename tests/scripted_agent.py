"""A Cassandra node on disk and an agent beside it, in one thread: what the node does happens when the agent is idle.

`Script` is the agent's `stop`: each time that the agent waits, it moves the clock, and after a few quiet rounds plays
the next step; after the last one it is set. So nothing sleeps, and every run takes the same way.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.capture.cassandra.agent.agent import Agent
from penstock.capture.cassandra.agent.segment_keys import Key, key
from penstock.capture.cassandra.agent.status import CassandraStatus
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.model import types as t
from penstock.model.change import Change, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.sandbox.commit_log.statements import create_keyspace, create_table
from penstock.sandbox.commit_log.writer import CommitLogWriter, LogPlace
from penstock.settings import Settings
from penstock.system.files import Files

START_US = 1_700_000_000_000_000
_QUIET_ROUNDS = 4


class SteppedClock:
    """A clock that only the script moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_us(self) -> int:
        return START_US + int(self.now_s * 1_000_000)

    def monotonic(self) -> float:
        return self.now_s


class Script(threading.Event):
    """The agent's stop, and the rest of the world."""

    def __init__(self, clock: SteppedClock, steps: tuple[Callable[[], object], ...]) -> None:
        super().__init__()
        self._clock = clock
        self._steps = list(steps)
        self._quiet = 0
        self.rounds = 0

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.now_s += 1.0
        self.rounds += 1
        self._quiet += 1
        assert self.rounds < 10_000, "the agent does not come to rest"
        if self._quiet >= _QUIET_ROUNDS:
            self._quiet = 0
            if self._steps:
                self._steps.pop(0)()
            else:
                self.set()
        return self.is_set()


def cassandra_table(name: str = "orders", *more: Column, keyspace: str = "shop", cdc: bool = True) -> CassandraTable:
    """A table with a number as its key and a note."""
    columns = (
        Column("id", t.INT32, Role.PARTITION, source_type="int"),
        *sorted((Column("note", t.TEXT, source_type="text"), *more), key=lambda column: column.name),
    )
    id_ = uuid.uuid5(uuid.NAMESPACE_OID, f"{keyspace}.{name}")
    return CassandraTable(id_, TableSchema(TableId(keyspace, name), columns, source="cassandra"), cdc=cdc)


def row(number: int, note: str = "", **cells: Any) -> Change:
    """The INSERT of one row."""
    written = {"note": Set(note), **{name: Set(value) for name, value in cells.items()}}
    return Change(Op.INSERT, {"id": number}, written, time=START_US + number, marker=Marker())


class Node:
    """A node's commit log, and what was written to it."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.commitlog, self.cdc_raw = root / "commitlog", root / "cdc_raw"
        self.options = {"segment_bytes": 1 << 16, "durable": False, **options}
        self.log = CommitLogWriter(str(self.commitlog), str(self.cdc_raw), **self.options)
        self.orders = cassandra_table()
        self.written: list[int] = []
        self._ddl = 0

    def create(self, table: CassandraTable | None = None) -> None:
        """CREATE TABLE, or ALTER TABLE when it is there."""
        table = table or self.orders
        self._ddl += 1
        self.log.append(create_keyspace(table.schema.table.keyspace, START_US + self._ddl), cdc=False)
        self.log.append(create_table(table, START_US + self._ddl), cdc=False)

    def write(self, *numbers: int, table: CassandraTable | None = None, note: str = "", **cells: Any) -> LogPlace:
        """One INSERT for each number."""
        place = LogPlace(0, 0)
        for number in numbers:
            place = self.log.append([(table or self.orders, [row(number, note, **cells)])])
            if table is None:
                self.written.append(number)
        return place

    def mark(self) -> None:
        """A sync marker in the segment that is written when this is called."""
        self.log.mark()

    def sync(self) -> None:
        """A sync of the segment that is written when this is called."""
        self.log.sync()

    def restart(self) -> None:
        """A new life of the node, with a new segment."""
        self.log = CommitLogWriter(str(self.commitlog), str(self.cdc_raw), **self.options)

    def segments(self) -> list[str]:
        """The segments in cdc_raw."""
        return sorted(path.name for path in self.cdc_raw.glob("*.log"))


class Setup:
    """A node and the agents that run beside it, one after another."""

    def __init__(self, root: Path, *, settings: dict[str, dict[str, Any]] | None = None, **options: Any) -> None:
        self.node = Node(root, **options)
        self.data = root / "data"
        self.clock = SteppedClock()
        self.given = settings or {}

    def settings(self) -> Settings:
        cassandra = {"cdc_raw_directory": self.node.cdc_raw, "schema_from": "log", "data_centre": "dc1"}
        tree: dict[str, Any] = {
            "cassandra": {**cassandra, **self.given.get("cassandra", {})},
            "agent": {"directory": self.data, "node": "n1", "transfer": "keep", **self.given.get("agent", {})},
            "log": {"reserve_bytes": 0, **self.given.get("log", {})},
        }
        return Settings.model_validate(tree)

    def agent(self, files: Files | None = None, **options: Any) -> Agent:
        return Agent(self.settings(), clock=self.clock, files=files, background=False, **options)

    def run(self, *steps: Callable[[], object], files: Files | None = None, **options: Any) -> CassandraStatus:
        """Run an agent through the steps, until it has nothing left to do."""
        agent = self.agent(files, **options)
        agent.run(Script(self.clock, steps))
        return agent.status()

    def changes(self, table: str = "shop.orders", files: Files | None = None) -> list[Change]:
        """Everything in a table's log, in order; nothing when there is no log."""
        directory = str(self.data / table)
        if files is None and not Path(directory).exists():
            return []
        with LogReader(directory, files=files) as reader:
            return [change for batch in reader.read() for change in avro.decode(batch)]

    def numbers(self, table: str = "shop.orders", files: Files | None = None) -> list[int]:
        """The keys of all rows in a table's log, in order."""
        return [change.key["id"] for change in self.changes(table, files)]

    def keys(self, table: str = "shop.orders", files: Files | None = None) -> list[Key]:
        """The identities of all changes in a table's log."""
        return [found for change in self.changes(table, files) if (found := key(change)) is not None]
