"""The index vouches for what was synced and notices what was torn."""

import pytest

from penstock.log.index import ENTRY_BYTES, Entry, Index, Mark, Marks
from testkit.crash_files import CrashFiles

SYNC = b"s" * 16


def entries(count: int) -> list[Entry]:
    return [Entry(100 + 50 * i, 50, 2, 2 * i, 1000 + i, 1, i) for i in range(count)]


def index_of(count: int, files: CrashFiles | None = None) -> Index:
    file = (files or CrashFiles()).open("/i", write=True, create=True)
    index = Index(file, 1, SYNC)
    index.reset()
    index.write(0, entries(count))
    return index


def test_entries_read_back() -> None:
    index = index_of(5)
    assert index.is_sound()
    assert [index.read(i) for i in range(6)] == [*entries(5), None]


def test_the_index_of_another_file_is_not_sound() -> None:
    files = CrashFiles()
    index_of(3, files)
    other = Index(files.open("/i", write=True), 1, b"t" * 16)
    assert not other.is_sound()
    assert other.read(0) is None


@pytest.mark.parametrize("time", [0, 1000, 1001, 1499, 1999, 2000])
def test_bisection_finds_the_first_entry(time: int) -> None:
    index = index_of(1000)
    found = index.first(lambda entry: entry.when_max >= time)
    expected = max(0, time - 1000)
    assert (None if found is None else found[0]) == (expected if expected < 1000 else None)


@pytest.mark.parametrize("torn", [0, 1, 500, 998, 999])
def test_only_entries_before_a_torn_one_are_trusted(torn: int) -> None:
    files = CrashFiles()
    index = index_of(1000, files)
    files.open("/i", write=True).pwrite(b"\0" * 8, (torn + 1) * ENTRY_BYTES + 3)
    assert index.sound_count(0) == torn


def test_a_gap_between_entries_ends_the_trust() -> None:
    index = index_of(10)
    index.write(10, [Entry(100_000, 50, 2, 20, 2000, 1, 0)])
    assert index.sound_count(0) == 10


def test_settled_entries_are_not_read_again() -> None:
    files = CrashFiles()
    index = index_of(5000, files)
    files.open("/i", write=True).pwrite(b"\0" * 8, 11 * ENTRY_BYTES)
    assert index.sound_count(100 + 50 * 4000) == 5000
    assert index.sound_count(0) == 10


def test_marks_skip_what_is_torn() -> None:
    file = CrashFiles().open("/t", write=True, create=True)
    marks = Marks(file, SYNC)
    marks.write(0, [Mark(1, 5, 0, 10), Mark(2, 6, 0, 10), Mark(1, 9, 10, 20)])
    file.pwrite(b"\xff", 40)
    assert list(marks.read()) == [Mark(1, 5, 0, 10), Mark(1, 9, 10, 20)]
