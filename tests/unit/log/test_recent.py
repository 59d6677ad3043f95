"""Recent: counting from the log's end gives the same as reading everything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.log import recent
from penstock.log.names import INDEX
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model.position import START, Position
from tests.numbered import SCHEMA, SMALL_FILES, batch, fill, numbers

COUNT = 40


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """Forty changes in batches of one and of three, in many files."""
    path = str(tmp_path / "shop.orders")
    fill(path, 10)
    with TableLog.open(path, SCHEMA, settings=SMALL_FILES) as log:
        for first in range(10, COUNT, 3):
            log.append(batch(first, 3, pad=700))
    return path


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 29, 30, 31, 39, 40, 41, 1000])
def test_last_changes_are_the_last(directory: str, count: int) -> None:
    with LogReader(directory) as reader:
        after = recent.last_changes(reader, count)
        assert numbers(reader.read(after)) == list(range(COUNT))[max(0, COUNT - count) :]


def test_changes_after_counts_what_would_be_read(directory: str) -> None:
    with LogReader(directory) as reader:
        assert recent.changes_after(reader, START) == COUNT
        seen = 0
        for one in reader.read():
            for ordinal in range(one.count):
                seen += 1
                assert recent.changes_after(reader, Position(one.file, one.offset, ordinal)) == COUNT - seen


def test_counting_works_without_an_index(directory: str) -> None:
    for name in os.listdir(directory):
        if name.endswith(INDEX):
            os.unlink(f"{directory}/{name}")
    with LogReader(directory) as reader:
        after = recent.last_changes(reader, 11)
        assert numbers(reader.read(after)) == list(range(COUNT - 11, COUNT))
        assert recent.changes_after(reader, after) == 11


def test_counting_starts_with_the_first_file_that_is_left(directory: str) -> None:
    with LogReader(directory) as reader:
        left = COUNT - reader.heading(2).rows_before
        os.unlink(reader.path(1))
        assert recent.changes_after(reader, reader.first()) == left
        assert len(numbers(reader.read(recent.last_changes(reader, 1000)))) == left


def test_empty_log_has_no_changes(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.orders")
    fill(path, 0)
    with LogReader(path) as reader:
        assert recent.last_changes(reader, 10) == START
        assert recent.changes_after(reader, START) == 0
