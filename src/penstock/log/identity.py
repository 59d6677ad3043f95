"""`log.json`: what a log directory is, written once when the log is created."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import CorruptLog, UnsupportedFormat
from penstock.log import sealed
from penstock.log.refusal import refused
from penstock.model.schema import TableId
from penstock.system import json_text
from penstock.system.files import Files

NAME = "log.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The log's own id and its table. Checkpoints and files carry the id, so strangers are noticed."""

    log: str
    table: TableId


def create(files: Files, directory: str, table: TableId, entropy: Callable[[int], bytes]) -> Identity:
    """Give a new log its identity."""
    identity = Identity(entropy(16).hex(), table)
    content = {"format": FORMAT, "log": identity.log, "keyspace": table.keyspace, "table": table.table}
    sealed.write(files, directory, NAME, content)
    return identity


def load(files: Files, directory: str) -> Identity:
    """The identity of an existing log."""
    path = f"{directory}/{NAME}"
    try:
        content = sealed.read(files, path)
        if content.get("format") != FORMAT:
            raise UnsupportedFormat(f"log format {content.get('format')!r}; this version reads {FORMAT}", file=path)
        names = [str(content[name]) for name in ("log", "keyspace", "table")]
        if not all(map(json_text.is_text, names)):
            raise ValueError("a name has half of a character")
        return Identity(names[0], TableId(names[1], names[2]))
    except (ValueError, KeyError) as error:
        raise CorruptLog(f"not a log's identity: {error}", file=path) from error
    except OSError as error:
        raise refused(error, "reading the log's identity", path) from error
