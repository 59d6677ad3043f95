"""`penstock compare SOURCE TARGET`: whether a table in a target is what its source holds, and making it so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from penstock.cli import needs, output
from penstock.cli.agent import load_settings
from penstock.cli.agent_snapshot import parse_table
from penstock.cli.output import JsonOption
from penstock.cli.places import find
from penstock.errors import InvalidInput
from penstock.settings import Settings
from penstock.settings.pipeline import TransformSettings
from penstock.system import umask

if TYPE_CHECKING:
    from penstock.compare.comparison import Report
    from penstock.compare.repair import Repaired
    from penstock.compare.shape import Shape
    from penstock.compare.sides import SourceRows, TargetRows
    from penstock.model.schema import TableId

_CASSANDRA = "cassandra"
_ICEBERG = "iceberg:"
_WEB = ("http://", "https://")
_SHOWN = 20


def compare(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A directory with change logs, or `cassandra` (with --config).")
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The directory of a Delta table of current rows, iceberg:namespace.table, or https://host:9200/index.",
        ),
    ],
    table: Annotated[str, typer.Option("--table", metavar="KS.TABLE", help="The table in the source.")],
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="CONFIG", help="Settings: which cluster, and the logins of both sides."),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Write the rows that differ as the source has them.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compare a table of a target with its source by ranges of keys, and name the rows that differ."""
    searched, iceberg = target.startswith(_WEB), target.startswith(_ICEBERG)
    needs.for_compare(cluster=source == _CASSANDRA, delta=not (searched or iceberg), iceberg=iceberg)
    from penstock.compare.comparison import compare as run
    from penstock.compare.repair import repair as mend
    from penstock.pipeline.checkpoint import repaired_rows

    settings = Settings() if config is None else load_settings(config)
    if settings.pipeline.group_read:
        umask.open_to_group()
    ours, theirs = _sides(source, target, parse_table(table), settings)
    done: Repaired | None = None
    try:
        if repair:
            ours.check_repair()
        with _progress(shown=not json) as step:
            report = run(ours, theirs, progress=step)
            if repair and not report.same:
                known = repaired_rows(settings.pipeline.checkpoint_directory)
                done = mend(ours, theirs, report, pipeline=settings.pipeline.name, progress=step, remembered=known)
    finally:
        ours.close()
    _print(report, ours, json=json)
    if repair:
        _print_repaired(done, json=json)
    if not (report if done is None else done.left).same:
        raise typer.Exit(1)


@contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[str, int, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.progress_console(), transient=True, disable=not shown) as progress:
        steps: dict[str, TaskID] = {}

        def step(name: str, done: int, total: int) -> None:
            if name not in steps:
                steps[name] = progress.add_task(name, total=total or None)
            progress.update(steps[name], completed=done)

        yield step


def _sides(source: str, target: str, table: TableId, settings: Settings) -> tuple[SourceRows, TargetRows]:
    if target.startswith(_WEB):
        from penstock.compare.search_rows import SearchRows, SearchShape, search_settings

        chosen = search_settings(settings.search, target)
        shape = SearchShape()
        ours = _source(source, table, settings, shape)
        index = SearchRows(chosen, ours.schema)
        try:
            shape.columns = index.columns()
        except BaseException:
            ours.close()
            raise
        return ours, index
    from penstock.compare.lake_rows import LakeShape

    ours = _source(source, table, settings, LakeShape())
    if target.startswith(_ICEBERG):
        try:
            from penstock.compare.iceberg_rows import IcebergRows

            return ours, IcebergRows(target, ours.schema, settings.iceberg)
        except BaseException:
            ours.close()
            raise
    from penstock.compare.delta_rows import DeltaRows

    return ours, DeltaRows(Path(target), ours.schema, settings.delta)


def _source(name: str, table: TableId, settings: Settings, shape: Shape) -> SourceRows:
    """The source, as the transforms of the settings leave its rows."""
    found = _untransformed(name, table, settings, shape)
    if settings.transform == TransformSettings():
        return found
    from penstock.compare.transformed_rows import TransformedRows
    from penstock.filters.functions import Functions
    from penstock.transforms.transforms import Transforms

    try:
        return TransformedRows(found, Transforms(settings.transform, Functions.load(settings.functions)))
    except BaseException:
        found.close()
        raise


def _untransformed(name: str, table: TableId, settings: Settings, shape: Shape) -> SourceRows:
    if name == _CASSANDRA:
        from penstock.compare.cassandra_rows import CassandraRows

        if not settings.cassandra.contact_points:
            raise InvalidInput("which cluster? name it with --config, in cassandra.contact_points")
        return CassandraRows(settings, table, shape)
    from penstock.compare.log_rows import LogRows

    places = [place for place in find(name, str(table)) if not place.name]
    return LogRows([place.directory for place in places], table, shape, int(time.time()))


def _print(report: Report, source: SourceRows, *, json: bool) -> None:
    if json:
        _emit_differences(report, "difference")
        output.emit(
            {
                "same": report.same,
                "source_rows": report.source_rows,
                "target_rows": report.target_rows,
                "ranges": report.ranges,
                "ranges_different": report.ranges_different,
                "columns_left_out": list(source.left_out),
                "columns_masked": list(source.masked),
                **{kind.value: count for kind, count in report.counts.items()},
            }
        )
        return
    output.line(f"{report.source_rows:,} rows in the source, {report.target_rows:,} in the target")
    if source.left_out:
        output.line(f"not compared, for they are not logged: {', '.join(map(output.plain, source.left_out))}")
    if source.masked:
        output.line(f"compared as they are masked in the log: {', '.join(map(output.plain, source.masked))}")
    if report.same:
        output.line("they are the same")
        return
    output.line(f"they differ: {_counts(report)}, in {report.ranges_different} of {report.ranges} ranges")
    _list_differences(report)


def _print_repaired(done: Repaired | None, *, json: bool) -> None:
    repaired, settled = (0, 0) if done is None else (done.repaired, done.settled)
    if json:
        if done is not None:
            _emit_differences(done.left, "left")
        output.emit({"repaired": repaired, "settled": settled, "rows_left": 0 if done is None else done.left.total})
        return
    if done is None:
        output.line("there is nothing to repair")
        return
    output.line(f"{repaired:,} rows repaired" + (f", {settled:,} had become right meanwhile" if settled else ""))
    if not done.left.same:
        output.line(f"left: {_counts(done.left)}")
        _list_differences(done.left)


def _counts(report: Report) -> str:
    return ", ".join(f"{count:,} {kind.value}" for kind, count in report.counts.items() if count)


def _emit_differences(report: Report, name: str) -> None:
    for difference in report.differences:
        output.emit({name: difference.kind.value, "key": difference.key, "columns": list(difference.columns)})


def _list_differences(report: Report) -> None:
    for difference in report.differences[:_SHOWN]:
        columns = f" in {', '.join(difference.columns)}" if difference.columns else ""
        output.line(f"  {difference.kind.value}{columns}: {output.plain(difference.key)}")
    if report.total > _SHOWN:
        output.line("  … (all of them with --json)")
