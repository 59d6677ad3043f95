"""The demo's workload: a small web shop that orders, ships, tags and cancels. All of it comes from one seed.

Customers and orders are few enough that rows are written many times over, as in a real table, and that memory stays
bounded however long the demo runs.
"""

from __future__ import annotations

import decimal
from random import Random

from penstock.model import types as t
from penstock.model.change import Bound
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.sandbox.statements import (
    Add,
    Delete,
    DeletePartition,
    DeleteRange,
    Insert,
    Remove,
    Statement,
    Update,
)

TABLE = TableId("shop", "orders")
SCHEMA = TableSchema(
    TABLE,
    (
        Column("customer", t.INT64, Role.PARTITION),
        Column("number", t.INT32, Role.CLUSTERING),
        Column("name", t.TEXT, Role.STATIC),
        Column("status", t.TEXT),
        Column("total", t.DECIMAL),
        Column("tags", t.set_of(t.TEXT, multi_cell=True)),
        Column("note", t.TEXT),
    ),
    source="sandbox",
)

_CUSTOMERS = 400
_ORDERS = 12
_STATUSES = ("paid", "packed", "shipped", "delivered", "returned")
_TAGS = ("gift", "express", "fragile", "b2b", "repeat")
_NAMES = ("Ada", "Björn", "Chidi", "Dana", "Emre", "Farah", "Goro", "Hana")
# A day; an offer that nobody took is gone tomorrow.
_OFFER_TTL_S = 86400
_KINDS = {
    "order": 50,
    "offer": 5,
    "progress": 25,
    "tag": 6,
    "untag": 2,
    "rename": 3,
    "clear": 3,
    "cancel": 4,
    "cancel_newest": 1,
    "forget": 1,
}


class Shop:
    """An endless run of statements."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"shop/{seed}")
        self._kinds = tuple(_KINDS)
        self._weights = tuple(_KINDS.values())

    def take(self, count: int) -> list[Statement]:
        """The next statements."""
        return [self._statement(kind) for kind in self._random.choices(self._kinds, self._weights, k=count)]

    def _statement(self, kind: str) -> Statement:
        random = self._random
        customer = {"customer": random.randrange(_CUSTOMERS)}
        row = {**customer, "number": random.randrange(_ORDERS)}
        match kind:
            case "order":
                return Insert(TABLE, {**row, "status": "new", "total": self._price(), "tags": (random.choice(_TAGS),)})
            case "offer":
                return Insert(TABLE, {**row, "status": "offer", "total": self._price()}, ttl_s=_OFFER_TTL_S)
            case "progress":
                return Update(TABLE, row, {"status": random.choice(_STATUSES)})
            case "tag":
                return Update(TABLE, row, {"tags": Add((random.choice(_TAGS),))})
            case "untag":
                return Update(TABLE, row, {"tags": Remove((random.choice(_TAGS),))})
            case "rename":
                return Update(TABLE, customer, {"name": random.choice(_NAMES)})
            case "clear":
                return Delete(TABLE, row, ("note",))
            case "cancel":
                return Delete(TABLE, row)
            case "cancel_newest":
                return DeleteRange(TABLE, customer, start=Bound((row["number"],), True))
        return DeletePartition(TABLE, customer)

    def _price(self) -> decimal.Decimal:
        return decimal.Decimal(self._random.randrange(100, 50_000)).scaleb(-2)
