"""The sandbox under faults: many seeds, each a history of its own that must keep every promise."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.errors import Unavailable
from penstock.merge.row_state import normal_partition
from penstock.merge.table_state import TableState, covers, fold, normal
from penstock.model.change import Change
from penstock.model.schema import TableId
from penstock.sandbox.checker import LogPlace, check, read_changes
from penstock.sandbox.cluster import Cluster
from penstock.sandbox.consistency import Consistency
from penstock.sandbox.history import History
from penstock.sandbox.node_log import log_directory
from penstock.sandbox.workload import TABLES, Workload, drive
from testkit import faults
from testkit.crash_files import CrashFiles

CHECKOUT = Path(__file__).parent.parent.parent
ROOT = "/logs"
SEEDS = range(60)
STATEMENTS = 120
SHAPES = ({"dc1": 3}, {"dc1": 4}, {"dc1": 3, "dc2": 3}, {"dc1": 2, "dc2": 1})


@dataclass
class Run:
    cluster: Cluster
    history: History

    def places(self) -> list[LogPlace]:
        """Every log that is there, node by node."""
        return [
            LogPlace(node.name, schema.table, log_directory(ROOT, node.name, schema.table), node.files)
            for node in self.cluster.nodes.values()
            for schema in TABLES
        ]

    def logged(self, table: TableId) -> list[Change]:
        return [change for place in self.places() if place.table == table for change in read_changes(place)]


def make(seed: int) -> Run:
    """A cluster whose shape and faults the seed decides, after its workload."""
    pick = random.Random(f"shape/{seed}")
    history = History(keep_changes=True)
    cluster = Cluster(ROOT, data_centres=pick.choice(SHAPES), seed=seed, disks=lambda _: CrashFiles(), history=history)
    for schema in TABLES:
        cluster.create_table(schema)
    plan = faults.schedule(seed, tuple(cluster.nodes), duration_us=20_000_000, count=pick.randrange(24))
    faults.install(cluster, plan)
    workload = Workload(
        seed, users=6, customers=4, sensors=3, ttl_s=pick.choice((5, 3600)), deletes_per_mille=200, truncates=True
    )
    # The requests are spread over the time in which the faults happen.
    batch = pick.choice((1, 1, 5))
    drive(cluster, workload, STATEMENTS, batch=batch, in_flight=pick.choice((1, 4, 16)), pause_us=180_000 * batch)
    return Run(cluster, history)


def healed(run: Run) -> Run:
    faults.heal(run.cluster)
    assert run.cluster.settle(), "hints reach every node once faults have ended"
    return run


def assert_memory_is_the_log(run: Run) -> None:
    """What a node holds in memory, also after a crash, is what its own log says."""
    for place in run.places():
        state = run.cluster.nodes[place.node].state(place.table)
        assert normal(state) == normal(fold(state.schema, read_changes(place)))


def assert_replicas_agree(run: Run, scanned: TableState) -> None:
    """Reads at ALL have brought every replica of every partition up to date."""
    columns = scanned.schema.by_name
    for identity, partition in scanned.partitions.items():
        for name in run.cluster.ring.replicas(identity, run.cluster.replication):
            held = run.cluster.nodes[name].state(scanned.schema.table).partitions[identity]
            assert normal_partition(held, columns) == normal_partition(partition, columns)


@pytest.mark.parametrize("seed", SEEDS)
def test_promises_hold_under_faults(seed: int) -> None:
    run = healed(make(seed))
    verdict = check(run.history, run.places(), run.cluster.data_centres)
    assert verdict.sound, verdict.lacks[:3]
    assert verdict.changes_acknowledged == run.history.acknowledged
    assert_memory_is_the_log(run)
    for schema in TABLES:
        logged = run.logged(schema.table)
        # Any order and any repetition of the replicas' logs gives what reads at ALL give.
        shuffled = logged + logged[::3]
        random.Random(seed).shuffle(shuffled)
        folded = fold(schema, shuffled)
        scanned = run.cluster.scan_state(schema.table)
        assert normal(scanned) == normal(folded)
        assert_replicas_agree(run, scanned)
        # Nothing was invented: all that the logs say, a client once asked for.
        attempted = fold(schema, run.history.attempts.get(schema.table, ()))
        before = normal(attempted)
        attempted.join(folded)
        assert normal(attempted) == before
        # What read repair wrote meanwhile says nothing new.
        assert normal(fold(schema, run.logged(schema.table))) == normal(folded)


def test_the_seeds_include_refusals_losses_and_crashes() -> None:
    """The test above would prove little if nothing ever went wrong in it."""
    refused = acknowledged = lost = 0
    for seed in range(8):
        run = make(seed)
        refused += run.history.refused
        acknowledged += run.history.acknowledged
        lost += run.cluster.network.lost
    assert refused > 20
    assert acknowledged > 400
    assert lost > 50


@pytest.mark.parametrize("seed", range(6))
def test_a_quorum_read_sees_every_acknowledged_quorum_write(seed: int) -> None:
    cluster = Cluster(ROOT, data_centres={"dc1": 3}, seed=seed, disks=lambda _: CrashFiles())
    schema = TABLES[1]
    cluster.create_table(schema)
    faults.install(cluster, faults.schedule(seed, tuple(cluster.nodes), duration_us=30_000_000, count=10))
    seen = 0
    for statement, _ in zip(Workload(seed, customers=3).statements(), range(300), strict=False):
        if statement.table != schema.table:
            continue
        try:
            operation = cluster.start([statement], consistency=Consistency.QUORUM)
            cluster.wait(operation)
        except Unavailable:
            cluster.run_for(200_000)
            continue
        (change,) = operation.groups[0].changes
        try:
            state = cluster.read_state(schema.table, {"customer": change.key["customer"]})
        except Unavailable:
            continue
        seen += 1
        assert covers(state, change)
    assert seen > 20


def fingerprint(seed: int) -> str:
    """All that a run leaves behind: its history and every byte of its logs, but for the process id in the lock."""
    run = healed(make(seed))
    total = hashlib.blake2b(run.history.fingerprint.encode(), digest_size=16)
    for node in run.cluster.nodes.values():
        assert isinstance(node.files, CrashFiles)
        for path, content in sorted(node.files.contents().items()):
            if not path.endswith("/writer.lock"):
                total.update(path.encode())
                total.update(content)
    return total.hexdigest()


def test_equal_seeds_give_equal_histories_in_different_processes() -> None:
    outputs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(CHECKOUT)}
        done = subprocess.run(
            [sys.executable, __file__], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert all(len(line) == 32 for line in outputs[0].split())
    assert len(set(outputs[0].split())) == 5, "different seeds give different histories"


if __name__ == "__main__":
    for chosen in range(5):
        sys.stdout.write(fingerprint(chosen) + "\n")
