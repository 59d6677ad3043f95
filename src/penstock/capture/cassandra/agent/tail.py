"""Tail: reads the segments of one node in order, each to its very end, and says when an end is an end.

A live segment is read entry by entry as it is written, or only as far as the node has synced it. When nothing more
comes from a segment, that alone proves nothing: a write may have its place in it and not be there yet. A segment is
finished when nobody can write to it any more *and* a look taken after that was known finds nothing. That nobody can
write is known when

- its index file says COMPLETED; or
- it was moved into cdc_raw, as Cassandra up to 3.11 does with segments it is done with; or
- a segment with a higher id was synced. A node syncs its segments in order and waits for the writes under way in each,
  so the marker in a newer one comes after the last entry of an older one. A segment that a dead node left behind ends
  this way too, when the node's next life has synced something; the spare segment that waits beside the live one has no
  marker and proves nothing.

Segments are opened as soon as they are seen, so that one that is deleted before its turn can still be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import structlog

from penstock.capture.cassandra.agent.directory import Listing, SegmentDirectory, SegmentFile
from penstock.capture.cassandra.segments.sections import Damage, Section, SegmentReader
from penstock.errors import CorruptSegment, PenstockError, StorageError, UnsupportedFormat
from penstock.settings import TailMode
from penstock.system.clock import Clock

if TYPE_CHECKING:
    from penstock.capture.cassandra.agent.place import FinishedSegments
    from penstock.capture.cassandra.segments.keystore import KeyStore

log = structlog.get_logger()

# So many segments are held open ahead of the one that is read.
_AHEAD_MAX = 64


class Opened(NamedTuple):
    """A segment was begun, or gone on with after a restart."""

    reader: SegmentReader
    file: SegmentFile


class Ended(NamedTuple):
    """Everything of a segment was handed out; `refusal` says why it could not be read at all."""

    file: SegmentFile
    position: int
    damage: tuple[Damage, ...] = ()
    refusal: PenstockError | None = None
    # It went before it could be opened.
    lost: bool = False


@dataclass
class _Segment:
    """The segment that is being read."""

    file: SegmentFile
    reader: SegmentReader
    position: int
    final: bool = False
    damage: list[Damage] = field(default_factory=list)
    # What is left of the sections of a segment that nobody writes any more, when only synced bytes count.
    sections: Iterator[Section | Damage] | None = None


class Tail:
    """The one reader of a node's segments. Not for several threads."""

    def __init__(
        self,
        directory: SegmentDirectory,
        finished: FinishedSegments,
        clock: Clock,
        *,
        mode: TailMode = TailMode.WRITTEN,
        keys: KeyStore | None = None,
        start: tuple[int, int] | None = None,
        scan_s: float = 0.1,
    ) -> None:
        self.listing = Listing()
        self._directory = directory
        self._finished = finished
        self._clock = clock
        self._mode = mode
        self._keys = keys
        self._start = start
        self._scan_s = scan_s
        self._scanned = -scan_s
        # Whether a segment may wait to be begun: the last look through the directory may have found one.
        self._waits = True
        self._ahead: dict[int, SegmentReader] = {}
        # Segments that had an index file, and so changes of CDC tables.
        self._indexed: set[int] = set()
        self._marked: set[int] = set()
        self._current: _Segment | None = None

    @property
    def segment(self) -> SegmentFile | None:
        """The segment that is being read."""
        return self._current.file if self._current is not None else None

    @property
    def position(self) -> int:
        """How far it was read; -1 when there is none."""
        return self._current.position if self._current is not None else -1

    @property
    def reader(self) -> SegmentReader | None:
        """The reader of the segment that is being read."""
        return self._current.reader if self._current is not None else None

    def rest_s(self) -> float:
        """For how long nothing can come: without a segment, until the directory is looked through again."""
        if self._current is not None or self._waits:
            return 0.0
        return max(0.0, self._scanned + self._scan_s - self._clock.monotonic())

    def moved(self, position: int) -> None:
        """Everything up to `position` was taken over by the caller."""
        assert self._current is not None, "only what was opened is read"
        self._current.position = position

    def note(self, damage: Damage) -> None:
        """Damage that was found while decoding what was read last."""
        if self._current is not None:
            self._current.damage.append(damage)

    def read(self) -> Section | Damage | Opened | Ended | None:
        """What comes next; None when there is nothing now. After a section the caller says how far it came."""
        self._look()
        current = self._current
        if current is None:
            return self._open_next() if self._waits else None
        while True:
            item = self._read_on(current)
            if isinstance(item, Damage):
                current.damage.append(item)
            if item is not None:
                return item
            if current.final:
                return self._end(current)
            # Known before the next look, which is what makes that look the last one.
            current.final = self._is_closed(current.file)
            if not current.final:
                return None

    def close(self) -> None:
        for reader in self._ahead.values():
            reader.close()
        self._ahead.clear()
        if self._current is not None:
            self._current.reader.close()
            self._current = None

    # Reading one segment.

    def _read_on(self, current: _Segment) -> Section | Damage | None:
        if self._mode is TailMode.WRITTEN:
            return current.reader.live(current.position, final=current.final)
        if current.final:
            # Beyond the last marker nothing was synced, and a node that comes back does not know of it either.
            if current.sections is None:
                current.sections = current.reader.sections(current.position, written=False)
            return self._next_section(current, current.sections)
        index = self._directory.index(current.file)
        if index is None or index.offset <= current.position:
            return None
        item = current.reader.live(current.position)
        if isinstance(item, Section) and item.start + len(item.data) > index.offset:
            return None
        return item

    @staticmethod
    def _next_section(current: _Segment, sections: Iterator[Section | Damage]) -> Section | Damage | None:
        for item in sections:
            if isinstance(item, Damage) or item.start + len(item.data) > current.position:
                return item
        return None

    def _end(self, current: _Segment) -> Ended:
        self._current = None
        self._waits = True
        current.reader.close()
        return Ended(current.file, current.position, tuple(current.damage))

    # Which segment is next, and whether one is closed.

    def _look(self) -> None:
        """Look through the directory, now and then."""
        now = self._clock.monotonic()
        if now - self._scanned < self._scan_s:
            return
        self._scanned = now
        self._waits = True
        self.listing = self._directory.scan()
        present = set()
        for file in self.listing.segments:
            present.add(file.id)
            if file.index_path is not None:
                self._indexed.add(file.id)
            waits = file.id not in self._finished and file.id not in self._ahead and file.id != self._current_id()
            if waits and len(self._ahead) < _AHEAD_MAX:
                self._open_ahead(file)
        if self._current is not None:
            self._renew(self._current)
        for id_ in [id_ for id_ in self._ahead if id_ in self._finished]:
            self._ahead.pop(id_).close()
        self._indexed &= present | set(self._ahead)
        self._marked &= present | set(self._ahead)

    def _renew(self, current: _Segment) -> None:
        """Know of the index file that has appeared, or of the move into cdc_raw, since the segment was opened."""
        for file in self.listing.segments:
            if file.id == current.file.id:
                current.file = file

    def _open_ahead(self, file: SegmentFile) -> None:
        try:
            self._ahead[file.id] = SegmentReader(file.path, keys=self._keys)
        except (CorruptSegment, UnsupportedFormat, StorageError):
            # Just being made, gone, or not ours to read: its turn will tell which.
            return

    def _current_id(self) -> int | None:
        return self._current.file.id if self._current is not None else None

    def _open_next(self) -> Opened | Ended | None:
        """Begin the segment with the lowest id that is not finished."""
        listed = {file.id: file for file in self.listing.segments}
        waiting = sorted(id_ for id_ in listed.keys() | self._ahead.keys() if id_ not in self._finished)
        if self._start is not None and self._start[0] not in listed and self._start[0] not in self._finished:
            # What was left of it was not read. A segment without changes of CDC tables goes when the node has no more
            # use for it, so this need not be a loss, and nobody can tell.
            log.error("segment gone before it was read to its end", segment=self._start[0], position=self._start[1])
            gone, self._start = self._start, None
            return Ended(_unseen(gone[0]), gone[1], lost=True)
        if not waiting:
            self._waits = False
            return None
        id_ = waiting[0]
        reader = self._ahead.pop(id_, None)
        file = listed.get(id_) or _unseen(id_, reader)
        if reader is None:
            try:
                reader = SegmentReader(file.path, keys=self._keys)
            except (CorruptSegment, UnsupportedFormat, StorageError) as error:
                return self._refused(file, error)
        position = self._start[1] if self._start is not None and self._start[0] == id_ else 0
        self._start = None if position else self._start
        self._current = _Segment(file, reader, position)
        return Opened(reader, file)

    def _refused(self, file: SegmentFile, error: PenstockError) -> Ended | None:
        """A segment that does not open: perhaps it is being made, perhaps it has gone, perhaps it is not for us."""
        if isinstance(error, CorruptSegment) and not self._is_closed(file):
            return None
        if isinstance(error, StorageError) and not self._is_listed(file):
            lost = file.id in self._indexed
            if lost:
                log.error("segment gone before it was read", segment=file.name.name)
            return Ended(file, 0, lost=lost)
        if isinstance(error, CorruptSegment) and self._is_blank(file):
            # A spare segment that was never used: nothing was ever in it.
            return Ended(file, 0)
        if isinstance(error, StorageError):
            raise error
        return Ended(file, 0, refusal=error)

    def _is_listed(self, file: SegmentFile) -> bool:
        self._scanned = -self._scan_s
        self._look()
        return any(other.id == file.id for other in self.listing.segments)

    @staticmethod
    def _is_blank(file: SegmentFile) -> bool:
        try:
            with open(file.path, "rb") as opened:
                return not any(opened.read(4096))
        except OSError:
            return False

    def _is_closed(self, file: SegmentFile) -> bool:
        """Whether nobody can write to the segment any more."""
        if file.is_moved:
            return True
        index = self._directory.index(file)
        if index is not None and index.completed:
            return True
        if any(other.id > file.id and self._proves(other, file) for other in self.listing.segments):
            return True
        # Newer ones that are deleted already prove as much.
        return any(id_ > file.id and reader.has_marker() for id_, reader in self._ahead.items())

    def _proves(self, newer: SegmentFile, file: SegmentFile) -> bool:
        """Whether the newer segment shows that nobody writes to this one. A node has one format as long as it lives."""
        return newer.name.format != file.name.format or self._was_synced(newer)

    def _was_synced(self, file: SegmentFile) -> bool:
        """Whether the node has synced the segment at least once."""
        if file.id in self._marked or file.is_moved or file.index_path is not None:
            return True
        reader = self._ahead.get(file.id)
        if reader is not None and reader.has_marker():
            self._marked.add(file.id)
            return True
        return False


def _unseen(id_: int, reader: SegmentReader | None = None) -> SegmentFile:
    """A segment that is not in the directory any more."""
    from penstock.capture.cassandra.segments.segment import SegmentName, segment_name

    name = segment_name(reader.name) if reader is not None else None
    path = reader.path if reader is not None else ""
    return SegmentFile(name or SegmentName(0, id_, f"segment {id_}"), path, 0, in_cdc_raw=False)
