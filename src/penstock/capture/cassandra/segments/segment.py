"""A commit-log segment's outside: its name, its header, and the index file that tells how far it is synced.

All here is bytes in, values out (docs/formats/commit-log.md). A segment is `CommitLog-<format>-<id>.log`; Cassandra
keeps it in `commitlog`, and from 4.0 on links it into `cdc_raw`, where `CommitLog-<format>-<id>_cdc.idx` stands beside
it once it holds a change of a CDC table. Formats 6 (Cassandra 3.0 and 3.11), 7 (4.x, and 5.0 as installed), 8 (5.0) and
9 (6.0) can be read; any other is refused and its file left alone.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import CorruptSegment, UnsupportedFormat
from penstock.system import json_text
from penstock.system.checksum import crc32

FORMATS = (6, 7, 8, 9)
# Format, id and the length of the parameters before them; the checksum after them.
HEADER_BYTES_MIN = 4 + 8 + 2 + 4
HEADER_BYTES_MAX = HEADER_BYTES_MIN + 0xFFFF
# What the index file says after the offset once nothing more will be written.
COMPLETED = "COMPLETED"

_NAME = re.compile(r"CommitLog-(\d{1,9})-(\d{1,19})\.log", re.ASCII)
_INDEX_NAME = re.compile(r"(CommitLog-\d{1,9}-\d{1,19})_cdc\.idx", re.ASCII)
_INDEX = re.compile(rb"(\d{1,19})(?:\n(COMPLETED)?\n?|\n[A-Z]*)?")
# Before format 6, mutations are those of another storage engine.
_ANCIENT = range(1, min(FORMATS))
_HEAD = struct.Struct(">iqH")
_CHECKED = struct.Struct(">iIII")


class SegmentName(NamedTuple):
    """What a segment's file name says."""

    format: int
    id: int
    name: str


class SegmentIndex(NamedTuple):
    """How far the node has synced, as a logical position, and whether that was the last time."""

    offset: int
    completed: bool


class Encryption(NamedTuple):
    """What the header says of the encryption. `cipher` is Java's name, such as AES/CBC/PKCS5Padding."""

    cipher: str
    alias: str
    iv: bytes


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """A segment's header. `size` is its length in bytes, and so where the first sync marker stands."""

    format: int
    id: int
    size: int
    # The compressor's simple class name, None when sections are not compressed.
    compression: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    encryption: Encryption | None = None

    @property
    def is_plain(self) -> bool:
        """Whether sections stand in the file as they are, so that logical positions are file offsets."""
        return self.compression is None and self.encryption is None


def segment_name(name: str) -> SegmentName | None:
    """The parts of a segment's file name; None when it is no segment's."""
    match = _NAME.fullmatch(name)
    return None if match is None else SegmentName(int(match[1]), int(match[2]), name)


def index_name(name: str) -> str:
    """The name of a segment's index file."""
    return name.removesuffix(".log") + "_cdc.idx"


def segment_of_index(name: str) -> str | None:
    """The name of the segment that an index file belongs to; None when the name is no index file's."""
    match = _INDEX_NAME.fullmatch(name)
    return None if match is None else match[1] + ".log"


def parse_index(data: bytes) -> SegmentIndex | None:
    """What an index file says. None when it is empty or makes no sense, which is no news: ask again later.

    Cassandra truncates the file and writes it anew, so that a reader may catch a part of it. A number that was cut
    short is smaller than the true one, which does no harm; half of the word COMPLETED does not count as the word.
    """
    match = _INDEX.fullmatch(data)
    return None if match is None else SegmentIndex(int(match[1]), match[2] is not None)


def has_header(data: bytes) -> bool:
    """Whether a header was begun. A segment that was only just created is empty or all zeros."""
    return any(data[:HEADER_BYTES_MIN])


def header_checksum(format_: int, id_: int, parameters: bytes) -> int:
    """The header's CRC-32: the id's low half goes in before its high half, the length as four bytes."""
    unsigned = id_ & 0xFFFFFFFFFFFFFFFF
    return crc32(parameters, crc32(_CHECKED.pack(format_, unsigned & 0xFFFFFFFF, unsigned >> 32, len(parameters))))


def read_header(data: bytes, file: str) -> SegmentHeader:
    """The header at the start of `data`. Raises CorruptSegment, or UnsupportedFormat when it is of another format."""
    if not has_header(data):
        raise CorruptSegment("the segment has no header yet", file=file, bytes=len(data))
    named = segment_name(file.rpartition("/")[2])
    if len(data) < HEADER_BYTES_MIN:
        raise CorruptSegment("the file ends inside the segment's header", file=file, bytes=len(data))
    format_, id_, length = _HEAD.unpack_from(data)
    if format_ in _ANCIENT:
        raise UnsupportedFormat(f"commit-log format {format_} is older than {FORMATS[0]}", file=file)
    end = _HEAD.size + length
    stored = data[end : end + 4]
    parameters = bytes(data[_HEAD.size : end])
    sound = len(stored) == 4 and int.from_bytes(stored, "big") == header_checksum(format_, id_, parameters)
    if format_ not in FORMATS and (sound or (named is not None and named.format == format_)):
        raise UnsupportedFormat(f"commit-log format {format_} is not known; {_known()} are", file=file)
    if len(stored) < 4:
        raise CorruptSegment("the file ends inside the segment's header", file=file, bytes=len(data))
    if not sound:
        raise CorruptSegment("the segment's header has a wrong checksum", file=file, offset=end)
    compression, given, encryption = _parameters(parameters, file)
    return SegmentHeader(format_, id_, end + 4, compression, given, encryption)


def _known() -> str:
    return f"{', '.join(map(str, FORMATS[:-1]))} and {FORMATS[-1]}"


def _parameters(data: bytes, file: str) -> tuple[str | None, dict[str, object], Encryption | None]:
    """Compressor, its parameters, and encryption. Cassandra prefers the encryption when a header has both."""
    try:
        said = json_text.parse(data.decode()) if data else {}
    except ValueError as error:
        raise CorruptSegment("the segment's header parameters are no JSON", file=file, offset=_HEAD.size) from error
    if not isinstance(said, dict):
        raise CorruptSegment("the segment's header parameters are no JSON object", file=file, offset=_HEAD.size)
    encryption = None
    if said.get("encCipher") is not None:
        cipher, alias, iv = (said.get(key) for key in ("encCipher", "encKeyAlias", "encIV"))
        if not (isinstance(cipher, str) and isinstance(alias, str) and isinstance(iv, str)):
            raise CorruptSegment("the segment's header lacks a part of its encryption", file=file, offset=_HEAD.size)
        try:
            encryption = Encryption(cipher, alias, bytes.fromhex(iv))
        except ValueError as error:
            raise CorruptSegment("the segment's header has a bad IV", file=file, offset=_HEAD.size) from error
    name = said.get("compressionClass")
    if name is not None and not isinstance(name, str):
        raise CorruptSegment("the segment's header names no compressor", file=file, offset=_HEAD.size)
    given = said.get("compressionParameters")
    compression = name.rpartition(".")[2] if name and encryption is None else None
    return compression, given if isinstance(given, dict) else {}, encryption
