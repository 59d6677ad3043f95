"""Pipeline: Cassandra's segments to Kafka's topics, the copies of three replicas merged, against Debezium's connector.

Three agents are given the same segments, each in a cdc_raw directory of its own, as three replicas of a table are. The
pipeline reads their logs and writes each change once, as JSON in Debezium's envelope. Debezium is given the segments
once, and passes every event on, except for static rows, of which it has none. What is counted on both sides is what was
taken in. Ours costs the three agents, Spark's JVM, its Python workers and the driver; the broker counts on neither
side. All stay up from round to round. The other figures are of the pipeline alone: what 200 tables cost beside one and
how soon a change is in its topic, both in the same run with the default settings, and what becomes of its memory in ten
million changes.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import paced_writer, spark_side
from bench.agent import ROUND, Segments, create_tables, write
from bench.agent_process import AgentProcess
from bench.commit_log_peer import CACHE, WORKLOAD, CommitLogPeer
from bench.debezium_peer import Debezium, hand_over
from bench.decode_once import decode, known
from bench.harness import PAIRS_MIN, CheckFailed, Run, Sample, Target, interleave, options, percentile, quotients, say
from bench.kafka_broker import Broker
from bench.paced_writer import PacedWriter
from bench.pipeline_side import RunningPipeline
from bench.records import BLOCK, append, schema_of
from bench.stages import Stages
from bench.topic_events import events
from penstock.deliver.kafka.sink import KafkaSink
from penstock.formats import avro
from penstock.log.names import directory_name
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.model.change import Origin
from penstock.model.schema import TableId
from penstock.sandbox.cassandra_jars import LATEST
from penstock.sandbox.cassandra_server import CassandraServer
from penstock.settings.kafka import KafkaSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES = ("n1", "n2", "n3")
QUICK = 2_000
WITHIN_S = 900
# Rounds that do not count, until Java has compiled what runs often, on both sides.
WARM_UPS = 4
# Single changes of one round, while nothing else is written.
SINGLE, QUICK_SINGLE = 60, 5
# The same changes in one table or in many: at a steady rate for so long, and as a backlog, of which each micro-batch
# takes so many.
TABLES, QUICK_TABLES = 200, 20
RATE, SECONDS, QUICK_SECONDS = 20_000, 10, 4
BATCH, BATCHES = 20_000, 20
QUICK_BATCH, QUICK_BATCHES = 2_000, 4
# The long run: changes in all, and of one step, after which memory is looked at.
LONG, STEP = 10_000_000, 500_000
# The columns whose values must be equal in both topics. docs/formats/debezium-envelope.md says what differs by intent.
EQUAL_COLUMNS = {
    "small": ("device", "at", "name", "value", "quality"),
    "mixed": (
        *("account", "name", "amount", "quantity", "total", "weight", "active", "changed", "reference", "note"),
        *("payload", "labels"),
    ),
}
MICRO = 1_000_000
MIB = 1 << 20


class WholePath:
    """Three agents and a pipeline, and Debezium, on the same segments of one workload."""

    def __init__(
        self, spark: SparkSession, directory: Path, broker: Broker, node: str, workload: str, opened: ExitStack
    ) -> None:
        self.table = TableId("bench", workload)
        self._cost = spark_side.Cost(spark)
        self._cdc_raw = {name: directory / name / "cdc_raw" for name in NODES}
        self._agents: dict[str, AgentProcess] = {}
        for name, place in self._cdc_raw.items():
            place.mkdir(parents=True)
            # The other table of the file has a round of its own, and its topic.
            cassandra: dict[str, Any] = {
                "cdc_raw_directory": str(place),
                "schema_from": "file",
                "schema_file": str(WORKLOAD),
                "include": [str(self.table)],
            }
            agent = AgentProcess(directory / name, cassandra, {"node": name, "transfer": "delete"})
            self._agents[name] = opened.enter_context(agent)
        self._debezium = opened.enter_context(Debezium(directory / "debezium", broker, node, [str(self.table)]))
        self.logs = {name: agent.logs for name, agent in self._agents.items()}
        self._broker = broker
        self.topic = broker.topic(name=f"penstock.{self.table}", flush_messages=2**63 - 1)
        kafka = KafkaSettings(bootstrap_servers=(broker.address,))
        pipeline = RunningPipeline(spark, directory / f"pipeline-{workload}", list(self.logs.values()), kafka)
        self._pipeline = opened.enter_context(pipeline)
        self._copies = 0
        # By round: CPU-seconds of the agents, and of the pipeline.
        self.parts: list[tuple[float, float]] = []

    def ours(self, segments: Segments) -> Sample:
        """From finished segments to the topic, until every copy has been taken in."""
        self._copies += segments.changes * len(NODES)
        wall, agents, pipeline = time.monotonic(), self._agents_cpu_s(), self._cost.cpu_s()
        for file in segments.files:
            for place in self._cdc_raw.values():
                hand_over(file, place)
        for name, agent in self._agents.items():
            agent.wait_until_empty(self._cdc_raw[name], WITHIN_S)
        self._pipeline.wait(lambda status: status.copies >= self._copies)
        passed = time.monotonic() - wall
        self.parts.append((self._agents_cpu_s() - agents, self._cost.cpu_s() - pipeline))
        return Sample(segments.changes * len(NODES), passed, sum(self.parts[-1]))

    def theirs(self, segments: Segments) -> Sample:
        expected = segments.changes - segments.static
        return Sample(expected, *self._debezium.take(segments.files, expected))

    def _agents_cpu_s(self) -> float:
        return sum(agent.cpu_s() for agent in self._agents.values())

    def check(self, run: Run, rounds: Sequence[Segments]) -> None:
        copies, distinct = sum(one.changes for one in rounds) * len(NODES), distinct_changes(rounds)
        status = self._pipeline.status()
        run.check(f"{self.table}: {copies:,} changes of three nodes were taken in", status.copies == copies)
        found = self._broker.end(self.topic)
        if found != distinct:
            raise CheckFailed(f"{self.table}: {found} records for {distinct} distinct changes")
        run.check(f"{self.table}: they are {distinct:,} records in the topic, each change once", True)
        static = sum(one.static for one in rounds)
        wanted = copies // len(NODES) - static
        run.check(f"{self.table}: Debezium delivered {wanted:,} events", self._debezium.delivered() == wanted)
        columns = EQUAL_COLUMNS[self.table.table]
        ours = events(self._broker.address, self.topic, distinct, columns)
        theirs = events(self._broker.address, f"bench.{self.table}", wanted, columns)
        what = f"{self.table}: Debezium's events have the same keys, operations and values as ours"
        run.check(what, not theirs - ours and (ours - theirs).total() == static)


def distinct_changes(rounds: Sequence[Segments]) -> int:
    """How many changes differ in anything but where they were found: what one copy of each comes to."""
    found = set()
    for segments in rounds:
        batches: list[ChangeBatch] = []
        decode([str(file) for file in segments.files], known(str(WORKLOAD)), keep=batches)
        for batch in batches:
            for change in avro.decode(batch):
                bare = replace(change, origin=Origin(), capture_time=None)
                found.add(hashlib.blake2b(repr((batch.schema.table, bare)).encode(), digest_size=16).digest())
    return len(found)


def whole_path(
    run: Run, workload: str, spark: SparkSession, directory: Path, broker: Broker, node: str, *, quick: bool
) -> None:
    settings = {"cdc_enabled": "true", "commitlog_segment_size": "8MiB", "commitlog_total_space": "8GiB"}
    rounds = []
    with CommitLogPeer(directory / "peer", settings=settings) as peer:
        peer.schema(WORKLOAD)
        warm_ups = 1 if quick else WARM_UPS
        for number in range(warm_ups + PAIRS_MIN):
            count = QUICK if quick else ROUND[workload]
            rounds.append(write(peer, directory / str(number), workload, count))
    with ExitStack() as opened:
        path = WholePath(spark, directory, broker, node, workload, opened)
        for one in rounds[:warm_ups]:
            path.ours(one)
            path.theirs(one)
        timed = rounds[warm_ups:]
        left = {"ours": iter(timed), "theirs": iter(timed)}
        a, b = interleave(lambda: path.ours(next(left["ours"])), lambda: path.theirs(next(left["theirs"])), PAIRS_MIN)
        path.check(run, rounds)
    for what, unit, target, of in (
        ("events taken in per CPU-second", "events/CPU-s", Target(at_least=5), attrgetter("cpu_rate")),
        ("events taken in per second", "events/s", None, attrgetter("rate")),
    ):
        ours, theirs = [of(one) for one in a], [of(one) for one in b]
        run.ratio(
            f"{workload}, segments to topics ÷ Debezium, {what}",
            quotients(ours, theirs),
            target,
            ours=statistics.median(ours),
            peer=statistics.median(theirs),
            unit=unit,
            note=f"{timed[0].changes:,} changes of each of three nodes a round",
        )
    taken = [one.amount for one in a]
    agents, pipeline = zip(*path.parts[warm_ups:], strict=True)
    run.value(f"{workload}, agents", [s / n * MICRO for s, n in zip(agents, taken, strict=True)], "µs of CPU per event")
    per_event = [s / n * MICRO for s, n in zip(pipeline, taken, strict=True)]
    run.value(f"{workload}, pipeline with Spark", per_event, "µs of CPU per event")
    _stages(run, workload, path, directory, broker, statistics.median(per_event))


def _stages(run: Run, workload: str, path: WholePath, directory: Path, broker: Broker, whole: float) -> None:
    """The pipeline's stages on the logs that the agents have left, without Spark."""
    kafka = KafkaSettings(bootstrap_servers=(broker.address,), topic_prefix="stages")
    stages = Stages(KafkaSink(kafka), directory / "stages", spark_side.CORES)
    stages.run({name: logs / directory_name(path.table) for name, logs in path.logs.items()}, 500_000)
    spent = {stage: cpu_s / stages.changes * MICRO for stage, cpu_s in stages.cpu_s.items()}
    for stage, value in spent.items():
        run.value(f"{workload}, stage {stage}", [value], "µs of CPU per event")
    run.value(f"{workload}, Spark: the pipeline less its stages", [whole - sum(spent.values())], "µs of CPU per event")


def many_tables(run: Run, spark: SparkSession, directory: Path, broker: Broker, *, quick: bool) -> None:
    """The same changes in many tables or in one, as they come, at the same rate; and how soon each single one comes.

    Cost and delay are of the same pipelines, with the default settings: one can be bought with the other, by taking
    more at a time. Single changes go to a table of their own, first while all others are quiet and then among them.
    """
    tables = QUICK_TABLES if quick else TABLES
    seconds = QUICK_SECONDS if quick else SECONDS
    cost = spark_side.Cost(spark)
    behind: dict[int, list[float]] = {1: [], tables: []}
    quiet: dict[int, list[list[float]]] = {1: [], tables: []}
    busy: dict[int, list[list[float]]] = {1: [], tables: []}

    def side(count: int) -> Sample:
        place = directory / f"rate-{uuid.uuid4().hex[:8]}"
        kafka = KafkaSettings(bootstrap_servers=(broker.address,), topic_prefix=place.name)
        topic = broker.topic(name=f"{place.name}.{paced_writer.SINGLE.table}", flush_messages=2**63 - 1)
        with (
            PacedWriter(place / "logs", count, RATE, seconds, broker.address, topic) as writer,
            RunningPipeline(spark, place, [place / "logs"], kafka) as pipeline,
        ):
            # The first changes make the topics and do not count.
            pipeline.wait(lambda status: status.copies >= writer.written)
            quiet[count].append(writer.quiet(QUICK_SINGLE if quick else SINGLE))
            before = writer.written
            pipeline.wait(lambda status: status.copies >= before)
            wall, cpu = time.monotonic(), cost.cpu_s()
            writer.go()
            written = time.monotonic()
            done = pipeline.wait(lambda status: status.copies >= writer.written)
            ended = time.monotonic()
            sample = Sample(writer.written - before, ended - wall, cost.cpu_s() - cpu)
            busy[count].append(writer.delivered_ms())
            total = writer.written
        behind[count].append(ended - written)
        if (done.copies, done.sinks["kafka"].records) != (total, total):
            raise CheckFailed(f"{count} tables: {done.copies} changes became {done.sinks['kafka'].records} records")
        shutil.rmtree(place)
        return sample

    side(1)
    for found in (behind, quiet, busy):
        found[1].clear()
    a, b = interleave(lambda: side(tables), lambda: side(1), PAIRS_MIN)
    run.check(f"{a[0].amount:,} changes became as many records in each round, each single one once", True)
    rate = f"{RATE:,} changes/s"
    _compare_tables(run, f"{tables} tables ÷ one, CPU per change at the same rate", a, b, 1.3, rate)
    for count, label in ((tables, f"{tables} tables"), (1, "one table")):
        for found, when in ((quiet, "quiet"), (busy, rate)):
            _delays(run, f"{label}, {when}", found[count], judged=count == tables)
    run.value(f"{tables} tables, delivered after the last change", behind[tables], "s")
    _backlog(run, spark, directory, broker, tables, quick=quick)


def _delays(run: Run, where: str, rounds: Sequence[Sequence[float]], *, judged: bool) -> None:
    """From the moment that a change is durable in a log to the moment that a waiting consumer has its record."""
    note = f"{len(rounds[0])} single changes in each of {len(rounds)} rounds"
    for share, label, target in ((0.5, "p50", Target(at_most=500) if judged else None), (0.99, "p99", None)):
        values = [percentile(times, share) for times in rounds]
        run.value(f"log to Kafka record, {where}, {label}", values, "ms", target, note=note)


def _compare_tables(
    run: Run, what: str, many: Sequence[Sample], one: Sequence[Sample], at_most: float | None, note: str
) -> None:
    costs = [[sample.cpu_s / sample.amount * MICRO for sample in several] for several in (many, one)]
    target = None if at_most is None else Target(at_most=at_most)
    ours, peer = map(statistics.median, costs)
    run.ratio(what, quotients(*costs), target, ours=ours, peer=peer, unit="µs/change", note=note)


def _backlog(run: Run, spark: SparkSession, directory: Path, broker: Broker, tables: int, *, quick: bool) -> None:
    """Everything is there already, and taken in micro-batches of the same size, to which each table gives a little."""
    batch, batches = (QUICK_BATCH, QUICK_BATCHES) if quick else (BATCH, BATCHES)
    cost = spark_side.Cost(spark)
    logs = {tables: directory / "many", 1: directory / "one"}
    for count, place in logs.items():
        for number in range(count):
            schema = schema_of(f"t{number}")
            with TableLog.open(str(place / str(schema.table)), schema, node="n1") as log:
                append(log, schema, 0, batch * batches // count, min(BLOCK, batch // count))

    def side(count: int) -> Sample:
        name = f"backlog-{uuid.uuid4().hex[:8]}"
        kafka = KafkaSettings(bootstrap_servers=(broker.address,), topic_prefix=name)
        with RunningPipeline(spark, directory / name, [logs[count]], kafka, rows_per_batch=batch) as pipeline:
            # The first batch makes the topics and does not count.
            begun = pipeline.wait(lambda status: status.batches >= 1).copies
            wall, cpu = time.monotonic(), cost.cpu_s()
            done = pipeline.wait(lambda status: status.copies >= batch * batches)
            sample = Sample(done.copies - begun, time.monotonic() - wall, cost.cpu_s() - cpu)
        shutil.rmtree(directory / name)
        return sample

    a, b = interleave(lambda: side(tables), lambda: side(1), PAIRS_MIN)
    what = f"{tables} tables ÷ one, CPU per change of a backlog"
    _compare_tables(run, what, a, b, None, f"micro-batches of {batch:,} changes")


def long_run(run: Run, spark: SparkSession, directory: Path, broker: Broker) -> None:
    """Memory after each step of a long run."""
    schema, cost = schema_of("long"), spark_side.Cost(spark)
    topic = broker.topic(name=f"penstock.{schema.table}", flush_messages=2**63 - 1)
    kafka = KafkaSettings(bootstrap_servers=(broker.address,))
    logs = directory / "logs"
    jvm, python = [], []
    with (
        TableLog.open(str(logs / str(schema.table)), schema, node="n1") as log,
        RunningPipeline(spark, directory / "pipeline-long", [logs], kafka) as pipeline,
    ):
        for first in range(0, LONG, STEP):
            append(log, schema, first, STEP)
            pipeline.wait(lambda status, goal=first + STEP: status.copies >= goal)  # type: ignore[misc]
            java, other = cost.memory_bytes()
            jvm.append(java / MIB)
            python.append(other / MIB)
            say(f"{first + STEP:,} changes: JVM {jvm[-1]:.0f} MiB, Python {python[-1]:.0f} MiB")
    run.check(f"{LONG:,} changes became as many records", broker.end(topic) == LONG)
    quarter = len(jvm) // 4
    for name, values in (("Python", python), ("JVM", jvm)):
        early, late = statistics.median(values[quarter : 2 * quarter]), statistics.median(values[-quarter:])
        run.ratio(
            f"memory of {name}, last quarter of {LONG:,} changes ÷ second",
            [late / early],
            Target(at_most=1.1),
            ours=late,
            peer=early,
            unit="MiB",
        )


def measure(run: Run, directory: Path, chosen: argparse.Namespace) -> None:
    memory = {"spark.driver.memory": "1g"}
    with spark_side.session(directory, peers=False, **memory) as spark, Broker(directory) as broker:
        (directory / "many_tables").mkdir()
        many_tables(run, spark, directory / "many_tables", broker, quick=chosen.quick)
        with CassandraServer(LATEST, directory / "node", cache=CACHE, note=say) as node:
            create_tables(node)
            for workload in ROUND:
                (directory / workload).mkdir()
                whole_path(run, workload, spark, directory / workload, broker, node.address, quick=chosen.quick)
        if not chosen.quick:
            (directory / "long").mkdir()
            long_run(run, spark, directory / "long", broker)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options("pipeline", (__doc__ or "").splitlines()[0], arguments)
    run = Run("pipeline", chosen.quick)
    directory = Path(chosen.directory).absolute() / f"pipeline-{uuid.uuid4().hex[:8]}"
    directory.mkdir(parents=True)
    try:
        measure(run, directory, chosen)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
