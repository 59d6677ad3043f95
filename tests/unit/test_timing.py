"""Timing: durations fall into the right step."""

from __future__ import annotations

from penstock.system.timing import BOUNDS_S, Timing


def test_durations_are_counted_in_their_step_and_summed() -> None:
    times = iter([0.0001, 0.0005, 0.3, 99.0])
    timing = Timing(now=lambda: next(times))
    for _ in range(4):
        timing.end(0.0)
    read = timing.read()
    assert read.total_s == 0.0001 + 0.0005 + 0.3 + 99.0
    assert read.counts[0] == 2
    assert read.counts[BOUNDS_S.index(1.0)] == 1
    assert read.counts[-1] == 1
    assert sum(read.counts) == 4
