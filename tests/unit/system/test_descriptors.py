"""Descriptors: the limit is raised, and a lack of them is waited out."""

from __future__ import annotations

import errno
import os
import queue
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import Exhausted, TooManyFiles
from penstock.log.catalog import Catalog
from penstock.log.follow import Follower
from penstock.log.refusal import exhausted, refused
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.serve.log_blocks import LogBlocks
from penstock.system.descriptors import patiently, scarce
from penstock.system.files import OsFile, OsFiles
from penstock.system.watch import FileWatch
from tests.numbered import SCHEMA, SMALL_FILES, batch, fill, numbers


class Scarce:
    """`os.open` of a process that has no descriptor for the first few calls."""

    def __init__(self, times: int, code: int = errno.EMFILE) -> None:
        self.times = times
        self._code = code
        self._open = os.open

    def __call__(self, path: str, flags: int, mode: int = 0o777) -> int:
        if self.times > 0:
            self.times -= 1
            raise OSError(self._code, os.strerror(self._code), path)
        return self._open(path, flags, mode)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_opening_a_file_waits_for_a_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr("penstock.system.files.os.open", Scarce(3, code))
    pauses: list[float] = []
    OsFiles(pauses.append).open(str(tmp_path / "file"), write=True, create=True).close()
    OsFiles(pauses.append).sync_directory(str(tmp_path))
    assert len(pauses) == 3


def test_waiting_ends_and_the_reason_is_one_that_passes() -> None:
    def never() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    pauses: list[float] = []
    with pytest.raises(OSError, match="Too many open files") as refusal:
        patiently(never, pauses.append)
    assert len(pauses) > 10
    assert isinstance(refused(refusal.value, "opening", "x"), TooManyFiles)
    assert isinstance(exhausted(refusal.value), Exhausted)


def test_other_refusals_are_not_waited_for(tmp_path: Path) -> None:
    pauses: list[float] = []
    with pytest.raises(FileNotFoundError):
        OsFiles(pauses.append).open(str(tmp_path / "missing"))
    assert not pauses


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    for create in (False, True):
        with pytest.raises(OSError, match="symbolic links") as refusal:
            OsFiles().open(str(tmp_path / "link"), write=create, create=create)
    assert "symbolic link" in str(refused(refusal.value, "opening", "link"))


def test_every_command_begins_with_as_many_descriptors_as_it_may_have() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    program = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))\n"
        "from penstock.cli.main import main\n"
        "main(['version'])\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(ended.stdout.split()[-1]) > 256


class Lack:
    """A process that really has no descriptor left, until it is told otherwise."""

    def __init__(self) -> None:
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.pauses = 0

    def begin(self) -> None:
        # What is open stays so; the next number that the system would give out is beyond the limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, self.limits[1]))

    def end(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)

    def pause(self, _: float) -> None:
        """Waiting helps the third time."""
        self.pauses += 1
        if self.pauses == 3:
            self.end()


@pytest.fixture
def lack() -> Iterator[Lack]:
    made = Lack()
    yield made
    made.end()


def test_the_lack_is_a_real_one(lack: Lack) -> None:
    assert not scarce()
    lack.begin()
    with pytest.raises(OSError, match="Too many open files"):
        os.open("/", os.O_RDONLY)
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        sqlite3.connect("/nonexistent").execute("SELECT 1")
    assert scarce()
    lack.end()
    assert not scarce()


def test_the_catalog_waits_for_descriptors(tmp_path: Path, lack: Lack) -> None:
    lack.begin()
    with Catalog.open(str(tmp_path), pause=lack.pause) as catalog:
        assert lack.pauses == 3
        catalog.add_table(SCHEMA, cdc=True)
    # What SQLite opens later than its main file it waits for as well: here the main file is there already.
    lack.pauses = 0
    lack.begin()
    with Catalog.open(str(tmp_path), pause=lack.pause) as catalog:
        assert catalog.table(SCHEMA.table) is not None
    assert lack.pauses == 3


def test_a_catalog_that_waited_in_vain_says_why_and_one_that_is_no_catalog_is_not_waited_for(
    tmp_path: Path, lack: Lack
) -> None:
    pauses: list[float] = []
    Catalog.open(str(tmp_path)).close()
    lack.begin()
    with pytest.raises(TooManyFiles):
        Catalog.open(str(tmp_path), pause=pauses.append)
    assert len(pauses) > 10
    lack.end()
    pauses.clear()
    (tmp_path / "other" / "catalog.sqlite").mkdir(parents=True)
    with pytest.raises(Exception, match="catalog") as refusal:
        Catalog.open(str(tmp_path / "other"), pause=pauses.append)
    assert not isinstance(refusal.value, Exhausted)
    assert not pauses


def test_an_error_that_sqlite_caused_for_want_of_descriptors_is_one_that_passes(lack: Lack) -> None:
    lack.begin()
    with pytest.raises(sqlite3.OperationalError) as raised:
        sqlite3.connect("/nonexistent").execute("SELECT 1")
    outer = RuntimeError("a library's own words")
    outer.__cause__ = raised.value
    assert isinstance(exhausted(outer), TooManyFiles)
    lack.end()
    assert exhausted(outer) is None


def test_a_watch_waits_for_descriptors_and_leaves_none_open(tmp_path: Path, lack: Lack) -> None:
    (tmp_path / "file").touch()
    before = len(os.listdir("/proc/self/fd"))
    lack.begin()
    watch = FileWatch(str(tmp_path / "file"), lack.pause)
    assert lack.pauses == 3
    watch.close()
    with pytest.raises(FileNotFoundError):
        FileWatch(str(tmp_path / "missing"))
    assert len(os.listdir("/proc/self/fd")) == before


class ScarceFiles(OsFiles):
    """Files of a process that has no descriptor while `lack` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.lack = False
        self.refused = threading.Event()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        if self.lack:
            self.refused.set()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, write=write, create=create)


def test_a_follower_goes_on_when_there_are_descriptors_again(tmp_path: Path) -> None:
    """A new file of the log has to be opened while there is none; nothing is missed, and nothing comes twice."""
    directory, files = str(tmp_path / "shop.orders"), ScarceFiles()
    fill(directory, 4)
    came: queue.Queue[ChangeBatch] = queue.Queue()
    with (
        TableLog.open(directory, SCHEMA, settings=SMALL_FILES) as writer,
        Follower(directory, files=files) as follower,
    ):
        follower.listen(came.put, lambda error: pytest.fail(str(error)))
        files.lack = True
        for number in range(4, 12):
            writer.append(batch(number, pad=1500))
        assert files.refused.wait(60)
        files.lack = False
        writer.append(batch(12))
        found: list[int] = []
        while 12 not in found:
            found += numbers([came.get(timeout=60)])
    assert found == list(range(4, 13))
    assert follower.failure is None


def test_a_reader_elsewhere_is_told_to_ask_again() -> None:
    def refused_for_now(_: Request) -> Response:
        raise TooManyFiles("too many open files while opening a file of the log")

    answer = LogBlocks._answering(refused_for_now)(Request({"type": "http"}))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
