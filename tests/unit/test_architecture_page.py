"""The page about the architecture names files that exist, and leaves no room out."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
OUTSIDE = ("docs/", "tests/", "bench/", "testkit/")
PATHS = sorted({path for path in re.findall(r"`([\w./-]+)`", PAGE) if "/" in path and path != "src/penstock/"})


@pytest.mark.parametrize("path", PATHS)
def test_what_the_page_names_is_there(path: str) -> None:
    base = ROOT if path.startswith(OUTSIDE) else ROOT / "src" / "penstock"
    assert (base / path).exists()


def test_the_walks_touch_the_files_of_the_path() -> None:
    steps = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    # To the log, to a subscriber, to a row: each walk goes on from the first one.
    assert steps == [*range(1, 8), *range(8, 11), *range(8, 17)]


def test_every_contract_of_the_checks_is_told() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = " ".join(PAGE.split())
    told = text[text.index("## What forbids what") :]
    for contract in project["tool"]["importlinter"]["contracts"]:
        assert contract["id"] == "layers" or contract["name"] in told
    assert "rooms import downward only" in told


GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")


def test_every_word_of_the_glossary_is_told_once_and_has_a_home() -> None:
    rows = re.findall(r"^\| ([\w -]+) \| (.+) \| (`.+`) \|$", GLOSSARY, re.MULTILINE)
    words = [word for word, _, _ in rows if word != "word"]
    assert len(words) > 30
    assert len(words) == len(set(words))
    for path in re.findall(r"`([\w./]+)`", " ".join(home for _, _, home in rows)):
        assert (ROOT / "src" / "penstock" / path).exists(), path
