"""Runs of the key index: look-ups, merging, and files that are checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.deliver.lakehouse.key_index import (
    GONE,
    Entries,
    from_file,
    last_of_each,
    merge,
    runs_to_merge,
    sort_order,
    to_file,
)
from penstock.errors import CorruptCheckpoint, UnsupportedFormat


def entries(*given: tuple[int, int, int, int], files: tuple[str, ...] = ("f0", "f1")) -> Entries:
    """Entries (high, low, file, row), sorted."""
    rows = sorted(given)
    high, low, file, row = (np.array([each[place] for each in rows], f"u{8 if place < 2 else 4}") for place in range(4))
    return Entries(high, low, file, row, files)


def listed(found: Entries) -> list[tuple[int, int, str, int]]:
    names = [("gone" if file == GONE else found.files[file]) for file in found.file]
    return list(zip(found.high.tolist(), found.low.tolist(), names, found.row.tolist(), strict=True))


def u64(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, np.uint64)


def test_a_key_is_found_by_both_halves_of_its_hash() -> None:
    run = entries((5, 1, 0, 10), (5, 2, 0, 11), (5, 3, 1, 12), (9, 1, 1, 13), ((1 << 64) - 1, 0, 0, 14))
    found = run.find(u64(5, 5, 5, 9, 9, 1, (1 << 64) - 1), u64(3, 1, 4, 1, 2, 1, 0))
    assert found.tolist() == [2, 0, -1, 3, -1, -1, 4]
    assert run.find(u64(), u64()).tolist() == []


def test_the_newest_entry_of_a_key_counts_after_merging() -> None:
    old = entries((1, 1, 0, 1), (2, 2, 0, 2), (3, 3, 1, 3))
    new = entries((2, 2, 0, 7), (3, 3, GONE, 0), (4, 4, 0, 8), files=("f2",))
    assert listed(merge([old, new], drop_gone=False)) == [
        (1, 1, "f0", 1),
        (2, 2, "f2", 7),
        (3, 3, "gone", 0),
        (4, 4, "f2", 8),
    ]
    both = merge([old, new], drop_gone=True)
    assert listed(both) == [(1, 1, "f0", 1), (2, 2, "f2", 7), (4, 4, "f2", 8)]
    assert both.files == ("f0", "f2")


def test_keys_with_the_same_high_half_are_sorted_and_told_apart() -> None:
    high, low = u64(7, 7, 7, 1), u64(2, 1, 2, 9)
    order = sort_order(high, low)
    assert order.tolist() == [3, 1, 0, 2]
    assert last_of_each(high[order], low[order]).tolist() == [True, True, False, True]


def test_runs_of_similar_size_are_merged_and_larger_ones_left() -> None:
    assert runs_to_merge([1000, 10, 10], 10) == 2
    assert runs_to_merge([1000, 60, 20], 10) == 2
    assert runs_to_merge([1000, 61, 20], 10) == 0
    assert runs_to_merge([10], 10) == 0
    assert runs_to_merge([], 10) == 0
    sizes: list[int] = []
    written = 0
    for _ in range(1000):
        count = runs_to_merge(sizes, 1)
        merged_size = 1 + sum(sizes[len(sizes) - count :])
        sizes = [*sizes[: len(sizes) - count], merged_size]
        written += merged_size
    assert len(sizes) < 12
    assert written < 1000 * 8


def test_a_run_file_is_read_back_and_damage_is_noticed(tmp_path: Path) -> None:
    run = entries((5, 1, 0, 10), (9, 1, GONE, 0))
    file = tmp_path / "run"
    content = to_file(run).to_pybytes()
    file.write_bytes(content)
    assert listed(from_file(str(file))) == listed(run)
    place = content.index((5).to_bytes(8, "little") + (9).to_bytes(8, "little"))
    file.write_bytes(content[:place] + b"\x06" + content[place + 1 :])
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        from_file(str(file))
    file.write_bytes(content[:100])
    with pytest.raises(CorruptCheckpoint, match="cannot be read"):
        from_file(str(file))
    file.write_bytes(content.replace(b"\x01\x00\x00\x001\x00", b"\x01\x00\x00\x009\x00"))
    with pytest.raises(UnsupportedFormat, match="unknown version"):
        from_file(str(file))
