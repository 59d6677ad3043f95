"""Names on disk: how tables, logs and subscriptions become file names.

Names come from databases and clients, so none is ever used as a path. Letters, digits, `_` and `-` stand for
themselves; every other byte of the UTF-8 form becomes `%HH`. A dot is encoded too, which is why `keyspace.table` cannot
be read in two ways, and `@`, `!` and `.` are free to separate the parts. A name too long for a file name ends in a
digest of the whole.
"""

from __future__ import annotations

import hashlib
import re

from penstock.errors import InvalidInput
from penstock.model.schema import TableId

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
# Two encoded names, a log's name and a file number fit into the 255 bytes that file systems allow.
_LENGTH_MAX = 72
_DIGEST = 24
_NUMBER = re.compile(r"\.(\d{6,12})\.(avro|idx|txn)", re.ASCII)

DATA = "avro"
INDEX = "idx"
TRANSACTIONS = "txn"
CHECKPOINT = ".checkpoint"
TEMPORARY = ".tmp"
PARKED = "!parked"


def encode(name: str) -> str:
    """A name as one part of a file name. Different names never give the same part."""
    if not name:
        raise InvalidInput("a name must not be empty")
    try:
        raw = name.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"a name must be a text: {name[:40]!a} has half of a character") from error
    text = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    if len(text) <= _LENGTH_MAX:
        return text
    digest = hashlib.sha256(raw).hexdigest()[:_DIGEST]
    # No short name contains `~`, so a shortened one collides with nothing else.
    return f"{text[: _LENGTH_MAX - _DIGEST - 1]}~{digest}"


def directory_name(table: TableId, log: str | None = None, *, parked: bool = False) -> str:
    """A log's directory: `ks.table`, `ks.table@log` for a named one, `…!parked` for what its filter could not judge."""
    name = f"{encode(table.keyspace)}.{encode(table.table)}"
    if log is not None:
        name += f"@{encode(log)}"
    return name + PARKED if parked else name


def file_name(table: TableId, number: int, kind: str = DATA) -> str:
    """The name of one numbered file: `ks.table.000001.avro`."""
    return f"{encode(table.keyspace)}.{encode(table.table)}.{number:06d}.{kind}"


def file_number(table: TableId, name: str, kind: str = DATA) -> int | None:
    """The number in a file's name, or None when the file is not one of this table's."""
    match = _NUMBER.search(name)
    if match is None or match.group(2) != kind:
        return None
    number = int(match.group(1))
    return number if number > 0 and name == file_name(table, number, kind) else None


def checkpoint_name(subscription: str) -> str:
    """The name of a subscription's checkpoint file."""
    return encode(subscription) + CHECKPOINT
