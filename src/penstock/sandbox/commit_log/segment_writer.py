"""SegmentWriter: one commit-log segment while it is written, byte for byte as Cassandra writes it.

A plain segment has its full length from the start, zero filled, and every entry is in the file at once; a sync marker
comes after what it covers. A compressed or encrypted one grows by a section at each marker. One by direct I/O is laid
out like a plain one and grows by whole blocks at each flush. Positions are logical, as in the reader.
"""

from __future__ import annotations

import json
import os
import struct
from typing import NamedTuple

from penstock.capture.cassandra.segments import compression
from penstock.capture.cassandra.segments.ciphers import SectionCipher, encrypt_section
from penstock.capture.cassandra.segments.sections import ENTRY_OVERHEAD_BYTES, MARKER_BYTES
from penstock.capture.cassandra.segments.segment import Encryption, header_checksum
from penstock.errors import InvalidValue
from penstock.system.checksum import crc32

BLOCK_BYTES = 4096

_HEAD = struct.Struct(">iqH")
_WORD = struct.Struct(">I")
_MARKER = struct.Struct(">iI")
_MARKER_CHECKED = struct.Struct(">III")


class SegmentKind(NamedTuple):
    """What the segments of a log look like."""

    format: int = 7
    # A compressor's class name, such as LZ4Compressor.
    compression: str | None = None
    encryption: Encryption | None = None
    key: bytes = b""
    direct: bool = False


def encode_header(kind: SegmentKind, id_: int) -> bytes:
    """A segment's header."""
    said: dict[str, object] = {}
    if kind.encryption is not None:
        cipher, alias, iv = kind.encryption
        said = {"encCipher": cipher, "encIV": iv.hex(), "encKeyAlias": alias}
    elif kind.compression is not None:
        said = {"compressionClass": kind.compression, "compressionParameters": {}}
    parameters = json.dumps(said, separators=(",", ":"), sort_keys=True).encode()
    head = _HEAD.pack(kind.format, id_, len(parameters))
    return head + parameters + _WORD.pack(header_checksum(kind.format, id_, parameters))


def encode_entry(mutation: bytes) -> bytes:
    """A mutation with its size and checksums."""
    size = _WORD.pack(len(mutation))
    checked = crc32(size)
    return b"".join((size, _WORD.pack(checked), mutation, _WORD.pack(crc32(mutation, checked))))


def encode_marker(id_: int, offset: int, end: int) -> bytes:
    """The sync marker at a file offset, pointing to the next one."""
    return _MARKER.pack(end, crc32(_MARKER_CHECKED.pack(id_ & 0xFFFFFFFF, id_ >> 32 & 0xFFFFFFFF, offset)))


class SegmentWriter:
    """One open segment. The file is created; it must not be there."""

    def __init__(self, path: str, id_: int, kind: SegmentKind, capacity: int, *, durable: bool = True) -> None:
        self.path = path
        self.id = id_
        self.kind = kind
        self.closed = False
        # Whether a change of a CDC table is in it.
        self.contains_cdc = False
        self._capacity = capacity
        self._durable = durable
        self._cipher = None if kind.encryption is None else SectionCipher(kind.encryption, kind.key, path)
        self._plain = kind.encryption is None and kind.compression is None
        header = encode_header(kind, id_)
        if len(header) + MARKER_BYTES >= capacity:
            raise InvalidValue(f"a segment of {capacity} bytes has no room for an entry")
        # The last marker, which is still zeros, and where the next entry goes.
        self._marker = len(header)
        self.position = len(header) + MARKER_BYTES
        # Up to where sections are written, in a file that grows.
        self._file_end = len(header)
        # The entries since the last marker, or with direct I/O the whole segment.
        self._pending = bytearray(header + bytes(MARKER_BYTES) if kind.direct else b"")
        self._flushed = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.pwrite(self._fd, header, 0)
        if kind.direct:
            os.ftruncate(self._fd, BLOCK_BYTES)
        elif self._plain:
            os.ftruncate(self._fd, capacity)

    def append(self, mutation: bytes) -> int | None:
        """Write a mutation; its position, or None when there is no room left."""
        size = len(mutation) + ENTRY_OVERHEAD_BYTES
        if self.position + size >= self._capacity:
            return None
        entry = encode_entry(mutation)
        if self._plain and not self.kind.direct:
            os.pwrite(self._fd, entry, self.position)
        else:
            self._pending += entry
        self.position += size
        return self.position

    def mark(self) -> None:
        """Write the marker of all since the last one, if there is anything."""
        if self.position > self._marker + MARKER_BYTES:
            self._write_section(self.position)
            self._marker = self.position
            # Where no further marker fits, nothing fits: the segment only has to be closed.
            if self.position + MARKER_BYTES < self._capacity:
                self.position += MARKER_BYTES
                if self.kind.direct:
                    self._pending += bytes(MARKER_BYTES)

    @property
    def synced(self) -> int:
        """What the index file says after a flush: where the next marker stands."""
        return self._marker

    def flush(self) -> None:
        """Make all that is marked durable."""
        if self.kind.direct:
            start = self._flushed // BLOCK_BYTES * BLOCK_BYTES
            end = -(-(self._marker + MARKER_BYTES) // BLOCK_BYTES) * BLOCK_BYTES
            blocks = bytes(self._pending[start:end])
            os.pwrite(self._fd, blocks + bytes(end - start - len(blocks)), start)
            self._flushed = self._marker
        if self._durable:
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Write the last section, perhaps an empty one, and close the file."""
        if self.closed:
            return
        if self.position > self._marker:
            self._write_section(self.position)
            self._marker = self.position
        self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Close the file as a killed process leaves it."""
        if not self.closed:
            self.closed = True
            os.close(self._fd)

    def _write_section(self, end: int) -> None:
        """The section from the last marker to `end`."""
        if self.kind.direct:
            self._pending[self._marker : self._marker + MARKER_BYTES] = encode_marker(self.id, self._marker, end)
            return
        if self._plain:
            os.pwrite(self._fd, encode_marker(self.id, self._marker, end), self._marker)
            return
        data = bytes(self._pending)
        self._pending.clear()
        offset = self._file_end
        if self._cipher is not None:
            body = encrypt_section(self._cipher, data)
        else:
            body = compression.compress(self.kind.compression or "", data)
        head_bytes = MARKER_BYTES + _WORD.size
        self._file_end = offset + head_bytes + len(body)
        head = encode_marker(self.id, offset, self._file_end) + _WORD.pack(len(data))
        if self._cipher is not None:
            # Cassandra writes the chunks first here, and the marker when all of them are there.
            os.pwrite(self._fd, body, offset + head_bytes)
            os.pwrite(self._fd, head, offset)
        else:
            os.pwrite(self._fd, head + body, offset)
