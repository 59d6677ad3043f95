"""`penstock pipeline CONFIG`: the data pipeline on Spark, with its progress on the terminal.

`penstock pipeline retry TABLE` has a table tried again that the pipeline left out.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from penstock.cli import needs, output, screen
from penstock.cli.agent import ConfigArgument, RunGroup
from penstock.cli.erase import erase_state
from penstock.cli.output import JsonOption
from penstock.errors import InvalidInput
from penstock.system import umask

if TYPE_CHECKING:
    from penstock.cli.pipeline_view import About
    from penstock.pipeline.pipeline import Pipeline
    from penstock.pipeline.status import PipelineStatus
    from penstock.settings import Loaded, Settings

log = structlog.get_logger()

_VIEW_S = 0.5
_JSON_S = 5.0


app = typer.Typer(
    cls=RunGroup,
    no_args_is_help=True,
    help="Merge the change logs of all nodes on Spark and deliver them: `penstock pipeline CONFIG`.",
)


@app.command("run")
def pipeline(
    config: ConfigArgument,
    once: Annotated[bool, typer.Option("--once", help="Deliver what is in the logs now, then end.")] = False,
    view: Annotated[
        bool, typer.Option("--view/--no-view", help="On a terminal: a live view, or lines of the log.")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Merge the change logs of all nodes on Spark and deliver them, until Ctrl-C or SIGTERM."""
    watched = view and not json and screen.drawable(sys.stderr)
    output.set_up_log("warning" if watched else "info", service=True, json=json)
    settings = load_settings(config)
    needs.for_pipeline(settings)
    output.warn_of_plain_kernels()
    from penstock.cli.pipeline_view import About
    from penstock.pipeline.pipeline import Pipeline

    settings = as_submitted(settings)
    made = Pipeline(settings)
    with ExitStack() as opened:
        about = About.of(settings, _serve(opened, settings, made))
        log.info("pipeline runs", pipeline=about.name, **about.facts())
        if json:
            output.emit({"pipeline": "starting", "name": about.name, **about.facts()})
            output.flush()
        run(made, about, once=once, json=json, watched=watched)
    _tell_end(made.status(), once=once, json=json)


def _tell_end(status: PipelineStatus, *, once: bool, json: bool) -> None:
    if json:
        output.emit({"pipeline": "ended", **facts(status)})
    else:
        records, tables = output.count(status.records, "record"), output.count(len(status.tables), "table")
        text = f"ended; {records} of {tables} delivered, merged from {status.copies:,} that nodes had logged"
        counts = {"records": status.records, "tables": len(status.tables), "copies": status.copies}
        output.told(text, "pipeline has ended", **counts, batches=status.batches, failures=status.failures)
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


app.command("erase")(erase_state)


def _serve(opened: ExitStack, settings: Settings, made: Pipeline) -> str | None:
    """Start the HTTP server, when there is to be one; its address."""
    if settings.pipeline.http_port is None:
        return None
    from penstock.pipeline.metrics import PipelineEndpoints
    from penstock.serve.http import HttpServer

    wanted = settings.http.model_copy(update={"port": settings.pipeline.http_port})
    return opened.enter_context(HttpServer(wanted, PipelineEndpoints(made.status))).address


def load_settings(config: str) -> Settings:
    """The settings of a pipeline; of a Debezium file also what it says of Kafka, with the agent's own logs to read."""
    settings = trace_settings(config).settings
    if settings.pipeline.group_read:
        umask.open_to_group()
    return settings


def trace_settings(config: str) -> Loaded:
    """The same, with where each setting comes from. Variables win over both kinds of file."""
    from penstock import settings as settings_module
    from penstock.capture.cassandra.debezium import properties
    from penstock.deliver.kafka.debezium import pipeline_tree

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


class _Interrupts:
    """Signals to a pipeline: the first one ends it in good order, and Ctrl-C after that at once."""

    def __init__(self, made: Pipeline) -> None:
        self._made = made
        self.ending = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    def _take(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT and self.ending:
            raise KeyboardInterrupt
        self.ending = True
        self._made.stop()


def run(made: Pipeline, about: About, *, once: bool, json: bool, watched: bool) -> None:
    """Run a pipeline in a thread of its own and show how it goes; signals stop it in good order."""
    error: list[BaseException] = []

    def work() -> None:
        try:
            made.run(available_now=once)
        except BaseException as raised:  # noqa: BLE001
            # It is raised where the process can end with it.
            error.append(raised)

    thread = threading.Thread(target=work, name="penstock-pipeline", daemon=True)
    interrupts = _Interrupts(made)
    thread.start()
    try:
        if watched:
            _watch(made, about, thread, interrupts)
        else:
            _follow(made, about, thread, interrupts, json=json)
    except KeyboardInterrupt:
        output.note("ended at once; the batch under way is done again at the next start")
        raise
    if error:
        raise error[0]


def _watch(made: Pipeline, about: About, thread: threading.Thread, interrupts: _Interrupts) -> None:
    """Show a live view until the pipeline has ended, then say what it cannot show any more."""
    from penstock.cli.pipeline_view import PipelineView

    with screen.taken(sys.stderr, Path(about.checkpoint) / screen.LOG_NAME) as taken:
        log.info("pipeline runs", pipeline=about.name, **about.facts())
        while thread.is_alive():
            taken.show(PipelineView(about, made.status(), taken.notices, ending=interrupts.ending))
            thread.join(_VIEW_S)
    if taken.notices.count:
        output.note(f"{output.count(taken.notices.count, 'warning')} in {taken.log}")


def _follow(made: Pipeline, about: About, thread: threading.Thread, interrupts: _Interrupts, *, json: bool) -> None:
    """Log what a pipeline does, and with `json` print its figures now and then."""
    shown = time.monotonic()
    stage, ending = "", False
    while thread.is_alive():
        thread.join(_VIEW_S)
        status = made.status()
        if interrupts.ending and not ending:
            ending = True
            log.info("pipeline ends; the batch under way is finished", pipeline=about.name, within_s=about.stop_s)
        if status.stage != stage:
            stage = status.stage
            log.info("pipeline goes on", pipeline=about.name, stage=stage)
        if json and time.monotonic() - shown >= _JSON_S:
            shown = time.monotonic()
            output.emit({"pipeline": "running", **facts(status)})
            output.flush()


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
