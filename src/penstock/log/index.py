"""The index: where each block of a file is, and which transactions a stretch of it holds.

Beside `ks.table.000001.avro` stands `….idx`, with one fixed-size entry per block, and, when the source has
transactions, `….txn`. Both can be rebuilt from the data. An entry is written only after its block is durable, so a
sound entry vouches for its block; entries are checked one by one, because those not yet synced can be lost in
any pattern.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from penstock.system.checksum import crc32
from penstock.system.files import File

_HEADER = struct.Struct("<8sIQ16s")
_MAGIC = b"PSTKIDX\x01"
_VERSION = 1
# offset, length, count, changes before it, greatest time so far, epoch, checksum of the block, checksum of the entry
_ENTRY = struct.Struct("<QIIQqQII")
ENTRY_BYTES = _ENTRY.size
# domain digest, greatest sequence so far, begin and end of the stretch, checksum
_MARK = struct.Struct("<QQQQI")
MARK_BYTES = _MARK.size
# The running maximum of `Change.when` while no change had one.
NO_TIME = -(1 << 63)


@dataclass(slots=True)
class Entry:
    """One block of the data file."""

    offset: int
    length: int
    count: int
    # Changes in this log before the block.
    rows_before: int
    # The greatest `Change.when` in this log up to and with this block: it never falls, so it can be searched.
    when_max: int
    epoch: int
    crc: int

    @property
    def end(self) -> int:
        return self.offset + self.length


class Mark(NamedTuple):
    """A stretch of the file: the domain's greatest sequence rose to `sequence` between `begin` and `end`."""

    domain: int
    sequence: int
    begin: int
    end: int


@lru_cache(maxsize=1024)
def domain_digest(domain: str) -> int:
    """A transaction domain as a number of fixed size."""
    return int.from_bytes(hashlib.blake2b(domain.encode(), digest_size=8).digest(), "little")


class Index:
    """One open `.idx` file. `sync` of its data file binds it to that file alone."""

    def __init__(self, file: File, number: int, sync: bytes) -> None:
        self._file = file
        head = _HEADER.pack(_MAGIC, _VERSION, number, sync)
        self._head = (head + crc32(head).to_bytes(4, "little")).ljust(ENTRY_BYTES, b"\0")
        self._seed = crc32(sync)

    def is_sound(self) -> bool:
        """Whether the file belongs to this data file."""
        return self._file.pread(ENTRY_BYTES, 0) == self._head

    def reset(self) -> None:
        """Start afresh with no entries."""
        self._file.truncate(0)
        self._file.pwrite(self._head, 0)

    def count(self) -> int:
        """How many entries there is room for; the last ones may be torn."""
        return max(0, self._file.size() // ENTRY_BYTES - 1)

    def write(self, at: int, entries: Iterable[Entry]) -> None:
        """Write entries from number `at` on."""
        self._file.pwrite(b"".join(map(self._pack, entries)), (at + 1) * ENTRY_BYTES)

    def cut(self, count: int) -> None:
        """Keep the first `count` entries only."""
        self._file.truncate((count + 1) * ENTRY_BYTES)

    def read(self, at: int) -> Entry | None:
        """Entry number `at`, or None when it is not sound."""
        return self._unpack(self._file.pread(ENTRY_BYTES, (at + 1) * ENTRY_BYTES))

    def last(self) -> Entry | None:
        """The last entry of the sound run from the start; None when there is none."""
        return self.read(self.sound_count(0) - 1)

    def read_many(self, at: int, count: int) -> list[Entry | None]:
        data = self._file.pread(count * ENTRY_BYTES, (at + 1) * ENTRY_BYTES)
        return [self._unpack(data[i : i + ENTRY_BYTES]) for i in range(0, len(data), ENTRY_BYTES)]

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def first(self, holds: Callable[[Entry], bool]) -> tuple[int, Entry] | None:
        """The first entry for which `holds`, with its number, by bisection: `holds` must stay true once it is true.

        IndexError when an entry on the way is not sound: the caller reads the data file instead.
        """
        low, high = 0, self.count()
        found = None
        while low < high:
            middle = (low + high) // 2
            entry = self.read(middle)
            if entry is None:
                if middle + 1 == high:
                    # The newest entries may just be being written.
                    high = middle
                    continue
                raise IndexError(middle)
            if holds(entry):
                found, high = (middle, entry), middle
            else:
                low = middle + 1
        return found

    def sound_count(self, settled: int) -> int:
        """How many entries from the start can be trusted after a crash.

        Entries of blocks that begin before `settled` were synced; newer ones may be lost or torn in any pattern.
        """
        low = self.count()
        while low > 0:
            low -= min(low, 1024)
            entry = self.read(low)
            if entry is not None and entry.offset < settled:
                break
        expected = None
        while chunk := self.read_many(low, 4096):
            for entry in chunk:
                if entry is None or (expected is not None and entry.offset != expected):
                    return low
                expected = entry.end
                low += 1
        return low

    def _pack(self, entry: Entry) -> bytes:
        head = _ENTRY.pack(
            entry.offset, entry.length, entry.count, entry.rows_before, entry.when_max, entry.epoch, entry.crc, 0
        )[:-4]
        return head + crc32(head, self._seed).to_bytes(4, "little")

    def _unpack(self, data: bytes) -> Entry | None:
        if len(data) != ENTRY_BYTES or crc32(data[:-4], self._seed) != int.from_bytes(data[-4:], "little"):
            return None
        return Entry(*_ENTRY.unpack(data)[:-1])


class Marks:
    """One open `.txn` file: a sparse index of transactions, a mark per domain and stretch of the file."""

    def __init__(self, file: File, sync: bytes) -> None:
        self._file = file
        self._seed = crc32(sync)

    def write(self, at: int, marks: Iterable[Mark]) -> None:
        self._file.pwrite(b"".join(map(self._pack, marks)), at * MARK_BYTES)

    def read(self) -> Iterator[Mark]:
        """All sound marks, in file order. A file holds few: one per domain and 64 KiB of data."""
        data = self._load()
        for at, mark in enumerate(_MARK.iter_unpack(data)):
            if self._is_sound(data, at, mark):
                yield Mark(*mark[:-1])

    def first(self, domain: int, sequence: int) -> Mark | None:
        """The first mark of the domain that reaches the sequence. Only that one's checksum is looked at."""
        data = self._load()
        for at, mark in enumerate(_MARK.iter_unpack(data)):
            if mark[0] == domain and mark[1] >= sequence and self._is_sound(data, at, mark):
                return Mark(*mark[:-1])
        return None

    def _load(self) -> bytes:
        data = self._file.pread(self._file.size(), 0)
        return data[: len(data) // MARK_BYTES * MARK_BYTES]

    def _is_sound(self, data: bytes, at: int, mark: tuple[int, ...]) -> bool:
        start = at * MARK_BYTES
        return crc32(data[start : start + MARK_BYTES - 4], self._seed) == mark[-1]

    def cut(self, count: int) -> None:
        self._file.truncate(count * MARK_BYTES)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def _pack(self, mark: Mark) -> bytes:
        head = _MARK.pack(*mark, 0)[:-4]
        return head + crc32(head, self._seed).to_bytes(4, "little")
