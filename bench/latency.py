"""Latency: from Cassandra's acknowledgement of a write to its delivery to a subscriber of the change log.

A real node, an agent that tails it with the default settings, and a subscriber in a process of its own. Every few
milliseconds the client writes a row and notes when it was acknowledged; the subscriber notes when it has the change.
Both clocks are CLOCK_MONOTONIC, which all processes of a machine share. In between lie the commit log's bytes, the
agent's look at them, and a sync of the change log.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from bench.agent_process import AgentProcess
from bench.commit_log_peer import CACHE
from bench.harness import PAIRS_MIN, ROOT, CheckFailed, Run, Target, options, percentile, say
from penstock.formats import avro
from penstock.log.follow import Follower
from penstock.log.names import directory_name
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableId
from penstock.sandbox.cassandra_jars import LATEST
from penstock.sandbox.cassandra_server import CassandraServer

TABLE = TableId("latency", "events")
KEYSPACE = "CREATE KEYSPACE latency WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
CREATE = "CREATE TABLE latency.events (id bigint PRIMARY KEY, name text, value double, quality int) WITH cdc = true"
INSERT = "INSERT INTO latency.events (id, name, value, quality) VALUES (?, ?, ?, ?)"
# Between two writes of the one client.
PAUSE_S = 0.005
DELIVERY_S_MAX = 60


class Subscriber:
    """A subscriber in a process of its own, which notes when each row came."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - words of ours
            [sys.executable, "-m", "bench.latency", "--subscriber", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._line()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=DELIVERY_S_MAX)
        self._process.stdout.close()

    def collect(self, expected: int) -> dict[int, int]:
        """Wait for so many rows, and take them: when each came, by its id."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{expected}\n")
        self._process.stdin.flush()
        return {int(key): at for key, at in self._line()["times"].items()}

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CheckFailed("the subscriber ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def subscriber(directory: str) -> int:
    """The other process: follow the log until standard input ends."""
    times: dict[int, int] = {}

    def deliver(batch: ChangeBatch) -> None:
        now = time.monotonic_ns()
        for change in avro.decode(batch):
            times[change.key["id"]] = now

    follower = Follower(directory)
    follower.listen(deliver)
    _answer({"ready": True})
    for line in sys.stdin:
        deadline = time.monotonic() + DELIVERY_S_MAX
        while len(times) < int(line) and time.monotonic() < deadline:
            time.sleep(0.01)
        taken = dict(times)
        times.clear()
        _answer({"times": taken})
    follower.close()
    return 0


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Client:
    """One client of the node, which writes rows and notes when each was called for and acknowledged."""

    def __init__(self, node: CassandraServer) -> None:
        from cassandra.cluster import Cluster

        self._cluster = Cluster([node.address])
        self._session = self._cluster.connect()
        self._session.execute(KEYSPACE)
        self._session.execute(CREATE)
        self._insert = self._session.prepare(INSERT)
        self._next = 0

    def write(self, count: int) -> dict[int, tuple[int, int]]:
        moments = {}
        for _ in range(count):
            self._next += 1
            called = time.monotonic_ns()
            self._session.execute(self._insert, (self._next, f"sensor {self._next}", self._next / 7, 3))
            moments[self._next] = (called, time.monotonic_ns())
            time.sleep(PAUSE_S)
        return moments

    def close(self) -> None:
        self._cluster.shutdown()


def measure(run: Run, chosen: argparse.Namespace, directory: Path) -> None:
    writes = 40 if chosen.quick else 400
    with CassandraServer(LATEST, directory / "node", cache=CACHE, note=say) as node:
        client = Client(node)
        cassandra = {"config_file": str(node.yaml), "contact_points": [node.address]}
        try:
            with AgentProcess(directory / "agent", cassandra, {}) as agent:
                log = agent.logs / directory_name(TABLE)
                client.write(1)
                _wait_for(log)
                with Subscriber(log) as other:
                    # The node compiles as it runs.
                    other_rounds = [_round(client, other, writes) for _ in range(PAIRS_MIN + 1)][1:]
        finally:
            client.close()
    run.check(f"the subscriber got each of {writes} rows of each round exactly once", True)
    after_ack = [[one[1] for one in round_] for round_ in other_rounds]
    after_call = [[one[0] for one in round_] for round_ in other_rounds]
    for what, rounds, targets in (
        ("acknowledged → delivered", after_ack, {0.5: 20, 0.99: 100}),
        ("write called → delivered", after_call, {}),
    ):
        for share, label in ((0.5, "p50"), (0.99, "p99"), (1.0, "worst")):
            limit = targets.get(share)
            run.value(
                f"{what}, {label}",
                [percentile(values, share) for values in rounds],
                "ms",
                None if limit is None else Target(at_most=limit),
            )


def _round(client: Client, other: Subscriber, writes: int) -> list[tuple[float, float]]:
    """Milliseconds from call and from acknowledgement to delivery, of each write."""
    moments = client.write(writes)
    times = other.collect(writes)
    if times.keys() != moments.keys():
        raise CheckFailed(f"{len(times)} rows were delivered, {len(moments)} written")
    return [((times[key] - called) / 1e6, (times[key] - done) / 1e6) for key, (called, done) in moments.items()]


def _wait_for(log: Path) -> None:
    """The log is there once the first change is."""
    deadline = time.monotonic() + DELIVERY_S_MAX
    while not any(name.endswith(".avro") for name in (os.listdir(log) if log.is_dir() else ())):
        if time.monotonic() > deadline:
            raise CheckFailed("the first change did not reach the log")
        time.sleep(0.05)
    # The first change is durable when the writer says so; the subscriber begins behind it.
    time.sleep(1)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--subscriber"]:
        return subscriber(given[1])
    chosen = options("latency", (__doc__ or "").splitlines()[0], given)
    run = Run("latency", chosen.quick)
    directory = Path(chosen.directory) / f"latency-{uuid.uuid4().hex[:8]}"
    directory.mkdir(parents=True)
    try:
        measure(run, chosen, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
