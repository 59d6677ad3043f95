"""`penstock log erase` and `penstock pipeline erase`: all that is kept of rows goes, and is looked for again."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output, places
from penstock.cli.output import JsonOption
from penstock.cli.places import DirectoryArgument, LogOption
from penstock.errors import InvalidInput, StorageError
from penstock.formats.json_change import value_of
from penstock.log import seal_requests
from penstock.log.erasure import Report, erase
from penstock.log.forgotten import Target, target
from penstock.model.schema import TableSchema
from penstock.system import json_text
from penstock.system.files import OsFiles

if TYPE_CHECKING:
    from penstock.pipeline.erasure import StateReport

KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="JSON", help='A key, as {"id": 5}; several may be given. Others may see it.'),
]
KeysOption = Annotated[
    str | None, typer.Option("--keys", metavar="FILE", help="Keys, a JSON object per line; - is standard input.")
]
# Every block is searched for every key.
_KEYS_MAX = 1000
_LINE_BYTES_MAX = 1 << 20
_LOOK_S = 0.1
# What no run can reach.
ELSEWHERE = (
    "Not searched: Cassandra and its cdc_raw, entries that the agent has parked, targets, Kafka topics, backups and "
    "copies of these files. docs/guides/privacy.md says how to erase there."
)
BESIDES = (
    "Erase the change logs of every node too, and first: what they still have comes back with the next batch. Not "
    "searched: targets. docs/guides/privacy.md says how to erase there."
)


def erase_changes(
    directory: DirectoryArgument,
    table: Annotated[str, typer.Option("--table", metavar="KS.TABLE", help="The table of the rows.")],
    key: KeyOption = None,
    keys: KeysOption = None,
    log: LogOption = None,
    wait_s: Annotated[float, typer.Option("--wait-s", min=0, help="How long a running agent may take to answer.")] = 15,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be erased, and change nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Erase every change of rows or partitions from the logs of a table below DIR. Exit code 1 when some are left."""
    wanted = read_keys(key or [], keys)
    reports = []
    for place in places.find(directory, table, log):
        asked = partial(_ask, place.directory, wait_s)
        reports.append(erase(place.directory, partial(targets, wanted), dry_run=dry_run, seal=asked))
        _print(reports[-1], json=json, dry_run=dry_run)
        output.flush()
    if not json:
        _tell_of_parked(directory)
        output.note(ELSEWHERE)
    if not dry_run and not all(report.complete for report in reports):
        raise typer.Exit(1)


def erase_state(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="The pipeline's settings.")],
    table: Annotated[str, typer.Option("--table", metavar="KS.TABLE", help="The table of the rows.")],
    key: KeyOption = None,
    keys: KeysOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be erased, and change nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Erase rows or partitions from what a stopped pipeline keeps of them. Exit code 1 when some are left."""
    from penstock.cli.agent_snapshot import parse_table
    from penstock.cli.pipeline import load_settings
    from penstock.pipeline import erasure
    from penstock.system.clock import SystemClock

    wanted = read_keys(key or [], keys)
    where = load_settings(config).pipeline
    report = erasure.erase(
        where.checkpoint_directory,
        where.dead_letter_directory or where.checkpoint_directory / "dead-letters",
        parse_table(table),
        partial(targets, wanted),
        now_us=SystemClock().now_us(),
        dry_run=dry_run,
    )
    if json:
        output.emit({**report.to_json(), "dry_run": dry_run})
    else:
        _print_state(report, dry_run=dry_run)
    if not dry_run and not report.complete:
        raise typer.Exit(1)


def _print_state(report: StateReport, *, dry_run: bool) -> None:
    counts = (
        f"{report.entries:,} of the state's rows",
        output.count(report.letters, "dead letter"),
        output.count(report.changes, "change") + " of replayed and repaired rows",
    )
    text = f"{output.plain(report.directory)}: {', '.join(counts)} {'would be erased' if dry_run else 'erased'}"
    if not dry_run:
        text += "; looked again: none left" if report.complete else f"; looked again: {report.left} ARE LEFT"
    output.line(text)
    for name in report.lookalikes:
        output.line(f"  has the bytes of a key in another place: {output.plain(name)}")
    output.note(BESIDES)


def read_keys(given: Sequence[str], file: str | None) -> list[Mapping[str, Any]]:
    """The keys of the command line and of a file, as JSON objects. A wrong one is named by its number alone."""
    lines = [*given, *_lines(file)]
    if not lines:
        raise InvalidInput("give --key or --keys: what is to be erased")
    if len(lines) > _KEYS_MAX:
        raise InvalidInput(f"{len(lines)} keys; at most {_KEYS_MAX} at once")
    out: list[Mapping[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            found = json_text.parse(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise InvalidInput(f'key {number} is not a JSON object, as {{"id": 5}}')
        out.append(found)
    return out


def _lines(file: str | None) -> list[str]:
    if file is None:
        return []
    try:
        if file == "-":
            text = sys.stdin.read(_KEYS_MAX * _LINE_BYTES_MAX)
        else:
            with open(file, encoding="utf-8") as opened:
                text = opened.read(_KEYS_MAX * _LINE_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"cannot read the keys: {getattr(error, 'strerror', 'not text')}", file=file) from error
    return [line for line in text.splitlines() if line.strip()]


def targets(wanted: Sequence[Mapping[str, Any]], schema: TableSchema) -> list[Target]:
    """The keys as values of the table's columns."""
    out = []
    for number, key in enumerate(wanted, 1):
        values: dict[str, Any] = {}
        for name, value in key.items():
            column = schema.by_name.get(name)
            try:
                values[name] = value if column is None or value is None else value_of(column.type, value)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
                raise InvalidInput(
                    f"a value of key {number} does not fit its column; `penstock log cat --json` shows how to write it",
                    table=schema.table,
                    column=name,
                ) from error
        out.append(target(schema, values))
    return out


def _tell_of_parked(directory: str) -> None:
    """Entries whose table is not known cannot be searched for its rows."""
    from penstock.capture.cassandra.agent import parked_entries

    waiting = parked_entries.read_summary(OsFiles(), f"{directory}/.agent")
    if waiting:
        count = sum(found["entries"] for found in waiting)
        output.note(
            f"NOT SEARCHED: entries of unknown tables that an agent has parked, {count:,}; `penstock agent parked`"
        )


def _ask(directory: str, wait_s: float) -> bool:
    """Have a running agent end its newest file; whether it did."""
    files = OsFiles()
    seal_requests.ask(files, directory)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        if not seal_requests.waits(files, directory):
            return True
        time.sleep(_LOOK_S)
    seal_requests.done(files, directory)
    return False


def _print(report: Report, *, json: bool, dry_run: bool) -> None:
    if json:
        output.emit({**report.to_json(), "dry_run": dry_run})
        return
    verb = "would be erased" if dry_run else "erased"
    gone = report.before.changes - (0 if dry_run else report.after.changes)
    text = f"{output.plain(report.directory)}: {output.count(gone, 'change')} {verb} in {_files(report.files)}"
    if not dry_run:
        text += "; looked again: none left" if report.complete else "; looked again: NOT ALL ARE GONE"
    output.line(text)
    if report.after.changes and not dry_run:
        output.line(f"  LEFT: {output.count(report.after.changes, 'change')} in {_files(report.after.files)}")
        if report.writer:
            output.line(f"  {output.plain(report.writer)}, and did not end its file; stop it and run this again")
    for number, offset in report.unfit:
        output.line(
            f"  file {number:06d}, block {offset}: does not compress to its length without them; delete the file, or "
            "let retention take it"
        )
    if report.after.foreign:
        output.line(f"  NOT SEARCHED, for their key is of other types: {_files(report.after.foreign)}")
    if report.after.ranges:
        output.line(
            f"  {output.count(report.after.ranges, 'range deletion')} of the partition named the row as a bound, and "
            "stayed; erase the partition to erase them"
        )
    if report.after.lookalikes:
        output.line(
            f"  {output.count(report.after.lookalikes, 'block')} had the bytes of a key in other rows; see there"
        )
    if report.behind:
        names = ", ".join(map(output.plain, report.behind))
        output.line(f"  subscriptions that had not read all of it, and never will: {names}")


def _files(numbers: Sequence[int]) -> str:
    if not numbers:
        return "0 files"
    return f"{output.count(len(numbers), 'file')} ({', '.join(f'{number:06d}' for number in numbers)})"
