"""`penstock subscriptions`: who reads the logs and how far each is, and moving or dropping one by hand."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import output, places
from penstock.cli.output import JsonOption
from penstock.cli.places import DirectoryArgument, LogOption, TableOption
from penstock.errors import InvalidInput
from penstock.log import subscriptions
from penstock.log.names import checkpoint_name
from penstock.log.reader import LogReader
from penstock.system.clock import SystemClock
from penstock.system.files import OsFiles

app = typer.Typer(
    help="Subscriptions of change logs: list, drop, rewind, reset.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The subscription, in every log below DIR.")]
ToOption = Annotated[
    str,
    typer.Option("--to", metavar="WHERE", help="begin, end, a position (000001:4096:0), or a time (…Z, or 10m ago)."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]


@app.command("ls")
def list_subscriptions(
    directory: DirectoryArgument, table: TableOption = None, log: LogOption = None, json: JsonOption = False
) -> None:
    """List the subscriptions of the logs below DIR, and how far each is behind."""
    now_us = SystemClock().now_us()
    rows: list[dict[str, Any]] = []
    for place in places.find(directory, table, log):
        facts = {"table": str(place.table), "log": place.name, "directory": place.directory}
        with LogReader(place.directory) as reader:
            rows += [{**facts, **state.to_json(now_us)} for state in subscriptions.states(reader)]
    if json:
        for row in rows:
            output.emit(row)
        return
    if not rows:
        output.line("no subscriptions")
        return
    headers = ("table", "log", "subscription", "position", "behind", "bytes", "lag", "committed")
    output.table(headers, map(_cells, rows))
    for row in rows:
        if "error" in row:
            output.note(f"{row['name']}: {row['error']}")


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    lag, size = row["lag_s"], row["behind_bytes"]
    return (
        row["table"],
        row["log"] or "-",
        row["name"],
        row["position"] or "-",
        "-" if row["behind"] is None else row["behind"],
        "-" if size is None else output.size(size),
        "-" if lag is None else f"{lag:.0f} s",
        output.instant(row["committed"]),
    )


@app.command("drop")
def drop(
    directory: DirectoryArgument,
    name: NameArgument,
    table: TableOption = None,
    log: LogOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Forget a subscription: it no longer holds files back, and whoever uses the name again begins anew."""
    for where in _having(directory, name, table, log):
        subscriptions.drop(where, name, dry_run=dry_run)
        if json:
            output.emit({"directory": where, "name": name, "dropped": not dry_run})
        else:
            output.line(f"{output.plain(where)}: {output.plain(name)} {'would be' if dry_run else 'is'} dropped")


@app.command("rewind")
def rewind(
    directory: DirectoryArgument,
    name: NameArgument,
    to: ToOption,
    table: TableOption = None,
    log: LogOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Set a subscription back, so that it gets changes once more. Going forward is refused."""
    _move(_having(directory, name, table, log), name, to, back_only=True, dry_run=dry_run, json=json)


@app.command("reset")
def reset(
    directory: DirectoryArgument,
    name: NameArgument,
    to: ToOption,
    table: TableOption = None,
    log: LogOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Set a subscription anywhere, also forward past changes that it then never gets."""
    _move(_having(directory, name, table, log), name, to, back_only=False, dry_run=dry_run, json=json)


def _move(directories: list[str], name: str, to: str, *, back_only: bool, dry_run: bool, json: bool) -> None:
    # All are tried before one is changed, so that a wrong target or a reader at work leaves none of them moved.
    for where in directories:
        subscriptions.move(where, name, to, back_only=back_only, dry_run=True)
    for where in directories:
        moved = subscriptions.move(where, name, to, back_only=back_only, dry_run=dry_run)
        if json:
            output.emit({"directory": where, **moved.to_json()})
            continue
        what = f"{output.count(moved.skipped, 'change')} left out" if moved.skipped else ""
        what = what or f"{output.count(moved.again, 'change')} to come again"
        verb = "would go" if dry_run else "went"
        output.line(f"{output.plain(where)}: {output.plain(name)} {verb} to {moved.after}; {what}")


def _having(directory: str, name: str, table: str | None, log: str | None) -> list[str]:
    """The logs that have this subscription."""
    found = places.find(directory, table, log)
    having = [place.directory for place in found if OsFiles().exists(f"{place.directory}/{checkpoint_name(name)}")]
    if not having:
        raise InvalidInput(f"no log below {directory} has a subscription {name[:60]!r}; `penstock subscriptions ls`")
    return having
