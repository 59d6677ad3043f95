"""One driver per checkpoint: the second is told who has it, and one that was replaced commits nothing."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PipelineFenced, PipelineLocked
from penstock.fold.state import StateStore
from penstock.pipeline import driver_lock
from penstock.pipeline.driver_lock import DriverLock
from penstock.system import written_once
from tests.query_stand_in import Query
from tests.unit.pipeline.test_losses import STEPS, person, put, rows, settings, times

HOLDER = """
import sys, time
from pathlib import Path
from penstock.pipeline.driver_lock import DriverLock
lock = DriverLock.take(Path(sys.argv[1]), 1_700_000_000_000_000)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_second_driver_is_told_who_has_the_checkpoint(tmp_path: Path, stopped: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        if stopped:
            holder.send_signal(signal.SIGSTOP)
        with pytest.raises(PipelineLocked) as refusal:
            DriverLock.take(tmp_path, 0)
        who = f"process {holder.pid} on {socket.gethostname()}, since 2023-11-14 22:13:20 UTC"
        assert str(refusal.value) == f"another driver runs this pipeline: {who} (file {tmp_path}/driver.lock)"
        assert "stop the other one" in refusal.value.hint
        holder.kill()
        holder.wait()
    # The lock went with the process.
    DriverLock.take(tmp_path, 0).release()


def test_driver_whose_lock_was_taken_over_is_fenced(tmp_path: Path) -> None:
    old = DriverLock.take(tmp_path, 0)
    old.check()
    (tmp_path / driver_lock.NAME).unlink()
    with pytest.raises(PipelineFenced, match="deleted"):
        old.check()
    new = DriverLock.take(tmp_path, 0)
    with pytest.raises(PipelineFenced, match=f"taken this pipeline over: process {os.getpid()} on"):
        old.check()
    new.check()


@pytest.mark.parametrize("content", [b"", b"\0" * 512, b"00000000 {}", b"c2a46a0d []"])
def test_lock_file_that_a_power_loss_has_torn_keeps_nobody_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / driver_lock.NAME).write_bytes(content)
    lock = DriverLock.take(tmp_path, 0)
    lock.check()
    lock.release()


def test_file_that_is_written_once_stays_what_it_was(tmp_path: Path) -> None:
    assert written_once.write(str(tmp_path), "one", b"first")
    assert not written_once.write(str(tmp_path), "one", b"second")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"one": b"first"}
    (tmp_path / "one.0.draft").write_bytes(b"left by a crash")
    written_once.clear_drafts(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_file_is_written_once_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert written_once.write(str(tmp_path), "one", b"first")
    assert not written_once.write(str(tmp_path), "one", b"second")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"one": b"first"}


def test_state_of_a_batch_is_committed_by_one_driver_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StateStore(str(tmp_path), 1)
    store.commit(0, {})
    with monkeypatch.context() as patched:
        # Another one has come between the look and the write.
        patched.setattr("penstock.fold.manifest.batches", lambda _: [])
        with pytest.raises(PipelineFenced, match="another driver has committed"):
            store.commit(0, {0: json.dumps({"runs": [], "expired_to": 5, "due_s": 0}).encode()})
    assert store.next_due_s() is None


@pytest.mark.parametrize("step", [step for step in STEPS if step not in ("wake", "Spark's commit", "subscription")])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_driver_that_is_replaced_in_the_middle_of_a_batch_commits_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    """It stands still at a step; its lock file is deleted, another one does the batch and the next, and it goes on."""
    put(tmp_path, "n1", person(1, 10, name="a"))
    old = Query(settings(tmp_path, picky=True), monkeypatch)
    old.start().run()
    put(tmp_path, "n1", person(1, 20, name="b"), person(13, 25, name="x"))
    owner, method = STEPS[step]
    original: Callable[..., Any] = getattr(owner, method)

    def replaced(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, method, original)
        done = original(*given, **named) if after else None
        (tmp_path / "checkpoint" / driver_lock.NAME).unlink()
        put(tmp_path, "n2", person(2, 30, name="c"))
        Query(settings(tmp_path, picky=True), monkeypatch).start().run().stop()
        put(tmp_path, "n3", person(3, 40, name="d"))
        return done if after else original(*given, **named)

    monkeypatch.setattr(owner, method, replaced)
    # What it meets is of no account: files that the other one has removed, or Spark's directory gone.
    with suppress(Exception):
        old.run()
    pipeline = old._pipeline
    assert pipeline is not None
    with pytest.raises(PipelineFenced):
        pipeline._consider(RuntimeError("anything"), 1)
    Query(settings(tmp_path, picky=True), monkeypatch).start().run().stop()
    assert times(tmp_path) == [10, 20, 25, 30, 40]
    assert rows(tmp_path) == {1: ("b", None), 13: ("x", None), 2: ("c", None), 3: ("d", None)}
