"""`penstock pipeline` as a process of its own, stopped in good order. test_kills.py kills it, on a cluster too."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.closed import open_to, readable_by_group
from tests.integration.pipeline.replica_load import NODES, PATIENCE_S, Load, delivered, identities, wait_for
from tests.scripted_search import scripted_search
from tests.terminal import on_terminal

# A pipeline that gives its batch up ends within this, on a machine that has other things to do.
ENDED_S = 60


def config(home: Path, search: str | None = None, *, group_read: bool = False) -> Path:
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
http_port = 0
stop_s = {1 if search else 30}
group_read = {str(group_read).lower()}

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
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, umask=0o022
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_pipeline_ends_in_good_order_on_sigterm_and_only_json_is_printed(tmp_path: Path) -> None:
    file = config(tmp_path)
    made = tuple(tmp_path / name for name in ("checkpoint", "lake", "files"))
    with Load(tmp_path, 5) as load:
        with running(file) as process:
            wait_for(lambda: process.poll() is not None or bool(delivered(tmp_path)))
            # A stopped process deletes nothing while it is looked at.
            os.killpg(process.pid, signal.SIGSTOP)
            assert open_to(0o077, *made) == {}
            assert any((tmp_path / "checkpoint" / "scratch").iterdir())
            os.killpg(process.pid, signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            out, error = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, error
        # Every line, whoever of Spark's processes wrote it.
        events = [json.loads(line) for line in error.splitlines()]
        begun, *_, ended = (json.loads(line) for line in out.splitlines())
        assert ended["pipeline"] == "ended"
        assert ended["records"] > 0
        assert ended["failures"] == 0
        assert open_to(0o077, *made, *(tmp_path / node / "shop.people" for node in NODES)) == {}
        said_of_start(next(event for event in events if event["event"] == "pipeline runs"), tmp_path)
        said_of_start(begun, tmp_path)
        stages = [event["stage"] for event in events if event["event"] == "pipeline goes on"]
        assert {"Spark starts …", "runs"} <= set(stages)
        assert "pipeline ends; the batch under way is finished" in [event["event"] for event in events]
        load.finish()
        # What comes from now on is for the group too, as far as it is a target.
        for directory in made:
            directory.chmod(0o750)
        seen_on_a_terminal(config(tmp_path, group_read=True))
        assert delivered(tmp_path) == load.rows
        checkpoint, lake, files = made
        assert open_to(0o027, *made) == {}
        assert readable_by_group(checkpoint) == []
        commits = sorted((lake / "shop/people/_delta_log").glob("*.json"))
        assert open_to(0o040, commits[-1]) != {}
        assert any(open_to(0o040, *(files / "_manifests").iterdir()))


def said_of_start(event: dict[str, object], home: Path) -> None:
    """What a pipeline says of itself when it starts."""
    assert event["tables"] == ["*.*"]
    assert event["logs"] == [str(home / node) for node in NODES]
    assert event["sinks"] == ["delta", "files"]
    assert event["checkpoint"] == f"{home}/checkpoint"
    assert str(event["http"]).startswith("http://127.0.0.1:")


def seen_on_a_terminal(file: Path) -> None:
    """Deliver the rest on a terminal: of Spark nothing is seen there, and all that it said is in the log."""
    command = (sys.executable, "-m", "penstock", "pipeline", str(file), "--once")
    with on_terminal(*command, PENSTOCK_LOG_LEVEL="debug") as terminal:
        assert terminal.end() == 0, terminal.text()
    shown = terminal.text()
    for part in (
        "penstock pipeline",
        "Spark starts …",
        "http://127.0.0.1:",
        "to delta",
        "Ctrl-C ends it in good order",
    ):
        assert part in shown
    assert "incubator" not in shown
    *before, last = terminal.beside_the_view().splitlines()
    assert all(re.match(r"\S+Z \[(debug|info) +\] ", line) for line in before), before
    assert re.fullmatch(r"ended; [\d,]+ records? of 1 table delivered, merged from [\d,]+ that nodes had logged", last)
    events = [json.loads(line) for line in (file.parent / "checkpoint" / "penstock.log").read_text().splitlines()]
    # What its launcher says at every start.
    assert any("incubator" in event["event"] and event["logger"] == "spark" for event in events)


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


def test_java_that_does_not_start_is_explained_by_what_it_wrote(tmp_path: Path) -> None:
    file = config(tmp_path)
    file.write_text(f'{file.read_text()}\n[pipeline.spark]\n"spark.driver.extraJavaOptions" = "-agentlib:nothing"\n')
    command = [sys.executable, "-m", "penstock", "pipeline", str(file), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    *_, last = [json.loads(line) for line in done.stderr.splitlines()]
    assert (last["level"], last["error"]) == ("error", "SparkFailed")
    words = "\n  Error occurred during initialization of VM\n  Could not find agent library nothing"
    assert f"; it wrote last:{words}" in last["event"]
    assert "pipeline.master" in last["hint"]
    variables = {**os.environ, "PENSTOCK_LOG_FORMAT": "text"}
    text = subprocess.run(command, env=variables, capture_output=True, text=True, check=False).stderr
    assert words in text
    assert "\n  hint: " in text
    assert not [line for line in text.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("words", [["pipeline", "nothing.toml"], ["run", "nothing.toml"], ["agent", "nothing.toml"]])
def test_missing_settings_are_one_line_in_the_form_of_the_log(tmp_path: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "penstock", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    event = json.loads(done.stderr)
    assert event["event"].startswith("cannot read the settings file")
    assert event["level"] == "error"
    variables = {**os.environ, "PENSTOCK_LOG_FORMAT": "text"}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("penstock: cannot read the settings file")
    assert "Traceback" not in done.stderr
