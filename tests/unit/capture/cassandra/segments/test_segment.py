"""Names, headers and index files of commit-log segments."""

from __future__ import annotations

import struct

import pytest

from penstock.capture.cassandra.segments.segment import (
    Encryption,
    SegmentIndex,
    SegmentName,
    has_header,
    header_checksum,
    index_name,
    parse_index,
    read_header,
    segment_name,
    segment_of_index,
)
from penstock.errors import CorruptSegment, UnsupportedFormat
from penstock.sandbox.commit_log.segment_writer import SegmentKind, encode_header

ID = 1_794_749_664_652
# The header of a segment that a Cassandra 4.1.10 wrote.
RECORDED = bytes.fromhex("00000007000001a1df6a8d8c00027b7d75448466")


def with_parameters(parameters: bytes, format_: int = 7) -> bytes:
    checksum = header_checksum(format_, ID, parameters).to_bytes(4, "big")
    return struct.pack(">iqH", format_, ID, len(parameters)) + parameters + checksum


def test_a_segments_name_says_format_and_id() -> None:
    assert segment_name("CommitLog-7-123.log") == SegmentName(7, 123, "CommitLog-7-123.log")


@pytest.mark.parametrize(
    "name",
    ["CommitLog-7-123.log.tmp", "CommitLog-7-.log", "CommitLog-7-123_cdc.idx", "commitlog-7-123.log", "x", "", "١"],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert segment_name(name) is None


def test_a_segment_and_its_index_name_each_other() -> None:
    assert index_name("CommitLog-7-123.log") == "CommitLog-7-123_cdc.idx"
    assert segment_of_index("CommitLog-7-123_cdc.idx") == "CommitLog-7-123.log"
    assert segment_of_index("CommitLog-7-123.log") is None


@pytest.mark.parametrize(
    ("data", "index"),
    [
        (b"995420", SegmentIndex(995420, completed=False)),
        (b"995420\nCOMPLETED", SegmentIndex(995420, completed=True)),
        (b"995420\nCOMPLETED\n", SegmentIndex(995420, completed=True)),
        (b"995420\nCOMPL", SegmentIndex(995420, completed=False)),
        (b"995420\n", SegmentIndex(995420, completed=False)),
        (b"", None),
        (b"\n", None),
        (b"COMPLETED", None),
        (b"-5", None),
        (b"12x", None),
        (b"1" * 40, None),
        (b"\xff\xfe", None),
    ],
)
def test_an_index_file_is_read_as_far_as_it_is_written(data: bytes, index: SegmentIndex | None) -> None:
    assert parse_index(data) == index


def test_a_header_is_read_back() -> None:
    kinds = [
        SegmentKind(6),
        SegmentKind(9),
        SegmentKind(7, "LZ4Compressor"),
        SegmentKind(8, encryption=Encryption("AES/CBC/PKCS5Padding", "testing:1", bytes(range(16)))),
    ]
    for kind in kinds:
        data = encode_header(kind, ID)
        header = read_header(data + b"what follows", "CommitLog-7-1.log")
        assert (header.format, header.id, header.size) == (kind.format, ID, len(data))
        assert (header.compression, header.encryption) == (kind.compression, kind.encryption)
        assert header.is_plain == (kind.compression is None and kind.encryption is None)


def test_a_header_is_what_cassandra_writes() -> None:
    assert encode_header(SegmentKind(7), ID) == RECORDED
    assert read_header(RECORDED, "CommitLog-7-1794749664652.log").id == ID


def test_a_compressor_is_known_by_its_class_name_without_the_package() -> None:
    data = with_parameters(b'{"compressionClass":"org.apache.cassandra.io.compress.ZstdCompressor"}')
    assert read_header(data, "x").compression == "ZstdCompressor"


def test_a_compressors_parameters_may_be_null_or_missing() -> None:
    for given in (b',"compressionParameters":null', b"", b',"compressionParameters":{"compression_level":"3"}'):
        header = read_header(with_parameters(b'{"compressionClass":"ZstdCompressor"' + given + b"}"), "x")
        assert header.compression == "ZstdCompressor"


def test_a_new_segment_has_no_header_yet() -> None:
    assert not has_header(b"")
    assert not has_header(bytes(100))
    assert has_header(encode_header(SegmentKind(), ID))
    with pytest.raises(CorruptSegment, match="no header yet"):
        read_header(bytes(100), "CommitLog-7-1.log")


@pytest.mark.parametrize("length", [4, 10, 17, 19])
def test_a_header_that_is_cut_is_corrupt(length: int) -> None:
    data = encode_header(SegmentKind(), ID)[:length]
    with pytest.raises(CorruptSegment, match="ends inside"):
        read_header(data, "CommitLog-7-1.log")


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    good = encode_header(SegmentKind(7, "LZ4Compressor"), ID)
    for bit in range(8 * len(good)):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptSegment, UnsupportedFormat)):
            read_header(bytes(data), "CommitLog-7-1.log")


@pytest.mark.parametrize("format_", [1, 4, 5])
def test_formats_of_old_releases_are_refused(format_: int) -> None:
    with pytest.raises(UnsupportedFormat, match="older than 6"):
        read_header(with_parameters(b"{}", format_), f"CommitLog-{format_}-1.log")


def test_a_format_to_come_is_refused_and_named() -> None:
    with pytest.raises(UnsupportedFormat, match=r"format 10 .* 6, 7, 8 and 9"):
        read_header(with_parameters(b"{}", 10), "CommitLog-10-1.log")
    # Its header may look different; the name says the same.
    with pytest.raises(UnsupportedFormat, match="format 11"):
        read_header(struct.pack(">iq", 11, ID) + bytes(50), "CommitLog-11-1.log")


@pytest.mark.parametrize(
    "parameters",
    [
        b"[]",
        b"{",
        b"\xff",
        b"[" * 60_000,
        b'{"compressionClass":5}',
        b'{"encCipher":"AES/CBC/PKCS5Padding"}',
        b'{"encCipher":"AES/CBC/PKCS5Padding","encKeyAlias":"a","encIV":"xyz"}',
    ],
)
def test_parameters_that_make_no_sense_are_corrupt(parameters: bytes) -> None:
    with pytest.raises(CorruptSegment):
        read_header(with_parameters(parameters), "CommitLog-7-1.log")
