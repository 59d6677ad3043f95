"""`penstock pipeline CONFIG`: the data pipeline on Spark, with its progress on the terminal.

`penstock pipeline retry TABLE` has a table tried again that the pipeline left out.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli import needs, output
from penstock.cli.agent import ConfigArgument, RunGroup
from penstock.cli.output import JsonOption
from penstock.errors import InvalidInput
from penstock.telemetry import set_up_logging

if TYPE_CHECKING:
    from penstock.pipeline.pipeline import Pipeline
    from penstock.pipeline.status import PipelineStatus
    from penstock.settings import Loaded, Settings

_VIEW_S = 0.5
_JSON_S = 5.0
_TABLES_SHOWN = 20


app = typer.Typer(
    cls=RunGroup,
    no_args_is_help=True,
    help="Merge the change logs of all nodes on Spark and deliver them: `penstock pipeline CONFIG`.",
)


@app.command("run")
def pipeline(
    config: ConfigArgument,
    once: Annotated[bool, typer.Option("--once", help="Deliver what is in the logs now, then end.")] = False,
    json: JsonOption = False,
) -> None:
    """Merge the change logs of all nodes on Spark and deliver them, until Ctrl-C or SIGTERM."""
    set_up_logging(output.log_level("warning"))
    settings = load_settings(config)
    needs.for_pipeline(settings)
    output.warn_of_plain_kernels()
    from penstock.pipeline.pipeline import Pipeline

    settings = as_submitted(settings)
    made = Pipeline(settings)
    with ExitStack() as opened:
        if settings.pipeline.http_port is not None:
            _serve(opened, settings, made, json=json)
        run(made, once=once, json=json)
    status = made.status()
    if json:
        output.emit({"pipeline": "ended", **facts(status)})
    else:
        records, tables = output.count(status.records, "record"), output.count(len(status.tables), "table")
        output.line(f"ended; {records} of {tables} delivered, merged from {status.copies:,} that nodes had logged")
    for name, trouble in status.troubles.items():
        output.note(f"table {output.plain(name)} is in trouble: {output.plain(trouble.reason)}")
    if once and status.troubles:
        raise typer.Exit(1)


@app.command()
def retry(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table, as keyspace.table.")],
    config: ConfigArgument = "penstock.toml",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say why it was left out, and ask for nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Try a table again that was left out: at once by the running pipeline, or by the next one to start."""
    from penstock.cli.agent_snapshot import parse_table
    from penstock.pipeline.checkpoint import TROUBLES
    from penstock.pipeline.troubles import Troubles

    name = parse_table(table)
    troubles = Troubles(load_settings(config).pipeline.checkpoint_directory / TROUBLES)
    found = troubles.read().get(name)
    if found is None or not (dry_run or troubles.ask(name)):
        raise InvalidInput("there is no trouble with this table", table=name)
    if json:
        output.emit({"table": str(name), "requested": not dry_run, "reason": found.reason})
    else:
        verb = "would be" if dry_run else "is"
        output.line(f"{name} {verb} tried again, within a second when the pipeline runs")
        output.line(f"it was left out because: {output.plain(found.reason)}")


def _serve(opened: ExitStack, settings: Settings, made: Pipeline, *, json: bool) -> None:
    from penstock.pipeline.metrics import PipelineEndpoints
    from penstock.serve.http import HttpServer

    wanted = settings.http.model_copy(update={"port": settings.pipeline.http_port})
    server = opened.enter_context(HttpServer(wanted, PipelineEndpoints(made.status)))
    if json:
        output.emit({"pipeline": "starting", "http": server.address})
        output.flush()


def load_settings(config: str) -> Settings:
    """The settings of a pipeline; of a Debezium file also what it says of Kafka, with the agent's own logs to read."""
    return trace_settings(config).settings


def trace_settings(config: str) -> Loaded:
    """The same, with where each setting comes from. Variables win over both kinds of file."""
    from penstock import settings as settings_module
    from penstock.capture.cassandra.debezium import properties
    from penstock.pipeline.sinks.kafka.debezium import pipeline_tree

    if not properties.is_properties(config):
        return settings_module.trace(settings_module.read_toml(config), file=config)
    read = properties.read(config)
    tree = pipeline_tree(read.pipeline)
    for text in read.warnings:
        output.note(f"note: {text}")
    if tree.without_effect:
        output.note(f"note: properties without effect: {', '.join(tree.without_effect)}")
    directory = read.settings.agent.directory
    ours = tree.sections.setdefault("pipeline", {})
    ours.setdefault("logs", [str(directory)])
    ours.setdefault("checkpoint_directory", str(directory / ".pipeline"))
    sections = {name: dict(values) for name, values in read.tree.items()}
    for name, values in tree.sections.items():
        sections.setdefault(name, {}).update(values)
    return settings_module.trace(sections, file=config, origins=read.origins)


def as_submitted(settings: Settings) -> Settings:
    """The settings with the master that spark-submit was given, when it started this process."""
    from penstock.pipeline.session import submitted

    master = submitted().get("spark.master")
    if master is None:
        return settings
    return settings.model_copy(update={"pipeline": settings.pipeline.model_copy(update={"master": master})})


def run(made: Pipeline, *, once: bool, json: bool) -> None:
    """Run a pipeline in a thread of its own and show how it goes; signals stop it in good order."""
    error: list[BaseException] = []

    def work() -> None:
        try:
            made.run(available_now=once)
        except BaseException as raised:  # noqa: BLE001
            # It is raised where the process can end with it.
            error.append(raised)

    thread = threading.Thread(target=work, name="penstock-pipeline", daemon=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: made.stop())
    thread.start()
    _follow(made, thread, json=json)
    if error:
        raise error[0]


def _follow(made: Pipeline, thread: threading.Thread, *, json: bool) -> None:
    console = output.progress_console()
    if json or not console.is_terminal:
        shown = time.monotonic()
        while thread.is_alive():
            thread.join(_VIEW_S)
            if json and time.monotonic() - shown >= _JSON_S:
                shown = time.monotonic()
                output.emit({"pipeline": "running", **facts(made.status())})
                output.flush()
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        while thread.is_alive():
            thread.join(_VIEW_S)
            live.update(picture(made.status()))


def facts(status: PipelineStatus) -> dict[str, object]:
    """A status for programs."""
    return {
        "batch": status.batch,
        "batches": status.batches,
        "copies": status.copies,
        "records": status.records,
        "failures": status.failures,
        "waiting": status.waiting,
        "state_rows": status.state_rows,
        "state_bytes": status.state_bytes,
        "tables": {
            name: {
                "copies": table.copies,
                "records": table.records,
                "per_second": round(table.rate, 1),
                "lag_ms": None if table.lag_ms is None else round(table.lag_ms, 1),
            }
            for name, table in sorted(status.tables.items())
        },
        "troubles": {
            name: {
                "error": trouble.error,
                "reason": trouble.reason,
                "for_s": round(trouble.for_s, 1),
                "tries": trouble.tries,
                "returning": trouble.returning,
            }
            for name, trouble in sorted(status.troubles.items())
        },
        "sinks": {
            name: {
                "records": sink.records,
                "bytes": sink.bytes,
                "dead": sink.dead,
                "retries": sink.retries,
                "down_s": round(sink.down_s, 1),
                "columns_left_out": sink.left_out,
            }
            for name, sink in sorted(status.sinks.items())
        },
    }


def picture(status: PipelineStatus) -> RenderableType:
    """A status for people: the busiest tables."""
    state = "waiting: " + status.waiting if status.waiting else f"batch {status.batch}, {status.batch_ms:,.0f} ms"
    title = f"[bold]penstock pipeline[/]  {status.records:,} records of {status.copies:,} copies  [dim]{state}[/]"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, expand=True, header_style="bold")
    table.add_column("table")
    for name in ("copies read", "records", "per second", "lag"):
        table.add_column(name, justify="right")
    busiest = sorted(status.tables.items(), key=lambda item: (-item[1].rate, item[0]))
    for name, one in busiest[:_TABLES_SHOWN]:
        lag = "-" if one.lag_ms is None else f"{one.lag_ms:,.0f} ms"
        table.add_row(output.plain(name), f"{one.copies:,}", f"{one.records:,}", f"{one.rate:,.0f}", lag)
    if len(busiest) > _TABLES_SHOWN:
        table.add_row(f"… and {len(busiest) - _TABLES_SHOWN} more", "", "", "", "")
    if not status.troubles:
        return table
    shown = list(status.troubles.items())[:_TABLES_SHOWN]
    lines = [Text(output.plain(f"{name} is in trouble: {one.reason}"), style="red") for name, one in shown]
    return Group(table, *lines)
