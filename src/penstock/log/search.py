"""Searches: the place in a log for a time or a transaction, in logarithmic time.

Files are bisected by the running maxima in their headers, blocks by those in the index; then one block, or one short
stretch, is read. What the index does not cover yet (the newest 64 KiB), and a file whose index is missing or damaged,
is read through.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.formats import avro
from penstock.log.index import Marks, domain_digest
from penstock.log.names import INDEX, TRANSACTIONS
from penstock.log.segment import Heading
from penstock.model.batch import ChangeBatch
from penstock.model.position import Position
from penstock.telemetry import Logger

if TYPE_CHECKING:
    from penstock.log.reader import LogReader

log = Logger()


def by_time(reader: LogReader, when_us: int) -> Position:
    """The position after which the first change at or after `when_us` comes; the log's end when there is none yet."""
    number = _file_before(reader, lambda heading: heading.when_max >= when_us)
    if number is None:
        # Every change that is left comes later than that.
        return reader.first()
    start, before = _indexed(reader, number, when_us)
    for batch in _stretch(reader, number, start):
        ordinal = _ordinal_at(batch, when_us)
        if ordinal is not None:
            return before if ordinal == 0 else Position(number, batch.offset, ordinal - 1)
        before = batch.last
    following = [other for other in reader.numbers() if other > number]
    return before if following else reader.end()


def by_transaction(reader: LogReader, domain: str, sequence: int) -> Position | None:
    """The position after which the transaction's first change comes; None when it is not in the log."""
    digest = domain_digest(domain)
    number = _file_before(reader, lambda heading: heading.sequences.get(digest, -1) >= sequence)
    if number is None:
        return None
    heading = reader.heading(number)
    start, limit = _marked(reader, heading, digest, sequence)
    for batch in _stretch(reader, number, start, limit):
        for mark in avro.scan(batch.schema, batch.rows, batch.count)[1]:
            if mark.domain == domain and mark.sequence == sequence:
                if mark.ordinal:
                    return Position(number, batch.offset, mark.ordinal - 1)
                return _before(reader, heading, batch.offset)
    return None


def _file_before(reader: LogReader, reached: Callable[[Heading], bool]) -> int | None:
    """The last file that began before `reached` became true. None: the first one that is left began too late."""
    end = reader.watermark().file
    numbers = [number for number in reader.numbers() if number <= end]
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if reached(reader.heading(numbers[middle])):
            high = middle
        else:
            low = middle + 1
    if low == 0:
        return None
    return numbers[low - 1]


def _indexed(reader: LogReader, number: int, when_us: int) -> tuple[int, Position]:
    """Where to begin reading in a file, and the last change before that place."""
    heading = reader.heading(number)
    with reader.index(heading) as index:
        if index is None:
            return heading.size, heading.last
        try:
            found = index.first(lambda entry: entry.when_max >= when_us)
            place = found[0] if found is not None else index.sound_count(0)
            if place == 0:
                return heading.size, heading.last
            entry = index.read(place - 1)
        except IndexError:
            log.warning("index damaged", file=reader.path(number, INDEX))
            return heading.size, heading.last
        if entry is None:
            return heading.size, heading.last
        return entry.end, Position(number, entry.offset, entry.count - 1)


def _marked(reader: LogReader, heading: Heading, digest: int, sequence: int) -> tuple[int, int | None]:
    """The stretch of a file that holds the transaction, if the file holds it."""
    number = heading.number
    with reader.side_file(reader.path(number, TRANSACTIONS)) as file:
        mark = Marks(file, heading.sync).first(digest, sequence) if file is not None else None
        if mark is not None:
            return mark.begin, mark.end
    with reader.index(heading) as index:
        last = index.last() if index is not None else None
    # Marks are written before the index entries of the same stretch, so what the index covers is marked.
    return heading.size if last is None else last.end, None


def _before(reader: LogReader, heading: Heading, offset: int) -> Position:
    """The last change before the block at `offset`."""
    if offset == heading.size:
        return heading.last
    with reader.index(heading) as index:
        if index is not None:
            try:
                found = index.first(lambda entry: entry.end >= offset)
            except IndexError:
                found = None
            if found is not None and found[1].end == offset:
                return Position(heading.number, found[1].offset, found[1].count - 1)
            covered = index.last()
            start = covered.offset if covered is not None and covered.end < offset else heading.size
        else:
            start = heading.size
    position = heading.last
    for batch in reader.blocks(heading.number, start, offset):
        position = batch.last
    return position


def _stretch(reader: LogReader, number: int, start: int, limit: int | None = None) -> Iterator[ChangeBatch]:
    end = reader.file_end(number, reader.watermark(), reader.numbers())
    yield from reader.blocks(number, start, end if limit is None else min(limit, end))


def _ordinal_at(batch: ChangeBatch, when_us: int) -> int | None:
    """The first change of the batch at or after that time: the greatest time of the first n changes never falls."""
    view = memoryview(batch.rows)
    offsets = avro.row_offsets(batch.schema, view, batch.count)

    def reached(count: int) -> bool:
        when, _ = avro.scan(batch.schema, view[: offsets[count]], count)
        return when is not None and when >= when_us

    place = bisect_left(range(1, batch.count + 1), True, key=reached)
    return None if place == batch.count else place
