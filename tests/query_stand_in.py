"""A pipeline's query without Spark: what Spark does for it, in this process, with crashes wherever a test wants them.

Spark notes how far a batch goes before it begins it, and that it is done after it; a batch that is not noted as done
comes again after a crash, with the same end. Only then does it tell the source what is delivered. What is noted is in
the files that Spark has, in the directory that the pipeline gives to a query; `start` is a new process, which knows
nothing else.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.deliver.sink import DeadLetter, Delivered, Sink, Task, Writer
from penstock.errors import PenstockError, Retry, TargetRefused
from penstock.formats import avro
from penstock.pipeline import pipeline as pipelines
from penstock.pipeline import task
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.source.admission import Limits
from penstock.pipeline.source.options import SourceOptions, parse
from penstock.pipeline.source.places import access, open_reader
from penstock.pipeline.source.planner import Planner
from penstock.pipeline.source.portions import copied_tables
from penstock.pipeline.source.reach import from_offset, to_offset
from penstock.pipeline.source.source import pipeline_options
from penstock.pipeline.source.stretches import read_runs
from penstock.records.records import Records
from penstock.settings import Settings
from penstock.system.clock import Clock


class Crash(BaseException):
    """The end of the process, at a moment that a test has chosen."""


class Query:
    """One query, from process to process."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
        self._settings = settings
        self._options = options
        self._pipeline: Pipeline | None = None
        self._initial: dict[str, Any] | None = None
        # The pipeline calls this in the place of Spark's tasks.
        monkeypatch.setattr(pipelines, "_tasks", run_tasks)

    def start(self) -> Query:
        if self._pipeline is not None:
            # The operating system does this for a process that has ended.
            self._pipeline._end()
        self._pipeline = Pipeline(self._settings)
        self._pipeline._begin()
        self._directory = self._pipeline._begin_query()
        buckets = self._settings.pipeline.buckets or 1
        self._source: SourceOptions = parse({**pipeline_options(self._settings, buckets), **self._options})
        self._planner = Planner(self._source)
        return self

    @property
    def done(self) -> int:
        """The last batch that Spark knows to be done."""
        return max((int(file.name) for file in (self._directory / "commits").iterdir()), default=-1)

    def run(self) -> Query:
        """Do all that there is to do."""
        while self.step():
            pass
        return self

    def step(self) -> bool:
        """One batch; False when there was nothing to do."""
        number = self.done + 1
        if self._initial is None:
            self._initial = to_offset(self._planner.initial())
        begin = self._end_of(number - 1) if number else self._initial
        assert begin is not None, "Spark does not start without the end of the batch before"
        end = self._end_of(number)
        if end is None:
            end = to_offset(self._planner.latest(from_offset(begin), self._limits()))
            if end == begin:
                return False
            (self._directory / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
        tasks = self._planner.partitions(from_offset(begin), from_offset(end))
        self._deliver(list(self._read(tasks)), number)
        self.note_done(number)
        self._planner.commit(from_offset(end))
        return True

    def note_done(self, number: int) -> None:
        """Spark's own commit."""
        (self._directory / "commits" / str(number)).write_text("v1\n{}")

    def _end_of(self, number: int) -> dict[str, Any] | None:
        file = self._directory / "offsets" / str(number)
        if not file.exists():
            return None
        end: dict[str, Any] = json.loads(file.read_text().split("\n")[2])
        return end

    def stop(self) -> None:
        """End in good order."""
        self._planner.close()
        assert self._pipeline is not None
        self._pipeline._end()

    def _limits(self) -> Limits:
        return Limits(self._source.max_rows_per_trigger, self._source.max_bytes_per_trigger)

    def _read(self, tasks: Any) -> Iterator[pa.RecordBatch]:
        how = access(self._source)
        for pieces in tasks:
            opened = ((piece.address, open_reader(piece.address, how), piece.stretch) for piece in pieces)
            copied = copied_tables(pieces) if self._source.distinct else frozenset()
            yield from read_runs(opened, self._source.buckets, copied)

    def _deliver(self, frame: Any, number: int) -> None:
        assert self._pipeline is not None
        with suppress(RuntimeError):
            self._pipeline._deliver(frame, number)
            return
        # Whoever waits for the query raises what the pipeline has kept.
        assert self._pipeline._error is not None
        raise self._pipeline._error


class GoingOn(Query):
    """One that goes on without a table that something is wrong with, as the pipeline does."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch, clock: Clock | None = None) -> None:
        super().__init__(settings, monkeypatch)
        self._clock = clock

    @property
    def pipeline(self) -> Pipeline:
        assert self._pipeline is not None
        return self._pipeline

    def start(self) -> GoingOn:
        if self._pipeline is not None:
            self._pipeline._end()
        self._pipeline = Pipeline(self._settings, clock=self._clock)
        self._pipeline._begin()
        self._begin()
        return self

    def _begin(self) -> None:
        self._source = parse({**self.pipeline._query_options(), **self._options})
        self._directory = self.pipeline._begin_query()
        self._planner = Planner(self._source)

    def run(self) -> GoingOn:
        failures = 0
        while True:
            try:
                if self.step():
                    failures = 0
                elif self.pipeline._holding.asks():
                    self._again()
                else:
                    return self
            except PenstockError as error:
                failures += 1
                if not self.pipeline._hold(error, failures) and error.retry is not Retry.TIMED:
                    raise
                self._again()

    def _again(self) -> None:
        self._planner.close()
        self._begin()


def run_tasks(frame: list[pa.RecordBatch], plan: task.TaskPlan, buckets: int) -> pa.Table:
    """What Spark's tasks would do: each bucket by itself, with a plan that has come by pickle."""
    out: list[pa.RecordBatch] = []
    for bucket in range(buckets):
        mine = [batch.filter(pc.equal(batch.column("bucket"), bucket)) for batch in frame]
        out += task.run(pickle.loads(pickle.dumps(plan)), bucket, iter([batch for batch in mine if len(batch)]))
    return pa.Table.from_batches(out)


class OnceSink(Sink):
    """An own sink whose tasks give their records for good, as a transaction does; it may refuse a table in a bucket."""

    name: ClassVar[str] = "once"
    once = True
    refused: ClassVar[tuple[str, int] | None] = None
    # The target: what was given, and by which bucket of which batch.
    given: ClassVar[list[tuple[str, int]]] = []
    done: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, _: dict[str, str]) -> None:
        pass

    @classmethod
    def begin(cls) -> None:
        cls.given, cls.done, cls.refused = [], set(), None

    def writer(self, task: Task) -> Writer:
        return _OnceWriter(task)


class _OnceWriter(Writer):
    def __init__(self, task: Task) -> None:
        self._task = task
        self._held: list[tuple[str, int]] = []

    def write(self, records: Records) -> None:
        table = str(records.schema.table)
        if OnceSink.refused == (table, self._task.bucket):
            raise TargetRefused("not this table", table=table)
        self._held += [(table, change.key["id"]) for change in avro.decode(records.changes)]

    def finish(self) -> Delivered:
        part = self._task.batch, self._task.bucket
        if part not in OnceSink.done:
            OnceSink.done.add(part)
            OnceSink.given += self._held
        return Delivered(records=len(self._held))


class PickySink(Sink):
    """An own sink that takes everything but one row, which becomes a dead letter each time."""

    name: ClassVar[str] = "picky"
    refused = 13

    def __init__(self, _: dict[str, str]) -> None:
        pass

    def writer(self, task: Task) -> Writer:
        return _PickyWriter()


class _PickyWriter(Writer):
    def __init__(self) -> None:
        self._delivered = Delivered()

    def write(self, records: Records) -> None:
        for number, change in enumerate(avro.decode(records.changes)):
            if change.key["id"] != PickySink.refused:
                self._delivered.records += 1
                continue
            row = bytes(records.take([number]).changes.rows)
            key = f'{{"id":{change.key["id"]}}}'
            self._delivered.dead.append(
                DeadLetter("picky", str(records.schema.table), key, "not this one", records.schema, row)
            )

    def finish(self) -> Delivered:
        return self._delivered
