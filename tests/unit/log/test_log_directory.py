"""A node's directory of logs: what is in it, and that looking again costs nothing while nothing comes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from penstock.errors import StorageError
from penstock.log.log_directory import LogDirectory
from penstock.log.table_log import TableLog
from penstock.log.table_logs import LogSpec, Storage, TableLogs
from penstock.model.schema import TableId
from penstock.system.files import OsFiles
from tests.many_logs import batch, schema_of, write


class CountingFiles(OsFiles):
    """Counts how often a directory is listed."""

    def __init__(self) -> None:
        self.lists = 0

    def list(self, path: str) -> list[str]:
        self.lists += 1
        return super().list(path)


def settle(root: Path) -> None:
    """As if the directory had been left alone for long."""
    os.utime(root, ns=(10**18, 10**18))


def test_logs_are_found_with_what_their_headers_say(tmp_path: Path) -> None:
    schema = schema_of("orders")
    with TableLogs(
        Storage(str(tmp_path), node="n1", data_centre="dc1"), schema, [LogSpec(), LogSpec("eu only")]
    ) as logs:
        logs.append(batch(schema, 0, 3))
    (tmp_path / "catalog.sqlite").write_bytes(b"")
    (tmp_path / "state").mkdir()
    with LogDirectory(str(tmp_path)) as directory:
        found = sorted(directory.look().values(), key=lambda entry: entry.name)
        assert [(entry.table, entry.name, entry.parked) for entry in found] == [
            (TableId("shop", "orders"), "", False),
            (TableId("shop", "orders"), "eu%20only", False),
        ]
        assert {(entry.node, entry.data_centre) for entry in found} == {("n1", "dc1")}
        assert directory.watermark(found[0].log_id).rows == 3


def test_a_log_of_parked_changes_is_told_apart(tmp_path: Path) -> None:
    schema = schema_of("orders")
    Storage(str(tmp_path)).open(schema, "", parked=True).close()
    with LogDirectory(str(tmp_path)) as directory:
        [entry] = directory.look().values()
    assert (entry.name, entry.parked) == ("", True)


def test_one_log_alone_is_a_directory_of_one(tmp_path: Path) -> None:
    path = write(tmp_path, "orders", 0, 1)
    with LogDirectory(path) as directory:
        assert [entry.directory for entry in directory.look().values()] == [path]


def test_a_settled_directory_is_listed_once_and_again_when_a_log_comes(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, 1)
    files = CountingFiles()
    with LogDirectory(str(tmp_path), files=files) as directory:
        settle(tmp_path)
        directory.look()
        before = files.lists
        for _ in range(3):
            assert len(directory.look()) == 1
        assert files.lists == before
        write(tmp_path, "b", 0, 1)
        assert len(directory.look()) == 2


def test_a_directory_that_has_just_changed_is_listed_again(tmp_path: Path) -> None:
    """Two changes may get the same time from a coarse clock."""
    write(tmp_path, "a", 0, 1)
    with LogDirectory(str(tmp_path), changed=lambda _: 2_000_000_000_000_000) as directory:
        assert len(directory.look()) == 1
        write(tmp_path, "b", 0, 1)
        assert len(directory.look()) == 2


def test_a_log_that_is_just_being_made_is_seen_once_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "shop.orders").mkdir()
    with LogDirectory(str(tmp_path)) as directory:
        settle(tmp_path)
        assert not directory.look()
        TableLog.open(str(tmp_path / "shop.orders"), schema_of("orders")).close()
        settle(tmp_path)
        assert len(directory.look()) == 1


def test_a_damaged_log_does_not_hide_the_others(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "bad", 0, 1))
    write(tmp_path, "good", 0, 1)
    (path / "log.json").write_text("{}")
    with LogDirectory(str(tmp_path)) as directory, capture_logs() as said:
        assert [entry.table.table for entry in directory.look().values()] == ["good"]
    assert [entry["event"] for entry in said] == ["log not readable"]


def test_a_log_that_goes_or_is_made_anew_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, "orders", 0, 3)
    with LogDirectory(str(tmp_path)) as directory:
        [first] = directory.look()
        shutil.rmtree(path)
        assert not directory.look()
        write(tmp_path, "orders", 0, 1)
        [second] = directory.look()
        assert first != second
        assert directory.watermark(second).rows == 1


def test_a_root_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file or directory while listing the logs"):
        LogDirectory(str(tmp_path / "nothing")).look()
