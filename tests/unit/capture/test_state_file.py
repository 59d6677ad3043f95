"""The agent's state survives damage to one of its files, and never begins again in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.capture.state_file import StateFile
from penstock.errors import CorruptCheckpoint, DiskFull, UnsupportedFormat
from penstock.log import sealed
from penstock.system.files import OsFiles
from testkit.crash_files import CrashFiles


def state(directory: Path) -> StateFile:
    return StateFile(OsFiles(), str(directory), "place")


def test_last_saved_state_is_loaded(tmp_path: Path) -> None:
    first = state(tmp_path)
    assert first.load() is None
    for number in range(5):
        first.save({"at": number})
        assert state(tmp_path).load() == {"at": number}


def test_damaged_file_falls_back_on_the_one_before(tmp_path: Path) -> None:
    first = state(tmp_path)
    for number in range(4):
        first.save({"at": number})
    newest = tmp_path / "place.0.json"
    newest.write_text(newest.read_text()[:-9])
    second = state(tmp_path)
    assert second.load() == {"at": 2}
    second.save({"at": 10})
    assert state(tmp_path).load() == {"at": 10}


def test_damage_to_all_files_is_an_error(tmp_path: Path) -> None:
    first = state(tmp_path)
    for number in range(2):
        first.save({"at": number})
    for path in tmp_path.iterdir():
        path.write_text("")
    with pytest.raises(CorruptCheckpoint, match="the agent's state is damaged"):
        state(tmp_path).load()


def test_state_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    sealed.write(OsFiles(), str(tmp_path), "place.1.json", {"format": 9, "number": 1})
    with pytest.raises(UnsupportedFormat, match="agent state format 9"):
        state(tmp_path).load()


def test_save_that_finds_no_room_can_be_repeated() -> None:
    files = CrashFiles()
    files.make_directory("s")
    kept = StateFile(files, "s", "place")
    kept.save({"at": 1})
    files.disk.capacity = files.disk.used
    with pytest.raises(DiskFull):
        kept.save({"at": 2})
    assert StateFile(files, "s", "place").load() == {"at": 1}
    files.disk.capacity = None
    kept.save({"at": 2})
    assert StateFile(files, "s", "place").load() == {"at": 2}
