"""What a sandbox cluster reads is what the fold makes of its logs, whichever copies of a change are lost."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compare.log_rows import as_images
from penstock.formats import avro
from penstock.merge.table_state import visible
from penstock.model.change import NO_ORIGIN, Change
from penstock.model.schema import TableSchema
from penstock.sandbox.checker import LogPlace, read_changes
from penstock.sandbox.cluster import Cluster
from penstock.sandbox.consistency import Consistency
from penstock.sandbox.node_log import log_directory
from penstock.sandbox.workload import TABLES, Workload, drive
from penstock.settings import RecordType
from testkit.crash_files import CrashFiles
from tests.folding import Pipeline, Target, comparable, runs_of

ROOT = "/logs"


def logged(cluster: Cluster, schema: TableSchema) -> list[list[tuple[str, Change]]]:
    """Each change with the copies that the nodes have of it."""
    found: dict[bytes, list[tuple[str, Change]]] = {}
    for node in cluster.nodes.values():
        place = LogPlace(node.name, schema.table, log_directory(ROOT, node.name, schema.table), node.files)
        for change in read_changes(place):
            said = replace(change, origin=NO_ORIGIN, capture_time=None)
            found.setdefault(bytes(avro.encode(schema, [said]).rows), []).append((node.name, change))
    return list(found.values())


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1 << 20), st.integers(1, 60), st.randoms(use_true_random=False), st.sampled_from([0, 3, 9]))
def test_any_loss_of_all_copies_but_one_gives_the_rows_that_the_cluster_reads(
    seed: int, statements: int, chance: random.Random, later_s: int
) -> None:
    cluster = Cluster(ROOT, data_centres={"dc1": 3}, seed=seed, disks=lambda _: CrashFiles())
    for schema in TABLES:
        cluster.create_table(schema)
    workload = Workload(seed, users=4, customers=3, sensors=2, ttl_s=5, deletes_per_mille=250, truncates=True)
    drive(cluster, workload, statements, batch=chance.choice((1, 4)), in_flight=chance.choice((1, 8)), pause_us=200_000)
    assert cluster.settle()
    now_s = cluster.clock.now_us() // 1_000_000 + later_s
    for schema in TABLES:
        left: list[tuple[str, Change]] = []
        for copies in logged(cluster, schema):
            left += chance.sample(copies, chance.randint(max(1, len(copies) - 2), len(copies)))
        left += chance.choices(left, k=len(left) // 3) if left else []
        chance.shuffle(left)
        target = Target()
        with tempfile.TemporaryDirectory() as directory:
            pipeline = Pipeline(directory, chance.choice((1, 3)), RecordType.AFTER)
            cut = chance.randint(0, len(left))
            for part, second in ((left[:cut], max(0, now_s - 4)), (left[cut:], now_s)):
                runs = [run for node, change in part for run in runs_of(schema, node, [change], pipeline.store.buckets)]
                for records in pipeline.fold(runs, second):
                    target.write(records)
        read = visible(cluster.scan_state(schema.table, consistency=Consistency.ALL), now_s)
        wanted = [row for images in as_images(schema, read) for row in images.to_pylist()]
        assert comparable(list(target.rows.values())) == comparable(wanted)
