"""The cluster by example: what is written is read, what misses its level is refused, and logs come first."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import InvalidInput, InvalidSchema, InvalidStatement, StorageError, Unavailable
from penstock.merge.table_state import visible
from penstock.model import types
from penstock.model.batch import ChangeBatch
from penstock.model.change import Bound, Change
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.sandbox.checker import LogPlace, check, read_changes
from penstock.sandbox.cluster import Cluster
from penstock.sandbox.consistency import Consistency
from penstock.sandbox.node_log import LoggingNode, NodeLog, log_directory
from penstock.sandbox.statements import Add, Insert, Update
from penstock.settings import Acknowledge, LogSettings
from penstock.system.clock import SystemClock
from testkit.crash_files import CrashFile, CrashFiles
from testkit.faults import power_loss

T = TableId("ks", "t")
SCHEMA = TableSchema(
    T,
    (
        Column("p", types.INT32, Role.PARTITION),
        Column("c", types.INT32, Role.CLUSTERING),
        Column("v", types.INT32),
        Column("m", types.map_of(types.TEXT, types.INT32, multi_cell=True)),
    ),
)


class BrokenFiles(CrashFiles):
    """A disk that refuses to sync while it is broken."""

    broken = False

    def enter(self, name: str, path: str, *, step: bool = False) -> Any:
        if self.broken and name == "sync":
            raise OSError(errno.EIO, "input/output error", path)
        return super().enter(name, path, step=step)


def make(**options: Any) -> Cluster:
    options.setdefault("data_centres", {"dc1": 3})
    options.setdefault("disks", lambda _: CrashFiles())
    cluster = Cluster("/logs", **options)
    cluster.create_table(SCHEMA)
    return cluster


def place(cluster: Cluster, node: str) -> LogPlace:
    return LogPlace(node, T, log_directory("/logs", node, T), cluster.nodes[node].files)


def logged(cluster: Cluster, node: str) -> list[Change]:
    return list(read_changes(place(cluster, node)))


def values(rows: list[dict[str, Any]]) -> dict[int, Any]:
    return {row["c"]: row["v"] for row in rows}


def noticed(cluster: Cluster) -> None:
    """Let enough time pass for a crash to be noticed."""
    cluster.run_for(1_000_000)


def test_what_is_written_is_read() -> None:
    cluster = make()
    cluster.insert(T, {"p": 1, "c": 1, "v": 10, "m": {"a": 1}})
    cluster.update(T, {"p": 1, "c": 2}, {"v": 20, "m": Add((("b", 2),))})
    cluster.insert(T, {"p": 1, "c": 3, "v": 30}, ttl_s=60)
    assert values(cluster.read(T, {"p": 1})) == {1: 10, 2: 20, 3: 30}
    cluster.delete(T, {"p": 1, "c": 1}, ("v",))
    cluster.delete(T, {"p": 1, "c": 2})
    assert values(cluster.read(T, {"p": 1}, consistency=Consistency.ALL)) == {1: None, 3: 30}
    cluster.run_for(61_000_000)
    assert values(cluster.read(T, {"p": 1})) == {1: None}
    cluster.delete_range(T, {"p": 1}, Bound((0,), True), Bound((2,), True))
    assert cluster.read(T, {"p": 1}) == []


def test_partitions_and_tables_are_deleted_as_a_whole() -> None:
    cluster = make()
    for p in (1, 2, 3):
        cluster.insert(T, {"p": p, "c": 1, "v": p})
    cluster.delete_partition(T, {"p": 1})
    assert [row["p"] for row in visible(cluster.scan_state(T), 0)] == [2, 3]
    cluster.truncate(T)
    assert visible(cluster.scan_state(T), 0) == []
    cluster.insert(T, {"p": 4, "c": 1, "v": 4})
    assert [row["p"] for row in visible(cluster.scan_state(T), 0)] == [4]


def test_timestamps_of_clients_decide_over_the_order_of_arrival() -> None:
    cluster = make()
    cluster.insert(T, {"p": 1, "c": 1, "v": 2}, timestamp=2000)
    cluster.insert(T, {"p": 1, "c": 1, "v": 1}, timestamp=1000)
    assert values(cluster.read(T, {"p": 1})) == {1: 2}


def test_a_coordinator_whose_clock_is_behind_loses_to_an_earlier_write() -> None:
    cluster = make()
    cluster.nodes["dc1-2"].clock.skew_us = -5_000_000
    cluster.insert(T, {"p": 1, "c": 1, "v": 1}, coordinator="dc1-1")
    cluster.insert(T, {"p": 1, "c": 1, "v": 2}, coordinator="dc1-2")
    assert values(cluster.read(T, {"p": 1})) == {1: 1}


def test_every_replica_logs_each_change_before_it_counts() -> None:
    cluster = make()
    cluster.insert(T, {"p": 1, "c": 1, "v": 10}, consistency=Consistency.ALL, coordinator="dc1-2")
    for node in cluster.nodes:
        (change,) = logged(cluster, node)
        assert change.key == {"p": 1, "c": 1}
        assert change.origin.node == "dc1-2"


def test_too_few_live_replicas_is_refused_at_once_and_nothing_is_sent() -> None:
    cluster = make()
    cluster.crash("dc1-1")
    cluster.crash("dc1-2")
    noticed(cluster)
    before = cluster.loop.now_us()
    with pytest.raises(Unavailable, match="not enough live replicas") as caught:
        cluster.insert(T, {"p": 1, "c": 1, "v": 1}, consistency=Consistency.QUORUM)
    assert caught.value.place["required"] == 2
    assert caught.value.place["acknowledged"] == 1
    assert cluster.loop.now_us() == before
    assert logged(cluster, "dc1-3") == []
    cluster.insert(T, {"p": 1, "c": 1, "v": 1}, consistency=Consistency.ONE)
    with pytest.raises(Unavailable, match="not enough live replicas"):
        cluster.read(T, {"p": 1}, consistency=Consistency.QUORUM)


def test_silence_is_a_timeout_and_the_write_may_still_take_effect() -> None:
    cluster = make()
    cluster.network.cut(["dc1-1"], ["dc1-2", "dc1-3"])
    before = cluster.loop.now_us()
    with pytest.raises(Unavailable, match="timed out") as caught:
        cluster.insert(T, {"p": 1, "c": 1, "v": 1}, coordinator="dc1-1")
    assert caught.value.place["acknowledged"] == 1
    assert cluster.loop.now_us() - before == 2_000_000
    with pytest.raises(Unavailable):
        cluster.read(T, {"p": 1}, coordinator="dc1-1")
    cluster.network.mend()
    assert cluster.hints == 2
    assert cluster.settle()
    assert [len(logged(cluster, node)) for node in cluster.nodes] == [1, 1, 1]


def test_a_coordinator_that_goes_down_leaves_its_client_without_an_answer() -> None:
    cluster = make()
    operation = cluster.start([Insert(T, {"p": 1, "c": 1, "v": 1})], coordinator="dc1-1")
    cluster.crash("dc1-1")
    with pytest.raises(Unavailable, match="the coordinator went down"):
        cluster.wait(operation)
    with pytest.raises(Unavailable, match="the coordinator is down"):
        cluster.insert(T, {"p": 1, "c": 1, "v": 1}, coordinator="dc1-1")
    for node in ("dc1-2", "dc1-3"):
        cluster.crash(node)
    with pytest.raises(Unavailable, match="every node is down"):
        cluster.insert(T, {"p": 1, "c": 1, "v": 1})


def test_a_replica_that_cannot_log_fails_its_write() -> None:
    disks: dict[str, BrokenFiles] = {}

    def disk(name: str) -> BrokenFiles:
        return disks.setdefault(name, BrokenFiles())

    cluster = make(disks=disk)
    disks["dc1-1"].broken = True
    cluster.insert(T, {"p": 1, "c": 1, "v": 1}, consistency=Consistency.QUORUM)
    with pytest.raises(Unavailable, match="too many replicas failed") as caught:
        cluster.insert(T, {"p": 1, "c": 2, "v": 1}, consistency=Consistency.ALL)
    assert caught.value.place["required"] == 3
    disks["dc1-2"].broken = True
    with pytest.raises(Unavailable, match="too many replicas failed"):
        cluster.insert(T, {"p": 1, "c": 3, "v": 1}, consistency=Consistency.QUORUM)
    # What failed is not in memory either, so no read shows what a crash would lose.
    assert cluster.nodes["dc1-1"].state(T).partitions == {}
    # A failed sync is final for an open log; after a restart, hints bring what was missed.
    for name in ("dc1-1", "dc1-2"):
        disks[name].broken = False
        cluster.crash(name, power_loss(1))
        cluster.restart(name)
    assert cluster.settle()
    assert values(cluster.read(T, {"p": 1}, consistency=Consistency.ALL)) == {1: 1, 2: 1, 3: 1}
    assert {change.key["c"] for change in logged(cluster, "dc1-1")} == {1, 2, 3}


def test_hints_bring_a_node_up_to_date_after_it_was_down() -> None:
    cluster = make()
    cluster.crash("dc1-3")
    noticed(cluster)
    for c in range(5):
        cluster.insert(T, {"p": 1, "c": c, "v": c})
    assert cluster.hints == 5
    cluster.restart("dc1-3")
    assert cluster.settle()
    assert cluster.hints == 0
    assert len(logged(cluster, "dc1-3")) == 5


def test_after_the_hint_window_only_a_read_repairs() -> None:
    cluster = make(hint_window_us=5_000_000)
    cluster.crash("dc1-3")
    cluster.run_for(6_000_000)
    cluster.insert(T, {"p": 1, "c": 1, "v": 1})
    assert cluster.hints == 0
    cluster.restart("dc1-3")
    assert cluster.settle()
    assert logged(cluster, "dc1-3") == []
    assert values(cluster.read(T, {"p": 1}, consistency=Consistency.ALL)) == {1: 1}
    assert [change.key["c"] for change in logged(cluster, "dc1-3")] == [1]
    cluster.read(T, {"p": 1}, consistency=Consistency.ALL)
    assert len(logged(cluster, "dc1-3")) == 1, "what is repaired is not repaired again"


def test_any_is_content_with_a_hint() -> None:
    cluster = make(data_centres={"dc1": 2}, replication={"dc1": 1})
    key = next(p for p in range(100) if cluster.ring.replicas(p.to_bytes(4, "big"), cluster.replication) == ("dc1-2",))
    cluster.crash("dc1-2")
    noticed(cluster)
    with pytest.raises(Unavailable):
        cluster.insert(T, {"p": key, "c": 1, "v": 1}, consistency=Consistency.ONE)
    cluster.insert(T, {"p": key, "c": 2, "v": 1}, consistency=Consistency.ANY)
    cluster.restart("dc1-2")
    assert cluster.settle()
    assert values(cluster.read(T, {"p": key}, consistency=Consistency.ONE)) == {2: 1}
    with pytest.raises(InvalidStatement, match="ANY"):
        cluster.read(T, {"p": key}, consistency=Consistency.ANY)


def test_any_without_room_for_a_hint_is_refused() -> None:
    cluster = make(data_centres={"dc1": 2}, replication={"dc1": 1}, hint_window_us=0)
    key = next(p for p in range(100) if cluster.ring.replicas(p.to_bytes(4, "big"), cluster.replication) == ("dc1-2",))
    cluster.crash("dc1-2")
    noticed(cluster)
    with pytest.raises(Unavailable):
        cluster.insert(T, {"p": key, "c": 1, "v": 1}, consistency=Consistency.ANY)


def test_a_crashed_node_knows_again_what_it_acknowledged() -> None:
    cluster = make()
    for c in range(5):
        cluster.insert(T, {"p": 1, "c": c, "v": c}, consistency=Consistency.ALL)
    for seed, name in enumerate(cluster.nodes):
        cluster.crash(name, power_loss(seed))
    for name in cluster.nodes:
        cluster.restart(name)
    for name in cluster.nodes:
        rows = visible(cluster.nodes[name].state(T), 0)
        assert values(rows) == {c: c for c in range(5)}


def test_local_levels_ask_the_coordinators_data_centre_only() -> None:
    cluster = make(data_centres={"dc1": 3, "dc2": 3})
    for number in (1, 2, 3):
        cluster.crash(f"dc2-{number}")
    noticed(cluster)
    cluster.insert(T, {"p": 1, "c": 1, "v": 1}, consistency=Consistency.LOCAL_QUORUM)
    assert values(cluster.read(T, {"p": 1}, consistency=Consistency.LOCAL_QUORUM)) == {1: 1}
    for level in (Consistency.EACH_QUORUM, Consistency.QUORUM, Consistency.ALL):
        with pytest.raises(Unavailable):
            cluster.insert(T, {"p": 1, "c": 2, "v": 1}, consistency=level)


def test_many_statements_are_one_block_on_each_replica() -> None:
    cluster = make()
    statements = [Insert(T, {"p": p, "c": 1, "v": p}) for p in range(50)]
    cluster.write_many(statements, consistency=Consistency.ALL)
    for node in cluster.nodes.values():
        changes = logged(cluster, node.name)
        assert sorted(change.key["p"] for change in changes) == list(range(50))
        assert node.changes_written == 50
    assert cluster.history.acknowledged == 50


def test_more_nodes_than_replicas_each_get_their_share_in_one_batch() -> None:
    cluster = make(data_centres={"dc1": 5})
    cluster.write_many([Insert(T, {"p": p, "c": 1, "v": p}) for p in range(50)], consistency=Consistency.ALL)
    copies = [len(logged(cluster, name)) for name in cluster.nodes]
    assert sum(copies) == 150
    assert max(copies) < 50
    verdict = check(cluster.history, [place(cluster, name) for name in cluster.nodes], cluster.data_centres)
    assert verdict.sound
    assert verdict.copies_checked == 150


def test_a_data_centre_that_does_not_capture_has_no_log_and_still_recovers() -> None:
    cluster = make(data_centres={"dc1": 2, "dc2": 1}, captures=lambda _, where: where == "dc1")
    cluster.insert(T, {"p": 1, "c": 1, "v": 1}, consistency=Consistency.ALL)
    assert not cluster.nodes["dc2-1"].files.exists(log_directory("/logs", "dc2-1", T))
    cluster.crash("dc2-1", power_loss(3))
    cluster.restart("dc2-1")
    assert values(visible(cluster.nodes["dc2-1"].state(T), 0)) == {1: 1}
    verdict = check(cluster.history, [place(cluster, name) for name in ("dc1-1", "dc1-2")], cluster.data_centres)
    assert verdict.sound
    assert verdict.unlogged == 1


def test_a_log_of_ones_own_is_used_and_may_refuse() -> None:
    class Own:
        def __init__(self) -> None:
            self.batches: list[ChangeBatch] = []
            self.closed = False

        def append(self, batch: ChangeBatch) -> object:
            if len(self.batches) == 1:
                raise OSError(errno.ENOSPC, "no space left on device")
            self.batches.append(batch)
            return None

        def close(self) -> None:
            self.closed = True

    logs: dict[str, Own] = {}

    def open_log(node: LoggingNode, schema: TableSchema) -> NodeLog:
        assert schema is SCHEMA
        return logs.setdefault(node.name, Own())

    cluster = make(open_log=open_log)
    with cluster:
        cluster.insert(T, {"p": 1, "c": 1, "v": 1}, consistency=Consistency.ALL)
        with pytest.raises(Unavailable, match="too many replicas failed"):
            cluster.insert(T, {"p": 1, "c": 2, "v": 1}, consistency=Consistency.ONE)
        cluster.crash("dc1-1")
        cluster.restart("dc1-1")
        assert values(visible(cluster.nodes["dc1-1"].state(T), 0)) == {1: 1}
    assert all(log.closed and log.batches[0].count == 1 for log in logs.values())


def test_a_new_schema_version_begins_the_next_file() -> None:
    cluster = make()
    cluster.insert(T, {"p": 1, "c": 1, "v": 1})
    wider = TableSchema(T, (*SCHEMA.columns, Column("extra", types.TEXT)), version=2)
    cluster.alter_table(wider)
    cluster.insert(T, {"p": 1, "c": 2, "extra": "x"}, consistency=Consistency.ALL)
    assert [row["extra"] for row in cluster.read(T, {"p": 1})] == [None, "x"]
    node = cluster.nodes["dc1-1"]
    names = node.files.list(log_directory("/logs", node.name, T))
    assert "ks.t.000002.avro" in names
    cluster.crash("dc1-1", power_loss(5))
    cluster.restart("dc1-1")
    assert len(visible(cluster.nodes["dc1-1"].state(T), 0)) == 2
    with pytest.raises(InvalidSchema):
        cluster.alter_table(SCHEMA)


def test_a_hint_from_before_a_schema_change_is_still_delivered() -> None:
    cluster = make()
    cluster.crash("dc1-3")
    noticed(cluster)
    cluster.insert(T, {"p": 1, "c": 1, "v": 1})
    cluster.alter_table(TableSchema(T, (*SCHEMA.columns, Column("extra", types.TEXT)), version=2))
    cluster.restart("dc1-3")
    assert cluster.settle()
    assert len(logged(cluster, "dc1-3")) == 1


def test_what_makes_no_sense_is_refused() -> None:
    cluster = make()
    with pytest.raises(InvalidInput):
        cluster.create_table(SCHEMA)
    with pytest.raises(InvalidSchema, match="counters"):
        cluster.create_table(
            TableSchema(TableId("ks", "n"), (Column("p", types.INT32, Role.PARTITION), Column("n", types.COUNTER)))
        )
    with pytest.raises(InvalidSchema, match="partition key"):
        cluster.create_table(TableSchema(TableId("ks", "k"), (Column("v", types.INT32),)))
    with pytest.raises(InvalidInput):
        cluster.create_table(TableSchema(TableId("ks", "r"), SCHEMA.columns), replication={"dc1": 4})
    with pytest.raises(InvalidStatement, match="no such table"):
        cluster.insert(TableId("ks", "other"), {"p": 1})
    with pytest.raises(InvalidInput, match="no such node"):
        cluster.insert(T, {"p": 1, "c": 1}, coordinator="dc9-9")
    with pytest.raises(InvalidInput):
        Cluster("/logs", data_centres={})
    assert cluster.history.outcomes == []


def test_a_node_whose_log_cannot_be_opened_stays_down() -> None:
    class Refusing(CrashFiles):
        refuses = False

        def open(self, path: str, *, write: bool = False, create: bool = False) -> CrashFile:
            if self.refuses:
                raise OSError(errno.EACCES, "permission denied", path)
            return super().open(path, write=write, create=create)

    disk = Refusing()
    cluster = make(disks=lambda name: disk if name == "dc1-1" else CrashFiles())
    cluster.crash("dc1-1")
    disk.refuses = True
    with pytest.raises(StorageError):
        cluster.restart("dc1-1")
    assert not cluster.nodes["dc1-1"].up
    disk.refuses = False
    cluster.restart("dc1-1")
    assert cluster.nodes["dc1-1"].up


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Cluster]:
    settings = LogSettings(acknowledge=Acknowledge.WRITTEN)
    with Cluster(str(tmp_path), data_centres={"dc1": 3}, clock=SystemClock(), log_settings=settings) as cluster:
        cluster.create_table(SCHEMA)
        yield cluster


def test_in_real_time_with_real_files_nothing_waits(live: Cluster, tmp_path: Path) -> None:
    for start in range(0, 300, 100):
        live.write_many([Insert(T, {"p": p, "c": 1, "v": p}) for p in range(start, start + 100)])
    live.write_many([Update(T, {"p": 7, "c": 1}, {"v": 8})])
    assert values(live.read(T, {"p": 7})) == {1: 8}
    live.crash("dc1-2")
    live.write_many([Insert(T, {"p": 1000, "c": 1, "v": 1})])
    live.restart("dc1-2")
    assert not live.nodes["dc1-2"].state(T).partition({"p": 1000})
    assert live.nodes["dc1-2"].state(T).partition({"p": 299})
    live.close()
    directories = [(name, log_directory(str(tmp_path), name, T)) for name in live.nodes]
    places = [LogPlace(name, T, directory, live.nodes[name].files) for name, directory in directories]
    verdict = check(live.history, places, live.data_centres)
    assert verdict.sound
    assert verdict.changes_acknowledged == 302
