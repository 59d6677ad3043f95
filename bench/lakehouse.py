"""Lakehouse: changes merged into a Delta table by the pipeline, against Spark's own aggregate and MERGE of the same.

1 M changes over 100 k keys, each with some of five cells, in an order that is not that of their times: the last write
of each cell must win. Ours come from a change log; Spark's stand in Parquet files, its fastest source, with the columns
as they are. Spark keeps the time of each cell in the table, for without it a late change could not be told. Both take
four micro-batches in one session, each round into a new table. The two tables must be equal before a time counts.

What is judged is the whole query, from the moment at which it is asked for until it has ended, on both sides: starting
it, reading, shuffling, merging, committing, and what Spark does between two batches. The time from the moment at which
Spark hands over the first micro-batch until the last one is in the table is told too, and so is the difference:
starting is paid once, however many changes come. Ours starts Python processes for its source, Spark's lists files in
the JVM.

Rows do not pass the driver: the tasks write data files, and tell the driver their names and which rows they replace.
What they tell is counted.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench import spark_side
from bench.harness import PAIRS_MIN, CheckFailed, Run, Sample, Target, interleave, options, quotients, say
from bench.stages import Stages
from penstock.deliver.delta.sink import DeltaSink
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.change import Change, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.pipeline import outcome
from penstock.pipeline.outcome import Outcome
from penstock.pipeline.pipeline import Pipeline
from penstock.settings import LogSettings, PipelineSettings, Settings
from penstock.settings.sinks import DeltaSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CELLS = tuple(f"c{number}" for number in range(5))
SCHEMA = TableSchema(
    TableId("bench", "readings"),
    (Column("id", t.INT64, Role.PARTITION), *(Column(name, t.TEXT) for name in CELLS)),
    source="cassandra",
)
CHANGES, KEYS, BATCHES = 1_000_000, 100_000, 4
QUICK_CHANGES, QUICK_KEYS = 20_000, 2_000
# The table grows to so many rows, in so many steps; to each step belong updates of a quarter as many rows, old or new.
GROWN, STEPS = 10_000_000, 10
QUICK_GROWN, QUICK_STEPS = 200_000, 4
GROWN_SCHEMA = TableSchema(
    TableId("bench", "grown"),
    (Column("id", t.INT64, Role.PARTITION), Column("note", t.TEXT), Column("amount", t.INT64)),
    source="cassandra",
)
BLOCK = 2_000
# Rounds of each side before any counts: the Java machine compiles what it runs often.
WARM = 2
# Settings that the pipeline gives its own sessions and that can be changed from query to query. Spark's side has what
# Spark has by itself.
OURS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
START_US = 1_700_000_000_000_000
# A prime: multiples of it, modulo a number of changes that is none of its multiples, are all different.
_STEP = 7_919
MICRO = 1_000_000
# Samples of our side, and of Spark's.
Pair = tuple[Sequence[Sample], Sequence[Sample]]


def rows_of(changes: int, keys: int) -> Iterator[dict[str, Any]]:
    """Changes as plain rows: a key, a time that no other has, and between one and five cells."""
    chance = random.Random(5)  # noqa: S311 - seeded, to be repeated
    for number in range(changes):
        row: dict[str, Any] = {"id": chance.randrange(keys), "time": START_US + number * _STEP % changes}
        written = chance.randrange(1, 1 << len(CELLS))
        for at, name in enumerate(CELLS):
            row[name] = f"value {number} of {name}" if written >> at & 1 else None
        yield row


def fill(directory: Path, changes: int, keys: int) -> None:
    """The same changes into a log and into Parquet files, one for each micro-batch."""
    files = directory / "parquet"
    files.mkdir()
    rows = rows_of(changes, keys)
    each = changes // BATCHES
    # One file: a pipeline deletes files that it has delivered, and every round reads the same log from its beginning.
    one_file = LogSettings(file_bytes_max=4 << 30)
    with TableLog.open(str(directory / "n1" / str(SCHEMA.table)), SCHEMA, settings=one_file, node="n1") as log:
        for batch in range(BATCHES):
            taken = [next(rows) for _ in range(each)]
            pq.write_table(pa.Table.from_pylist(taken), files / f"{batch}.parquet")
            for first in range(0, each, BLOCK):
                log.append(avro.encode(SCHEMA, [_change(row) for row in taken[first : first + BLOCK]]))


def _change(row: dict[str, Any]) -> Change:
    cells = {name: Set(row[name]) for name in CELLS if row[name] is not None}
    return Change(Op.UPDATE, {"id": row["id"]}, cells, time=row["time"], origin=Origin(node="n1", position=row["time"]))


class Watch:
    """When the micro-batches of a query were done: from the first one's beginning to the last one's end."""

    def __init__(self, cost: spark_side.Cost) -> None:
        self._cost = cost
        self._first: tuple[float, float] | None = None
        self._last = (0.0, 0.0)

    def begin(self) -> None:
        if self._first is None:
            self._first = self._now()

    def end(self) -> None:
        self._last = self._now()

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), self._cost.cpu_s()

    def sample(self, amount: float) -> Sample:
        if self._first is None:
            raise CheckFailed("no micro-batch was done")
        return Sample(amount, self._last[0] - self._first[0], self._last[1] - self._first[1])


class WatchedPipeline(Pipeline):
    """A pipeline whose batches are timed, and what its tasks tell the driver is counted."""

    watch: Watch | None = None
    told_bytes = 0

    def _deliver(self, frame: DataFrame, batch: int) -> None:
        if self.watch is not None:
            self.watch.begin()
        super()._deliver(frame, batch)
        if self.watch is not None:
            self.watch.end()

    def _outcomes(self, frame: DataFrame, batch: int, now_us: int) -> list[Outcome]:
        outcomes = super()._outcomes(frame, batch, now_us)
        self.told_bytes += outcome.to_arrow(outcomes).nbytes
        return outcomes


class Sides:
    """The two ways to merge the same changes; each call makes a table of its own."""

    def __init__(self, spark: SparkSession, directory: Path, changes: int) -> None:
        self._spark = spark
        self._cost = spark_side.Cost(spark)
        self._directory = directory
        self._changes = changes
        self.table = directory / "lake" / "bench" / "readings"
        self.peer_table = directory / "peer-lake"
        # What the tables of all rounds said.
        self.digests: set[tuple[int, int]] = set()
        # The whole queries of both sides, and the bytes that our tasks told the driver in each round.
        self.our_queries: list[Sample] = []
        self.their_queries: list[Sample] = []
        self.told_bytes: list[int] = []
        self._watch = Watch(self._cost)

    def forget(self) -> None:
        """The rounds so far were to warm up."""
        self.our_queries.clear()
        self.their_queries.clear()
        self.told_bytes.clear()

    def ours(self) -> Sample:
        for name in ("lake", "checkpoint"):
            shutil.rmtree(self._directory / name, ignore_errors=True)
        wall, cpu = time.monotonic(), self._cost.cpu_s()
        watch = Watch(self._cost)
        with as_pipeline(self._spark):
            pipeline = deliver(self._spark, self._directory, SCHEMA, self._changes // BATCHES, watch)
        self.our_queries.append(Sample(self._changes, time.monotonic() - wall, self._cost.cpu_s() - cpu))
        self.told_bytes.append(pipeline.told_bytes)
        self.digests.add(self._digest(self.table))
        return watch.sample(self._changes)

    def theirs(self) -> Sample:
        shutil.rmtree(self.peer_table, ignore_errors=True)
        columns = ", ".join(f"{name} STRING, {name}_time BIGINT" for name in CELLS)
        self._spark.sql(f"CREATE TABLE delta.`{self.peer_table}` (id BIGINT, {columns}) USING delta")
        reader = self._spark.readStream.schema(f"id long, time long, {', '.join(f'{name} string' for name in CELLS)}")
        frame = reader.option("maxFilesPerTrigger", 1).parquet(str(self._directory / "parquet"))
        wall, cpu = time.monotonic(), self._cost.cpu_s()
        self._watch = Watch(self._cost)
        spark_side.finish(
            lambda: frame.writeStream.foreachBatch(self._merge).trigger(availableNow=True),
            self._directory / "peer-checkpoint",
        )
        self.their_queries.append(Sample(self._changes, time.monotonic() - wall, self._cost.cpu_s() - cpu))
        self.digests.add(self._digest(self.peer_table))
        return self._watch.sample(self._changes)

    def _digest(self, table: Path) -> tuple[int, int]:
        """How many rows a table has, and a sum over all that they say."""
        columns = ", ".join(("id", *CELLS))
        frame = self._spark.read.format("delta").load(str(table))
        row = frame.selectExpr("count(*) AS rows", f"sum(cast(xxhash64({columns}) AS decimal(38))) AS digest").first()
        if row is None:
            raise CheckFailed(f"{table} gave no answer")
        return int(row["rows"]), int(row["digest"])

    def _merge(self, frame: DataFrame, _: int) -> None:
        """The last write of each cell in this batch, into a table that may have a later one."""
        from pyspark.sql import functions

        self._watch.begin()
        last = [
            functions.max(functions.when(functions.col(name).isNotNull(), functions.struct("time", name))).alias(name)
            for name in CELLS
        ]
        news = frame.groupBy("id").agg(*last)
        columns = [column for name in CELLS for column in (f"{name}.{name} AS {name}", f"{name}.time AS {name}_time")]
        news.selectExpr("id", *columns).createOrReplaceTempView("news")
        later = {name: f"news.{name}_time > coalesce(old.{name}_time, -1)" for name in CELLS}
        sets = ", ".join(
            f"{column} = if({later[name]}, news.{column}, old.{column})"
            for name in CELLS
            for column in (name, f"{name}_time")
        )
        frame.sparkSession.sql(
            f"MERGE INTO delta.`{self.peer_table}` AS old USING news ON old.id = news.id "
            f"WHEN MATCHED THEN UPDATE SET {sets} WHEN NOT MATCHED THEN INSERT *"
        )
        self._watch.end()

    def check(self, run: Run, table: Path | None = None) -> None:
        """Our table, or another one of the same changes, and Spark's have the same rows."""
        columns = ("id", *CELLS)
        ours, theirs = (
            self._spark.read.format("delta").load(str(place)).select(*columns)
            for place in (table or self.table, self.peer_table)
        )
        count = ours.count()
        same = not ours.exceptAll(theirs).count() and not theirs.exceptAll(ours).count()
        who = "of the stages one by one" if table else "of the pipeline"
        run.check(
            f"{self._changes:,} changes: the table {who} and Spark's have the same {count:,} rows", same and count > 0
        )


@contextmanager
def as_pipeline(spark: SparkSession) -> Iterator[None]:
    """Queries that are started in here have the pipeline's own settings."""
    before = {name: spark.conf.get(name) for name in OURS}
    for name, value in OURS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, text in before.items():
            spark.conf.set(name, str(text))


def deliver(
    spark: SparkSession, directory: Path, schema: TableSchema, rows_per_batch: int, watch: Watch | None = None
) -> WatchedPipeline:
    """Run the pipeline over one table until all is delivered."""
    settings = Settings(
        pipeline=PipelineSettings(
            name="bench",
            checkpoint_directory=directory / "checkpoint",
            logs=(str(directory / "n1"),),
            include=(str(schema.table),),
            sinks=("delta",),
            buckets=spark_side.CORES,
            rows_per_batch=rows_per_batch,
        ),
        delta=DeltaSettings(directory=directory / "lake"),
    )
    pipeline = WatchedPipeline(settings, spark=spark)
    pipeline.watch = watch
    pipeline.run(available_now=True)
    return pipeline


def measure(run: Run, spark: SparkSession, directory: Path, chosen: argparse.Namespace) -> None:
    changes, keys = (QUICK_CHANGES, QUICK_KEYS) if chosen.quick else (CHANGES, KEYS)
    say(f"writing {changes:,} changes twice …")
    fill(directory, changes, keys)
    sides = Sides(spark, directory, changes)
    for _ in range(1 if chosen.quick else WARM):
        sides.ours()
        sides.theirs()
    sides.check(run)
    sides.forget()
    a, b = interleave(sides.ours, sides.theirs, PAIRS_MIN)
    run.check("the tables of all rounds say the same", len(sides.digests) == 1)
    compare(run, (sides.our_queries, sides.their_queries), (a, b), f"{changes:,} changes over {keys:,} keys")
    told = [count / changes for count in sides.told_bytes]
    run.value("passed the driver: what tasks told it", told, "bytes per change", note="no row does")
    cpu = [statistics.median(one.cpu_s for one in samples) / changes * MICRO for samples in (sides.our_queries, a)]
    _stages(run, sides, directory, changes, *cpu)


def compare(run: Run, queries: Pair, batches: Pair, note: str) -> None:
    """The whole queries of both sides, which are judged, and their batches alone."""
    for what, unit, target, of, (ours, theirs) in (
        ("whole query, changes per second", "changes/s", Target(at_least=5), attrgetter("rate"), queries),
        ("whole query, changes per CPU-second", "changes/CPU-s", None, attrgetter("cpu_rate"), queries),
        ("the batches only, changes per second", "changes/s", None, attrgetter("rate"), batches),
        ("the batches only, changes per CPU-second", "changes/CPU-s", None, attrgetter("cpu_rate"), batches),
    ):
        mine, other = [of(one) for one in ours], [of(one) for one in theirs]
        run.ratio(
            f"pipeline ÷ Spark's aggregate and MERGE, {what}",
            quotients(mine, other),
            target,
            ours=statistics.median(mine),
            peer=statistics.median(other),
            unit=unit,
            note=note,
        )
    for who, whole, parts in (("ours", queries[0], batches[0]), ("Spark's", queries[1], batches[1])):
        starts = [one.wall_s - part.wall_s for one, part in zip(whole, parts, strict=True)]
        run.value(f"start and end of a query, {who}", starts, "s", note="paid once")


def _stages(run: Run, sides: Sides, directory: Path, changes: int, whole: float, batches: float) -> None:
    """What each stage costs on its own, without Spark."""
    several: list[Stages] = []
    for _ in range(PAIRS_MIN):
        place = directory / "stages"
        stages = Stages(DeltaSink(DeltaSettings(directory=place / "lake")), place / "state", spark_side.CORES)
        stages.run({"n1": directory / "n1" / str(SCHEMA.table)}, changes // BATCHES)
        several.append(stages)
        if len(several) == PAIRS_MIN:
            sides.check(run, place / "lake" / "bench" / "readings")
        shutil.rmtree(place)
    for stage in several[0].cpu_s:
        values = [one.cpu_s[stage] / changes * MICRO for one in several]
        run.value(f"stage {stage}", values, "µs of CPU per change")
    total = statistics.median(sum(one.cpu_s.values()) for one in several) / changes * MICRO
    run.value("Spark: the batches less their stages", [batches - total], "µs of CPU per change")
    run.value("start and end: the whole query less its batches", [whole - batches], "µs of CPU per change")


def growth(run: Run, spark: SparkSession, directory: Path, chosen: argparse.Namespace) -> None:
    """Cost per change while the table grows: the same number of new rows and of updates in each step."""
    rows, steps = (QUICK_GROWN, QUICK_STEPS) if chosen.quick else (GROWN, STEPS)
    each = rows // steps
    chance = random.Random(7)  # noqa: S311 - seeded, to be repeated
    cost = spark_side.Cost(spark)
    spent: list[float] = []
    state: list[float] = []
    with TableLog.open(str(directory / "n1" / str(GROWN_SCHEMA.table)), GROWN_SCHEMA, node="n1") as log:
        for step in range(steps):
            there = (step + 1) * each
            ids = [*range(step * each, there), *(chance.randrange(there) for _ in range(each // 4))]
            for first in range(0, len(ids), BLOCK):
                log.append(_grown(ids[first : first + BLOCK], step * 2 * each + first))
            cpu = cost.cpu_s()
            with as_pipeline(spark):
                pipeline = deliver(spark, directory, GROWN_SCHEMA, 500_000)
            spent.append((cost.cpu_s() - cpu) / len(ids) * MICRO)
            state.append(pipeline.status().state_bytes / there)
            say(f"{there:,} rows: {spent[-1]:.2f} µs of CPU per change")
    place = directory / "lake" / "bench" / "grown"
    found = spark.read.format("delta").load(str(place)).selectExpr("count(*) AS n", "count(DISTINCT id) AS ids")
    run.check(f"the table has grown to {rows:,} rows", found.collect()[0].asDict() == {"n": rows, "ids": rows})
    # The first step makes the table and is no measure.
    third = max(1, (steps - 1) // 3)
    early, late = spent[1 : 1 + third], spent[-third:]
    run.ratio(
        f"growth: CPU per change, up to {rows:,} rows ÷ up to {each * (1 + third):,}",
        [statistics.median(late) / statistics.median(early)],
        Target(at_most=1.1),
        ours=statistics.median(late),
        peer=statistics.median(early),
        unit="µs/change",
    )
    run.value("growth: the fold's state", [state[-1]], "bytes per row")


def _grown(ids: Sequence[int], first: int) -> Any:
    return avro.encode(
        GROWN_SCHEMA,
        [
            Change(
                Op.UPDATE,
                {"id": number},
                {"note": Set(f"note {first + at}"), "amount": Set(at)},
                time=START_US + first + at,
            )
            for at, number in enumerate(ids)
        ],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options("lakehouse", (__doc__ or "").splitlines()[0], arguments)
    run = Run("lakehouse", chosen.quick)
    directory = Path(chosen.directory).absolute() / f"lakehouse-{uuid.uuid4().hex[:8]}"
    directory.mkdir(parents=True)
    try:
        jars = spark_side.jars("delta", spark_side.DELTA)
        settings: dict[str, Any] = {**spark_side.DELTA_SETTINGS, "spark.jars": jars}
        with spark_side.session(directory, **settings) as spark:
            measure(run, spark, directory, chosen)
            for name in ("lake", "checkpoint", "peer-lake"):
                shutil.rmtree(directory / name)
            growth(run, spark, directory, chosen)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
