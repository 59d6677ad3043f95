"""Makes docs/reference/errors.md from the tree of errors, so that page and code cannot differ.

`python scripts/errors_page.py` prints the page, `--write` writes it. A unit test compares the two.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from penstock import errors
from penstock.errors import PenstockError, Retry

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"
_HEAD = """# Errors

<!-- Made by scripts/errors_page.py from src/penstock/errors.py; `make docs` writes it. -->

Every error that Penstock raises on purpose. The command line prints the message, the place in brackets (file, offset,
table, position) and the hint; HTTP, the listener and `troubles` of a pipeline give the name in the first column. Values
of rows never stand in a message. [Troubleshooting](../operate/troubleshooting.md) goes by the message instead.

Whether trying again helps: *by itself*, after a while, and whoever runs does so; *when mended*, after somebody has done
something; *never*, the same call gives the same error.

| error | is a | what is wrong | trying again helps | what to do |
| --- | --- | --- | --- | --- |
"""
_WORDS = {Retry.TIMED: "by itself", Retry.MANUAL: "when mended", Retry.NEVER: "never"}


def described() -> dict[str, str]:
    """What is wrong, by the name of the error, as the tree in the module's docstring says it."""
    found = re.findall(r"[├└]── (\w+) +(.+)", errors.__doc__ or "")
    out: dict[str, str] = {}
    for name, text in found:
        # A child whose sentence goes on from its parent's.
        parent = getattr(errors, name).__mro__[1].__name__
        joint = ", and " if text.startswith("… and") else ": "
        rest = text.removeprefix("… ").removeprefix("and ")
        out[name] = f"{out[parent]}{joint}{rest}" if text.startswith("…") else text
    return out


def every_error(kind: type[PenstockError] = PenstockError) -> list[type[PenstockError]]:
    """All errors of the tree, parents before children, in the order of the module."""
    out: list[type[PenstockError]] = []
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            out += [child, *every_error(child)]
    return out


def page() -> str:
    """The whole page."""
    words = described()
    return _HEAD + "".join(_row(kind, words[kind.__name__]) for kind in every_error())


def _row(kind: type[PenstockError], wrong: str) -> str:
    parent = kind.__mro__[1]
    above = "" if parent is PenstockError else f"`{parent.__name__}`"
    return f"| `{kind.__name__}` | {above} | {wrong} | {_WORDS[kind.retry]} | {kind.hint} |\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
