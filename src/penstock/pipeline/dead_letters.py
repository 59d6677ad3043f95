"""Dead letters: records that a target will never take, kept with the reason until someone replays or removes them.

A letter holds the record itself, so it can be delivered again when the target has been put right. A change that cannot
even be folded is a letter too, of the fold instead of a sink; replaying it lets the pipeline read it once more. The
store is a directory with one file per micro-batch, written as a whole and sealed with a checksum; a batch that is done
again replaces its file. Letters hold rows, so the files are for their owner only, and nothing of them gets into logs or
messages of errors. docs/formats/dead-letters.md has the layout.
"""

from __future__ import annotations

import base64
import fcntl
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.deliver.dead_letter import KEY_CHARACTERS_MAX, REASON_CHARACTERS_MAX
from penstock.deliver.sink import DeadLetter, Delivered, Sink, Task
from penstock.errors import (
    CorruptData,
    CorruptLog,
    DeadLettersFull,
    InvalidInput,
    StorageError,
    UnsupportedFormat,
)
from penstock.fold.distinct import REPLAYED
from penstock.fold.poison import Poison
from penstock.formats.arrow import to_arrow
from penstock.log.names import directory_name
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableSchema
from penstock.records.json_lines import key_text
from penstock.records.records import Records, row_type
from penstock.settings import RecordType
from penstock.system import json_text
from penstock.system.checksum import crc32
from penstock.system.files import OsFiles, make_durable_directory

_FORMAT = "penstock dead letters"
_VERSION = 1
_NAME = re.compile(r"batch-(\d{20})\.jsonl")
_END = re.compile(rb'\{"letters":(\d+),"crc32":"([0-9a-f]{8})"\}\n')
_TEMPORARY = ".tmp"
_BYTES_MAX = 1 << 30
# Stands for a sink's name in the letters of changes that no sink was given, because they cannot be folded.
FOLD = "fold"


def poison_letter(poison: Poison) -> DeadLetter:
    """The letter of a change that cannot be folded."""
    try:
        key = key_text(ChangeBatch(poison.schema, 1, poison.row))[0].as_py()
    except CorruptLog:
        # What cannot be decoded may be the key itself.
        key = "{}"
    return DeadLetter(
        sink=FOLD,
        table=str(poison.schema.table),
        key=key[:KEY_CHARACTERS_MAX],
        reason=poison.reason[:REASON_CHARACTERS_MAX],
        schema=poison.schema,
        row=poison.row,
    )


def records_of(schema: TableSchema, rows: Sequence[bytes], record: RecordType) -> Records:
    """The records that letters of one schema hold, for a sink that wants this type of record."""
    changes = ChangeBatch(schema, len(rows), b"".join(rows))
    batch = to_arrow(changes)
    if record is RecordType.CHANGE:
        return Records(schema, changes, None, None, pc.fill_null(batch.column("time"), 0))
    marker, deletion = batch.column("marker"), batch.column("deletion")
    versions = pc.coalesce(pc.struct_field(marker, [0]), pc.struct_field(deletion, [0]), pa.scalar(0, pa.int64()))
    after = _rows(schema, batch, "cells", marker.is_valid())
    before = None
    if record is RecordType.ALL:
        before = _rows(schema, batch, "before", batch.column("before").is_valid())
    return Records(schema, changes, after, before, versions)


def _rows(schema: TableSchema, batch: pa.RecordBatch, source: str, there: pa.BooleanArray) -> pa.StructArray:
    keys = {column.name for column in schema.key}
    found = []
    for column in schema.columns:
        of_key = source == "cells" and column.name in keys
        path = [column.name] if of_key else [column.name, "value"]
        found.append(pc.struct_field(batch.column("key" if of_key else source), path))
    return pa.StructArray.from_arrays(found, fields=list(row_type(schema)), mask=pc.invert(there))


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A letter in the store. Its id is the number of its batch and its own, as `42-0`."""

    batch: int
    number: int
    letter: DeadLetter

    @property
    def id(self) -> str:
        return f"{self.batch}-{self.number}"


class DeadLetterStore:
    """The dead letters of one pipeline, in a directory of their own."""

    def __init__(self, directory: Path, *, bytes_max: int = _BYTES_MAX) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._files = OsFiles()

    @property
    def size_bytes(self) -> int:
        """What the store takes on disk."""
        return sum(file.stat().st_size for _, file in self._batches())

    def add(self, batch: int, letters: Sequence[DeadLetter]) -> None:
        """Keep the letters of a batch; those of an earlier try of the same batch are replaced."""
        with self._locked():
            self._write(batch, [StoredLetter(batch, number, letter) for number, letter in enumerate(letters)])

    def letters(self, *, sink: str | None = None, table: str | None = None) -> Iterator[StoredLetter]:
        """All letters, oldest batch first."""
        for batch, file in self._batches():
            for stored in self._read(batch, file):
                if sink in (None, stored.letter.sink) and table in (None, stored.letter.table):
                    yield stored

    def letter(self, id_: str) -> StoredLetter:
        """The letter with this id."""
        batch, number = _parsed(id_)
        for stored in self._read(batch, self._file(batch)) if self._file(batch).exists() else []:
            if stored.number == number:
                return stored
        raise InvalidInput("there is no such dead letter", id=id_, directory=self._directory)

    def remove(self, ids: Collection[str]) -> int:
        """Forget these letters; gives how many there were."""
        gone: dict[int, set[int]] = {}
        for id_ in ids:
            batch, number = _parsed(id_)
            gone.setdefault(batch, set()).add(number)
        removed = 0
        with self._locked():
            for batch, numbers in gone.items():
                file = self._file(batch)
                stored = list(self._read(batch, file)) if file.exists() else []
                kept = [letter for letter in stored if letter.number not in numbers]
                removed += len(stored) - len(kept)
                if len(kept) < len(stored):
                    self._write(batch, kept)
        return removed

    def _file(self, batch: int) -> Path:
        return self._directory / f"batch-{batch:020d}.jsonl"

    def _batches(self) -> list[tuple[int, Path]]:
        if not self._directory.exists():
            return []
        found = [(match, file) for file in self._directory.iterdir() if (match := _NAME.fullmatch(file.name))]
        return sorted((int(match[1]), file) for match, file in found)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The pipeline and a command may change the store at the same time."""
        try:
            make_durable_directory(self._files, str(self._directory))
            with (self._directory / "lock").open("w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise StorageError(f"cannot write dead letters: {error.strerror}", directory=self._directory) from error

    def _write(self, batch: int, letters: Sequence[StoredLetter]) -> None:
        file = self._file(batch)
        if not letters:
            if file.exists():
                file.unlink()
                self._files.sync_directory(str(self._directory))
            return
        data = _text(batch, letters)
        others = self.size_bytes - (file.stat().st_size if file.exists() else 0)
        if others + len(data) > self._bytes_max:
            raise DeadLettersFull(
                f"dead letters would take more than {self._bytes_max} bytes", directory=self._directory, batch=batch
            )
        temporary = str(file) + _TEMPORARY
        out = self._files.open(temporary, write=True, create=True)
        try:
            out.truncate(0)
            out.pwrite(data, 0)
            out.sync()
        finally:
            out.close()
        self._files.rename(temporary, str(file))
        self._files.sync_directory(str(self._directory))

    def _read(self, batch: int, file: Path) -> Iterator[StoredLetter]:
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"cannot read dead letters: {error.strerror}", file=file) from error
        try:
            yield from _parse(batch, data)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise CorruptData("a file of dead letters is damaged", file=file) from error
        except UnsupportedFormat as error:
            raise UnsupportedFormat(error.message, file=file) from error


def _parsed(id_: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,20})-(\d{1,10})", id_, re.ASCII)
    if match is None:
        raise InvalidInput(f"not the id of a dead letter: {id_[:40]!r}; it looks like 42-0")
    return int(match[1]), int(match[2])


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _text(batch: int, letters: Sequence[StoredLetter]) -> bytes:
    """A whole file: a head with the schemas, a line per letter, and an end with the checksum of all before it."""
    schemas: dict[TableSchema, int] = {}
    lines = []
    for stored in letters:
        letter = stored.letter
        lines.append(
            _line(
                {
                    "number": stored.number,
                    "sink": letter.sink,
                    "table": letter.table,
                    "key": letter.key,
                    "reason": letter.reason,
                    "schema": schemas.setdefault(letter.schema, len(schemas)),
                    "whole": letter.whole,
                    "row": base64.b64encode(letter.row).decode(),
                }
            )
        )
    head = {"format": _FORMAT, "version": _VERSION, "batch": batch, "schemas": [s.to_json() for s in schemas]}
    body = b"".join([_line(head), *lines])
    return body + b'{"letters":%d,"crc32":"%08x"}\n' % (len(lines), crc32(body))


def _parse(batch: int, data: bytes) -> Iterator[StoredLetter]:
    start = data.rfind(b"\n", 0, len(data) - 1) + 1
    end = _END.fullmatch(data, start)
    if end is None or int(end[2], 16) != crc32(data[:start]):
        raise ValueError("the end is missing or the checksum does not match")
    head, *lines = data[:start].splitlines()
    content = json_text.parse(head)
    if content["format"] != _FORMAT or content["batch"] != batch or len(lines) != int(end[1]):
        raise ValueError("not the letters of this batch")
    if content["version"] != _VERSION:
        raise UnsupportedFormat("dead letters of another version")
    schemas = [TableSchema.from_json(schema) for schema in content["schemas"]]
    for line in lines:
        found = json_text.parse(line)
        letter = DeadLetter(
            sink=found["sink"],
            table=found["table"],
            key=found["key"],
            reason=found["reason"],
            schema=schemas[found["schema"]],
            row=base64.b64decode(found["row"], validate=True),
            whole=found["whole"],
        )
        yield StoredLetter(batch, found["number"], letter)


def encode(letters: Sequence[DeadLetter]) -> bytes:
    """Letters as bytes, for their way from a task to the driver."""
    return _text(0, [StoredLetter(0, number, letter) for number, letter in enumerate(letters)])


def decode(data: bytes) -> list[DeadLetter]:
    """The inverse of `encode`."""
    return [stored.letter for stored in _parse(0, data)]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of letters that were delivered again."""

    delivered: int
    # Those that the target still does not take; they stay in the store.
    refused: int


def replay(
    store: DeadLetterStore, sink: Sink, letters: Sequence[StoredLetter], *, pipeline: str, now_us: int
) -> Replayed:
    """Deliver letters of one sink again, and forget those that it takes now.

    The delivery is one batch of a pipeline of its own, numbered by the time: targets that know which batches they have
    must not take it for one that they had.
    """
    mine = [stored for stored in letters if stored.letter.sink == sink.name]
    if not mine:
        return Replayed(0, 0)
    groups: dict[TableSchema, list[StoredLetter]] = {}
    for stored in mine:
        if stored.letter.whole != (sink.record is not RecordType.CHANGE):
            raise InvalidInput("the sink wants another type of record than the dead letter holds", id=stored.id)
        groups.setdefault(stored.letter.schema, []).append(stored)
    sink.prepare(list(groups))
    name = f"{pipeline}.dead-letters"
    with sink.writer(Task(pipeline=name, batch=now_us, bucket=0, now_us=now_us)) as writer:
        for schema, group in groups.items():
            writer.write(records_of(schema, [stored.letter.row for stored in group], sink.record))
        done: Delivered = writer.finish()
    sink.commit(name, now_us, [done.payload])
    rows = {stored.letter.row for stored in mine}
    refused = {letter.row for letter in done.dead}
    # A sink may write a record in another way than it got it; then every letter of that key stays.
    keys = {(letter.table, letter.key) for letter in done.dead if letter.row not in rows}
    gone = [
        stored.id
        for stored in mine
        if stored.letter.row not in refused and (stored.letter.table, stored.letter.key) not in keys
    ]
    store.remove(gone)
    return Replayed(delivered=len(gone), refused=len(mine) - len(gone))


def give_back(store: DeadLetterStore, letters: Sequence[StoredLetter], directory: Path) -> int:
    """Let the pipeline read changes again that could not be folded, from logs of its own; gives how many.

    They leave the store when they are safe in the log. Those that still cannot be folded become letters again.
    """
    groups: dict[TableSchema, list[StoredLetter]] = {}
    for stored in letters:
        groups.setdefault(stored.letter.schema, []).append(stored)
    for schema, group in groups.items():
        with TableLog.open(str(directory / directory_name(schema.table)), schema, node=REPLAYED) as log:
            log.append(ChangeBatch(schema, len(group), b"".join(stored.letter.row for stored in group)))
    return store.remove([stored.id for group in groups.values() for stored in group])
