"""Snapshot requests: tables that somebody wants copied again, as durable files beside the snapshot's state.

A request is a file that names the table. The running agent finds it within a second, begins the new run, makes that
durable and only then removes the file; so a request survives any crash, and is never done twice without a crash. An
agent that is not running finds it when it starts. The pipeline asks for one when changes were removed unread.
"""

from __future__ import annotations

from penstock.errors import CorruptCheckpoint
from penstock.log import names, sealed
from penstock.log.refusal import refused
from penstock.model.schema import TableId
from penstock.system.files import Files, make_durable_directory

FORMAT = 1
SUFFIX = ".request"
# The agent's state is there when its settings do not say otherwise.
_AGENT = ".agent"


def usual_directory(files: Files, logs: str) -> str | None:
    """Where the agent that writes these logs finds requests; None when it keeps its state elsewhere, or is none."""
    return f"{logs}/{_AGENT}/snapshot" if files.exists(f"{logs}/{_AGENT}") else None


def request(files: Files, directory: str, table: TableId, now_us: int) -> None:
    """Ask for a new snapshot of a table. Asking twice before it begins is asking once."""
    path = f"{directory}/{_name(table)}"
    content = {"format": FORMAT, "keyspace": table.keyspace, "table": table.table, "time": now_us}
    try:
        make_durable_directory(files, directory)
        sealed.write(files, directory, _name(table), content)
    except OSError as error:
        raise refused(error, "writing the snapshot request", path) from error


def waiting(files: Files, directory: str) -> list[TableId]:
    """The tables that are asked for. A file that is no request is an error that names it."""
    try:
        found = sorted(name for name in files.list(directory) if name.endswith(SUFFIX))
        return [_read(files, f"{directory}/{name}") for name in found]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise refused(error, "listing the snapshot requests", directory) from error


def _read(files: Files, path: str) -> TableId:
    try:
        content = sealed.read(files, path)
        return TableId(str(content["keyspace"]), str(content["table"]))
    except (ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"the snapshot request is not readable: {error}; delete it", file=path) from error


def done(files: Files, directory: str, table: TableId) -> None:
    """Take a request back, when its run is durable or it can never be met."""
    path = f"{directory}/{_name(table)}"
    try:
        if files.exists(path):
            files.unlink(path)
            files.sync_directory(directory)
    except OSError as error:
        raise refused(error, "removing the snapshot request", path) from error


def _name(table: TableId) -> str:
    return names.directory_name(table) + SUFFIX
