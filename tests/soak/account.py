"""Account: what one reader was given, by number, held against what was written and what was announced as cut.

Rows are written to the source with rising numbers and a text that follows from the number, so a reader knows what must
come next. A number that is missing counts as lost unless an announcement covers it: the error that the reader was
given, or the agent's own line about it. A number that comes again although nothing was moved back, one that was never
written, and one with another text count as invented. A subscription that goes on behind a place that it never
committed, or before one that it was told is durable, breaks another promise.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.position import START, Position

# So many places, ends of files and ends of cuts are remembered; announcements about older ones would come hours late.
_PLACES = 1024


def note_of(number: int, length: int = 500) -> str:
    """The text of a row."""
    return f"{number} ".ljust(length, "abcdefghij"[number % 10])


class Row(NamedTuple):
    """A row as a reader got it."""

    number: int
    note: str


class FileEnds:
    """The number of the last change of each file of a log, learnt from readers and a witness. For many threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._last: dict[int, tuple[Position, int]] = {0: (START, -1)}

    def note(self, last: Position, number: int) -> None:
        with self._mutex:
            known = self._last.get(last.file)
            if known is None or known[0] < last:
                self._last[last.file] = last, number
            if len(self._last) > _PLACES:
                del self._last[min(self._last)]

    def number_at(self, position: Position) -> int | None:
        """The number of the change that a file ends with; None when nobody has come there."""
        with self._mutex:
            known = self._last.get(position.file)
        return known[1] if known is not None and known[0] == position else None


class Account:
    """One reader's. Its own thread takes; announcements may come from another."""

    def __init__(self, name: str, ends: FileEnds) -> None:
        self.name = name
        self.broken: Counter[str] = Counter()
        self.received = 0
        self.repeated = 0
        self.resumed = 0
        self._ends = ends
        self._mutex = threading.Lock()
        # The number that must come next; None before the first of a reader that begins anywhere.
        self._next: int | None = 0
        # What did not come, and what was announced, as the first and the last number of each stretch.
        self._gaps: list[tuple[int, int]] = []
        self._announced: list[tuple[int, int]] = []
        self._missing = 0
        self._untold: list[tuple[Position, Position]] = []
        # Where announced cuts end, and where the reader went on without having committed anything there.
        self._cut_ends: OrderedDict[Position, int] = OrderedDict()
        self._last_cut = START
        self._behind_cuts: list[Position] = []
        # It went on behind a cut just now, which may lie before what it was given and had not committed.
        self._rejoins = False
        # The numbers at the places where batches ended, and of them those that the reader wanted to be made durable.
        self._places: OrderedDict[Position, int] = OrderedDict({START: -1})
        self._commits: OrderedDict[Position, int] = OrderedDict({START: -1})
        self._durable = -1
        # What was announced by the agent, in changes.
        self.cut = 0

    @property
    def next(self) -> int | None:
        return self._next

    @property
    def missing(self) -> int:
        """Numbers that did not come, announced or not."""
        return self._missing

    def begin_anywhere(self) -> None:
        """The next number may be any: the reader holds no place."""
        self._next = None

    def take(self, rows: Sequence[Row], last: Position, *, written: int) -> None:
        """What came in one batch, whose last change is at `last`."""
        with self._mutex:
            for row in rows:
                self._take(row, written)
            self._ends.note(last, rows[-1].number)
            _keep(self._places, last, rows[-1].number)

    def _take(self, row: Row, written: int) -> None:
        self.received += 1
        if row.number >= written or row.note != note_of(row.number):
            self.broken["invented"] += 1
            return
        if self._rejoins and self._next is not None and row.number < self._next:
            self.repeated += self._next - row.number
            self._next = row.number
        self._rejoins = False
        if self._next is None or row.number == self._next:
            self._next = row.number + 1
        elif row.number > self._next:
            self._gaps.append((self._next, row.number - 1))
            self._missing += row.number - self._next
            self._next = row.number + 1
        else:
            self.broken["invented"] += 1

    def sent(self, position: Position) -> None:
        """The reader asks for this to be made durable: everything up to and including it is done."""
        with self._mutex:
            _keep(self._commits, position, self._places[position])

    def durable(self, position: Position) -> None:
        """The reader was told that this is durable."""
        with self._mutex:
            self._durable = max(self._durable, self._commits.get(position, -1))

    def resume(self, position: Position) -> None:
        """The reader goes on behind this place: what comes after it comes again."""
        with self._mutex:
            number = self._commits.get(position)
            if number is None:
                # When a loss was accepted it goes on behind what was cut, and nowhere else.
                self._behind_cuts.append(position)
                self._rejoins = True
                return
            if number < self._durable:
                self.broken["durable commits that were forgotten"] += 1
            if self._next is not None and number + 1 < self._next:
                self.repeated += self._next - number - 1
                self._next = number + 1
            self.resumed += 1

    def earlier(self, batches: int) -> Position | None:
        """The end of a batch that came so many before the last one."""
        with self._mutex:
            return list(self._places)[-batches] if len(self._places) >= batches else None

    def rewound(self, before: Position, position: Position, again: int) -> None:
        """The subscription was moved back from one place to another, which makes so many changes come again."""
        with self._mutex:
            committed = self._places.get(before, self._ends.number_at(before))
            if committed is None:
                # It had just accepted a loss, and nobody else has come there yet.
                self._next = None
                return
            number = committed - again
            if self._places.get(position, number) != number:
                self.broken["rewinds to another place than was said"] += 1
            self._places[position] = self._commits[position] = self._durable = number
            self._next = number + 1
            self.repeated += again

    def announce(self, after: Position, through: Position, *, cut: int = 0) -> None:
        """Somebody said that changes behind `after` up to `through` are gone for this reader."""
        with self._mutex:
            self._untold.append((after, through))
            _keep(self._cut_ends, through, 0)
            self._last_cut = max(self._last_cut, through)
            self.cut += cut

    def settle(self) -> bool:
        """Turn announcements into numbers as far as both of their ends are known; whether all are.

        What they excuse, and places behind cuts, are done with: what is left is what may yet turn out to be a loss.
        """
        with self._mutex:
            left = []
            for after, through in self._untold:
                first, last = self._places.get(after, self._ends.number_at(after)), self._ends.number_at(through)
                if first is None or last is None:
                    left.append((after, through))
                elif first < last:
                    self._announced = _joined([*self._announced, (first + 1, last)])
            self._untold = left
            self._gaps = [part for gap in self._gaps for part in _without(gap, self._announced)]
            self._behind_cuts = [position for position in self._behind_cuts if not self._is_behind_a_cut(position)]
            return not left

    def strange_places(self) -> list[Position]:
        """Where the reader went on although it never committed there and no cut ends there."""
        with self._mutex:
            return [position for position in self._behind_cuts if not self._is_behind_a_cut(position)]

    def _is_behind_a_cut(self, position: Position) -> bool:
        """A cut takes file by file: whoever looks meanwhile goes on behind one of the files that it takes."""
        if position in self._cut_ends:
            return True
        return self._ends.number_at(position) is not None and position < self._last_cut

    def unannounced(self) -> list[int]:
        """The numbers that are missing and that no announcement covers."""
        with self._mutex:
            left = [part for gap in self._gaps for part in _without(gap, self._announced)]
            return [number for first, last in left for number in range(first, last + 1)]


def _joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in as few stretches as possible, in order."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(stretches):
        if out and first <= out[-1][1] + 1:
            out[-1] = out[-1][0], max(out[-1][1], last)
        else:
            out.append((first, last))
    return out


def _without(gap: tuple[int, int], stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What of a gap is in none of the stretches, which are in order and apart from each other."""
    out: list[tuple[int, int]] = []
    first, end = gap
    for begin, last in stretches:
        if last >= first and begin <= end:
            if first < begin:
                out.append((first, begin - 1))
            first = last + 1
    return [*out, (first, end)] if first <= end else out


def _keep(places: OrderedDict[Position, int], position: Position, number: int) -> None:
    places[position] = number
    places.move_to_end(position)
    if len(places) > _PLACES:
        places.popitem(last=False)
