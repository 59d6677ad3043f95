"""kill -9 of every process that a pipeline needs, at random moments under load: targets equal the source.

A real Kafka broker, an OpenSearch node, and `penstock pipeline` with four sinks, on local Spark first and then on a
standalone cluster of two workers that read from agents: all of them processes. Two loads run without pause. A thread
logs numbered changes of one table on three nodes. And a real Cassandra node is written to in every way that there is,
with changes of its schema in between, beside an agent. In each round one process dies, often in the middle of a batch,
and what a supervisor would start again is started again. At the end each numbered change is in the topic once for
consumers of committed records, and once in the files; the Delta tables and the indices hold the rows that were written,
which for those of Cassandra its own SELECT says. `make pipeline-kills` runs many more rounds than `make test` and keeps
a record; the seed of a run is printed, and PENSTOCK_KILL_SEED repeats its choices.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random, SystemRandom

import pytest
from confluent_kafka.admin import AdminClient

from penstock.capture.cassandra.agent.agent import Agent
from penstock.capture.status import AgentStatus
from penstock.fold import manifest
from penstock.sandbox.cassandra_jars import LATEST
from penstock.sandbox.cassandra_server import CassandraServer
from penstock.serve.http import HttpServer
from penstock.serve.log_blocks import LogBlocks
from penstock.settings import AgentSettings, CassandraSettings, HttpSettings, RetentionSettings, Settings
from testkit.kafka_broker import KafkaBroker
from testkit.opensearch_server import OpenSearchServer
from tests import campaigns
from tests.counted import RecordProperty, differences, record
from tests.integration.cassandra import wide_load
from tests.integration.cassandra.recording import connected
from tests.integration.cassandra.wide_load import WideLoad
from tests.integration.pipeline.replica_load import (
    NODES,
    QUIET,
    Load,
    delivered,
    identities,
    wait_for,
)
from tests.integration.pipeline.spark_cluster import SparkCluster, below, kill
from tests.integration.pipeline.topic import consumed, forget_groups

CACHE = Path(__file__).parent.parent.parent.parent / ".cache"
SEED = int(os.environ.get("PENSTOCK_KILL_SEED") or SystemRandom().randrange(1 << 32))
# In all rounds together; each kind of process has its share of them, and one round at the least.
KILLS = int(os.environ.get("PENSTOCK_PIPELINE_KILLS", "12"))
# First on local Spark, then on a cluster, which costs more. A driver takes a quarter of a minute to come back, a Python
# worker a second.
LOCAL = {"driver": 3, "driver's Java": 1, "source planner": 3, "Python worker": 22, "broker": 6, "search node": 4}
CLUSTER = {"Python worker": 3, "executor": 5, "Spark worker": 3}
TOPIC = "kills.shop.people"
# A driver and all that it needs may take minutes to come back where many others want the machine too.
PATIENCE_S = 600
# The node of the second load, by the name of its log directory.
CAPTURED = "c1"
LAST = f"{wide_load.KEYSPACE}.the_end"
# Between two statements of the second load, and two bundles of changes of the first. The processes under test need the
# machine too; and where a batch takes long, because it dies again and again, no more may come than is got through.
WIDE_PAUSE_S, PAUSE_S = 0.1, 0.6
ROWS_PER_BATCH = 3000
# What is left when nothing dies any more, in few batches.
ROWS_AT_LAST = 1_000_000


class Rig:
    """All the processes, and what a supervisor does for them."""

    def __init__(self, home: Path, random: Random, opened: ExitStack) -> None:
        self.home = home
        self.random = random
        self.killed: Counter[str] = Counter()
        self.node = OpenSearchServer(home / "search", cache=CACHE)
        self.node.start(wait=False)
        opened.callback(self.node.stop)
        self.cassandra = CassandraServer(LATEST, home / "cassandra", cache=CACHE, heap="384m")
        self.cassandra.start(wait=False)
        opened.callback(self.cassandra.stop)
        self.broker = opened.enter_context(KafkaBroker(home / "broker", cache=CACHE))
        # None: Spark is local.
        self.cluster: SparkCluster | None = None
        self.node.ready()
        self.cassandra.ready()
        self.config = home / "pipeline.toml"
        self._process: subprocess.Popen[bytes] | None = None
        opened.callback(self.end)

    def write_config(self, master: str, logs: str, rows_per_batch: int = ROWS_PER_BATCH) -> None:
        self.config.write_text(
            f"""
[pipeline]
name = "kills"
checkpoint_directory = "{self.home}/checkpoint"
{logs}
sinks = ["kafka", "search", "delta", "files"]
buckets = 2
rows_per_batch = {rows_per_batch}
master = "{master}"
retry_s = 0.2

[pipeline.spark]
"spark.driver.host" = "127.0.0.1"
"spark.executor.memory" = "512m"

[kafka]
bootstrap_servers = "{self.broker.address}"
topic_prefix = "kills"
delivery = "exactly-once"
partitions = 2

[search]
urls = ["{self.node.url}"]
retry_s_max = 1

[search.index_settings]
number_of_replicas = "0"

[delta]
directory = "{self.home}/lake"

[files]
directory = "{self.home}/files"
format = "json"
compression = "none"
record = "change"
"""
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """The pipeline in a session of its own, so that its Java machine can be killed with it."""
        command = [sys.executable, "-m", "penstock", "pipeline", str(self.config), *words, "--json"]
        with (self.home / "pipeline.log").open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        return self._process

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def end(self) -> None:
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()

    def said(self) -> str:
        return (self.home / "pipeline.log").read_text(errors="replace")[-3000:]

    def committed(self) -> int:
        """The last batch that is done."""
        return max(manifest.batches(str(self.home / "checkpoint" / "state")), default=-1)

    def begun(self) -> int:
        """The last batch that was begun."""
        plans = (self.home / "checkpoint" / "plans").glob("*.json")
        return max((int(plan.stem) for plan in plans), default=-1)

    def wait(self, what: Callable[[], object]) -> None:
        """Wait for something that the pipeline does; it must not end by itself."""

        def there() -> object:
            assert self.process.poll() is None, f"the pipeline ended by itself: {self.said()}"
            return what()

        wait_for(there, PATIENCE_S, self.said)

    def wait_for_work(self, batches: int = 1) -> None:
        before = self.committed()
        self.wait(lambda: self.committed() >= before + batches)

    def wait_for_the_moment(self) -> None:
        """In the middle of a batch, or anywhere. No batch has to be done for that: one may take long."""
        if self.random.random() < 0.6:
            self.wait(lambda: self.begun() > self.committed())
            QUIET.wait(self.random.uniform(0, 0.8))
        else:
            QUIET.wait(self.random.uniform(0, 2))

    # Each of these kills one process, and starts again what nothing else would.

    def kill_driver(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        forget_groups(AdminClient({"bootstrap.servers": self.broker.address}))
        self.start()

    def kill_java(self) -> None:
        """Only the driver's Java machine: the pipeline cannot go on and must say so, for its supervisor."""
        self._kill_one(lambda: self._below("SparkSubmit"))
        code = self.process.wait(PATIENCE_S)
        assert code == 1, f"the pipeline ended with {code}: {self.said()}"
        self.end()
        self.start()

    def kill_planner(self) -> None:
        """The Python process in which the driver's Spark asks for offsets."""
        self._kill_one(lambda: self._below("streaming_source_runner"))

    def kill_python_worker(self) -> None:
        cluster = self.cluster
        self._kill_one(cluster.python_workers if cluster else lambda: self._below("pyspark.daemon pyspark.worker"))

    def kill_executor(self) -> None:
        assert self.cluster is not None
        self._kill_one(self.cluster.executors)

    def kill_worker(self) -> None:
        assert self.cluster is not None
        number = self.random.randrange(2)
        self.cluster.kill_worker(number)
        QUIET.wait(self.random.uniform(0, 2))
        self.cluster.start_worker(number)

    def kill_broker(self) -> None:
        self.broker.kill()
        QUIET.wait(self.random.uniform(0, 3))
        self.broker.start()

    def kill_node(self) -> None:
        self.node.kill()
        QUIET.wait(self.random.uniform(0, 3))
        self.node.start()

    def _below(self, text: str) -> list[int]:
        return [one.pid for one in below(self.process.pid) if text in one.command]

    def _kill_one(self, find: Callable[[], list[int]]) -> None:
        """Wait until there is one; one that has just gone by itself does not count."""

        def killed() -> bool:
            found = find()
            return any(kill(pid) for pid in self.random.sample(found, len(found)))

        self.wait(killed)


KINDS: dict[str, Callable[[Rig], None]] = {
    "driver": Rig.kill_driver,
    "driver's Java": Rig.kill_java,
    "source planner": Rig.kill_planner,
    "Python worker": Rig.kill_python_worker,
    "executor": Rig.kill_executor,
    "Spark worker": Rig.kill_worker,
    "broker": Rig.kill_broker,
    "search node": Rig.kill_node,
}


def rounds(shares: dict[str, int], random: Random) -> list[str]:
    """What dies in each round."""
    share = KILLS / (sum(LOCAL.values()) + sum(CLUSTER.values()))
    out = [kind for kind, weight in shares.items() for _ in range(max(1, round(weight * share)))]
    random.shuffle(out)
    return out


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    for node in NODES:
        (tmp_path / node).mkdir()
    with ExitStack() as opened:
        yield Rig(tmp_path, Random(SEED), opened)


def in_topic(broker: KafkaBroker) -> list[int]:
    """The numbers of the changes that a consumer of committed records sees."""
    # node:file:position:index;…
    return [int(record.headers["penstock.change"].split(b":")[2]) for record in consumed(broker, TOPIC)]


def in_index(node: OpenSearchServer, index: str, *fields: str) -> list[tuple[object, ...]]:
    """The rows in the documents."""
    for request in (
        urllib.request.Request(f"{node.url}/{index}/_refresh", method="POST"),
        urllib.request.Request(f"{node.url}/{index}/_search?size=10000"),
    ):
        with urllib.request.urlopen(request) as answer:
            found = json.load(answer)
    return [tuple(hit["_source"].get(field) for field in fields) for hit in found["hits"]["hits"]]


@contextmanager
def captured(server: CassandraServer, home: Path) -> Iterator[None]:
    """An agent beside the node; when the block ends, it has logged what the node has written down."""
    agent = Agent(
        Settings(
            cassandra=CassandraSettings(
                config_file=server.yaml, contact_points=(server.address,), connect_timeout_s=PATIENCE_S
            ),
            agent=AgentSettings(directory=home / CAPTURED, node=CAPTURED),
        )
    )
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,), daemon=True)
    thread.start()
    try:
        assert agent.begun.wait(PATIENCE_S), agent.status()
        yield
        # What was written last is in the log when the row that says so is.
        wait_for(lambda: LAST in agent.status().table_changes, PATIENCE_S)
    finally:
        stop.set()
        thread.join(PATIENCE_S)


def say_last(server: CassandraServer) -> None:
    """Write to a table that was not written to before: the node's log has it behind everything else."""
    with connected(server.address) as cluster:
        session = cluster.connect()
        session.execute(f"CREATE TABLE {LAST} (k int PRIMARY KEY) WITH cdc = true")
        session.execute(f"INSERT INTO {LAST} (k) VALUES (1)")


@contextmanager
def agents(home: Path) -> Iterator[str]:
    """The nodes' logs over HTTP, as workers on other machines would read them; the settings for that."""
    token = home / "token"
    token.write_text("a token for the tests of the pipeline")
    token.chmod(0o600)
    http = HttpSettings(port=0, token_file=token)
    status = AgentStatus(node="n1", data_centre="dc1", started_time_us=0, running=True)
    blocks = [LogBlocks(str(home / node), RetentionSettings(keep_s=0)) for node in (*NODES, CAPTURED)]
    with ExitStack() as opened:
        servers = [opened.enter_context(HttpServer(http, lambda: status, one)) for one in blocks]
        addresses = json.dumps([server.address for server in servers])
        yield f'agents = {addresses}\nagents_token_file = "{token}"'


def run_rounds(rig: Rig, plan: list[str]) -> None:
    for kind in plan:
        rig.wait_for_the_moment()
        before, began = rig.committed(), time.monotonic()
        KINDS[kind](rig)
        rig.killed[kind] += 1
        # Often the next one comes before this one is got over.
        if rig.random.random() < 0.3:
            rig.wait_for_work()
        facts = f"batch {before} to {rig.committed()}, {time.monotonic() - began:.1f} s"
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} round {rig.killed.total()}: {kind}, {facts}\n")
    rig.wait_for_work()
    rig.process.send_signal(signal.SIGTERM)
    assert rig.process.wait(PATIENCE_S) == 0, rig.said()


def judge(rig: Rig, load: Load) -> tuple[Counter[str], list[str]]:
    """What is lost and what is invented in the targets, and some of it in words."""
    everything = range(1, load.changes + 1)
    people = [(key, *row) for key, row in load.rows.items()]
    with connected(rig.cassandra.address) as cluster:
        plain = [tuple(row) for row in cluster.connect().execute(f"SELECT k, v, n FROM {wide_load.KEYSPACE}.plain")]
    held = {
        "topic": differences(everything, in_topic(rig.broker)),
        "files": differences(everything, identities(rig.home)),
        "Delta table": differences(people, [(key, *row) for key, row in delivered(rig.home).items()]),
        "index": differences(people, in_index(rig.node, "people", "id", "name", "age")),
        "index of Cassandra's rows": differences(plain, in_index(rig.node, "plain", "k", "v", "n")),
    }
    broken, rows = wide_load.compared(rig.cassandra.address, rig.home / "lake")
    held["Delta tables of Cassandra's rows"] = broken
    return sum(held.values(), Counter[str]()), [
        f"{where}: {dict(what)}" for where, what in held.items() if +what
    ] + rows


def test_targets_equal_the_source_whatever_is_killed(rig: Rig, record_property: RecordProperty) -> None:
    local, cluster = rounds(LOCAL, rig.random), rounds(CLUSTER, rig.random)
    sys.stderr.write(f"\nkill -9 of the pipeline's processes with seed {SEED}: {len(local) + len(cluster)} rounds\n")
    directories = f"logs = {json.dumps([str(rig.home / node) for node in (*NODES, CAPTURED)])}"
    with Load(rig.home, SEED, PAUSE_S) as load, captured(rig.cassandra, rig.home):
        with WideLoad(rig.cassandra.address, SEED, WIDE_PAUSE_S) as wide:
            rig.write_config("local[2]", directories)
            rig.start()
            rig.wait_for_work()
            run_rounds(rig, local)
            with agents(rig.home) as served, SparkCluster(rig.home, 2) as rig.cluster:
                rig.write_config(rig.cluster.address, served)
                rig.start()
                run_rounds(rig, cluster)
        say_last(rig.cassandra)
    wide_load.expired(rig.cassandra.address)
    rig.write_config("local[2]", directories, ROWS_AT_LAST)
    assert rig.start("--once").wait(PATIENCE_S) == 0, rig.said()
    broken, problems = judge(rig, load)
    facts = {
        "numbered changes": load.changes,
        "statements of every kind": wide.done,
        "of them changes of the schema": wide.definitions,
    }
    record(record_property, "kills", sum(rig.killed.values()), broken)
    campaigns.keep("kills-pipeline", "pipeline", SEED, rig.killed, facts, broken)
    killed = ", ".join(f"{count} of the {kind}" for kind, count in rig.killed.items())
    told = f"{sum(rig.killed.values())} kills ({killed}), {facts}, broken: {dict(broken)}"
    sys.stderr.write(f"kill -9 of the pipeline's processes with seed {SEED}: {told}\n")
    assert problems == [], "\n".join(problems[:10])
    assert not any((rig.home / "checkpoint" / "dead-letters").rglob("batch-*"))
    assert "SystemError" not in (rig.home / "pipeline.log").read_text(errors="replace")
