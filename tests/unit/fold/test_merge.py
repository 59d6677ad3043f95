"""The order in which several sorted runs make one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from penstock.fold._merge import merge_order
from penstock.fold.entries import merged_order


def views(*tables: Any) -> list[Any]:
    return [memoryview(table) for table in tables]


@pytest.mark.parametrize("seed", range(8))
def test_every_key_is_there_once_as_the_newest_run_has_it(seed: int) -> None:
    chance = random.Random(seed)
    runs = [
        sorted({(chance.randrange(6), chance.randrange(6)) for _ in range(chance.randrange(30))})
        for _ in range(chance.randrange(1, 6))
    ]
    keys = [key for run in runs for key in run]
    owners = [number for number, run in enumerate(runs) for _ in run]
    highs, lows = (np.array([key[half] for key in keys], np.uint64) for half in (0, 1))
    order = merged_order([len(run) for run in runs], highs, lows).tolist()
    newest = dict(reversed(list(zip(keys, owners, strict=True))))
    assert [(keys[place], owners[place]) for place in order] == sorted(newest.items())


def test_runs_outside_the_entries_are_refused() -> None:
    keys, order = np.zeros(2, np.uint64), np.zeros(2, np.int64)
    for bounds in ([0, 3], [1, 0], [-1, 2]):
        places = np.array(bounds, np.int64)
        with pytest.raises(ValueError, match="outside"):
            merge_order(*views(keys, keys, places, places.copy(), order))
    with pytest.raises(ValueError, match="too short"):
        merge_order(*views(keys, keys, np.array([0, 2]), np.array([0, 2]), order[:1]))
