"""How a batch is divided among tasks, when the copies of a change are to meet in one of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.formats import avro
from penstock.pipeline.source.options import parse
from penstock.pipeline.source.places import access, open_reader
from penstock.pipeline.source.planner import Planner
from penstock.pipeline.source.portions import Piece, copied_tables
from penstock.pipeline.source.stretches import gather, read_runs
from penstock.records import runs
from penstock.records.runs import Run
from tests.many_logs import SMALL_FILES, write

NODES = ("n1", "n2", "n3")
HOW = access(parse({"path": "/", "shape": "runs"}))


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.pipeline.source.portions.PORTION_BYTES_MIN", 1000)


def tasks_of(root: Path, **options: str) -> list[list[Piece]]:
    paths = str([str(root / node) for node in NODES]).replace("'", '"')
    plan = Planner(parse({"path": paths, "shape": "runs", "distinct": "true", **options}))
    try:
        return plan.partitions(plan.initial(), plan.end())
    finally:
        plan.close()


def ids(piece: Piece) -> list[int]:
    reader = open_reader(piece.address, HOW)
    return [change.key["id"] for gathered in gather(reader, piece.stretch) for change in avro.decode(gathered.batch())]


def runs_of(task: list[Piece], buckets: int = 2) -> list[Run]:
    opened = ((piece.address, open_reader(piece.address, HOW), piece.stretch) for piece in task)
    return [
        run
        for batch in read_runs(opened, buckets, copied_tables(task))
        for run in runs.from_arrow(pa.record_batch(batch))
    ]


@pytest.mark.parametrize("buckets", [1, 2, 5])
@pytest.mark.parametrize("settings", [None, SMALL_FILES])
def test_each_node_is_read_once_in_order_and_copies_meet(tmp_path: Path, buckets: int, settings: object) -> None:
    # The nodes do not cut their logs at the same places, and one has seen less than the others.
    for node, each, count in (("n1", 5, 120), ("n2", 7, 85), ("n3", 5, 110)):
        write(tmp_path / node, "orders", 0, count, each=each, note="x" * 100, settings=settings)  # type: ignore[arg-type]
    tasks = tasks_of(tmp_path, buckets=str(buckets))
    assert len(tasks) == buckets
    for node, total in (("n1", 600), ("n2", 595), ("n3", 550)):
        mine = [number for task in tasks for piece in task if piece.address.node == node for number in ids(piece)]
        assert mine == list(range(total))
    for task in tasks:
        nodes = [piece.address.node for piece in task]
        assert nodes == sorted(nodes)
    found = [run for task in tasks for run in runs_of(task)]
    assert sum(run.count + run.left_out for run in found) == 600 + 595 + 550
    passed_on = [change.key["id"] for run in found for change in avro.decode(run.batch())]
    assert set(passed_on) == set(range(600))
    assert len(passed_on) < 600 * 1.2


def test_small_tables_share_the_tasks(tmp_path: Path) -> None:
    for number in range(40):
        for node in NODES:
            write(tmp_path / node, f"t{number:02}", number * 10, 1, each=10, note="x" * 100)
    tasks = tasks_of(tmp_path, buckets="4")
    sizes = [len(task) for task in tasks]
    assert sizes == [30] * 4
    assert sum(run.left_out for task in tasks for run in runs_of(task)) == 2 * 400


def test_a_large_batch_has_tasks_for_every_core_again_and_again(tmp_path: Path) -> None:
    for node in NODES:
        write(tmp_path / node, "orders", 0, 100, each=10, note="x" * 300)
    tasks = tasks_of(tmp_path, buckets="2", partitionBytes="64k")
    sizes = [sum(piece.stretch.bytes for piece in task) for task in tasks]
    assert len(tasks) % 2 == 0
    assert max(sizes) < 2 * min(sizes)
    assert max(sizes) < 1.5 * (64 << 10)


def test_logs_of_one_node_have_no_copies(tmp_path: Path) -> None:
    write(tmp_path / "n1", "orders", 0, 10)
    write(tmp_path / "n2", "others", 0, 10)
    (tmp_path / "n3").mkdir()
    [task] = tasks_of(tmp_path)
    assert copied_tables(task) == frozenset()
    assert [(run.count, run.left_out) for run in runs_of(task, 1)] == [(10, 0), (10, 0)]
