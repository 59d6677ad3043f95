"""`penstock version`: what is running, for bug reports and scripts."""

from __future__ import annotations

import platform
from importlib import metadata

from penstock.cli import output
from penstock.cli.output import JsonOption


def version(json: JsonOption = False) -> None:
    """Print the version of Penstock and of what it stands on."""
    facts = about()
    if json:
        output.emit(facts)
        return
    shown = {**facts, "native": "yes" if facts["native"] else "no (plain Python, slower)"}
    output.pairs(shown)


def about() -> dict[str, str | bool]:
    """The facts."""
    from penstock.formats import native

    return {
        "penstock": metadata.version("penstock"),
        "python": platform.python_version(),
        "native": native,
        "pyarrow": metadata.version("pyarrow"),
        "platform": platform.platform(),
    }
