"""The compressors of sections: round trips, and lengths that are not what they say."""

from __future__ import annotations

import os

import pytest

from penstock.capture.cassandra.segments.compression import SECTION_BYTES_MAX, compress, decompress, is_known

COMPRESSORS = [f"{name}Compressor" for name in ("LZ4", "Snappy", "Deflate", "Zstd", "Noop")]


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("data", [b"", b"x", bytes(100_000), os.urandom(3000)], ids=["none", "one", "zeros", "random"])
def test_what_was_compressed_comes_back(compressor: str, data: bytes) -> None:
    found, problem = decompress(compressor, memoryview(compress(compressor, data)), len(data))
    assert bytes(found) == data
    assert problem is None


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_what_falls_short_of_the_length_is_filled_with_zeros_and_told(compressor: str) -> None:
    found, problem = decompress(compressor, memoryview(compress(compressor, b"entries")), 20)
    assert bytes(found) == b"entries" + bytes(13)
    assert problem is not None
    assert "7 bytes or more where 20" in problem


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_a_length_that_is_too_small_cuts_and_is_told(compressor: str) -> None:
    found, problem = decompress(compressor, memoryview(compress(compressor, b"entries" * 100)), 10)
    assert bytes(found) == b"entriesent"
    assert problem is not None
    assert compressor in problem


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("length", [-1, SECTION_BYTES_MAX + 1, 1 << 31])
def test_a_length_beyond_the_ceiling_is_refused(compressor: str, length: int) -> None:
    with pytest.raises(ValueError, match="is longer than"):
        decompress(compressor, memoryview(b"data"), length)


def test_a_stream_without_its_end_is_taken_as_far_as_it_goes() -> None:
    whole = compress("DeflateCompressor", bytes(range(256)))
    found, problem = decompress("DeflateCompressor", memoryview(whole)[:-20], 256)
    assert bytes(found[:100]) == bytes(range(100))
    assert problem is not None


@pytest.mark.parametrize("compressor", [name for name in COMPRESSORS if name != "NoopCompressor"])
@pytest.mark.parametrize("data", [b"\xff" * 50, b"\xff\xff\xff\x7f" + bytes(20)])
def test_what_is_no_block_is_a_value_error(compressor: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=compressor):
        decompress(compressor, memoryview(data), 100)


def test_cassandras_compressors_are_known_and_others_are_not() -> None:
    assert all(map(is_known, COMPRESSORS))
    assert not is_known("ZstdDictionaryCompressor")
