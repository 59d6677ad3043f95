"""The page of errors is that of the code, and every message that the page for operators quotes is in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import errors
from scripts import errors_page

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "operate" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


def said() -> Iterator[str]:
    """Every text in the source, with a gap where a value is put in."""
    for path in (ROOT / "src" / "penstock").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if node in docstrings:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)


@pytest.fixture(scope="module")
def texts() -> str:
    return "\n".join(said())


def test_the_page_of_errors_is_the_one_that_the_code_makes() -> None:
    assert (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8") == errors_page.page(), (
        "run `make docs`"
    )


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    drawn = re.findall(r"^    ([│ ]*)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE)
    parents: list[str] = []
    for indent, name in drawn:
        depth = len(indent) // 4
        parents[depth:] = [name]
        parent = parents[depth - 1] if depth else "PenstockError"
        assert getattr(errors, name).__mro__[1].__name__ == parent
    assert {name for _, name in drawn} == {kind.__name__ for kind in errors_page.every_error()}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_the_page_is_one_of_the_code(message: str, texts: str) -> None:
    assert message in texts


def test_no_message_stands_twice_and_there_are_many() -> None:
    assert len(set(MESSAGES)) == len(MESSAGES) > 60
