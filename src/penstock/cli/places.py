"""Places: which logs a directory on the command line means.

The argument is either one log's directory or a root above several, such as the data of a node or of the demo; then
`--table` and `--log` choose.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import unquote

import typer

from penstock.errors import InvalidInput, StorageError
from penstock.log import identity
from penstock.model.schema import TableId
from penstock.system.addresses import refusal
from penstock.system.files import OsFiles

DirectoryArgument = Annotated[str, typer.Argument(metavar="DIR", help="A log's directory, or one above several.")]
TableOption = Annotated[str | None, typer.Option("--table", metavar="KS.TABLE", help="Only logs of this table.")]
LogOption = Annotated[str | None, typer.Option("--log", metavar="NAME", help="Only the named log of the table.")]

# Deep enough for root/node/table; a whole file system is never searched by accident.
_DEPTH_MAX = 3
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Place:
    """One log on disk. `name` is empty for a table's main log."""

    directory: str
    table: TableId
    name: str


def find(root: str, table: str | None = None, log: str | None = None) -> list[Place]:
    """Every log at or below `root`, in order of its path; an error when there is none."""
    if (reason := refusal(root)) is not None:
        raise InvalidInput(reason)
    check_directory(root)
    denied: list[OSError] = []
    found = [_place(directory) for directory in _directories(root, denied)]
    if not found and denied:
        reason = denied[0].strerror or "refused"
        raise StorageError(f"cannot look for change logs: {reason}", directory=denied[0].filename)
    if not found:
        raise InvalidInput(f"no change log here: neither this directory nor one below it has a {identity.NAME}: {root}")
    chosen = [place for place in found if table in (None, str(place.table)) and log in (None, place.name)]
    if not chosen:
        wanted = " ".join(part for part in (table, f"log {log}" if log is not None else None) if part)
        raise InvalidInput(f"no log of {wanted} below {root}; there are: {_listed(found)}")
    return chosen


def check_directory(path: str) -> None:
    """Raise StorageError, with the reason, unless the path is a directory that can be read."""
    try:
        os.scandir(path).close()
    except FileNotFoundError:
        raise StorageError("no such directory", directory=path) from None
    except NotADirectoryError:
        raise StorageError("not a directory", directory=path) from None
    except OSError as error:
        raise StorageError(f"cannot look into the directory: {error.strerror}", directory=path) from error


def choose(root: str, table: str | None = None, log: str | None = None) -> Place:
    """The one log that is meant; an error that names the candidates when there are several."""
    found = find(root, table, log)
    if len(found) > 1:
        raise InvalidInput(f"{len(found)} logs below {root}; give the directory of one: {_listed(found)}")
    return found[0]


def _directories(root: str, denied: list[OSError]) -> list[str]:
    if os.path.exists(os.path.join(root, identity.NAME)):
        return [root]
    found = []
    for directory, below, names in os.walk(root, onerror=denied.append):
        if identity.NAME in names:
            found.append(directory)
            below.clear()
        elif os.path.relpath(directory, root).count(os.sep) + 1 >= _DEPTH_MAX and directory != root:
            below.clear()
    return sorted(found)


def _place(directory: str) -> Place:
    found = identity.load(OsFiles(), directory)
    _, _, name = os.path.basename(os.path.abspath(directory)).partition("@")
    return Place(directory, found.table, unquote(name))


def _listed(places: list[Place]) -> str:
    shown = ", ".join(place.directory for place in places[:_NAMED_MAX])
    return f"{shown}, …" if len(places) > _NAMED_MAX else shown
