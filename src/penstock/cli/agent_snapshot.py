"""`penstock agent snapshot`: asks a running agent to copy one table again, and shows how far it is."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.capture.cassandra.snapshot.snapshotter import snapshot_directory
from penstock.capture.cassandra.snapshot.state import StateDirectory, TableState
from penstock.capture.state_directory import state_directory
from penstock.cli import output
from penstock.errors import InvalidInput
from penstock.log import snapshot_requests as requests
from penstock.model.schema import TableId
from penstock.settings import Settings, Share, SourceKind
from penstock.system.clock import SystemClock
from penstock.system.files import OsFiles

_LOOK_S = 0.2


def parse_table(text: str) -> TableId:
    """`keyspace.table` as a table's name."""
    keyspace, dot, table = text.partition(".")
    if not (dot and keyspace and table):
        raise InvalidInput(f"not a table: {text[:60]!r}; tables are written keyspace.table")
    return TableId(keyspace, table)


def ask(settings: Settings, table: TableId, *, wait: bool, json: bool, dry_run: bool = False) -> None:
    """Write the request; with `wait`, follow the new run until it is done."""
    if settings.source.kind is not SourceKind.CASSANDRA:
        raise InvalidInput(f'this agent copies nothing: source.kind is "{settings.source.kind}"', table=table)
    if settings.snapshot.share is Share.NONE:
        raise InvalidInput('this agent copies nothing: snapshot.share is "none"', table=table)
    if dry_run:
        if json:
            output.emit({"table": str(table), "requested": False})
        else:
            output.line(f"would ask for a snapshot of {table}")
        return
    files = OsFiles()
    directory = snapshot_directory(state_directory(settings))
    requests.request(files, directory, table, SystemClock().now_us())
    if not wait:
        if json:
            output.emit({"table": str(table), "requested": True})
        else:
            output.line(f"asked for a snapshot of {table}; the agent takes it up within a second when it runs")
        return
    state = _follow(files, directory, table)
    if json:
        output.emit({"table": str(table), "run": state.run, "rows": state.rows})
    else:
        output.line(f"{table}: {output.count(state.rows, 'row')}, run {state.run}")


def _follow(files: OsFiles, directory: str, table: TableId) -> TableState:
    """Wait until the request is taken up and its run is done, with a progress bar on the terminal."""
    states = StateDirectory(files, directory)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=output.progress_console(), transient=True) as progress:
        bar = progress.add_task("waiting for the agent", total=100, rows=0)
        while table in requests.waiting(files, directory):
            time.sleep(_LOOK_S)
        progress.update(bar, description=str(table))
        while True:
            state = states.load(table)
            if state is None:
                raise InvalidInput("the agent does not capture this table", table=table)
            progress.update(bar, completed=int(100 * state.fraction), rows=state.rows)
            if state.finished_us is not None:
                return state
            time.sleep(_LOOK_S)
