"""A workload for a real Cassandra, and the proof that its log tells the same story as the node.

The three tables are those of the sandbox's own workload, as CQL. `Load` writes to them with several requests under way
at once and counts what was acknowledged. `compare` folds the change logs of the tables and asks the node for all rows:
both must be the same to the letter of `SELECT JSON`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.capture.cassandra.decoding import select_json
from penstock.capture.cassandra.node import connection
from penstock.errors import Unreachable
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.merge.table_state import TableState, visible
from penstock.model.schema import TableId

if TYPE_CHECKING:
    from cassandra.cluster import ResponseFuture, Session

USERS, ORDERS, READINGS = (TableId("shop", name) for name in ("users", "orders", "readings"))
TABLES = (USERS, ORDERS, READINGS)
DEFINITIONS = (
    "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    """CREATE TABLE shop.users (id uuid PRIMARY KEY, name text, email text, age int, tags set<text>,
        settings map<text, text>) WITH cdc = true""",
    """CREATE TABLE shop.orders (customer int, placed timestamp, line smallint, customer_name text static,
        amount decimal, status text, PRIMARY KEY (customer, placed, line))
        WITH CLUSTERING ORDER BY (placed DESC, line ASC) AND cdc = true""",
    "CREATE TABLE shop.readings (sensor text, at timestamp, value double, PRIMARY KEY (sensor, at)) WITH cdc = true",
)
_STATEMENTS = {
    "user": "INSERT INTO shop.users (id, name, email, age) VALUES (?, ?, ?, ?)",
    "age": "UPDATE shop.users SET age = ? WHERE id = ?",
    "tag": "UPDATE shop.users SET tags = tags + ?, settings[?] = ? WHERE id = ?",
    "untag": "UPDATE shop.users SET tags = tags - ? WHERE id = ?",
    "leave": "DELETE FROM shop.users WHERE id = ?",
    "order": "INSERT INTO shop.orders (customer, placed, line, amount, status) VALUES (?, ?, ?, ?, 'new')",
    "ship": "UPDATE shop.orders SET status = 'shipped' WHERE customer = ? AND placed = ? AND line = ?",
    "rename": "UPDATE shop.orders SET customer_name = ? WHERE customer = ?",
    "cancel": "DELETE FROM shop.orders WHERE customer = ? AND placed = ? AND line = ?",
    "forget": "DELETE FROM shop.orders WHERE customer = ? AND placed < ?",
    "reading": "INSERT INTO shop.readings (sensor, at, value) VALUES (?, ?, ?) USING TTL 2592000",
    "last": "INSERT INTO shop.readings (sensor, at, value) VALUES ('last', ?, 0) USING TIMESTAMP ?",
}
_WEIGHTS = {
    "user": 10, "age": 10, "tag": 12, "untag": 3, "leave": 1, "order": 20, "ship": 10, "rename": 3, "cancel": 2,
    "forget": 1, "reading": 28,
}  # fmt: skip
_USERS, _CUSTOMERS, _SENSORS, _MOMENTS = 500, 100, 20, 50
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_WAIT_S = 30.0


@dataclass
class Load:
    """Writes of one seed, as many at once as `window` says. Counts are read by another thread."""

    session: Session
    seed: int
    window: int = 64
    acknowledged: int = 0
    refused: int = 0
    _prepared: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._room = threading.BoundedSemaphore(self.window)
        self._statements = statements(self.seed)

    def create(self) -> None:
        """Make the tables, and write a first row to each."""
        try:
            for definition in DEFINITIONS:
                self.session.execute(definition)
            self._prepared = {name: self.session.prepare(text) for name, text in _STATEMENTS.items()}
            moment = _BEGIN - timedelta(days=1)
            self._await("user", (uuid.UUID(int=0), "Eve", "eve@example.com", 30))
            self._await("order", (0, moment, 1, Decimal("9.99")))
            self._await("reading", ("first", moment, 20.5))
        except connection.driver_errors() as error:
            raise Unreachable(f"the demo's tables could not be made: {connection.reason(error)}") from error

    def write(self, count: int) -> None:
        """Send so many writes; waits while too many are under way."""
        for _ in range(count):
            name, values = next(self._statements)
            self._room.acquire()
            future: ResponseFuture = self.session.execute_async(self._prepared[name], values)
            future.add_callbacks(self._accepted, self._refused)

    def settle(self) -> None:
        """Wait until no write is under way."""
        for _ in range(self.window):
            self._room.acquire(timeout=_WAIT_S)
        for _ in range(self.window):
            self._room.release()

    def last_write(self) -> int:
        """Write one more row and give its write time: what was acknowledged before stands before it in the log."""
        # Ahead of all others, also of those that the driver numbered on within one microsecond.
        time_us = time.time_ns() // 1000 + 1_000_000
        try:
            self._await("last", (_BEGIN, time_us))
        except connection.driver_errors() as error:
            raise Unreachable(f"the last write failed: {connection.reason(error)}") from error
        return time_us

    def _await(self, name: str, values: tuple[Any, ...]) -> None:
        self.session.execute(self._prepared[name], values)
        with self._lock:
            self.acknowledged += 1

    def _accepted(self, _: object) -> None:
        with self._lock:
            self.acknowledged += 1
        self._room.release()

    def _refused(self, _: Exception) -> None:
        with self._lock:
            self.refused += 1
        self._room.release()


def statements(seed: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Names and values of prepared statements, without end."""
    random = Random(f"cassandra/{seed}")  # noqa: S311 - seeded, to be repeated
    names, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    while True:
        name = random.choices(names, weights)[0]
        user = uuid.UUID(int=random.randrange(_USERS) + 1)
        customer = random.randrange(_CUSTOMERS) + 1
        placed = _BEGIN + timedelta(hours=random.randrange(_MOMENTS))
        line = random.randrange(5)
        values: Mapping[str, tuple[Any, ...]] = {
            "user": (user, f"user {user.int}", f"user{user.int}@example.com", random.randrange(18, 90)),
            "age": (random.randrange(18, 90), user),
            "tag": ({random.choice(["new", "vip", "late"])}, random.choice(["theme", "language"]), "set", user),
            "untag": ({random.choice(["new", "vip", "late"])}, user),
            "leave": (user,),
            "order": (customer, placed, line, Decimal(random.randrange(100, 99_999)) / 100),
            "ship": (customer, placed, line),
            "rename": (f"customer {random.randrange(1000)}", customer),
            "cancel": (customer, placed, line),
            "forget": (customer, placed),
            "reading": (f"sensor-{random.randrange(_SENSORS)}", placed, random.uniform(-20, 40)),
        }
        yield name, values[name]


@dataclass(frozen=True)
class Comparison:
    """How one table's folded log compares with what the node selects."""

    table: TableId
    changes: int
    rows: int
    # Rows that only the node has, and rows that only the folded log has.
    missing: int
    invented: int

    @property
    def equal(self) -> bool:
        return not self.missing and not self.invented


def compare(session: Session, table: TableId, directory: str) -> Comparison:
    """Fold the log in this directory, and ask the node."""
    now_s = int(time.time())
    state: TableState | None = None
    changes = 0
    with LogReader(directory) as log:
        for batch in log.read():
            if state is None:
                state = TableState(batch.schema)
            for change in avro.decode(batch):
                state.apply(change)
                changes += 1
    ours = set() if state is None else {_text(state, row) for row in visible(state, now_s)}
    try:
        theirs = {row[0] for row in session.execute(f"SELECT JSON * FROM {table}")}  # noqa: S608 - our own names
    except connection.driver_errors() as error:
        raise Unreachable(f"the node did not give its rows: {connection.reason(error)}") from error
    return Comparison(table, changes, len(theirs), len(theirs - ours), len(ours - theirs))


def _text(state: TableState, row: Mapping[str, Any]) -> str:
    columns = state.schema.columns
    cells = (f"{select_json.text(c.name)}: {select_json.value_text(c.type, row[c.name])}" for c in columns)
    return "{" + ", ".join(cells) + "}"
