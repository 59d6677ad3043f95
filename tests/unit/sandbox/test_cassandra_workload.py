"""The workload for a real node, with a session in its place that answers as it is told."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import NoHostAvailable

from penstock.errors import Unreachable
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model import types
from penstock.model.change import Change, Deletion, Marker, Op, Set
from penstock.model.schema import Column, Role, TableSchema
from penstock.sandbox.cassandra_workload import READINGS, TABLES, Load, compare, statements

SCHEMA = TableSchema(
    READINGS,
    (Column("sensor", types.TEXT, Role.PARTITION), Column("value", types.FLOAT64)),
    source="cassandra",
)


class Future:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def add_callbacks(self, done: Callable[[object], None], failed: Callable[[Exception], None]) -> None:
        if self._error is None:
            done(None)
        else:
            failed(self._error)


class Session:
    """Takes every statement; refuses each `refuse`th asynchronous one."""

    def __init__(self, rows: list[str] | Exception | None = None, refuse: int = 0) -> None:
        self.rows = rows or []
        self.texts: list[str] = []
        self._refuse = refuse
        self._sent = 0

    def prepare(self, text: str) -> str:
        return text

    def execute(self, text: str, values: object = ()) -> list[tuple[str]]:
        self.texts.append(text)
        if isinstance(self.rows, Exception):
            raise self.rows
        return [(row,) for row in self.rows]

    def execute_async(self, text: str, values: object) -> Future:
        self.texts.append(text)
        self._sent += 1
        refused = self._refuse and self._sent % self._refuse == 0
        return Future(NoHostAvailable("down", {}) if refused else None)


def load(session: Session, seed: int = 1) -> Load:
    return Load(session, seed, window=4)


def test_same_seed_gives_the_same_writes() -> None:
    def some(seed: int) -> list[Any]:
        return list(itertools.islice(statements(seed), 500))

    assert some(1) == some(1) != some(2)
    assert len({name for name, _ in some(1)}) == 11


def test_tables_are_made_with_change_data_capture_and_a_row_each() -> None:
    session = Session()
    made = load(session)
    made.create()
    created = [text for text in session.texts if text.startswith("CREATE TABLE")]
    assert len(created) == len(TABLES) == made.acknowledged
    assert all("cdc = true" in text for text in created)


def test_refused_writes_are_counted_apart_and_free_their_place() -> None:
    made = load(Session(refuse=5))
    made.create()
    made.write(100)
    made.settle()
    assert (made.acknowledged, made.refused) == (80 + len(TABLES), 20)


def test_node_that_goes_away_is_told_in_one_error() -> None:
    made = load(Session(NoHostAvailable("down", {})))
    with pytest.raises(Unreachable, match="the demo's tables could not be made"):
        made.create()


def test_rows_that_differ_are_counted_on_both_sides(tmp_path: Path) -> None:
    changes = [
        Change(Op.INSERT, {"sensor": "a"}, {"value": Set(1.5)}, time=10, marker=Marker()),
        Change(Op.INSERT, {"sensor": "b"}, {"value": Set(2.5)}, time=10, marker=Marker()),
        Change(Op.DELETE, {"sensor": "b"}, time=20, deletion=Deletion(20)),
        Change(Op.INSERT, {"sensor": "c"}, {"value": Set(3.0)}, time=10, marker=Marker()),
    ]
    with TableLog.open(str(tmp_path / "log"), SCHEMA) as log:
        log.append(avro.encode(SCHEMA, changes))
    same = ['{"sensor": "a", "value": 1.5}', '{"sensor": "c", "value": 3.0}']
    equal = compare(Session(same), READINGS, str(tmp_path / "log"))
    assert equal.equal
    assert (equal.changes, equal.rows) == (4, 2)
    other = compare(Session([same[0], '{"sensor": "c", "value": 3.5}', "{}"]), READINGS, str(tmp_path / "log"))
    assert not other.equal
    assert (other.rows, other.missing, other.invented) == (3, 2, 1)
    with pytest.raises(Unreachable, match="did not give its rows"):
        compare(Session(NoHostAvailable("down", {})), READINGS, str(tmp_path / "log"))
