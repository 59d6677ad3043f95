"""The log loses power at every step of every workload, in every way, recovers, goes on, and loses power again.

`PENSTOCK_SCHEDULES=1000000` asks for a campaign: as many schedules, from further seeds. A failing schedule is one line;
`PENSTOCK_REPLAY='<line>' pytest tests/simulation/test_log_crashes.py -k replayed` runs it alone.
"""

from __future__ import annotations

import os

import pytest

from testkit.crash_files import CrashFiles
from tests import campaigns
from tests.counted import RecordProperty, record
from tests.simulation.schedules import WORKLOADS, Explorer, Tally, explore, replay

# Every run of `make test`, and how many schedules that can fail it gives at least: a workload that shrinks unnoticed
# would prove less and less.
RUNS = {
    ("single", 1): 275,
    ("batches", 1): 190,
    ("together", 1): 590,
    ("rollover", 1): 950,
    ("schema", 1): 575,
    ("reopen", 1): 1170,
    ("reopen-small", 1): 1075,
    ("transactions", 1): 790,
    ("subscriptions", 1): 2325,
    ("kept", 1): 1230,
    ("deflate", 1): 205,
    ("snappy", 1): 515,
    ("zstandard", 1): 195,
    ("written", 1): 150,
    ("random", 1): 1135,
    ("random", 2): 835,
    ("random", 3): 400,
    ("random", 4): 625,
    ("random", 5): 605,
    ("random", 6): 890,
    ("random", 7): 1335,
    ("random", 8): 1230,
    ("random", 9): 820,
    ("random", 10): 955,
    ("random", 11): 545,
    ("random", 12): 425,
    ("random", 13): 1100,
    ("random", 14): 325,
    ("random", 15): 985,
    ("random", 16): 1140,
}
CAMPAIGN = int(os.environ.get("PENSTOCK_SCHEDULES", "0"))


def verdict(tally: Tally) -> str:
    return "\n".join(["broken promises; each line replays with PENSTOCK_REPLAY:", *tally.failures])


def note(record_property: RecordProperty, tally: Tally) -> None:
    record(record_property, "crash schedules", tally.schedules, tally.broken, tally.owing_nothing)


def test_the_runs_come_to_twenty_thousand_schedules() -> None:
    assert {workload for workload, _ in RUNS} == set(WORKLOADS)
    assert sum(RUNS.values()) >= 20_000


@pytest.mark.parametrize(("workload", "seed"), list(RUNS))
def test_no_crash_loses_or_invents_a_change(workload: str, seed: int, record_property: RecordProperty) -> None:
    tally = explore(workload, seed)
    note(record_property, tally)
    assert not tally.failures, verdict(tally)
    assert tally.schedules >= RUNS[workload, seed]


@pytest.mark.parametrize("workload", list(WORKLOADS))
def test_every_schedule_that_is_counted_can_fail(workload: str) -> None:
    # A log of which nothing is left after a crash: what was owed is missed each time, and nothing else is.
    lost = Explorer(workload, 1, every=5, failures_max=1_000_000, spoil=lambda _: CrashFiles()).run()
    assert lost.schedules > 10
    assert len(lost.failures) == lost.schedules


@pytest.mark.timeout(0)
def test_a_campaign_of_random_workloads_finds_nothing(record_property: RecordProperty) -> None:
    whole, seed = Tally(), 100
    while whole.schedules < max(CAMPAIGN, 1) and not whole.failures:
        seed += 1
        for workload in WORKLOADS if CAMPAIGN else ["random"]:
            whole.add(explore(workload, seed))
    note(record_property, whole)
    facts = {"further schedules with nothing to lose": whole.owing_nothing, "seeds of each workload": seed - 100}
    campaigns.keep("crashes", "power loss of the log", None, {"crash schedules": whole.schedules}, facts, whole.broken)
    assert not whole.failures, verdict(whole)


def test_one_schedule_can_be_replayed() -> None:
    line = os.environ.get("PENSTOCK_REPLAY", "rollover:1:60:torn/5:9:mix/7")
    tally = replay(line)
    assert not tally.failures, verdict(tally)
    assert tally.schedules + tally.owing_nothing == 1
