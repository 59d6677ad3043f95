"""The agent as a process: killed at random moments under load, stopped, refused, and asked what it has parked."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.log.catalog import Catalog
from penstock.log.follow import Follower, Tail
from penstock.log.subscription import Subscription
from penstock.model.schema import TableId
from penstock.serve.client import Client
from penstock.serve.protocol import Hello
from tests.closed import open_to, readable_by_group
from tests.counted import RecordProperty, differences, record
from tests.scripted_agent import Node, Setup, cassandra_table

KILLS = 6
STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    yield
    for process in STARTED:
        if process.poll() is None:
            process.kill()
            process.communicate()
    STARTED.clear()


class AgentProcess:
    """`penstock agent` with its settings file."""

    def __init__(self, setup: Setup, **sections: Any) -> None:
        self.config = setup.node.root / "agent.toml"
        node = setup.node
        given: dict[str, dict[str, Any]] = {
            "cassandra": {"cdc_raw_directory": str(node.cdc_raw), "schema_from": "log", "data_centre": "dc1"},
            "agent": {"directory": str(setup.data), "node": "n1"},
            "http": {"port": 0},
        }
        for section, values in sections.items():
            given.setdefault(section, {}).update(values)
        lines = []
        for section, values in given.items():
            lines.append(f"[{section}]")
            lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        self.config.write_text("\n".join(lines))
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> dict[str, Any]:
        """Start it; what it says once it runs."""
        command = [sys.executable, "-m", "penstock", "agent", str(self.config), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, umask=0o022)
        STARTED.append(self.process)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.end()[1]
        said: dict[str, Any] = json.loads(line)
        return said

    def end(self, number: int | None = None) -> tuple[int, str]:
        """Send a signal, wait for the end; the exit code and what it said last or complained of."""
        assert self.process is not None
        if number is not None:
            self.process.send_signal(number)
        out, complaint = self.process.communicate(timeout=60)
        return self.process.returncode, out + complaint

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock", "agent", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


class Load:
    """Writes to the node from a thread, over many segments, until it is told to stop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _write(self) -> None:
        number = len(self._node.written)
        while not self._ending.wait(0.001):
            self._node.write(*range(number, number + 5), note="x" * 60)
            number += 5
            if number % 50 == 0:
                self._node.log.mark()
            if number % 250 == 0:
                self._node.log.sync()


@contextmanager
def tail(directory: Path) -> Iterator[Tail]:
    with Follower(str(directory)) as follower, Tail(follower) as found:
        yield found


def wait_for(setup: Setup, count: int) -> None:
    """Wait until so many changes are in the log."""
    seen = 0
    with tail(setup.data / "shop.orders") as changes:
        while seen < count:
            batch = changes.next(60)
            assert batch is not None, f"{seen} of {count} changes came"
            seen += len(batch)


def test_killed_under_load_it_loses_nothing_and_repeats_nothing(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    random = Random(4)
    setup = Setup(tmp_path, segment_bytes=1 << 17)
    setup.node.create()
    setup.node.write(0)
    agent = AgentProcess(setup, agent={"chunk_bytes": 8192, "place_interval_s": 0.05})
    with Load(setup.node):
        for _ in range(KILLS):
            agent.start()
            with suppress(subprocess.TimeoutExpired):
                assert agent.process is not None
                agent.process.wait(random.uniform(0.02, 0.8))
            agent.end(signal.SIGKILL)
    agent.start()
    wait_for(setup, len(setup.node.written))
    code, said = agent.end(signal.SIGTERM)
    assert code == 0, said
    found, keys = setup.numbers(), setup.keys()
    record(record_property, "kills", KILLS, differences(setup.node.written, found))
    assert found == setup.node.written
    assert len(set(keys)) == len(keys)


def test_sigterm_ends_it_in_good_order_and_the_next_one_reads_nothing_again(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.node.create()
    setup.node.write(1, 2, 3)
    socket = tmp_path / "s"
    agent = AgentProcess(setup, agent={"listen": True}, listener={"path": str(socket)})
    said = agent.start()
    assert (said["agent"], said["node"], said["data_centre"]) == ("running", "n1", "dc1")
    assert said["listener"] == str(socket)
    assert socket.is_socket()
    assert urllib.request.urlopen(f"{said['http']}/ping", timeout=30).read().strip() == b"pong"
    wait_until_there(setup)
    wait_for(setup, 3)
    code, text = agent.end(signal.SIGTERM)
    assert code == 0, text
    assert json.loads(text.splitlines()[0]) == {"agent": "ended", "changes": 3, "mutations": 5}
    setup.node.write(4)
    agent.start()
    wait_for(setup, 4)
    _, text = agent.end(signal.SIGINT)
    assert json.loads(text.splitlines()[0])["mutations"] == 1
    assert setup.numbers() == [1, 2, 3, 4]
    assert open_to(0o077, setup.data) == {}


def test_the_group_reads_the_logs_where_that_is_set_and_nothing_else(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.node.create()
    setup.node.write(1, 2, 3)
    agent = AgentProcess(setup, log={"group_read": True})
    agent.start()
    wait_until_there(setup)
    wait_for(setup, 3)
    agent.end(signal.SIGTERM)
    assert open_to(0o027, setup.data) == {}
    readable = readable_by_group(setup.data)
    assert {file.parent.name for file in readable} == {"shop.orders"}
    needed = {"log.json", "watermark"} | {file.name for file in (setup.data / "shop.orders").glob("*.avro")}
    assert needed <= {file.name for file in readable}


def wait_until_there(setup: Setup) -> None:
    """Wait until the table's log has come into being."""
    there = setup.data / "shop.orders" / "watermark"
    for _ in range(6000):
        if there.exists() and there.stat().st_size:
            return
        threading.Event().wait(0.01)
    pytest.fail("no log came into being")


def test_second_agent_and_wrong_settings_are_refused_in_one_line(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.node.create()
    agent = AgentProcess(setup)
    agent.start()
    second = agent.command(str(agent.config))
    assert second.returncode == 1
    assert "another agent uses this state directory" in second.stderr
    agent.end(signal.SIGTERM)
    no_directory = AgentProcess(setup, cassandra={"cdc_raw_directory": str(tmp_path / "nowhere")})
    refused = no_directory.command(str(no_directory.config))
    assert refused.returncode == 1
    assert "cdc_raw is not a directory" in refused.stderr
    down = AgentProcess(setup, cassandra={"schema_from": "driver", "contact_points": ["127.0.0.1"], "port": 1})
    (setup.data / ".agent").rename(tmp_path / "elsewhere")
    refused = down.command(str(down.config))
    assert refused.returncode == 1
    *_, told = (json.loads(line) for line in refused.stderr.splitlines())
    assert "no CQL connection to 127.0.0.1" in told["event"]
    assert told["hint"].startswith("Check that the node is up")


def test_parked_entries_and_failed_segments_are_listed(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    late = cassandra_table("late")
    setup.node.create()
    setup.node.write(1)
    setup.node.write(7, 8, table=late)
    setup.run()
    agent = AgentProcess(setup)
    rows = [json.loads(line) for line in agent.command("parked", str(agent.config), "--json").stdout.splitlines()]
    assert [(row["table_id"], row["entries"]) for row in rows] == [(str(late.id), 2)]
    assert str(late.id) in agent.command("parked", str(agent.config)).stdout
    assert "no segment has failed" in agent.command("reprocess-errors", str(agent.config)).stdout


def test_statements_decide_which_logs_a_table_has(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.node.create()
    setup.node.write(1)
    agent = AgentProcess(setup)
    agent.start()
    wait_until_there(setup)
    wait_for(setup, 1)
    agent.end(signal.SIGTERM)
    with Catalog.open(str(setup.data)) as catalog:
        assert catalog.table(TableId("shop", "orders")) is not None
    statement = "CREATE CDC_LOG large ON shop.orders WHERE id > 5"
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "sql", statement, "--dir", str(setup.data)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    agent.start()
    setup.node.write(2, 9)
    wait_for(setup, 3)
    agent.end(signal.SIGTERM)
    assert setup.numbers("shop.orders@large") == [9]


def test_caps_hold_in_an_agent_that_nobody_subscribes_to(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.node.create()
    agent = AgentProcess(
        setup,
        log={"file_bytes_max": "16KiB", "reserve_bytes": 0},
        retention={"bytes_max": "128KiB", "every_s": "50ms"},
        agent={"chunk_bytes": 8192},
    )
    agent.start()
    setup.node.write(*range(5000), note="x" * 60)
    setup.node.log.sync()
    directory = setup.data / "shop.orders"
    looking = threading.Event()

    def bytes_of_log() -> int:
        found = 0
        for path in directory.glob("*.avro"):
            with suppress(FileNotFoundError):
                found += path.stat().st_size
        return found

    def last_file() -> int:
        return max((int(path.name.split(".")[2]) for path in directory.glob("*.avro")), default=0)

    # More went in than may stay, and what stays is what may.
    while last_file() < 10 or bytes_of_log() > 128 << 10:
        assert not looking.wait(0.02)
    code, said = agent.end(signal.SIGTERM)
    assert code == 0
    assert "changes deleted that no subscription read" in said


def scraped(address: str) -> dict[tuple[str, str], float]:
    """The metrics of a running agent by name and log; the greatest where several subscriptions have one."""
    found: dict[tuple[str, str], float] = {}
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, sample.labels.get("log", "")
            if "le" not in sample.labels:
                found[key] = max(sample.value, found.get(key, sample.value))
    return found


def scrape_until(address: str, name: str, log: str, reached: Callable[[float], bool]) -> float:
    """Ask again until the metric is there and has moved; its value."""
    looking = threading.Event()
    while not reached(found := scraped(address).get((name, log), float("nan"))):
        looking.wait(0.1)
    return found


@pytest.mark.timeout(240)
def test_what_an_operator_wants_to_know_first_moves_when_it_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A filter whose function fails cannot judge: its changes are parked.
    (tmp_path / "shop_filters.py").write_text("def fussy(number):\n    raise ValueError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    setup = Setup(tmp_path / "node", segment_bytes=1 << 17)
    setup.node.create()
    setup.node.write(1)
    functions = {"fussy": "shop_filters:fussy"}
    retention = {"bytes_max": "64KiB", "every_s": "1s"}
    log = {"file_bytes_max": "16KiB", "reserve_bytes": 0}
    listener = {"path": str(tmp_path / "socket")}
    agent = AgentProcess(
        setup, functions=functions, retention=retention, log=log, listener=listener, agent={"listen": True}
    )
    agent.start()
    wait_until_there(setup)
    wait_for(setup, 1)
    agent.end(signal.SIGTERM)
    statement = "CREATE CDC_LOG odd ON shop.orders WHERE fussy(id) = true"
    command = [sys.executable, "-m", "penstock", "sql", statement, "--dir", str(setup.data), "--config"]
    made = subprocess.run([*command, str(agent.config)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    address = agent.start()["http"]
    before = scraped(address)
    assert before["penstock_listener_clients", ""] == 0
    with (
        Subscription.open(str(setup.data / "shop.orders"), "slow"),
        Client(str(tmp_path / "socket"), Hello(TableId("shop", "orders"), subscription="reader")) as client,
    ):
        assert scrape_until(address, "penstock_listener_clients", "", lambda value: value == 1)
        setup.node.write(2, note="x" * 60)
        setup.node.log.sync()
        changes = next(iter(client.changes(60)))
        scrape_until(address, "penstock_subscription_lag_bytes", "shop.orders", lambda value: value > 0)
        scrape_until(address, "penstock_subscription_lag_seconds", "shop.orders", lambda value: value > 0)
        scrape_until(address, "penstock_parked_changes_total", "shop.orders@odd!parked", lambda value: value >= 1)
        client.ack(changes.last)
        scrape_until(address, "penstock_delivered_changes_total", "shop.orders", lambda value: value >= 1)
    setup.node.write(*range(10, 3000), note="x" * 60)
    setup.node.log.sync()
    scrape_until(address, "penstock_lost_changes_total", "shop.orders", lambda value: value > 0)
    after = scraped(address)
    for name in ("append", "sync"):
        moved = [found.get((f"penstock_{name}_seconds_count", ""), 0) for found in (before, after)]
        assert moved[0] < moved[1]
        assert after[f"penstock_{name}_seconds_sum", ""] > 0
    size = "penstock_log_bytes", "shop.orders"
    scrape_until(address, *size, lambda value: value > before[size])
    files = setup.data / "shop.orders"
    scrape_until(address, "penstock_log_files", "shop.orders", lambda value: value == len(list(files.glob("*.avro"))))
    assert agent.end(signal.SIGTERM)[0] == 0
