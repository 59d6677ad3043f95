"""The Avro object container around the rows: file header, block frames and codecs, as functions on bytes.

A file is a header (magic, metadata, sync marker) and blocks (count, size, data, sync marker), as the Avro 1.12
specification says. Nothing here touches files; every length is checked before it is used, and `decompress` never makes
more than its limit.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import cramjam

from penstock.errors import CorruptLog, UnsupportedFormat
from penstock.settings import Codec

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
# Count and size, each at most ten bytes.
BLOCK_HEAD_BYTES_MAX = 20
# A header holds two schemas of one table; a table of a thousand nested columns stays far below this.
HEADER_BYTES_MAX = 16 << 20
# What every Zstandard decoder is asked to support (RFC 8878, section 3.1.1.1.2).
_ZSTD_WINDOW_BYTES = 8 << 20
# What deflate can reach, and so what every reader of Avro files is used to.
RATIO_MAX = 1032
# The largest block that an agent writes by default, with its seal: so much may come of any few bytes.
_BLOCK_BYTES = (64 << 20) + (1 << 10)
# A frame of so many bytes takes at least nine.
_FRAME_BYTES = 8 << 10
_METADATA_KEYS_MAX = 1000
# A frame that decoders skip: this, and the length of what follows in four bytes.
_SKIPPABLE = b"\x50\x2a\x4d\x18"
_SKIPPABLE_BYTES = 8
# A stored block of no bytes; and up to three Huffman-coded ones of ten bits each before it, by what is left of the
# length when it is divided by that of the first.
_EMPTY_BLOCK = bytes.fromhex("000000ffff")
_ODD_BLOCKS = tuple(
    bytes.fromhex(text)
    for text in ("", "02000000ffff", "0208000000ffff", "02000000ffff0208000000ffff", "02082000000000ffff")
)
_SCHEMA = "avro.schema"
_CODEC = "avro.codec"


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about itself, and where its first block starts."""

    schema_text: str
    codec: Codec
    metadata: Mapping[str, bytes]
    sync: bytes
    size: int


@dataclass(frozen=True, slots=True)
class BlockHead:
    """The numbers in front of a block's data. The whole block is `head + size + 16` bytes long."""

    count: int
    size: int
    head: int


def header(schema_text: str, metadata: Mapping[str, bytes], codec: Codec, sync: bytes) -> bytes:
    """The bytes of a file's header."""
    if len(sync) != SYNC_BYTES:
        raise ValueError(f"a sync marker has {SYNC_BYTES} bytes")
    entries = {_SCHEMA: schema_text.encode(), _CODEC: codec.value.encode(), **metadata}
    parts = [MAGIC, long_bytes(len(entries))]
    for key, value in entries.items():
        name = key.encode()
        parts += [long_bytes(len(name)), name, long_bytes(len(value)), value]
    return b"".join([*parts, b"\0", sync])


def parse_header(data: bytes | memoryview) -> Header:
    """The header at the start of `data`. CorruptLog when it is damaged or cut, UnsupportedFormat when foreign."""
    view = memoryview(data)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        if MAGIC.startswith(bytes(view[: len(MAGIC)])):
            raise CorruptLog("the file ends inside its header", offset=len(view))
        raise UnsupportedFormat("not an Avro object container file", offset=0)
    metadata, at = _metadata(view, len(MAGIC))
    if at + SYNC_BYTES > len(view):
        raise CorruptLog("the file ends inside its header", offset=len(view))
    try:
        schema_text = metadata[_SCHEMA].decode()
        codec_name = metadata.get(_CODEC, b"null").decode()
    except (KeyError, UnicodeDecodeError) as error:
        raise CorruptLog("the file header has no schema", offset=0) from error
    try:
        codec = Codec(codec_name)
    except ValueError as error:
        raise UnsupportedFormat(f"unknown Avro codec {codec_name[:40]!r}", offset=0) from error
    return Header(schema_text, codec, metadata, bytes(view[at : at + SYNC_BYTES]), at + SYNC_BYTES)


def _metadata(view: memoryview, at: int) -> tuple[dict[str, bytes], int]:
    metadata: dict[str, bytes] = {}
    while True:
        count, at = read_long(view, at)
        if count == 0:
            return metadata, at
        if count < 0:
            count = -count
            _, at = read_long(view, at)
        if count + len(metadata) > _METADATA_KEYS_MAX:
            raise CorruptLog("the file header has too many entries", offset=at)
        for _ in range(count):
            name, at = _bytes(view, at)
            value, at = _bytes(view, at)
            try:
                metadata[name.decode()] = value
            except UnicodeDecodeError as error:
                raise CorruptLog("a name in the file header is not UTF-8", offset=at) from error


def _bytes(view: memoryview, at: int) -> tuple[bytes, int]:
    size, at = read_long(view, at)
    if size < 0 or size > HEADER_BYTES_MAX:
        raise CorruptLog("a length in the file header cannot be true", offset=at)
    if size > len(view) - at:
        raise CorruptLog("the file ends inside its header", offset=len(view))
    return bytes(view[at : at + size]), at + size


def frame_block(count: int, payload: bytes | memoryview, sync: bytes) -> bytes:
    """A block around data that is compressed already."""
    return b"".join([long_bytes(count), long_bytes(len(payload)), payload, sync])


def parse_block_head(data: bytes | memoryview, at: int = 0) -> BlockHead:
    """The numbers of the block that starts at `at`. CorruptLog when they cannot be true or are cut."""
    view = memoryview(data)
    count, after = read_long(view, at)
    size, after = read_long(view, after)
    if count < 0 or size < 0:
        raise CorruptLog("a block has a negative count or size", offset=at)
    return BlockHead(count, size, after - at)


def long_bytes(value: int) -> bytes:
    """An Avro long."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 127:
        out.append((rest & 127) | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_long(view: memoryview, at: int) -> tuple[int, int]:
    """The Avro long at `at`, and where it ends."""
    rest = shift = 0
    while True:
        if at >= len(view):
            raise CorruptLog("the data ends inside a number", offset=at)
        byte = view[at]
        at += 1
        if shift == 63 and byte > 1:
            raise CorruptLog("a number has more than 64 bits", offset=at)
        rest |= (byte & 127) << shift
        if byte < 128:
            return (rest >> 1) ^ -(rest & 1), at
        shift += 7


def compress(codec: Codec, data: bytes | memoryview, *, hard: bool = False) -> bytes:
    """A block's data as the codec writes it. With `hard`, as short as it gets, whatever time that takes."""
    if codec is Codec.NULL:
        return bytes(data)
    if codec is Codec.DEFLATE:
        engine = zlib.compressobj(9 if hard else 6, zlib.DEFLATED, -15, 9 if hard else zlib.DEF_MEM_LEVEL)
        return engine.compress(data) + engine.flush()
    if codec is Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(4, "big")
    return _zstd(data, 19 if hard else 3)


def _zstd(data: bytes | memoryview, level: int) -> bytes:
    """One frame; or many small ones when a large block is so uniform that `decompress` would take one for a bomb."""
    packed = bytes(cramjam.zstd.compress(data, level))
    if len(data) <= max(_BLOCK_BYTES, RATIO_MAX * len(packed)):
        return packed
    view = memoryview(data)
    pieces = (view[at : at + _FRAME_BYTES] for at in range(0, len(view), _FRAME_BYTES))
    return b"".join(bytes(cramjam.zstd.compress(piece, level)) for piece in pieces)


def fill(codec: Codec, payload: bytes, size: int) -> bytes | None:
    """Compressed data made exactly `size` bytes long, for every decoder the same data; None when that cannot be.

    Zstandard has frames to be skipped (RFC 8878, section 3.1.2), deflate has blocks of no bytes (RFC 1951, section
    3.2.4), and in Snappy a literal can be written in pieces. Not every length can be reached.
    """
    gap = size - len(payload)
    if gap == 0:
        return payload
    if codec is Codec.ZSTANDARD and gap >= _SKIPPABLE_BYTES:
        rest = gap - _SKIPPABLE_BYTES
        return payload + _SKIPPABLE + rest.to_bytes(4, "little") + bytes(rest)
    if codec is Codec.DEFLATE:
        odd = _ODD_BLOCKS[gap % len(_EMPTY_BLOCK)]
        if gap >= len(odd):
            return odd + _EMPTY_BLOCK * ((gap - len(odd)) // len(_EMPTY_BLOCK)) + payload
    if codec is Codec.SNAPPY and gap > 0:
        body = _split_literals(payload[:-4], gap)
        return None if body is None else body + payload[-4:]
    return None


def _split_literals(body: bytes, gap: int) -> bytes | None:
    """Snappy data made longer by writing some of its literal bytes one by one; None when there are too few of them."""
    at = 0
    while body[at] & 0x80:
        at += 1
    at += 1
    out = bytearray(body[:at])
    while at < len(body):
        tag = body[at]
        if tag & 3:
            end = at + (0, 2, 3, 5)[tag & 3]
            out += body[at:end]
            at = end
            continue
        more = max(0, (tag >> 2) - 59)
        length = 1 + (int.from_bytes(body[at + 1 : at + 1 + more], "little") if more else tag >> 2)
        at += 1 + more
        end = at + length
        while gap and at + 1 < end:
            # A byte of its own takes one more, unless the length of the rest then takes one less.
            gap -= 1 + len(_literal_head(end - at - 1)) - len(_literal_head(end - at))
            out += b"\0" + body[at : at + 1]
            at += 1
        out += _literal_head(end - at) + body[at:end]
        at = end
    return None if gap else bytes(out)


def _literal_head(length: int) -> bytes:
    if length <= 60:
        return bytes([(length - 1) << 2])
    size = (length - 1).bit_length() + 7 >> 3
    return bytes([(59 + size) << 2]) + (length - 1).to_bytes(size, "little")


def decompress(codec: Codec, data: bytes | memoryview, limit: int) -> bytes:
    """A block's data as it was. CorruptLog when it is damaged, or longer than `limit`; never makes more than that.

    Beyond what an agent writes in one block it also makes no more than `RATIO_MAX` times what it was given, so that a
    small file cannot take a reader's memory.
    """
    limit = min(limit, max(_BLOCK_BYTES, RATIO_MAX * len(data)))
    if codec is Codec.NULL:
        if len(data) > limit:
            raise _too_long(limit)
        return bytes(data)
    try:
        if codec is Codec.DEFLATE:
            return _inflate(data, limit)
        if codec is Codec.SNAPPY:
            return _unsnappy(data, limit)
        return _unzstd(data, limit)
    except (zlib.error, cramjam.DecompressionError, OSError, ValueError) as error:
        raise CorruptLog(f"a block cannot be decompressed ({codec})") from error


def _too_long(limit: int) -> CorruptLog:
    return CorruptLog(f"a block is longer than {limit} bytes when decompressed")


def _inflate(data: bytes | memoryview, limit: int) -> bytes:
    engine = zlib.decompressobj(-15)
    out = engine.decompress(data, limit + 1)
    if len(out) > limit:
        raise _too_long(limit)
    # Some writers cut a zlib stream and leave up to four bytes of its checksum behind the data.
    if not engine.eof or len(engine.unused_data) > 4:
        raise CorruptLog("a block cannot be decompressed (deflate): its end is missing or not the end")
    return out


def _unsnappy(data: bytes | memoryview, limit: int) -> bytes:
    if len(data) < 5:
        raise CorruptLog("a block cannot be decompressed (snappy): it is too short")
    body = memoryview(data)[:-4]
    if cramjam.snappy.decompress_raw_len(body) > limit:
        raise _too_long(limit)
    out = bytes(cramjam.snappy.decompress_raw(body))
    if zlib.crc32(out).to_bytes(4, "big") != bytes(data[-4:]):
        raise CorruptLog("a block's checksum does not match (snappy)")
    return out


def _unzstd(data: bytes | memoryview, limit: int) -> bytes:
    window, content = _zstd_frame(bytes(data[:18]))
    if window > max(limit, _ZSTD_WINDOW_BYTES) or (content is not None and content > limit):
        raise _too_long(limit)
    # The content size is optional, and of the first frame only; without it the room grows up to the limit.
    room = min(limit, max(4 * len(data), 1 << 16) if content is None else content)
    while True:
        out = bytearray(room)
        try:
            made = cramjam.zstd.decompress_into(data, out)
            return bytes(memoryview(out)[:made])
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if room >= limit:
                raise _too_long(limit) from error
            room = min(limit, max(4 * room, 1 << 16))


def _zstd_frame(head: bytes) -> tuple[int, int | None]:
    """Window and content size of a Zstandard frame (RFC 8878, section 3.1.1.1), checked before anything is made."""
    if head[:4] != b"\x28\xb5\x2f\xfd" or len(head) < 6:
        raise ValueError("not a Zstandard frame")
    descriptor = head[4]
    single = bool(descriptor & 0x20)
    at = 5
    window = 0
    if not single:
        base = 1 << (10 + (head[at] >> 3))
        window = base + (base >> 3) * (head[at] & 7)
        at += 1
    at += (0, 1, 2, 4)[descriptor & 3]
    size = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    if not size:
        return window, None
    content = int.from_bytes(head[at : at + size], "little") + (256 if size == 2 else 0)
    return max(window, content) if single else window, content
