"""kill -9 of the agent and of Cassandra, at random moments under load: the log is what the node has.

The agent and the node are real processes, which die and come back in an order that a seed decides. Two loads run. One
numbers its writes and remembers which were acknowledged: each of them must be in its table's log exactly once, with
the value that was written, and none that was never tried. The other leaves no kind of write out, and changes the schema
as it goes; what is made of its logs by the pipeline must be what the node itself selects. `make kill-campaign` runs
many more rounds than `make test` and keeps a record; the seed of a run is printed, and PENSTOCK_KILL_SEED repeats it.

Two nodes are used. One syncs its commit log periodically: a write is acknowledged once it is in the page cache, which a
killed process leaves behind, and `tail = "written"` finds it there. (Cassandra itself forgets what came after its last
sync marker; so on this node the second load, of which the node is the judge, begins when no more nodes are killed.) The
other syncs before it acknowledges, so that `tail = "synced"` must find every acknowledged write too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.log.names import directory_name
from penstock.log.reader import LogReader
from penstock.log.verify import verify
from penstock.model.schema import TableId
from penstock.sandbox.cassandra_server import CassandraServer
from tests import campaigns
from tests.counted import RecordProperty, record
from tests.integration.cassandra import wide_load
from tests.integration.cassandra.kill_load import KEYSPACE, TABLES, Found, Load, create_tables, selected
from tests.integration.cassandra.wide_load import WideLoad

CACHE = Path(__file__).parent.parent.parent.parent / ".cache"
SEED = int(os.environ.get("PENSTOCK_KILL_SEED") or SystemRandom().randrange(1 << 32))
# Rounds in which the agent is killed, and in which the node is. `make kill-campaign` sets more.
AGENT_KILLS = int(os.environ.get("PENSTOCK_AGENT_KILLS", "18"))
NODE_KILLS = int(os.environ.get("PENSTOCK_NODE_KILLS", "2"))
VERSION = os.environ.get("PENSTOCK_KILL_VERSION", "5.0.9")
COMMAND = [sys.executable, "-m", "penstock", "agent"]
# Small segments and frequent syncs, so that kills meet roll-overs, completed segments and deletions.
SMALL = {"commitlog_segment_size": "1MiB", "cdc_total_space": "256MiB"}
SYNC: dict[str, dict[str, object]] = {
    "written": {"commitlog_sync": "periodic", "commitlog_sync_period": "200ms"},
    "synced": {"commitlog_sync": "batch", "commitlog_sync_period": None},
}


@pytest.fixture(params=["written", "synced"])
def tail(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def node(tail: str, tmp_path: Path) -> Iterator[CassandraServer]:
    """A node of our own: others must not be killed."""
    server = CassandraServer(VERSION, tmp_path / "node", cache=CACHE, settings={**SMALL, **SYNC[tail]})
    with server:
        create_tables(server.address)
        yield server
    server.remove()


@dataclass
class AgentProcess:
    """`penstock agent`, as an operator runs it."""

    node: CassandraServer
    directory: Path
    tail: str
    process: subprocess.Popen[str] | None = None
    starts: int = 0
    kills: int = 0
    # Where it answers over HTTP, once it has said so.
    http: str = ""

    def __enter__(self) -> AgentProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
            self._end()

    def start(self, *, wait: bool = True) -> None:
        config = self._write_config()
        self.starts += 1
        with (self.directory / "agent.err").open("ab") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, str(config), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        if wait:
            self.running()

    def _write_config(self) -> Path:
        """Penstock's own settings for one way to tail, a file of Debezium's for the other."""
        if self.tail == "written":
            config = self.directory / "agent.toml"
            config.write_text(
                f'[cassandra]\nconfig_file = "{self.node.yaml}"\ncontact_points = ["{self.node.address}"]\n'
                f'include = ["{KEYSPACE}.*", "{wide_load.KEYSPACE}.*"]\n'
                f'[agent]\ndirectory = "{self.logs}"\ntail = "written"\n'
                '[snapshot]\nmode = "never"\n[http]\nport = 0\n',
                encoding="utf-8",
            )
        else:
            config = self.directory / "agent.properties"
            config.write_text(
                f"connector.name=kills\ncassandra.config={self.node.yaml}\ncassandra.hosts={self.node.address}\n"
                f"offset.backing.store.dir={self.logs.parent}\ncommit.log.relocation.dir={self.directory}/relocation\n"
                "commit.log.real.time.processing.enabled=true\nsnapshot.mode=NEVER\nhttp.port=0\n"
                "kafka.topic.prefix=kills\nkafka.producer.bootstrap.servers=127.0.0.1:9092\n"
                "key.converter=org.apache.kafka.connect.json.JsonConverter\n"
                "value.converter=org.apache.kafka.connect.json.JsonConverter\npoll.interval.ms=1000\n",
                encoding="utf-8",
            )
        return config

    @property
    def logs(self) -> Path:
        """Where the logs are; a file of Debezium's names the directory above."""
        return self.directory / "data" / "penstock"

    def running(self) -> None:
        """Wait for the line that says that the tail has begun."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the agent ended with {self.process.wait()}: {self.said()}"
        facts = json.loads(line)
        assert facts["agent"] == "running"
        self.http = facts["http"]

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, f"the agent ended by itself with {self.process.returncode}: {self.said()}"
        os.kill(self.process.pid, signal.SIGKILL)
        self.kills += 1
        self._end()

    def stop(self) -> int:
        """End it in good order."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGTERM)
        return self._end()

    def said(self) -> str:
        return (self.directory / "agent.err").read_text(encoding="utf-8")[-3000:]

    def _end(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait()
        self.process.stdout.close()
        self.process = None
        return code

    def supervise(self) -> None:
        """An agent that was never able to save its place needs the node once; its supervisor starts it again."""
        assert self.process is not None
        if self.process.poll() is not None:
            assert "no CQL connection" in self.said()
            self._end()
            self.start()


def ask_over_http(agent: AgentProcess) -> None:
    """A real agent answers on every path."""
    assert httpx.get(f"{agent.http}/ping").text == "pong\n"
    assert httpx.get(f"{agent.http}/health").status_code == 200
    assert httpx.get(f"{agent.http}/buildinfo").json()["service_name"] == "penstock-agent"
    metrics = httpx.get(f"{agent.http}/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(metrics)}
    assert families["penstock_agent_running"].samples[0].value == 1
    assert families["penstock_cdc_raw_limit_bytes"].samples[0].value == 256 << 20
    assert families["penstock_cdc_raw_bytes"].samples[0].value > 0


def kill_agent(agent: AgentProcess, load: Load, random: Random) -> None:
    """Kill it at a random moment of its work, or of its start, and start it again."""
    if random.randrange(4):
        load.wait_for(random.randrange(1, 600))
    agent.kill()
    if not random.randrange(3):
        # Once more while it starts: before it reads, while it looks for its place, or just after.
        agent.start(wait=False)
        threading.Event().wait(random.uniform(0, 1.5))
        agent.kill()
    agent.start(wait=bool(random.randrange(3)))


def kill_node(node: CassandraServer, agent: AgentProcess, load: Load, random: Random) -> None:
    """Kill the node, sometimes together with the agent, and start it again."""
    load.wait_for(random.randrange(1, 600))
    if not random.randrange(3):
        agent.kill()
        node.kill()
        agent.start(wait=False)
    else:
        node.kill()
    node.start()
    agent.supervise()
    load.wait_for(1)


def judge(node: CassandraServer, agent: AgentProcess, load: Load, found: Found, home: Path) -> list[str]:
    """What is lost, invented or there twice, a line for each; every log must be whole."""
    lost = found.wait_for(load.acknowledged)
    assert agent.stop() == 0
    found.look()
    problems = [f"lost: {row} was acknowledged and is in no log" for row in sorted(lost)]
    problems += [f"invented: {row} was never written" for row in sorted(found.rows.keys() - load.attempted)]
    problems += [f"invented: {row} is there {count} times" for row, count in sorted(found.rows.items()) if count > 1]
    there = selected(node.address)
    problems += [f"lost: the node has {row}" for row in sorted(there - found.inserted)]
    if agent.tail == "synced":
        problems += [f"invented: the node does not have {row}" for row in sorted(found.inserted - there)]
    for table in TABLES:
        with LogReader(str(agent.logs / directory_name(TableId(KEYSPACE, table)))) as reader:
            assert verify(reader).sound
    wide_load.expired(node.address)
    wide_load.deliver(home, [agent.logs], home / "judge.log")
    return problems


def test_every_acknowledged_write_survives_kills(
    node: CassandraServer, tmp_path: Path, tail: str, record_property: RecordProperty
) -> None:
    random = Random(SEED)
    # Half of the rounds with each way to tail.
    rounds = ["agent"] * (AGENT_KILLS // 2) + ["node"] * (NODE_KILLS // 2)
    random.shuffle(rounds)
    if tail == "written":
        rounds.sort(key=lambda kind: kind == "agent")
    with AgentProcess(node, tmp_path, tail) as agent:
        ask_over_http(agent)
        found = Found(agent.logs)
        with Load(node.address, SEED) as load:
            while tail == "written" and rounds[:1] == ["node"]:
                kill_node(node, agent, load, random)
                rounds.pop(0)
            with WideLoad(node.address, SEED) as wide:
                wide.wait_for(20)
                for kind in rounds:
                    if kind == "agent":
                        kill_agent(agent, load, random)
                    else:
                        kill_node(node, agent, load, random)
                wide.wait_for(20)
            load.wait_for(100)
        problems = judge(node, agent, load, found, tmp_path)
        differing, rows = wide_load.compared(node.address, tmp_path / "lake")
    broken = Counter(problem.partition(":")[0] for problem in problems) + differing
    kills = {"agent": agent.kills, "node": NODE_KILLS // 2}
    facts = {
        "rows acknowledged": len(load.acknowledged),
        "rows in doubt": len(load.attempted - load.acknowledged),
        "statements of every kind": wide.done,
        "of them changes of the schema": wide.definitions,
    }
    record(record_property, "kills", sum(kills.values()), broken)
    campaigns.keep(f"kills-{tail}", f"agent and node, tail {tail}", SEED, kills, facts, broken)
    said = ", ".join(f"{count} {what}" for what, count in {**kills, **facts}.items())
    sys.stderr.write(f"\nkill -9 with tail {tail}, seed {SEED}: {said}; broken: {dict(broken)}\n")
    assert problems + rows == [], "\n".join([*(problems + rows)[:10], agent.said()])
