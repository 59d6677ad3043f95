"""The harness: interleaved pairs, ratios, targets, and what the machine was doing meanwhile.

A figure is a ratio of two sides measured in one run. The sides alternate (A B, B A, A B …, at least five pairs),
because neighbours and the disk's burst credit move absolute numbers by several times within an hour; the median of
the pairwise ratios and their range stay meaningful. CPU-seconds and the load average stand beside every wall time.
A benchmark checks its results before its times count: `Run.check` fails the whole run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"
RESULTS = Path(__file__).resolve().parent / "results"
PAIRS_MIN = 5


class CheckFailed(Exception):
    """A side did not do the work that it was timed for; its figures count for nothing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One slice of one side: how much was done, in how much wall and CPU time, and the latencies seen in it."""

    amount: float
    wall_s: float
    cpu_s: float
    latencies_us: tuple[float, ...] = ()

    @property
    def rate(self) -> float:
        return self.amount / self.wall_s

    @property
    def cpu_rate(self) -> float:
        return self.amount / self.cpu_s if self.cpu_s else float("inf")


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure must reach: at least or at most a number."""

    at_least: float | None = None
    at_most: float | None = None

    def met(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One result. `value` is what the target judges; `low` and `high` are the range over the pairs."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    target: str = ""
    passed: bool | None = None
    pairs: int = 0
    # Absolute numbers of both sides, as medians: good inside this run only.
    ours: float | None = None
    peer: float | None = None
    absolute_unit: str = ""
    note: str = ""


@dataclass(slots=True)
class Run:
    """One benchmark's run: its figures, and the machine it ran on."""

    name: str
    quick: bool
    figures: list[Figure] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    started: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    load_before: tuple[float, float, float] = field(default_factory=os.getloadavg)
    load_after: tuple[float, float, float] | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    _begin: float = field(default_factory=time.monotonic)

    def check(self, what: str, condition: bool) -> None:
        """Note a check of the results; a false one ends the run."""
        if not condition:
            raise CheckFailed(f"{self.name}: {what}")
        self.checks.append(what)

    def add(self, figure: Figure) -> None:
        self.figures.append(figure)
        say(figure_line(figure))

    def ratio(
        self,
        name: str,
        ratios: Sequence[float],
        target: Target | None = None,
        *,
        ours: float | None = None,
        peer: float | None = None,
        unit: str = "",
        note: str = "",
    ) -> None:
        """Add a figure that is the median of pairwise ratios."""
        value = statistics.median(ratios)
        self.add(
            Figure(
                name,
                value,
                "×",
                min(ratios),
                max(ratios),
                str(target or ""),
                None if target is None else target.met(value),
                len(ratios),
                ours,
                peer,
                unit,
                note,
            )
        )

    def value(
        self,
        name: str,
        values: Sequence[float],
        unit: str,
        target: Target | None = None,
        *,
        worst: bool = False,
        note: str = "",
    ) -> None:
        """Add a plain number: the median of `values`, or with `worst` the greatest of them."""
        value = max(values) if worst else statistics.median(values)
        self.add(
            Figure(
                name,
                value,
                unit,
                min(values),
                max(values),
                str(target or ""),
                None if target is None else target.met(value),
                len(values),
                note=note,
            )
        )

    @property
    def passed(self) -> bool:
        return all(figure.passed is not False for figure in self.figures)

    def finish(self, options: argparse.Namespace) -> int:
        """Write the results, show them, and give the exit status: 1 when a target was missed in a full run.

        Only what anybody can repeat by name is published: a run that was shortened, or given other data, is shown, and
        written where `--out` says.
        """
        self.load_after = os.getloadavg()
        self.wall_s = time.monotonic() - self._begin
        self.cpu_s = cpu_s() + cpu_s(children=True)
        self.machine = machine(Path(options.directory))
        data = self.to_json()
        place = options.out or (RESULTS if options.published else None)
        if place is None:
            say("nothing is saved: not the run that is published; --out DIR keeps the results")
        else:
            place.mkdir(parents=True, exist_ok=True)
            path = place / f"{self.name}.json"
            part = path.with_suffix(".json.tmp")
            part.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
            part.rename(path)
        if options.json:
            show(json.dumps(data, ensure_ascii=False))
        else:
            show(table(data))
        return 0 if self.passed or options.quick else 1

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "quick": self.quick,
            "passed": self.passed,
            "started": self.started,
            "wall_s": round(self.wall_s, 3),
            "cpu_s": round(self.cpu_s, 3),
            "load_before": self.load_before,
            "load_after": self.load_after,
            "machine": self.machine,
            "checks": self.checks,
            "figures": [
                {key: _rounded(value) for key, value in asdict(figure).items() if value is not None and value != ""}
                for figure in self.figures
            ],
        }


def options(
    name: str, description: str, arguments: Sequence[str] | None = None, *, files: str = "", **extra: Any
) -> argparse.Namespace:
    """The arguments that all benchmarks share. `extra` maps further option names to their integer defaults.

    A benchmark that takes `files` says with it what they are; they come with a schema file. `published` says whether
    the run is the one whose results stand in the repository: a full one, on the benchmark's own data.
    """
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=description)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--quick", action="store_true", help="a short run that checks the harness; saves nothing")
    parser.add_argument("--out", type=Path, help="a directory for the results, instead of the published ones")
    parser.add_argument("--directory", default=str(CACHE), help="where the data goes: the disk under test")
    parser.add_argument("--no-kafka", action="store_true", help="leave out the comparison with a Kafka broker")
    if files:
        parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help=files)
        parser.add_argument("--schema", type=Path, help="a .cql or JSON file with the tables; else the files' own")
    for key, default in extra.items():
        parser.add_argument(f"--{key.replace('_', '-')}", type=int, default=default)
    parsed = parser.parse_args(arguments)
    own = bool(files) and bool(parsed.files or parsed.schema)
    own = own or any(getattr(parsed, key) != default for key, default in extra.items())
    parsed.published = not (parsed.quick or parsed.no_kafka or own)
    Path(parsed.directory).mkdir(parents=True, exist_ok=True)
    return parsed


def interleave(ours: Callable[[], Sample], peer: Callable[[], Sample], count: int) -> tuple[list[Sample], list[Sample]]:
    """Run `count` pairs of slices; every other pair runs the peer first, so that no side always comes second."""
    if count < PAIRS_MIN:
        raise ValueError(f"a ratio needs at least {PAIRS_MIN} pairs")
    ours_samples: list[Sample] = []
    peer_samples: list[Sample] = []
    for index in range(count):
        if index % 2:
            peer_samples.append(peer())
            ours_samples.append(ours())
        else:
            ours_samples.append(ours())
            peer_samples.append(peer())
    return ours_samples, peer_samples


def quotients(ours: Sequence[float], peer: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(ours, peer, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: a value that was really seen."""
    ordered = sorted(values)
    # Rounded first, so that 0.99 × 100 is 99 and not a hair more.
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]


def cpu_s(*, children: bool = False) -> float:
    """CPU-seconds of this process so far, all threads, user and system; or of its children that have ended."""
    if not children:
        return time.process_time()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu_s_of(pid: int) -> float:
    """CPU-seconds of another process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int | str = "self") -> dict[str, int]:
    """Resident bytes of a process: in all, at the peak, and without mapped files."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, rest = line.partition(":")
        if key in ("VmRSS", "VmHWM", "RssAnon"):
            found[key] = int(rest.split()[0]) * 1024
    return found


def disk_read_bytes(pid: int | str = "self") -> int:
    """Bytes that the disk had to fetch for this process; what the page cache gave does not count."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise CheckFailed("no read_bytes in /proc/…/io")


def machine(directory: Path) -> dict[str, Any]:
    """What the figures were measured on."""
    cpu = memory = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            memory = f"{int(line.split()[1]) / (1 << 20):.1f} GiB"
            break
    mount = subprocess.run(  # noqa: S603 - words of ours
        ["findmnt", "-n", "-o", "FSTYPE,OPTIONS", "-T", str(directory)],  # noqa: S607 - as a shell finds it
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": " ".join(mount.stdout.split()),
    }


def figure_line(figure: Figure) -> str:
    """One figure for people."""
    verdict = {True: "pass", False: "MISS", None: ""}[figure.passed]
    spread = "" if figure.low is None else f"[{number_text(figure.low)} … {number_text(figure.high)}]"
    sides = ""
    if figure.ours is not None and figure.peer is not None:
        sides = f"{number_text(figure.ours)} vs {number_text(figure.peer)} {figure.absolute_unit}"
    note = f"  ({figure.note})" if figure.note else ""
    value = f"{number_text(figure.value)} {figure.unit}"
    return f"{figure.name:<58} {value:>14} {spread:<22} {figure.target:>8} {verdict:<5} {sides}{note}"


def table(data: dict[str, Any]) -> str:
    """A run's results for people, from its JSON."""
    names = set(Figure.__dataclass_fields__)
    lines = [f"{data['name']}: {'quick run, no figures to quote' if data['quick'] else data['started']}"]
    lines.extend(
        figure_line(Figure(**{key: value for key, value in item.items() if key in names})) for item in data["figures"]
    )
    lines.extend(f"checked: {check}" for check in data["checks"])
    load = f"{data['load_before'][0]:.1f} → {data['load_after'][0]:.1f}"
    where = data["machine"]
    lines.append(
        f"wall {data['wall_s']:.1f} s, CPU {data['cpu_s']:.1f} s, load {load}; {where['cores']} × {where['cpu']}"
    )
    return "\n".join(lines)


def show(text: str) -> None:
    """Results go to standard output, everything else to standard error."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def number_text(value: float | None) -> str:
    """A number for people: three digits that count, thousands apart."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
