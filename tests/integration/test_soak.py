"""A soak of seconds here, of half an hour by `make soak`: nothing is lost in silence, and nothing grows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import campaigns
from tests.counted import RecordProperty, record
from tests.soak.run import Soak, plan

MINUTES = float(os.environ.get("PENSTOCK_SOAK_MINUTES", "0.25"))
SEED = 20_261
ROUNDS = ("kill -9", "SIGTERM", "floods", "stops", "rewinds")


@pytest.mark.timeout(900 + MINUTES * 60)
def test_nothing_grows_and_nothing_is_lost_in_silence(tmp_path: Path, record_property: RecordProperty) -> None:
    outcome = Soak(tmp_path, plan(MINUTES), SEED).run()
    rounds = {name: outcome.events[name] for name in ROUNDS}
    record(record_property, "kills", outcome.events["kill -9"], outcome.broken)
    levels = {name: verdict.to_json() | {"values": outcome.points[name]} for name, verdict in outcome.verdicts.items()}
    campaigns.keep("soak", "soak", SEED, rounds, outcome.facts, outcome.broken, levels=levels)
    said = [f"{what}: {count}" for what, count in sorted({**outcome.events, **outcome.facts}.items())]
    said += [f"{name}: {verdict}" for name, verdict in outcome.verdicts.items()]
    sys.stderr.write("\n" + "\n".join(said) + "\n")
    assert not outcome.problems, "\n".join(outcome.problems)
    assert all(rounds.values()), rounds
