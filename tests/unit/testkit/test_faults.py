"""Schedules of faults: seeded, bounded, and made good in the end."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.errors import StorageError
from penstock.sandbox.cluster import Cluster
from penstock.sandbox.workload import USERS
from testkit import faults
from testkit.crash_files import CrashFiles
from testkit.faults import Fault, Trouble

NODES = ("dc1-1", "dc1-2", "dc1-3")


def make() -> Cluster:
    cluster = Cluster("/logs", data_centres={"dc1": 3}, disks=lambda _: CrashFiles())
    cluster.create_table(USERS)
    return cluster


def test_schedules_come_from_their_seed_and_end_in_time() -> None:
    plans = [faults.schedule(seed, NODES, duration_us=1_000_000, count=40) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert all(0 <= fault.start_us < fault.end_us <= 1_000_000 for fault in plans[0])
    assert {fault.trouble for plan in plans for fault in plan} == set(Trouble)


def test_one_node_is_not_crashed_twice_at_once() -> None:
    crashes = [f for f in faults.schedule(5, NODES[:1], duration_us=1_000_000, count=60) if f.trouble is Trouble.CRASH]
    assert len(crashes) > 1
    assert all(one.end_us < two.start_us for one, two in pairwise(crashes))


@pytest.mark.parametrize("trouble", Trouble)
def test_each_fault_does_something_and_is_undone(trouble: Trouble) -> None:
    cluster = make()

    def condition() -> object:
        network = cluster.network
        return (
            [node.up for node in cluster.nodes.values()],
            [node.clock.skew_us for node in cluster.nodes.values()],
            network.cut_since("dc1-1", "dc1-2") is not None,
            dict(network.slow_us),
            (network.conditions.loss, network.conditions.duplication, network.conditions.delay_us_max),
        )

    usual = condition()
    faults.install(cluster, (Fault(trouble, 10, 20, ("dc1-1",), 250),))
    cluster.run_for(15)
    assert condition() != usual
    cluster.run_for(15)
    assert condition() == usual


def test_healing_undoes_everything_at_once() -> None:
    cluster = make()
    plan = tuple(Fault(trouble, 10, 10_000_000, ("dc1-1",), 250) for trouble in Trouble)
    faults.install(cluster, plan)
    cluster.run_for(15)
    assert [node.up for node in cluster.nodes.values()] == [False, True, True]
    faults.heal(cluster)
    assert all(node.up for node in cluster.nodes.values())
    assert cluster.network.cut_since("dc1-1", "dc1-2") is None
    assert cluster.network.conditions.loss == 0.0
    assert cluster.nodes["dc1-1"].clock.skew_us == 0


def test_a_node_that_cannot_come_back_stays_down_until_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make()
    faults.install(cluster, (Fault(Trouble.CRASH, 10, 20, ("dc1-1",), 1),))
    with monkeypatch.context() as patch:

        def refuse() -> None:
            raise StorageError("no disk")

        patch.setattr(cluster.nodes["dc1-1"], "restart", refuse)
        cluster.run_for(30)
        assert [node.up for node in cluster.nodes.values()] == [False, True, True]
    faults.heal(cluster)
    assert all(node.up for node in cluster.nodes.values())
