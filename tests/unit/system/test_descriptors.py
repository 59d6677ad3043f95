"""Descriptors: the limit is raised, and a lack of them is waited out."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import Exhausted, TooManyFiles
from penstock.log.refusal import exhausted, refused
from penstock.system.descriptors import patiently
from penstock.system.files import OsFiles


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
