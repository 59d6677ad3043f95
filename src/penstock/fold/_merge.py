# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The merge kernel: the order in which the entries of several sorted runs make one.

Runs come from the newest to the oldest, and each has every key at most once; of equal keys only the newest run's entry
is in the order. A key is two numbers, compared one after the other. Runs are few, so the next entry is found by looking
at the first entry that is left of each.
"""

from __future__ import annotations

from typing import Any

import cython

compiled: bool = cython.compiled


def merge_order(high: Any, low: Any, bounds: Any, heads: Any, order: Any) -> int:
    """Fill `order` with places in `high` and `low`, in which the runs stand one after another; how many there are.

    `bounds` says where each run begins and, at last, where all of them end; `heads` is a copy of it to work with.
    """
    runs = len(bounds) - 1
    count = len(high)
    if runs < 0 or len(low) < count or len(heads) < runs or len(order) < count:
        raise ValueError("the tables of a merge are too short")
    for run in range(runs):
        if bounds[run] < 0 or bounds[run] > bounds[run + 1] or bounds[run + 1] > count or heads[run] != bounds[run]:
            raise ValueError("a run lies outside the entries")
    return _merge(runs, high, low, bounds, heads, order)


@cython.boundscheck(False)
def _merge(runs: int, high: Any, low: Any, bounds: Any, heads: Any, order: Any) -> int:
    made = 0
    while True:
        best = -1
        place = 0
        for run in range(runs):
            at = heads[run]
            if at == bounds[run + 1]:
                continue
            if best >= 0:
                if high[at] > high[place] or (high[at] == high[place] and low[at] > low[place]):
                    continue
                if high[at] == high[place] and low[at] == low[place]:
                    # A newer run has this key.
                    heads[run] = at + 1
                    continue
            best = run
            place = at
        if best < 0:
            return made
        order[made] = place
        made += 1
        heads[best] = place + 1
