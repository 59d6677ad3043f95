"""What a snapshot does before, without and instead of a cluster."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.cassandra.node.connection import Connection
from penstock.capture.cassandra.snapshot.pages import Trouble, consistency_level, trouble
from penstock.capture.cassandra.snapshot.snapshotter import Snapshotter, snapshot_directory
from penstock.errors import InvalidInput, InvalidSetting, StorageError, Unreachable
from penstock.log import snapshot_requests as requests
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableId
from penstock.settings import SnapshotSettings, load
from penstock.system.files import OsFiles

TABLE = TableId("ks", "t")


class Cluster:
    """A cluster that never answers. After so many attempts the test has seen enough."""

    def __init__(self, attempts: int) -> None:
        self.left = attempts
        self.attempts = 0
        self.stop = threading.Event()

    def connect(self) -> Connection:
        self.attempts += 1
        if self.attempts >= self.left:
            self.stop.set()
        raise Unreachable("no CQL connection to 192.0.2.1: timed out")


def no_sink(_batch: ChangeBatch) -> None:
    raise AssertionError("nothing was read")


def made(cluster: Cluster, directory: Path, **settings: Any) -> Snapshotter:
    return Snapshotter(cluster.connect, no_sink, str(directory), SnapshotSettings(**settings))


def test_a_cluster_that_is_down_is_asked_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.capture.cassandra.snapshot.snapshotter.BACKOFF_S", 0.001)
    cluster = Cluster(attempts=4)
    one = made(cluster, tmp_path)
    one.run(cluster.stop)
    status = one.status()
    assert cluster.attempts == 4
    assert status.retries == 4
    assert status.waiting == "no CQL connection to 192.0.2.1: timed out"
    assert (status.running, status.completed, status.aborted, status.failure) == (False, False, True, None)


class ScarceFiles(OsFiles):
    """Files of a process that has no descriptor for the first few looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    def list(self, path: str) -> list[str]:
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().list(path)


def test_a_lack_of_descriptors_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.capture.cassandra.snapshot.snapshotter.BACKOFF_S", 0.001)
    cluster, files = Cluster(attempts=1), ScarceFiles(3)
    one = Snapshotter(cluster.connect, no_sink, str(tmp_path), SnapshotSettings(mode="never"), files=files)
    one.request(TABLE)
    one.run(cluster.stop)
    assert (files.left, cluster.attempts, one.status().retries) == (0, 1, 4)
    assert one.status().failure is None


@pytest.mark.parametrize("settings", [{"mode": "never"}, {"share": "none"}])
def test_the_cluster_is_left_alone_when_nothing_is_to_be_copied(
    tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(attempts=1)
    one = made(cluster, tmp_path, **settings)
    looks: list[float] = []

    def wait(timeout: float | None = None) -> bool:
        looks.append(timeout or 0.0)
        if len(looks) == 3:
            cluster.stop.set()
        return cluster.stop.is_set()

    monkeypatch.setattr(cluster.stop, "wait", wait)
    one.run(cluster.stop)
    assert cluster.attempts == 0
    assert len(looks) == 3
    assert one.status().completed


def test_a_request_is_on_disk_when_it_was_made(tmp_path: Path) -> None:
    made(Cluster(1), tmp_path, mode="never").request(TABLE)
    assert requests.waiting(OsFiles(), snapshot_directory(str(tmp_path))) == [TABLE]


def test_an_agent_that_copies_nothing_refuses_requests(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r'snapshot\.share is "none"'):
        made(Cluster(1), tmp_path, share="none").request(TABLE)


def test_a_state_directory_that_cannot_be_used_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "snapshot").write_text("a file")
    one = made(Cluster(1), tmp_path)
    with pytest.raises(StorageError):
        one.run(threading.Event())
    status = one.status()
    assert status.failure is not None
    assert status.aborted


def test_a_fault_of_our_own_is_a_failure_that_tells_no_values(tmp_path: Path) -> None:
    def connect() -> Connection:
        raise ValueError("a value of somebody's row")

    one = Snapshotter(connect, no_sink, str(tmp_path), SnapshotSettings())
    with pytest.raises(ValueError, match="somebody's row"):
        one.run(threading.Event())
    status = one.status()
    assert status.failure == "ended by a fault of its own: ValueError"
    assert status.aborted


@pytest.mark.parametrize("name", ["all", "ALL", "Local_Quorum", "ONE", "LOCAL_SERIAL"])
def test_consistency_levels_go_by_their_names(name: str) -> None:
    from cassandra import ConsistencyLevel

    chosen = SnapshotSettings(consistency=name).consistency
    assert consistency_level(chosen) == getattr(ConsistencyLevel, name.upper())


def test_a_consistency_level_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[snapshot]\nconsistency = "MOST"\n')
    with pytest.raises(InvalidSetting, match=r"snapshot\.consistency: no such consistency level; known: ALL, QUORUM"):
        load(str(file), {})


def test_troubles_are_told_apart() -> None:
    from cassandra import (
        ConsistencyLevel,
        InvalidRequest,
        OperationTimedOut,
        ReadFailure,
        ReadTimeout,
        Unauthorized,
        Unavailable,
    )
    from cassandra.cluster import NoHostAvailable

    level = ConsistencyLevel.ALL
    assert trouble(InvalidRequest("unconfigured table")) is Trouble.SCHEMA
    assert trouble(ReadTimeout("slow", consistency=level, required_responses=1, received_responses=0)) is Trouble.SLOW
    assert trouble(ReadFailure("tombstones", consistency=level)) is Trouble.SLOW
    assert trouble(OperationTimedOut()) is Trouble.SLOW
    assert trouble(Unavailable("few", consistency=level, required_replicas=3, alive_replicas=2)) is Trouble.WAIT
    assert trouble(Unauthorized("no")) is Trouble.WAIT
    assert trouble(NoHostAvailable("none", {"a": ConnectionError()})) is Trouble.CONNECTION
    assert trouble(NoHostAvailable("none", {"a": OperationTimedOut()})) is Trouble.SLOW
    assert trouble(NoHostAvailable("none", {})) is Trouble.CONNECTION
