"""`penstock pipeline CONFIG`: the data pipeline on Spark, with its progress on the terminal.

`penstock pipeline retry TABLE` has a table tried again that the pipeline left out.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli import needs, output, screen
from penstock.cli.agent import ConfigArgument, RunGroup
from penstock.cli.erase import erase_state
from penstock.cli.output import JsonOption
from penstock.errors import InvalidInput
from penstock.pipeline.status import RUNS, PipelineStatus
from penstock.settings import Settings
from penstock.system import umask
from penstock.telemetry import Notices

if TYPE_CHECKING:
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
    from penstock.cli.pipeline import About
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
    from penstock.cli.pipeline import PipelineView

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


# The live view of a pipeline: its status in, a picture for the terminal out.
#
# Everything fits a terminal of 80 by 24: the busiest tables are shown and the others counted, and what is wrong comes
# before what goes well.

# Troubles that are shown however many tables there are, and tables however many troubles.
_TROUBLES_LEAST = 3
_TABLES_LEAST = 3


@dataclass(frozen=True, slots=True)
class About:
    """What does not change while a pipeline runs: with what it runs, and where it can be asked."""

    name: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    logs: tuple[str, ...]
    agents: tuple[str, ...]
    sinks: tuple[str, ...]
    checkpoint: str
    master: str
    http: str | None
    stop_s: float

    @classmethod
    def of(cls, settings: Settings, http: str | None) -> About:
        found = settings.pipeline
        return cls(
            name=found.name,
            include=tuple(found.include),
            exclude=tuple(found.exclude),
            logs=tuple(found.logs),
            agents=tuple(found.agents),
            sinks=tuple(found.sinks),
            checkpoint=str(found.checkpoint_directory),
            master=found.master,
            http=http,
            stop_s=found.stop_s,
        )

    def facts(self) -> dict[str, object]:
        """The same for a log event; what there is none of is left out."""
        facts: Mapping[str, object] = {
            "tables": self.include,
            "tables_left_out": self.exclude,
            "logs": self.logs,
            "agents": self.agents,
            "sinks": self.sinks,
            "checkpoint": self.checkpoint,
            "master": self.master,
            "http": self.http,
        }
        return {name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items() if fact}


class PipelineView:
    """The whole view, for a terminal of any size."""

    def __init__(self, about: About, status: PipelineStatus, notices: Notices, *, ending: bool) -> None:
        self._about = about
        self._status = status
        self._notices = notices
        self._ending = ending

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.size.height
        inner = options.update(width=max(1, options.max_width - 4), height=None)
        fixed: list[RenderableType] = [self._state(), self._path(), *self._sinks(), *self._warnings()]
        # What is left beside these, the frame, the tables' heading and a blank line.
        left = height - 4 - sum(len(console.render_lines(part, inner, pad=False)) for part in fixed)
        wrong = self._troubles(min(len(self._status.troubles), max(_TROUBLES_LEAST, left - _TABLES_LEAST)))
        left -= sum(len(console.render_lines(part, inner, pad=False)) for part in wrong)
        keys = "Ctrl-C ends it at once, as a crash would" if self._ending else "Ctrl-C ends it in good order"
        yield Panel(
            Group(*fixed, *wrong, Text(), self._tables(max(_TABLES_LEAST, left))),
            title=f"[bold]penstock pipeline[/] {self._about.name}",
            subtitle=f"[dim]{keys}[/]",
            border_style="yellow" if self._ending else "cyan",
            padding=(0, 1),
            height=options.height,
        )

    def _state(self) -> Text:
        status = self._status
        text = Text()
        text.append(f"{status.records:,}", "bold green")
        text.append(f" records of {status.copies:,} copies   ")
        if self._ending:
            text.append(f"ending: {self._stage()}", "bold yellow")
        elif status.waiting:
            text.append(output.plain(f"waiting: {status.waiting}"), "yellow")
        elif status.stage != RUNS:
            text.append(status.stage, "bold")
        elif status.batches:
            text.append(f"batch {status.batch}, {status.batch_ms:,.0f} ms")
        else:
            text.append("no batch yet", "dim")
        return text

    def _stage(self) -> str:
        if self._status.stage != RUNS:
            return self._status.stage
        waiting = f" It waits: {output.plain(self._status.waiting)}" if self._status.waiting else ""
        return f"the batch under way is finished, within {self._about.stop_s:g} s …{waiting}"

    def _path(self) -> Text:
        about, status = self._about, self._status
        text = Text(overflow="fold")
        places = (("log place", about.logs), ("agent", about.agents))
        froms = [output.count(len(names), noun) for noun, names in places if names]
        text.append("from ", "dim").append(" and ".join(froms) or "nothing")
        text.append("   tables ", "dim").append(", ".join(about.include))
        if about.exclude:
            text.append(" without ", "dim").append(", ".join(about.exclude))
        text.append("   state ", "dim")
        text.append(f"{output.count(status.state_rows, 'row')}, {output.size(status.state_bytes)}")
        text.append("\ncheckpoint ", "dim").append(about.checkpoint)
        text.append("\nHTTP ", "dim").append(about.http or "none: pipeline.http_port is not set")
        return text

    def _sinks(self) -> list[Text]:
        lines = []
        for name in dict.fromkeys((*self._about.sinks, *self._status.sinks)):
            sink = self._status.sinks.get(name)
            text = Text("to ", "dim").append(name, "not dim")
            if sink is not None:
                text.append(f"   {output.count(sink.records, 'record')}, {output.size(sink.bytes)}", "not dim")
                if sink.dead:
                    text.append(f"   {output.count(sink.dead, 'dead letter')}", "red")
                if sink.left_out:
                    text.append(f"   without {output.count(sum(sink.left_out.values()), 'column')}", "yellow")
                if sink.down_s:
                    text.append(f"   away for {sink.down_s:,.0f} s", "yellow")
            lines.append(text)
        return lines

    def _warnings(self) -> list[Text]:
        if not self._notices.count:
            return []
        text = f"{output.count(self._notices.count, 'warning')} in the log, the last: {self._notices.last}"
        return [Text(output.plain(text), "yellow", no_wrap=True, overflow="ellipsis")]

    def _troubles(self, shown: int) -> list[Text]:
        found = list(self._status.troubles.items())
        more = len(found) - shown
        if more > 0:
            found = found[: shown - 1]
        lines = [
            Text(output.plain(f"{name} is in trouble: {one.reason}"), "red", overflow="fold") for name, one in found
        ]
        return [*lines, Text(f"… and {more + 1} more tables in trouble", "red")] if more > 0 else lines

    def _tables(self, rows: int) -> Table:
        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        table.add_column("table", no_wrap=True)
        for name in ("copies read", "records", "per second", "lag"):
            table.add_column(name, justify="right", no_wrap=True)
        busiest = sorted(self._status.tables.items(), key=lambda item: (-item[1].rate, item[0]))
        shown = busiest if len(busiest) <= rows else busiest[: rows - 1]
        for name, one in shown:
            lag = "-" if one.lag_ms is None else f"{one.lag_ms:,.0f} ms"
            table.add_row(output.plain(name), f"{one.copies:,}", f"{one.records:,}", f"{one.rate:,.0f}", lag)
        rest = [one for _, one in busiest[len(shown) :]]
        if rest:
            copies, records = sum(one.copies for one in rest), sum(one.records for one in rest)
            rate = sum(one.rate for one in rest)
            table.add_row(f"… and {len(rest)} more", f"{copies:,}", f"{records:,}", f"{rate:,.0f}", "")
        return table
