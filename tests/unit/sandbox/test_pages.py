"""The examples in the pages about merging and the sandbox run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs" / "concepts"


def examples() -> list[tuple[str, str]]:
    found = []
    for page in ("merge.md", "sandbox.md"):
        for code in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL):
            found.append((page, code))
    return found


@pytest.mark.parametrize(("page", "code"), examples())
def test_the_examples_of_a_page_run(page: str, code: str) -> None:
    exec(compile(code, page, "exec"), {})


def test_both_pages_have_examples() -> None:
    assert [page for page, _ in examples()] == ["merge.md", "sandbox.md", "sandbox.md", "sandbox.md"]
