"""Task: one bucket of one micro-batch, from its runs to what the sinks took.

It runs in Spark's Python workers, so everything it needs travels in a `TaskPlan`, by pickle. It never raises an error
of Penstock's: such an error is an outcome like any other, and the driver raises it again as what it was.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.filters.functions import Functions
from penstock.formats.arrow import to_arrow
from penstock.model.schema import TableSchema
from penstock.pipeline import dead_letters, outcome, runs
from penstock.pipeline.fold.bucket import BucketState
from penstock.pipeline.fold.folder import Folder
from penstock.pipeline.outcome import Outcome
from penstock.pipeline.records import Records
from penstock.pipeline.runs import Run, schema_text
from penstock.pipeline.sinks.sink import Sink, Task, Writer
from penstock.pipeline.transforms.transforms import Transforms
from penstock.settings import MergeSettings, RecordType, TransformSettings


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What all tasks of one batch share."""

    pipeline: str
    batch: int
    now_us: int
    state_directory: str
    merge: MergeSettings
    transform: TransformSettings
    functions: dict[str, str]
    sinks: tuple[Sink, ...]
    # The schema versions that the sinks have been prepared for, by fingerprint.
    prepared: frozenset[str]

    def folds(self, transforms: Transforms) -> list[tuple[RecordType, list[Sink]]]:
        """What is folded, and for whom: changes for sinks of changes, whole rows, as much as asked for, for the rest.

        The two are not the same records: a change that came too late to alter its row is one of the first only.
        """
        changes = [sink for sink in self.sinks if sink.record is RecordType.CHANGE]
        rows = [sink for sink in self.sinks if sink.record is not RecordType.CHANGE]
        out = [(RecordType.CHANGE, changes)] if changes else []
        if rows:
            whole = RecordType.ALL if any(sink.record is RecordType.ALL for sink in rows) else RecordType.AFTER
            out.append((transforms.needs(whole), rows))
        return out


def run(plan: TaskPlan, bucket: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do one bucket of a batch; yields its outcomes."""
    try:
        yield outcome.to_arrow(_run(plan, bucket, batches))
    except PenstockError as error:
        yield outcome.to_arrow([outcome.failure(bucket, error)])


def _run(plan: TaskPlan, bucket: int, batches: Iterator[pa.RecordBatch]) -> list[Outcome]:
    given = [run for batch in batches for run in runs.from_arrow(batch)]
    unknown = {run.schema.fingerprint: run.schema for run in given} if plan.sinks else {}
    new = [schema for fingerprint, schema in unknown.items() if fingerprint not in plan.prepared]
    if new:
        return [Outcome(bucket, "schema", str(schema.table), data=schema_text(schema).encode()) for schema in new]
    try:
        return _Bucket(plan, bucket).deliver(given)
    except _Unprepared as error:
        return [Outcome(bucket, "schema", str(error.schema.table), data=schema_text(error.schema).encode())]


class _Unprepared(Exception):
    """A record of a table that the sinks were not prepared for: what expires may be of a table without new changes."""

    def __init__(self, schema: TableSchema) -> None:
        super().__init__(schema)
        self.schema = schema


class _Bucket:
    """The moving parts of one task, and its figures by table."""

    def __init__(self, plan: TaskPlan, bucket: int) -> None:
        self._plan = plan
        self._bucket = bucket
        self._copies: dict[str, int] = defaultdict(int)
        self._records: dict[str, int] = defaultdict(int)
        self._newest: dict[str, int] = {}

    def deliver(self, given: list[Run]) -> list[Outcome]:
        plan = self._plan
        transforms = Transforms(plan.transform, Functions.load(plan.functions))
        state = BucketState.open(plan.state_directory, self._bucket, plan.batch)
        task = Task(plan.pipeline, plan.batch, self._bucket, plan.now_us)
        for run in given:
            self._copies[str(run.schema.table)] += run.count
        with ExitStack() as opened:
            writers = [(sink, opened.enter_context(sink.writer(task))) for sink in plan.sinks]
            for number, (record, sinks) in enumerate(plan.folds(transforms)):
                folder = Folder(plan.merge, record, every=any(sink.every for sink in sinks))
                folded = folder.fold(given, state, now_s=plan.now_us // 1_000_000)
                mine = [(sink, writer) for sink, writer in writers if sink in sinks]
                for records in transforms.apply(self._checked(folded, counted=not number)):
                    self._write(mine, records)
            outcomes = self._finish(writers)
        kept = state.finish()
        outcomes.append(Outcome(self._bucket, "state", kept.file, kept.rows, kept.bytes, kept.token))
        return outcomes

    def _checked(self, folded: Iterator[Records], *, counted: bool) -> Iterator[Records]:
        for records in folded:
            if records.schema.fingerprint not in self._plan.prepared:
                raise _Unprepared(records.schema)
            if not counted:
                yield records
                continue
            table = str(records.schema.table)
            self._records[table] += len(records)
            newest = pc.max(to_arrow(records.changes, ()).column("time")).as_py()
            if newest is not None:
                self._newest[table] = max(newest, self._newest.get(table, newest))
            yield records

    @staticmethod
    def _write(writers: list[tuple[Sink, Writer]], records: Records) -> None:
        last: Records | None = None
        for sink, writer in writers:
            if sink.every:
                writer.write(records)
            else:
                last = records.last() if last is None else last
                writer.write(last)

    def _finish(self, writers: list[tuple[Sink, Writer]]) -> list[Outcome]:
        out: list[Outcome] = []
        for sink, writer in writers:
            done = writer.finish()
            out.append(Outcome(self._bucket, "sink", sink.name, done.records, done.bytes, done.payload))
            if done.dead:
                data = dead_letters.encode(done.dead)
                out.append(Outcome(self._bucket, "dead", sink.name, len(done.dead), len(data), data))
        for table, copies in self._copies.items():
            facts = json.dumps({"newest_us": self._newest.get(table)}).encode()
            out.append(Outcome(self._bucket, "table", table, self._records.get(table, 0), copies, facts))
        return out
