"""Agent: finished segments in cdc_raw to durable change logs, against Debezium's connector into Kafka, per CPU-second.

Both stay up from round to round and are given the same segments, which Cassandra's own commit log wrote (tests/java),
each in a cdc_raw directory of its own. A round ends when all is in the logs, synced, and the segments are deleted; or
when all is in the broker's topics. Only the connector's own CPU counts, not the broker's, while ours includes the log.
Debezium gives no events for static rows; what it gives is counted, and nothing else may be missing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.agent_process import AgentProcess
from bench.commit_log_peer import CACHE, WORKLOAD, CommitLogPeer
from bench.debezium_peer import Debezium, hand_over
from bench.decode_once import decode, known
from bench.harness import PAIRS_MIN, Run, Sample, Target, interleave, options, quotients, say
from bench.kafka_broker import Broker
from penstock.formats import arrow
from penstock.log.names import directory_name
from penstock.log.reader import LogReader
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op
from penstock.model.schema import TableId
from penstock.sandbox.cassandra_jars import LATEST
from penstock.sandbox.cassandra_server import CassandraServer

# Mutations of a round, and of the first one, in which the JVM gets warm.
ROUND = {"mixed": 60_000, "small": 100_000}
WARM_UP = {"mixed": 150_000, "small": 250_000}
QUICK = 4_000
WITHIN_S = 600
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Segments:
    """What one round is given: files, the changes in them, and those that only a static row has."""

    files: list[Path]
    changes: int
    static: int


def write(peer: CommitLogPeer, directory: Path, workload: str, mutations: int) -> Segments:
    """Finished segments with so many mutations; the last, unfinished one is finished as a node does when it stops."""
    files = [
        file
        for file in peer.write(directory, workload=workload, mutations=mutations, seed=uuid.uuid4().int >> 96)
        if file.with_name(file.name.removesuffix(".log") + "_cdc.idx").exists()
    ]
    batches: list[ChangeBatch] = []
    decode([str(file) for file in files], known(str(WORKLOAD)), keep=batches)
    return Segments(files, sum(batch.count for batch in batches), sum(map(_static_rows, batches)))


def _static_rows(batch: ChangeBatch) -> int:
    columns = arrow.to_arrow(batch)
    first = batch.schema.clustering[0].name
    clustering = columns.column("key").field(first)
    return sum(
        op == Op.UPDATE and not there.is_valid
        for op, there in zip(columns.column("op").to_pylist(), clustering, strict=True)
    )


def measure(run: Run, workload: str, chosen: argparse.Namespace, directory: Path, broker: Broker, node: str) -> None:
    table = f"bench.{workload}"
    pairs = PAIRS_MIN
    settings = {"cdc_enabled": "true", "commitlog_segment_size": "8MiB", "commitlog_total_space": "8GiB"}
    with CommitLogPeer(directory / "peer", settings=settings) as peer:
        peer.schema(WORKLOAD)
        rounds = []
        for number in range(pairs + 1):
            count = QUICK if chosen.quick else ROUND[workload] if number else WARM_UP[workload]
            rounds.append(write(peer, directory / str(number), workload, count))
    cdc_raw = directory / "cdc_raw"
    cdc_raw.mkdir()
    cassandra = {"cdc_raw_directory": str(cdc_raw), "schema_from": "file", "schema_file": str(WORKLOAD)}
    memory: list[float] = []
    with (
        AgentProcess(directory / "agent", cassandra, {"node": "bench", "transfer": "delete"}) as agent,
        Debezium(directory / "debezium", broker, node, [table]) as debezium,
    ):

        def ours(segments: Segments) -> Sample:
            wall, cpu = time.monotonic(), agent.cpu_s()
            for file in segments.files:
                hand_over(file, cdc_raw)
            memory.append(agent.wait_until_empty(cdc_raw, WITHIN_S) / MIB)
            return Sample(segments.changes, time.monotonic() - wall, agent.cpu_s() - cpu)

        def theirs(segments: Segments) -> Sample:
            expected = segments.changes - segments.static
            return Sample(expected, *debezium.take(segments.files, expected))

        ours(rounds[0])
        theirs(rounds[0])
        left = {"ours": iter(rounds[1:]), "theirs": iter(rounds[1:])}
        a, b = interleave(lambda: ours(next(left["ours"])), lambda: theirs(next(left["theirs"])), pairs)
        wanted = sum(one.changes - one.static for one in rounds)
        run.check(f"{table}: Debezium delivered {wanted:,} events and no more", debezium.delivered() == wanted)
        peer_memory = debezium.memory_bytes() / MIB
    wanted = sum(one.changes for one in rounds)
    run.check(f"{table}: {wanted:,} changes stand in the agent's log", _in_log(agent.logs, workload) == wanted)
    run.ratio(
        f"{workload}, agent ÷ Debezium, events per CPU-second",
        quotients([one.cpu_rate for one in a], [one.cpu_rate for one in b]),
        Target(at_least=10),
        ours=sorted(one.cpu_rate for one in a)[pairs // 2],
        peer=sorted(one.cpu_rate for one in b)[pairs // 2],
        unit="events/CPU-s",
        note=f"{rounds[1].changes:,} changes a round",
    )
    run.ratio(
        f"{workload}, agent ÷ Debezium, events per second",
        quotients([one.rate for one in a], [one.rate for one in b]),
        ours=sorted(one.rate for one in a)[pairs // 2],
        peer=sorted(one.rate for one in b)[pairs // 2],
        unit="events/s",
    )
    note = f"Debezium's: {peer_memory:.0f} MiB"
    run.value(f"{workload}, the agent's memory at its peak", memory, "MiB", Target(at_most=300), worst=True, note=note)
    run.ratio(f"{workload}, the agent's memory, last round ÷ first", [memory[-1] / memory[0]], Target(at_most=1.1))


def _in_log(logs: Path, workload: str) -> int:
    """How many changes a table's log holds."""
    with LogReader(str(logs / directory_name(TableId("bench", workload)))) as reader:
        return sum(len(batch) for batch in reader.read())


def create_tables(node: CassandraServer) -> None:
    """The workload's tables on a real node: Debezium asks one for its schema."""
    from cassandra.cluster import Cluster

    text = "\n".join(line for line in WORKLOAD.read_text(encoding="utf-8").splitlines() if not line.startswith("--"))
    cluster = Cluster([node.address])
    try:
        session = cluster.connect()
        for statement in filter(str.strip, text.split(";")):
            session.execute(statement)
    finally:
        cluster.shutdown()


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options("agent", (__doc__ or "").splitlines()[0], arguments)
    run = Run("agent", chosen.quick)
    directory = Path(chosen.directory) / f"agent-{uuid.uuid4().hex[:8]}"
    directory.mkdir(parents=True)
    try:
        with CassandraServer(LATEST, directory / "node", cache=CACHE, note=say) as node:
            create_tables(node)
            with Broker(directory) as broker:
                for workload in ROUND:
                    (directory / workload).mkdir()
                    measure(run, workload, chosen, directory / workload, broker, node.address)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
