"""`penstock version`: what is running, for bug reports and scripts."""

from __future__ import annotations

import platform
from importlib import metadata

import typer

from penstock.cli import output
from penstock.cli.output import JsonOption
from penstock.system import kernels


def version(json: JsonOption = False) -> None:
    """Print the version of Penstock and of what it stands on."""
    facts = about()
    if json:
        output.emit(facts)
        return
    shown = {**facts, "native": "yes" if facts["native"] else f"no: plain Python, many times slower. {kernels.REMEDY}"}
    output.pairs(shown)


def print_version(wanted: bool) -> None:
    """`penstock --version`: the version alone, as other programs print it."""
    if wanted:
        output.line(f"penstock {metadata.version('penstock')}")
        raise typer.Exit


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
