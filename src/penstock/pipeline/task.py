"""Task: one bucket of one micro-batch, from its runs to what the sinks took.

It runs in Spark's Python workers, so everything it needs travels in a `TaskPlan`, by pickle. It never raises an error
of Penstock's: such an error is an outcome like any other, and the driver raises it again as what it was.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.deliver.batch_plan import BatchPlan
from penstock.deliver.sink import Sink, Task, Writer
from penstock.errors import PenstockError, TargetRefused
from penstock.filters.functions import Functions
from penstock.fold import poison
from penstock.fold.bucket import BucketState
from penstock.fold.eras import Drop, Header, Move, prepared_as
from penstock.fold.folder import Folder
from penstock.log.refusal import exhausted
from penstock.model.schema import TableId, TableSchema
from penstock.pipeline import dead_letters, outcome
from penstock.pipeline.outcome import Outcome
from penstock.records import runs
from penstock.records.records import Records
from penstock.records.runs import Run
from penstock.settings import MergeSettings, RecordType, TransformSettings
from penstock.transforms.transforms import Transforms


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
    # The schema versions that the sinks have been prepared for, as `prepared_as` names them.
    prepared: frozenset[str]
    # The headers of runs that the driver has seen, and those whose rows are of an era that has ended.
    headers: frozenset[bytes] = frozenset()
    stale: frozenset[bytes] = frozenset()
    # What the batch changes about tables, and the numbers of their eras.
    moves: Mapping[TableId, Move] = field(default_factory=dict)
    eras: Mapping[TableId, int] = field(default_factory=dict)
    # The last version of tables of which the batch may have older ones.
    newest: Mapping[TableId, TableSchema] = field(default_factory=dict)
    # The drops of columns that the last versions of tables do not know of any more.
    drops: Mapping[TableId, Sequence[Drop]] = field(default_factory=dict)
    # Where tasks say that they wait for a target.
    outages: str | None = None
    # Tables that the batch leaves out, and the buckets that take each all the same.
    aside: Mapping[TableId, frozenset[int]] = field(default_factory=dict)
    # Which batch this is, beyond its number.
    identity: BatchPlan | None = None
    # Of tables that return: by bucket the second up to which their expiries were delivered.
    expired: Mapping[TableId, Mapping[int, int]] = field(default_factory=dict)

    def left_out(self, bucket: int) -> frozenset[TableId]:
        """The tables that a bucket leaves as they are."""
        return frozenset(table for table, taken in self.aside.items() if bucket not in taken)

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
    except (PenstockError, OSError) as error:
        known = exhausted(error) or error
        if not isinstance(known, PenstockError):
            raise
        yield outcome.to_arrow([outcome.failure(bucket, known)])


def _run(plan: TaskPlan, bucket: int, batches: Iterator[pa.RecordBatch]) -> list[Outcome]:
    aside = plan.left_out(bucket)
    given = [run for batch in batches for run in runs.from_arrow(batch) if run.schema.table not in aside]
    met = {header.digest: header for header in (Header(run.node, run.schema) for run in given)}
    new = [header for digest, header in met.items() if digest not in plan.headers]
    if new:
        return [_question(bucket, header) for header in new]
    try:
        return _deliver(plan, bucket, given)
    except _Unprepared as error:
        return [_question(bucket, Header("", error.schema))]


def _question(bucket: int, header: Header) -> Outcome:
    """Let the driver know of a header, and do the batch again."""
    data = json.dumps([header.node, header.schema.to_json()]).encode()
    return Outcome(bucket, "schema", str(header.schema.table), data=data)


def asked(outcome: Outcome) -> Header:
    """The header that a task asks for; of no node when only its schema is to be prepared for."""
    node, schema = json.loads(outcome.data)
    return Header(node, runs.schema_of(json.dumps(schema, separators=(",", ":"))))


def _deliver(plan: TaskPlan, bucket: int, given: list[Run]) -> list[Outcome]:
    """Deliver all changes; when some can never be folded, all others, and those as dead letters."""
    try:
        return _Bucket(plan, bucket, given).deliver(given)
    except poison.REFUSALS:
        changes = all(sink.record is RecordType.CHANGE for sink in plan.sinks)
        good, bad = poison.sift(given, RecordType.CHANGE if changes else RecordType.AFTER)
        if not bad:
            raise
    outcomes = _Bucket(plan, bucket, given).deliver(good)
    data = dead_letters.encode([dead_letters.poison_letter(one) for one in bad])
    return [*outcomes, Outcome(bucket, "dead", dead_letters.FOLD, len(bad), len(data), data)]


# The last that this process has made, with what it was made of: what it prepares for a table is used again.
_made: tuple[TransformSettings, dict[str, str], Transforms] | None = None


def _transforms(plan: TaskPlan) -> Transforms:
    global _made
    if _made is None or _made[:2] != (plan.transform, plan.functions):
        _made = (plan.transform, plan.functions, Transforms(plan.transform, Functions.load(plan.functions)))
    return _made[2]


class _Unprepared(Exception):
    """A record of a table that the sinks were not prepared for: what expires may be of a table without new changes."""

    def __init__(self, schema: TableSchema) -> None:
        super().__init__(schema)
        self.schema = schema


class _Bucket:
    """The moving parts of one task, and its figures by table."""

    def __init__(self, plan: TaskPlan, bucket: int, given: list[Run]) -> None:
        self._plan = plan
        self._bucket = bucket
        self._copies: dict[str, int] = defaultdict(int)
        for run in given:
            self._copies[str(run.schema.table)] += run.count + run.left_out
        self._records: dict[str, int] = defaultdict(int)
        self._newest: dict[str, int] = {}

    def deliver(self, wanted: list[Run]) -> list[Outcome]:
        plan = self._plan
        if plan.stale:
            wanted = [run for run in wanted if Header(run.node, run.schema).digest not in plan.stale]
        transforms = _transforms(plan)
        state = BucketState.open(plan.state_directory, self._bucket, plan.batch)
        aside = state.aside = plan.left_out(self._bucket)
        moves = {table: move for table, move in plan.moves.items() if table not in aside}
        state.expired = {table: known[self._bucket] for table, known in plan.expired.items() if self._bucket in known}
        task = Task(plan.pipeline, plan.batch, self._bucket, plan.now_us, plan.outages, plan.identity)
        with ExitStack() as opened:
            writers = [(sink, opened.enter_context(sink.writer(task))) for sink in plan.sinks]
            for number, (record, sinks) in enumerate(plan.folds(transforms)):
                every = any(sink.every for sink in sinks)
                folder = Folder(
                    plan.merge,
                    record,
                    every=every,
                    moves=moves,
                    eras=plan.eras,
                    newest=plan.newest,
                    drops=plan.drops,
                )
                folded = folder.fold(wanted, state, now_s=plan.now_us // 1_000_000)
                mine = [(sink, writer) for sink, writer in writers if sink in sinks]
                for records in transforms.apply(self._checked(folded, counted=not number)):
                    self._write(mine, records)
            outcomes = self._finish(writers)
        kept = state.finish()
        outcomes.append(Outcome(self._bucket, "state", kept.file, kept.rows, kept.bytes, kept.token))
        return outcomes

    def _checked(self, folded: Iterator[Records], *, counted: bool) -> Iterator[Records]:
        for records in folded:
            if prepared_as(records.schema) not in self._plan.prepared:
                raise _Unprepared(records.schema)
            if not counted:
                yield records
                continue
            table = str(records.schema.table)
            self._records[table] += len(records)
            newest = records.newest_time()
            if newest is not None:
                self._newest[table] = max(newest, self._newest.get(table, newest))
            yield records

    @staticmethod
    def _write(writers: list[tuple[Sink, Writer]], records: Records) -> None:
        last: Records | None = None
        for sink, writer in writers:
            if not sink.every:
                last = records.last() if last is None else last
            try:
                writer.write(records if sink.every or last is None else last)
            except TargetRefused as error:
                if "topic" not in error.place or "table" in error.place:
                    raise
                raise TargetRefused(error.message, **error.place, table=records.schema.table) from error

    def _finish(self, writers: list[tuple[Sink, Writer]]) -> list[Outcome]:
        out: list[Outcome] = []
        # What a sink has taken for good cannot be taken back when another one refuses the table.
        for sink, writer in sorted(writers, key=lambda one: one[0].once):
            done = writer.finish()
            out.append(Outcome(self._bucket, "sink", sink.name, done.records, done.bytes, done.payload))
            if done.dead:
                data = dead_letters.encode(done.dead)
                out.append(Outcome(self._bucket, "dead", sink.name, len(done.dead), len(data), data))
        for table, copies in self._copies.items():
            facts = json.dumps({"newest_us": self._newest.get(table)}).encode()
            out.append(Outcome(self._bucket, "table", table, self._records.get(table, 0), copies, facts))
        return out
