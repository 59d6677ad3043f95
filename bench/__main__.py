"""`python -m bench`: run every benchmark, each in a process of its own, and show which targets were met.

`python -m bench append tail` runs those two; `python -m bench report` makes the documentation page from the results.
What is not a full run on the benchmarks' own data is shown and not saved, unless `--out` says where.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import report
from bench.harness import ROOT, say, show

NAMES = tuple(report.TITLES)
# The module of each benchmark, where it has another name.
MODULES = {"avro": "kernels", "json": "change_json", "commit-log": "commit_log", "spark-source": "spark_source"}
# The benchmark that takes files of one's own.
WITH_FILES = "commit-log"


def run(name: str, passed_on: Sequence[str]) -> dict[str, Any] | None:
    """One benchmark in a fresh process; None when it failed."""
    say(f"== {name}")
    command = [sys.executable, "-m", f"bench.{MODULES.get(name, name)}", "--json", *passed_on]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, cwd=ROOT)  # noqa: S603 - words of ours
    lines = done.stdout.splitlines()
    # A missed target also gives a status of 1, but then there are results.
    if not lines or not lines[-1].startswith("{"):
        say(f"== {name} failed with status {done.returncode}")
        return None
    data: dict[str, Any] = json.loads(lines[-1])
    return data


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["report"]:
        return report.main(given[1:])
    parser = argparse.ArgumentParser(prog="python -m bench", description="measure Penstock against its peers")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which of {', '.join(NAMES)}; all when none is given; after {WITH_FILES}, segments to measure with",
    )
    parser.add_argument("--schema", help=f"the tables of the segments that {WITH_FILES} is given")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--quick", action="store_true", help="short runs that check the harness; nothing is saved")
    parser.add_argument("--no-kafka", action="store_true", help="leave out the comparisons with a Kafka broker")
    parser.add_argument("--directory", help="where the data goes: the disk under test")
    parser.add_argument("--out", type=Path, help="a directory for the results, instead of the published ones")
    chosen = parser.parse_args(given)
    files = []
    if WITH_FILES in chosen.names:
        files = [name for name in chosen.names if name not in NAMES and Path(name).exists()]
        chosen.names = [name for name in chosen.names if name not in files]
    unknown = set(chosen.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}")
    flags = [flag for flag, on in (("--quick", chosen.quick), ("--no-kafka", chosen.no_kafka)) if on]
    if chosen.directory:
        flags += ["--directory", chosen.directory]
    if chosen.out:
        flags += ["--out", str(chosen.out.absolute())]
    names = [name for name in NAMES if name in chosen.names] if chosen.names else NAMES
    own = [str(Path(file).absolute()) for file in files]
    if chosen.schema:
        own += ["--schema", str(Path(chosen.schema).absolute())]
    runs = [run(name, [*flags, *own] if name == WITH_FILES else flags) for name in names]
    whole = [data for data in runs if data is not None]
    show(json.dumps(whole, ensure_ascii=False) if chosen.json else report.summary(whole))
    if len(whole) < len(runs):
        return 1
    return 0 if chosen.quick or all(data["passed"] for data in whole) else 1


if __name__ == "__main__":
    sys.exit(main())
