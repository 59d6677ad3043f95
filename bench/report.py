"""The report: docs/reference/benchmarks.md, made from the results of the last full runs and nothing else."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness import RESULTS, ROOT, number_text, show

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
TITLES = {
    "append": "Durable append",
    "tail": "Tail",
    "avro": "Avro kernels",
    "json": "JSON of changes",
    "growth": "Growth",
    "commit-log": "Cassandra: commit log to changes",
    "agent": "Cassandra: cdc_raw to durable log",
    "latency": "Cassandra: acknowledged to delivered",
    "spark-source": "Spark: source to noop",
    "lakehouse": "Spark: changes to a Delta table",
    "pipeline": "Cassandra: segments to Kafka, replicas merged",
}
_HEAD = """\
# Benchmarks

This page is made by `python -m bench report` from `bench/results/`; do not edit it. `make bench` measures everything
anew. Each figure is a ratio of two sides that took turns in one run; the range is over the pairs. Absolute numbers are
good for comparing the two sides of one line and for nothing else. `bench/README.md` says how each is measured.
"""


def load(results: Path = RESULTS) -> list[dict[str, Any]]:
    """The stored results, in the order of TITLES, quick runs left out."""
    found = []
    for name in TITLES:
        path = results / f"{name}.json"
        if path.exists():
            data: dict[str, Any] = json.loads(path.read_text())
            if not data["quick"]:
                found.append(data)
    return found


def summary(runs: Sequence[dict[str, Any]]) -> str:
    """The judged figures of all runs, one line each, for the terminal."""
    lines = []
    for data in runs:
        lines.append(f"{data['name']}{' (quick run, no figures to quote)' if data['quick'] else ''}")
        for figure in data["figures"]:
            if figure.get("passed") is not None:
                verdict = "pass" if figure["passed"] else "MISS"
                value = f"{number_text(figure['value'])} {figure['unit']}"
                lines.append(f"  {verdict}  {figure['name']:<72} {value:>12}  target {figure['target']}")
    missed = sum(1 for data in runs for figure in data["figures"] if figure.get("passed") is False)
    judged = sum(1 for data in runs for figure in data["figures"] if figure.get("passed") is not None)
    lines.append(f"{judged - missed} of {judged} targets met")
    return "\n".join(lines)


def page(runs: Sequence[dict[str, Any]]) -> str:
    """The documentation page."""
    parts = [_HEAD]
    for data in runs:
        parts.append(f"## {TITLES[data['name']]}\n\n`python -m bench {data['name']}`, {_circumstances(data)}\n")
        judged = [figure for figure in data["figures"] if figure.get("passed") is not None]
        others = [figure for figure in data["figures"] if figure.get("passed") is None]
        parts.append(_table(judged, with_target=True))
        if others:
            parts.append("For information:\n\n" + _table(others, with_target=False))
        if data["checks"]:
            parts.append("Checked before the times counted:\n\n" + "".join(f"- {check}\n" for check in data["checks"]))
    if not runs:
        parts.append("There are no results yet.\n")
    return "\n".join(parts)


def _circumstances(data: dict[str, Any]) -> str:
    where = data["machine"]
    before, after = data["load_before"][0], data["load_after"][0]
    return (
        f"{data['started']}, {data['wall_s']:.0f} s wall, {data['cpu_s']:.0f} s CPU, load average {before:.1f} before "
        f"and {after:.1f} after; {where['cores']} × {where['cpu']}, {where['memory']}, "
        f"{where['file_system'].split()[0]}, Linux {where['kernel']}, Python {where['python']}."
    )


def _table(figures: Sequence[dict[str, Any]], *, with_target: bool) -> str:
    head = ["figure", "result", "range"] + (["target", "met"] if with_target else []) + ["ours / peer", "notes"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for figure in figures:
        cells = [figure["name"], f"**{number_text(figure['value'])} {figure['unit']}**", _range(figure)]
        if with_target:
            cells += [figure["target"], "yes" if figure["passed"] else "**missed**"]
        cells += [_sides(figure), figure.get("note", "")]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _range(figure: dict[str, Any]) -> str:
    if figure.get("pairs", 0) < 2:
        return ""
    return f"{number_text(figure['low'])} … {number_text(figure['high'])}"


def _sides(figure: dict[str, Any]) -> str:
    if "ours" not in figure or "peer" not in figure:
        return ""
    return f"{number_text(figure['ours'])} / {number_text(figure['peer'])} {figure.get('absolute_unit', '')}".strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench report", description="make docs/reference/benchmarks.md")
    parser.add_argument("--output", type=Path, default=PAGE)
    parser.add_argument("--check", action="store_true", help="only say whether the page is what the results give")
    chosen = parser.parse_args(arguments)
    text = page(load())
    if chosen.check:
        same = chosen.output.exists() and chosen.output.read_text() == text
        show(f"{chosen.output}: {'up to date' if same else 'out of date; run python -m bench report'}")
        return 0 if same else 1
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(text)
    show(f"wrote {chosen.output}")
    return 0
