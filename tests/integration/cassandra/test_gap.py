"""Changes that were removed before a pipeline read them: told exactly, and healed by a snapshot of the real node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from cassandra.cluster import Session
from deltalake import DeltaTable, QueryBuilder

from penstock.log.reader import LogReader
from penstock.sandbox.cassandra_server import CassandraServer
from tests import many_logs
from tests.integration.cassandra.recording import connected
from tests.integration.cassandra.variants import VARIANTS
from tests.integration.pipeline.replica_load import wait_for

PENSTOCK = [sys.executable, "-m", "penstock"]
WITHIN_S = 120
CONFIG = """
[cassandra]
config_file = "{yaml}"
contact_points = ["{address}"]
include = ["gaps.*"]

[agent]
directory = "{home}/logs"

[log]
file_bytes_max = 4096

[snapshot]
mode = "never"
share = "all"
scan_interval_s = 0.5

[http]
port = 0

[pipeline]
checkpoint_directory = "{home}/checkpoint"
logs = ["{home}/logs"]
sinks = ["delta"]
buckets = 1
on_loss = "{on_loss}"

[delta]
directory = "{home}/lake"
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CassandraServer]:
    server = VARIANTS[0].server(tmp_path / "node")
    try:
        server.start()
        yield server
    finally:
        server.kill()


class Capture:
    """Agent, log and pipeline of one table."""

    def __init__(self, node: CassandraServer, home: Path) -> None:
        self._node = node
        self._home = home
        self._log = home / "logs" / "gaps.items"

    def config(self, on_loss: str) -> str:
        file = self._home / f"{on_loss}.toml"
        file.write_text(
            CONFIG.format(yaml=self._node.yaml, address=self._node.address, home=self._home, on_loss=on_loss)
        )
        return str(file)

    @contextmanager
    def capturing(self) -> Iterator[None]:
        with (self._home / "agent.err").open("wb") as errors:
            agent = subprocess.Popen(
                [*PENSTOCK, "agent", self.config("fail"), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            assert agent.stdout is not None
            assert '"running"' in agent.stdout.readline(), (self._home / "agent.err").read_text()
            yield
        finally:
            agent.terminate()
            agent.communicate(timeout=WITHIN_S)

    def deliver(self, on_loss: str) -> subprocess.CompletedProcess[str]:
        command = [*PENSTOCK, "pipeline", self.config(on_loss), "--once", "--json"]
        return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)

    def logged(self) -> int:
        """How many changes stand in the log, with those that were removed from it."""
        if not self._log.exists():
            return 0
        with LogReader(str(self._log)) as reader:
            first = reader.heading(reader.numbers()[0]).rows_before
            return first + sum(len(batch) for batch in reader.read())

    def remove_all_but_the_last_file(self) -> int:
        """How many changes are gone by that."""
        with LogReader(str(self._log)) as reader:
            *gone, last = reader.numbers()
            many_logs.remove_first_files(str(self._log), len(gone))
            return reader.heading(last).rows_before

    def delivered(self) -> list[dict[str, object]]:
        table = DeltaTable(str(self._home / "lake/gaps/items"))
        found = QueryBuilder().register("t", table).execute("SELECT k, v FROM t ORDER BY k").read_all()
        return list(pa.table(found).to_pylist())


def write(session: Session, keys: range, value: str) -> None:
    statement = session.prepare("INSERT INTO gaps.items (k, v) VALUES (?, ?)")
    for key in keys:
        session.execute(statement, (key, f"{value} {key} " + "x" * 100))


def test_a_gap_is_told_and_a_snapshot_of_the_node_heals_it(node: CassandraServer, tmp_path: Path) -> None:
    path = Capture(node, tmp_path)
    with connected(node.address) as cluster:
        session = cluster.connect()
        session.execute("CREATE KEYSPACE gaps WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE gaps.items (k int PRIMARY KEY, v text) WITH cdc = true")
        with path.capturing():
            write(session, range(100), "first")
            wait_for(lambda: path.logged() == 100)
            done = path.deliver("fail")
            assert done.returncode == 0, done.stderr
            assert len(path.delivered()) == 100

            write(session, range(50, 150), "second")
            wait_for(lambda: path.logged() == 200)
            gone = path.remove_all_but_the_last_file()
            assert 100 < gone < 200
            refused = path.deliver("fail")
            assert refused.returncode == 1
            assert "changes were removed before they were read" in refused.stderr
            assert f"changes {gone - 100}" in refused.stderr

            # It goes on behind the gap at once; the agent copies the table, which comes by the log like all changes.
            done = path.deliver("snapshot")
            assert done.returncode == 0, done.stderr
            wait_for(lambda: path.logged() == 200 + 150)
            done = path.deliver("snapshot")
            assert done.returncode == 0, done.stderr
            last = json.loads(done.stdout.splitlines()[-1])
            assert last["pipeline"] == "ended"
        selected = sorted(session.execute("SELECT k, v FROM gaps.items"))
        assert path.delivered() == [{"k": key, "v": value} for key, value in selected]
        assert len(selected) == 150
