"""SegmentReader over segments that the sandbox's writer made, whole, growing and damaged."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import Damage, Section, SegmentReader
from penstock.capture.cassandra.segments.segment import Encryption
from penstock.errors import CorruptSegment, KeyStoreError, StorageError, UnsupportedFormat
from penstock.sandbox.commit_log.segment_writer import (
    SegmentKind,
    SegmentWriter,
    encode_entry,
    encode_header,
    encode_marker,
)
from penstock.system.checksum import crc32
from penstock.system.files import OsFile, OsFiles

ID = 1_700_000_000_123
KEY = bytes(range(16))
SEGMENT_BYTES = 1 << 16
AES = Encryption("AES/CBC/PKCS5Padding", "testing:1", bytes(16))
KINDS = {
    "plain": SegmentKind(),
    "direct": SegmentKind(direct=True),
    "encrypted": SegmentKind(encryption=AES, key=KEY),
    **{name: SegmentKind(compression=f"{name}Compressor") for name in ("LZ4", "Snappy", "Deflate", "Zstd", "Noop")},
}
KEYS = KeyStore("store", {"testing:1": lambda: KEY})

NewSegment = Callable[..., SegmentWriter]


@pytest.fixture
def new_segment(tmp_path: Path) -> NewSegment:
    def make(kind: SegmentKind = KINDS["plain"], capacity: int = SEGMENT_BYTES) -> SegmentWriter:
        path = f"{tmp_path}/CommitLog-{kind.format}-{ID}.log"
        return SegmentWriter(path, ID, kind, capacity, durable=False)

    return make


def mutation(number: int, size: int = 40) -> bytes:
    return number.to_bytes(4, "big") + bytes(size)


def entries(section: Section) -> tuple[list[int], int]:
    """The numbers of the mutations in a section, and the position reached, as the decoder has it."""
    data = bytes(section.data)
    found, at = [], 0
    while len(data) - at >= 12:
        size, stored = struct.unpack_from(">iI", data, at)
        body = data[at + 8 : at + 8 + size]
        if size < 10 or stored != crc32(data[at : at + 4]) or len(data) - at < size + 12:
            break
        if crc32(body, stored) != int.from_bytes(data[at + 8 + size : at + 12 + size], "big"):
            break
        found.append(int.from_bytes(body[:4], "big"))
        at += size + 12
    return found, section.start + (len(data) if section.sealed else at)


def whole(reader: SegmentReader, after: int = 0, *, written: bool = True) -> tuple[list[int], list[Damage]]:
    found: list[int] = []
    damage = []
    for item in reader.sections(after, written=written):
        if isinstance(item, Damage):
            damage.append(item)
        else:
            found += entries(item)[0]
    return found, damage


class Tail:
    """A reader of the live segment that remembers what it saw."""

    def __init__(self, path: str) -> None:
        self.reader = SegmentReader(path, keys=KEYS)
        self.position = 0
        self.found: list[int] = []
        self.damage: list[Damage] = []

    def read(self, *, final: bool = False) -> list[int]:
        """What is new, as far as there is anything."""
        before = len(self.found)
        for _ in range(1000):
            item = self.reader.live(self.position, final=final)
            if item is None:
                return self.found[before:]
            if isinstance(item, Damage):
                self.damage.append(item)
                continue
            assert item.start >= self.position
            numbers, reached = entries(item)
            assert reached > self.position
            self.found += numbers
            self.position = reached
        raise AssertionError("the reader does not come to an end")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_closed_segment_is_read_whole(new_segment: NewSegment, kind: SegmentKind) -> None:
    segment = new_segment(kind)
    positions = []
    for number in range(30):
        positions.append(segment.append(mutation(number, 100 + number)))
        if number % 7 == 3:
            segment.mark()
        if number % 11 == 5:
            segment.flush()
    segment.close()
    with SegmentReader(segment.path, keys=KEYS) as reader:
        assert whole(reader) == (list(range(30)), [])
        assert whole(reader, written=False) == (list(range(30)), [])
        assert all(item.sealed for item in reader.sections() if isinstance(item, Section))
        last = [item for item in reader.sections() if isinstance(item, Section)][-1]
        assert entries(last)[1] == segment.synced == positions[-1]
    tail = Tail(segment.path)
    assert tail.read() == list(range(30))
    assert tail.reader.at_end(tail.position)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_reading_starts_at_the_section_that_holds_a_position(new_segment: NewSegment, kind: SegmentKind) -> None:
    segment = new_segment(kind)
    positions = []
    for number in range(20):
        positions.append(segment.append(mutation(number)))
        if number % 5 == 4:
            segment.mark()
    segment.close()
    with SegmentReader(segment.path, keys=KEYS) as reader:
        for number, position in enumerate(positions):
            assert position is not None
            start = number // 5 * 5 + (5 if number % 5 == 4 else 0)
            assert whole(reader, position) == (list(range(start, 20)), [])
            tail = Tail(segment.path)
            tail.position = position
            assert tail.read() == list(range(number + 1, 20))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_tail_gives_each_entry_once_whenever_it_looks(new_segment: NewSegment, kind: SegmentKind) -> None:
    segment = new_segment(kind)
    tail = Tail(segment.path)
    assert tail.read() == []
    for number in range(40):
        segment.append(mutation(number, 20 + 60 * (number % 4)))
        if number % 3 == 0:
            tail.read()
        if number % 5 == 0:
            segment.mark()
        if number % 10 == 0:
            segment.flush()
            tail.read()
    segment.close()
    tail.read()
    assert tail.found == list(range(40))
    assert tail.reader.at_end(tail.position)
    assert tail.damage == []


def test_an_entry_is_seen_before_its_marker_in_a_plain_segment(new_segment: NewSegment) -> None:
    segment = new_segment()
    tail = Tail(segment.path)
    segment.append(mutation(1))
    assert tail.read() == [1]
    segment.append(mutation(2))
    assert tail.read() == [2]
    with SegmentReader(segment.path) as reader:
        assert whole(reader) == ([1, 2], [])
        assert whole(reader, written=False) == ([], [])
    segment.mark()
    assert tail.read() == []
    segment.append(mutation(3))
    assert tail.read() == [3]


@pytest.mark.parametrize("kind", [KINDS[name] for name in ("LZ4", "encrypted", "direct")])
def test_an_entry_is_seen_at_its_sync_in_another_segment(new_segment: NewSegment, kind: SegmentKind) -> None:
    segment = new_segment(kind)
    tail = Tail(segment.path)
    segment.append(mutation(1))
    assert tail.read() == []
    segment.mark()
    segment.flush()
    assert tail.read() == [1]


def test_writes_that_finish_out_of_order_wait_for_the_one_before(new_segment: NewSegment) -> None:
    segment = new_segment()
    tail = Tail(segment.path)
    first, second = encode_entry(mutation(1)), encode_entry(mutation(2))
    start = segment.position
    with open(segment.path, "r+b") as file:
        file.seek(start + len(first))
        file.write(second)
        file.flush()
        assert tail.read() == []
        for cut in (2, 4, 7, 9, 30, len(first) - 1):
            file.seek(start)
            file.write(first[:cut])
            file.flush()
            assert tail.read() == []
        file.seek(start)
        file.write(first)
        file.flush()
        assert tail.read() == [1, 2]


def test_a_marker_may_come_while_the_tail_stands_inside_its_section(new_segment: NewSegment) -> None:
    segment = new_segment()
    tail = Tail(segment.path)
    segment.append(mutation(1))
    assert tail.read() == [1]
    segment.append(mutation(2))
    segment.mark()
    segment.append(mutation(3))
    segment.mark()
    segment.append(mutation(4))
    assert tail.read() == [2, 3, 4]


def test_half_a_marker_is_not_believed_until_the_end(new_segment: NewSegment) -> None:
    segment = new_segment()
    segment.append(mutation(1))
    end = segment.position
    header = len(encode_header(segment.kind, ID))
    tail = Tail(segment.path)
    marker = encode_marker(ID, header, end)
    with open(segment.path, "r+b") as file:
        for half in (marker[:4] + bytes(4), marker[:2] + bytes(6), bytes(4) + marker[4:]):
            file.seek(header)
            file.write(half)
            file.flush()
            assert tail.read() in ([1], [])
            assert tail.damage == []
        file.seek(header)
        file.write(marker)
    segment.append(mutation(2))
    assert tail.found == [1]
    assert tail.reader.at_end(tail.position)
    segment.mark()
    assert tail.damage == []


def test_a_bad_marker_ends_the_segment_for_who_believes_markers(new_segment: NewSegment) -> None:
    segment = new_segment()
    starts = []
    for number in range(6):
        starts.append(segment.synced)
        segment.append(mutation(number))
        segment.mark()
    segment.close()
    with open(segment.path, "r+b") as file:
        file.seek(starts[3] + 5)
        file.write(b"\xee")
    with SegmentReader(segment.path) as reader:
        found, damage = whole(reader)
    assert found == [0, 1, 2]
    assert [(one.what, one.offset, one.position) for one in damage] == [("marker", starts[3], starts[3])]
    tail = Tail(segment.path)
    # The entry behind the marker has its own checksums, and is as good as one that was only just written.
    assert tail.read() == [0, 1, 2, 3]
    assert tail.damage == []
    assert tail.read(final=True) == [4, 5]
    assert [one.what for one in tail.damage] == ["marker"]
    assert tail.reader.live(tail.position, final=True) is None


def test_entries_behind_a_hole_are_found_when_nobody_writes_any_more(new_segment: NewSegment) -> None:
    segment = new_segment()
    for number in range(3):
        segment.append(mutation(number))
    segment.mark()
    at = segment.position
    # A writer that got nothing done, one that got half done, and the room for a marker.
    unfinished = encode_entry(mutation(77, 300))
    parts = [
        encode_entry(mutation(3)),
        bytes(len(unfinished)),
        encode_entry(mutation(4)),
        unfinished[:150] + bytes(len(unfinished) - 150),
        encode_entry(mutation(5, 3000)),
        encode_entry(mutation(6)),
        bytes(8),
        encode_entry(mutation(7, 90_000)[:30_000]),
    ]
    with open(segment.path, "r+b") as file:
        file.seek(at)
        file.write(b"".join(parts))
    tail = Tail(segment.path)
    assert tail.read() == [0, 1, 2, 3]
    assert tail.read(final=True) == [4, 5, 6, 7]
    assert tail.damage == []
    assert tail.reader.live(tail.position, final=True) is None


def test_a_search_for_entries_in_rubbish_has_an_end(new_segment: NewSegment) -> None:
    segment = new_segment(capacity=64 << 20)
    segment.append(mutation(1))
    with open(segment.path, "r+b") as file:
        file.seek(segment.position)
        file.write(b"\0\1" * 300_000)
        file.write(encode_entry(mutation(2)))
    tail = Tail(segment.path)
    assert tail.read(final=True) == [1]


@pytest.mark.parametrize("end", [0, 5, 27])
def test_a_marker_that_points_back_is_damage(new_segment: NewSegment, end: int) -> None:
    segment = new_segment()
    segment.append(mutation(1))
    segment.close()
    with open(segment.path, "r+b") as file:
        file.seek(20)
        file.write(encode_marker(ID, 20, end))
    with SegmentReader(segment.path) as reader:
        assert [one.what for one in whole(reader, written=False)[1]] == ["marker"]
        assert "points back" in whole(reader, written=False)[1][0].message


@pytest.mark.parametrize("kind", [KINDS[name] for name in KINDS if name not in ("plain", "direct")])
def test_a_bad_section_is_left_out_and_the_next_one_is_read(new_segment: NewSegment, kind: SegmentKind) -> None:
    segment = new_segment(kind)
    offsets = []
    logical = []
    for number in range(5):
        offsets.append(os.path.getsize(segment.path))
        logical.append(segment.synced)
        segment.append(mutation(number, 200))
        segment.mark()
    segment.close()
    with open(segment.path, "r+b") as file:
        # The length that the section announces.
        file.seek(offsets[2] + 8)
        file.write(struct.pack(">i", 7))
    with SegmentReader(segment.path, keys=KEYS) as reader:
        found, damage = whole(reader)
    assert found == [0, 1, 3, 4]
    assert [(one.what, one.offset, one.position) for one in damage] == [("section", offsets[2], logical[2])]
    tail = Tail(segment.path)
    tail.read()
    assert tail.found == [0, 1, 3, 4]
    assert [one.what for one in tail.damage] == ["section"]


def test_a_section_that_falls_short_is_followed_by_zeros(new_segment: NewSegment) -> None:
    segment = new_segment(KINDS["LZ4"])
    offset = os.path.getsize(segment.path)
    segment.append(mutation(1))
    segment.mark()
    segment.append(mutation(2))
    segment.close()
    with open(segment.path, "r+b") as file:
        file.seek(offset + 8)
        file.write(struct.pack(">i", 100))
    with SegmentReader(segment.path) as reader:
        found, damage = whole(reader)
    assert found == [1, 2]
    assert [one.what for one in damage] == ["section"]
    tail = Tail(segment.path)
    assert tail.read() == [1, 2]
    assert tail.damage == damage


@pytest.mark.parametrize("length", [-1, (256 << 20) + 1, (1 << 31) - 1])
def test_an_absurd_length_allocates_nothing(new_segment: NewSegment, length: int) -> None:
    for kind in (KINDS["LZ4"], KINDS["encrypted"]):
        segment = new_segment(kind)
        offset = os.path.getsize(segment.path)
        segment.append(mutation(1))
        segment.mark()
        segment.append(mutation(2))
        segment.close()
        with open(segment.path, "r+b") as file:
            file.seek(offset + 8)
            file.write(struct.pack(">i", length))
        with SegmentReader(segment.path, keys=KEYS) as reader:
            found, damage = whole(reader)
        assert found == [2]
        assert [one.what for one in damage] == ["section"]
        os.unlink(segment.path)


def test_a_bad_chunk_spoils_only_what_follows_it_in_an_encrypted_section(new_segment: NewSegment) -> None:
    segment = new_segment(KINDS["encrypted"], 1 << 20)
    offset = os.path.getsize(segment.path)
    for number in range(200):
        segment.append(number.to_bytes(4, "big") + os.urandom(1000))
    segment.mark()
    segment.append(mutation(999))
    segment.close()
    with open(segment.path, "r+b") as file:
        file.seek(offset + 12)
        (size,) = struct.unpack(">i", file.read(4))
        # The head of the second chunk.
        file.seek(offset + 12 + 8 + size)
        file.write(b"\x7f")
    tail = Tail(segment.path)
    tail.read(final=True)
    with SegmentReader(segment.path, keys=KEYS) as reader:
        found, damage = whole(reader)
    assert found == tail.found == [*range(64), 999]
    assert len(damage) == len(tail.damage) == 1


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_segment_that_is_cut_anywhere_gives_what_is_left(new_segment: NewSegment, kind: SegmentKind) -> None:
    segment = new_segment(kind)
    for number in range(8):
        segment.append(mutation(number))
        if number % 2:
            segment.mark()
            segment.flush()
    segment.close()
    data = Path(segment.path).read_bytes()
    used = len(data.rstrip(b"\0"))
    counts = set()
    for length in range(len(encode_header(kind, ID)), used):
        os.truncate(segment.path, length)
        tail = Tail(segment.path)
        waiting = tail.read()
        assert tail.damage == []
        tail.read(final=True)
        with SegmentReader(segment.path, keys=KEYS) as reader:
            found, damage = whole(reader)
        assert found == tail.found == list(range(len(found)))
        assert waiting == found[: len(waiting)]
        assert [one.what for one in damage] == [one.what for one in tail.damage]
        counts.add(len(found))
        Path(segment.path).write_bytes(data)
    assert {0, 2, 4, 6} <= counts


def test_a_file_that_is_unlinked_is_read_to_its_end(new_segment: NewSegment) -> None:
    segment = new_segment()
    segment.append(mutation(1))
    tail = Tail(segment.path)
    os.unlink(segment.path)
    segment.append(mutation(2))
    segment.mark()
    segment.append(mutation(3))
    assert tail.read() == [1, 2, 3]


def test_a_file_that_is_cut_while_it_is_read_ends_there(new_segment: NewSegment) -> None:
    segment = new_segment()
    segment.append(mutation(1))
    segment.mark()
    segment.append(mutation(2))
    tail = Tail(segment.path)
    os.truncate(segment.path, 60)
    assert tail.read() == []
    os.truncate(segment.path, 0)
    assert tail.read(final=True) == []


def test_long_sections_come_in_pieces(new_segment: NewSegment) -> None:
    segment = new_segment(capacity=40 << 20)
    body = bytes(1 << 20)
    for number in range(30):
        segment.append(number.to_bytes(4, "big") + body)
    segment.close()
    tail = Tail(segment.path)
    sizes = []
    while isinstance(item := tail.reader.live(tail.position), Section):
        sizes.append(len(item.data))
        numbers, tail.position = entries(item)
        tail.found += numbers
    assert tail.found == list(range(30))
    assert max(sizes) <= 8 << 20
    assert tail.position == segment.synced


def test_a_damaged_entry_in_a_long_section_is_handed_to_the_decoder(new_segment: NewSegment) -> None:
    segment = new_segment(capacity=40 << 20)
    for number in range(12):
        segment.append(number.to_bytes(4, "big") + bytes(1 << 20))
    segment.close()
    with open(segment.path, "r+b") as file:
        file.seek(28 + 10 * ((1 << 20) + 16) + 100)
        file.write(b"\xff")
    reader = SegmentReader(segment.path)
    numbers: list[int] = []
    reached = 0
    pieces: list[Section] = []
    while not pieces or not pieces[-1].sealed:
        piece = reader.live(reached)
        assert isinstance(piece, Section)
        found, reached = entries(piece)
        numbers += found
        pieces.append(piece)
    assert len(pieces) > 1
    assert numbers == list(range(10))


def test_a_name_that_disagrees_with_the_header_is_damage_and_read_all_the_same(
    new_segment: NewSegment, tmp_path: Path
) -> None:
    segment = new_segment()
    segment.append(mutation(1))
    segment.close()
    for name in ("CommitLog-7-5.log", f"CommitLog-8-{ID}.log"):
        other = f"{tmp_path}/{name}"
        os.link(segment.path, other)
        with SegmentReader(other) as reader:
            found, damage = whole(reader)
        assert found == [1]
        assert [(one.what, one.file) for one in damage] == [("header", name)]
        tail = Tail(other)
        assert tail.read() == [1]
        assert [one.what for one in tail.damage] == ["header"]


def test_a_segment_that_cannot_be_opened_says_why(new_segment: NewSegment, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file"):
        SegmentReader(f"{tmp_path}/CommitLog-7-1.log")
    (tmp_path / "CommitLog-7-2.log").write_bytes(b"")
    with pytest.raises(CorruptSegment, match="no header yet"):
        SegmentReader(f"{tmp_path}/CommitLog-7-2.log")
    (tmp_path / "CommitLog-7-3.log").write_bytes(encode_header(SegmentKind(compression="OtherCompressor"), 3))
    with pytest.raises(UnsupportedFormat, match="OtherCompressor"):
        SegmentReader(f"{tmp_path}/CommitLog-7-3.log")
    segment = new_segment(KINDS["encrypted"])
    with pytest.raises(KeyStoreError, match="no key store"):
        SegmentReader(segment.path)
    with pytest.raises(KeyStoreError, match="no such alias"):
        SegmentReader(segment.path, keys=KeyStore("store", {}))


@pytest.mark.parametrize(
    "cipher", ["AES", "AES/GCM/NoPadding", "AES/CBC/OAEP", "Rot/CBC/NoPadding", "AES/XXX/NoPadding"]
)
def test_an_unknown_cipher_is_named(tmp_path: Path, cipher: str) -> None:
    path = tmp_path / "CommitLog-7-4.log"
    path.write_bytes(encode_header(SegmentKind(encryption=AES._replace(cipher=cipher)), 4))
    with pytest.raises(KeyStoreError, match=cipher):
        SegmentReader(str(path), keys=KEYS)


@pytest.mark.parametrize(
    ("cipher", "key", "iv"),
    [
        ("AES/CBC/PKCS5Padding", 32, 16),
        ("AES/CTR/NoPadding", 24, 16),
        ("AES/CFB8/NoPadding", 16, 16),
        ("AES/OFB/NoPadding", 16, 16),
        ("DESede/CBC/PKCS5Padding", 24, 8),
        ("Blowfish/CFB/NoPadding", 16, 8),
    ],
)
def test_javas_other_ciphers_are_read_too(tmp_path: Path, cipher: str, key: int, iv: int) -> None:
    secret = os.urandom(key)
    kind = SegmentKind(encryption=Encryption(cipher, "k", os.urandom(iv)), key=secret)
    segment = SegmentWriter(f"{tmp_path}/CommitLog-7-{ID}.log", ID, kind, SEGMENT_BYTES, durable=False)
    segment.append(mutation(1))
    segment.close()
    with SegmentReader(segment.path, keys=KeyStore("store", {"k": lambda: secret})) as reader:
        assert whole(reader) == ([1], [])


def test_a_key_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "CommitLog-7-4.log"
    path.write_bytes(encode_header(SegmentKind(encryption=AES), 4))
    with pytest.raises(KeyStoreError, match="does not fit the cipher"):
        SegmentReader(str(path), keys=KeyStore("store", {"testing:1": lambda: b"short"}))


class CountedFile(OsFile):
    """A file that notes how much is read at once."""

    sizes: ClassVar[list[int]] = []

    def pread(self, size: int, offset: int) -> bytes:
        self.sizes.append(size)
        return super().pread(size, offset)


class CountedFiles(OsFiles):
    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        del write, create
        return CountedFile(os.open(path, os.O_RDONLY))


def test_waiting_for_news_costs_a_few_short_reads(new_segment: NewSegment) -> None:
    segment = new_segment()
    for number in range(20):
        segment.append(mutation(number))
        segment.mark()
    reader = SegmentReader(segment.path, files=CountedFiles())
    position = segment.synced
    assert reader.live(position) is None
    CountedFile.sizes.clear()
    assert reader.live(position) is None
    assert sum(CountedFile.sizes) < 100
    assert len(CountedFile.sizes) <= 3
