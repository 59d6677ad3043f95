"""`penstock pipeline` as a process of its own: stopped in good order, killed at any moment, and on a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from deltalake import DeltaTable, QueryBuilder

from penstock.capture.cassandra.agent.status import AgentStatus
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.change import Change, Marker, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.sandbox.java_process import free_port, port_open
from penstock.serve.http import HttpServer
from penstock.serve.log_blocks import LogBlocks
from penstock.settings import HttpSettings, RetentionSettings

NODES = ("n1", "n2", "n3")
# How often the running pipeline is killed; more in a campaign of its own.
KILLS = int(os.environ.get("PENSTOCK_PIPELINE_KILLS", "2"))
PATIENCE_S = 300
# Nobody sets it; waiting for it passes the time between two looks.
_QUIET = threading.Event()
SCHEMA = TableSchema(
    TableId("shop", "people"),
    (Column("id", t.INT64, Role.PARTITION), Column("name", t.TEXT), Column("age", t.INT64)),
    source="cassandra",
)


class Load:
    """Writes to three nodes in a thread, each change to two or three of them, some of them late."""

    def __init__(self, home: Path, seed: int) -> None:
        self.rows: dict[int, tuple[str, int]] = {}
        self.changes = 0
        self._random = Random(seed)
        self._stop = threading.Event()
        self._logs = {node: TableLog.open(str(home / node / "shop.people"), SCHEMA, node=node) for node in NODES}
        self._late: list[tuple[str, Change]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop, and let the last copies arrive."""
        self._stop.set()
        self._thread.join()
        for node, change in self._late:
            self._logs[node].append(avro.encode(SCHEMA, [change]))
        self._late.clear()
        for log in self._logs.values():
            log.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            changes = [self._change() for _ in range(20)]
            for node in NODES:
                mine = [change for change in changes if self._random.random() < 0.8 or self._owe(node, change)]
                if mine:
                    self._logs[node].append(avro.encode(SCHEMA, mine))
            self._stop.wait(0.2)

    def _owe(self, node: str, change: Change) -> bool:
        self._late.append((node, change))
        return False

    def _change(self) -> Change:
        self.changes += 1
        number = self._random.randrange(200)
        name, age = f"name {self.changes}", self.changes
        self.rows[number] = (name, age)
        origin = Origin(file="log", position=self.changes)
        cells = {"name": Set(name), "age": Set(age)}
        return Change(Op.INSERT, {"id": number}, cells, time=1_000_000 + self.changes, marker=Marker(), origin=origin)


def config(home: Path, **more: str) -> Path:
    for node in NODES:
        (home / node).mkdir(exist_ok=True)
    logs = more.pop("logs", f"logs = {json.dumps([str(home / node) for node in NODES])}")
    extra = "\n".join(f"{name} = {value}" for name, value in more.items())
    file = home / "pipeline.toml"
    file.write_text(
        f"""
[pipeline]
name = "test"
checkpoint_directory = "{home}/checkpoint"
{logs}
sinks = ["delta", "files"]
buckets = 2
{extra}

[delta]
directory = "{home}/lake"

[files]
directory = "{home}/files"
format = "json"
compression = "none"
record = "change"
"""
    )
    return file


@contextmanager
def running(file: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The pipeline in a session of its own, so that its Java machine can be killed with it."""
    command = [sys.executable, "-m", "penstock", "pipeline", str(file), *words, "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def delivered(home: Path) -> dict[int, tuple[str, int]]:
    """What a reader of the table sees."""
    if not (home / "lake/shop/people/_delta_log").exists():
        return {}
    found = QueryBuilder().register("t", DeltaTable(str(home / "lake/shop/people"))).execute("SELECT * FROM t")
    rows = [row for batch in found for row in pa.record_batch(batch).to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["name"], row["age"]) for row in rows}


def identities(home: Path) -> list[int]:
    """The numbers of the changes in the files, in any order."""
    files = [file for file in (home / "files").rglob("*.json*") if "_manifests" not in file.parts]
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [int(line["origin"]["position"]) for line in lines]


def wait_for(what: Any, within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        _QUIET.wait(0.1)


def test_killed_pipeline_goes_on_without_loss_or_repetition(tmp_path: Path, record_property: Any) -> None:
    file = config(tmp_path, rows_per_batch="3000")
    random = Random(11)
    with Load(tmp_path, 11) as load:
        for _ in range(KILLS):
            seen = len(delivered(tmp_path))
            before = len(identities(tmp_path)) if (tmp_path / "files").exists() else 0
            with running(file) as process:
                wait_for(lambda p=process, n=before: p.poll() is not None or len(identities(tmp_path)) > n)
                assert process.poll() is None, process.stderr and process.stderr.read()
                _QUIET.wait(random.uniform(0, 1.5))
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            assert len(delivered(tmp_path)) >= seen
        load.finish()
        with running(file, "--once") as process:
            out, error = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, error
        assert json.loads(out.splitlines()[-1])["pipeline"] == "ended"
        assert delivered(tmp_path) == load.rows
        assert sorted(identities(tmp_path)) == list(range(1, load.changes + 1))
    record_property("kills", KILLS)


def test_pipeline_ends_in_good_order_on_sigterm(tmp_path: Path) -> None:
    file = config(tmp_path)
    with Load(tmp_path, 5) as load:
        with running(file) as process:
            wait_for(lambda: process.poll() is not None or bool(delivered(tmp_path)))
            process.send_signal(signal.SIGTERM)
            out, error = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, error
        ended = json.loads(out.splitlines()[-1])
        assert ended["pipeline"] == "ended"
        assert ended["records"] > 0
        assert ended["failures"] == 0
        load.finish()
        with running(file, "--once") as process:
            _, error = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, error
        assert delivered(tmp_path) == load.rows


@contextmanager
def spark_cluster(home: Path, workers: int) -> Iterator[str]:
    """A standalone master and workers on the loopback; the master's address."""
    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port = free_port()
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "384m",
        "SPARK_WORKER_DIR": str(home / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }
    processes: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> None:
        with (home / "cluster.log").open("ab") as output:
            processes.append(
                subprocess.Popen(
                    [str(script), *words], stdout=output, stderr=output, env=environment, start_new_session=True
                )
            )

    web = "--webui-port"
    try:
        start(
            "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), web, str(free_port())
        )
        wait_for(lambda: port_open(port))
        address = f"spark://127.0.0.1:{port}"
        for _ in range(workers):
            limits = ("--cores", "1", "--memory", "1g")
            start(
                "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", web, str(free_port()), *limits, address
            )
        yield address
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_pipeline_runs_on_a_cluster_of_workers_that_read_from_agents(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a token for the tests of the pipeline")
    token.chmod(0o600)
    with Load(tmp_path, 3) as load:
        wait_for(lambda: load.changes > 500)
    http = HttpSettings(port=0, token_file=token)
    status = AgentStatus(node="n1", data_centre="dc1", started_time_us=0, running=True)
    with ExitStack() as opened:
        servers = [
            opened.enter_context(HttpServer(http, lambda: status, LogBlocks(str(tmp_path / node), RetentionSettings())))
            for node in NODES
        ]
        master = opened.enter_context(spark_cluster(tmp_path, 2))
        addresses = json.dumps([server.address for server in servers])
        file = config(
            tmp_path,
            logs=f'agents = {addresses}\nagents_token_file = "{token}"',
            master=json.dumps(master),
            spark='{ "spark.driver.host" = "127.0.0.1", "spark.executor.memory" = "512m" }',
        )
        with running(file, "--once") as process:
            out, error = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, error
    assert json.loads(out.splitlines()[-1])["copies"] > 2 * load.changes
    assert delivered(tmp_path) == load.rows
    assert sorted(identities(tmp_path)) == list(range(1, load.changes + 1))


@pytest.mark.parametrize("words", [["pipeline", "nothing.toml"], ["run", "nothing.toml"]])
def test_missing_settings_are_one_line(tmp_path: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "penstock", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: cannot read the settings file")
    assert "Traceback" not in done.stderr
