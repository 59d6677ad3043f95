"""The fold of whole runs: in which order their changes are told, and what makes no record."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa

from penstock.fold.bucket import BucketState
from penstock.fold.folder import Folder
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.model.change import Change, Expiry, Marker, Op, Set
from penstock.pipeline.source.options import parse
from penstock.pipeline.source.planner import Planner
from penstock.pipeline.source.stretches import read_runs
from penstock.records import runs
from penstock.records.runs import Run
from penstock.settings import MergeSettings, RecordType
from tests.folding import Pipeline, runs_of
from tests.many_logs import SMALL_FILES, schema_of, write


def test_changes_without_times_are_told_as_the_log_has_them_whoever_read_them(tmp_path: Path) -> None:
    schema = schema_of("orders")
    changes = [Change(Op.UPDATE, {"id": 7}, {"note": Set(str(number))}) for number in range(30)]
    given = [
        Run(schema, "n1", 0, 3, avro.encode(schema, changes[first : first + 3]).rows, place=first)
        for first in range(0, 30, 3)
    ]
    Random(3).shuffle(given)
    folder = Folder(MergeSettings(), RecordType.CHANGE, every=True)
    [records] = folder.fold(given, BucketState.open(str(tmp_path), 0, 0), now_s=1)
    assert [change.cells["note"] for change in avro.decode(records.changes)] == [Set(str(n)) for n in range(30)]


def test_runs_of_several_tasks_know_their_order(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 90, each=10, settings=SMALL_FILES, note="x" * 900)
    assert len(LogReader(directory).numbers()) > 3
    plan = Planner(parse({"path": str(tmp_path), "shape": "runs", "partitionBytes": "64k"}))
    tasks = plan.partitions(plan.initial(), plan.end())
    assert len(tasks) > 2
    found = []
    for task in reversed(tasks):
        with LogReader(directory) as reader:
            rows = list(read_runs([(piece.address, reader, piece.stretch) for piece in task], 1, size=10_000))
        found += [run for batch in rows for run in runs.from_arrow(pa.record_batch(batch))]
    plan.close()
    ordered = sorted(found, key=lambda run: run.place)
    ids = [change.key["id"] for run in ordered for change in avro.decode(run.batch())]
    assert ids == list(range(900))


def test_an_expiry_makes_records_of_rows_and_none_of_changes(tmp_path: Path) -> None:
    schema = schema_of("orders")
    short = Expiry(5, 15)
    write = Change(Op.INSERT, {"id": 7}, {"note": Set("x", None, short)}, time=10, marker=Marker(None, short))
    told = {}
    for record in (RecordType.CHANGE, RecordType.AFTER):
        pipeline = Pipeline(str(tmp_path / record), 1, record)
        pipeline.fold(runs_of(schema, "n1", [write], 1), now_s=10)
        told[record] = [change.op for made in pipeline.fold([], now_s=20) for change in avro.decode(made.changes)]
    assert told == {RecordType.CHANGE: [], RecordType.AFTER: [Op.DELETE]}


def test_a_read_repair_makes_a_record_of_changes_and_none_of_rows(tmp_path: Path) -> None:
    schema = schema_of("orders")
    writes = [
        Change(Op.INSERT, {"id": 7}, {"note": Set("x")}, time=10, marker=Marker()),
        Change(Op.UPDATE, {"id": 7}, {"note": Set("y")}, time=20),
    ]
    # What a replica that has neither is sent: one row, with the write times of both.
    repair = Change(Op.INSERT, {"id": 7}, {"note": Set("y")}, time=20, marker=Marker(10))
    told = {}
    for record in (RecordType.CHANGE, RecordType.AFTER):
        pipeline = Pipeline(str(tmp_path / record), 1, record)
        pipeline.fold(runs_of(schema, "n1", writes, 1), now_s=30)
        told[record] = sum(len(made) for made in pipeline.fold(runs_of(schema, "n2", [repair], 1), now_s=31))
    assert told == {RecordType.CHANGE: 1, RecordType.AFTER: 0}
