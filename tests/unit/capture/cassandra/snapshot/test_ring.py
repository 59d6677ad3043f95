"""Token ranges: however the ring is divided and cut, every token is read exactly once."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capture.cassandra.snapshot.ring import (
    FULL,
    TOKEN_MAX,
    TOKEN_MIN,
    TokenRange,
    cut,
    joined,
    primary_ranges,
    width,
    without,
)

tokens = st.one_of(st.integers(TOKEN_MIN + 1, TOKEN_MAX), st.sampled_from([TOKEN_MIN + 1, -1, 0, 1, TOKEN_MAX]))
rings = st.dictionaries(tokens, st.sampled_from("abc"), min_size=1, max_size=40)
small_ranges = st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda p: TokenRange(p[0], p[0] + p[1]))


def held(ranges: list[TokenRange]) -> list[int]:
    return sorted(token for one in ranges for token in range(one.start + 1, one.end + 1))


@given(rings, st.integers(1, 300))
@settings(deadline=None)
def test_the_splits_of_all_nodes_cover_the_ring_exactly_once(ring: dict[int, str], pieces: int) -> None:
    splits = [split for node in "abc" for split in cut(primary_ranges(ring.items(), {node}), pieces)]
    splits.sort()
    assert splits[0].start == TOKEN_MIN
    assert splits[-1].end == TOKEN_MAX
    assert all(one.end == other.start for one, other in itertools.pairwise(splits))
    assert all(split.width > 0 for split in splits)


@given(rings, tokens)
@settings(deadline=None)
def test_a_token_belongs_to_the_node_whose_token_is_the_next_in_the_ring(ring: dict[int, str], token: int) -> None:
    owner = ring[min((one for one in ring if one >= token), default=min(ring))]
    ranges = primary_ranges(ring.items(), {owner})
    assert any(one.start < token <= one.end for one in ranges)


def test_one_node_has_the_whole_ring_in_one_range() -> None:
    assert primary_ranges([(5, "a"), (-9, "a"), (70, "a")], {"a"}) == [FULL]


def test_a_node_that_is_not_in_the_ring_has_nothing() -> None:
    assert primary_ranges([(5, "a")], {"b"}) == []


@given(st.lists(small_ranges), st.lists(small_ranges))
@settings(deadline=None)
def test_without_leaves_the_tokens_that_are_in_no_hole(ranges: list[TokenRange], holes: list[TokenRange]) -> None:
    assert held(without(ranges, holes)) == sorted(set(held(ranges)) - set(held(holes)))


@given(st.lists(small_ranges))
@settings(deadline=None)
def test_joined_ranges_hold_the_same_tokens_and_do_not_touch(ranges: list[TokenRange]) -> None:
    out = joined(ranges)
    assert held(out) == sorted(set(held(ranges)))
    assert all(one.end < other.start for one, other in itertools.pairwise(out))


@given(st.lists(small_ranges, min_size=1), st.integers(1, 50))
@settings(deadline=None)
def test_cutting_keeps_every_token_once(ranges: list[TokenRange], pieces: int) -> None:
    whole = joined(ranges)
    assert held(cut(whole, pieces)) == held(whole)


def test_splits_are_about_as_many_and_as_wide_as_asked_for() -> None:
    splits = cut([FULL], 64)
    assert len(splits) == 64
    assert width(splits) == FULL.width
    assert max(one.width for one in splits) - min(one.width for one in splits) <= 1


def test_a_range_too_narrow_for_its_share_stays_whole() -> None:
    narrow, wide = TokenRange(0, 1), TokenRange(10, TOKEN_MAX)
    assert cut([narrow, wide], 4)[0] == narrow
