"""`penstock pipeline` as a process of its own, stopped in good order. test_kills.py kills it, on a cluster too."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.pipeline.replica_load import NODES, PATIENCE_S, Load, delivered, identities, wait_for
from tests.scripted_search import scripted_search

# A pipeline that gives its batch up ends within this, on a machine that has other things to do.
ENDED_S = 60


def config(home: Path, search: str | None = None) -> Path:
    """The settings in a file; `search`: with one more target, a search cluster."""
    for node in NODES:
        (home / node).mkdir(exist_ok=True)
    file = home / "pipeline.toml"
    file.write_text(
        f"""
[pipeline]
name = "test"
checkpoint_directory = "{home}/checkpoint"
logs = {json.dumps([str(home / node) for node in NODES])}
sinks = {json.dumps(["delta", "files", *(["search"] if search else [])])}
buckets = 2
stop_s = {1 if search else 30}

[search]
urls = ["{search or "http://127.0.0.1:1"}"]
retry_s_max = 0.5

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


def test_pipeline_ends_on_sigterm_though_a_target_is_away_and_loses_nothing(tmp_path: Path) -> None:
    with scripted_search() as cluster:
        file = config(tmp_path, cluster.url)
        # Busy for ever.
        cluster.script = [503] * 1_000_000
        with Load(tmp_path, 7) as load, running(file) as process:
            wait_for(lambda: process.poll() is not None or cluster.bulks)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            out, error = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, error
            assert time.monotonic() - began < ENDED_S
        ended = json.loads(out.splitlines()[-1])
        assert (ended["pipeline"], ended["batches"]) == ("ended", 0)
        assert delivered(tmp_path) == {}
        cluster.script = []
        with running(file, "--once") as process:
            _, error = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, error
        found = {row["id"]: (row.get("name"), row["age"]) for row in cluster.rows("people").values()}
        assert found == delivered(tmp_path) == load.rows


def test_second_driver_is_refused_and_one_that_was_replaced_ends_without_harm(tmp_path: Path) -> None:
    file = config(tmp_path)
    with Load(tmp_path, 6) as load, running(file) as old:
        wait_for(lambda: old.poll() is not None or bool(delivered(tmp_path)))
        # It stands still, maybe in the middle of a batch, and has its lock.
        os.killpg(old.pid, signal.SIGSTOP)
        with running(file, "--once") as second:
            _, error = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 1
        assert f"another driver runs this pipeline: process {old.pid} on {socket.gethostname()}, since" in error
        assert "stop the other one" in error
        load.finish()
        # Somebody believes that it is dead for good.
        (tmp_path / "checkpoint" / "driver.lock").unlink()
        with running(file, "--once") as second:
            _, error = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 0, error
        os.killpg(old.pid, signal.SIGCONT)
        _, error = old.communicate(timeout=PATIENCE_S)
        assert old.returncode == 1
        assert f"another driver has taken this pipeline over: process {second.pid} on" in error
    assert delivered(tmp_path) == load.rows
    assert sorted(identities(tmp_path)) == list(range(1, load.changes + 1))


@pytest.mark.parametrize("words", [["pipeline", "nothing.toml"], ["run", "nothing.toml"]])
def test_missing_settings_are_one_line(tmp_path: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "penstock", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: cannot read the settings file")
    assert "Traceback" not in done.stderr
