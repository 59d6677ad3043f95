"""`penstock log`: look into change logs without disturbing whoever writes or reads them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli import output, places
from penstock.cli.erase import erase_changes
from penstock.cli.interrupts import stop_on
from penstock.cli.output import JsonOption
from penstock.cli.places import DirectoryArgument, LogOption, Place, TableOption
from penstock.errors import InvalidInput, PenstockError
from penstock.log import checkpoint, recent
from penstock.log.follow import Follower, Tail
from penstock.log.names import CHECKPOINT
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.log.verify import Verdict, verify
from penstock.model.batch import ChangeBatch
from penstock.model.instant import parse_instant
from penstock.model.position import Position
from penstock.system.clock import SystemClock
from penstock.system.files import OsFiles

app = typer.Typer(
    help="Look into change logs: list, print, follow, check.", no_args_is_help=True, pretty_exceptions_enable=False
)

# How long a silent `tail -f` waits before it looks whether it was interrupted and someone still reads its output.
_LOOK_S = 0.2

SkipOption = Annotated[bool, typer.Option("--skip-damage", help="Read on past damage; each gap is reported.")]


@app.command("ls")
def list_logs(
    directory: DirectoryArgument, table: TableOption = None, log: LogOption = None, json: JsonOption = False
) -> None:
    """List the logs below DIR, or the files of the one log that DIR is."""
    found = places.find(directory, table, log)
    if len(found) == 1 and os.path.samefile(found[0].directory, directory):
        _list_files(found[0], json)
        return
    records = [_summary(place) for place in found]
    if json:
        for record in records:
            output.emit(record)
        return
    output.table(
        ("table", "log", "files", "size", "changes", "end", "subscriptions", "directory"),
        (
            (
                record["table"],
                record["log"] or "-",
                record["files"],
                output.size(record["bytes"]),
                record["changes"],
                record["end"],
                len(record["subscriptions"]),
                record["directory"],
            )
            for record in records
        ),
    )


def _list_files(place: Place, json: bool) -> None:
    with LogReader(place.directory) as reader:
        infos = reader.files()
        rows = reader.watermark().rows
    befores = [info.rows_before for info in infos[1:]] + [rows]
    records: list[dict[str, Any]] = [
        {
            "file": os.path.basename(info.path),
            "number": info.number,
            "bytes": info.bytes,
            "changes": max(0, until - info.rows_before),
            "schema_version": info.schema_version,
        }
        for info, until in zip(infos, befores, strict=True)
    ]
    if json:
        for record in records:
            output.emit(record)
        return
    headers = ("file", "size", "changes", "schema version")
    output.table(headers, ((r["file"], output.size(r["bytes"]), r["changes"], r["schema_version"]) for r in records))


@app.command("stat")
def stat(
    directory: DirectoryArgument, table: TableOption = None, log: LogOption = None, json: JsonOption = False
) -> None:
    """Show what is known about each log: extent, schema, subscriptions and how far they are behind."""
    for number, place in enumerate(places.find(directory, table, log)):
        record = _details(place)
        if json:
            output.emit(record)
            continue
        if number:
            output.line("")
        subscriptions = record.pop("subscriptions")
        record["size"] = output.size(record.pop("bytes"))
        output.pairs({name.replace("_", " "): "-" if value in (None, "") else value for name, value in record.items()})
        if subscriptions:
            output.line("")
            headers = ("subscription", "position", "behind", "committed")
            output.table(headers, ((s["name"], s["position"], s["behind"], s["committed"]) for s in subscriptions))


def _summary(place: Place) -> dict[str, Any]:
    with LogReader(place.directory) as reader:
        infos = reader.files()
        mark = reader.watermark()
        return {
            "table": str(place.table),
            "log": place.name,
            "directory": place.directory,
            "files": len(infos),
            "bytes": sum(info.bytes for info in infos),
            "changes": mark.rows - (infos[0].rows_before if infos else 0),
            "end": str(mark.last),
            "subscriptions": [name for name, _ in _checkpoints(place)],
        }


def _details(place: Place) -> dict[str, Any]:
    summary = _summary(place)
    with LogReader(place.directory) as reader:
        numbers = reader.numbers()
        newest = reader.heading(numbers[-1]) if numbers else None
        summary["subscriptions"] = [_progress_of(reader, name, path) for name, path in _checkpoints(place)]
        return {
            **summary,
            "first": str(reader.first()),
            "log_id": reader.log_id,
            "epoch": reader.watermark().epoch,
            "schema_version": newest.schema.version if newest else None,
            "columns": len(newest.schema.columns) if newest else None,
            "source": newest.schema.source if newest else None,
            "codec": newest.codec.value if newest else None,
            "node": newest.node if newest else None,
            "data_centre": newest.data_centre if newest else None,
        }


def _checkpoints(place: Place) -> list[tuple[str, str]]:
    names = sorted(name for name in os.listdir(place.directory) if name.endswith(CHECKPOINT))
    return [(name.removesuffix(CHECKPOINT), f"{place.directory}/{name}") for name in names]


def _progress_of(reader: LogReader, name: str, path: str) -> dict[str, Any]:
    """How far one subscription is. One that cannot be read is shown as such, because the others still matter."""
    try:
        found = checkpoint.load(OsFiles(), path)
    except PenstockError as error:
        return {"name": name, "position": None, "behind": None, "committed": None, "error": str(error)}
    if found is None:
        return {"name": name, "position": None, "behind": None, "committed": None}
    return {
        "name": found.subscription,
        "position": str(found.position),
        "behind": recent.changes_after(reader, found.position),
        "committed": output.instant(found.time),
    }


@app.command("cat")
def cat(
    directory: DirectoryArgument,
    table: TableOption = None,
    log: LogOption = None,
    after: Annotated[str | None, typer.Option("--after", metavar="POS", help="Begin behind this position.")] = None,
    from_time: Annotated[
        str | None, typer.Option("--from-time", metavar="T", help="Begin at 2026-11-15T10:00:00Z, or 10m ago.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="Print at most N changes.")] = None,
    skip_damage: SkipOption = False,
    json: JsonOption = False,
) -> None:
    """Print the changes of a log, in written order."""
    if after is not None and from_time is not None:
        raise InvalidInput("give --after or --from-time, not both")
    with LogReader(places.choose(directory, table, log).directory) as reader:
        start = reader.first()
        if after is not None:
            start = Position.parse(after)
        elif from_time is not None:
            start = reader.seek_time(parse_instant(from_time, SystemClock().now_us()))
        left = limit
        for batch in reader.read(start, skip_damage=skip_damage):
            if left == 0:
                break
            left = _print_batch(batch, json, left)


@app.command("tail")
def tail(
    directory: DirectoryArgument,
    table: TableOption = None,
    log: LogOption = None,
    lines: Annotated[int, typer.Option("-n", "--lines", metavar="N", min=0, help="The last N changes.")] = 10,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as changes come, until Ctrl-C.")] = False,
    subscription: Annotated[
        str | None,
        typer.Option(
            "--subscription", metavar="NAME", help="Go on where this subscription is, and commit what is printed."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print the last changes of a log, and with -f those to come."""
    place = places.choose(directory, table, log)
    batches = _tail_log(place, lines, follow) if subscription is None else _tail_as(place, subscription, follow)
    for batch in batches:
        _print_batch(batch, json)


def _tail_log(place: Place, lines: int, follow: bool) -> Iterator[ChangeBatch]:
    with LogReader(place.directory) as reader:
        start = recent.last_changes(reader, lines)
        if not follow:
            yield from reader.read(start)
            return
    with Follower(place.directory) as follower, Tail(follower, start) as waiting:
        yield from _coming(waiting.next)


def _tail_as(place: Place, name: str, follow: bool) -> Iterator[ChangeBatch]:
    """Changes that the subscription has not committed; each batch is committed once it was printed."""
    with Subscription.open(place.directory, name) as subscription:
        if not follow:
            for batch in subscription.batches():
                yield batch
                subscription.commit(batch.last)
            return
        for batch in _coming(subscription.next):
            yield batch
            subscription.commit(batch.last)


def _coming(following: Callable[[float], ChangeBatch | None]) -> Iterator[ChangeBatch]:
    """Batches as they come, until nobody reads our output. Ctrl-C ends it when the last batch is done with."""
    with stop_on(signal.SIGINT) as interrupted:
        while not output.reader_is_gone():
            if interrupted.is_set():
                raise KeyboardInterrupt
            batch = following(_LOOK_S)
            if batch is not None:
                yield batch


def _print_batch(batch: ChangeBatch, json: bool, limit: int | None = None) -> int | None:
    """Print the changes of a batch, at most `limit`; what is left of the limit."""
    from penstock.formats import json_rows

    if json:
        text = str(json_rows.lines(batch, json_rows.Spelling.UTF8, ordinal=batch.skip), "utf-8")
        if limit is not None and limit < len(batch):
            text = "".join(f"{line}\n" for line in text.split("\n", limit)[:limit])
        output.lines(text)
    else:
        for change in json_rows.objects(batch, ordinal=batch.skip)[:limit]:
            output.line(_change_line(change))
    output.flush()
    return None if limit is None else max(0, limit - len(batch))


@app.command("retain")
def retain(
    directory: DirectoryArgument,
    table: TableOption = None,
    log: LogOption = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Settings; section retention says what goes.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and change nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Delete the files that may go, by the rules of section retention, as an agent does by itself."""
    from penstock.log.upkeep import Upkeep
    from penstock.settings import load

    found = {place.directory: place for place in places.find(directory, table, log)}
    upkeep = Upkeep(directory, load(config).retention, find=lambda: list(found))
    reports = upkeep.run_once(dry_run=dry_run)
    for where, report in reports.items():
        record = report.to_json()
        if json:
            output.emit({"table": str(found[where].table), "log": found[where].name, "directory": where, **record})
            continue
        verb = "would go" if dry_run else "deleted"
        output.line(
            f"{output.plain(where)}: {output.count(len(report.removed), 'file')} {verb}, {output.size(report.bytes)}"
        )
        for loss in record["losses"]:
            output.line(f"  LOST for {output.plain(loss['subscription'])}: {output.count(loss['changes'], 'change')}")
        if report.unread:
            output.line(f"  LOST, for no subscription had read them: {output.count(report.unread, 'change')}")
    if len(reports) < len(found):
        # What kept the others from being looked after was told on standard error.
        raise typer.Exit(1)


app.command("erase")(erase_changes)


@app.command("verify")
def verify_logs(
    directory: DirectoryArgument, table: TableOption = None, log: LogOption = None, json: JsonOption = False
) -> None:
    """Check every block, index and checkpoint of the logs below DIR. Exit code 1 when something is damaged."""
    found = places.find(directory, table, log)
    verdicts = []
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    console = output.progress_console()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for place in found:
            with LogReader(place.directory) as reader:
                total = sum(os.path.getsize(reader.path(number)) for number in reader.numbers())
                task = progress.add_task(output.plain(str(place.table)), total=total)
                verdict = verify(reader, progress=lambda count, task=task: progress.advance(task, count))  # type: ignore[misc]
            verdicts.append(verdict)
    for place, verdict in zip(found, verdicts, strict=True):
        _print_verdict(place, verdict, json)
    output.flush()
    if not all(verdict.sound for verdict in verdicts):
        raise typer.Exit(1)


def _print_verdict(place: Place, verdict: Verdict, json: bool) -> None:
    if json:
        output.emit(
            {
                "table": str(place.table),
                "log": place.name,
                "directory": place.directory,
                "sound": verdict.sound,
                "files": verdict.files,
                "blocks": verdict.blocks,
                "changes": verdict.changes,
                "erased": verdict.erased,
                "bytes": verdict.bytes,
                "index_entries": verdict.entries,
                "checkpoints": verdict.checkpoints,
                "damage": [
                    {"error": type(error).__name__, "message": error.message, **_printable(error.place)}
                    for error in verdict.damage
                ],
            }
        )
        return
    state = "sound" if verdict.sound else f"DAMAGED in {output.count(len(verdict.damage), 'place')}"
    output.line(
        f"{output.plain(place.directory)}: {state}; {output.count(verdict.files, 'file')}, "
        f"{output.count(verdict.blocks, 'block')}, {output.count(verdict.changes, 'change')}, "
        f"{output.size(verdict.bytes)}, {output.count(verdict.checkpoints, 'checkpoint')}"
        + (f", {verdict.erased:,} of the changes erased" if verdict.erased else "")
    )
    for error in verdict.damage:
        output.line(f"  {output.plain(str(error))}")


def _printable(place: dict[str, object]) -> dict[str, object]:
    return {name: value if isinstance(value, int) else str(value) for name, value in place.items()}


# Rendering: one change as a line of text, which is for eyes.
#
# `name=value` is a cell that was set, `-name` one that was deleted, `name+=` and `name-=` what was added to and
# removed from a collection. Long values are cut there; the JSON is exact.

_VALUE_MAX = 60
_OP_WIDTH = 6


def _change_line(change: dict[str, Any]) -> str:
    """Of a change's JSON: position, time, operation, key, and what happened to the cells."""
    times = [change[name] for name in ("commit_time", "time", "capture_time") if name in change]
    head = [change["position"], output.instant(times[0] if times else None), change["op"].ljust(_OP_WIDTH)]
    key = " ".join(f"{name}={_value(value)}" for name, value in change["key"].items())
    cells = [part for name, cell in change["cells"].items() for part in _cell(name, cell)]
    if "range" in change:
        cells.append(_range(change["range"]))
    text = "  ".join([*head, *filter(None, [key, " ".join(cells)])])
    return output.plain(text.rstrip())


def _cell(name: str, cell: dict[str, Any]) -> Iterator[str]:
    if "value" in cell:
        yield f"{name}={_value(cell['value'])}{_ttl(cell)}"
    elif cell.get("deleted"):
        yield f"-{name}"
    else:
        elements = [_pair(element) for element in cell["set"]]
        if "replaced" in cell:
            yield f"{name}={_items(elements)}" if elements else f"-{name}"
        elif elements:
            yield f"{name}+={_items(elements)}"
        if cell["removed"]:
            yield f"{name}-={_items([_value(removed['path']) for removed in cell['removed']])}"


def _pair(element: dict[str, Any]) -> str:
    path = _value(element["path"])
    return f"{path}:{_value(element['value'])}" if "value" in element else path


def _items(parts: list[str]) -> str:
    return _cut("{" + ",".join(parts) + "}")


def _range(ends: dict[str, Any]) -> str:
    start, end = ends.get("start"), ends.get("end")
    left = "(" if start is None or not start["inclusive"] else "["
    right = ")" if end is None or not end["inclusive"] else "]"
    return f"{left}{_bound(start)} … {_bound(end)}{right}"


def _bound(bound: dict[str, Any] | None) -> str:
    return "" if bound is None else " ".join(f"{name}={_value(value)}" for name, value in bound["values"].items())


def _ttl(cell: dict[str, Any]) -> str:
    return f"(ttl {cell['ttl_s']}s)" if "ttl_s" in cell else ""


def _value(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_MAX else f"{text[: _VALUE_MAX - 1]}…"
