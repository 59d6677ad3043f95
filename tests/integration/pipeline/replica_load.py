"""A load of writes on three nodes' logs, with what a reader must find in the end, for tests of `penstock pipeline`.

Each change goes to some of the nodes at once and to the others late, so the pipeline has copies to merge. Every change
carries its number as the position of its origin: these are the identities that must arrive once each.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from penstock.formats import avro
from penstock.log.names import directory_name
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.change import Change, Marker, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema

NODES = ("n1", "n2", "n3")
PATIENCE_S = 300
SCHEMA = TableSchema(
    TableId("shop", "people"),
    (Column("id", t.INT64, Role.PARTITION), Column("name", t.TEXT), Column("age", t.INT64)),
    source="cassandra",
)
_KEYS = 200
_EACH = 20
# Nobody sets it; waiting for it passes the time between two looks.
QUIET = threading.Event()

Rows = dict[int, tuple[str | None, int]]


class Load:
    """Writes in a thread until it is told to finish."""

    def __init__(self, home: Path, seed: int, pause_s: float = 0.2) -> None:
        self.rows: Rows = {}
        self.changes = 0
        self._random = Random(seed)
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._logs = {node: TableLog.open(str(home / node / "shop.people"), SCHEMA, node=node) for node in NODES}
        self._late: list[tuple[str, Change]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop, and let the last copies arrive."""
        self._stop.set()
        self._thread.join()
        for node, change in self._late:
            self._logs[node].append(avro.encode(SCHEMA, [change]))
        self._late.clear()
        for log in self._logs.values():
            log.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            changes = [self._change() for _ in range(_EACH)]
            for node in NODES:
                mine = [change for change in changes if self._random.random() < 0.8 or self._owe(node, change)]
                # What was owed for long enough arrives before what is new.
                while len(self._late) > 10 * _EACH:
                    owner, change = self._late.pop(0)
                    self._logs[owner].append(avro.encode(SCHEMA, [change]))
                if mine:
                    self._logs[node].append(avro.encode(SCHEMA, mine))
            self._stop.wait(self._pause_s)

    def _owe(self, node: str, change: Change) -> bool:
        self._late.append((node, change))
        return False

    def _change(self) -> Change:
        """The next change: mostly whole rows, some updates of one column, some deletes."""
        self.changes += 1
        number, kind = self._random.randrange(_KEYS), self._random.random()
        name, age = f"name {self.changes}", self.changes
        origin, time_ = Origin(file="log", position=self.changes), 1_000_000 + self.changes
        if kind < 0.1:
            self.rows.pop(number, None)
            return Change(Op.DELETE, {"id": number}, time=time_, origin=origin)
        if kind < 0.25:
            self.rows[number] = (self.rows.get(number, (None, 0))[0], age)
            return Change(Op.UPDATE, {"id": number}, {"age": Set(age)}, time=time_, origin=origin)
        self.rows[number] = (name, age)
        cells = {"name": Set(name), "age": Set(age)}
        return Change(Op.INSERT, {"id": number}, cells, time=time_, marker=Marker(), origin=origin)


def delivered(home: Path) -> Rows:
    """What a reader of the Delta table sees."""
    # The log's directory is there before its first version is.
    if not any((home / "lake/shop/people/_delta_log").glob("*.json")):
        return {}
    found = QueryBuilder().register("t", DeltaTable(str(home / "lake/shop/people"))).execute("SELECT * FROM t")
    rows = [row for batch in found for row in pa.record_batch(batch).to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["name"], row["age"]) for row in rows}


def identities(home: Path) -> list[int]:
    """The numbers of the changes in the files, in any order; what is hidden is not finished, and no reader sees it."""
    found = (home / "files" / directory_name(SCHEMA.table)).rglob("*.json*")
    files = [file for file in found if "_manifests" not in file.parts and not file.name.startswith(".")]
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [int(line["origin"]["position"]) for line in lines]


def wait_for(what: Callable[[], object], within_s: float = PATIENCE_S, said: Callable[[], str] = str) -> None:
    """Look until it is so; `said` tells more when it never is."""
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, f"it did not happen in time {said()}"
        QUIET.wait(0.1)
