"""The umask of processes of ours: closed from the start, and opened to the group only where that is set."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline.session import _settings
from penstock.system import umask
from penstock.system.files import OsFiles
from tests.closed import open_to


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def said(program: str, **environment: str) -> list[str]:
    """What a process prints that was started with the usual umask."""
    words = [sys.executable, "-c", f"import os\nfrom penstock.system import umask\n{program}"]
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, umask=0o022, env={**os.environ, **environment}
    )
    return done.stdout.split()


NOW = "print(f'{os.umask(0o777):03o}')"


def test_a_command_begins_closed_whatever_it_was_started_with() -> None:
    program = "import sys; from penstock.__main__ import main; sys.argv = ['penstock', 'version']; main()\n"
    assert said(program + NOW)[-1] == "077"


def test_workers_elsewhere_do_as_their_driver_does() -> None:
    program = "from penstock.pipeline.worker_process import task_begins; task_begins()\n"
    assert said(program + NOW, PENSTOCK_UMASK="077") == ["077"]
    assert said(program + NOW, PENSTOCK_UMASK="027") == ["027"]


def test_a_process_that_is_not_ours_keeps_its_own() -> None:
    program = "umask.open_to_group(); umask.adopt(); print(umask.chosen())\n"
    assert said(program + NOW) == ["None", "022"]


def test_the_group_is_let_in_only_when_that_is_said() -> None:
    assert said("umask.close(); print(umask.chosen()); umask.open_to_group(); print(umask.chosen())\n" + NOW) == [
        "077",
        "027",
        "027",
    ]


def test_spark_is_told_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(umask, "_chosen", 0o077)
    settings = _settings("local[2]", {}, None, submitted=False)
    assert settings["spark.hadoop.fs.permissions.umask-mode"] == "077"
    assert settings["spark.executorEnv.PENSTOCK_UMASK"] == "077"
    monkeypatch.setattr(umask, "_chosen", None)
    assert not [name for name in _settings("local[2]", {}, None, submitted=False) if "umask" in name.lower()]


def test_files_are_their_writers_alone_unless_the_group_may_read(tmp_path: Path) -> None:
    for group_read, file_mode, directory_mode in ((False, 0o600, 0o700), (True, 0o640, 0o750)):
        files, directory = OsFiles(group_read=group_read), tmp_path / str(group_read)
        files.make_directory(str(directory))
        files.open(str(directory / "file"), write=True, create=True).close()
        assert (mode(directory), mode(directory / "file")) == (directory_mode, file_mode)
    assert len(open_to(0o077, tmp_path / "True")) == 2
    assert open_to(0o007, tmp_path / "True") == open_to(0o077, tmp_path / "False") == {}
