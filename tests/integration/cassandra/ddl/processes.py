"""The processes of the schema matrix: `penstock agent` as an operator runs it, and Spark with its pipelines."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.capture.cassandra.snapshot.snapshotter import snapshot_directory
from penstock.capture.cassandra.snapshot.state import StateDirectory
from penstock.capture.state_directory import state_directory
from penstock.errors import PenstockError
from penstock.formats import avro
from penstock.log import snapshot_requests
from penstock.log.reader import LogReader
from penstock.model.change import Change
from penstock.model.schema import TableId
from penstock.sandbox.cassandra_server import CassandraServer
from penstock.settings import load
from penstock.system.files import OsFiles

PENSTOCK = [sys.executable, "-m", "penstock"]
PATIENCE_S = 180
_LOOK_S = 0.05
CONFIG = """
[cassandra]
config_file = "{yaml}"
contact_points = ["{address}"]
connect_timeout_s = 60

[agent]
directory = "{logs}"
node = "{name}"
transfer = "keep"
place_interval_s = 0.1

[snapshot]
mode = "never"
share = "all"
scan_interval_s = 0.5

[http]
enabled = false
"""


class AgentProcess:
    """An agent with logs of its own. Segments stay in cdc_raw, so that several can follow one node."""

    def __init__(self, name: str, node: CassandraServer, home: Path) -> None:
        self.name = name
        self.home = home / name
        self.logs = self.home / "logs"
        self.config = self.home / "agent.toml"
        self.home.mkdir(parents=True)
        self.config.write_text(
            CONFIG.format(yaml=node.yaml, address=node.address, logs=self.logs, name=name), encoding="utf-8"
        )
        self._process: subprocess.Popen[str] | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        with (self.home / "agent.err").open("ab") as errors:
            self._process = subprocess.Popen(
                [*PENSTOCK, "agent", str(self.config), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        assert '"running"' in self._process.stdout.readline(), self.said()

    def stop(self) -> None:
        """End it in good order."""
        assert self._end(signal.SIGTERM) == 0, self.said()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        assert self._process.poll() is None, f"the agent ended by itself: {self.said()}"
        os.kill(self._process.pid, how)
        self._process.communicate(timeout=PATIENCE_S)
        code, self._process = self._process.returncode, None
        return code

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=PATIENCE_S)
            self._process = None

    def said(self) -> str:
        return (self.home / "agent.err").read_text(encoding="utf-8")[-3000:]

    def keep_place(self) -> None:
        """Lay the place aside as it is now."""
        shutil.rmtree(self.home / "older", ignore_errors=True)
        shutil.copytree(self.logs / ".agent", self.home / "older", ignore=shutil.ignore_patterns("lock*", "*.lock"))

    def restore_place(self) -> None:
        """Put the place back that was laid aside: what came since is read once more."""
        for path in (self.home / "older").iterdir():
            if path.is_file():
                shutil.copy2(path, self.logs / ".agent" / path.name)

    def logged(self, table: TableId) -> list[Change]:
        """The changes of a table that are in its log by now."""
        directory = self.logs / str(table)
        if not (directory / "log.json").exists():
            return []
        try:
            with LogReader(str(directory)) as reader:
                return [change for batch in reader.read() for change in avro.decode(batch)]
        except PenstockError:
            # It is being made.
            return []

    def snapshot(self, tables: list[str]) -> None:
        """Have tables copied, by the command, and wait until they are."""
        for table in tables:
            command = [*PENSTOCK, "agent", "snapshot", str(self.config), table, "--json"]
            if table is tables[0]:
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
            else:
                # The command takes most of a second to start, and does this.
                snapshot_requests.request(OsFiles(), self._snapshots, _id(table), time.time_ns() // 1000)
        wait_until(lambda: not snapshot_requests.waiting(OsFiles(), self._snapshots), self.said)
        states = StateDirectory(OsFiles(), self._snapshots)
        for table in tables:
            wait_until(partial(_copied, states, _id(table)), self.said)

    @property
    def _snapshots(self) -> str:
        return snapshot_directory(state_directory(load(str(self.config))))


def _copied(states: StateDirectory, table: TableId) -> bool:
    state = states.load(table)
    return state is not None and state.finished_us is not None


def _id(table: str) -> TableId:
    keyspace, _, name = table.partition(".")
    return TableId(keyspace, name)


class PipelineProcess:
    """Spark in a process of its own, which runs one pipeline after another."""

    def __init__(self, home: Path) -> None:
        self._home = home
        home.mkdir(parents=True)
        with (home / "pipeline.err").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.cassandra.ddl.pipeline_process", str(home)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def run(self, config: Path) -> str | None:
        """Deliver what is in the logs; gives what went wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{config}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, (self._home / "pipeline.err").read_text(encoding="utf-8")[-3000:]
        said = json.loads(line).get("error")
        return None if said is None else str(said)

    def close(self) -> None:
        """End it with Spark's own processes, which are of its session."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def run_command(config: Path) -> str | None:
    """The same by the command line, in a process for this run alone."""
    done = subprocess.run(
        [*PENSTOCK, "pipeline", str(config), "--once", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return None if done.returncode == 0 else done.stderr[-2000:]


def wait_until(reached: Callable[[], object], said: Callable[[], str]) -> None:
    """Look until it is so; `said` tells more when it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"it did not happen in time: {said()}"
        threading.Event().wait(_LOOK_S)
