"""CommitLogWriter: a node's commit log on disk, with its CDC directory, as a Cassandra of the same format leaves it.

    log = CommitLogWriter("commitlog", "cdc_raw", format=7)
    log.append(create_table(table, time_us))        # so that a reader learns the schema from the log alone
    log.append([(table, changes)])                  # one mutation: one partition, one or more tables
    log.sync()                                      # marker, fdatasync, index file
    log.close()                                     # the index file says COMPLETED

From format 7 on each segment is linked into `cdc_raw` as soon as it exists, and an index file follows at the first sync
after a change of a CDC table. Format 6 has neither: a segment moves to `cdc_raw` when it is discarded. Entries of a
plain segment are in the file when `append` returns; `mark` (every 100 ms in Cassandra) and `sync` are the caller's,
unless `batch` makes every append a sync. `abandon` leaves all as kill -9 does, and `recover` does what Cassandra's
replay does at the next start. Real files only; one writer for a directory.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import ENTRY_OVERHEAD_BYTES, Damage, SegmentReader
from penstock.capture.cassandra.segments.segment import COMPLETED, Encryption, index_name, segment_name
from penstock.errors import InvalidInput, InvalidValue
from penstock.sandbox.commit_log.mutation import Mutation, encode_mutation
from penstock.sandbox.commit_log.segment_writer import SegmentKind, SegmentWriter
from penstock.system.clock import Clock, SystemClock

SEGMENT_BYTES = 32 << 20
# The first format of a Cassandra that links segments and writes index files.
_LINKED_FROM = 7


class LogPlace(NamedTuple):
    """Where a mutation ended."""

    segment: int
    position: int


class CommitLogWriter:
    """The commit log of one node."""

    def __init__(
        self,
        directory: str,
        cdc_directory: str,
        *,
        format: int = 7,  # noqa: A002 the word that Cassandra and the reader use
        compression: str | None = None,
        encryption: Encryption | None = None,
        key: bytes = b"",
        direct: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        batch: bool = False,
        spare: bool = False,
        durable: bool = True,
        clock: Clock | None = None,
    ) -> None:
        if direct and (compression or encryption):
            raise InvalidInput("a compressed or encrypted log is not written by direct I/O")
        self.directory = directory
        self.cdc_directory = cdc_directory
        self._kind = SegmentKind(format, compression, encryption, key, direct)
        self._segment_bytes = segment_bytes
        self._batch = batch
        self._durable = durable
        self._linked = format >= _LINKED_FROM
        os.makedirs(directory, exist_ok=True)
        os.makedirs(cdc_directory, exist_ok=True)
        used = [name.id for name in map(segment_name, os.listdir(directory)) if name is not None]
        # Ids rise even when the clock was set back.
        self._id = max((clock or SystemClock()).now_us() // 1000, max(used, default=0) + 1)
        self._closed: list[SegmentWriter] = []
        self._current = self._create()
        self._spare = self._create() if spare else None

    @property
    def segment(self) -> str:
        """The path of the segment that is written now."""
        return self._current.path

    @property
    def place(self) -> LogPlace:
        """Where the next mutation will begin."""
        return LogPlace(self._current.id, self._current.position)

    def append(self, mutation: bytes | Mutation, *, cdc: bool | None = None) -> LogPlace:
        """Write one mutation; where it ends. `cdc` says whether it counts as a change of a CDC table."""
        if isinstance(mutation, bytes):
            data, tracked = mutation, cdc is not False
        else:
            data = encode_mutation(mutation, self._kind.format)
            tracked = any(table.cdc for table, _ in mutation) if cdc is None else cdc
        if len(data) + ENTRY_OVERHEAD_BYTES > self._segment_bytes // 2:
            raise InvalidValue(f"a mutation of {len(data)} bytes is longer than half a segment")
        position = self._current.append(data)
        if position is None:
            self.roll()
            position = self._current.append(data)
            if position is None:
                raise InvalidValue(f"a mutation of {len(data)} bytes does not fit a segment")
        segment = self._current
        segment.contains_cdc |= tracked
        if self._batch:
            self.sync()
        return LogPlace(segment.id, position)

    def mark(self) -> None:
        """Write the sync marker, without making anything durable; the index file stays as it is."""
        self._current.mark()

    def sync(self) -> None:
        """Write the sync marker, make all before it durable, and say so in the index file."""
        self._current.mark()
        self._current.flush()
        self._write_index(self._current)

    def roll(self) -> None:
        """Close the segment and go on with the next."""
        self._complete(self._current)
        self._current = self._spare or self._create()
        if self._spare is not None:
            self._spare = self._create()

    def discard(self) -> list[str]:
        """Remove the closed segments, as when all their tables were flushed; the names of those left in `cdc_raw`."""
        kept = []
        for segment in self._closed:
            name = segment.path.rpartition("/")[2]
            if segment.contains_cdc:
                kept.append(name)
            if not self._linked and segment.contains_cdc:
                os.rename(segment.path, f"{self.cdc_directory}/{name}")
                continue
            os.unlink(segment.path)
            if self._linked and not segment.contains_cdc:
                _unlink(f"{self.cdc_directory}/{name}")
                _unlink(f"{self.cdc_directory}/{index_name(name)}")
        self._closed.clear()
        return kept

    def close(self) -> None:
        """Close as a drained node does. A spare segment stays, empty and without an index."""
        self._complete(self._current)
        if self._spare is not None:
            self._spare.abandon()

    def abandon(self) -> None:
        """Stop as a killed process does: no marker, no index."""
        for segment in (self._current, self._spare):
            if segment is not None:
                segment.abandon()

    def _create(self) -> SegmentWriter:
        self._id += 1
        name = f"CommitLog-{self._kind.format}-{self._id}.log"
        path = f"{self.directory}/{name}"
        made = SegmentWriter(path, self._id, self._kind, self._segment_bytes, durable=self._durable)
        if self._linked:
            os.link(path, f"{self.cdc_directory}/{name}")
        return made

    def _complete(self, segment: SegmentWriter) -> None:
        if segment.closed:
            return
        segment.close()
        self._write_index(segment)
        self._closed.append(segment)

    def _write_index(self, segment: SegmentWriter) -> None:
        if self._linked and segment.contains_cdc:
            name = index_name(segment.path.rpartition("/")[2])
            write_index(f"{self.cdc_directory}/{name}", segment.synced, completed=segment.closed)


def write_index(path: str, offset: int, *, completed: bool) -> None:
    """Write an index file as Cassandra does: cut to nothing first, then written, so that a reader may see less."""
    with open(path, "w", encoding="ascii") as file:
        file.write(str(offset))
        if completed:
            file.write(f"\n{COMPLETED}")


def recover(
    directory: str,
    cdc_directory: str,
    cdc_tables: Collection[UUID],
    *,
    below: int | None = None,
    keys: KeyStore | None = None,
) -> list[str]:
    """What Cassandra's replay leaves of the segments of a stopped node; the names that stay in `cdc_raw`.

    Every segment, or every one with an id `below`, is taken out of `directory`. One that holds a change of a CDC table
    is linked into `cdc_raw` if it is not there, with the file's length, not the data's, in its index file; format 6
    moves all of them, with no index.
    """
    kept = []
    for name in sorted(os.listdir(directory)):
        named = segment_name(name)
        if named is None or (below is not None and named.id >= below):
            continue
        path, linked, index = (f"{directory}/{name}", f"{cdc_directory}/{name}", f"{cdc_directory}/{index_name(name)}")
        if named.format < _LINKED_FROM:
            os.rename(path, linked)
            kept.append(name)
            continue
        if _holds(path, cdc_tables, keys):
            if not os.path.exists(linked):
                os.link(path, linked)
            write_index(index, os.path.getsize(path), completed=True)
        if os.path.exists(index):
            kept.append(name)
        else:
            _unlink(linked)
        os.unlink(path)
    return kept


def _holds(path: str, tables: Collection[UUID], keys: KeyStore | None) -> bool:
    """Whether a segment has a mutation that begins with one of these tables."""
    with SegmentReader(path, keys=keys) as reader:
        # The flags of format 9 and the number of updates, one byte as long as it is below 128.
        skip = 2 if reader.header.format >= 9 else 1
        for section in reader.sections(written=False):
            if isinstance(section, Damage):
                continue
            at = 0
            while at + ENTRY_OVERHEAD_BYTES <= len(section.data):
                (size,) = struct.unpack_from(">i", section.data, at)
                if size <= 0:
                    break
                start = at + 8 + skip
                if UUID(bytes=bytes(section.data[start : start + 16])) in tables:
                    return True
                at += size + ENTRY_OVERHEAD_BYTES
    return False


def _unlink(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
