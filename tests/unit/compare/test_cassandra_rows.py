"""Rows read over CQL: a range that cannot be read is asked for again, and no connection stays open."""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import Any

import pytest
from cassandra import InvalidRequest, OperationTimedOut, Unavailable
from cassandra.cluster import NoHostAvailable

from penstock.capture.cassandra.snapshot.encoding import Page
from penstock.compare import cassandra_rows
from penstock.compare.cassandra_rows import CassandraRows
from penstock.compare.lake_rows import LakeShape
from penstock.errors import InvalidInput, Unreachable
from penstock.formats import avro
from penstock.model import types
from penstock.model import types as t
from penstock.model.change import Change, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import AgentSettings, Settings

SCHEMA = TableSchema(TableId("k", "t"), (Column("id", types.INT64, Role.PARTITION), Column("v", types.TEXT)))


class Cluster:
    """Stands for connection, source, pages and encoder at once. `answers` are raised, or given, page by page."""

    def __init__(self) -> None:
        self.answers: list[Exception | Page] = []
        self.asked: list[int] = []
        self.open = 0
        self.schema = SCHEMA
        self.host = None
        self.pages = self.encoder = self.statement = self

    def connect(self, _: object) -> Cluster:
        self.open += 1
        return self

    def source(self, *_: object) -> Cluster:
        return self

    def close(self) -> None:
        self.open -= 1

    def tables(self) -> list[Cluster]:
        return [self]

    def reading(self, _: object) -> Cluster:
        return self

    def split(self) -> Cluster:
        return self

    def text(self, _: object) -> str:
        return ""

    def batches(self, *_: object) -> list[Any]:
        return []

    def ask(self, _text: str, rows: int, _more: object, _host: object) -> Cluster:
        self.asked.append(rows)
        return self

    def wait(self, _: object) -> Page:
        answer = self.answers.pop(0) if self.answers else Page(0, b"", None, 0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(cassandra_rows, "connect", made.connect)
    monkeypatch.setattr(cassandra_rows, "SnapshotSource", made.source)
    monkeypatch.setattr(cassandra_rows, "_SPLITS", 1)
    return made


def rows_of(waits: list[float]) -> CassandraRows:
    return CassandraRows(Settings(), SCHEMA.table, LakeShape(), wait=waits.append)


def test_range_is_asked_for_again_with_smaller_pages_when_the_node_is_slow(cluster: Cluster) -> None:
    waits: list[float] = []
    cluster.answers = [OperationTimedOut(), Unavailable("no"), NoHostAvailable("away", {})]
    assert list(rows_of(waits).images()) == []
    assert cluster.asked == [200, 100, 100, 100]
    assert waits == [0.5, 1.0, 2.0]


def test_pages_grow_while_rows_are_small_and_shrink_when_they_are_large(cluster: Cluster) -> None:
    pages = [(200, 1000), (400, 1000), (800, 16 << 20), (5, 1000)]
    cluster.answers = [Page(rows, b"x" * size, b"more", 0) for rows, size in pages]
    assert list(rows_of([]).images()) == []
    assert cluster.asked == [200, 400, 800, 200, 200]


def test_cluster_that_stays_away_is_an_error(cluster: Cluster) -> None:
    waits: list[float] = []
    cluster.answers = [NoHostAvailable("away", {})] * 10
    with pytest.raises(Unreachable, match=r"a token range cannot be read.*table k\.t"):
        list(rows_of(waits).images())
    assert len(waits) == 9
    assert max(waits) == 30.0


def test_table_that_changes_under_our_hands_is_told_at_once(cluster: Cluster) -> None:
    waits: list[float] = []
    cluster.answers = [InvalidRequest("no such column")]
    with pytest.raises(InvalidInput, match="has changed while it was read"):
        list(rows_of(waits).images())
    assert waits == []


def test_connection_is_closed_also_when_the_table_is_not_there(cluster: Cluster) -> None:
    rows_of([]).close()
    assert cluster.open == 0
    with pytest.raises(InvalidInput, match="no such table"):
        CassandraRows(Settings(), TableId("k", "other"), LakeShape())
    assert cluster.open == 0


def test_what_agents_leave_out_or_hide_is_left_out_and_hidden(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (*SCHEMA.key, Column("name", t.TEXT), Column("note", t.TEXT))
    cluster.schema = replace(SCHEMA, columns=columns)
    key = {column.name: 1 for column in SCHEMA.key}
    change = Change(Op.SNAPSHOT, key, {"name": Set("n"), "note": Set("secret")}, time=5, marker=Marker())
    monkeypatch.setattr(cluster, "batches", lambda *_: [avro.encode(cluster.schema, [change])])
    agent = AgentSettings(exclude_columns=("k.t.note",), masks={"k.t.name": "hash"}, mask_salt="salt")
    rows = CassandraRows(Settings(agent=agent), SCHEMA.table, LakeShape())
    assert (rows.left_out, rows.masked) == (("note",), ("name",))
    (found,) = [image for images in rows.images() for image in images.to_pylist()]
    assert "note" not in found
    assert found["name"] == hmac.new(b"salt", b"n", "sha256").hexdigest()
