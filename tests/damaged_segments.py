"""Segments with something wrong in them: what disks, crashes and bad memory do, and what only malice does."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import Section, SegmentReader

# Zeros behind the last section, as a segment has them that was made full size before it was written.
_PADDING = 64
_SPAN_MAX = 48


class Segment(NamedTuple):
    """A good segment: its bytes, and where a plain one has its entries (offset and size) and its markers."""

    name: str
    kind: str
    data: bytes
    entries: list[tuple[int, int]]
    markers: list[int]

    @property
    def is_plain(self) -> bool:
        return bool(self.entries)


def load(path: Path, kind: str, keys: KeyStore | None = None) -> Segment:
    """A segment without most of the zeros that it ends with."""
    data = path.read_bytes().rstrip(b"\0") + bytes(_PADDING)
    entries: list[tuple[int, int]] = []
    markers: list[int] = []
    with SegmentReader(str(path), keys=keys) as reader:
        if reader.header.is_plain:
            for section in reader.sections(written=False):
                assert isinstance(section, Section)
                markers.append(section.start - 8)
                entries += _entries(section)
    return Segment(path.name, kind, data, entries, markers)


def _entries(section: Section) -> list[tuple[int, int]]:
    found, at = [], 0
    while at + 12 <= len(section.data):
        (size,) = struct.unpack_from(">i", section.data, at)
        if not size:
            break
        found.append((section.start + at, size))
        at += 12 + size
    return found


def flip(data: bytearray, segment: Segment, random: Random) -> None:
    for _ in range(random.randint(1, 4)):
        data[random.randrange(len(data) - _PADDING)] ^= 1 << random.randrange(8)


def cut(data: bytearray, segment: Segment, random: Random) -> None:
    del data[random.randrange(len(data) - _PADDING) :]


def zero(data: bytearray, segment: Segment, random: Random) -> None:
    at, length = _span(data, random)
    data[at : at + length] = bytes(length)


def noise(data: bytearray, segment: Segment, random: Random) -> None:
    at, length = _span(data, random)
    data[at : at + length] = random.randbytes(length)


def drop(data: bytearray, segment: Segment, random: Random) -> None:
    at, length = _span(data, random)
    del data[at : at + length]


def marker(data: bytearray, segment: Segment, random: Random) -> None:
    """A bit of a sync marker: its checksum does not cover where it points."""
    at = random.choice(segment.markers)
    data[at + random.randrange(8)] ^= 1 << random.randrange(8)


def size(data: bytearray, segment: Segment, random: Random) -> None:
    """An entry's size, with a checksum that fits."""
    at, length = random.choice(segment.entries)
    struct.pack_into(">i", data, at, random.choice([0, 9, length - 1, length + 1, random.randrange(1 << 31)]))
    struct.pack_into(">I", data, at + 4, zlib.crc32(data[at : at + 4]))


def payload(data: bytearray, segment: Segment, random: Random) -> None:
    """Bits of a mutation, with checksums that fit: nothing but the content can tell."""
    at, length = random.choice(segment.entries)
    for _ in range(random.randint(1, 2)):
        data[at + 8 + random.randrange(length)] ^= 1 << random.randrange(8)
    first = zlib.crc32(data[at : at + 4])
    struct.pack_into(">I", data, at + 8 + length, zlib.crc32(data[at + 8 : at + 8 + length], first))


def _span(data: bytearray, random: Random) -> tuple[int, int]:
    at = random.randrange(len(data) - _PADDING)
    return at, min(random.randint(1, _SPAN_MAX), len(data) - at)


Damaging = Callable[[bytearray, Segment, Random], None]
ANYWHERE: list[Damaging] = [flip, flip, cut, zero, noise, drop]
PLAIN_ONLY: list[Damaging] = [marker, size, payload, payload, payload]


def damaged(segment: Segment, random: Random) -> tuple[str, bytes]:
    """A damaged copy, and what was done to it."""
    damaging = random.choice(ANYWHERE + PLAIN_ONLY if segment.is_plain else ANYWHERE)
    data = bytearray(segment.data)
    damaging(data, segment, random)
    return damaging.__name__, bytes(data)
