"""Range deletions of one partition as a step function: from each place to the next, the greatest deletion.

Places are cuts between rows. A cut and a row's place are tuples that compare with each other: one `(1, order key)` per
clustering column, then `(0,)` for the cut before all rows with that prefix, `(2,)` for the cut behind them, `(1,)` for
the row itself. The function is kept in its shortest form (disjoint steps, neighbours with equal deletions joined), so
two lists that delete the same are equal whatever the order of arrival. `start` and `end` of a range go by the table's
clustering order: with DESC the start is the greater value, as in Cassandra's own log.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from penstock.merge.cql_value import Reversed, order_key
from penstock.model.change import Bound, Deletion, Range
from penstock.model.schema import Column

Place = tuple[tuple[Any, ...], ...]
# Below every write time: no deletion.
NEVER = -(1 << 63)

_BEFORE = (0,)
_ROW = (1,)
_BEHIND = (2,)
_FIRST: Place = (_BEFORE,)
_LAST: Place = (_BEHIND,)


class Step(NamedTuple):
    """All rows between two cuts. The bounds' own values are kept to give the range back."""

    start: Place
    end: Place
    deletion: Deletion
    start_values: tuple[Any, ...]
    end_values: tuple[Any, ...]

    @property
    def range(self) -> Range:
        start = Bound(self.start_values, self.start[-1] == _BEFORE) if self.start_values else None
        end = Bound(self.end_values, self.end[-1] == _BEHIND) if self.end_values else None
        return Range(start, end)


def rank(deletion: Deletion) -> tuple[int, int]:
    """What deletions are compared by: the write time, then the second at which it was noted."""
    return deletion.time, -1 if deletion.local_s is None else deletion.local_s


def greater(one: Deletion | None, other: Deletion | None) -> Deletion | None:
    """The join of two deletions of the same thing."""
    if one is None or other is None:
        return other if one is None else one
    return other if rank(other) > rank(one) else one


def _prefix(clustering: tuple[Column, ...], values: tuple[Any, ...]) -> Place:
    place = []
    for column, value in zip(clustering, values, strict=False):
        key = order_key(column.type, value)
        place.append((1, Reversed(key) if column.descending else key))
    return tuple(place)


def row_place(clustering: tuple[Column, ...], values: tuple[Any, ...]) -> Place:
    """Where a row stands in its partition."""
    return (*_prefix(clustering, values), _ROW)


class RangeDeletions:
    """The range deletions of one partition."""

    __slots__ = ("_starts", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._starts: list[Place] = []

    def __bool__(self) -> bool:
        return bool(self.steps)

    def at(self, place: Place) -> int:
        """The write time of the deletion that covers a row, NEVER when none does."""
        index = bisect_right(self._starts, place) - 1
        if index >= 0 and place < self.steps[index].end:
            return self.steps[index].deletion.time
        return NEVER

    def add(self, clustering: tuple[Column, ...], where: Range, deletion: Deletion) -> None:
        """Join one more range deletion; an empty range deletes nothing."""
        start, start_values = _FIRST, ()
        end, end_values = _LAST, ()
        if where.start is not None:
            start_values = where.start.values
            start = (*_prefix(clustering, start_values), _BEFORE if where.start.inclusive else _BEHIND)
        if where.end is not None:
            end_values = where.end.values
            end = (*_prefix(clustering, end_values), _BEHIND if where.end.inclusive else _BEFORE)
        if start < end:
            self._replace(_overlay(self.steps, Step(start, end, deletion, start_values, end_values)))

    def keep_above(self, time: int) -> None:
        """Drop what a deletion of the whole partition or table covers."""
        if any(step.deletion.time <= time for step in self.steps):
            self._replace([step for step in self.steps if step.deletion.time > time])

    def _replace(self, steps: list[Step]) -> None:
        joined: list[Step] = []
        for step in steps:
            last = joined[-1] if joined else None
            if last is not None and last.end == step.start and rank(last.deletion) == rank(step.deletion):
                joined[-1] = last._replace(end=step.end, end_values=step.end_values)
            else:
                joined.append(step)
        self.steps = joined
        self._starts = [step.start for step in joined]


def _overlay(steps: list[Step], new: Step) -> list[Step]:
    """The steps with one more laid over them; where two overlap, the greater deletion counts."""
    out: list[Step] = []
    rest: Step | None = new
    for step in steps:
        if rest is None or step.end <= rest.start:
            out.append(step)
            continue
        if rest.end <= step.start:
            out += (rest, step)
            rest = None
            continue
        if step.start < rest.start:
            out.append(step._replace(end=rest.start, end_values=rest.start_values))
            step = step._replace(start=rest.start, start_values=rest.start_values)
        elif rest.start < step.start:
            out.append(rest._replace(end=step.start, end_values=step.start_values))
            rest = rest._replace(start=step.start, start_values=step.start_values)
        # From here both begin at the same cut; the shorter one ends the overlap.
        deletion = new.deletion if rank(new.deletion) > rank(step.deletion) else step.deletion
        shorter = step if step.end <= rest.end else rest
        out.append(shorter._replace(deletion=deletion))
        if step.end > rest.end:
            out.append(step._replace(start=rest.end, start_values=rest.end_values))
            rest = None
        elif rest.end > step.end:
            rest = rest._replace(start=step.end, start_values=step.end_values)
        else:
            rest = None
    if rest is not None:
        out.append(rest)
    return out
