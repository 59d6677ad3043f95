"""What a scenario of the schema matrix is: a few lines of CQL in steps, in a keyspace of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Scenario:
    """Statements, one to a line; a line that is indented goes on. A line `--` ends a step.

    `KS` stands for the keyspace, and `EVERYWHERE` for the replication with which every node has all rows. A line that
    begins with `? ` may be refused by Cassandra; then it has no effect. A line `! t` has the nodes compact a table:
    what drops of columns have taken so far is in no file any more.
    Between the steps pipelines are run, agents are stopped, killed and replaced, and snapshots are taken.
    """

    name: str
    text: str
    # Whether a snapshot in the middle keeps it exact, by what docs/guides/cassandra-snapshot.md promises.
    copied: bool = True

    @property
    def keyspace(self) -> str:
        return "m_" + re.sub(r"\W+", "_", self.name.lower())[:44]

    @cached_property
    def steps(self) -> list[list[str]]:
        steps: list[list[str]] = [[]]
        for line in self.text.splitlines():
            if line.strip() == "--":
                steps.append([])
            elif line.startswith("  "):
                steps[-1][-1] += " " + line.strip()
            elif line.strip():
                steps[-1].append(line.strip().replace("KS", self.keyspace))
        return steps

    def at(self, moment: int, of: int) -> list[str]:
        """The statements at one of so many moments, over which the steps are spread evenly."""
        mine = [number for number in range(len(self.steps)) if number * of // len(self.steps) == moment]
        return [statement for number in mine for statement in self.steps[number]]
