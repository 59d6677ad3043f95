"""Recent: counting changes from the log's end, by the index instead of by reading the log.

The index knows how many changes stand before each block, so `tail -n 10` of a large log, or how far a subscription is
behind, costs a bisection and one block. What is newer than the index, or has no sound one, is counted block by block.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.log.index import Entry, Index
from penstock.log.names import INDEX
from penstock.log.reader import LogReader
from penstock.log.watermark import Watermark
from penstock.model.position import START, Position
from penstock.system.files import Files, OsFiles


def last_changes(reader: LogReader, count: int, *, files: Files | None = None) -> Position:
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
    start, rows = _nearest(reader, files, number, lambda entry: entry.rows_before + entry.count > wanted)
    for batch in reader.blocks(number, start, limit):
        if rows + batch.count > wanted:
            return Position(number, batch.offset, wanted - rows)
        rows += batch.count
    # Header and blocks disagree about the number of changes; `verify` says where. Give more, not less.
    return reader.first()


def changes_after(reader: LogReader, position: Position, *, files: Files | None = None) -> int:
    """How many durable changes there are behind `position`."""
    mark = reader.watermark()
    numbers = _numbers(reader, mark)
    if position >= mark.last or not numbers:
        return 0
    if position == START or position.file < numbers[0]:
        return mark.rows - reader.heading(numbers[0]).rows_before
    number = position.file
    start, rows = _nearest(reader, files, number, lambda entry: entry.offset >= position.offset)
    for batch in reader.blocks(number, start, reader.file_end(number, mark, numbers)):
        if batch.offset >= position.offset:
            break
        rows += batch.count
    done = position.ordinal + 1 if position.offset else 0
    return mark.rows - rows - done


def _numbers(reader: LogReader, mark: Watermark) -> list[int]:
    return [number for number in reader.numbers() if number <= mark.file]


def _nearest(reader: LogReader, files: Files | None, number: int, holds: Callable[[Entry], bool]) -> tuple[int, int]:
    """Where the first indexed block for which `holds` begins, or the index ends; and the changes before that."""
    heading = reader.heading(number)
    nothing = heading.size, heading.rows_before
    try:
        file = (files or OsFiles()).open(reader.path(number, INDEX))
    except OSError:
        return nothing
    try:
        index = Index(file, number, heading.sync)
        if not index.is_sound():
            return nothing
        found = index.first(holds)
        if found is not None:
            _, entry = found
            return entry.offset, entry.rows_before
        last = index.read(index.sound_count(0) - 1) if index.count() else None
        return (last.end, last.rows_before + last.count) if last is not None else nothing
    except IndexError:
        return nothing
    finally:
        file.close()
