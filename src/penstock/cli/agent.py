"""`penstock agent`: captures a source's changes, and what goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli import needs, output
from penstock.cli.output import JsonOption

if TYPE_CHECKING:
    from penstock.settings import Settings

ConfigArgument = Annotated[
    str, typer.Argument(metavar="CONFIG", help="Penstock's settings (TOML), or a Debezium .properties file.")
]


class RunGroup(TyperGroup):
    """`penstock agent CONFIG` is short for `penstock agent run CONFIG`, and so with other groups that have a `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=RunGroup,
    no_args_is_help=True,
    help="Capture a Cassandra node's changes: `penstock agent CONFIG`, until Ctrl-C or SIGTERM.",
)


@app.command()
def run(config: ConfigArgument, json: JsonOption = False) -> None:
    """Capture changes until Ctrl-C or SIGTERM; what was read is durable then."""
    output.set_up_log("info", service=True, json=json)
    settings = load_settings(config)
    needs.for_agent(settings)
    output.warn_of_plain_kernels()
    from penstock.capture.cassandra.agent.status import CassandraStatus
    from penstock.cli.agent_process import AgentProcess

    directory = str(settings.agent.directory)

    def began(facts: dict[str, object]) -> None:
        if json:
            output.emit({"agent": "running", "directory": directory, **facts})
            output.flush()
        else:
            text = f"capturing {facts['node']} to {directory}; Ctrl-C ends"
            output.told(text, "agent runs", directory=directory, **facts)

    agent = AgentProcess(settings).run(began)
    status = agent.status()
    counts = {"changes": status.changes}
    if isinstance(status, CassandraStatus):
        counts["mutations"] = status.mutations
    if json:
        output.emit({"agent": "ended", **counts})
    else:
        text = f"ended; {output.count(status.changes, 'change')} captured"
        output.told(text, "agent has ended", **counts)


@app.command()
def parked(config: ConfigArgument, json: JsonOption = False) -> None:
    """List entries that wait for the definition of their table or of a column."""
    from penstock.capture.cassandra.agent.parked_entries import read_summary
    from penstock.capture.state_directory import state_directory
    from penstock.system.files import OsFiles

    rows = read_summary(OsFiles(), state_directory(load_settings(config)))
    if json:
        for row in rows:
            output.emit(row)
        return
    if not rows:
        output.line("nothing is parked")
        return
    headers = ("table id", "entries", "bytes", "first in", "position", "reason")
    facts = ("table_id", "entries", "bytes", "first_file", "first_position", "reason")
    output.table(headers, [[row[fact] for fact in facts] for row in rows])


@app.command("reprocess-errors")
def reprocess_errors(
    config: ConfigArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say which would be read, and ask for nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Read segments that failed again: at once by the running agent, or by the next one to start."""
    from penstock.capture.cassandra.agent.failed_segments import FailedSegments
    from penstock.capture.state_directory import state_directory
    from penstock.system.files import OsFiles

    failed = FailedSegments(OsFiles(), state_directory(load_settings(config)))
    segments = failed.all()
    for segment in segments:
        if not dry_run:
            failed.request(segment.name)
        if json:
            output.emit({"segment": segment.name, "file": segment.path, "reason": segment.message})
        else:
            output.line(f"{segment.name}: {'would' if dry_run else 'will'} be read again from {segment.path}")
    if not segments and not json:
        output.line("no segment has failed")


@app.command()
def snapshot(
    config: ConfigArgument,
    table: Annotated[str, typer.Argument(help="The table, as keyspace.table.")],
    wait: Annotated[bool, typer.Option("--wait", help="Show the progress, and end when the table is copied.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether this agent copies tables.")] = False,
    json: JsonOption = False,
) -> None:
    """Ask the agent to copy a table again, as it is now."""
    from penstock.cli.agent_snapshot import ask, parse_table

    ask(load_settings(config), parse_table(table), wait=wait, dry_run=dry_run, json=json)


def load_settings(config: str) -> Settings:
    """The agent's settings from either kind of file."""
    from penstock import settings as settings_module
    from penstock.capture.cassandra.debezium import properties as debezium_properties

    if not debezium_properties.is_properties(config):
        return settings_module.load(config)
    read = debezium_properties.read(config)
    for text in read.warnings:
        output.note(f"note: {text}")
    return read.settings
