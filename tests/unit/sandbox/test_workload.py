"""The workload: the same for the same seed, and of every kind."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from penstock.sandbox.cluster import Cluster
from penstock.sandbox.statements import Delete, DeletePartition, DeleteRange, Insert, Truncate, Update
from penstock.sandbox.workload import TABLES, Workload, drive
from testkit.crash_files import CrashFiles


def test_equal_seeds_give_equal_statements() -> None:
    first, again, other = (list(islice(Workload(seed).statements(), 500)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_every_kind_of_statement_comes_to_every_table() -> None:
    statements = list(islice(Workload(3, truncates=True).statements(), 20_000))
    kinds = Counter(type(statement) for statement in statements)
    assert set(kinds) == {Insert, Update, Delete, DeleteRange, DeletePartition, Truncate}
    assert {statement.table for statement in statements} == {schema.table for schema in TABLES}
    assert any(statement.ttl_s for statement in statements)


def test_driving_a_healthy_cluster_acknowledges_everything() -> None:
    cluster = Cluster("/logs", data_centres={"dc1": 3}, disks=lambda _: CrashFiles())
    for schema in TABLES:
        cluster.create_table(schema)
    drive(cluster, Workload(1), 203, batch=10, in_flight=4)
    assert cluster.history.acknowledged == 203
    assert cluster.history.refused == 0


def test_driving_goes_on_when_every_node_is_down() -> None:
    cluster = Cluster("/logs", data_centres={"dc1": 1}, disks=lambda _: CrashFiles())
    for schema in TABLES:
        cluster.create_table(schema)
    cluster.crash("dc1-1")
    cluster.loop.schedule(1_000_000, lambda: cluster.restart("dc1-1"))
    drive(cluster, Workload(1), 20)
    assert 0 < cluster.history.acknowledged < 20
