"""The `penstock` command: its command groups, and how it ends.

Exit codes: 0 done, 1 an error that was explained in one line, 2 wrong usage, 130 ended by Ctrl-C. An error that
Penstock raises on purpose never shows a traceback; a mistake in Penstock does, as a log event where all is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from penstock.cli import agent, cassandra, config, dead_letters, log, output, pipeline, subscriptions
from penstock.cli.bootstrap import bootstrap
from penstock.cli.compare import compare
from penstock.cli.demo import demo
from penstock.cli.listen import listen
from penstock.cli.run import run
from penstock.cli.sql import sql
from penstock.cli.version import print_version, version
from penstock.errors import PenstockError
from penstock.system.descriptors import raise_limit

INTERRUPTED = 130

app = typer.Typer(
    name="penstock",
    help="Change data capture: durable change logs per table, their readers, and a pipeline on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(log.app, name="log")
app.add_typer(subscriptions.app, name="subscriptions")
app.add_typer(agent.app, name="agent")
app.add_typer(config.app, name="config")
app.add_typer(cassandra.app, name="cassandra")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(pipeline.app, name="pipeline")
app.command("bootstrap")(bootstrap)
app.command("run")(run)
app.command("compare")(compare)
app.command("demo")(demo)
app.command("sql")(sql)
app.command("listen")(listen)
app.command("version")(version)


@app.callback()
def about(
    _version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Options of the command itself."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    raise_limit()
    output.take_any_text()
    try:
        output.set_up_log("warning")
        app(args=None if arguments is None else list(arguments), prog_name="penstock")
    except PenstockError as error:
        output.report(error)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except Exception:
        if not output.log_mistake():
            raise
        return 1
    finally:
        output.end_service()
    return 0
