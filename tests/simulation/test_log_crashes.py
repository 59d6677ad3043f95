"""The log loses power at every step of every workload, in every way, recovers, goes on, and loses power again.

`PENSTOCK_SCHEDULES=1000000` asks for a campaign: as many schedules, from further seeds. A failing schedule is one line;
`PENSTOCK_REPLAY='<line>' pytest tests/simulation/test_log_crashes.py -k replayed` runs it alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.simulation.schedules import WORKLOADS, Tally, explore, replay

# What one seed of each workload gives at least: a workload that shrinks unnoticed would prove less and less.
SCHEDULES_MIN = {
    "single": 900,
    "batches": 700,
    "together": 1500,
    "rollover": 2500,
    "schema": 1600,
    "reopen": 3000,
    "reopen-small": 2700,
    "transactions": 2100,
    "subscriptions": 5500,
    "deflate": 700,
    "snappy": 1400,
    "zstandard": 700,
    "written": 3000,
    "random": 800,
}
CAMPAIGN = int(os.environ.get("PENSTOCK_SCHEDULES", "0"))


def verdict(tally: Tally) -> str:
    return "\n".join(["broken promises; each line replays with PENSTOCK_REPLAY:", *tally.failures])


def test_the_workloads_come_to_twenty_thousand_schedules() -> None:
    assert set(SCHEDULES_MIN) == set(WORKLOADS)
    assert sum(SCHEDULES_MIN.values()) >= 20_000


@pytest.mark.parametrize("workload", list(WORKLOADS))
def test_no_crash_loses_or_invents_a_change(workload: str, record_property: Callable[[str, object], None]) -> None:
    tally = explore(workload, seed=1)
    record_property("crash schedules", tally.schedules)
    assert not tally.failures, verdict(tally)
    assert tally.schedules >= SCHEDULES_MIN[workload]


@pytest.mark.timeout(0)
def test_a_campaign_of_random_workloads_finds_nothing(record_property: Callable[[str, object], None]) -> None:
    done, seed = 0, 1
    while done < max(CAMPAIGN, 1):
        seed += 1
        for workload in WORKLOADS if CAMPAIGN else ["random"]:
            limit = None if CAMPAIGN else 800
            tally = explore(workload, seed, limit=limit)
            assert not tally.failures, verdict(tally)
            done += tally.schedules
    record_property("crash schedules", done)


def test_one_schedule_can_be_replayed() -> None:
    line = os.environ.get("PENSTOCK_REPLAY", "rollover:1:60:torn/5:9:mix/7")
    tally = replay(line)
    assert not tally.failures, verdict(tally)
    assert tally.schedules == 2
