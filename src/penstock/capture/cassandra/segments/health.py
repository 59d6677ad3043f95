"""Health of a cdc_raw directory: every segment read to its end, and what the index files say held against it.

A node leaves traces of all that went wrong: a segment that a crash cut, an index file that never says COMPLETED, one
whose segment is gone, a directory that is as full as it may get. `examine` finds them without changing anything, and
can run beside the node and the agent.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.capture.cassandra.agent.directory import SegmentDirectory, SegmentFile
from penstock.capture.cassandra.decoding.decoder import Decoder
from penstock.capture.cassandra.decoding.spooled_parking import CountingParking
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import MARKER_BYTES, Damage, Section, SegmentReader
from penstock.capture.cassandra.segments.segment import SegmentIndex, parse_index
from penstock.capture.cassandra.segments.segment_files import is_unused
from penstock.errors import PenstockError, StorageError

_STRETCH_BYTES = 4 << 20
_INDEX_BYTES_MAX = 64


class IndexState(StrEnum):
    """What a segment's index file is like."""

    MISSING = "missing"
    HALF_WRITTEN = "half-written"
    OPEN = "open"
    COMPLETED = "completed"


@dataclass(slots=True)
class SegmentHealth:
    """One segment. `end` is the position behind the last entry that could be read."""

    file: str
    format: int
    id: int
    bytes: int
    compression: str | None = None
    encryption: str | None = None
    index: IndexState = IndexState.MISSING
    index_offset: int | None = None
    unused: bool = False
    sections: int = 0
    # Whether entries stand behind the last sync marker, as in a segment that is being written.
    open_tail: bool = False
    end: int = 0
    entries: int = 0
    # Of the entries, those of tables that are not known.
    unknown: int = 0
    changes: int = 0
    damage: list[Damage] = field(default_factory=list)
    # Why it cannot be read at all.
    error: PenstockError | None = None
    # The node went on to a newer segment and never completed this one.
    abandoned: bool = False
    # A completed segment whose entries end before the place that its index file names.
    cut: bool = False

    @property
    def sound(self) -> bool:
        return not (self.damage or self.error is not None or self.abandoned or self.cut)


@dataclass(slots=True)
class DirectoryHealth:
    """A whole directory."""

    directory: str
    segments: list[SegmentHealth]
    # Of all files, as the node counts them against its limit.
    bytes: int
    limit: int | None
    orphans: list[str]
    foreign: int
    # By table that is not known: how many entries there are.
    unknown: dict[uuid.UUID, int]

    @property
    def full(self) -> bool:
        """Whether the node refuses writes to CDC tables, or is about to delete segments."""
        return self.limit is not None and self.bytes >= self.limit

    @property
    def sound(self) -> bool:
        return not (self.orphans or self.full) and all(segment.sound for segment in self.segments)


def examine(
    directory: str,
    schemas: Schemas,
    *,
    keys: KeyStore | None = None,
    limit: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> DirectoryHealth:
    """Read everything. `progress` gets the bytes of each segment that is done."""
    listing = SegmentDirectory(directory).scan()
    found: list[SegmentHealth] = []
    parking = CountingParking()
    decoder = Decoder(schemas, captures=lambda _: True, parking=parking)
    for file in listing.segments:
        found.append(_segment(file, decoder, keys))
        progress(file.bytes)
    _judge(found)
    orphans = sorted(path for _, path in listing.orphans)
    return DirectoryHealth(directory, found, listing.bytes, limit, orphans, listing.foreign, parking.counts)


def _segment(file: SegmentFile, decoder: Decoder, keys: KeyStore | None) -> SegmentHealth:
    health = SegmentHealth(file.name.name, file.name.format, file.id, file.bytes)
    health.index, said = _index(file)
    health.index_offset = None if said is None else said.offset
    try:
        if is_unused(file.path):
            health.unused = True
            return health
        with SegmentReader(file.path, keys=keys) as reader:
            health.compression = reader.header.compression
            health.encryption = None if reader.header.encryption is None else reader.header.encryption.cipher
            health.end = reader.header.size
            _read(reader, decoder, health)
    except PenstockError as error:
        health.error = error
    return health


def _read(reader: SegmentReader, decoder: Decoder, health: SegmentHealth) -> None:
    before = decoder.counts
    decoder.begin(reader.header, reader.name)
    for item in reader.sections():
        if isinstance(item, Damage):
            health.damage.append(item)
            continue
        health.sections += item.sealed
        health.open_tail |= not item.sealed
        health.end = max(health.end, _section(item, decoder))
        health.damage += decoder.damage
        decoder.damage.clear()
    after = decoder.counts
    health.unknown = after.parked - before.parked
    health.entries = after.mutations - before.mutations
    health.changes = after.changes - before.changes


def _section(section: Section, decoder: Decoder) -> int:
    reached = 0
    while True:
        after, reached = reached, decoder.decode(section, reached, _STRETCH_BYTES)
        decoder.take()
        if reached <= after or reached >= section.start + len(section.data):
            return reached


def _index(file: SegmentFile) -> tuple[IndexState, SegmentIndex | None]:
    if file.index_path is None:
        return IndexState.MISSING, None
    try:
        with open(file.index_path, "rb") as opened:
            said = parse_index(opened.read(_INDEX_BYTES_MAX))
    except FileNotFoundError:
        return IndexState.MISSING, None
    except OSError as error:
        raise StorageError(f"cannot read the index file: {error.strerror}", file=file.index_path) from error
    if said is None:
        return IndexState.HALF_WRITTEN, None
    return (IndexState.COMPLETED if said.completed else IndexState.OPEN), said


def _judge(segments: list[SegmentHealth]) -> None:
    """What only the neighbours tell: a segment is over when a newer one has data."""
    newer = False
    for health in reversed(segments):
        index = health.index
        health.abandoned = newer and index in (IndexState.OPEN, IndexState.HALF_WRITTEN)
        # After a crash the node writes the file's length, which is no place in the log.
        behind = health.index_offset is not None and health.index_offset not in (health.bytes, 0)
        if index is IndexState.COMPLETED and behind and health.error is None:
            # The last section may have nothing but its marker.
            health.cut = (health.index_offset or 0) > health.end + MARKER_BYTES
        newer |= health.sections > 0 or health.open_tail
