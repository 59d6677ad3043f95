"""`penstock bootstrap CONFIG`: a pipeline that begins with the rows that its target already has."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli import needs, output
from penstock.cli.agent import ConfigArgument
from penstock.cli.agent_snapshot import parse_table
from penstock.cli.output import JsonOption
from penstock.cli.pipeline import load_settings
from penstock.errors import InvalidInput


class Target(StrEnum):
    """Where the rows are taken from."""

    DELTA = "delta"


def bootstrap(
    config: ConfigArgument,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KS.TABLE]…", help="The tables; without any, all that logs and target have."),
    ] = None,
    origin: Annotated[Target, typer.Option("--from", help="The target that has the rows.")] = Target.DELTA,
    as_of: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Every write up to this time is in the target; later ones come on top. As 2026-01-31T12:00:00Z.",
        ),
    ] = "1970-01-01T00:00:00Z",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read the target and say what would be loaded, and load nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Load the state of a pipeline that has not begun from the tables of its target."""
    needs.for_bootstrap()
    from penstock.pipeline.beginning import begin_from_delta, rehearse_from_delta

    assert origin is Target.DELTA
    begin = rehearse_from_delta if dry_run else begin_from_delta
    counts = begin(load_settings(config), [parse_table(table) for table in tables or ()], _micros(as_of))
    if json:
        output.emit({"tables": {str(table): count for table, count in sorted(counts.items())}, "loaded": not dry_run})
        return
    if dry_run:
        output.line("nothing was loaded; it would be:")
    if not counts:
        output.line("the target has none of the tables in the logs; the pipeline begins with nothing")
    for table, count in sorted(counts.items()):
        output.line(f"{output.plain(str(table))}: {output.count(count, 'row')}")


def _micros(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"not a time: {text[:40]!r}; write it as 2026-01-31T12:00:00Z") from None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return int(when.timestamp()) * 1_000_000 + when.microsecond
