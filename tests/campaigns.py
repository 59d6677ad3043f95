"""Campaigns: runs that are longer than `make test` has time for, each with a record that stays in the repository.

`make crash-campaign`, `make kill-campaign`, `make pipeline-kills` and `make soak` say with PENSTOCK_CAMPAIGN what was
called; then the test writes what it counted to `bench/results/campaigns/NAME.json`, whatever came out, and
`scripts/campaigns_page.py` makes docs/reference/campaigns.md of it. Nothing in a record is written by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "bench" / "results" / "campaigns"


def keep(
    name: str,
    title: str,
    seed: int | None,
    rounds: Mapping[str, int],
    facts: Mapping[str, int],
    broken: Mapping[str, int],
    *,
    levels: Mapping[str, Mapping[str, Any]] | None = None,
    records: Path = RECORDS,
) -> None:
    """Write the record of a campaign; an ordinary test run keeps none.

    `levels` is what was measured over time: for each thing its `first` and `last` level, the `rise`, the `peak`, the
    `bound` of growth, and some of the values.
    """
    command = os.environ.get("PENSTOCK_CAMPAIGN")
    if not command:
        return
    record: dict[str, Any] = {
        "title": title,
        "command": command,
        "commit": _git("rev-parse", "HEAD"),
        # Records themselves are no change of what was tested.
        "changed_files": len(_git("status", "--porcelain", "--", ".", ":!bench/results/campaigns").splitlines()),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": seed,
        "rounds": dict(rounds),
        "facts": dict(facts),
        **({"levels": dict(levels)} if levels else {}),
        "lost": broken.get("lost", 0),
        "invented": broken.get("invented", 0),
        "otherwise_broken": sum(count for kind, count in broken.items() if kind not in ("lost", "invented")),
    }
    records.mkdir(parents=True, exist_ok=True)
    path = records / f"{name}.json"
    part = path.with_suffix(".json.tmp")
    part.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.rename(path)


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if not done.returncode else ""
