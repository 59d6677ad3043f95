"""Replacement: a block that takes the place of another, byte for byte as long, with some changes erased.

Positions name a block by its offset and a change by its number in the block, so neither may move: the new block has the
same count and length, and ends with the same marker. Without compression each erased change is as long as the one that
it replaces. Compressed, the block becomes shorter, and what is missing is made up for by what decoders skip; or, where
a codec has no such thing, by text without meaning in an erased change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection

from penstock.formats import avro, container
from penstock.log import block, erased
from penstock.log.block import SYNC_BYTES, Block
from penstock.log.segment import Heading
from penstock.model.batch import ChangeBatch
from penstock.settings import Codec

_TRIES = 200
Make = Callable[[str, int], bytes]
# Letters, because the text stands in a string; of so many that no codec makes much less of them.
_LETTERS = bytes(range(48, 112)) * 4


def replacement(heading: Heading, old: Block, hits: Collection[int]) -> bytes | None:
    """The bytes of the block without the changes of these numbers; None when it does not compress to that length."""
    length = old.end - old.offset
    size = length - SYNC_BYTES - _head_bytes(old, length)
    make = _maker(heading, old, hits)
    payload = make("", 0) if heading.codec is Codec.NULL else _fitted(heading.codec, make, size)
    if payload is None:
        return None
    new = container.frame_block(old.count, payload, heading.sync)
    _check(heading, old, hits, new)
    return new


def _head_bytes(old: Block, length: int) -> int:
    """How long count and size are, which stand before the data."""
    counted = len(container.long_bytes(old.count))
    for sized in range(1, 11):
        if len(container.long_bytes(length - SYNC_BYTES - counted - sized)) == sized:
            return counted + sized
    raise AssertionError("every length has a size")


def _maker(heading: Heading, old: Block, hits: Collection[int]) -> Make:
    """What makes the block's data, sealed; the text goes into its first erased change."""
    schema = heading.schema
    starts, tails = avro.bounds(schema, old.rows, old.count)
    view = memoryview(old.rows)
    wanted = sorted(hits)
    blanks = {}
    for at in wanted:
        whole = bytes(view[starts[at] : tails[at]]) + b"\0"
        blanks[at] = tuple(erased.shorter(erased.blank(avro.decode(ChangeBatch(schema, 1, whole))[0])))

    def row(at: int, text: str, shape: int) -> bytes:
        change = blanks[at][shape]
        if heading.codec is Codec.NULL:
            return erased.row_of(schema, change, tails[at] - starts[at] + 1)
        return erased.encoded(schema, erased.padded(change, text) if text and at == wanted[0] else change)

    def make(text: str, shape: int) -> bytes:
        parts: list[bytes | memoryview] = []
        done = 0
        for at in wanted:
            parts += (view[starts[done] : starts[at]], row(at, text, shape))
            done = at + 1
        if done < old.count:
            parts += (view[starts[done] : tails[old.count - 1]], b"\0")
        return block.seal(b"".join(parts), old.count, ~old.epoch)

    return make


def _fitted(codec: Codec, make: Make, size: int) -> bytes | None:
    """The data, compressed to exactly `size` bytes; None when that cannot be done."""
    for shape in range(erased.SHAPES):
        for hard in (False, True):
            found = _reached(codec, lambda text, shape=shape: make(text, shape), size, hard=hard)  # type: ignore[misc]
            if found is not None:
                return found
    return None


def _reached(codec: Codec, make: Callable[[str], bytes], size: int, *, hard: bool) -> bytes | None:
    length = 0
    for attempt in range(_TRIES):
        payload = container.compress(codec, make(_text(length, attempt)), hard=hard)
        full = container.fill(codec, payload, size)
        if full is not None:
            return full
        gap = size - len(payload)
        if gap < 0 and length == 0:
            return None
        # Text takes at least as many bytes as it has letters, or nearly; the last few are found by trying.
        length = max(0, length + gap)
    return None


def _text(length: int, attempt: int) -> str:
    """Letters that do not repeat; other ones at each attempt."""
    return hashlib.shake_128(attempt.to_bytes(4, "big")).digest(length).translate(_LETTERS).decode("ascii")


def _check(heading: Heading, old: Block, hits: Collection[int], new: bytes) -> None:
    """Read the new block as any reader will: nothing but these changes may have changed."""
    found = block.parse(new, 0, old.offset, heading.codec, heading.sync, len(new) + len(old.rows) + (1 << 20))
    assert isinstance(found, Block), "a block that was just made is whole"
    assert (found.end, found.count, found.epoch, found.erased) == (old.end, old.count, old.epoch, True)
    olds, old_tails = avro.bounds(heading.schema, old.rows, old.count)
    news, new_tails = avro.bounds(heading.schema, found.rows, found.count)
    gone = set(hits)
    for at in range(old.count):
        same = old.rows[olds[at] : old_tails[at]] == found.rows[news[at] : new_tails[at]]
        assert same or at in gone, "another change would be touched"
    assert gone <= set(erased.ordinals(heading.schema, found.rows, found.count)), "an erased change is still one"
