"""Recent: where the last changes of a log begin, found by the index instead of by reading the log.

The index knows how many changes stand before each block, so `tail -n 10` of a large log costs a bisection and one block.
What is newer than the index, or has no sound one, is counted block by block.
"""

from __future__ import annotations

from penstock.log.index import Index
from penstock.log.names import INDEX
from penstock.log.reader import LogReader
from penstock.model.position import Position
from penstock.system.files import Files, OsFiles


def last_changes(reader: LogReader, count: int, *, files: Files | None = None) -> Position:
    """The position to read after in order to get the last `count` changes, or all when there are fewer."""
    mark = reader.watermark()
    numbers = [number for number in reader.numbers() if number <= mark.file]
    if not numbers or count >= mark.rows - reader.heading(numbers[0]).rows_before:
        return reader.first()
    if count <= 0:
        return mark.last
    # The change to read after, counted from zero over the whole log.
    wanted = mark.rows - count - 1
    number = next(n for n in reversed(numbers) if reader.heading(n).rows_before <= wanted)
    limit = reader.file_end(number, mark, numbers)
    start, rows = _nearest(reader, files or OsFiles(), number, wanted)
    for batch in reader.blocks(number, start, limit):
        if rows + batch.count > wanted:
            return Position(number, batch.offset, wanted - rows)
        rows += batch.count
    # The header and the blocks disagree about the number of changes; `verify` says where. Give more, not less.
    return reader.first()


def _nearest(reader: LogReader, files: Files, number: int, wanted: int) -> tuple[int, int]:
    """The offset of the last indexed block that begins at or before change `wanted`, and the changes before it."""
    heading = reader.heading(number)
    nothing = heading.size, heading.rows_before
    try:
        file = files.open(reader.path(number, INDEX))
    except OSError:
        return nothing
    try:
        index = Index(file, number, heading.sync)
        if not index.is_sound():
            return nothing
        found = index.first(lambda entry: entry.rows_before + entry.count > wanted)
        if found is None:
            # Newer than the index: count on from its last entry.
            last = index.read(index.sound_count(0) - 1)
            return (last.end, last.rows_before + last.count) if last is not None else nothing
        return found.offset, found.rows_before
    except IndexError:
        return nothing
    finally:
        file.close()
