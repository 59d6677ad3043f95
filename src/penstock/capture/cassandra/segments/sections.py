"""SegmentReader: the sections of one commit-log segment, finished or still being written.

A segment is a chain of sections. Each begins with a sync marker that says where the next one begins; Cassandra writes
the marker after all that it covers, every 100 ms or at every sync. In a plain segment the entries themselves are in the
file milliseconds after the write, before their marker is: such a section is handed out too, not `sealed`, and each
entry's own checksum tells whether it is whole yet. Compressed and encrypted sections appear only as a whole.

Positions are Cassandra's own, called logical here: file offsets in a plain segment; elsewhere what the offsets would be
if nothing were compressed. Damage is returned, not raised, and reading goes on behind it where that is possible: a bad
section is left out, a bad marker ends the segment, because nothing says where the next one would be. Only in a plain
segment that nobody writes any more, entries are searched for by their checksums. The file may be unlinked or cut while
it is read; it is read by `pread`, never mapped.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.capture.cassandra.segments import compression
from penstock.capture.cassandra.segments.segment import HEADER_BYTES_MAX, read_header, segment_name
from penstock.errors import KeyStoreError, UnsupportedFormat
from penstock.log.refusal import refused
from penstock.system.checksum import crc32
from penstock.system.files import Files, OsFiles

if TYPE_CHECKING:
    # Only encrypted segments need them, and they are slow to import.
    from penstock.capture.cassandra.segments.ciphers import SectionCipher
    from penstock.capture.cassandra.segments.keystore import KeyStore

MARKER_BYTES = 8
# Size, its checksum, and after the mutation the checksum of both.
ENTRY_OVERHEAD_BYTES = 12
# Cassandra takes no shorter mutation for one, so neither do we.
MUTATION_BYTES_MIN = 10
# What is read at once beyond the last marker, and of a long section, so that it stays in the processor's cache; both
# grow to an entry's size where needed.
_TAIL_BYTES_MIN = 64 << 10
_TAIL_BYTES_MAX = 4 << 20
_PIECE_BYTES = 256 << 10
# Where an entry's size may begin: an entry has less than 16 MiB, and more than none.
_SIZE = re.compile(rb"\0(?!\0\0\0)")
_ZEROS = bytes(_TAIL_BYTES_MIN)
# How many such places of a segment are looked at for entries that a killed node left behind a hole.
_SEARCHES_MAX = 1 << 18

_MARKER = struct.Struct(">iI")
_MARKER_CHECKED = struct.Struct(">III")
_LENGTH = struct.Struct(">i")
_ENTRY_HEAD = struct.Struct(">iI")


class Section(NamedTuple):
    """Entries one after another, decompressed and decrypted, without the marker; perhaps zeros behind the last.

    `start` is the logical position of the first byte. In a sealed section a bad entry is damage; in another one it is
    not written yet: stop there and ask again.
    """

    data: memoryview | bytes
    start: int
    sealed: bool


class Damage(NamedTuple):
    """Bytes that are not what was written: where, and what they were to be.

    `what` is header, marker, section, entry size, entry or mutation.
    """

    file: str
    offset: int
    position: int
    what: str
    message: str


class _Marker(NamedTuple):
    """A marker as found: the file offset of the next one, and why it cannot be believed. No end: not written."""

    end: int | None
    problem: str | None = None
    # The first word after it: the section's length, where it is compressed or encrypted.
    length: int = 0


_UNWRITTEN = _Marker(None)


class SegmentReader:
    """One open segment. Raises what opening the file raises, CorruptSegment, UnsupportedFormat or KeyStoreError."""

    def __init__(self, path: str, *, keys: KeyStore | None = None, files: Files | None = None) -> None:
        self.path = path
        self.name = path.rpartition("/")[2]
        try:
            self._file = (files or OsFiles()).open(path)
        except OSError as error:
            raise refused(error, "opening a commit-log segment", path) from error
        try:
            self.header = read_header(self._pread(HEADER_BYTES_MAX, 0), path)
            self._cipher = self._open_cipher(keys)
            self._check_compressor()
        except BaseException:
            self._file.close()
            raise
        # Every marker's checksum begins with the segment's id, low half first.
        self._id_halves = self.header.id & 0xFFFFFFFF, self.header.id >> 32 & 0xFFFFFFFF
        self._rewind()
        self._asked = 0
        self._tail_bytes = _TAIL_BYTES_MIN
        self._said_header = False

    def _open_cipher(self, keys: KeyStore | None) -> SectionCipher | None:
        encryption = self.header.encryption
        if encryption is None:
            return None
        if keys is None:
            raise KeyStoreError("the segment is encrypted and no key store is given", file=self.path)
        from penstock.capture.cassandra.segments.ciphers import SectionCipher

        return SectionCipher(encryption, keys.key(encryption.alias), self.path)

    def _check_compressor(self) -> None:
        name = self.header.compression
        if name is not None and not compression.is_known(name):
            raise UnsupportedFormat(f"the compressor {name[:80]!r} is not known", file=self.path)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The whole segment.

    def sections(self, after: int = 0, *, written: bool = True) -> Iterator[Section | Damage]:
        """All sections as they are now, from the one that holds the logical position `after`.

        With `written`, the entries behind the last marker, or in a section that the file's end cuts, come last as a
        section that is not sealed; without it there is only what the markers vouch for, as Cassandra itself reads.
        """
        if (damage := self._header_damage()) is not None:
            yield damage
        offset = position = self.header.size
        while (marker := self._marker(offset)).end is not None:
            end, size = marker.end, self._size()
            if marker.problem is not None:
                yield self._damage(offset, position, "marker", marker.problem)
                return
            if end > size and self._cipher is None:
                tail = self._written(max(after, position + MARKER_BYTES)) if written else None
                if tail is not None:
                    yield tail
                yield self._damage(offset, position, "section", f"the file ends inside it, at {size}")
                return
            after_section = end if self.header.is_plain else _position_after(position, marker.length)
            if after_section > after:
                yield from self._read(offset, position, marker)
            offset, position = end, after_section
        tail = self._written(max(after, offset + MARKER_BYTES)) if written else None
        if tail is not None:
            yield tail

    def _written(self, start: int) -> Section | None:
        """What no marker covers yet; only a plain segment has it."""
        return self._tail(start, self._size()) if self.header.is_plain else None

    def _read(self, offset: int, position: int, marker: _Marker) -> Iterator[Section | Damage]:
        """One section that the marker at `offset` covers, whole, and what is wrong with it."""
        assert marker.end is not None
        start = position + MARKER_BYTES
        if self.header.is_plain:
            data = self._pread(marker.end - offset - MARKER_BYTES, offset + MARKER_BYTES)
            if data:
                yield Section(data, start, sealed=True)
            return
        begin = offset + MARKER_BYTES + _LENGTH.size
        stored = memoryview(self._pread(max(marker.end - begin, 0), begin))
        problem = None
        try:
            if self._cipher is not None:
                from penstock.capture.cassandra.segments.ciphers import decrypt_section

                made, problem = decrypt_section(self._cipher, stored, marker.length)
            else:
                made, problem = compression.decompress(self.header.compression or "", stored, marker.length)
        except ValueError as error:
            yield self._damage(offset, position, "section", str(error))
            return
        if made:
            yield Section(made, start, sealed=True)
        if problem is not None:
            yield self._damage(offset, position, "section", problem)

    # The live segment.

    def live(self, after: int, *, final: bool = False) -> Section | Damage | None:
        """What follows the logical position `after`, an entry's or a section's end; None when nothing does yet.

        What is returned starts at `after`, or behind the next marker. Calling it again with the position that was
        reached goes on from there, and calling it with the same one after damage skips the damage. Damage of a marker
        looks like a marker that is just being written: it is returned only when `final` says that nobody writes.
        """
        if not self._said_header and (damage := self._header_damage()) is not None:
            self._said_header = True
            return damage
        if after < self._asked:
            self._rewind()
        self._asked = after
        while not self._stopped:
            marker = self._marker(self._offset)
            if marker.end is None or marker.problem is not None:
                return self._unmarked(after, marker, final=final)
            if self.header.is_plain:
                if after < marker.end:
                    found = self._sealed_piece(after, marker.end, final=final)
                    if found is not None or marker.end > self._size():
                        return found
                self._move(marker.end, marker.end)
                continue
            behind = _position_after(self._position, marker.length)
            if after < behind:
                if marker.end > (size := self._size()) and (not final or self._cipher is None):
                    return self._cut(size) if final else None
                if (item := self._whole(after, marker)) is not None:
                    return item
            self._move(marker.end, behind)
        return None

    def at_end(self, after: int) -> bool:
        """Whether `after` is the end of all that can be read now."""
        return self.live(after) is None

    def has_marker(self) -> bool:
        """Whether the node has synced the segment: a marker that can be believed stands behind the header."""
        marker = self._marker(self.header.size)
        return marker.end is not None and marker.problem is None

    def _rewind(self) -> None:
        # Where the first section that was not handed out yet has its marker, in the file and logically.
        self._offset = self._position = self.header.size
        self._stopped = False
        self._searchable = _SEARCHES_MAX
        # Markers whose damage was told.
        self._said: set[int] = set()
        self._pending: list[Section | Damage] = []

    def _move(self, offset: int, position: int) -> None:
        self._offset, self._position = offset, position
        self._tail_bytes = _TAIL_BYTES_MIN
        self._pending = []

    def _unmarked(self, after: int, marker: _Marker, *, final: bool) -> Section | Damage | None:
        """At a marker that is not there, or that cannot be believed."""
        if self.header.is_plain:
            tail = self._tail(max(after, self._offset + MARKER_BYTES), self._size(), self._tail_bytes)
            if tail is not None:
                # A reader that falls behind gets more at once.
                full = len(tail.data) >= _TAIL_BYTES_MIN and tail.data[-1]
                self._tail_bytes = min(2 * self._tail_bytes, _TAIL_BYTES_MAX) if full else _TAIL_BYTES_MIN
                return tail
        if not final:
            return None
        if marker.problem is not None and self._offset not in self._said:
            self._said.add(self._offset)
            return self._damage(self._offset, self._position, "marker", marker.problem)
        found = self._stranded(max(after, self._offset + MARKER_BYTES)) if self.header.is_plain else None
        self._stopped = found is None
        return found

    def _stranded(self, start: int) -> Section | None:
        """The next whole entry behind a place where none is, in a plain segment that a killed node has left.

        Writers finish in any order, and the room for a marker is taken before the marker is written. So entries that
        clients were told of may stand behind a hole: zeros, or as much as one writer got done. Nothing tells its
        length, but an entry has two checksums to be known by.
        """
        size = self._size()
        while start < size:
            data = self._pread(min(_TAIL_BYTES_MIN, size - start), start)
            if data == _ZEROS:
                # The last of them may belong to a size.
                start += len(data) - 3
                continue
            at = 0
            while (match := _SIZE.search(data, at)) is not None:
                at = match.start()
                if len(data) - at < _ENTRY_HEAD.size or not self._searchable:
                    break
                self._searchable -= 1
                if _begins_entry(data, at) and (found := self._tail(start + at, size, self._tail_bytes)) is not None:
                    return found
                at += 1
            if match is None:
                at = len(data)
            if not at or not self._searchable:
                return None
            start += at
        return None

    def _sealed_piece(self, after: int, end: int, *, final: bool) -> Section | Damage | None:
        """The rest of a plain section from `after`, or some of it when it is long."""
        start = max(after, self._offset + MARKER_BYTES)
        size = self._size()
        if end > size:
            # A file that grows by direct I/O shows the marker before the last blocks; else it was cut.
            tail = self._tail(start, size, self._tail_bytes)
            return self._cut(size) if tail is None and final else tail
        if end - start > _PIECE_BYTES:
            # The last entry of the piece may be cut: then the piece is as good as not sealed, and the rest follows.
            piece = self._tail(start, end, _PIECE_BYTES)
            if piece is not None:
                return piece
        data = self._pread(end - start, start)
        return Section(data, start, sealed=True) if data else None

    def _cut(self, size: int) -> Damage:
        self._stopped = True
        return self._damage(self._offset, self._position, "section", f"the file ends inside it, at {size}")

    def _whole(self, after: int, marker: _Marker) -> Section | Damage | None:
        """A compressed or encrypted section from `after` on; damage in it first, and then what is good."""
        if not self._pending:
            self._pending = list(self._read(self._offset, self._position, marker))
        if not self._pending:
            return None
        if len(self._pending) > 1 or isinstance(self._pending[0], Damage):
            found = self._pending.pop()
            if isinstance(found, Damage) and not self._pending:
                assert marker.end is not None
                self._move(marker.end, _position_after(self._position, marker.length))
            return found
        (found,) = self._pending
        assert isinstance(found, Section)
        if after <= found.start:
            return found
        return Section(found.data[after - found.start :], after, sealed=True)

    # Bytes.

    def _marker(self, offset: int) -> _Marker:
        """The marker at a file offset. One that is seen for the first time is read twice.

        Its two words are not written at once, and ours is not one look either: end may be from before the checksum was
        stored. The second look comes after the checksum was seen, and so after the end was stored.
        """
        found = self._pread(MARKER_BYTES + _LENGTH.size, offset)
        if len(found) < MARKER_BYTES:
            return _UNWRITTEN
        end, stored = _MARKER.unpack_from(found)
        if not end and not stored:
            return _UNWRITTEN
        if stored != crc32(_MARKER_CHECKED.pack(*self._id_halves, offset & 0xFFFFFFFF)):
            return _Marker(end, "the sync marker has a wrong checksum")
        found = self._pread(MARKER_BYTES + _LENGTH.size, offset)
        if len(found) < MARKER_BYTES:
            return _UNWRITTEN
        end, stored = _MARKER.unpack_from(found)
        least = offset + MARKER_BYTES
        if not self.header.is_plain:
            least += _LENGTH.size
        if end < least:
            return _Marker(end, f"the sync marker points back, to {end}")
        if self.header.is_plain:
            return _Marker(end)
        if len(found) < MARKER_BYTES + _LENGTH.size:
            return _Marker(end, "the file ends behind the sync marker")
        (length,) = _LENGTH.unpack_from(found, MARKER_BYTES)
        return _Marker(end, None, length)

    def _tail(self, start: int, end: int, wanted: int | None = None) -> Section | None:
        """What stands from `start` on if a whole entry does, up to `end`; `wanted` bytes or one entry if that is more.

        Checking the first entry keeps the polling cheap and makes None mean that nothing new is there.
        """
        head = self._pread(_ENTRY_HEAD.size, start) if start < end else b""
        if len(head) < _ENTRY_HEAD.size:
            return None
        size, stored = _ENTRY_HEAD.unpack(head)
        whole = size + ENTRY_OVERHEAD_BYTES
        if size < MUTATION_BYTES_MIN or stored != crc32(head[:4]) or start + whole > end:
            return None
        data = self._pread(end - start if wanted is None else min(max(wanted, whole), end - start), start)
        if len(data) < whole:
            return None
        view = memoryview(data)
        if crc32(view[8 : 8 + size], stored).to_bytes(4, "big") != view[8 + size : whole]:
            return None
        return Section(view, start, sealed=False)

    def _size(self) -> int:
        try:
            return self._file.size()
        except OSError as error:
            raise refused(error, "reading a commit-log segment", self.path) from error

    def _pread(self, size: int, offset: int) -> bytes:
        try:
            return self._file.pread(size, offset)
        except OSError as error:
            raise refused(error, "reading a commit-log segment", self.path) from error

    def _header_damage(self) -> Damage | None:
        named = segment_name(self.name)
        if named is None or (named.format, named.id) == (self.header.format, self.header.id):
            return None
        found = f"format {self.header.format} and id {self.header.id}"
        return self._damage(0, 0, "header", f"the header has {found}, which the file's name has not")

    def _damage(self, offset: int, position: int, what: str, message: str) -> Damage:
        return Damage(self.name, offset, position, what, message)


def _begins_entry(data: bytes, at: int) -> bool:
    """Whether a size and its checksum stand there."""
    _, stored = _ENTRY_HEAD.unpack_from(data, at)
    return bool(stored == crc32(data[at : at + 4]))


def _position_after(position: int, length: int) -> int:
    """Where the next marker stands logically. A length that cannot be counts as none."""
    return position + MARKER_BYTES + (length if 0 <= length <= compression.SECTION_BYTES_MAX else 0)
