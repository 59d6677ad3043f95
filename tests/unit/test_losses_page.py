"""The page that lists the losses of others names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "reference" / "losses.md"


def test_every_test_that_the_page_names_is_there() -> None:
    named = 0
    for row in (line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")):
        cell = row.split("|")[3]
        files = [TESTS / name for name in re.findall(r"`(\S+\.py)`", cell)]
        functions = re.findall(r"`([a-z_]+)`", cell)
        assert all(file.is_file() for file in files), row
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        assert all(f"def test_{name}(" in text for name in functions), row
        named += len(functions)
    assert named > 12
