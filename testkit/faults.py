"""Faults: a seeded schedule of what goes wrong, and when it is made good again.

Every fault ends within the schedule's duration, so a cluster that runs to the end of it has been healed; `heal` does
the same at any other moment. Different faults overlap; crashes of one node do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random

from penstock.errors import PenstockError
from penstock.sandbox.cluster import Cluster
from penstock.sandbox.node import PowerLoss
from penstock.system.files import Files
from testkit.crash_files import CrashFiles
from testkit.power_loss import Crash, Mode


class Trouble(StrEnum):
    """What can go wrong."""

    CRASH = "crash"
    PARTITION = "partition"
    LOSS = "loss"
    DUPLICATION = "duplication"
    SLOW_NODE = "slow_node"
    SLOW_NETWORK = "slow_network"
    SKEW = "skew"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong from one moment to another, counted from the start of the schedule."""

    trouble: Trouble
    start_us: int
    end_us: int
    # The nodes concerned; for a partition, one side of it.
    nodes: tuple[str, ...] = ()
    # Probability per mille, or microseconds, as the trouble has it.
    amount: int = 0


def schedule(seed: int, nodes: tuple[str, ...], *, duration_us: int, count: int) -> tuple[Fault, ...]:
    """`count` faults from a seed. Crashes of one node do not overlap each other."""
    pick = Random(f"faults/{seed}")  # noqa: S311 - seeded, to be repeated
    faults: list[Fault] = []
    down_until: dict[str, int] = {}
    for start in sorted(pick.randrange(max(1, duration_us * 8 // 10)) for _ in range(count)):
        # Crashes are what the log is for, so they come more often.
        trouble = pick.choice((*Trouble, Trouble.CRASH, Trouble.CRASH))
        end = min(duration_us, start + pick.randrange(1, max(2, duration_us // 4)))
        one = pick.choice(nodes)
        match trouble:
            case Trouble.CRASH:
                if down_until.get(one, -1) < start:
                    down_until[one] = end
                    faults.append(Fault(trouble, start, end, (one,), pick.randrange(1 << 30)))
            case Trouble.PARTITION:
                side = tuple(sorted(pick.sample(nodes, pick.randrange(1, max(2, len(nodes))))))
                faults.append(Fault(trouble, start, end, side))
            case Trouble.LOSS | Trouble.DUPLICATION:
                faults.append(Fault(trouble, start, end, (), pick.randrange(10, 400)))
            case Trouble.SLOW_NODE:
                faults.append(Fault(trouble, start, end, (one,), pick.randrange(1_000, 3_000_000)))
            case Trouble.SLOW_NETWORK:
                faults.append(Fault(trouble, start, end, (), pick.randrange(10_000, 1_500_000)))
            case Trouble.SKEW:
                faults.append(Fault(trouble, start, end, (one,), pick.randrange(-60_000_000, 60_000_000)))
    return tuple(faults)


def install(cluster: Cluster, faults: tuple[Fault, ...]) -> None:
    """Put the schedule into the cluster's event loop, from now on."""
    for fault in faults:
        cluster.loop.schedule(fault.start_us, partial(_begin, cluster, fault))
        cluster.loop.schedule(fault.end_us, partial(_end, cluster, fault))


def heal(cluster: Cluster) -> None:
    """Make everything good: mend the network, set the clocks right, bring every node back."""
    cluster.network.mend()
    cluster.network.slow_us.clear()
    now = cluster.network.conditions
    now.loss = now.duplication = 0.0
    now.delay_us_max = cluster.network.usual_delay_us_max
    for node in cluster.nodes.values():
        node.clock.skew_us = 0
        if not node.up:
            cluster.restart(node.name)


def _begin(cluster: Cluster, fault: Fault) -> None:
    network = cluster.network
    match fault.trouble:
        case Trouble.CRASH:
            node = cluster.nodes[fault.nodes[0]]
            cluster.crash(node.name, power_loss(fault.amount) if isinstance(node.files, CrashFiles) else None)
        case Trouble.PARTITION:
            network.cut(fault.nodes, [name for name in cluster.nodes if name not in fault.nodes])
        case Trouble.LOSS:
            network.conditions.loss = fault.amount / 1000
        case Trouble.DUPLICATION:
            network.conditions.duplication = fault.amount / 1000
        case Trouble.SLOW_NODE:
            network.slow_us[fault.nodes[0]] = fault.amount
        case Trouble.SLOW_NETWORK:
            network.conditions.delay_us_max = fault.amount
        case Trouble.SKEW:
            cluster.nodes[fault.nodes[0]].clock.skew_us = fault.amount


def _end(cluster: Cluster, fault: Fault) -> None:
    network = cluster.network
    match fault.trouble:
        case Trouble.CRASH:
            _try_restart(cluster, fault.nodes[0])
        case Trouble.PARTITION:
            network.mend()
        case Trouble.LOSS:
            network.conditions.loss = 0.0
        case Trouble.DUPLICATION:
            network.conditions.duplication = 0.0
        case Trouble.SLOW_NODE:
            network.slow_us.pop(fault.nodes[0], None)
        case Trouble.SLOW_NETWORK:
            network.conditions.delay_us_max = network.usual_delay_us_max
        case Trouble.SKEW:
            cluster.nodes[fault.nodes[0]].clock.skew_us = 0


def _try_restart(cluster: Cluster, name: str) -> None:
    try:
        cluster.restart(name)
    except PenstockError as error:
        # The node stays down, as a real one would; its operator (`heal`) tries again.
        cluster.history.note("restart refused", name, type(error).__name__)


def power_loss(seed: int) -> PowerLoss:
    """What is left of a simulated disk: what was synced, and of the rest what the seed says."""
    mode = Random(f"power/{seed}").choice(list(Mode))  # noqa: S311 - seeded, to be repeated

    def lose(files: Files) -> Files:
        assert isinstance(files, CrashFiles), "only a simulated disk can lose power"
        return files.clone_after_crash(Crash(mode, seed))

    return lose
