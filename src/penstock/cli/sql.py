"""`penstock sql`: statements that say which tables are logged, for whom and where."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.output import JsonOption

StatementArgument = Annotated[str, typer.Argument(help="One statement; - reads it from standard input.")]
RootOption = Annotated[str, typer.Option("--dir", help="The directory that holds the logs and their catalog.")]
KeyspaceOption = Annotated[str | None, typer.Option("--keyspace", help="The keyspace of tables named without one.")]
ConfigOption = Annotated[str | None, typer.Option("--config", help="A settings file (TOML).")]


def sql(
    statement: StatementArgument,
    directory: RootOption,
    keyspace: KeyspaceOption = None,
    config: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the statement and say what it would do, and do nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Execute one statement: CREATE CDC_LOG, DROP CDC_LOG or CREATE TABLE … WITH CDC LOG."""
    # The grammar and SQLite are not needed by the other commands.
    from penstock.control.execute import execute
    from penstock.filters.functions import Functions
    from penstock.log.catalog import Catalog
    from penstock.settings import load

    text = sys.stdin.read() if statement == "-" else statement
    functions = Functions.load(load(config).functions)
    with Catalog.rehearse(directory) if dry_run else Catalog.open(directory) as catalog:
        outcome = execute(text, catalog, functions, keyspace=keyspace)
    if json:
        facts: dict[str, object] = {"changed": outcome.changed and not dry_run}
        if dry_run:
            facts["would_change"] = outcome.changed
        output.emit({**facts, "message": outcome.message, "notes": list(outcome.notes)})
        return
    output.line(f"nothing was done; it would be: {outcome.message}" if dry_run else outcome.message)
    for note in outcome.notes:
        output.note(f"note: {note}")
