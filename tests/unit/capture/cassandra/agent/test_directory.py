"""What is in cdc_raw, whatever is in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.capture.cassandra.agent.directory import SegmentDirectory
from penstock.capture.cassandra.segments.segment import SegmentIndex
from penstock.errors import StorageError


def test_segments_come_by_id_whatever_their_format(tmp_path: Path) -> None:
    for name in ("CommitLog-7-30.log", "CommitLog-8-4.log", "CommitLog-6-100.log", "CommitLog-7-100.log"):
        (tmp_path / name).write_bytes(b"12345")
    found = SegmentDirectory(str(tmp_path)).scan()
    assert [file.id for file in found.segments] == [4, 30, 100]
    assert found.bytes == 20


def test_what_is_no_segment_is_counted_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "CommitLog-7-1.log").write_bytes(b"")
    for name in ("CommitLog-7-1.log.bak", "notes.txt", "CommitLog-x-1.log", "commitlog-7-2.log"):
        (tmp_path / name).write_text("?")
    (tmp_path / "CommitLog-7-9.log").mkdir()
    os.mkfifo(tmp_path / "CommitLog-7-8.log")
    (tmp_path / "CommitLog-7-7.log").symlink_to(tmp_path / "notes.txt")
    found = SegmentDirectory(str(tmp_path)).scan()
    assert [file.id for file in found.segments] == [1]
    assert found.foreign == 4


def test_index_files_belong_to_their_segments_and_orphans_are_told(tmp_path: Path) -> None:
    (tmp_path / "CommitLog-7-1.log").write_bytes(b"")
    (tmp_path / "CommitLog-7-1_cdc.idx").write_text("20")
    (tmp_path / "CommitLog-7-5_cdc.idx").write_text("7\nCOMPLETED")
    directory = SegmentDirectory(str(tmp_path))
    found = directory.scan()
    (file,) = found.segments
    assert directory.index(file) == SegmentIndex(20, completed=False)
    assert found.orphans == ((5, str(tmp_path / "CommitLog-7-5_cdc.idx")),)


def test_half_written_index_is_no_news_and_what_was_known_stays(tmp_path: Path) -> None:
    (tmp_path / "CommitLog-7-1.log").write_bytes(b"")
    index = tmp_path / "CommitLog-7-1_cdc.idx"
    index.write_text("")
    directory = SegmentDirectory(str(tmp_path))
    (file,) = directory.scan().segments
    assert directory.index(file) is None
    for text, offset, completed in (
        ("500", 500, False),
        ("", 500, False),
        ("5", 500, False),
        ("600\nCOMPLE", 600, False),
        ("600\nCOMPLETED", 600, True),
        ("", 600, True),
    ):
        index.write_text(text)
        assert directory.index(file) == SegmentIndex(offset, completed), text
    index.unlink()
    assert directory.index(file) == SegmentIndex(600, completed=True)


def test_segment_in_both_directories_is_taken_from_cdc_raw(tmp_path: Path) -> None:
    raw, commitlog = tmp_path / "cdc_raw", tmp_path / "commitlog"
    raw.mkdir()
    commitlog.mkdir()
    (commitlog / "CommitLog-7-1.log").write_bytes(b"x")
    os.link(commitlog / "CommitLog-7-1.log", raw / "CommitLog-7-1.log")
    (commitlog / "CommitLog-7-2.log").write_bytes(b"y")
    found = SegmentDirectory(str(raw), str(commitlog)).scan()
    assert [(file.id, file.in_cdc_raw) for file in found.segments] == [(1, True), (2, False)]
    assert found.bytes == 1
    assert [file.id for file in SegmentDirectory(str(raw)).scan().segments] == [1]


def test_directory_that_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file or directory while looking for segments"):
        SegmentDirectory(str(tmp_path / "none")).scan()
