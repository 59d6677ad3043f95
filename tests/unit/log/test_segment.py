"""Blocks of a segment, read piece by piece."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.formats import avro
from penstock.log import segment
from penstock.log.block import Block, TornBlock
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.system.files import OsFile
from tests import sample

# Changes in each block, so that some are far smaller than a piece and others far larger.
COUNTS = (1, 2, 40, 1, 1, 90, 3, 3, 3, 1)


class Noted(OsFile):
    """A file that notes what was fetched from it."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.fetched: list[tuple[int, int, bool]] = []

    def fetch(self, into: memoryview, offset: int, *, keep: bool) -> int:
        got = super().fetch(into, offset, keep=keep)
        self.fetched.append((offset, offset + got, keep))
        return got


@pytest.fixture
def reader(tmp_path: Path) -> LogReader:
    path = str(tmp_path / "log")
    with TableLog.open(path, sample.SCHEMA) as log:
        for number, count in enumerate(COUNTS):
            changes = [sample.change(1000 * number + n, "n" * 300) for n in range(count)]
            log.append(avro.encode(sample.SCHEMA, changes))
    return LogReader(path)


@pytest.mark.parametrize("piece", [1, 64, 1000, 4096, 1 << 20])
def test_blocks_are_whole_however_small_the_pieces_are_and_nothing_is_read_twice(
    reader: LogReader, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "_READ_BYTES", piece)
    heading, limit = reader.heading(1), reader.watermark().end
    file = Noted(os.open(reader.path(1), os.O_RDONLY))
    found = list(segment.blocks(file, heading, heading.size, limit, keep=False))
    assert [block.count for block in found] == list(COUNTS)
    assert [block.offset for block in found] == [heading.size, *(block.end for block in found[:-1])]
    assert found[-1].end == limit
    assert {keep for _, _, keep in file.fetched} == {False}
    begins = [begin for begin, _, _ in file.fetched]
    assert begins == [heading.size, *(end for _, end, _ in file.fetched[:-1])]
    assert file.fetched[-1][1] == limit
    file.close()
    reader.close()


@pytest.mark.parametrize("piece", [64, 1 << 20])
def test_a_file_that_ends_inside_a_block_gives_those_before_it(
    reader: LogReader, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "_READ_BYTES", piece)
    heading, limit = reader.heading(1), reader.watermark().end
    os.truncate(reader.path(1), limit - 5)
    file = reader.open(1)
    found: list[Block] = []
    with pytest.raises(TornBlock, match="ends inside a block"):
        found.extend(segment.blocks(file, heading, heading.size, limit))
    with pytest.raises(TornBlock, match="ends inside a block"):
        list(segment.blocks(file, heading, heading.size, limit - 5))
    assert [block.count for block in found] == list(COUNTS[:-1])
    file.close()
    reader.close()
