# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The groups kernel: which changes are of the same row, and which say the same.

One source, two lives, as the kernels of the formats. Keys and content hashes come from the key kernel's pass.
"""

from __future__ import annotations

from typing import Any

import cython

from penstock.formats._kernel import RowReader

if not cython.compiled:
    from penstock.records._keys import TIMELESS, same_bytes

compiled: bool = cython.compiled

_TRUNCATE = 5
# How many rows ahead memory is asked for them.
_AHEAD = 8


class Groups:
    """Numbers distinct things in the order in which they first come: rows by key, or changes by content."""

    def __init__(self, expected: int) -> None:
        size = 16
        while size < 2 * expected:
            size *= 2
        self.size = size
        self.limit = expected
        self.count = 0
        self.known: dict[Any, int] = {}

    def number_contents(self, hashes: Any, groups: Any, firsts: Any, slots: Any) -> int:
        """By content: equal when both lanes are. `groups` gets each row's number, `firsts` each group's first row.

        `slots` has `size` entries of -1. Returns how many groups there are.
        """
        rows = len(hashes)
        self._check(rows, groups, firsts, slots)
        if not cython.compiled:
            return self._numbered([(hashes[row, 2], hashes[row, 3]) for row in range(rows)], groups, firsts)
        return self._contents(rows, hashes, groups, firsts, slots)

    def number_keys(self, reader: RowReader, places: Any, hashes: Any, groups: Any, firsts: Any, slots: Any) -> int:
        """By key: equal when the bytes are."""
        rows = len(hashes)
        self._check(rows, groups, firsts, slots)
        if len(places) < rows:
            raise ValueError("the tables of a grouping are too short")
        if not cython.compiled:
            keys = [bytes(reader.data[places[row, 1] : places[row, 3]]) for row in range(rows)]
            return self._numbered(keys, groups, firsts)
        for row in range(rows):
            if places[row, 1] < 0 or places[row, 3] < places[row, 1] or places[row, 3] > reader.end:
                raise ValueError("a key lies outside the rows")
        return self._keys(rows, reader, places, hashes, groups, firsts, slots)

    def _check(self, rows: int, groups: Any, firsts: Any, slots: Any) -> int:
        if rows > self.limit or len(groups) < rows or len(firsts) < rows or len(slots) < self.size:
            raise ValueError("the tables of a grouping are too short")
        return 0

    def _numbered(self, keys: list[Any], groups: Any, firsts: Any) -> int:
        known = self.known
        for row, key in enumerate(keys):
            group = known.setdefault(key, len(known))
            groups[row] = group
            if group == len(known) - 1 and group >= self.count:
                firsts[group] = row
                self.count = group + 1
        return self.count

    @cython.boundscheck(False)
    def _contents(self, rows: int, hashes: Any, groups: Any, firsts: Any, slots: Any) -> int:
        mask = self.size - 1
        for row in range(rows):
            slot = hashes[row, 2] & mask
            while True:
                group = slots[slot]
                if group < 0:
                    group = self.count
                    slots[slot] = group
                    firsts[group] = row
                    self.count += 1
                    break
                first = firsts[group]
                if hashes[first, 2] == hashes[row, 2] and hashes[first, 3] == hashes[row, 3]:
                    break
                slot = (slot + 1) & mask
            groups[row] = group
        return self.count

    @cython.boundscheck(False)
    def _keys(
        self, rows: int, reader: RowReader, places: Any, hashes: Any, groups: Any, firsts: Any, slots: Any
    ) -> int:
        mask = self.size - 1
        for row in range(rows):
            if cython.compiled and row + _AHEAD < rows:
                fetch(cython.address(slots[hashes[row + _AHEAD, 1] & mask]))  # noqa: F821
            slot = hashes[row, 1] & mask
            size = places[row, 3] - places[row, 1]
            while True:
                group = slots[slot]
                if group < 0:
                    group = self.count
                    slots[slot] = group
                    firsts[group] = row
                    self.count += 1
                    break
                first = firsts[group]
                if (
                    hashes[first, 1] == hashes[row, 1]
                    and places[first, 3] - places[first, 1] == size
                    and same_bytes(reader, places[first, 1], reader, places[row, 1], size)
                ):
                    break
                slot = (slot + 1) & mask
            groups[row] = group
        return self.count


class Contents:
    """A growing set of what changes say, by both lanes of their content hashes."""

    def __init__(self) -> None:
        self.known: set[tuple[int, int]] = set()
        self.mask = 1023
        self.count = 0
        if cython.compiled:
            self.slots = _no_slots(self.mask + 1)

    def mark(self, hashes: Any, marks: Any, fresh: Any) -> None:
        """Take in the rows of a scan: `fresh` gets 0 for each that says what an earlier one said, and 1 for others.

        Changes without a write time stay out of it: what they do depends on their order.
        """
        rows = len(hashes)
        if len(marks) < rows or len(fresh) < rows:
            raise ValueError("the tables of a scan are too short")
        for row in range(rows):
            fresh[row] = 1
            if marks[row, 1] & TIMELESS or marks[row, 0] == _TRUNCATE:
                continue
            if cython.compiled:
                fresh[row] = self._add(hashes[row, 2], hashes[row, 3])
            else:
                said = hashes[row, 2], hashes[row, 3]
                fresh[row] = said not in self.known
                self.known.add(said)

    @cython.boundscheck(False)
    def _add(self, high: int, low: int) -> int:
        """Whether it is new. An empty slot has zeros; the one content that hashes to them counts as always new."""
        slot = high & self.mask
        while self.slots[slot, 0] or self.slots[slot, 1]:
            if self.slots[slot, 0] == high and self.slots[slot, 1] == low:
                return 0
            slot = (slot + 1) & self.mask
        self.slots[slot, 0] = high
        self.slots[slot, 1] = low
        self.count += 1
        if 2 * self.count > self.mask:
            self._grow()
        return 1

    def _grow(self) -> int:
        old = self.slots
        self.mask = 4 * (self.mask + 1) - 1
        self.slots = _no_slots(self.mask + 1)
        self.count = 0
        for slot in range(len(old)):
            if old[slot, 0] or old[slot, 1]:
                self._add(old[slot, 0], old[slot, 1])
        return 0


def _no_slots(count: int) -> memoryview:
    return memoryview(bytearray(16 * count)).cast("B").cast("Q", (count, 2))
