"""The figures at the end of a test run say what the run came to."""

from __future__ import annotations

from collections import Counter

from tests.counted import differences, record, summary
from tests.simulation.checker import promises


def test_what_was_lost_and_invented_is_added_up_from_the_tests() -> None:
    recorded: list[tuple[str, object]] = [("mutant", "of another kind")]

    def record_property(name: str, value: object) -> None:
        recorded.append((name, value))

    record(record_property, "kills", 3, Counter(lost=1))
    record(record_property, "kills", 4, {"invented": 2, "order": 1})
    record(record_property, "crash schedules", 10, {}, owing_nothing=5)
    assert summary(recorded) == [
        "crash schedules: 10, lost 0, invented 0, otherwise broken 0; 5 more with nothing to lose",
        "kills: 7, lost 1, invented 2, otherwise broken 1",
    ]


def test_differences_are_counted_with_repetitions() -> None:
    assert differences([1, 2, 3, 3], [3, 2, 2, 5]) == {"lost": 2, "invented": 2}
    assert not +differences("abc", "cab")


def test_each_line_of_the_judge_says_which_promise_it_is_about() -> None:
    lines = ["second crash: lost: batch 3", "lost: batch 4", "refused pwritev EIO@3/0: after drop/0: torn: batch 1"]
    assert promises([*lines, "single:1 does not run: KeyError"]) == {"lost": 1, "torn": 1, "does not run": 1}
    assert promises(["something else"]) == {"unknown": 1}
