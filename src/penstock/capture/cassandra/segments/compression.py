"""The compressors of commit-log sections, by the class names that segment headers give.

One section is one compressed block, and the section says how long it was. That length is never trusted: it has a
ceiling, it is compared with what so many compressed bytes can become at all before any room is made, output that grows
past it is cut, and output that falls short of it is followed by zeros, which read as the end of the section.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable

import cramjam

# Cassandra's segments have 32 MiB unless told otherwise, and a section never has more than its segment.
SECTION_BYTES_MAX = 256 << 20

_LZ4_LENGTH = struct.Struct("<I")
Compress = Callable[[bytes], bytes]
# From compressed bytes into a buffer; returns how many there were, of which the buffer may lack the last.
Expand = Callable[[memoryview, bytearray], int]


def decompress(compressor: str, data: memoryview, length: int) -> tuple[memoryview, str | None]:
    """`length` bytes of section, and what is wrong when there were more or fewer.

    Raises ValueError when the data does not decompress at all.
    """
    if not 0 <= length <= SECTION_BYTES_MAX:
        raise ValueError(f"a section of {length} bytes is longer than {SECTION_BYTES_MAX}")
    if not length:
        # A closing segment may write an empty section, and not every compressor makes a sound block of it.
        return memoryview(b""), None
    try:
        # The section's length has no checksum. Where the block's own is greater, what fits the section counts.
        own, most = _OWN_LENGTH[compressor](data), reachable(compressor, len(data))
        out = bytearray(min(max(length, own if own <= SECTION_BYTES_MAX else 0), most))
        made = _EXPAND[compressor](data, out)
    except (cramjam.DecompressionError, zlib.error, struct.error, IndexError, OSError) as error:
        raise ValueError(f"{compressor}: {error}") from error
    if made == length:
        return memoryview(out)[:length], None
    return padded(out, length), f"{compressor}: {made} bytes or more where {length} were announced"


def padded(out: bytearray, length: int) -> memoryview:
    """The bytes, followed by zeros up to a length, which read as the end of the section.

    However long that is, the zeros take no memory until somebody looks at them.
    """
    if len(out) >= length:
        return memoryview(out)[:length]
    room = mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room[: len(out)] = bytes(out)
    return memoryview(room)


def reachable(compressor: str, size: int) -> int:
    """How many bytes `size` compressed ones can become: a few more, at most, than the format allows."""
    return (size + _SLACK) * _RATIO_MAX[compressor]


def compress(compressor: str, data: bytes) -> bytes:
    """What the named compressor of Cassandra would write, up to the choices that a compressor is free to make."""
    return _COMPRESS[compressor](data)


def is_known(compressor: str) -> bool:
    return compressor in _EXPAND


def expand_lz4(data: memoryview, out: bytearray) -> int:
    """Cassandra puts the length before the block, least byte first."""
    (length,) = _LZ4_LENGTH.unpack_from(data)
    if length > len(out):
        raise ValueError(f"LZ4Compressor: {length} bytes for a buffer of {len(out)}")
    made: int = cramjam.lz4.decompress_block_into(data[_LZ4_LENGTH.size :], out)
    if made != length:
        raise ValueError(f"LZ4Compressor: {made} bytes where {length} were announced")
    return made


def compress_lz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress_block(data, store_size=True))


def _expand_snappy(data: memoryview, out: bytearray) -> int:
    made: int = cramjam.snappy.decompress_raw_into(data, out)
    return made


def _expand_deflate(data: memoryview, out: bytearray) -> int:
    stream = zlib.decompressobj()
    made = stream.decompress(data, len(out) + 1)
    # A stream that ends too early or too late is taken as far as it goes: entries have their own checksums.
    out[: len(made)] = made[: len(out)]
    return len(made)


def _snappy_length(data: memoryview) -> int:
    value = shift = 0
    for byte in data[:5]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value


def _zstd_length(data: memoryview) -> int:
    """What a Zstandard frame says of its content's size (RFC 8878, 3.1.1.1); 0 when it says nothing."""
    head = data[4]
    single, code = head >> 5 & 1, head >> 6
    size = 1 << code if code or single else 0
    at = 5 + (1 - single) + (0, 1, 2, 4)[head & 3]
    return int.from_bytes(data[at : at + size], "little") + (256 if size == 2 else 0)


def _expand_zstd(data: memoryview, out: bytearray) -> int:
    made: int = cramjam.zstd.decompress_into(data, out)
    return made


def _expand_noop(data: memoryview, out: bytearray) -> int:
    if len(data) > len(out):
        raise ValueError(f"NoopCompressor: {len(data)} bytes for a buffer of {len(out)}")
    out[: len(data)] = data
    return len(data)


_EXPAND: dict[str, Expand] = {
    "LZ4Compressor": expand_lz4,
    "SnappyCompressor": _expand_snappy,
    "DeflateCompressor": _expand_deflate,
    "ZstdCompressor": _expand_zstd,
    "NoopCompressor": _expand_noop,
}
_OWN_LENGTH: dict[str, Callable[[memoryview], int]] = {
    "LZ4Compressor": lambda data: int(_LZ4_LENGTH.unpack_from(data)[0]),
    "SnappyCompressor": _snappy_length,
    "DeflateCompressor": lambda _: 0,
    "ZstdCompressor": _zstd_length,
    "NoopCompressor": len,
}
# LZ4: a byte of length stands for 255. Snappy: three bytes stand for 64. Deflate: two bits stand for 258. Zstandard: a
# block of four bytes repeats one 131,072 times.
_RATIO_MAX = {
    "LZ4Compressor": 255,
    "SnappyCompressor": 22,
    "DeflateCompressor": 1032,
    "ZstdCompressor": 32_768,
    "NoopCompressor": 1,
}
_SLACK = 16
_COMPRESS: dict[str, Compress] = {
    "LZ4Compressor": compress_lz4,
    "SnappyCompressor": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "DeflateCompressor": zlib.compress,
    "ZstdCompressor": lambda data: bytes(cramjam.zstd.compress(data, 3)),
    "NoopCompressor": bytes,
}
