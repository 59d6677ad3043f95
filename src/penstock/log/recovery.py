"""Recovery: what a writer does with the last file before it goes on.

A log that was closed in good order is continued as it stands. Otherwise the tail that the index does not vouch for is
read block by block: a torn end is cut, and what is whole is written again and synced, because after a failed sync the
page cache can show bytes that the disk does not have. A broken block with sound ones behind it, or one that readers
were already told of, is not a torn end but damage: it is reported and left as it is. Only the tail of the last file is
read, so the time does not grow with the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import structlog

from penstock.errors import CorruptLog
from penstock.formats import avro
from penstock.log import segment
from penstock.log.active import ActiveSegment, Figures
from penstock.log.block import Block, TornBlock
from penstock.log.index import Entry, Index, Mark, Marks, domain_digest
from penstock.log.lock import Closing
from penstock.log.names import DATA, INDEX, TRANSACTIONS, file_name
from penstock.log.watermark import Watermark
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.system.files import Files

_COPY_BYTES = 1 << 20

log = structlog.get_logger()


@dataclass(slots=True)
class Recovered:
    """The last file, ready to be continued when `clean`, else closed for good: the writer begins the next one."""

    segment: ActiveSegment
    clean: bool
    # The greatest epoch seen in it.
    epoch: int
    # Where it ends for readers; a damaged file is left as it is, damage included.
    end: int
    damage: CorruptLog | None = None


class _Tail:
    """The work on one last file."""

    def __init__(self, files: Files, directory: str, table: TableId, number: int) -> None:
        self._files = files
        self._directory = directory
        self.path = self._path_of(table, number, DATA)
        self.file = files.open(self.path, write=True)
        try:
            self.heading = segment.read_heading(self.file, self.path)
        except BaseException:
            self.file.close()
            raise
        self.size = self.file.size()
        index_file = files.open(self._path_of(table, number, INDEX), write=True, create=True)
        self.index = Index(index_file, number, self.heading.sync)
        heading = self.heading
        self.figures = Figures(heading.rows_before, heading.last, heading.when_max, dict(heading.sequences))
        self.epoch = 0
        self.end = self.heading.size
        self.entries = 0
        self.marks = 0

    def _path_of(self, table: TableId, number: int, kind: str) -> str:
        return f"{self._directory}/{file_name(table, number, kind)}"

    def load_index(self) -> None:
        """Take over what the index vouches for."""
        if not self.index.is_sound():
            self.index.reset()
        settled = self.size - self.heading.unsynced_max
        self.entries = self.index.sound_count(settled)
        first = self.index.read(0) if self.entries else None
        if first is not None and first.offset != self.heading.size:
            self.entries = 0
        if self.entries:
            self._take(self.index.read(self.entries - 1))
        self._load_marks()

    def _take(self, entry: Entry | None) -> None:
        assert entry is not None, "sound_count counts sound entries only"
        self.end = entry.end
        self.epoch = max(self.epoch, entry.epoch)
        self.figures.rows = entry.rows_before + entry.count
        self.figures.when_max = max(self.figures.when_max, entry.when_max)
        self.figures.last = Position(self.heading.number, entry.offset, entry.count - 1)

    def _load_marks(self) -> None:
        path = self._path_of(self.heading.schema.table, self.heading.number, TRANSACTIONS)
        if not self._files.exists(path):
            return
        marks = Marks(self._files.open(path, write=True), self.heading.sync)
        try:
            for mark in marks.read():
                if mark.end > self.end:
                    break
                self._rise(mark.domain, mark.sequence)
                self.marks += 1
        finally:
            marks.close()

    def _rise(self, domain: int, sequence: int) -> bool:
        if sequence <= self.figures.sequences.get(domain, -1):
            return False
        self.figures.sequences[domain] = sequence
        return True

    def rebuild(self, blocks: Iterator[Block]) -> str | None:
        """Index the whole blocks behind the index. What stopped it, when it was not the end of the file."""
        begin, entries, risen = self.end, [], {}
        stopped = None
        try:
            for block in blocks:
                try:
                    when, transactions = avro.scan(self.heading.schema, block.rows, block.count)
                except CorruptLog as error:
                    # The seal covers the data, not the count before it: a count that does not fit is torn as well.
                    raise TornBlock(error.message) from error
                self.figures.note_time(when)
                for mark in transactions:
                    domain = domain_digest(mark.domain)
                    if self._rise(domain, mark.sequence):
                        risen[domain] = mark.sequence
                entry = Entry(
                    block.offset,
                    block.end - block.offset,
                    block.count,
                    self.figures.rows,
                    self.figures.when_max,
                    block.epoch,
                    block.crc,
                )
                entries.append(entry)
                self._take(entry)
        except TornBlock as torn:
            stopped = torn.reason
        self.index.write(self.entries, entries)
        self.entries += len(entries)
        self.index.cut(self.entries)
        self._write_marks([Mark(domain, sequence, begin, self.end) for domain, sequence in risen.items()])
        return stopped

    def _write_marks(self, marks: list[Mark]) -> None:
        path = self._path_of(self.heading.schema.table, self.heading.number, TRANSACTIONS)
        if not marks and not self._files.exists(path):
            return
        file = Marks(self._files.open(path, write=True, create=True), self.heading.sync)
        try:
            file.write(self.marks, marks)
            self.marks += len(marks)
            file.cut(self.marks)
            file.sync()
        finally:
            file.close()

    def settle(self, start: int) -> None:
        """Cut the file at its end, and make what lies behind `start` durable by writing it again."""
        if self.size > self.end:
            self.file.truncate(self.end)
        for at in range(start, self.end, _COPY_BYTES):
            self.file.pwrite(self.file.pread(min(_COPY_BYTES, self.end - at), at), at)
        self.file.sync()
        self.index.sync()
        self._files.sync_directory(self._directory)

    def activate(self) -> ActiveSegment:
        return ActiveSegment(
            self._files,
            self._directory,
            self.heading,
            self.file,
            self.index,
            self.figures,
            end=self.end,
            entries=self.entries,
            marks=self.marks,
        )

    def close(self) -> None:
        self.file.close()
        self.index.close()


def recover(
    files: Files, directory: str, table: TableId, number: int, closing: Closing, watermark: Watermark | None
) -> Recovered:
    """Bring the last file, number `number`, into order."""
    tail = _Tail(files, directory, table, number)
    try:
        tail.load_index()
        clean = (closing.file, closing.end) == (number, tail.size) and tail.end == tail.size
        # An empty file may have been made anew since the watermark was written, so only one with changes counts.
        promised = watermark.end if watermark is not None and watermark.last.file == number else 0
        damage = None if clean else _mend(tail, promised)
        end = tail.end if damage is None else max(tail.size, tail.end, promised)
        return Recovered(tail.activate(), clean, tail.epoch, end, damage)
    except BaseException:
        tail.close()
        raise


def _mend(tail: _Tail, promised: int) -> CorruptLog | None:
    """Read the tail and cut a torn end, but nothing before `promised`. What was damaged, when it was more than that."""
    start = tail.end
    if start > tail.size:
        return CorruptLog("the file is shorter than its index says", file=tail.path, offset=tail.size)
    torn = tail.rebuild(segment.blocks(tail.file, tail.heading, start, tail.size))
    if torn is not None:
        behind = segment.next_block(tail.file, tail.heading, tail.end, tail.size)
        if behind is not None or promised > tail.end:
            return CorruptLog(f"damage inside the log: {torn}", file=tail.path, offset=tail.end)
        log.warning("torn tail cut", file=tail.path, offset=tail.end, bytes=tail.size - tail.end, reason=torn)
    elif promised > tail.size:
        return CorruptLog("the file is shorter than it was", file=tail.path, offset=tail.size)
    tail.settle(start)
    return None
