"""`penstock compare SOURCE TARGET`: whether a table in a target is what its source holds, row by row."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from penstock.cli import output
from penstock.cli.agent import load_settings
from penstock.cli.agent_snapshot import parse_table
from penstock.cli.output import JsonOption
from penstock.cli.places import find
from penstock.errors import InvalidInput
from penstock.settings import Settings

if TYPE_CHECKING:
    from penstock.model.schema import TableId
    from penstock.pipeline.compare.cassandra_rows import CassandraRows
    from penstock.pipeline.compare.comparison import Report
    from penstock.pipeline.compare.log_rows import LogRows

_CASSANDRA = "cassandra"
_SHOWN = 20


def compare(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A directory with change logs, or `cassandra` (with --config).")
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The directory of a Delta table of current rows.")],
    table: Annotated[str, typer.Option("--table", metavar="KS.TABLE", help="The table in the source.")],
    config: Annotated[
        str | None, typer.Option("--config", metavar="CONFIG", help="Settings; section cassandra says which cluster.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare a table of a target with its source by ranges of keys, and name the rows that differ."""
    from penstock.pipeline.compare.comparison import compare as run
    from penstock.pipeline.compare.delta_rows import DeltaRows

    settings = Settings() if config is None else load_settings(config)
    ours = _source(source, parse_table(table), settings)
    theirs = DeltaRows(Path(target), ours.schema)
    shown = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*shown, console=output.progress_console(), transient=True, disable=json) as progress:
        steps: dict[str, TaskID] = {}

        def step(name: str, done: int, total: int) -> None:
            if name not in steps:
                steps[name] = progress.add_task(name, total=total or None)
            progress.update(steps[name], completed=done)

        report = run(ours, theirs, progress=step)
    _print(report, json=json)
    if not report.same:
        raise typer.Exit(1)


def _source(name: str, table: TableId, settings: Settings) -> LogRows | CassandraRows:
    from penstock.pipeline.compare.delta_rows import LakeShape
    from penstock.pipeline.compare.log_rows import LogRows

    if name == _CASSANDRA:
        from penstock.pipeline.compare.cassandra_rows import CassandraRows

        if not settings.cassandra.contact_points:
            raise InvalidInput("which cluster? name it with --config, in cassandra.contact_points")
        return CassandraRows(settings, table, LakeShape())
    places = [place for place in find(name, str(table)) if not place.name]
    return LogRows([place.directory for place in places], table, LakeShape(), int(time.time()))


def _print(report: Report, *, json: bool) -> None:
    if json:
        for difference in report.differences:
            output.emit(
                {"difference": difference.kind.value, "key": difference.key, "columns": list(difference.columns)}
            )
        output.emit(
            {
                "same": report.same,
                "source_rows": report.source_rows,
                "target_rows": report.target_rows,
                "ranges": report.ranges,
                "ranges_different": report.ranges_different,
                **{kind.value: count for kind, count in report.counts.items()},
            }
        )
        return
    output.line(f"{report.source_rows:,} rows in the source, {report.target_rows:,} in the target")
    if report.same:
        output.line("they are the same")
        return
    counts = ", ".join(f"{count:,} {kind.value}" for kind, count in report.counts.items() if count)
    output.line(f"they differ: {counts}, in {report.ranges_different} of {report.ranges} ranges")
    for difference in report.differences[:_SHOWN]:
        columns = f" in {', '.join(difference.columns)}" if difference.columns else ""
        output.line(f"  {difference.kind.value}{columns}: {output.plain(difference.key)}")
    if sum(report.counts.values()) > _SHOWN:
        output.line("  … (all of them with --json)")
