"""Damaged segments, index files and key stores: never a crash, a hang or memory without bound, never a wrong entry."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capture.cassandra.segments.keys import der, jceks, pkcs12
from penstock.capture.cassandra.segments.keys.java_objects import read_object
from penstock.capture.cassandra.segments.sections import Damage, Section, SegmentReader
from penstock.capture.cassandra.segments.segment import parse_index, read_header
from penstock.errors import CorruptSegment, KeyStoreError, UnsupportedFormat
from penstock.sandbox.commit_log.segment_writer import encode_marker
from penstock.sandbox.commit_log.writer import CommitLogWriter
from penstock.system.checksum import crc32
from tests.commit_logs import CODECS, KEYS

SEGMENT_BYTES = 1 << 14


def mutations() -> Iterator[bytes]:
    for number in range(40):
        yield struct.pack(">q", number) + b"mutation " * (number % 5) + b"end"


def segment(codec: str) -> tuple[str, int, bytes]:
    """A segment with forty entries in ten sections: its name, its id and its bytes."""
    with tempfile.TemporaryDirectory() as directory:
        log = CommitLogWriter(
            f"{directory}/commitlog",
            f"{directory}/cdc_raw",
            segment_bytes=SEGMENT_BYTES,
            durable=False,
            **CODECS[codec],
        )
        for number, data in enumerate(mutations()):
            log.append(data)
            if number % 4 == 3:
                log.mark()
        log.close()
        path = Path(log.segment)
        return path.name, log.place.segment, path.read_bytes()


SEGMENTS = {codec: segment(codec) for codec in CODECS}
WRITTEN = {data: number for number, data in enumerate(mutations())}


def numbers(section: Section) -> tuple[list[int], int]:
    """The entries of a section as any reader takes them, and the position reached."""
    data = bytes(section.data)
    found, at = [], 0
    while len(data) - at >= 12:
        size, stored = struct.unpack_from(">iI", data, at)
        if size < 10 or stored != crc32(data[at : at + 4]) or len(data) - at < size + 12:
            break
        body = data[at + 8 : at + 8 + size]
        if crc32(body, stored) == int.from_bytes(data[at + 8 + size : at + 12 + size], "big"):
            # An entry that no one wrote would be the worst that can happen.
            found.append(WRITTEN[body])
        elif not section.sealed:
            break
        at += size + 12
    return found, section.start + (len(data) if section.sealed else at)


def read_all(path: str) -> tuple[list[int], list[int]]:
    """What the whole-segment reader and the live reader find; raises only what opening may raise."""
    with SegmentReader(path, keys=KEYS) as reader:
        whole: list[int] = []
        for item in reader.sections():
            if isinstance(item, Section):
                whole += numbers(item)[0]
        live: list[int] = []
        position = steps = 0
        while (found := reader.live(position, final=True)) is not None:
            steps += 1
            assert steps < 20_000
            if isinstance(found, Damage):
                continue
            given, reached = numbers(found)
            live += given
            # A section that is not sealed and gives nothing would be asked for again and again.
            assert reached > position
            position = reached
        assert reader.at_end(position)
        return whole, live


def damaged(draw: st.DrawFn, good: bytes, id_: int) -> bytes:
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, min(len(data) - 1, 3000)))
        match draw(st.integers(0, 6)):
            case 0:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                data[at : at + 4] = struct.pack(">i", draw(st.sampled_from([0, -1, 1, 9, 10, 1 << 30, (1 << 31) - 1])))
            case 2:
                del data[at:]
            case 3:
                data[at:at] = draw(st.binary(min_size=1, max_size=20))
            case 4:
                data[at : at + 50] = bytes(50)
            case 5:
                # A marker with a sound checksum that points anywhere.
                end = draw(st.integers(-5, len(good) + 5))
                data[at : at + 8] = encode_marker(id_, at, end)
            case _:
                del data[at : at + draw(st.integers(1, 30))]
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None, max_examples=250)
@given(st.data())
def test_a_damaged_segment_gives_only_what_was_written(codec: str, data: st.DataObject) -> None:
    name, id_, good = SEGMENTS[codec]
    bad = data.draw(st.composite(damaged)(good, id_))
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, name)
        Path(path).write_bytes(bad)
        try:
            whole, live = read_all(path)
        except (CorruptSegment, UnsupportedFormat, KeyStoreError):
            return
    assert set(whole) <= set(live)


@pytest.mark.parametrize("codec", CODECS)
def test_the_undamaged_segments_are_whole(codec: str, tmp_path: Path) -> None:
    name, _, good = SEGMENTS[codec]
    (tmp_path / name).write_bytes(good)
    assert read_all(str(tmp_path / name)) == (list(range(40)), list(range(40)))


@settings(deadline=None, max_examples=2000)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_header_or_refused(data: bytes) -> None:
    with pytest.raises((CorruptSegment, UnsupportedFormat)):
        read_header(data, "CommitLog-7-1.log")


@settings(deadline=None, max_examples=1000)
@given(st.binary(max_size=30) | st.from_regex(rb"[0-9]{0,25}\n?C?O?M?P?[A-Z]*\n?", fullmatch=True))
def test_any_bytes_are_an_index_or_no_news(data: bytes) -> None:
    found = parse_index(data)
    assert found is None or found.offset >= 0
    if found is not None and found.completed:
        assert data.rstrip().endswith(b"\nCOMPLETED")


@pytest.fixture(scope="module")
def java_stream() -> bytes:
    """A class with a superclass, fields of every kind, an array and a reference, as Java writes them."""
    text = b"\x74\x00\x03AES"
    parent = b"\x72\x00\x06Parent" + bytes(8) + b"\x02\x00\x01I\x00\x01n\x78\x70"
    name = b"\x72\x00\x05Child" + bytes(8) + b"\x03\x00\x02[\x00\x03key\x74\x00\x02[BL\x00\x01a\x71\x00\x7e\x00\x01\x78"
    array = b"\x75\x72\x00\x02[B" + bytes(8) + b"\x02\x00\x00\x78\x70\x00\x00\x00\x04\x01\x02\x03\x04"
    return b"\xac\xed\x00\x05\x73" + name + parent + b"\x00\x00\x00\x05" + array + text + b"\x77\x02ab\x78"


def test_the_java_stream_is_read(java_stream: bytes) -> None:
    found, end = read_object(memoryview(java_stream + b"behind"))
    assert found.name == "Child"
    assert found.fields == {"n": 5, "key": b"\x01\x02\x03\x04", "a": "AES"}
    assert end == len(java_stream)


@settings(deadline=None, max_examples=1500)
@given(st.data())
def test_a_damaged_java_stream_is_a_value_error(java_stream: bytes, data: st.DataObject) -> None:
    bad = bytearray(java_stream)
    for _ in range(data.draw(st.integers(1, 3))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    _only_value_errors(lambda: read_object(memoryview(bytes(bad[: data.draw(st.integers(0, len(bad)))]))))


@settings(deadline=None, max_examples=500)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_key_store_are_value_errors(data: bytes) -> None:
    _only_value_errors(lambda: jceks.read_entries(jceks.MAGIC + bytes((0, 0, 0, 2)) + data))
    _only_value_errors(lambda: pkcs12.read_entries(data, "password"))
    _only_value_errors(lambda: pkcs12.mac_fits(data, "password"))
    _only_value_errors(lambda: [der.object_id(element) for element in der.elements(memoryview(data))])


def _only_value_errors(work: Any) -> None:
    try:
        work()
    except (ValueError, struct.error, StopIteration):
        return
