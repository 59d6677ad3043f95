"""LogReader: reads one table's change log, in any process, beside the writer.

It takes no lock and sees what is durable and nothing else: its limit is the watermark. Every block is checked when it
is read. What cannot be read raises `CorruptLog` with file and offset; only a caller who asks for it reads on past
damage, and then each gap is logged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from penstock.errors import ChangesLost, CorruptLog, InvalidValue, PositionAhead, UnsupportedFormat
from penstock.log import erased, identity, search, segment, watermark
from penstock.log.block import Block, TornBlock
from penstock.log.index import Index
from penstock.log.names import DATA, INDEX, file_name, file_number
from penstock.log.refusal import refused
from penstock.log.segment import Heading
from penstock.log.watermark import Watermark
from penstock.model.batch import ChangeBatch
from penstock.model.position import START, Position
from penstock.model.schema import TableId
from penstock.system.files import File, Files, OsFiles
from penstock.telemetry import Logger

log = Logger()

# So many headings are kept before it is asked which of their files are still there.
_HEADINGS_MIN = 16


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One data file of a log, for lists and figures."""

    number: int
    path: str
    bytes: int
    schema_version: int
    # Changes in the log before this file.
    rows_before: int


class LogReader:
    """One log, open for reading. Not to be shared between threads; open one each, they are cheap."""

    def __init__(self, directory: str, *, files: Files | None = None) -> None:
        self.directory = directory
        self._files: Files = files or OsFiles()
        found = identity.load(self._files, directory)
        self.table: TableId = found.table
        self.log_id: str = found.log
        self._headings: dict[int, Heading] = {}
        self._headings_max = _HEADINGS_MIN
        self._watermark_file: File | None = None
        # What later files vouched for when this reader first looked.
        self._floor: Watermark | None = None
        # The last watermark, as bytes and as read: most looks find it unchanged.
        self._seen = b"", Watermark(0, 0, 0)

    def close(self) -> None:
        if self._watermark_file is not None:
            self._watermark_file.close()
            self._watermark_file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Where things are.

    def numbers(self) -> list[int]:
        """The numbers of the data files that are there, in order."""
        try:
            names = self._files.list(self.directory)
        except OSError as error:
            raise refused(error, "listing the log", self.directory) from error
        return sorted(n for name in names if (n := file_number(self.table, name, DATA)) is not None)

    def path(self, number: int, kind: str = DATA) -> str:
        return f"{self.directory}/{file_name(self.table, number, kind)}"

    def end(self) -> Position:
        """The last durable change; START while there is none."""
        return self.watermark().last

    def first(self) -> Position:
        """The position after which everything that is left can be read."""
        numbers = self.numbers()
        return self.heading(numbers[0]).last if numbers and numbers[0] > 1 else START

    def watermark(self) -> Watermark:
        """How far the log is durable. Without a sound watermark, as far as the last file's index vouches for."""
        try:
            if self._watermark_file is None:
                self._watermark_file = self._files.open(f"{self.directory}/{watermark.NAME}")
            raw = self._watermark_file.pread(watermark.SIZE, 0)
            if raw and raw == self._seen[0]:
                return self._seen[1]
            found = watermark.unpack(raw)
            if found is None:
                raw, found = b"", watermark.read(self._watermark_file)
        except FileNotFoundError:
            found = None
        except OSError as error:
            raise refused(error, "reading the watermark", self.directory) from error
        if found is None:
            return self._vouched()
        if self._floor is None:
            # It is not synced, so after power loss it may be an old one. A later file vouches for all before it.
            self._floor = self._vouched_later(found)
        if (found.file, found.end) < (self._floor.file, self._floor.end):
            found = self._floor
        self._seen = raw, found
        return found

    def _vouched_later(self, found: Watermark) -> Watermark:
        numbers = self.numbers()
        if not numbers or numbers[-1] <= found.file:
            return found
        try:
            return self._vouched()
        except (CorruptLog, UnsupportedFormat) as error:
            # It vouches for nothing. Whoever writes here next, or verifies, is told; what is sound can be read.
            log.warning("a later file is not readable", directory=self.directory, error=str(error))
            return found

    def _vouched(self) -> Watermark:
        for number in reversed(self.numbers()):
            heading = self._read_heading(number)
            with self.index(heading) as index:
                last = index.last() if index is not None else None
            if last is not None:
                position = Position(number, last.offset, last.count - 1)
                return Watermark(last.epoch, number, last.end, position, last.rows_before + last.count)
            return Watermark(0, number, heading.size, heading.last, heading.rows_before)
        return Watermark(0, 0, 0)

    def heading(self, number: int) -> Heading:
        """The heading of one file."""
        known = self._headings.get(number)
        if known is None:
            known = self._read_heading(number)
            if number <= self.watermark().last.file:
                # A file with changes keeps its header for good; the newest may be made anew while it is empty.
                self._keep(known)
        return known

    def _keep(self, heading: Heading) -> None:
        """Remember a heading; a reader may live for years, so those of files that are gone go too."""
        if len(self._headings) >= self._headings_max:
            there = set(self.numbers())
            self._headings = {number: kept for number, kept in self._headings.items() if number in there}
            # To ask each time would cost a log of many files more the longer it is.
            self._headings_max = max(_HEADINGS_MIN, 2 * len(self._headings))
        self._headings[heading.number] = heading

    def _read_heading(self, number: int) -> Heading:
        file = self.open(number)
        try:
            found = segment.read_heading(file, self.path(number))
        except OSError as error:
            raise refused(error, "reading a file of the log", self.path(number)) from error
        finally:
            file.close()
        if found.log != self.log_id or found.number != number:
            raise CorruptLog("the file belongs to another log or has another number", file=self.path(number))
        return found

    @contextmanager
    def index(self, heading: Heading) -> Iterator[Index | None]:
        """A file's index; None when it is missing or belongs to another file, and the data must be read instead."""
        path = self.path(heading.number, INDEX)
        with self.side_file(path) as file:
            index = Index(file, heading.number, heading.sync) if file is not None else None
            if index is None or not index.is_sound():
                log.warning("index missing" if index is None else "index damaged", file=path)
                index = None
            yield index

    @contextmanager
    def side_file(self, path: str) -> Iterator[File | None]:
        """A file that stands beside the data, open for reading; None when it cannot be had: the data can do without."""
        try:
            file = self._files.open(path)
        except OSError:
            yield None
            return
        try:
            yield file
        finally:
            file.close()

    def file_end(self, number: int, mark: Watermark, numbers: list[int]) -> int:
        """Where the readable part of a file ends: the next file's header or the watermark says it."""
        if number == mark.file:
            return mark.end
        place = bisect_left(numbers, number + 1)
        if place < len(numbers) and numbers[place] == number + 1:
            return self.heading(number + 1).previous_end
        raise CorruptLog(f"file number {number + 1} is missing", directory=self.directory, table=self.table)

    def files(self) -> list[FileInfo]:
        """All data files, oldest first."""
        infos = []
        for number in self.numbers():
            try:
                heading = self.heading(number)
                file = self.open(number)
            except ChangesLost:
                # Retention has removed it since the names were listed.
                continue
            try:
                size = file.size()
            finally:
                file.close()
            infos.append(FileInfo(number, self.path(number), size, heading.schema.version, heading.rows_before))
        return infos

    def open(self, number: int) -> File:
        """One data file, open for reading."""
        path = self.path(number)
        try:
            return self._files.open(path)
        except FileNotFoundError as error:
            numbers = self.numbers()
            if numbers and number < numbers[0]:
                raise ChangesLost(
                    f"files before number {numbers[0]} were removed", directory=self.directory, table=self.table
                ) from error
            raise CorruptLog(f"file number {number} is missing", directory=self.directory, table=self.table) from error
        except OSError as error:
            raise refused(error, "opening a file of the log", path) from error

    # Reading.

    def read(
        self, after: Position = START, *, skip_damage: bool = False, with_erased: bool = False
    ) -> Iterator[ChangeBatch]:
        """All durable changes behind `after`, in written order, up to the end as it is now.

        Erased ones are left out, unless the caller asks for them. A batch may be empty then: its end counts.
        """
        return self.read_to(self.watermark(), after, skip_damage=skip_damage, with_erased=with_erased)

    def read_to(
        self, mark: Watermark, after: Position, *, skip_damage: bool = False, with_erased: bool = False
    ) -> Iterator[ChangeBatch]:
        """All changes behind `after` up to a watermark that was read before."""
        numbers = [number for number in self.numbers() if number <= mark.file]
        if after > mark.last:
            if after.file > mark.file or (after.file, after.offset) > (mark.last.file, mark.last.offset):
                message = f"position {after} lies behind the log's end {mark.last}"
                raise PositionAhead(message, directory=self.directory, table=self.table)
            return
        if not numbers:
            return
        if after != START and after.file < numbers[0]:
            # Whoever had read all that was removed has lost nothing.
            removed = self.heading(numbers[0]).last
            if after < removed:
                raise ChangesLost(
                    f"changes were removed; the log begins with file {numbers[0]}",
                    directory=self.directory,
                    after=after,
                    through=removed,
                )
        expected = max(after.file, numbers[0])
        for number in numbers[bisect_left(numbers, expected) :]:
            if number != expected:
                self._missing(expected, skip_damage)
            for heading, block, skip in self._read_file(number, after, mark, numbers, skip_damage):
                if block.erased and not with_erased:
                    yield from erased.batches(heading.schema, number, block, skip)
                else:
                    yield self.batch(heading, block, skip)
            expected = number + 1

    def _missing(self, number: int, skip: bool) -> None:
        error = CorruptLog(f"file number {number} is missing", directory=self.directory, table=self.table)
        if not skip:
            raise error
        log.warning("damage skipped", error=str(error))

    def _read_file(
        self, number: int, after: Position, mark: Watermark, numbers: list[int], skip_damage: bool
    ) -> Iterator[tuple[Heading, Block, int]]:
        """The blocks of one file that have changes behind `after`, each with how many of its changes were read."""
        file = self.open(number)
        try:
            heading = self.heading(number)
            limit = file.size() if skip_damage and number != mark.file else self.file_end(number, mark, numbers)
            start, skip = heading.size, 0
            if after.file == number and after.offset:
                start, skip = after.offset, after.ordinal + 1
                if not segment.begins_block(file, heading, start):
                    raise InvalidValue(f"no change stands at position {after}", file=self.path(number))
            while start < limit:
                try:
                    # Whoever reads a log from somewhere to its end seldom comes back, and the memory that it would
                    # take is the database's.
                    for block in segment.blocks(file, heading, start, limit, keep=False):
                        if skip < block.count:
                            yield heading, block, skip
                        skip, start = 0, block.end
                except TornBlock as torn:
                    start = self._pass_damage(file, heading, start, limit, torn, skip_damage)
                    skip = 0
        except OSError as error:
            raise refused(error, "reading a file of the log", self.path(number)) from error
        finally:
            file.close()

    def _pass_damage(
        self, file: File, heading: Heading, start: int, limit: int, torn: TornBlock, skip_damage: bool
    ) -> int:
        """Raise at a damaged place, or, when asked to go on, find the next whole block."""
        path = self.path(heading.number)
        if not skip_damage:
            raise CorruptLog(f"damage inside the log: {torn.reason}", file=path, offset=start, table=self.table)
        behind = segment.next_block(file, heading, start, limit)
        until = limit if behind is None else behind.offset
        log.warning("damage skipped", file=path, offset=start, bytes=until - start, reason=torn.reason)
        return until

    @staticmethod
    def batch(heading: Heading, block: Block, skip: int = 0) -> ChangeBatch:
        """A block as a batch with its positions."""
        return ChangeBatch(heading.schema, block.count, block.rows, file=heading.number, offset=block.offset, skip=skip)

    # Searching.

    def seek_time(self, when_us: int) -> Position:
        """The position to read after, so that the first change at or after `when_us` is read next."""
        return search.by_time(self, when_us)

    def seek_transaction(self, domain: str, sequence: int) -> Position | None:
        """The position to read after, so that the transaction's first change is read next; None: not in the log."""
        return search.by_transaction(self, domain, sequence)

    def blocks(self, number: int, start: int, limit: int) -> Iterator[ChangeBatch]:
        """The blocks of one stretch of a file, for searches."""
        file = self.open(number)
        try:
            heading = self.heading(number)
            for block in segment.blocks(file, heading, start, limit):
                yield self.batch(heading, block)
        except TornBlock as torn:
            raise CorruptLog(f"damage inside the log: {torn.reason}", file=self.path(number), offset=start) from torn
        except OSError as error:
            raise refused(error, "reading a file of the log", self.path(number)) from error
        finally:
            file.close()
