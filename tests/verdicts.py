"""The verdict on one segment that two readers have read: the same, or different in a way that has a name and is exact.

Cassandra's reader and ours are to take the same entries, with the same content, at the same positions. Where they are
meant to differ, what Cassandra takes is foretold from what ours takes and from the damage that ours reports, entry by
entry. A difference that was not foretold is a problem, and every one that was is counted under its name (`REASONS`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from penstock.capture.cassandra.segments.sections import MARKER_BYTES, Damage
from penstock.model.change import Origin
from tests.referee import Entry, Reading, tidied

ALIKE = "alike"
REASONS = {
    "renumbered": "the same entries; behind a section that it cannot decompress Cassandra does not count the section's "
    "length, so that its positions are too small by just that",
    "given up": "a decompressor's or cipher's error, or an array that is too large for the heap, makes Cassandra's "
    "reader give the file up; ours leaves the section out and goes on",
    "zeros": "Cassandra takes zeros inside a section for the end of the file, ours for the end of the section",
    "cut": "of an encrypted section that the file's end cuts, Cassandra takes nothing, and ours the whole chunks",
    "crossing": "an entry crosses the end of its section, which a wrong marker or length has set too early: Cassandra "
    "reads on behind the end and takes that one entry, ours does not",
    "partial": "a section has another length than it says: ours takes the entries of it that are whole, as their own "
    "checksums tell, and Cassandra none of them when the decompressor minds",
    "too long": "a section says to be longer than any segment can be: ours leaves it out, Cassandra makes room for it",
    "parked": "an entry names a column that is not known: an error there; here it waits for the column, and so does "
    "what follows of its table, which are the entries that Cassandra takes",
    "shadowed": "Cassandra leaves out what the row's own deletion shadows and puts elements in order as it reads",
    "refused": "the mutation's bytes are nonsense that Cassandra's reader does not look at (values of keys and static "
    "rows, times); ours refuses it",
}
# Where ours has less than Cassandra takes.
LESS = frozenset({"crossing", "too long", "refused"})


class Verdict(NamedTuple):
    """Why the two readings differ, nothing when they do not; and what is wrong, if anything is."""

    reasons: frozenset[str]
    problem: str | None = None


def judge(
    reading: Reading,
    theirs: Sequence[Entry],
    summary: Mapping[str, Any],
    good: Sequence[Entry],
    data: bytes,
    senseless: Sequence[int] = (),
) -> Verdict:
    """Hold our reading of a segment against Cassandra's.

    `good` is what stood in it before it was damaged, `data` the file's bytes, and `senseless` are the positions of
    entries that Cassandra took although a value in them does not fit its type.
    """
    wanted = [entry for entry in theirs if entry.changes]
    if not senseless and not reading.parked and reading.entries == wanted:
        return Verdict(frozenset())
    walk = _Walk(reading, wanted, summary, good, data, senseless)
    problem = walk.go()
    return Verdict(frozenset(walk.reasons), problem)


class _Walk:
    """Along the file: our entries and our damage, in their order, and beside them what Cassandra took."""

    def __init__(
        self,
        reading: Reading,
        theirs: Sequence[Entry],
        summary: Mapping[str, Any],
        good: Sequence[Entry],
        data: bytes,
        senseless: Sequence[int],
    ) -> None:
        self.reasons: set[str] = set()
        self._theirs = theirs
        self._next = 0
        self._aborted = summary["aborted"] is not None
        self._good = [_unplaced(entry) for entry in good]
        self._data = data
        self._senseless = set(senseless)
        # By how much Cassandra's positions are too small.
        self._behind = 0
        # Up to here Cassandra has left a section out of which we have what is whole.
        self._left_out = 0
        # Of an encrypted section whose end is missing we have the beginning.
        self._cut_from: int | None = None
        self._ended = False
        entries = [(entry.position, 1, entry) for entry in reading.entries]
        entries += [(entry.position, 1, entry) for entry in reading.released]
        if reading.released or reading.parked:
            self.reasons.add("parked")
        damage = [(one.position, 2, one) for one in reading.damage]
        self._events: list[tuple[int, int, Entry | Damage]] = sorted([*entries, *damage], key=lambda event: event[:2])

    def go(self) -> str | None:
        for _, _, event in self._events:
            problem = self._damaged(event) if isinstance(event, Damage) else self._taken(event)
            if problem is not None:
                return problem
        if self._next < len(self._theirs):
            return f"Cassandra also has {self._theirs[self._next]}"
        return f"values that do not fit at {sorted(self._senseless)} were not refused" if self._senseless else None

    def _taken(self, ours: Entry) -> str | None:
        if self._ended:
            return None
        there = self._theirs[self._next] if self._next < len(self._theirs) else None
        if there is not None and self._same(ours, there):
            self._next += 1
            return None
        if ours.position <= self._left_out:
            self.reasons.add("partial")
        elif there is None and self._aborted:
            self.reasons.add("given up")
            self._ended = True
        elif self._cut_from is not None and ours.position > self._cut_from:
            self.reasons.add("cut")
        else:
            return f"at {ours.position}:\n  ours   {ours}\n  theirs {there}"
        return None

    def _same(self, ours: Entry, there: Entry) -> bool:
        if ours.position - self._behind != there.position:
            return False
        if ours == there:
            return True
        if self._behind:
            self.reasons.add("renumbered")
        if _unplaced(ours) == _unplaced(there):
            return True
        if _unplaced(_tidy(ours)) != _unplaced(_tidy(there)):
            return False
        self.reasons.add("shadowed")
        return True

    def _damaged(self, damage: Damage) -> str | None:
        if self._ended:
            return None
        if damage.what == "section":
            return self._section(damage)
        if damage.what == "mutation":
            self._refused(damage)
        elif "zeros" in damage.message:
            # What follows Cassandra has not looked at.
            self.reasons.add("zeros")
            self._ended = True
        elif damage.what == "entry size" and "longer" in damage.message and self._next < len(self._theirs):
            self._crossing(damage)
        return None

    def _section(self, damage: Damage) -> str | None:
        (length,) = struct.unpack_from(">i", self._data.ljust(damage.offset + 12, b"\0"), damage.offset + 8)
        if "file ends inside" in damage.message or "chunk" in damage.message:
            self._cut_from = damage.position
        elif "bytes is longer than" in damage.message:
            self._too_long(damage, length)
        elif self._goes_on(damage):
            # Cassandra's decompressor has filled the room that it was given and did not look further, or it has the
            # chunks before the bad one, as we do.
            return None
        else:
            self._behind += MARKER_BYTES + length
            self._left_out = damage.position + MARKER_BYTES + length
        return None

    def _too_long(self, damage: Damage, length: int) -> None:
        """Ours counts the marker alone, Cassandra nothing when it has no room, and everything when it has."""
        self.reasons.add("too long")
        later = [_unplaced(e) for p, _, e in self._events if isinstance(e, Entry) and p > damage.position]
        taken = 0
        while self._next < len(self._theirs):
            there = _unplaced(self._theirs[self._next])
            if there in later or there not in self._good:
                break
            self._next += 1
            taken += 1
        self._behind += -length if taken or self._goes_on(damage, -length) else MARKER_BYTES

    def _goes_on(self, damage: Damage, *shifts: int) -> bool:
        """Whether Cassandra's next entry is our next one behind this place, with one of these shifts, or with none."""
        ours = next((e for p, _, e in self._events if isinstance(e, Entry) and p > damage.position), None)
        if ours is None or self._next >= len(self._theirs):
            return False
        there = self._theirs[self._next]
        return _unplaced(ours) == _unplaced(there) and any(
            ours.position - self._behind - shift == there.position for shift in shifts or (0,)
        )

    def _refused(self, damage: Damage) -> None:
        """Ours has no entry for it. Cassandra has one, or has refused it too."""
        there = self._theirs[self._next] if self._next < len(self._theirs) else None
        size = struct.unpack_from(">i", self._data, damage.position)[0]
        end = damage.position + size + 12 - self._behind
        if end in self._senseless:
            self._senseless.discard(end)
            self.reasons.add("refused")
        elif there is not None and there.position == end:
            self._next += 1
            self.reasons.add("refused")

    def _crossing(self, damage: Damage) -> None:
        there = self._theirs[self._next]
        if self._goes_on(damage):
            return
        if _unplaced(there) in self._good and there.position > damage.position - self._behind:
            self._next += 1
            self.reasons.add("crossing")


def _unplaced(entry: Entry) -> Entry:
    changes = tuple((table, replace(change, origin=Origin())) for table, change in entry.changes)
    return Entry(0, changes)


def _tidy(entry: Entry) -> Entry:
    return Entry(entry.position, tuple((table, tidied(change)) for table, change in entry.changes))
