"""The README's tour, run as a new user would: every command works and prints the kind of thing that is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
PROGRAM = re.search(r"```python\n(.*?)```", README, re.DOTALL)


def commands() -> list[tuple[str, list[str]]]:
    """Each command with the lines that the README shows below it."""
    found: list[tuple[str, list[str]]] = []
    for line in "".join(BLOCKS).splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    # Activating the environment is what the test itself does.
    return [(command, shown) for command, shown in found if not command.startswith("source ")]


def shape(lines: list[str]) -> list[str]:
    """Lines without what differs from run to run: numbers, times, nodes, and the spaces that go with them."""
    return [re.sub(r"\s+", " ", re.sub(r"\d[\d.,:TZ-]*", "#", line)).strip() for line in lines if line.strip()]


@pytest.fixture
def environment() -> dict[str, str]:
    programs = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "NO_COLOR": "1"}


def test_tour_works_and_prints_what_is_shown(tmp_path: Path, environment: dict[str, str]) -> None:
    tour = commands()
    assert len(tour) >= 6
    for command, shown in tour:
        shell = ["bash", "-c", command]
        done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        printed = done.stdout.splitlines()
        if command.startswith(("penstock demo", "penstock log ls", "penstock log verify")):
            assert shape(printed)[: len(shape(shown))] == shape(shown), command
        else:
            assert len(printed) == len(shown), command


def test_program_prints_only_what_is_new_the_second_time(tmp_path: Path, environment: dict[str, str]) -> None:
    assert PROGRAM is not None
    for _ in range(2):
        program = [sys.executable, "-c", PROGRAM.group(1)]
        done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        first, *rest = done.stdout.splitlines()
        assert first.startswith("written up to 00000")
        assert rest == [f"insert {{'id': {n}}}" for n in range(3)]


def test_targets_that_the_readme_names_exist() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"run", "test", "install", "check", "bench", "docs", "fuzz", "clean", "lock"} <= targets
    assert set(re.findall(r"(?m)(?:^|`)make ([a-z]+)", README)) <= targets
