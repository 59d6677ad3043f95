"""Recent: counting changes from the log's end, by the index instead of by reading the log.

The index knows how many changes stand before each block, so `tail -n 10` of a large log, or how far a subscription is
behind, costs a bisection and one block. What is newer than the index, or has no sound one, is counted block by block.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.formats import avro
from penstock.log.index import Entry
from penstock.log.reader import LogReader
from penstock.log.watermark import Watermark
from penstock.model.position import START, Position


def last_changes(reader: LogReader, count: int) -> Position:
    """The position to read after in order to get the last `count` changes, or all when there are fewer."""
    mark = reader.watermark()
    numbers = _numbers(reader, mark)
    if not numbers or count >= mark.rows - reader.heading(numbers[0]).rows_before:
        return reader.first()
    if count <= 0:
        return mark.last
    # The change to read after, counted from zero over the whole log.
    wanted = mark.rows - count - 1
    number = next(n for n in reversed(numbers) if reader.heading(n).rows_before <= wanted)
    limit = reader.file_end(number, mark, numbers)
    start, rows = _nearest(reader, number, lambda entry: entry.rows_before + entry.count > wanted)
    for batch in reader.blocks(number, start, limit):
        if rows + batch.count > wanted:
            return Position(number, batch.offset, wanted - rows)
        rows += batch.count
    # Header and blocks disagree about the number of changes; `verify` says where. Give more, not less.
    return reader.first()


def changes_after(reader: LogReader, position: Position) -> int:
    """How many durable changes there are behind `position`."""
    # Read before it is counted: what comes meanwhile lies behind both.
    mark = reader.watermark()
    return max(0, mark.rows - changes_through(reader, position))


def changes_through(reader: LogReader, position: Position) -> int:
    """How many changes the log had up to and including `position`, however far it is now.

    Of a position whose file is gone, those before the first file that is left.
    """
    mark = reader.watermark()
    numbers = _numbers(reader, mark)
    if position >= mark.last or not numbers:
        return mark.rows
    if position == START or position.file < numbers[0]:
        return reader.heading(numbers[0]).rows_before
    number = position.file
    start, rows = _nearest(reader, number, lambda entry: entry.offset >= position.offset)
    for batch in reader.blocks(number, start, reader.file_end(number, mark, numbers)):
        if batch.offset >= position.offset:
            break
        rows += batch.count
    return rows + (position.ordinal + 1 if position.offset else 0)


def _numbers(reader: LogReader, mark: Watermark) -> list[int]:
    return [number for number in reader.numbers() if number <= mark.file]


def _nearest(reader: LogReader, number: int, holds: Callable[[Entry], bool]) -> tuple[int, int]:
    """Where the first indexed block for which `holds` begins, or the index ends; and the changes before that."""
    heading = reader.heading(number)
    nothing = heading.size, heading.rows_before
    with reader.index(heading) as index:
        if index is None:
            return nothing
        try:
            found = index.first(holds)
        except IndexError:
            return nothing
        if found is not None:
            return found[1].offset, found[1].rows_before
        last = index.last()
        return (last.end, last.rows_before + last.count) if last is not None else nothing


def bytes_after(reader: LogReader, position: Position) -> int:
    """How many durable bytes of files there are from the first change behind `position` on, headers included."""
    mark = reader.watermark()
    numbers = _numbers(reader, mark)
    if position >= mark.last or not numbers:
        return 0
    left = sum(reader.file_end(number, mark, numbers) for number in numbers if number > position.file)
    if position.file not in numbers:
        return left
    # A block counts as long as one of its changes is left, for it has to be read for that.
    done = position.offset
    for batch in reader.blocks(position.file, position.offset, reader.file_end(position.file, mark, numbers)):
        if batch.offset > position.offset or position.ordinal < batch.count - 1:
            done = batch.offset
            break
    else:
        done = reader.file_end(position.file, mark, numbers)
    return left + reader.file_end(position.file, mark, numbers) - done


def time_after(reader: LogReader, position: Position) -> int | None:
    """The time of the first durable change behind `position`; None when there is none, or it has no time."""
    if position >= reader.end():
        return None
    batch = next(filter(len, reader.read(max(position, reader.first()))), None)
    if batch is None:
        return None
    view = memoryview(batch.rows)
    offsets = avro.row_offsets(batch.schema, view, batch.count)
    when, _ = avro.scan(batch.schema, view[offsets[batch.skip] : offsets[batch.skip + 1]], 1)
    return when
