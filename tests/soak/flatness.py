"""Flatness: whether what a process uses stays level, judged from samples over time.

What comes first is warm-up and is left out. Of the rest, the median of the last third is compared with that of the
first, and a line is laid through all of it: neither may rise by more than the bound over the whole stretch. Medians of
short windows stand for the samples, so that a flood that passes is no growth; what stays behind after it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import linear_regression, median
from typing import Any, NamedTuple

WARM_UP = 0.2
_WINDOWS = 60
# Fewer samples than this say nothing.
SAMPLES_MIN = 9


class Sample(NamedTuple):
    """One look: when, and how much."""

    time_s: float
    value: float


class Verdict(NamedTuple):
    """What a series came to. `rise` is that of the line through it, over the stretch that was judged."""

    first: float
    last: float
    rise: float
    peak: float
    bound: float

    @property
    def flat(self) -> bool:
        return self.last - self.first <= self.bound and self.rise <= self.bound

    def to_json(self) -> dict[str, Any]:
        """For the record of a campaign."""
        return {name: round(value) for name, value in self._asdict().items()} | {"flat": self.flat}


def judge(samples: Sequence[Sample], bound: float) -> Verdict:
    """Whether a series stays level within the bound."""
    if len(samples) < SAMPLES_MIN:
        raise ValueError(f"{len(samples)} samples are too few to judge by")
    begin, end = samples[0].time_s, samples[-1].time_s
    warm = [sample for sample in samples if sample.time_s >= begin + WARM_UP * (end - begin)]
    windows = _windows(warm)
    third = max(1, len(windows) // 3)
    first, last = (median(sample.value for sample in part) for part in (windows[:third], windows[-third:]))
    slope = linear_regression(*zip(*windows, strict=True)).slope
    rise = slope * (windows[-1].time_s - windows[0].time_s)
    return Verdict(first, last, rise, max(sample.value for sample in samples), bound)


def _windows(samples: Sequence[Sample]) -> list[Sample]:
    """Neighbouring samples as one each: the middle of their times, the median of their values."""
    size = max(1, len(samples) // _WINDOWS)
    parts = [samples[at : at + size] for at in range(0, len(samples), size)]
    return [Sample(median(one.time_s for one in part), median(one.value for one in part)) for part in parts]
