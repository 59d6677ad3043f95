"""Makes docs/reference/campaigns.md from the records of the last campaigns, so that no figure there is anybody's word.

`python scripts/campaigns_page.py` prints the page, `--write` writes it. A unit test compares the two.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "bench" / "results" / "campaigns"
PAGE = ROOT / "docs" / "reference" / "campaigns.md"
_HEAD = """# Campaigns

<!-- Made by scripts/campaigns_page.py from bench/results/campaigns; the campaigns and `make docs` write it. -->

`make test` crashes and kills for minutes; a campaign does the same for hours. Each writes a record of itself when it
ends, whatever came out, and this table is made of the last records. *Lost* and *invented* are counted by the judge of
the run: acknowledged changes and rows that the source has and the log or a target has not, and the other way round.
For the kills, the source is a real Cassandra node, and its own `SELECT` says which rows there are.

- `make crash-campaign` lets the power fail under the log ([Durability](../concepts/durability.md)). A schedule counts
  when it can fail.
- `make kill-campaign` kills the agent and the Cassandra node under load with `kill -9`, once with an agent that reads
  what is written and once with one that reads what is synced.
- `make pipeline-kills` kills what a pipeline needs: driver, Java machine, Spark's workers and executors, Python
  workers, the Kafka broker, the search node.
- `make soak` runs two agents for half an hour on commit logs that are written all the time, with caps of retention that
  bite, subscribers and clients that are quick, slow or away for minutes, rewinds, and floods of connections. One agent
  is ended again and again by SIGTERM and `kill -9`; the other is never, and what it uses must stay flat. Every change
  is accounted for by its number: what is missing for a reader is lost unless retention announced it.

"""
_TABLE = """\
| campaign | rounds | lost | invented | otherwise broken | date | commit | command |
|---|---|---|---|---|---|---|---|
"""


def page(records: Path = RECORDS) -> str:
    """The whole page."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(records.glob("*.json"))]
    if not found:
        return _HEAD + "No campaign has been kept yet.\n"
    details = [line for one in found for line in _details(one)] + [line for one in found for line in _levels(one)]
    return _HEAD + _TABLE + "".join(map(_row, found)) + "\n" + "".join(details)


def _row(record: dict[str, Any]) -> str:
    commit = f"`{record['commit'][:12]}`"
    if record["changed_files"]:
        commit += f" and {record['changed_files']} changed files"
    cells = [
        record["title"],
        f"{sum(record['rounds'].values()):,}",
        *(f"{record[name]:,}" for name in ("lost", "invented", "otherwise_broken")),
        record["date"],
        commit,
        f"`{record['command']}`",
    ]
    return f"| {' | '.join(cells)} |\n"


_LEVELS = """
*{title}*: the first fifth is warm-up and left out; of the rest, neither may the median of the last third lie above that
of the first by more than the bound, nor may a line through all of it rise by more.

| measured | first third | last third | rise of the line | bound | peak |
|---|---|---|---|---|---|
"""


def _levels(record: dict[str, Any]) -> Iterator[str]:
    """What was measured over time, where a campaign did that."""
    if "levels" not in record:
        return
    yield _LEVELS.format(title=record["title"])
    for what, level in record["levels"].items():
        cells = [f"{level[name]:,}" for name in ("first", "last", "rise", "bound", "peak")]
        yield f"| {what}{'' if level['flat'] else ' **(grows)**'} | {' | '.join(cells)} |\n"


def _details(record: dict[str, Any]) -> Iterator[str]:
    parts = [f"{count:,} × {kind}" for kind, count in record["rounds"].items()]
    facts = [f"{what}: {count:,}" for what, count in record["facts"].items()]
    seed = [] if record["seed"] is None else [f"seed {record['seed']}"]
    yield f"- *{record['title']}*: {', '.join(parts)}; {'; '.join([*facts, *seed])}.\n"


def main() -> int:
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
