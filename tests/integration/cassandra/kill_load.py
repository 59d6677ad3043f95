"""A load whose every write is remembered: what was tried, and what the node acknowledged.

Each write has a number that no other has, and its values are made from the number. So a change in a log can be traced
to its write and back: an acknowledged write without its change is lost, a change without its attempt is invented.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from cassandra import DriverException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import ErrorMessage

from penstock.errors import PenstockError
from penstock.formats import avro
from penstock.log.names import directory_name
from penstock.log.reader import LogReader
from penstock.model.change import Change, Op, Set
from penstock.model.position import START, Position
from penstock.model.schema import TableId

KEYSPACE = "kills"
TABLES = ("plain", "wide")
# Enough for segments of 1 MiB to fill every second or so.
PAYLOAD = 40
_IN_FLIGHT = 16
_BURST = 16
_PAUSE_S = 0.02
_TRY_AGAIN_S = 0.2
# The driver gives a write up after this long; twice as long is waited for it to say so.
_TIMEOUT_S = 5
_ANSWER_S = 10

# One row: the table, the write's number, and the clustering value.
Row = tuple[str, int, int]


def create_tables(address: str) -> None:
    with Cluster([address], protocol_version=4) as cluster:
        session = cluster.connect()
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}")
        session.execute(f"CREATE TABLE {KEYSPACE}.plain (id bigint PRIMARY KEY, payload text) WITH cdc = true")
        session.execute(
            f"CREATE TABLE {KEYSPACE}.wide (id bigint, c int, payload text, PRIMARY KEY (id, c)) WITH cdc = true"
        )


def selected(address: str) -> set[Row]:
    """The rows that the node itself has."""
    with Cluster([address], protocol_version=4) as cluster:
        session = cluster.connect(KEYSPACE)
        rows = {("plain", row[0], 0) for row in session.execute("SELECT id FROM plain")}
        return rows | {("wide", row[0], row[1]) for row in session.execute("SELECT id, c FROM wide")}


def payload(number: int) -> str:
    return f"{number:012d}." * PAYLOAD


class Load:
    """Writes in a thread of its own until it is stopped, whatever becomes of the node."""

    def __init__(self, address: str, seed: int) -> None:
        self.attempted: set[Row] = set()
        self.acknowledged: set[Row] = set()
        self.refused = 0
        self._address = address
        self._random = Random(seed)
        self._numbers = itertools.count(1)
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._broken = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """No more writes; those under way have been answered or given up when it returns."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def wait_for(self, count: int, within_s: float = 180) -> None:
        """Wait until so many further rows were acknowledged."""
        with self._changed:
            wanted = len(self.acknowledged) + count
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= wanted or self._failure, within_s)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._write_until_broken()
                except (NoHostAvailable, DriverException, ErrorMessage, OSError):
                    # The node is down, or just coming up.
                    self._stop.wait(_TRY_AGAIN_S)
        except BaseException as error:  # noqa: BLE001 - it is raised again by `stop`.
            self._failure = error

    def _write_until_broken(self) -> None:
        self._broken.clear()
        # A new one each time: the driver does not always answer for what was under way when the node died.
        in_flight = threading.Semaphore(_IN_FLIGHT)
        # No write is ever tried twice by the driver itself: a number stands for one write.
        policy = WhiteListRoundRobinPolicy([self._address])
        profile = ExecutionProfile(policy, retry_policy=FallthroughRetryPolicy(), request_timeout=_TIMEOUT_S)
        with Cluster(
            [self._address],
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=_TIMEOUT_S,
            protocol_version=4,
        ) as cluster:
            session = cluster.connect(KEYSPACE)
            statements = _Statements(session)
            while not (self._stop.is_set() or self._broken.is_set()):
                for _ in range(_BURST):
                    if not in_flight.acquire(timeout=_ANSWER_S):
                        return
                    self._write(session, statements, in_flight)
                self._stop.wait(_PAUSE_S)
            # Writes under way hold one each.
            for _ in range(_IN_FLIGHT):
                in_flight.acquire(timeout=_ANSWER_S)

    def _write(self, session: Session, statements: _Statements, in_flight: threading.Semaphore) -> None:
        statement, rows = statements.choose(next(self._numbers), self._random)
        with self._changed:
            self.attempted.update(rows)

        def succeeded(_: object) -> None:
            with self._changed:
                self.acknowledged.update(rows)
                self._changed.notify_all()
            in_flight.release()

        def failed(error: Exception) -> None:
            # Nobody knows whether it was written. A node that is down is connected to anew.
            with self._changed:
                self.refused += 1
            if not isinstance(error, ErrorMessage):
                self._broken.set()
            in_flight.release()

        try:
            session.execute_async(statement).add_callbacks(succeeded, failed)
        except NoHostAvailable:
            self._broken.set()
            in_flight.release()


class _Statements:
    """Inserts, deletions and batches over both tables."""

    def __init__(self, session: Session) -> None:
        self._plain = session.prepare("INSERT INTO plain (id, payload) VALUES (?, ?)")
        self._wide = session.prepare("INSERT INTO wide (id, c, payload) VALUES (?, ?, ?)")
        self._delete = session.prepare("DELETE FROM plain WHERE id = ?")
        self._batch = session.prepare(
            "BEGIN UNLOGGED BATCH INSERT INTO plain (id, payload) VALUES (?, ?); "
            "INSERT INTO wide (id, c, payload) VALUES (?, 0, ?); INSERT INTO wide (id, c, payload) VALUES (?, 1, ?); "
            "APPLY BATCH"
        )

    def choose(self, number: int, random: Random) -> tuple[Any, list[Row]]:
        """A statement, and the rows that it changes."""
        text = payload(number)
        kind = random.randrange(10)
        if kind < 5:
            return self._plain.bind((number, text)), [("plain", number, 0)]
        if kind < 7:
            c = random.randrange(100)
            return self._wide.bind((number, c, text)), [("wide", number, c)]
        if kind < 8:
            return self._delete.bind((number,)), [("plain", number, 0)]
        return (
            self._batch.bind((number, text, number, text, number, text)),
            [("plain", number, 0), ("wide", number, 0), ("wide", number, 1)],
        )


@dataclass
class Found:
    """What the logs below a directory hold, read on from where the last look ended."""

    directory: Path
    rows: Counter[Row] = field(default_factory=Counter)
    # Those of them that are in the table; each number is written or deleted once.
    inserted: set[Row] = field(default_factory=set)
    # Two changes of one row that come from the same place in the commit log: the agent's doing, not the node's.
    origins: Counter[tuple[Row, str | None, int | None]] = field(default_factory=Counter)
    _after: dict[str, Position] = field(default_factory=dict)

    def look(self) -> None:
        """Read what is new. Raises AssertionError when a value is not the one that was written."""
        for table in TABLES:
            directory = self.directory / directory_name(TableId(KEYSPACE, table))
            if not (directory / "log.json").exists():
                continue
            with LogReader(str(directory)) as reader:
                for batch in reader.read(self._after.get(table, START)):
                    for number, change in enumerate(avro.decode(batch)):
                        self._take(table, change)
                        self._after[table] = Position(batch.file, batch.offset, batch.skip + number)

    def _take(self, table: str, change: Change) -> None:
        number = change.key["id"]
        row = (table, number, change.key.get("c", 0))
        if change.op is Op.INSERT:
            cell = change.cells["payload"]
            assert isinstance(cell, Set)
            assert cell.value == payload(number)
            self.inserted.add(row)
        else:
            assert (change.op, table) in ((Op.DELETE, "plain"), (Op.DELETE_PARTITION, "plain"))
            assert not change.cells
        self.rows[row] += 1
        self.origins[row, change.origin.file, change.origin.position] += 1

    def wait_for(self, rows: set[Row], within_s: float = 180) -> set[Row]:
        """Look until all rows are there; gives those that never came."""
        waiting = threading.Event()
        for _ in range(int(within_s / 0.2)):
            try:
                self.look()
            except PenstockError:
                # The log is being made by the agent that has just begun.
                pass
            if not rows - self.rows.keys():
                return set()
            waiting.wait(0.2)
        return rows - self.rows.keys()
