"""`penstock demo`: a small cluster under load, a change log on every node, and a live view of it all."""

from __future__ import annotations

import json as json_text
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import needs, output, screen
from penstock.cli.demo_run import Outcome, Plan, run
from penstock.cli.interrupts import stop_on
from penstock.cli.live_view import Figures, View
from penstock.cli.output import JsonOption
from penstock.errors import InvalidInput, StorageError, ToolMissing
from penstock.settings import LogSettings, load
from penstock.system.addresses import refusal

_MARK = "penstock-demo.json"
# Without a terminal nobody could stop it, so it is short.
_ROWS_UNWATCHED = 3_000
_SECONDS_UNWATCHED = 10.0
_NODES = "dc1=3,dc2=2"
_NODES_MAX = 24
_LACKS_SHOWN = 5
_FILE_BYTES_MAX = 8 << 20


def demo(
    rows: Annotated[
        int | None, typer.Option("--rows", metavar="N", min=1, help="Make N writes, check them, and end.")
    ] = None,
    directory: Annotated[str | None, typer.Option("--dir", metavar="DIR", help="Keep the data in DIR.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Same seed, same workload.")] = 1,
    nodes: Annotated[str, typer.Option("--nodes", metavar="DC=N,…", help="Data centres and their nodes.")] = _NODES,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings; section log is used.")
    ] = None,
    cassandra: Annotated[
        bool, typer.Option("--cassandra", help="Run a real Cassandra node instead (needs Java 17 and Maven).")
    ] = False,
    version: Annotated[
        str | None, typer.Option("--version", metavar="VERSION", help="Of Cassandra; 5.0.9 unless told otherwise.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="S", min=0.1, help="With --cassandra: end after so long.")
    ] = None,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark", help="Carry the changes into Delta tables; when Spark is here, unless told."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a sandbox cluster with a change log on every node and a pipeline into Delta tables; check all at the end."""
    if not cassandra and (version is not None or seconds is not None):
        raise InvalidInput("--version and --seconds go with --cassandra")
    settings = _log_settings(config)
    output.warn_of_plain_kernels()
    watched = not json and screen.drawable(sys.stdout)
    if cassandra:
        if nodes != _NODES:
            raise InvalidInput("--nodes is for the sandbox cluster; with --cassandra there is one node")
        _cassandra(directory, settings, version, seed, rows, seconds, watched=watched, json=json)
        return
    centres = parse_nodes(nodes)
    with _home(directory) as home, stop_on(signal.SIGINT, signal.SIGTERM) as stopped:
        goal = rows if rows is not None or watched else _ROWS_UNWATCHED
        plan = Plan(home, centres, seed, goal, paced=goal is None, settings=settings, spark=_with_spark(spark))
        with _view(home, watched) as view:
            outcome = run(plan, stopped, view)
        _print_outcome(outcome, directory, json=json)
    output.flush()
    if not outcome.sound:
        raise typer.Exit(1)


def _with_spark(wanted: bool | None) -> bool:
    """Whether the pipeline runs. Where nobody said so and something is missing, the demo goes on without it."""
    if wanted is False:
        return False
    try:
        needs.for_demo(cassandra=False)
    except ToolMissing as error:
        if wanted:
            raise
        output.note(f"note: {error.message}; the demo ends with the logs")
        return False
    return True


def _cassandra(
    directory: str | None,
    settings: LogSettings,
    version: str | None,
    seed: int,
    rows: int | None,
    seconds: float | None,
    *,
    watched: bool,
    json: bool,
) -> None:
    needs.for_demo(cassandra=True)
    from penstock.cli import demo_cassandra
    from penstock.sandbox.cassandra_jars import LATEST

    open_ended = rows is None and seconds is None
    with _home(directory, fresh=True) as home, stop_on(signal.SIGINT, signal.SIGTERM) as stopped:
        plan = demo_cassandra.CassandraPlan(
            home,
            version or LATEST,
            seed,
            rows,
            _SECONDS_UNWATCHED if open_ended and not watched else seconds,
            watched=watched,
            settings=settings,
        )
        with _view(home, watched) as view:
            outcome = demo_cassandra.run(plan, stopped, view)
        if json:
            output.emit(demo_cassandra.summary(outcome))
        else:
            demo_cassandra.print_outcome(outcome, directory)
    output.flush()
    if not outcome.sound:
        raise typer.Exit(1)


def parse_nodes(text: str) -> dict[str, int]:
    """`dc1=3,dc2=2` as numbers per data centre."""
    centres: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([A-Za-z][\w-]{0,30})=(\d{1,3})\s*", part, re.ASCII)
        if match is None or int(match.group(2)) < 1 or match.group(1) in centres:
            raise InvalidInput(f"not a cluster: {text[:60]!r}; it looks like dc1=3,dc2=2")
        centres[match.group(1)] = int(match.group(2))
    if sum(centres.values()) > _NODES_MAX:
        raise InvalidInput(f"the demo runs at most {_NODES_MAX} nodes")
    return centres


def _log_settings(config: str | None) -> LogSettings:
    """Those of the file and the environment, with files small enough that one sees them change."""
    loaded = load(config).log
    if "file_bytes_max" in loaded.model_fields_set:
        return loaded
    return loaded.model_copy(update={"file_bytes_max": _FILE_BYTES_MAX})


@contextmanager
def _home(directory: str | None, *, fresh: bool = False) -> Iterator[str]:
    """Where the data goes: the directory that was named, or one that is removed in the end.

    With `fresh` what an earlier demo left there is no beginning either.
    """
    if directory is not None and (reason := refusal(directory)) is not None:
        raise InvalidInput(reason)
    if directory is None:
        path = tempfile.mkdtemp(prefix="penstock-demo-")
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
        return
    path = os.path.abspath(directory)
    mark = os.path.join(path, _MARK)
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        if os.listdir(path) and (fresh or not os.path.exists(mark)):
            raise InvalidInput(f"{path} is not empty{_earlier(fresh)}; name a new or an empty directory")
        with open(mark, "w", encoding="utf-8") as file:
            file.write(json_text.dumps({"what": "the data of `penstock demo`; delete it when you like"}) + "\n")
    except OSError as error:
        raise StorageError(f"cannot use the directory: {error.strerror}", directory=path) from error
    yield path


def _earlier(fresh: bool) -> str:
    return "" if fresh else " and not from an earlier demo"


@contextmanager
def _view(home: str, watched: bool) -> Iterator[Callable[[Figures], None]]:
    if not watched:
        yield lambda _: None
        return
    try:
        with screen.taken(sys.stdout, Path(home) / screen.LOG_NAME) as taken:
            yield lambda figures: taken.show(View(figures))
    except KeyboardInterrupt:
        output.note("ended at once; nothing was checked")
        raise
    if taken.notices.count:
        output.note(f"{output.count(taken.notices.count, 'warning')}; the last: {output.plain(taken.notices.last)}")


def _print_outcome(outcome: Outcome, kept: str | None, *, json: bool) -> None:
    record = summary(outcome)
    if json:
        output.emit(record)
        return
    figures = outcome.figures
    output.line(
        f"{output.count(figures.acknowledged, 'write')} acknowledged, {figures.refused:,} refused, "
        f"{output.count(outcome.crashes, 'killed node')}, in {figures.elapsed_s:.1f} s"
    )
    output.line("")
    node_headers = ("node", "data centre", "changes logged", "log size", "files")
    output.table(
        node_headers, ((n.name, n.data_centre, n.changes, output.size(n.bytes), n.files) for n in figures.nodes)
    )
    output.line("")
    reader_headers = ("subscription", "table", "on node", "changes read", "behind")
    output.table(reader_headers, ((r.name, r.table, r.node, r.changes, r.behind) for r in figures.readers))
    output.line("")
    _print_verdict(outcome)
    _print_lake(outcome)
    if kept is not None:
        first = f"{kept}/{figures.nodes[0].name}"
        output.line(f"\nThe logs are in {kept}. Look into them:")
        output.line(f"  penstock log ls {first}")
        output.line(f"  penstock log tail -n 3 {first}/{figures.readers[0].table}")
    for error in outcome.errors:
        output.report(error)


def _print_verdict(outcome: Outcome) -> None:
    verdict = outcome.verdict
    if verdict.sound:
        output.line(
            f"Checked: all {verdict.changes_acknowledged:,} acknowledged writes are in the logs, "
            f"in {verdict.copies_checked:,} copies; none is missing."
        )
    else:
        output.line(f"LOST: {output.count(len(verdict.lacks), 'acknowledged write')} not where they must be:")
        for lack in verdict.lacks[:_LACKS_SHOWN]:
            found = ", ".join(lack.found_on) or "nowhere"
            output.line(f"  write {lack.write} of {lack.table}: found on {found}")
    if verdict.unchecked:
        output.line(f"{output.count(verdict.unchecked, 'write')} could not be remembered and were not checked.")


def _print_lake(outcome: Outcome) -> None:
    lake = outcome.lake
    if lake is None:
        return
    output.line("")
    if lake.error is not None:
        output.report(lake.error)
        return
    records = output.count(lake.records, "record")
    output.line(f"Pipeline: {records}, merged from {lake.copies:,} logged changes, in Delta tables:")
    rows = (
        (table, report.source_rows, report.target_rows, sum(report.counts.values()))
        for table, report in sorted(lake.reports.items())
    )
    output.table(("table", "rows in the cluster", "rows in the table", "differences"), rows)
    if lake.sound:
        output.line("Compared: every table is what the cluster itself holds.")
    for table, report in lake.reports.items():
        for difference in report.differences[:_LACKS_SHOWN]:
            output.line(
                f"  {table} {output.plain(difference.key)}: {difference.kind.value} {', '.join(difference.columns)}"
            )


def summary(outcome: Outcome) -> dict[str, object]:
    """The outcome as `penstock demo --json` prints it."""
    figures = outcome.figures
    return {**_cluster_summary(outcome, figures), **_lake_summary(outcome)}


def _lake_summary(outcome: Outcome) -> dict[str, object]:
    lake = outcome.lake
    if lake is None:
        return {}
    tables = {
        table: {"rows": report.target_rows, **{kind.value: count for kind, count in report.counts.items()}}
        for table, report in sorted(lake.reports.items())
    }
    return {"lake": {"sound": lake.sound, "records": lake.records, "copies": lake.copies, "tables": tables}}


def _cluster_summary(outcome: Outcome, figures: Figures) -> dict[str, object]:
    return {
        "sound": outcome.sound,
        "acknowledged": figures.acknowledged,
        "refused": figures.refused,
        "crashes": outcome.crashes,
        "seconds": round(figures.elapsed_s, 3),
        "directory": figures.directory,
        "nodes": [
            {
                "node": node.name,
                "data_centre": node.data_centre,
                "changes": node.changes,
                "bytes": node.bytes,
                "files": node.files,
            }
            for node in figures.nodes
        ],
        "subscriptions": [
            {
                "name": reader.name,
                "table": reader.table,
                "node": reader.node,
                "changes": reader.changes,
                "behind": reader.behind,
            }
            for reader in figures.readers
        ],
        "verification": {
            "acknowledged": outcome.verdict.changes_acknowledged,
            "copies": outcome.verdict.copies_checked,
            "in_logs": outcome.verdict.changes_in_logs,
            "missing": len(outcome.verdict.lacks),
            "unchecked": outcome.verdict.unchecked,
        },
        "errors": [str(error) for error in outcome.errors],
    }
