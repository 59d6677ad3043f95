"""Hostile inputs, one or more for each decoder: what is made of an input is bounded by the input.

Each case is as small as an attacker can make it and claims, or would become, as much as the format lets it say. A
decoder may refuse it with an error of its own, or read it; it may not take memory that the input does not pay for, nor
raise anything that its callers do not expect. How its work grows, test_decoders_linear.py shows.
"""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import NamedTuple

import cramjam
import pytest

from penstock.capture.cassandra.segments import compression
from penstock.capture.cassandra.segments.ciphers import SectionCipher, decrypt_section
from penstock.capture.cassandra.segments.segment import Encryption, header_checksum, read_header
from penstock.errors import PenstockError
from penstock.formats import avro, container
from penstock.log import block, sealed, segment
from penstock.log.block import TornBlock
from penstock.model.batch import ChangeBatch
from penstock.model.position import Position
from penstock.model.schema import TableSchema
from penstock.serve.protocol import Frame, Kind, parse
from penstock.settings import Codec
from penstock.system import json_text
from penstock.system.checksum import crc32
from tests.numbered import SCHEMA

MIB = 1 << 20
DEEP = b"[" * 200_000
SYNC = bytes(16)
SECTION_BYTES_MAX = compression.SECTION_BYTES_MAX


class Case(NamedTuple):
    """An input, who reads it, and how much that may take: so much in any case, and so much for each byte."""

    name: str
    data: bytes
    read: Callable[[bytes], object]
    fixed: int = 8 * MIB
    per_byte: int = 64


def zstd_bomb(repeats: int) -> bytes:
    """A Zstandard frame of blocks that each repeat one byte 131,072 times (RFC 8878, section 3.1.1.2)."""
    blocks = b"".join(
        ((number == repeats - 1) | 1 << 1 | 131_072 << 3).to_bytes(3, "little") + b"\0" for number in range(repeats)
    )
    return b"\x28\xb5\x2f\xfd\x00\x68" + blocks


def log_block(payload: bytes) -> bytes:
    return container.frame_block(1, payload, SYNC)


def parse_block(codec: Codec, limit: int = segment.BLOCK_BYTES_MAX) -> Callable[[bytes], object]:
    return lambda data: block.parse(data, 0, 0, codec, SYNC, limit)


def section(compressor: str, length: int = SECTION_BYTES_MAX) -> Callable[[bytes], object]:
    return lambda data: compression.decompress(compressor, memoryview(data), length)


def encrypted(data: bytes) -> object:
    cipher = SectionCipher(Encryption("AES/CBC/PKCS5Padding", "key", bytes(16)), bytes(16), "file")
    return decrypt_section(cipher, memoryview(data), SECTION_BYTES_MAX)


def segment_header(parameters: bytes) -> bytes:
    checksum = header_checksum(7, 1, parameters)
    return struct.pack(">iqH", 7, 1, len(parameters)) + parameters + struct.pack(">I", checksum)


def heading(**metadata: bytes) -> bytes:
    entries = {f"penstock.{name}": value for name, value in {"format": b"1", **metadata}.items()}
    return container.header("{}", entries, Codec.NULL, SYNC)


def seal(body: bytes) -> bytes:
    return body + b',"crc32":"%08x"}\n' % crc32(body)


def schema_json(text: bytes) -> object:
    return TableSchema.from_json(json_text.parse(text))


def nested_type(depth: int) -> bytes:
    nested = b'{"kind":"list","elements":[' * depth + b'{"kind":"text"}' + b"]}" * depth
    columns = b'[{"name":"c","role":"regular","type":%s}]' % nested
    return b'{"keyspace":"k","table":"t","version":1,"source":"","columns":%s}' % columns


# A varint of ten bytes, the largest that an Avro number can be.
HUGE = b"\xfe" + b"\xff" * 8 + b"\x01"
ZSTD_OF_2_64 = b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8
# What an agent writes in one block by default may come of any few bytes, twice over while it grows.
BLOCK = 160 * MIB

CASES = [
    Case("zstd block", log_block(zstd_bomb(8200)), parse_block(Codec.ZSTANDARD), BLOCK),
    Case("zstd block that names its size", log_block(ZSTD_OF_2_64), parse_block(Codec.ZSTANDARD)),
    # Deflate cannot grow by more than the factor that is allowed to all; so it is the limit that holds.
    Case("deflate block", log_block(zlib.compress(bytes(80 * MIB), 9)[2:-4]), parse_block(Codec.DEFLATE, MIB)),
    Case("snappy block", log_block(b"\xff\xff\xff\xff\x0f" + bytes(20)), parse_block(Codec.SNAPPY), BLOCK),
    Case("block of a huge count", HUGE + b"\x02" + bytes(40), parse_block(Codec.NULL)),
    Case("block of a huge length", b"\x02" + HUGE + bytes(40), parse_block(Codec.NULL)),
    Case("LZ4 section", struct.pack("<I", SECTION_BYTES_MAX) + bytes(20), section("LZ4Compressor"), MIB, 300),
    Case("LZ4 section of no own length", struct.pack("<I", 4) + bytes(20), section("LZ4Compressor"), MIB, 300),
    Case("Snappy section", b"\x80\x80\x80\x80\x01" + bytes(20), section("SnappyCompressor"), MIB, 64),
    Case("Deflate section", zlib.compress(bytes(100)), section("DeflateCompressor"), MIB, 2200),
    Case("Zstd section", bytes(cramjam.zstd.compress(bytes(100))), section("ZstdCompressor"), 2 * MIB, 65_536),
    Case("section that is not compressed", bytes(24), section("NoopCompressor"), MIB),
    Case("encrypted section", bytes(24), encrypted, 8 * MIB, 600),
    Case("segment header that nests", segment_header(DEEP[:60_000]), lambda data: read_header(data, "f")),
    Case("log header's state that nests", heading(state=DEEP), lambda data: segment.parse_heading(data, "f")),
    Case(
        "log header's schema that nests",
        heading(state=b"{}", schema=DEEP, log=b"", file=b"1"),
        lambda data: segment.parse_heading(data, "f"),
    ),
    Case(
        "log header's number of many digits",
        heading(state=b"{}", schema=b"{}", log=b"", file=b"9" * 100_000),
        lambda data: segment.parse_heading(data, "f"),
    ),
    Case("log header of many entries", b"Obj\x01" + HUGE + bytes(40), container.parse_header),
    Case("sealed file that nests", seal(b'{"a":' + DEEP[:60_000]), sealed.unseal),
    Case("schema that nests", nested_type(5000), schema_json),
    Case("schema that nests as JSON", DEEP, schema_json),
    Case("greeting that nests", DEEP, lambda data: parse(Frame(Kind.HELLO, data))),
    Case("greeting of many digits", b'{"version":%s}' % (b"9" * 50_000), lambda data: parse(Frame(Kind.HELLO, data))),
    Case("position of many digits", b"9" * 100_000 + b":0:0", lambda data: Position.parse(data.decode())),
    Case("rows of a huge count", HUGE * 4, lambda data: avro.decode(ChangeBatch(SCHEMA, 1, data))),
    Case("JSON that nests in objects", b'{"a":' * 100_000, json_text.parse),
    Case("JSON number of many digits", b"9" * 100_000, json_text.parse),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_made_of_an_input_is_bounded_by_the_input(case: Case) -> None:
    tracemalloc.start()
    try:
        try:
            case.read(case.data)
        except (PenstockError, TornBlock, ValueError):
            # Refused, in a way that callers know.
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= case.fixed + case.per_byte * len(case.data)


@pytest.mark.parametrize("codec", [Codec.ZSTANDARD, Codec.DEFLATE, Codec.SNAPPY])
def test_a_uniform_block_of_any_size_is_read_again(codec: Codec) -> None:
    """What we write ourselves is never taken for a bomb."""
    data = bytes(70 * MIB)
    packed = container.compress(codec, data)
    assert container.decompress(codec, packed, segment.BLOCK_BYTES_MAX) == data
