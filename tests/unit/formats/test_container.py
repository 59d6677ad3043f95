"""The Avro object container: header, blocks, codecs."""

from __future__ import annotations

import io

import cramjam
import fastavro
import pytest

from penstock.errors import CorruptLog, UnsupportedFormat
from penstock.formats import container
from penstock.settings import Codec

SYNC = bytes(range(16))


def _header(codec: Codec = Codec.NULL) -> bytes:
    return container.header('"long"', {"penstock.file": b"7"}, codec, SYNC)


def test_a_header_says_what_was_put_in() -> None:
    data = _header(Codec.SNAPPY)
    header = container.parse_header(data + b"the first block")
    assert (header.schema_text, header.codec, header.sync, header.size) == ('"long"', Codec.SNAPPY, SYNC, len(data))
    assert header.metadata["penstock.file"] == b"7"


@pytest.mark.parametrize("codec", Codec)
def test_fastavro_reads_a_file_made_of_these_parts(codec: Codec) -> None:
    rows = b"".join(container.long_bytes(n) for n in range(1000))
    data = _header(codec) + container.frame_block(1000, container.compress(codec, rows), SYNC)
    assert list(fastavro.reader(io.BytesIO(data))) == list(range(1000))


@pytest.mark.parametrize("codec", Codec)
def test_a_file_of_fastavro_is_read(codec: Codec) -> None:
    stream = io.BytesIO()
    fastavro.writer(stream, "long", range(1000), codec=codec.value, sync_interval=10_000)
    data = stream.getvalue()
    header = container.parse_header(data)
    head = container.parse_block_head(data, header.size)
    start = header.size + head.head
    rows = container.decompress(header.codec, data[start : start + head.size], 1 << 20)
    assert rows == b"".join(container.long_bytes(n) for n in range(1000))
    assert data[start + head.size :] == header.sync


def test_every_cut_of_a_header_is_refused() -> None:
    data = _header()
    for size in range(len(data)):
        with pytest.raises(CorruptLog):
            container.parse_header(data[:size])


def test_a_foreign_file_is_left_alone() -> None:
    for data in (b"PAR1", b"Obj\x02" + _header()[4:], b"\x7fELF and more"):
        with pytest.raises(UnsupportedFormat):
            container.parse_header(data)
    unknown = _header().replace(b"\x08null", b"\x08zlib")
    with pytest.raises(UnsupportedFormat, match="zlib"):
        container.parse_header(unknown)


def test_lengths_that_cannot_be_true_are_refused() -> None:
    huge = container.long_bytes(1 << 62)
    for body in (huge, b"\x02" + huge, b"\x02\x02a" + huge, b"\x02" + container.long_bytes(-5)):
        with pytest.raises(CorruptLog):
            container.parse_header(container.MAGIC + body + b"x" * 50)
    with pytest.raises(CorruptLog):
        container.parse_block_head(container.long_bytes(-1) + b"\0")
    with pytest.raises(CorruptLog, match="64 bits"):
        container.parse_block_head(b"\xff" * 12)


@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -64, -65, (1 << 63) - 1, -(1 << 63)])
def test_numbers_come_back(value: int) -> None:
    data = container.long_bytes(value)
    assert container.read_long(memoryview(data), 0) == (value, len(data))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", b"penstock" * 5000])
def test_data_comes_back_within_its_limit(codec: Codec, data: bytes) -> None:
    packed = container.compress(codec, data)
    assert container.decompress(codec, packed, len(data)) == data
    assert container.decompress(codec, memoryview(packed), len(data)) == data
    if data:
        with pytest.raises(CorruptLog, match="longer than"):
            container.decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", [Codec.DEFLATE, Codec.SNAPPY, Codec.ZSTANDARD])
def test_cut_data_is_refused(codec: Codec) -> None:
    packed = container.compress(codec, bytes(range(256)) * 4)
    for size in range(0, len(packed), 7):
        with pytest.raises(CorruptLog):
            container.decompress(codec, packed[:size], 4096)


def test_snappy_data_with_a_wrong_checksum_is_refused() -> None:
    packed = bytearray(container.compress(Codec.SNAPPY, b"some data"))
    packed[-1] ^= 1
    with pytest.raises(CorruptLog, match="checksum"):
        container.decompress(Codec.SNAPPY, bytes(packed), 100)


def test_zstandard_frames_without_a_size_are_read() -> None:
    engine = cramjam.zstd.Compressor()
    data = bytes(300_000)
    engine.compress(data)
    packed = bytes(engine.finish())
    assert container.decompress(Codec.ZSTANDARD, packed, 400_000) == data
    with pytest.raises(CorruptLog, match="longer than"):
        container.decompress(Codec.ZSTANDARD, packed, 200_000)


def test_a_sync_marker_of_another_length_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="sync"):
        container.header('"long"', {}, Codec.NULL, b"short")
