"""Range deletions as a step function, by example; the property tests have the laws."""

from __future__ import annotations

from penstock.merge.range_deletions import NEVER, RangeDeletions, row_place
from penstock.model import types
from penstock.model.change import Bound, Deletion, Range
from penstock.model.schema import Column, Role

CLUSTERING = (Column("a", types.INT32, Role.CLUSTERING), Column("b", types.INT32, Role.CLUSTERING, descending=True))


def ranges(*added: tuple[tuple[int, ...], tuple[int, ...], int]) -> RangeDeletions:
    made = RangeDeletions()
    for start, end, time in added:
        made.add(CLUSTERING, Range(Bound(start, True), Bound(end, True)), Deletion(time))
    return made


def test_a_prefix_covers_all_rows_below_it() -> None:
    made = ranges(((1,), (1,), 5))
    assert made.at(row_place(CLUSTERING, (1, -100))) == 5
    assert made.at(row_place(CLUSTERING, (2, 0))) == NEVER


def test_with_a_descending_column_the_greater_value_is_the_start() -> None:
    made = ranges(((1, 9), (1, 3), 5))
    assert made.at(row_place(CLUSTERING, (1, 9))) == 5
    assert made.at(row_place(CLUSTERING, (1, 3))) == 5
    assert made.at(row_place(CLUSTERING, (1, 2))) == NEVER
    assert made.at(row_place(CLUSTERING, (1, 10))) == NEVER


def test_overlaps_keep_the_greater_deletion_and_neighbours_join() -> None:
    made = ranges(((1,), (5,), 5), ((3,), (8,), 9), ((4,), (4,), 1))
    assert [made.at(row_place(CLUSTERING, (a, 0))) for a in (0, 1, 2, 3, 5, 8, 9)] == [NEVER, 5, 5, 9, 9, 9, NEVER]
    assert [step.range for step in made.steps] == [
        Range(Bound((1,), True), Bound((3,), False)),
        Range(Bound((3,), True), Bound((8,), True)),
    ]


def test_the_same_deletion_in_pieces_is_the_deletion_as_a_whole() -> None:
    pieces = ranges(((1,), (3,), 5), ((3,), (6,), 5), ((2,), (4,), 5))
    assert pieces.steps == ranges(((1,), (6,), 5)).steps


def test_what_a_greater_deletion_covers_is_dropped() -> None:
    made = ranges(((1,), (2,), 5), ((5,), (6,), 9))
    made.keep_above(5)
    assert [step.deletion.time for step in made.steps] == [9]
    assert made.at(row_place(CLUSTERING, (1, 0))) == NEVER


def test_an_open_range_has_open_bounds_again() -> None:
    made = RangeDeletions()
    made.add(CLUSTERING, Range(None, None), Deletion(1))
    assert made.steps[0].range == Range(None, None)
