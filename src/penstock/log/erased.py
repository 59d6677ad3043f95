"""Erased changes: what is left of a change whose row somebody had to be forgotten for.

An erased change keeps its place, so that the positions of all others stay what they are; it keeps when it was made and
where it stood in the source's own log, so that searches find the same places and an agent that reads a segment again
still knows that it logged this one. Nothing says whose it was or what it said: an update without a key that touches
nothing. Only a block whose seal says so can have one, so that a log without any pays nothing. To readers it is nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.formats import avro
from penstock.log.block import Block
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Deletion, Op
from penstock.model.schema import TableSchema

# How `update` begins a row: its number in the enum, as Avro writes it.
_UPDATE = 2 * list(Op).index(Op.UPDATE)
# A string's length takes more bytes the longer it is, so some sizes of a row are left out. These fill such holes.
_DELETIONS = (None, Deletion(0), Deletion(1 << 6), Deletion(1 << 13))
_HOLES_MAX = 16
# How many `shorter` gives.
SHAPES = 5


def blank(change: Change) -> Change:
    """The change without all that says whose it is or what it did."""
    return Change(
        Op.UPDATE,
        time=change.time,
        commit_time=change.commit_time,
        capture_time=change.capture_time,
        origin=change.origin,
    )


def shorter(change: Change) -> Iterator[Change]:
    """The blank change with less and less of what it may keep, down to its place in the source's log.

    That comes last and stays: by it an agent knows that it has logged the change.
    """
    origin = change.origin
    yield change
    yield replace(change, commit_time=None, capture_time=None)
    change = replace(change, time=None, commit_time=None, capture_time=None)
    yield change
    yield replace(change, origin=replace(origin, data_centre=None, transaction=None))
    yield replace(change, origin=replace(origin, node=None, data_centre=None, transaction=None))


def padded(change: Change, text: str) -> Change:
    """A blank change made longer: the text stands behind its data centre, where it means nothing."""
    return replace(change, origin=replace(change.origin, data_centre=(change.origin.data_centre or "") + text))


def encoded(schema: TableSchema, change: Change) -> bytes:
    """The change's row, without a seal."""
    return bytes(avro.encode(schema, [change]).rows)


def row_of(schema: TableSchema, change: Change, size: int) -> bytes:
    """The row of a blank change in exactly `size` bytes; ValueError when there is no such row."""
    for shape in _shapes(change):
        gap = size - len(encoded(schema, shape))
        if gap == 0:
            return encoded(schema, shape)
        for length in range(max(0, gap - _HOLES_MAX), gap + 1):
            row = encoded(schema, padded(shape, " " * length))
            if len(row) == size:
                return row
    raise ValueError(f"no blank row has {size} bytes")


def _shapes(change: Change) -> Iterator[Change]:
    for deletion in _DELETIONS:
        yield replace(change, deletion=deletion)
    # A change without an origin has no text to lengthen in the last few bytes: then its own time of capture gives way.
    for time in (0, 1 << 6, 1 << 13, 1 << 20) if change.capture_time is None else (None,):
        for deletion in (*_DELETIONS, *(Deletion(1 << bits) for bits in range(20, 63, 7))):
            yield replace(change, capture_time=time, deletion=deletion)


def ordinals(schema: TableSchema, rows: bytes, count: int) -> list[int]:
    """Which rows of a block are erased ones. Only for a block that says that it has some."""
    starts, tails = avro.bounds(schema, rows, count)
    # Range, key, cells and before image are all null.
    nothing = bytes(2 + len(schema.key) + len(schema.cells))
    return [
        at
        for at in range(count)
        if rows[starts[at]] == _UPDATE
        and rows.endswith(nothing, starts[at], tails[at])
        and _is_blank(schema, rows[starts[at] : tails[at]])
    ]


def _is_blank(schema: TableSchema, row: bytes) -> bool:
    # A key may end in zeros, too.
    change = avro.decode(ChangeBatch(schema, 1, row + b"\0"))[0]
    return not any(value is not None for value in change.key.values()) and not change.cells


def left(schema: TableSchema, block: Block, skip: int = 0) -> list[tuple[int, int]]:
    """From which to which change of a block nothing is erased, in order, from number `skip` on."""
    runs = []
    for at in ordinals(schema, block.rows, block.count) if block.erased else []:
        if skip < at:
            runs.append((skip, at))
        skip = max(skip, at + 1)
    if skip < block.count:
        runs.append((skip, block.count))
    return runs


def batches(schema: TableSchema, file: int, block: Block, skip: int) -> Iterator[ChangeBatch]:
    """A block that has erased changes, as batches without them; the last one may be empty, and moves its reader on."""
    starts = avro.row_offsets(schema, block.rows, block.count)
    view = memoryview(block.rows)
    end = skip
    for begin, end in left(schema, block, skip):
        rows = block.rows if end == block.count else bytes(view[: starts[end]])
        yield ChangeBatch(schema, end, rows, file=file, offset=block.offset, skip=begin)
    if end < block.count:
        yield ChangeBatch(schema, block.count, block.rows, file=file, offset=block.offset, skip=block.count)
