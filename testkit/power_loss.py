"""Power loss: what a crash may leave of that which was not synced.

The modes are the things that disks, controllers and file systems are known to do. `replay` applies a file's edits in
order: durable ones as they were, the others as the mode and the seed say. Only unsynced bytes are ever touched; that a
write cannot hurt its neighbours on the disk is taken for granted here as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from random import Random
from typing import NamedTuple, TypeAlias

# Disks write a sector or do not; what lies within one is torn only by the `torn` and `prefix` modes.
PAGE_BYTES = 512

# A write of bytes at an offset, or (without bytes) a truncation to that size; the step tells the order between files.
Edit: TypeAlias = tuple[int, int, bytes | None]


class Mode(StrEnum):
    """What power loss does to that which was not synced."""

    DROP = "drop"  # All of it is lost.
    KEEP = "keep"  # All of it had reached the disk already.
    PREFIX = "prefix"  # The disk kept the order and stopped in the middle of one step.
    CONTENT = "content"  # Content is kept, names are lost.
    NAMES = "names"  # Names are kept, content is lost: a renamed file is empty or old.
    HOLES = "holes"  # Names and lengths are kept, new content reads as zeros.
    GARBAGE = "garbage"  # As holes, but new content reads as noise.
    PAGES = "pages"  # Each page of 512 bytes and each name is kept or lost by itself.
    TORN = "torn"  # Each write stops at some byte.
    FLIP = "flip"  # All is kept but a few bits of the unsynced content.
    MIX = "mix"  # Each file has a fate of its own.


# What one file may suffer when each has a fate of its own.
FATES = tuple(mode for mode in Mode if mode is not Mode.MIX)
NAMES_KEPT = frozenset({Mode.KEEP, Mode.NAMES, Mode.HOLES, Mode.GARBAGE, Mode.TORN, Mode.FLIP})
NAMES_LOST = frozenset({Mode.DROP, Mode.CONTENT})


class Crash(NamedTuple):
    """One way to lose power; prints as `mode/seed`."""

    mode: Mode
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.mode.value}/{self.seed}"

    @classmethod
    def parse(cls, text: str) -> Crash:
        mode, _, seed = text.partition("/")
        return cls(Mode(mode), int(seed or 0))


def apply(buffer: bytearray, edit: Edit) -> None:
    """Write or truncate, with zeros in a gap."""
    _, offset, data = edit
    size = len(buffer)
    if data is None:
        if offset < size:
            del buffer[offset:]
        else:
            buffer.extend(bytes(offset - size))
        return
    if offset > size:
        buffer.extend(bytes(offset - size))
    buffer[offset : offset + len(data)] = data


def replay(base: bytes | bytearray, edits: Iterable[tuple[bool, Edit]], mode: Mode, rng: Random, cut: int) -> bytes:
    """The content after a crash: durable edits as they were, the others (marked True) as the mode says."""
    if mode is Mode.FLIP:
        edits = _flipped(base, list(edits), rng)
    buffer = bytearray(base)
    # The lengths that the file may have: the one now certain, and the one after each write that may be lost.
    lengths = [len(buffer)]
    for lossy, edit in edits:
        step, offset, data = edit
        if not lossy:
            apply(buffer, edit)
            lengths = [len(buffer)]
        elif data is None:
            if _keeps(mode, rng, step, cut):
                apply(buffer, edit)
                lengths = [len(buffer)]
        else:
            for piece in _pieces(mode, rng, edit, cut, lengths[0]):
                apply(buffer, piece)
            lengths.append(max(lengths[-1], offset + len(data)))
    length = len(buffer)
    if mode is Mode.HOLES:
        length = lengths[-1]
    elif mode is Mode.PAGES or mode is Mode.TORN:
        length = rng.choice([*lengths, length])
    apply(buffer, (0, length, None))
    return bytes(buffer)


def _keeps(mode: Mode, rng: Random, step: int, cut: int) -> bool:
    """Whether a truncation survives: it is one change of metadata, never half done."""
    if mode is Mode.PREFIX:
        return step < cut
    if mode is Mode.DROP or mode is Mode.NAMES:
        return False
    return mode is Mode.FLIP or rng.random() < 0.5


def _pieces(mode: Mode, rng: Random, edit: Edit, cut: int, certain: int) -> Iterator[Edit]:
    """Those parts of a write that reached the disk."""
    step, offset, data = edit
    if not data:
        return
    if mode is Mode.FLIP or (mode is Mode.PREFIX and step < cut):
        yield edit
    elif mode is Mode.GARBAGE:
        old = min(len(data), max(0, certain - offset))
        yield step, offset, data[:old] + rng.randbytes(len(data) - old)
    elif mode is Mode.TORN or (mode is Mode.PREFIX and step == cut):
        yield step, offset, data[: rng.randint(0, len(data))]
    elif mode is Mode.PAGES:
        start = 0
        while start < len(data):
            end = min(len(data), start + PAGE_BYTES - (offset + start) % PAGE_BYTES)
            if rng.random() < 0.5:
                yield step, offset + start, data[start:end]
            start = end


def _flipped(base: bytes | bytearray, edits: list[tuple[bool, Edit]], rng: Random) -> list[tuple[bool, Edit]]:
    """The edits with a few bits of the volatile ones turned.

    Bytes that are durable already with the same value stay: writing them again does not put them at risk.
    """
    certain = bytearray(base)
    chosen: list[tuple[int, int]] = []
    places = [place for place, (lossy, edit) in enumerate(edits) if lossy and edit[2]]
    wanted = {rng.choice(places) for _ in range(rng.randint(1, 3))} if places else set()
    for place, (lossy, edit) in enumerate(edits):
        _, offset, data = edit
        if not lossy:
            apply(certain, edit)
        elif place in wanted and data is not None:
            at = rng.randrange(len(data))
            if offset + at >= len(certain) or certain[offset + at] != data[at]:
                chosen.append((place, at))
    for place, at in chosen:
        step, offset, data = edits[place][1]
        damaged = bytearray(data or b"")
        damaged[at] ^= 1 << rng.randrange(8)
        edits[place] = (True, (step, offset, bytes(damaged)))
    return edits
