"""Sandbox nodes that write Cassandra's commit log: what their directories hold, read as anybody would."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from penstock.capture.cassandra.segments.segment import index_name, parse_index, segment_name
from penstock.errors import InvalidSchema
from penstock.merge.table_state import TableState, fold, visible
from penstock.model import types
from penstock.model.change import Op
from penstock.model.schema import Column, TableSchema
from penstock.sandbox.cluster import Cluster
from penstock.sandbox.commit_log.node_logs import CommitLogs, cassandra_table, table_id
from penstock.sandbox.commit_log.writer import CommitLogWriter
from penstock.sandbox.consistency import Consistency
from penstock.sandbox.workload import ORDERS, READINGS, TABLES, USERS, Workload, drive
from penstock.system.clock import SystemClock
from tests.commit_logs import read_back

OPEN = partial(CommitLogWriter, segment_bytes=1 << 18, durable=False)


def segments(logs: CommitLogs, node: str) -> list[str]:
    """The segments in a node's `cdc_raw`, oldest first."""
    _, cdc_raw = logs.directories(node)
    names = [name for name in map(segment_name, os.listdir(cdc_raw)) if name is not None]
    return [f"{cdc_raw}/{name.name}" for name in sorted(names, key=lambda name: name.id)]


def state(schema: TableSchema, logs: CommitLogs, node: str) -> TableState:
    found = read_back(segments(logs, node))
    assert found.damage == []
    return fold(schema, found.changes.get(table_id(schema.table), []))


@pytest.mark.parametrize("options", [{}, {"format": 9}, {"compression": "LZ4Compressor"}, {"format": 8, "spare": True}])
def test_folding_a_nodes_log_gives_what_the_node_holds(tmp_path: Path, options: dict[str, object]) -> None:
    logs = CommitLogs(str(tmp_path), open_writer=partial(OPEN, **options))
    cluster = Cluster(str(tmp_path), data_centres={"dc1": 2}, seed=3, open_log=logs)
    for schema in TABLES:
        cluster.create_table(schema)
    drive(cluster, Workload(seed=3, users=30, customers=5, sensors=4), 600, batch=5)
    cluster.settle()
    now = cluster.clock.now_us() // 1_000_000
    held = {(node.name, s.table): visible(node.state(s.table), now) for node in cluster.nodes.values() for s in TABLES}
    cluster.close()
    for node in cluster.nodes:
        for schema in TABLES:
            rows = visible(state(cassandra_table(schema).schema, logs, node), now)
            assert sorted(map(repr, rows)) == sorted(repr(_like(row, rows)) for row in held[node, schema.table])
    assert all(held.values())


def _like(row: dict[str, object], rows: list[dict[str, object]]) -> dict[str, object]:
    """The row with its columns in Cassandra's order."""
    return {name: row[name] for name in rows[0]} if rows else row


def test_every_node_has_its_directories_and_its_own_log(tmp_path: Path) -> None:
    logs = CommitLogs(str(tmp_path), open_writer=OPEN)
    cluster = Cluster(str(tmp_path), data_centres={"dc1": 1, "dc2": 1}, clock=SystemClock(), open_log=logs)
    cluster.create_table(USERS)
    cluster.create_table(ORDERS)
    cluster.insert(ORDERS.table, {"customer": 1, "placed": 5, "line": 0, "status": "new"}, consistency=Consistency.ALL)
    cluster.close()
    for node in ("dc1-1", "dc2-1"):
        (segment,) = segments(logs, node)
        index = Path(index_name(segment))
        found = parse_index(index.read_bytes())
        assert found is not None
        assert found.completed
        changes = read_back([segment]).changes
        assert [change.key["customer"] for change in changes[table_id(ORDERS.table)]] == [1]
        assert table_id(USERS.table) not in changes


def test_a_table_that_is_not_captured_is_logged_without_cdc(tmp_path: Path) -> None:
    logs = CommitLogs(str(tmp_path), open_writer=OPEN, captures=lambda table, _: table == ORDERS.table)
    cluster = Cluster(str(tmp_path), data_centres={"dc1": 1}, clock=SystemClock(), open_log=logs)
    cluster.create_table(READINGS)
    cluster.insert(READINGS.table, {"sensor": "s", "day": 1, "at": 1, "value": 1.0})
    cluster.close()
    (segment,) = segments(logs, "dc1-1")
    found = read_back([segment])
    table = found.schemas.by_name(READINGS.table)
    assert table is not None
    assert not table.cdc
    assert found.decoder.counts.skipped == 1
    assert not Path(index_name(segment)).exists()


def test_a_changed_schema_is_announced_before_its_first_write(tmp_path: Path) -> None:
    logs = CommitLogs(str(tmp_path), open_writer=OPEN)
    cluster = Cluster(str(tmp_path), data_centres={"dc1": 1}, clock=SystemClock(), open_log=logs)
    cluster.create_table(READINGS)
    cluster.insert(READINGS.table, {"sensor": "s", "day": 1, "at": 1, "value": 1.0})
    wider = replace(READINGS, columns=(*READINGS.columns, Column("unit", types.TEXT)), version=2)
    cluster.alter_table(wider)
    cluster.insert(READINGS.table, {"sensor": "s", "day": 1, "at": 2, "unit": "kelvin"})
    cluster.close()
    changes = read_back(segments(logs, "dc1-1")).changes[table_id(READINGS.table)]
    assert [sorted(change.cells) for change in changes] == [["value"], ["unit"]]


def test_truncate_and_restart_go_through_the_log(tmp_path: Path) -> None:
    logs = CommitLogs(str(tmp_path), open_writer=OPEN)
    cluster = Cluster(str(tmp_path), data_centres={"dc1": 1}, clock=SystemClock(), open_log=logs)
    cluster.create_table(READINGS)
    key = {"sensor": "s", "day": 1}
    cluster.insert(READINGS.table, {**key, "at": 1, "value": 1.0})
    cluster.truncate(READINGS.table)
    cluster.crash("dc1-1")
    cluster.restart("dc1-1")
    cluster.insert(READINGS.table, {**key, "at": 2, "value": 2.0})
    assert [row["at"] for row in cluster.read(READINGS.table, key)] == [2]
    cluster.close()
    commitlog, _ = logs.directories("dc1-1")
    assert len(os.listdir(commitlog)) == 1
    paths = segments(logs, "dc1-1")
    assert len(paths) == 2
    changes = read_back(paths).changes[table_id(READINGS.table)]
    assert [change.op for change in changes] == [Op.INSERT, Op.TRUNCATE, Op.INSERT]


def test_a_tick_makes_what_was_written_visible(tmp_path: Path) -> None:
    class Stopped(SystemClock):
        now = 1_700_000_000_000_000

        def now_us(self) -> int:
            return self.now

    clock = Stopped()
    logs = CommitLogs(str(tmp_path), open_writer=partial(OPEN, compression="ZstdCompressor"), clock=clock)
    cluster = Cluster(str(tmp_path), data_centres={"dc1": 1}, clock=SystemClock(), open_log=logs)
    cluster.create_table(READINGS)
    cluster.insert(READINGS.table, {"sensor": "s", "day": 1, "at": 1, "value": 1.0})
    (segment,) = segments(logs, "dc1-1")
    logs.tick()
    assert read_back([segment]).changes == {}
    clock.now += 100_000
    logs.tick()
    assert len(read_back([segment]).changes[table_id(READINGS.table)]) == 1
    assert not Path(index_name(segment)).exists()
    clock.now += 10_000_000
    logs.tick()
    assert Path(index_name(segment)).exists()
    cluster.close()


def test_types_that_cql_does_not_have_are_refused(tmp_path: Path) -> None:
    logs = CommitLogs(str(tmp_path), open_writer=OPEN)
    cluster = Cluster(str(tmp_path), data_centres={"dc1": 1}, clock=SystemClock(), open_log=logs)
    odd = replace(READINGS, columns=(*READINGS.columns, Column("odd", types.JSON)))
    with pytest.raises(InvalidSchema, match="CQL has no type json"):
        cluster.create_table(odd)
