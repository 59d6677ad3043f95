"""Checkpoint: how far one subscription has come in one log, as a file in the log's directory.

The position is the only thing a consumer needs to go on after a crash; the rest of the file says whose it is, so that
a checkpoint of another table or of another log is refused instead of believed. It only ever moves forward. A file
that cannot be trusted is reported with its name and left as it is. docs/formats/checkpoint.md has the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import (
    CorruptCheckpoint,
    CorruptLog,
    InvalidValue,
    PenstockError,
    PositionAhead,
    PositionBehind,
    UnsupportedFormat,
)
from penstock.log import names, sealed
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.system import json_text
from penstock.system.files import Files

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything up to and including `position` is done. `time` is when that was committed, in microseconds."""

    log_id: str
    table: TableId
    subscription: str
    position: Position
    time: int

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "log": self.log_id,
            "keyspace": self.table.keyspace,
            "table": self.table.table,
            "subscription": self.subscription,
            "position": str(self.position),
            "time": self.time,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Checkpoint:
        """The inverse. Raises ValueError or InvalidValue on anything else."""
        return cls(
            log_id=_text(content, "log"),
            table=TableId(_text(content, "keyspace"), _text(content, "table")),
            subscription=_text(content, "subscription"),
            position=Position.parse(_text(content, "position")),
            time=_number(content, "time"),
        )


def _text(content: dict[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        raise ValueError(f"member {name} is missing or no text")
    if not json_text.is_text(value):
        raise ValueError(f"member {name} has half of a character")
    return value


def _number(content: dict[str, Any], name: str) -> int:
    value = content.get(name)
    if type(value) is not int:
        raise ValueError(f"member {name} is missing or no whole number")
    return value


def load(files: Files, path: str) -> Checkpoint | None:
    """The checkpoint of a file, as it stands; None when there is no file."""
    try:
        content = sealed.read(files, path)
        version = _number(content, "format")
        if version > FORMAT:
            raise UnsupportedFormat(f"checkpoint format {version}; this version reads {FORMAT}", file=path)
        return Checkpoint.from_json(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(error, "reading the checkpoint", path) from error
    except (ValueError, InvalidValue) as error:
        raise CorruptCheckpoint(f"checkpoint not readable: {error}", file=path) from error


def check(found: Checkpoint, path: str, reader: LogReader, subscription: str) -> None:
    """Refuse a checkpoint that belongs elsewhere or lies ahead of the log."""
    if found.table != reader.table:
        raise CorruptCheckpoint(f"this checkpoint belongs to table {found.table}, not to {reader.table}", file=path)
    if found.log_id != reader.log_id:
        raise CorruptCheckpoint("this checkpoint belongs to another log of the table", file=path, log=reader.log_id)
    if found.subscription != subscription:
        raise CorruptCheckpoint(
            f"this checkpoint belongs to subscription {found.subscription!r}, not to {subscription!r}", file=path
        )
    if not is_in_log(reader, found.position):
        raise PositionAhead(
            "the checkpoint lies ahead of the log", file=path, position=found.position, end=reader.end()
        )


def is_in_log(reader: LogReader, position: Position) -> bool:
    """Whether the log has come to this position.

    After power loss the watermark may be behind until a writer opens the log; a checkpoint is not, for it was synced.
    Then the files are asked: a header tells how far the log had come before it, and a whole block is its own proof.
    """
    if position <= reader.end():
        return True
    infos = reader.files()
    if infos and position <= reader.heading(infos[-1].number).last:
        return True
    info = next((info for info in infos if info.number == position.file), None)
    if info is None or not reader.heading(info.number).size <= position.offset < info.bytes:
        return False
    try:
        block = next(reader.blocks(info.number, position.offset, info.bytes), None)
    except CorruptLog:
        return False
    return block is not None and position.ordinal < block.count


class CheckpointFile:
    """The file of one subscription, for the one process that holds the subscription's lease."""

    def __init__(self, files: Files, directory: str, subscription: str) -> None:
        self._files = files
        self._directory = directory
        self._subscription = subscription
        self._name = names.checkpoint_name(subscription)
        self.path = f"{directory}/{self._name}"
        self.current: Checkpoint | None = None

    def load(self, reader: LogReader) -> Checkpoint | None:
        """Read the file and check that it belongs to this log; None when the subscription is new."""
        found = load(self._files, self.path)
        if found is not None:
            check(found, self.path, reader, self._subscription)
        self.current = found
        return found

    def save(self, checkpoint: Checkpoint) -> None:
        """Make it durable. Going back is refused; after any error the file holds the old or the new checkpoint."""
        current = self.current
        if current is not None and checkpoint.position < current.position:
            raise PositionBehind(
                "a checkpoint cannot go back",
                subscription=checkpoint.subscription,
                position=checkpoint.position,
                committed=current.position,
            )
        try:
            sealed.write(self._files, self._directory, self._name, checkpoint.to_json())
        except OSError as error:
            raise refused(error, "writing the checkpoint", self.path) from error
        self.current = checkpoint


def load_all(files: Files, directory: str) -> dict[str, Checkpoint | PenstockError]:
    """Every checkpoint of a log's directory by file path, with the error in place of one that cannot be read."""
    try:
        found = sorted(name for name in files.list(directory) if name.endswith(names.CHECKPOINT))
    except OSError as error:
        raise refused(error, "listing the checkpoints", directory) from error
    out: dict[str, Checkpoint | PenstockError] = {}
    for name in found:
        path = f"{directory}/{name}"
        try:
            checkpoint = load(files, path)
        except PenstockError as error:
            out[path] = error
            continue
        # A subscription that was dropped between the listing and the look holds nothing any more.
        if checkpoint is None:
            continue
        if name != names.checkpoint_name(checkpoint.subscription):
            out[path] = CorruptCheckpoint(f"this checkpoint belongs to {checkpoint.subscription!r}", file=path)
        else:
            out[path] = checkpoint
    return out


def unreadable(files: Files, root: str) -> dict[str, int]:
    """How many checkpoints cannot be read, by the log's directory below `root`, where there are any."""
    out: dict[str, int] = {}
    try:
        directories = sorted(files.list(root))
    except OSError as error:
        raise refused(error, "listing the logs", root) from error
    for name in directories:
        try:
            found = load_all(files, f"{root}/{name}").values()
        except PenstockError:
            # No directory, or one that has just gone.
            continue
        count = sum(isinstance(one, PenstockError) for one in found)
        if count:
            out[name] = count
    return out
