"""Backlog: what one log holds behind a reach, and where it can be cut.

Most looks find nothing new, which costs no more than comparing two watermarks. Where there is something, the headers of
the files say how much, and the index of a file finds the block at which a limit is reached, so that hardly any data is
read to plan. A limit of bytes is kept to whole blocks, of which one is always taken; a limit of changes is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from penstock.errors import ChangesLost, CorruptLog, InvalidValue, PositionAhead
from penstock.log import segment
from penstock.log.block import TornBlock
from penstock.log.checkpoint import is_in_log
from penstock.log.index import NO_TIME, Entry, Index
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.segment import Heading
from penstock.log.watermark import Watermark
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.pipeline.source.places import Address
from penstock.pipeline.source.reach import BEGINNING, Reach

# Retention may delete files between two looks at the directory; then the look is repeated.
_LOOKS = 20
# The newest entries of an index may be torn; no more than these.
_TORN_MAX = 64


@dataclass(frozen=True, slots=True)
class Stretch:
    """Blocks of one file from byte `start` up to `stop`, without the first `skip` changes of the first block.

    With a `tail`, the block at `stop` begins with so many changes that belong to the stretch too.
    """

    number: int
    start: int
    stop: int
    skip: int = 0
    tail: int = 0

    @property
    def bytes(self) -> int:
        return self.stop - self.start


def is_new(start: Reach, mark: Watermark, reader: Callable[[], LogReader]) -> bool:
    """Whether a log has changes behind `start`, or a header."""
    if mark.last > start.last:
        return True
    if mark.last < start.last and not is_in_log(reader(), start.last):
        raise PositionAhead(
            "the query has read further than this log goes: it was restored from an older copy",
            table=reader().table,
            directory=reader().directory,
            position=start.last,
            end=mark.last,
        )
    return mark.last == start.last and mark.file > start.file


class Backlog:
    """The changes of one log from `start` to `end`."""

    def __init__(self, address: Address, reader: LogReader, start: Reach, end: Reach, *, skip_loss: bool) -> None:
        """ChangesLost when files were removed that were not read.

        With `skip_loss`, `start` moves behind what was removed, and `lost` says what is missing.
        """
        self.address = address
        self.start = start
        self.end = end
        self.lost: ChangesLost | None = None
        self._reader = reader
        # Asking an agent costs a request, and what was durable stays so.
        self._ends: dict[int, int] = {}
        if start.file == end.file:
            # The usual case: nothing has to be looked up.
            self._numbers = [end.file]
        else:
            self._numbers = self._look(skip_loss)

    @property
    def rows(self) -> int:
        return self.end.rows - self.start.rows

    @property
    def bytes(self) -> int:
        return sum(stretch.bytes for stretch in self.stretches())

    @property
    def files(self) -> int:
        return len(self._untaken())

    def headings(self) -> Iterator[Heading]:
        """Of the files that hold the backlog."""
        return (self._reader.heading(number) for number in self._numbers)

    def stretches(self, end: Reach | None = None) -> list[Stretch]:
        """What to read in order to come from the start to `end`, or to the end of the backlog."""
        end = self.end if end is None else end
        out = []
        for number in self._numbers:
            if number > end.file:
                break
            if number == end.file and end.last.file != number:
                # No change of it is taken.
                break
            if number == self.start.last.file:
                begin, skip = self.start.next, self.start.skip
            else:
                begin, skip = self._reader.heading(number).size, 0
            stop, tail = (end.next, end.skip) if number == end.file else (self._file_end(number), 0)
            if stop > begin or tail > skip:
                out.append(Stretch(number, begin, stop, skip, tail))
        return out

    # Where a limit is reached.

    def after_rows(self, count: int) -> Reach:
        """The reach when exactly `count` changes are taken."""
        wanted = self.start.rows + count
        if wanted >= self.end.rows:
            return self.end
        if count <= 0:
            return self.start
        number = next(n for n in reversed(self._numbers) if n == self._numbers[0] or self._rows_before(n) < wanted)
        _, found = self._find(number, lambda entry: entry.rows_before + entry.count >= wanted)
        if found is None:
            raise CorruptLog("the headers count more changes than the file has", file=self._reader.path(number))
        if found.rows_before + found.count == wanted:
            return _behind(number, found)
        ordinal = wanted - found.rows_before - 1
        return Reach(number, found.offset, Position(number, found.offset, ordinal), wanted)

    def after_bytes(self, count: int) -> Reach:
        """The reach when about `count` bytes are taken: whole blocks, and at least one."""
        left = count
        for stretch in self.stretches():
            if stretch.bytes <= left:
                left -= stretch.bytes
                continue
            limit = stretch.start + left
            before, found = self._find(stretch.number, lambda entry, limit=limit: entry.end > limit)  # type: ignore[misc]
            if before is not None and before.offset >= stretch.start:
                reached = _behind(stretch.number, before)
            elif left == count and found is not None:
                reached = _behind(stretch.number, found)
            else:
                reached = self.before_file(stretch.number)
            return min(reached, self.end, key=_place)
        return self.end

    def after_files(self, count: int) -> Reach:
        """The reach when the first `count` files are taken."""
        if count <= 0:
            return self.start
        untaken = self._untaken()
        return self.end if count >= len(untaken) else self.before_file(untaken[count])

    def _untaken(self) -> list[int]:
        """The files of which anything is left to take: changes, or only the header."""
        begun = self.start.file
        done = begun in self._numbers and self._file_end(begun) <= self.start.next
        return [number for number in self._numbers if number > begun or not done]

    def before_file(self, number: int) -> Reach:
        """The reach when everything before a file is taken."""
        return max(Reach.before(self._reader.heading(number)), self.start, key=_place)

    def within_era(self, end: Reach) -> Reach:
        """`end`, or an earlier reach, so that a batch has no more than one era of the table.

        The first change of an era comes by itself, or the header of a file that has none: it says that what came before
        is gone, and must be delivered before what comes after it.
        """
        for number in self._numbers:
            if number > end.file:
                break
            if number <= self.start.file or not self._begins_era(number):
                continue
            if self._rows_before(number) != self.start.rows:
                return min(end, self.before_file(number), key=_place)
            first = self.after_rows(1)
            alone = first if first.file == number else Reach.at(self._reader.heading(number))
            return min(end, alone, key=_place)
        return end

    def _begins_era(self, number: int) -> bool:
        """Whether the rows of a file are of another era than those of the file before it."""
        era = self._reader.heading(number).schema.era
        try:
            return number > 1 and self._reader.heading(number - 1).schema.era != era
        except ChangesLost:
            # Retention has removed it; nobody can tell.
            return bool(era.truncated_us or era.remade_us)

    def at(self, position: Position) -> Reach:
        """The reach when everything up to a position in one of the files is taken."""
        number, offset, ordinal = position
        _, found = self._find(number, lambda entry: entry.offset >= offset)
        if found is None or found.offset != offset or ordinal >= found.count:
            raise InvalidValue(f"no change stands at position {position}", file=self._reader.path(number))
        if ordinal == found.count - 1:
            return _behind(number, found)
        return Reach(number, offset, position, found.rows_before + ordinal + 1)

    def cuts(self, stretch: Stretch, size: int) -> list[Stretch]:
        """A stretch in parts of about `size` bytes, cut between blocks."""
        out = []
        while stretch.bytes > size + size // 2:
            wanted = stretch.start + size
            _, found = self._find(stretch.number, lambda entry, wanted=wanted: entry.offset >= wanted)  # type: ignore[misc]
            if found is None or not stretch.start < found.offset < stretch.stop:
                break
            out.append(replace(stretch, stop=found.offset, tail=0))
            stretch = replace(stretch, start=found.offset, skip=0)
        return [*out, stretch]

    # Looking things up.

    def _look(self, skip_loss: bool) -> list[int]:
        """The files from the start to the end, after what is missing was found out."""
        for _ in range(_LOOKS):
            numbers = self._reader.numbers()
            wanted = [number for number in numbers if self.start.file <= number <= self.end.file]
            expected = max(self.start.file, 1)
            if wanted and wanted[0] == expected:
                break
            try:
                self._note_loss(numbers, wanted, skip_loss)
            except _Gone:
                continue
            break
        else:
            raise ChangesLost(
                "files are removed faster than they can be looked at", **self._where(), after=self.start.last
            )
        if wanted and wanted[-1] - wanted[0] + 1 != len(wanted):
            missing = next(n for n, m in zip(range(wanted[0], wanted[-1]), wanted, strict=False) if n != m)
            raise CorruptLog(f"file number {missing} is missing", **self._where())
        return wanted

    def _note_loss(self, numbers: list[int], wanted: list[int], skip_loss: bool) -> None:
        """The files before the first that is left are gone; find out whether they had been read."""
        if not wanted:
            # Everything up to the end is gone, or was never there.
            resumed = self.end
        else:
            try:
                resumed = Reach.before(self._reader.heading(wanted[0]))
            except ChangesLost as error:
                raise _Gone from error
        if resumed.last > self.start.last:
            lost = ChangesLost(
                "changes were removed before they were read",
                **self._where(),
                after=self.start.last,
                through=resumed.last,
                changes=resumed.rows - self.start.rows,
                first_file=numbers[0] if numbers else None,
            )
            if not skip_loss:
                choice = 'set on_loss = "snapshot" to have the agents copy the table again, or'
                raise ChangesLost(f"{lost.message}; {choice} {by_hand(self.address.table)}", **lost.place)
            self.lost = lost
        self.start = resumed

    def _where(self) -> dict[str, object]:
        return {"table": self.address.table, "node": self.address.node, "directory": self._reader.directory}

    def _rows_before(self, number: int) -> int:
        return self._reader.heading(number).rows_before

    def _file_end(self, number: int) -> int:
        """Where the readable part of a file ends."""
        if number + 1 in self._numbers:
            return self._reader.heading(number + 1).previous_end
        if number not in self._ends:
            self._ends[number] = self._reader.file_end(number, self._reader.watermark(), self._reader.numbers())
        return self._ends[number]

    def _find(self, number: int, holds: Callable[[Entry], bool]) -> tuple[Entry | None, Entry | None]:
        """The first block of a file for which `holds`, and the one before it. `holds` stays true once it is true.

        The newest blocks are not in the index yet, and a file may have none; then the data is read.
        """
        heading = self._reader.heading(number)
        limit = self._file_end(number)
        before: Entry | None = None
        with self._reader.index(heading) as index:
            if index is not None:
                try:
                    found = index.first(holds)
                except IndexError:
                    index = None
                else:
                    if found is not None and found[1].end <= limit:
                        return (index.read(found[0] - 1) if found[0] else None), found[1]
                    before = _last(index, limit)
        for entry in self._walk(heading, before, limit):
            if holds(entry):
                return before, entry
            before = entry
        return before, None

    def _walk(self, heading: Heading, before: Entry | None, limit: int) -> Iterator[Entry]:
        """Entries for the blocks behind `before`, from the data itself."""
        at, rows = heading.size, heading.rows_before
        if before is not None:
            at, rows = before.end, before.rows_before + before.count
        path = self._reader.path(heading.number)
        file = self._reader.open(heading.number)
        try:
            for block in segment.blocks(file, heading, at, limit):
                yield Entry(block.offset, block.end - block.offset, block.count, rows, NO_TIME, block.epoch, block.crc)
                at, rows = block.end, rows + block.count
        except TornBlock as torn:
            raise CorruptLog(f"damage inside the log: {torn.reason}", file=path, offset=at) from torn
        except OSError as error:
            raise refused(error, "reading a file of the log", path) from error
        finally:
            file.close()


def reach_at(address: Address, reader: LogReader, position: Position) -> Reach:
    """The reach when everything up to a position is taken, which a subscription or a search by time gave."""
    numbers = reader.numbers()
    if not numbers:
        return BEGINNING
    if position.file < numbers[0]:
        # Retention keeps what is left an unbroken run; a position before it counts from its beginning.
        return BEGINNING if numbers[0] == 1 else Reach.before(reader.heading(numbers[0]))
    end = Reach.of(reader.watermark())
    if position >= end.last:
        return end
    backlog = Backlog(
        address, reader, replace(end, file=position.file), replace(end, file=position.file), skip_loss=True
    )
    return backlog.at(position)


def earliest(reader: LogReader) -> Reach:
    """The reach from which everything that a log still has is read."""
    numbers = reader.numbers()
    return BEGINNING if not numbers or numbers[0] == 1 else Reach.before(reader.heading(numbers[0]))


def by_hand(table: TableId) -> str:
    """How an operator fills a gap."""
    return f'copy it with: penstock agent snapshot CONFIG {table}, on every node, and set on_loss = "skip"'


class _Gone(Exception):
    """A file was removed while it was looked at."""


def _place(reach: Reach) -> tuple[Position, int, int]:
    return reach.last, reach.file, reach.next


def _behind(number: int, entry: Entry) -> Reach:
    """The reach when a block is taken."""
    return Reach(number, entry.end, Position(number, entry.offset, entry.count - 1), entry.rows_before + entry.count)


def _last(index: Index, limit: int) -> Entry | None:
    """The newest entry that can be trusted and lies before `limit`."""
    count = index.count()
    for at in range(count - 1, max(count - 1 - _TORN_MAX, -1), -1):
        entry = index.read(at)
        if entry is not None and entry.end <= limit:
            return entry
    return None
