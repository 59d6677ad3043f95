"""Run files: immutable pieces of a bucket's state on disk, mapped into memory when they are read.

A run file is an Arrow IPC file. Each of its record batches is one piece of entries of one table, and says in its
metadata of which; docs/formats/pipeline-state.md has the layout. Size and checksum of a run stand in the manifest that
makes it visible. Files are written under another name, synced and renamed, and never changed afterwards.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.errors import CorruptCheckpoint, InvalidSchema
from penstock.fold.entries import SCHEMA, Content, Entries
from penstock.model.schema import TableSchema
from penstock.system.checksum import crc32

FORMAT = 1
# How many buckets a process keeps open.
_BUCKETS_MAX = 256
# Pieces up to this size are kept as they were read: views of the file, whose objects cost more than what they show.
_SMALL_ENTRIES = 1 << 10


@dataclass(frozen=True, slots=True)
class RunId:
    """A run as a manifest names it."""

    file: str
    bytes: int
    crc: int
    entries: int

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "bytes": self.bytes, "crc": self.crc, "entries": self.entries}

    @staticmethod
    def from_json(data: dict[str, Any]) -> RunId:
        return RunId(str(data["file"]), int(data["bytes"]), int(data["crc"]), int(data["entries"]))


@dataclass(frozen=True, slots=True)
class Piece:
    """One record batch of a run: what its metadata says; the entries are read when they are asked for."""

    run: Run
    number: int
    content: Content
    schema: TableSchema
    count: int
    first: int
    last: int
    due_first: int
    # Whether any entry concerns a partition or the table.
    wide: bool

    def entries(self) -> Entries:
        return self.run.entries(self)


class Run:
    """An open run file."""

    def __init__(self, path: str, run: RunId) -> None:
        self.path = path
        self.id = run
        try:
            size = os.stat(path).st_size
            if size != run.bytes:
                raise CorruptCheckpoint(f"a file of the state has {size} bytes instead of {run.bytes}", file=path)
            self._reader = pa.ipc.open_file(pa.memory_map(path))
            if self._reader.schema != SCHEMA:
                raise CorruptCheckpoint("a file of the state has other columns", file=path)
            self.pieces = [self._piece(number) for number in range(self._reader.num_record_batches)]
            # What was read of small pieces: each is asked for several times while the run lives.
            self._small: dict[int, Entries] = {}
        except (OSError, pa.ArrowInvalid, KeyError, ValueError, TypeError, InvalidSchema) as error:
            raise CorruptCheckpoint(f"a file of the state cannot be read: {type(error).__name__}", file=path) from error

    def _piece(self, number: int) -> Piece:
        batch = self._reader.get_batch_with_custom_metadata(number)
        about = json.loads(batch.custom_metadata[b"penstock"])
        if about["format"] != FORMAT:
            raise CorruptCheckpoint("a file of the state is of another format", file=self.path)
        return Piece(
            self,
            number,
            Content(about["content"]),
            parse_schema(json.dumps(about["schema"], sort_keys=True)),
            about["count"],
            about["first"],
            about["last"],
            about["due_first"],
            about["wide"],
        )

    def entries(self, piece: Piece) -> Entries:
        known = self._small.get(piece.number)
        if known is None:
            known = Entries.of_batch(piece.content, piece.schema, self._reader.get_batch(piece.number))
            if piece.count <= _SMALL_ENTRIES:
                self._small[piece.number] = known
        return known

    def verify(self) -> None:
        """Read the whole file and compare its checksum."""
        found = checksum(self.path)
        if found != self.id.crc:
            raise CorruptCheckpoint("the checksum of a file of the state does not match", file=self.path)


@lru_cache(maxsize=1024)
def parse_schema(text: str) -> TableSchema:
    """A table schema of its JSON text; the same text gives the same object, with all that is kept in it."""
    return TableSchema.from_json(json.loads(text))


# The runs that this process has open, by directory and bucket.
_open: dict[tuple[str, int], dict[RunId, Run]] = {}


def open_runs(directory: str, bucket: int, runs: Iterable[RunId]) -> list[Run]:
    """The runs of a bucket. Files never change, so a task that comes again finds most of them open.

    What the bucket no longer has is let go, for the file system keeps deleted files as long as they are mapped.
    """
    before = _open.pop((directory, bucket), {})
    while len(_open) >= _BUCKETS_MAX:
        del _open[next(iter(_open))]
    found = [before.get(run) or Run(os.path.join(directory, run.file), run) for run in runs]
    _open[directory, bucket] = {run.id: run for run in found}
    return found


def checksum(path: str) -> int:
    # Mapped, so that it is not copied only to be looked at.
    with pa.memory_map(path) as file:
        return crc32(file.read_buffer())


def write_run(directory: str, name: str, pieces: Iterable[Entries]) -> RunId | None:
    """Write a run and make it durable; None when there is nothing to write.

    The file's name has the checksum of its content behind the given name: attempts at the same task cannot overwrite
    each other with something else.
    """
    count = 0
    os.makedirs(directory, mode=0o700, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=directory, prefix=f"{name}-", suffix=".tmp")
    os.close(handle)
    with pa.OSFile(draft, "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        for piece in pieces:
            if len(piece):
                writer.write_batch(piece.to_batch(), custom_metadata={"penstock": _about(piece)})
                count += len(piece)
    if not count:
        os.unlink(draft)
        return None
    _sync(draft)
    crc = checksum(draft)
    run = RunId(f"{name}-{crc:08x}.arrow", os.stat(draft).st_size, crc, count)
    os.rename(draft, os.path.join(directory, run.file))
    _sync(directory)
    return run


def _about(piece: Entries) -> str:
    due = piece.due[piece.due > 0]
    known = {"format": FORMAT, "content": piece.content.value}
    found = {
        "count": len(piece),
        "first": int(piece.keys[0]),
        "last": int(piece.keys[-1]),
        "due_first": int(due.min()) if len(due) else 0,
        "wide": piece.content is Content.ROWS and bool((piece.keys & 0xFFFFFFFF == 0).any()),
    }
    # The schema is the same from batch to batch, and the longest part of it.
    return f'{json.dumps(known)[:-1]}, "schema": {_schema_text(piece.schema)}, {json.dumps(found)[1:]}'


def _schema_text(schema: TableSchema) -> str:
    known = schema.__dict__.get("_state_text")
    if known is None:
        known = schema.__dict__["_state_text"] = json.dumps(schema.to_json())
    return str(known)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
