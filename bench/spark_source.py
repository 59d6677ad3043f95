"""Spark source: changes from a log to Spark's noop sink, against Spark's own Kafka source on the same rows.

The rows stand in a change log, and as JSON in two topics of two partitions each of a real broker: as changes, with
operation, place and time, which are the records of the Kafka sink; and as plain rows. All are read by streaming queries
in one session, in batches of the same number of rows. A query's first batch does not count, nor does its last: from the
beginning of the second to the beginning of the last one, exactly so many rows were planned for, read and committed.
Kafka's source hands over bytes; ours decodes every column (flat) or hands over runs of encoded rows. The flat shape is
compared with the topic that says the same: as it comes by default with the changes, and with no more than the table's
columns, the place and the time with the plain rows. What the usual columns cost beside rows that lack most of them is
shown too, without a target: these are not the same rows. The broker's own CPU does not count. The cost of a trigger is
measured with one row in each batch, against the built-in rate sources.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import spark_side
from bench.harness import PAIRS_MIN, ROOT, Run, Sample, Target, interleave, options, quotients, say
from bench.stages import Stages
from penstock.deliver.kafka.sink import KafkaSink
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Marker, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings.kafka import KafkaSettings
from testkit.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = TableSchema(
    TableId("bench", "orders"),
    (
        Column("customer", t.INT64, Role.PARTITION),
        Column("id", t.INT64, Role.CLUSTERING),
        Column("name", t.TEXT),
        Column("street", t.TEXT),
        Column("note", t.TEXT),
        Column("amount", t.FLOAT64),
        Column("items", t.INT32),
        Column("paid", t.BOOLEAN),
    ),
    source="cassandra",
)
_SPARK_TYPES = {
    "customer": "long",
    "id": "long",
    "name": "string",
    "street": "string",
    "note": "string",
    "amount": "double",
    "items": "int",
    "paid": "boolean",
}
# Beside the columns, a row of Kafka's source has its partition, its offset and its time.
_SAME = ",".join((*(column.name for column in SCHEMA.columns), "_node", "_position", "_commit_timestamp"))
_SUMS = (
    "count(*) AS rows",
    "sum(customer * 31 + id) AS keys",
    "sum(crc32(concat_ws('|', name, street, note, cast(items AS string), cast(paid AS string)))) AS texts",
    "round(sum(amount), 2) AS amount",
)
_ROW_JSON = ", ".join(f"{name} {type_}" for name, type_ in _SPARK_TYPES.items())
_CHANGE_JSON = ", ".join(f"{name}: struct<value: {type_}>" for name, type_ in _SPARK_TYPES.items())
PREFIX = "bench"
CHANGES, ROWS = f"{PREFIX}.{SCHEMA.table}", "bench-orders"
# Rows of one block, which is what an agent appends at once; of one micro-batch; and micro-batches of a round.
BLOCK = 2_000
BATCH = 200_000
BATCHES = 8
# Rounds that do not count, until Java has compiled what runs often; the Kafka client's code takes the longest.
WARM_UPS = 5
QUICK_BATCH = 4_000
QUICK_BATCHES = 4
# Triggers of a round with one row each; the first few, in which the query comes up, do not count.
TRIGGERS = 60
SECONDS = 20
QUICK_TRIGGERS = 4
UNCOUNTED = 3
# Single rows beyond those that are timed, for batches that come before the query is stopped.
SPARE = 20
START_US = 1_700_000_000_000_000


def rows_of(first: int, count: int) -> list[dict[str, Any]]:
    """Plain rows; all of them differ."""
    return [
        {
            "customer": number % 9_973,
            "id": number,
            "name": f"customer {number % 9_973}",
            "street": f"{number % 300} Long Road, district {number % 17}",
            "note": f"order {number:012d} " + "abcdefgh" * (number % 5),
            "amount": (number % 100_000) / 100,
            "items": number % 40,
            "paid": number % 3 == 0,
        }
        for number in range(first, first + count)
    ]


def encoded(rows: Sequence[dict[str, Any]]) -> ChangeBatch:
    """Rows as the changes that INSERT statements make."""
    changes = [
        Change(
            Op.INSERT,
            {"customer": row["customer"], "id": row["id"]},
            {name: Set(value) for name, value in row.items() if name not in ("customer", "id")},
            time=START_US + row["id"],
            marker=Marker(),
            origin=Origin(node="n1", file="CommitLog-7-1.log", position=row["id"]),
        )
        for row in rows
    ]
    return avro.encode(SCHEMA, changes)


def fill(directory: Path, broker: KafkaBroker, count: int) -> None:
    """The same rows into a change log and into both topics."""
    from confluent_kafka import Producer

    # They are public, but the library's types do not say so.
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": broker.address})
    for made in admin.create_topics([NewTopic(topic, spark_side.CORES, 1) for topic in (CHANGES, ROWS)]).values():
        made.result()
    # Nothing is compressed on either side.
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    log_directory = directory / "logs" / str(SCHEMA.table)
    with TableLog.open(str(log_directory), SCHEMA, node="n1") as log:
        for first in range(0, count, BLOCK):
            rows = rows_of(first, min(BLOCK, count - first))
            log.append(encoded(rows))
            for row in rows:
                producer.produce(ROWS, json.dumps(row).encode(), str(row["customer"]).encode())
            producer.flush()
    sink = KafkaSink(KafkaSettings(bootstrap_servers=(broker.address,), topic_prefix=PREFIX))
    Stages(sink, directory / "stages", spark_side.CORES).run({"n1": log_directory}, BATCH)


class Sides:
    """The two sources on the same rows, and queries that read them."""

    def __init__(self, spark: SparkSession, directory: Path, broker: KafkaBroker, batch: int) -> None:
        self._spark = spark
        self._cost = spark_side.Cost(spark)
        self._directory = directory
        self._batch = batch
        self._ours = {"path": str(directory / "logs")}
        self._flat = {**self._ours, "table": str(SCHEMA.table)}
        self._kafka = {"kafka.bootstrap.servers": broker.address, "startingOffsets": "earliest"}

    def check(self, run: Run, count: int) -> None:
        """Both sides have the same rows, column by column."""
        spark = self._spark
        flat = spark.read.format("penstock").options(**self._flat).load()
        changes, rows = (
            then(spark.read.format("kafka").options(**self._kafka, subscribe=topic).load())
            for topic, then in ((CHANGES, _parsed_changes), (ROWS, _parsed))
        )
        ours, *theirs = (frame.selectExpr(*_SUMS).collect()[0].asDict() for frame in (flat, changes, rows))
        run.check(f"{count:,} rows, equal column by column, in the log and in the topics", theirs == [ours, ours])
        run.check("none is missing", ours["rows"] == count)
        runs = spark.read.format("penstock").options(**self._ours, shape="runs").load()
        run.check("the runs hold as many", runs.selectExpr("sum(count) AS n").collect()[0]["n"] == count)

    def flat(self) -> Sample:
        return self._read("penstock", {**self._flat, "maxRowsPerTrigger": str(self._batch)})

    def flat_same(self) -> Sample:
        """What the topic's records say, and no more: the table's columns, with the place and time of each row."""
        return self._read("penstock", {**self._flat, "columns": _SAME, "maxRowsPerTrigger": str(self._batch)})

    def runs(self) -> Sample:
        """Rows of this shape hold many changes, so Spark's own count of rows cannot be used."""
        return self._read("penstock", {**self._ours, "shape": "runs", "maxRowsPerTrigger": str(self._batch)})

    def kafka_changes(self) -> Sample:
        return self._read_topic(CHANGES)

    def kafka(self) -> Sample:
        return self._read_topic(ROWS)

    def kafka_parsed(self) -> Sample:
        """Kafka's source with what a reader of JSON must do to have columns."""
        return self._read_topic(ROWS, _parsed)

    def _read_topic(self, topic: str, then: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> Sample:
        return self._read("kafka", {**self._kafka, "subscribe": topic, "maxOffsetsPerTrigger": str(self._batch)}, then)

    def _read(
        self, source: str, given: dict[str, str], then: Callable[[DataFrame], DataFrame] = lambda frame: frame
    ) -> Sample:
        """One query; from the beginning of its second batch to the beginning of its last."""
        marks: list[tuple[float, float]] = []

        def take(frame: DataFrame, _: int) -> None:
            marks.append((time.monotonic(), self._cost.cpu_s()))
            frame.write.format("noop").mode("overwrite").save()

        def make() -> Any:
            marks.clear()
            frame = then(self._spark.readStream.format(source).options(**given).load())
            return frame.writeStream.foreachBatch(take).trigger(availableNow=True)

        spark_side.finish(make, self._directory / "checkpoint")
        (wall_a, cpu_a), (wall_b, cpu_b) = marks[1], marks[-1]
        return Sample(self._batch * (len(marks) - 2), wall_b - wall_a, cpu_b - cpu_a)

    def back_to_back(self, source: str, triggers: int) -> Sample:
        """Triggers of one row each, one after the other."""
        if source == "rate-micro-batch":
            return self._triggers(source, {"rowsPerBatch": "1"}, triggers)
        with self._one_by_one() as (log, given):
            for number in range(triggers + UNCOUNTED + SPARE):
                log.append(encoded(rows_of(number, 1)))
            return self._triggers(source, {**given, "maxRowsPerTrigger": "1"}, triggers)

    def once_a_second(self, source: str, triggers: int) -> Sample:
        """Triggers of one row each, a second apart, which is how the rate source gives single rows."""
        if source == "rate":
            return self._triggers(source, {"rowsPerSecond": "1"}, triggers)
        stop = threading.Event()
        with self._one_by_one() as (log, given):
            log.append(encoded(rows_of(0, 1)))

            def feed() -> None:
                number = 1
                while not stop.wait(1.0):
                    log.append(encoded(rows_of(number, 1)))
                    number += 1

            feeder = threading.Thread(target=feed)
            feeder.start()
            try:
                return self._triggers(source, given, triggers)
            finally:
                stop.set()
                feeder.join()

    @contextmanager
    def _one_by_one(self) -> Iterator[tuple[TableLog, dict[str, str]]]:
        """A new log for single rows, and how to read it."""
        logs = self._directory / f"single-{uuid.uuid4().hex[:8]}"
        with TableLog.open(str(logs / str(SCHEMA.table)), SCHEMA, node="n1") as log:
            yield log, {"path": str(logs), "table": str(SCHEMA.table)}
        shutil.rmtree(logs)

    def _triggers(self, source: str, given: dict[str, str], triggers: int) -> Sample:
        """The times of so many triggers of one row each, by Spark's own account."""
        frame = self._spark.readStream.format(source).options(**given).load()
        wall, cpu = time.monotonic(), self._cost.cpu_s()
        times: dict[int, float] = {}

        def enough(query: StreamingQuery) -> bool:
            for one in query.recentProgress:
                if one["batchId"] >= UNCOUNTED and one["numInputRows"] == 1:
                    times[one["batchId"]] = one["durationMs"]["triggerExecution"] * 1000.0
            return len(times) >= triggers

        spark_side.run_until(lambda: frame.writeStream.format("noop"), self._directory / "checkpoint", enough)
        return Sample(len(times), time.monotonic() - wall, self._cost.cpu_s() - cpu, tuple(times.values()))


def _parsed(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    text = functions.col("value").cast("string")
    return frame.select(functions.from_json(text, _ROW_JSON).alias("row")).select("row.*")


def _parsed_changes(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    text = functions.col("value").cast("string")
    change = functions.from_json(text, f"after struct<{_CHANGE_JSON}>").alias("change")
    return frame.select(change).selectExpr(*(f"change.after.{name}.value AS {name}" for name in _SPARK_TYPES))


def measure(run: Run, sides: Sides, chosen: argparse.Namespace) -> None:
    for _ in range(1 if chosen.quick else WARM_UPS):
        for side in (
            sides.flat,
            sides.kafka_changes,
            sides.flat_same,
            sides.kafka,
            sides.runs,
            sides.kafka_parsed,
        ):
            side()
    note = f"batches of {QUICK_BATCH if chosen.quick else BATCH:,} rows"
    against = (
        ("flat shape ÷ Spark's Kafka source, changes", sides.flat, sides.kafka_changes, Target(at_least=1.0)),
        ("flat shape ÷ Spark's Kafka source, plain rows", sides.flat_same, sides.kafka, Target(at_least=1.0)),
        ("runs ÷ Spark's Kafka source, plain rows", sides.runs, sides.kafka, Target(at_least=1.0)),
        ("flat shape, all usual columns ÷ Kafka source, plain rows", sides.flat, sides.kafka, None),
        ("flat shape, all usual columns ÷ Kafka source and from_json", sides.flat, sides.kafka_parsed, None),
    )
    for name, ours, peer, target in against:
        a, b = interleave(ours, peer, PAIRS_MIN)
        for what, unit, of in (
            ("rows per CPU-second", "rows/CPU-s", attrgetter("cpu_rate")),
            ("rows per second", "rows/s", attrgetter("rate")),
        ):
            rates_a, rates_b = [of(one) for one in a], [of(one) for one in b]
            run.ratio(
                f"{name}, {what}",
                quotients(rates_a, rates_b),
                target if unit == "rows/CPU-s" else None,
                ours=statistics.median(rates_a),
                peer=statistics.median(rates_b),
                unit=unit,
                note=note,
            )


def measure_trigger(run: Run, sides: Sides, chosen: argparse.Namespace) -> None:
    kinds = (
        ("once a second ÷ the rate source's", sides.once_a_second, "rate", SECONDS, Target(at_most=1.6)),
        ("back to back ÷ rate-micro-batch's", sides.back_to_back, "rate-micro-batch", TRIGGERS, None),
    )
    for name, side, source, full, target in kinds:
        count = QUICK_TRIGGERS if chosen.quick else full
        a, b = interleave(partial(side, "penstock", count), partial(side, source, count), PAIRS_MIN)
        ours = [statistics.median(one.latencies_us) / 1000 for one in a]
        peer = [statistics.median(one.latencies_us) / 1000 for one in b]
        run.ratio(
            f"one-row trigger {name}, median",
            quotients(ours, peer),
            target,
            ours=statistics.median(ours),
            peer=statistics.median(peer),
            unit="ms",
            note=f"{count} triggers a round",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options("spark_source", (__doc__ or "").splitlines()[0], arguments)
    run = Run("spark-source", chosen.quick)
    directory = Path(chosen.directory) / f"spark-source-{uuid.uuid4().hex[:8]}"
    directory.mkdir(parents=True)
    batch, batches = (QUICK_BATCH, QUICK_BATCHES) if chosen.quick else (BATCH, BATCHES)
    try:
        with KafkaBroker(directory / "kafka", cache=ROOT / ".cache", note=say) as broker:
            say(f"writing {batch * batches:,} rows twice …")
            fill(directory, broker, batch * batches)
            jars = spark_side.jars("spark-kafka", spark_side.KAFKA)
            with spark_side.session(directory, peers=True, **{"spark.jars": jars}) as spark:
                sides = Sides(spark, directory, broker, batch)
                sides.check(run, batch * batches)
                measure(run, sides, chosen)
                measure_trigger(run, sides, chosen)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
