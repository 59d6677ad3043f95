"""Verify: reads a whole log and says everything that is wrong with it, each with its place.

It checks each file's header and its seam with the file before, each block's checksum and rows, each index entry against
its block, and each checkpoint against the log. It changes nothing and can run beside the writer: it goes as far as the
watermark said when it began. Damage does not stop it; it looks for the next whole block and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.errors import CorruptLog, PenstockError
from penstock.formats import avro
from penstock.log import checkpoint, erased, segment
from penstock.log.block import Block, TornBlock
from penstock.log.index import Entry, Index
from penstock.log.names import CHECKPOINT, INDEX
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.segment import Heading
from penstock.log.watermark import Watermark
from penstock.system.files import File, Files, OsFiles

# Told now and then how many bytes were checked since the last time.
Progress = Callable[[int], None]
_ENTRIES_AT_ONCE = 4096
_MISSING_MAX = 1000


@dataclass(slots=True)
class Verdict:
    """What one log was found to be."""

    directory: str
    files: int = 0
    blocks: int = 0
    changes: int = 0
    # How many of them were erased.
    erased: int = 0
    bytes: int = 0
    entries: int = 0
    checkpoints: int = 0
    damage: list[PenstockError] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.damage


def verify(reader: LogReader, *, files: Files | None = None, progress: Progress | None = None) -> Verdict:
    """Check everything up to the durable end as it is now."""
    return _Verification(reader, files or OsFiles(), progress or (lambda _: None)).run()


class _Verification:
    """One run over one log. `verdict` collects what is found."""

    def __init__(self, reader: LogReader, files: Files, progress: Progress) -> None:
        self._reader = reader
        self._files = files
        self._progress = progress
        self.verdict = Verdict(reader.directory)

    def run(self) -> Verdict:
        mark = self._reader.watermark()
        numbers = [number for number in self._reader.numbers() if number <= mark.file]
        previous: int | None = None
        for number in numbers:
            if previous is not None and number != previous + 1:
                self._missing(range(previous + 1, number))
            self._check_file(number, mark, numbers)
            previous = number
        if mark.file and (not numbers or numbers[-1] != mark.file):
            self._missing(range((numbers[-1] if numbers else 0) + 1, mark.file + 1))
        self._check_checkpoints()
        return self.verdict

    def _missing(self, numbers: range) -> None:
        """Name the files that are not there, and the rest of very many as one: a number in a file may be any."""
        for number in numbers[:_MISSING_MAX]:
            self.verdict.damage.append(CorruptLog("the file is missing", file=self._reader.path(number)))
        rest = len(numbers) - _MISSING_MAX
        if rest > 0:
            last = self._reader.path(numbers[-1])
            self.verdict.damage.append(CorruptLog(f"{rest} more files up to this one are missing", file=last))

    def _check_file(self, number: int, mark: Watermark, numbers: list[int]) -> None:
        self.verdict.files += 1
        path = self._reader.path(number)
        try:
            file = self._files.open(path)
        except OSError as error:
            self.verdict.damage.append(refused(error, "opening a file of the log", path))
            return
        try:
            heading = self._reader.heading(number)
            try:
                limit = self._reader.file_end(number, mark, numbers)
            except PenstockError:
                # The next file is missing or unreadable, which is reported as its own damage.
                limit = file.size()
            self._check_content(file, path, heading, limit, mark)
        except PenstockError as error:
            self.verdict.damage.append(error)
        except OSError as error:
            self.verdict.damage.append(refused(error, "reading a file of the log", path))
        finally:
            file.close()

    def _check_content(self, file: File, path: str, heading: Heading, limit: int, mark: Watermark) -> None:
        size = file.size()
        if size < limit:
            self.verdict.damage.append(
                CorruptLog(f"the file ends before its durable end at {limit}", file=path, offset=size)
            )
            limit = size
        self._progress(heading.size)
        self.verdict.bytes += heading.size
        entries = self._entries(heading)
        rows = heading.rows_before
        whole = True
        entry = next(entries, None)
        for block in self._blocks(file, path, heading, limit):
            self._check_rows(block, heading, path)
            while entry is not None and entry.offset < block.offset:
                # An entry without its block: the block is damaged, or the entry points nowhere.
                whole, entry = False, next(entries, None)
            if entry is not None and entry.offset == block.offset:
                self._check_entry(entry, block, rows if whole else None, path)
                entry = next(entries, None)
            elif heading.number < mark.file or block.end + heading.unsynced_max < limit:
                self._index_damage("a block has no entry in the index", heading.number, block.offset)
            rows += block.count
            self.verdict.blocks += 1
            self.verdict.changes += block.count

    def _blocks(self, file: File, path: str, heading: Heading, limit: int) -> Iterator[Block]:
        """Every whole block up to `limit`, with what lies between them reported."""
        start = heading.size
        while start < limit:
            try:
                for block in segment.blocks(file, heading, start, limit):
                    yield block
                    self._progress(block.end - start)
                    self.verdict.bytes += block.end - start
                    start = block.end
            except TornBlock as torn:
                behind = segment.next_block(file, heading, start, limit)
                until = limit if behind is None else behind.offset
                self.verdict.damage.append(
                    CorruptLog(f"{torn.reason}; {until - start} bytes cannot be read", file=path, offset=start)
                )
                self._progress(until - start)
                start = until

    def _check_rows(self, block: Block, heading: Heading, path: str) -> None:
        try:
            if block.erased:
                self.verdict.erased += len(erased.ordinals(heading.schema, block.rows, block.count))
            else:
                avro.row_offsets(heading.schema, block.rows, block.count)
        except PenstockError as error:
            self.verdict.damage.append(
                CorruptLog(f"the rows do not decode: {error.message}", file=path, offset=block.offset)
            )

    def _entries(self, heading: Heading) -> Iterator[Entry]:
        """The sound entries of a file's index, in order."""
        index_path = self._reader.path(heading.number, INDEX)
        try:
            file = self._files.open(index_path)
        except OSError as error:
            self.verdict.damage.append(refused(error, "opening the index", index_path))
            return
        try:
            index = Index(file, heading.number, heading.sync)
            if not index.is_sound():
                self._index_damage("the index is damaged or belongs to another file", heading.number, 0)
                return
            at, count = 0, index.count()
            while at < count and (chunk := index.read_many(at, min(_ENTRIES_AT_ONCE, count - at))):
                at += len(chunk)
                yield from (entry for entry in chunk if entry is not None)
        finally:
            file.close()

    def _check_entry(self, entry: Entry, block: Block, rows: int | None, path: str) -> None:
        self.verdict.entries += 1
        agrees = (entry.end, entry.count, entry.crc) == (block.end, block.count, block.crc)
        if not agrees or (rows is not None and entry.rows_before != rows):
            self.verdict.damage.append(
                CorruptLog("the index does not agree with the block", file=path, offset=block.offset)
            )

    def _index_damage(self, reason: str, number: int, offset: int) -> None:
        path = self._reader.path(number, INDEX)
        # One finding per index is enough: it is rebuilt as a whole.
        if not any(damage.place.get("file") == path for damage in self.verdict.damage):
            self.verdict.damage.append(CorruptLog(reason, file=path, offset=offset))

    def _check_checkpoints(self) -> None:
        directory = self._reader.directory
        for name in sorted(self._files.list(directory)):
            if not name.endswith(CHECKPOINT):
                continue
            self.verdict.checkpoints += 1
            path = f"{directory}/{name}"
            try:
                found = checkpoint.load(self._files, path)
                if found is not None:
                    checkpoint.check(found, path, self._reader, found.subscription)
            except PenstockError as error:
                self.verdict.damage.append(error)
