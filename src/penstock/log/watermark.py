"""The watermark: how far the log is durable, told to every reader on the machine.

One small file, overwritten in place after each commit. Readers in any process go no further than it says, and waiting
readers are woken by its being written. It is published only after the data is durable, so it can be behind the truth
after a crash, never ahead of it. It also carries the writer's epoch: a writer that finds a higher one has been fenced.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.model.position import START, Position
from penstock.system.checksum import crc32
from penstock.system.files import File

NAME = "watermark"
# magic, epoch, file, end of the durable bytes, position of the last change, changes in all; then the checksum
_HEAD = struct.Struct("<8sQQQQQQQ")
_MAGIC = b"PSTKWMK\x01"
SIZE = _HEAD.size + 4


@dataclass(frozen=True, slots=True)
class Watermark:
    """The durable end of a log."""

    epoch: int
    file: int
    # The byte after the last durable block of `file`.
    end: int
    # The file of the last change; zero while the log is empty.
    last: Position = START
    rows: int = 0

    def pack(self) -> bytes:
        return pack(self.epoch, self.file, self.end, self.last, self.rows)


def pack(epoch: int, file: int, end: int, last: Position, rows: int) -> bytes:
    """The bytes of a watermark."""
    head = _HEAD.pack(_MAGIC, epoch, file, end, *last, rows)
    return head + crc32(head).to_bytes(4, "little")


def unpack(data: bytes) -> Watermark | None:
    """The watermark in `data`, or None when it is torn or no watermark."""
    if len(data) != SIZE or crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    magic, epoch, file, end, last_file, last_offset, last_ordinal, rows = _HEAD.unpack(data[:-4])
    if magic != _MAGIC:
        return None
    return Watermark(epoch, file, end, Position(last_file, last_offset, last_ordinal), rows)


def read(file: File) -> Watermark | None:
    """The watermark as it stands. A reader may catch the writer in the act, hence the second and third look."""
    for _ in range(3):
        found = unpack(file.pread(SIZE, 0))
        if found is not None:
            return found
    return None
