"""The `penstock` command as a real process: pipes, signals, exit codes, and a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.serve.client import Client
from penstock.serve.protocol import Hello
from tests.listening import receive
from tests.numbered import SCHEMA, TABLE, batch, fill
from tests.terminal import on_terminal

PENSTOCK = (sys.executable, "-m", "penstock")
PATIENCE_S = 60


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.orders")
    fill(path, 30)
    return path


@contextlib.contextmanager
def running(*arguments: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*PENSTOCK, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_tail_follows_another_process_and_ends_on_interrupt(log: str) -> None:
    with running("log", "tail", "-f", "-n", "1", log, "--json") as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["key"]["id"] == 29
        with TableLog.open(log, SCHEMA) as writer:
            for number in range(30, 33):
                writer.append(batch(number))
                assert json.loads(tail.stdout.readline())["key"]["id"] == number
        tail.send_signal(signal.SIGINT)
        out, errors = tail.communicate(timeout=PATIENCE_S)
        assert (tail.returncode, out, errors) == (130, "", "")


def test_tail_as_a_subscription_does_not_repeat_after_an_interrupt(log: str) -> None:
    command = ("log", "tail", "-f", "--subscription", "mine", log, "--json")
    with running(*command) as tail:
        assert tail.stdout is not None
        assert [json.loads(tail.stdout.readline())["key"]["id"] for _ in range(30)] == list(range(30))
        with TableLog.open(log, SCHEMA) as writer:
            # The thirty are committed before the next is printed.
            writer.append(batch(30))
        assert json.loads(tail.stdout.readline())["key"]["id"] == 30
        tail.send_signal(signal.SIGINT)
        tail.communicate(timeout=PATIENCE_S)
        assert tail.returncode == 130
    done = subprocess.run([*PENSTOCK, *command[:2], *command[3:]], capture_output=True, text=True, check=True)
    # What was printed is committed before the interrupt ends it.
    assert done.stdout == ""


def test_closed_pipe_ends_cat_in_silence(log: str) -> None:
    with TableLog.open(log, SCHEMA) as writer:
        writer.append(batch(30, 5000))
    with running("log", "cat", log, "--json") as cat:
        assert cat.stdout is not None
        assert cat.stderr is not None
        assert json.loads(cat.stdout.readline())["key"]["id"] == 0
        cat.stdout.close()
        assert cat.stderr.read() == ""
        assert cat.wait(PATIENCE_S) in (0, 1)


def test_closed_pipe_ends_a_silent_tail(log: str) -> None:
    with running("log", "tail", "-f", "-n", "1", log) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        tail.stdout.readline()
        tail.stdout.close()
        assert tail.wait(PATIENCE_S) == 0
        assert tail.stderr.read() == ""


def test_output_can_be_cut_by_head(log: str) -> None:
    shell = f"{sys.executable} -m penstock log cat {log} | head -n 2"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == ""


def test_unreadable_log_is_one_line_without_traceback(log: str) -> None:
    Path(f"{log}/log.json").write_bytes(b"{}")
    done = subprocess.run([*PENSTOCK, "log", "cat", log], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    first, *_ = done.stderr.splitlines()
    assert first.startswith("penstock: ")
    assert "Traceback" not in done.stderr


def test_demo_without_a_terminal_ends_by_itself() -> None:
    done = subprocess.run([*PENSTOCK, "demo"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "acknowledged writes are in the logs" in done.stdout
    assert "Compared: every table is what the cluster itself holds." in done.stdout
    assert "\x1b" not in done.stdout


def test_demo_with_rows_runs_to_its_end_and_proves_its_writes() -> None:
    command = [*PENSTOCK, "demo", "--rows", "600", "--no-spark", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["sound"] is True
    assert summary["acknowledged"] + summary["refused"] == 600
    assert summary["crashes"] == 1
    assert not os.path.exists(summary["directory"])
    for subscription in summary["subscriptions"]:
        assert subscription["behind"] == 0
        assert subscription["changes"] > 0
    assert summary["verification"]["missing"] == 0
    assert summary["verification"]["acknowledged"] == summary["acknowledged"]
    assert summary["verification"]["copies"] >= 3 * summary["acknowledged"]


def test_demo_keeps_its_data_where_it_is_told(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    command = [*PENSTOCK, "demo", "--rows", "300", "--no-spark", "--nodes", "dc1=2", "--dir", str(home)]
    for run in (1, 2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"penstock log ls {home}/dc1-1" in done.stdout
        check = [*PENSTOCK, "log", "verify", str(home), "--json"]
        verified = subprocess.run(check, capture_output=True, text=True, check=False)
        verdicts = [json.loads(line) for line in verified.stdout.splitlines()]
        assert [verdict["sound"] for verdict in verdicts] == [True] * 6
        assert sum(verdict["changes"] for verdict in verdicts) >= 2 * 300 * run


def test_demo_refuses_a_foreign_directory(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    command = [*PENSTOCK, "demo", "--rows", "1", "--no-spark", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "not empty and not from an earlier demo" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_demo_on_a_terminal_shows_the_view_and_each_step_of_its_end(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    with on_terminal(*PENSTOCK, "demo", "--no-spark", "--dir", str(home)) as terminal:
        terminal.wait_for("per second", "subscription", "Ctrl-C ends the load")
        terminal.type(b"\x03")
        assert terminal.end() == 0
    shown, left = terminal.text(), terminal.beside_the_view()
    for step in (
        "the load has ended",
        "every node is up",
        "subscribers read the rest",
        "is looked for: log 1 of 15, dc1-1",
    ):
        assert step in shown
        assert step not in left
    assert "^C" not in shown
    assert "Traceback" not in shown
    assert "none is missing" in left
    assert (home / "dc1-1" / "shop.orders").is_dir()


def test_demo_ends_at_once_on_a_second_interrupt_and_says_what_was_left_out(tmp_path: Path) -> None:
    # So many logs give more pictures than a terminal takes that nobody reads from: it cannot be done too soon.
    command = (*PENSTOCK, "demo", "--no-spark", "--nodes", "dc1=12,dc2=12", "--dir", str(tmp_path / "demo"))
    with on_terminal(*command) as terminal:
        terminal.wait_for("Ctrl-C ends the load")
        terminal.type(b"\x03")
        terminal.wait_for("Ctrl-C ends it at once")
        terminal.type(b"\x03")
        assert terminal.end() == 130
    assert terminal.beside_the_view() == "ended at once; nothing was checked\n"


def test_listen_pushes_changes_and_ends_on_sigterm(tmp_path: Path, log: str) -> None:
    socket = str(tmp_path / "socket")
    with running("listen", str(tmp_path), "--path", socket, "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"listening": socket}
        with Client(socket, Hello(TABLE, subscription="mailer")) as client:
            found = receive(client, 30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert found == list(range(30))
    assert not os.path.exists(socket)


@pytest.mark.parametrize("agents", [False, True])
def test_listen_keeps_logs_within_their_caps_unless_they_are_an_agents(tmp_path: Path, agents: bool) -> None:
    fill(str(tmp_path / "shop.orders"), 60)
    settings = tmp_path / "penstock.toml"
    settings.write_text("[retention]\nbytes_max = 30000\n")
    if agents:
        (tmp_path / ".agent").mkdir()

    def size() -> int:
        with LogReader(str(tmp_path / "shop.orders")) as reader:
            return sum(info.bytes for info in reader.files())

    before = size()
    assert before > 30_000
    with running("listen", str(tmp_path), "--path", str(tmp_path / "s"), "--config", str(settings)) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        # The look that began with it has ended when it has.
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
    assert (size() == before) is agents
    assert (size() <= 30_000) is not agents
    assert ("changes deleted that no subscription read" in out + said) is not agents


def test_output_that_nobody_reads_to_its_end_is_no_failure(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.orders")
    fill(path, 5000)
    with running("log", "cat", path, "--json") as cat:
        assert cat.stdout is not None
        assert json.loads(cat.stdout.readline())["key"]["id"] == 0
        cat.stdout.close()
        assert cat.stderr is not None
        assert (cat.wait(PATIENCE_S), cat.stderr.read()) == (0, "")
        cat.stdout = None
