"""Which segments a list of paths means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.capture.cassandra.segments.segment_files import find, is_unused
from penstock.errors import InvalidInput, StorageError


def made(directory: Path, *names: str) -> list[str]:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_bytes(b"x")
    return [str(directory / name) for name in names]


def test_a_directory_means_its_segments_by_id(tmp_path: Path) -> None:
    made(
        tmp_path, "CommitLog-7-100.log", "CommitLog-7-99.log", "CommitLog-8-1000.log", "CommitLog-7-99_cdc.idx", "x.log"
    )
    names = [os.path.basename(path) for path in find([str(tmp_path)])]
    assert names == ["CommitLog-7-99.log", "CommitLog-7-100.log", "CommitLog-8-1000.log"]


def test_files_are_taken_as_they_are_given(tmp_path: Path) -> None:
    files = made(tmp_path, "CommitLog-7-2.log", "other-name", "CommitLog-7-1.log")
    assert find(files) == files


def test_a_segment_that_is_linked_twice_is_taken_once(tmp_path: Path) -> None:
    (one,) = made(tmp_path / "commitlog", "CommitLog-7-2.log")
    (tmp_path / "cdc_raw").mkdir()
    os.link(one, tmp_path / "cdc_raw" / "CommitLog-7-2.log")
    assert find([str(tmp_path / "cdc_raw"), str(tmp_path / "commitlog"), one]) == [
        str(tmp_path / "cdc_raw" / "CommitLog-7-2.log")
    ]


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no commit-log segment here"):
        find([str(tmp_path)])
    with pytest.raises(StorageError, match="no such file or directory"):
        find([str(tmp_path / "nowhere")])


def test_a_segment_is_unused_until_it_has_a_header(tmp_path: Path) -> None:
    for data, unused in ((b"", True), (bytes(1000), True), (b"\0\0\0\7" + bytes(100), False)):
        (tmp_path / "segment").write_bytes(data)
        assert is_unused(str(tmp_path / "segment")) is unused
    with pytest.raises(StorageError, match="cannot read the segment"):
        is_unused(str(tmp_path / "nowhere"))
