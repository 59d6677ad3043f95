"""Workload: a seeded stream of statements over three tables that look like an application's.

`shop.users` has non-frozen collections, `shop.orders` clustering in descending order and a static column, and
`shop.readings` a time to live. The mix has inserts, updates of one cell, growing and shrinking collections, and deletes
of cells, rows, ranges and partitions; now and then (if asked for) a truncation. `drive` sends it to a cluster with
several requests under way at once. What was acknowledged stands in the cluster's history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import islice
from random import Random
from uuid import UUID

from penstock.errors import Unavailable
from penstock.model import types
from penstock.model.change import Bound
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Unit
from penstock.sandbox.cluster import Cluster
from penstock.sandbox.consistency import Consistency
from penstock.sandbox.operation import Operation
from penstock.sandbox.statements import (
    Add,
    Delete,
    DeletePartition,
    DeleteRange,
    Insert,
    Remove,
    Statement,
    Truncate,
    Update,
)

USERS = TableSchema(
    TableId("shop", "users"),
    (
        Column("id", types.UUID, Role.PARTITION),
        Column("name", types.TEXT),
        Column("email", types.TEXT),
        Column("age", types.INT32),
        Column("tags", types.set_of(types.TEXT, multi_cell=True)),
        Column("settings", types.map_of(types.TEXT, types.TEXT, multi_cell=True)),
        Column("visits", types.list_of(types.INT64, multi_cell=True)),
    ),
    source="sandbox",
)
ORDERS = TableSchema(
    TableId("shop", "orders"),
    (
        Column("customer", types.INT32, Role.PARTITION),
        Column("placed", types.timestamp(Unit.MS), Role.CLUSTERING, descending=True),
        Column("line", types.INT16, Role.CLUSTERING),
        Column("customer_name", types.TEXT, Role.STATIC),
        Column("amount", types.DECIMAL),
        Column("status", types.TEXT),
        Column("items", types.list_of(types.TEXT)),
    ),
    source="sandbox",
)
READINGS = TableSchema(
    TableId("shop", "readings"),
    (
        Column("sensor", types.TEXT, Role.PARTITION),
        Column("day", types.DATE, Role.PARTITION),
        Column("at", types.timestamp(Unit.MS), Role.CLUSTERING),
        Column("value", types.FLOAT64),
        Column("quality", types.INT8),
    ),
    source="sandbox",
)
TABLES = (USERS, ORDERS, READINGS)

_DAY_MS = 86_400_000
_DAY_ZERO = 19_675
_PLACED_ZERO = _DAY_ZERO * _DAY_MS
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty")
_STATUS = ("placed", "paid", "packed", "sent", "returned")


@dataclass
class Workload:
    """An endless stream of statements; equal seeds give equal streams."""

    seed: int = 0
    # Fewer keys mean more writes to the same cell.
    users: int = 10_000
    customers: int = 1_000
    sensors: int = 200
    ttl_s: int = 3600
    # How many statements of a thousand delete something.
    deletes_per_mille: int = 60
    truncates: bool = False
    _random: Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = Random(f"workload/{self.seed}")  # noqa: S311 - seeded, to be repeated

    def statements(self) -> Iterator[Statement]:
        """One after another, for ever."""
        makers: Sequence[Callable[[], Statement]] = (self._user, self._order, self._reading, self._reading)
        deleters: Sequence[Callable[[], Statement]] = (self._user_delete, self._order_delete, self._reading_delete)
        pick = self._random
        while True:
            deletes = pick.randrange(1000) < self.deletes_per_mille
            yield pick.choice(deleters)() if deletes else pick.choice(makers)()
            if self.truncates and pick.randrange(2000) == 0:
                yield Truncate(pick.choice(TABLES).table)

    def _user(self) -> Statement:
        pick = self._random
        key = {"id": self._user_id()}
        kind = pick.randrange(6)
        if kind < 2:
            name = f"{pick.choice(_WORDS)} {pick.choice(_WORDS)}"
            values = {
                "name": name,
                "email": f"{name.replace(' ', '.')}@example.org",
                "age": pick.randrange(18, 99),
                "tags": tuple(sorted(set(pick.choices(_WORDS, k=3)))),
                "settings": {"theme": pick.choice(("dark", "light")), "language": pick.choice(("en", "de", "fr"))},
            }
            return Insert(USERS.table, key | values)
        if kind == 2:
            return Update(USERS.table, key, {"email": f"{pick.choice(_WORDS)}@example.org"})
        if kind == 3:
            change = Add((pick.choice(_WORDS),)) if pick.random() < 0.7 else Remove((pick.choice(_WORDS),))
            return Update(USERS.table, key, {"tags": change})
        if kind == 4:
            return Update(USERS.table, key, {"settings": Add(((pick.choice(_WORDS), pick.choice(_WORDS)),))})
        return Update(USERS.table, key, {"visits": Add((pick.randrange(1 << 40),))}, ttl_s=self.ttl_s)

    def _order(self) -> Statement:
        pick = self._random
        customer = pick.randrange(self.customers)
        key = {"customer": customer, "placed": self._placed(), "line": pick.randrange(4)}
        kind = pick.randrange(5)
        if kind < 3:
            values = {
                "amount": Decimal(pick.randrange(1, 100_000)).scaleb(-2),
                "status": "placed",
                "items": tuple(pick.choices(_WORDS, k=pick.randrange(1, 4))),
            }
            return Insert(ORDERS.table, key | values)
        if kind == 3:
            return Update(ORDERS.table, key, {"status": pick.choice(_STATUS)})
        return Update(ORDERS.table, {"customer": customer}, {"customer_name": pick.choice(_WORDS)})

    def _reading(self) -> Statement:
        pick = self._random
        values = {"at": self._at(), "value": round(pick.gauss(20, 5), 3), "quality": pick.randrange(-1, 4)}
        return Insert(READINGS.table, self._sensor() | values, ttl_s=self.ttl_s)

    def _user_delete(self) -> Statement:
        key = {"id": self._user_id()}
        if self._random.random() < 0.5:
            column = self._random.choice(("email", "age", "tags", "settings"))
            return Delete(USERS.table, key, (column,))
        return Delete(USERS.table, key)

    def _order_delete(self) -> Statement:
        pick = self._random
        key = {"customer": pick.randrange(self.customers)}
        kind = pick.randrange(3)
        if kind == 0:
            return Delete(ORDERS.table, key | {"placed": self._placed(), "line": pick.randrange(4)})
        if kind == 1:
            newest, oldest = sorted((self._placed(), self._placed()), reverse=True)
            start, end = Bound((newest,), inclusive=True), Bound((oldest,), inclusive=False)
            return DeleteRange(ORDERS.table, key, start if pick.random() < 0.8 else None, end)
        return DeletePartition(ORDERS.table, key)

    def _reading_delete(self) -> Statement:
        start, end = sorted((self._at(), self._at()))
        return DeleteRange(READINGS.table, self._sensor(), Bound((start,), True), Bound((end,), False))

    def _user_id(self) -> UUID:
        return UUID(int=0x5EED << 112 | self._random.randrange(self.users), version=4)

    def _placed(self) -> int:
        return _PLACED_ZERO + self._random.randrange(64) * 60_000

    def _sensor(self) -> dict[str, object]:
        return {"sensor": f"sensor-{self._random.randrange(self.sensors):04d}", "day": _DAY_ZERO}

    def _at(self) -> int:
        return _PLACED_ZERO + self._random.randrange(_DAY_MS // 1000) * 1000


# What a client asks for, most often a quorum.
LEVELS = (
    Consistency.QUORUM,
    Consistency.QUORUM,
    Consistency.LOCAL_QUORUM,
    Consistency.ONE,
    Consistency.ALL,
    Consistency.EACH_QUORUM,
)


def drive(
    cluster: Cluster,
    workload: Workload,
    count: int,
    *,
    batch: int = 1,
    in_flight: int = 8,
    pause_us: int = 0,
    levels: Sequence[Consistency] = LEVELS,
) -> None:
    """Send `count` statements, `batch` to a request, with several requests under way and a pause before each.

    A refusal is no error here: it stands in the cluster's history.
    """
    pick = Random(f"drive/{workload.seed}")  # noqa: S311 - seeded, to be repeated
    stream = workload.statements()
    under_way: list[Operation] = []
    left = count
    while left > 0:
        statements = list(islice(stream, min(batch, left)))
        left -= len(statements)
        if pause_us:
            cluster.run_for(pause_us)
        try:
            under_way.append(cluster.start(statements, consistency=pick.choice(levels)))
        except Unavailable:
            # Every node is down. Time must pass before anyone comes back.
            cluster.run_for(100_000)
        under_way = [operation for operation in under_way if not operation.done]
        if len(under_way) >= in_flight:
            cluster.run_until(partial(_any_done, tuple(under_way)))
    cluster.run_until(partial(_all_done, tuple(under_way)))


def _any_done(operations: tuple[Operation, ...]) -> bool:
    return any(operation.done for operation in operations)


def _all_done(operations: tuple[Operation, ...]) -> bool:
    return all(operation.done for operation in operations)
