"""How a limit is shared among logs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.source.admission import fair_shares


def test_what_a_quiet_log_does_not_need_goes_to_the_others() -> None:
    assert fair_shares([2, 100, 100], 50) == [2, 24, 24]


def test_enough_for_all_is_given_to_all() -> None:
    assert fair_shares([2, 100, 7], 1000) == [2, 100, 7]


def test_with_less_than_one_for_each_everyone_has_a_turn() -> None:
    first = [at for turn in range(3) for at, share in enumerate(fair_shares([9, 9, 9], 1, turn)) if share]
    assert sorted(first) == [0, 1, 2]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 5000), st.integers(0, 100))
def test_shares_never_exceed_the_budget_or_the_wish_and_never_stand_still(
    wants: list[int], budget: int, turn: int
) -> None:
    shares = fair_shares(wants, budget, turn)
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    assert 0 < sum(shares) <= budget
    assert sum(shares) == min(budget, sum(wants)) or max(wants) > max(shares)
