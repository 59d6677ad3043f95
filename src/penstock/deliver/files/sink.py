"""The files sink: records as Parquet files or JSON lines, one directory per table.

Tasks write files under hidden names, which readers of directories pass over. The commit renames them and then writes
the batch's manifest, which lists them: who reads by manifests sees each batch as a whole or not at all. Names are made
of pipeline, batch and bucket, so a batch that is done again overwrites its own files. A manifest says which batch of
that number it is (`batch_plan`): the files of another one, which readers may have taken, are not overwritten.
"""

from __future__ import annotations

import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.deliver.batch_plan import BatchMark, BatchPlan, has_batch
from penstock.deliver.known_schemas import KnownSchemas, same_column
from penstock.deliver.refusals import refusals
from penstock.deliver.sink import Delivered, Sink, Task, Writer, about
from penstock.deliver.target_marker import Begun
from penstock.errors import CorruptCheckpoint, PenstockError, StorageError
from penstock.formats.arrow import to_arrow
from penstock.formats.arrow_plan import POSITION_FIELDS
from penstock.log import names, sealed
from penstock.model.schema import TableSchema
from penstock.records.json_lines import lines
from penstock.records.records import Records
from penstock.settings import RecordType
from penstock.settings.sinks import FileCompression, FileFormat, FilesSettings
from penstock.system.files import OsFiles, sync_parents
from penstock.transforms.projection import Projection

MANIFESTS = "_manifests"
_UNFINISHED = ".unfinished"
_REFUSED = "cannot write files"
# More than the list of any batch's files takes.
_MANIFEST_BYTES_MAX = 256 << 20
# Of a batch's number in names, so that they are sorted as batches are.
_DIGITS = 12
# Records are written in pieces of at most so many, so that rendering them takes bounded memory.
_PIECE = 16_384
# Records come table by table, so few files are open at a time; with more, the oldest is closed and not written again.
_OPEN_MAX = 16


class FilesSink(Sink):
    """Files of records below one directory, which all workers reach."""

    name: ClassVar[str] = "files"

    def __init__(self, settings: FilesSettings) -> None:
        self.record = settings.record
        self.every = True
        self._settings = settings
        self._known = KnownSchemas(settings.schema_policy)
        self._begun = Begun()
        self._plan = BatchPlan(-1)
        # The last batch that the directory had when this process committed to it for the first time.
        self._last: int | None = None
        # By the fingerprint of a version some of whose columns are left out.
        self._projections: dict[str, Projection] = {}

    def keep_in(self, directory: Path, pipeline: str) -> None:
        self._known.keep_in(directory)
        self._begun.keep_in(directory, pipeline)

    def begin_batch(self, plan: BatchPlan) -> None:
        self._plan = plan

    def left_out(self) -> Mapping[str, Sequence[str]]:
        return self._known.left_out

    def prepare(self, schemas: Sequence[TableSchema]) -> None:
        for schema in schemas:
            with about(schema.table):
                shown = self._known.shown(schema)
            kept = {column.name: column for column in schema.columns if same_column(column.name, schema, shown)}
            if len(kept) < len(schema.columns):
                target = replace(schema, columns=tuple(kept.values()))
                self._projections[schema.fingerprint] = Projection.make(schema, target, kept, {})

    def check(self) -> None:
        directory = self._settings.directory
        probe = directory / f".probe-{uuid.uuid4().hex}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # A committed batch must not go in a power loss because the directory that it is in does.
            sync_parents(OsFiles(), str(directory.absolute()))
            probe.touch()
            probe.unlink()
            self._begun.begin("directory", taken=self._has_batches(), directory=directory)
        except OSError as error:
            raise StorageError(f"cannot write files: {error.strerror}", directory=directory) from error

    def _has_batches(self) -> bool:
        return bool(self._begun.pipeline) and any(_manifests(self._settings.directory, self._begun.pipeline))

    def writer(self, task: Task) -> Writer:
        return FilesWriter(self._settings, task, self.record, self._projections)

    def commit(self, pipeline: str, batch: int, payloads: Sequence[bytes]) -> None:
        root = self._settings.directory
        entries = [entry for payload in payloads if payload for entry in json.loads(payload)]
        manifest = root / MANIFESTS / f"{stem(pipeline, batch)}.json"
        if not entries and not manifest.exists():
            return
        entries.sort(key=lambda entry: str(entry["file"]))
        plan = self._plan if self._plan.batch == batch else BatchPlan(batch)
        try:
            self._check_last(pipeline, plan)
            _make_visible(root, entries)
            directories = {str((root / entry["file"]).parent) for entry in entries}
            # The umask says whether the group may read the manifest, as it does for the files.
            files = OsFiles(group_read=True)
            for directory in directories:
                _remove_others(Path(directory), stem(pipeline, batch), {Path(entry["file"]).name for entry in entries})
                files.sync_directory(directory)
            manifest.parent.mkdir(exist_ok=True)
            files.sync_directory(str(root))
            _remove_left_out(root, manifest, {entry["file"] for entry in entries})
            content = {"pipeline": pipeline, "batch": batch, "files": entries}
            if plan.id:
                content |= {"plan": plan.id, "positions": plan.span}
            sealed.write(files, str(manifest.parent), manifest.name, content)
        except OSError as error:
            raise StorageError(f"cannot commit files: {error.strerror}", directory=root, batch=batch) from error

    def _check_last(self, pipeline: str, plan: BatchPlan) -> None:
        """Refuse a directory with later batches of this pipeline, or with another one of this number."""
        root = self._settings.directory
        if self._last is None:
            self._last = max((int(file.stem[-_DIGITS:]) for file in _manifests(root, pipeline)), default=-1)
        batch = max(self._last, plan.batch)
        manifest = root / MANIFESTS / f"{stem(pipeline, batch)}.json"
        if plan.id and manifest.exists():
            there = _read_manifest(manifest)
            found = BatchMark(batch, str(there.get("plan", "")))
            has_batch(found, plan, lambda: str(there.get("positions", "")), directory=root)


def _manifests(root: Path, pipeline: str) -> Iterator[Path]:
    """The manifests of all batches of a pipeline."""
    return (root / MANIFESTS).glob(f"{names.encode(pipeline)}-{'[0-9]' * _DIGITS}.json")


def _read_manifest(manifest: Path) -> dict[str, Any]:
    try:
        found = sealed.read(OsFiles(), str(manifest), _MANIFEST_BYTES_MAX)
        if not all(isinstance(entry["file"], str) for entry in found["files"]):
            raise ValueError("not a list of files")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptCheckpoint("the manifest of a batch is damaged", file=manifest) from error
    return found


def _make_visible(root: Path, entries: list[dict[str, Any]]) -> None:
    """Give files their names; where a table's cannot have theirs, none of the table does."""
    written = [(entry["table"], root / entry.pop("written"), root / entry["file"]) for entry in entries]
    for table, hidden, final in written:
        try:
            with refusals(table, "cannot commit files"):
                _rename(hidden, final)
        except PenstockError:
            for other, *names_ in written:
                for name in names_ if other == table else ():
                    with suppress(OSError):
                        name.unlink(missing_ok=True)
            raise


def _remove_left_out(root: Path, manifest: Path, kept: set[str]) -> None:
    """Remove what an earlier try of the batch has committed, and this one leaves out because its table is held."""
    if not manifest.exists():
        return
    for entry in _read_manifest(manifest)["files"]:
        if entry["file"] not in kept:
            (root / entry["file"]).unlink(missing_ok=True)


def stem(pipeline: str, batch: int) -> str:
    """What the names of a batch's files and manifest begin with."""
    return f"{names.encode(pipeline)}-{batch:0{_DIGITS}d}"


def _rename(written: Path, final: Path) -> None:
    try:
        os.replace(written, final)
    except FileNotFoundError:
        # An earlier try of this commit has done it.
        if not final.exists():
            raise


def _remove_others(directory: Path, begin: str, kept: set[str]) -> None:
    """Remove what earlier tries of the batch left: hidden files, and files that this try no longer has."""
    for file in directory.iterdir():
        name = file.name.removeprefix(".")
        if name.startswith(f"{begin}-") and file.name not in kept:
            file.unlink(missing_ok=True)


class FilesWriter(Writer):
    """Writes the files of one task, one open file per schema version."""

    def __init__(
        self, settings: FilesSettings, task: Task, record: RecordType, projections: Mapping[str, Projection]
    ) -> None:
        self._settings = settings
        self._projections = projections
        self._task = task
        self._record = record
        # Tries of the same task may run side by side for a while.
        self._try = uuid.uuid4().hex[:8]
        self._open: dict[TableSchema, _Open] = {}
        self._numbers: dict[str, int] = {}
        self._done: list[dict[str, object]] = []
        self._hidden: list[Path] = []

    def write(self, records: Records) -> None:
        projection = self._projections.get(records.schema.fingerprint)
        if projection is not None:
            records = projection.apply(records)
        with refusals(records.schema.table, _REFUSED):
            for start in range(0, len(records), _PIECE):
                part = records if len(records) <= _PIECE else _part(records, start)
                file = self._file(records.schema)
                file.file.write(part)
                file.records += len(part)
                if file.file.size >= self._settings.file_bytes_max:
                    self._close(records.schema)

    def finish(self) -> Delivered:
        for schema in list(self._open):
            self._close(schema)
        records = sum(int(str(entry["records"])) for entry in self._done)
        size = sum(int(str(entry["bytes"])) for entry in self._done)
        payload = json.dumps(self._done).encode() if self._done else b""
        return Delivered(records=records, bytes=size, payload=payload)

    def abort(self) -> None:
        for opened in self._open.values():
            # What an unfinished file says about its end is of no interest.
            with suppress(Exception):
                opened.file.close()
        for path in self._hidden:
            path.unlink(missing_ok=True)

    def _file(self, schema: TableSchema) -> _Open:
        opened = self._open.get(schema)
        if opened is None:
            if len(self._open) >= _OPEN_MAX:
                self._close(next(iter(self._open)))
            table = names.directory_name(schema.table)
            directory = self._settings.directory / table
            directory.mkdir(parents=True, exist_ok=True)
            number = self._numbers[table] = self._numbers.get(table, -1) + 1
            task, settings = self._task, self._settings
            ending = suffix(settings.format, settings.compression)
            name = f"{stem(task.pipeline, task.batch)}-{task.bucket:04d}-{number:03d}{ending}"
            hidden = directory / f".{name}.{self._try}{_UNFINISHED}"
            self._hidden.append(hidden)
            file = open_file(hidden, settings.format, settings.compression, self._record)
            opened = self._open[schema] = _Open(file, hidden, f"{table}/{name}")
        return opened

    def _close(self, schema: TableSchema) -> None:
        opened = self._open.pop(schema)
        with refusals(schema.table, _REFUSED):
            opened.file.close()
            with opened.hidden.open("rb") as file:
                os.fsync(file.fileno())
                size = file.seek(0, os.SEEK_END)
        self._done.append(
            {
                "file": opened.final,
                "written": str(opened.hidden.relative_to(self._settings.directory)),
                "table": str(schema.table),
                "schema_version": schema.version,
                "records": opened.records,
                "bytes": size,
            }
        )


class _Open:
    """A file that is being written, and what it will be called."""

    __slots__ = ("file", "final", "hidden", "records")

    def __init__(self, file: RecordFile, hidden: Path, final: str) -> None:
        self.file = file
        self.hidden = hidden
        self.final = final
        self.records = 0


def _part(records: Records, start: int) -> Records:
    return records.take(range(start, min(start + _PIECE, len(records))))


# Parquet and JSON lines: how the files sink writes the records of one table into one file.

_POSITIONS = [field.name for field in POSITION_FIELDS]
_SUFFIXES = {FileCompression.NONE: "", FileCompression.GZIP: ".gz", FileCompression.ZSTD: ".zst"}


class RecordFile(ABC):
    """A file that is being written."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The bytes so far, about."""

    @abstractmethod
    def write(self, records: Records) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


def suffix(format_: FileFormat, compression: FileCompression) -> str:
    """What names of such files end with."""
    return ".parquet" if format_ is FileFormat.PARQUET else ".jsonl" + _SUFFIXES[compression]


def open_file(path: Path, format_: FileFormat, compression: FileCompression, record: RecordType) -> RecordFile:
    """Begin a file; one that is there is overwritten."""
    kind = ParquetFile if format_ is FileFormat.PARQUET else JsonFile
    return kind(path, compression, record)


class ParquetFile(RecordFile):
    """One row group per call of `write`."""

    def __init__(self, path: Path, compression: FileCompression, record: RecordType) -> None:
        self._path = path
        self._compression = compression.value
        self._record = record
        self._sink = pa.OSFile(str(path), "wb")
        self._writer: Any = None

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def write(self, records: Records) -> None:
        batch = parquet_columns(records, self._record)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, batch.schema, compression=self._compression, version="2.6")
        self._writer.write_batch(batch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._sink.close()


def parquet_columns(records: Records, record: RecordType) -> pa.RecordBatch:
    """What a Parquet file has of each record.

    CHANGE: all of the change, as docs/formats/change-record.md describes it. AFTER and ALL: the operation, times,
    origin, key and version, and the whole row after, and for ALL before.
    """
    schema = records.schema
    if record is RecordType.CHANGE or records.after is None:
        batch = _plain_op(to_arrow(records.changes)).drop_columns(_POSITIONS)
        if "timestamp[s" not in str(batch.schema):
            return batch
        arrays = [_lenient(batch.column(name)) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names, metadata=batch.schema.metadata)
    batch = _plain_op(to_arrow(records.changes, frozenset(column.name for column in schema.key)))
    names = ["op", "time", "commit_time", "capture_time", "origin", "key"]
    arrays = [batch.column(name) for name in names]
    arrays += [records.versions, _lenient(records.after)]
    names += ["version", "after"]
    if record is RecordType.ALL and records.before is not None:
        arrays.append(_lenient(records.before))
        names.append("before")
    return pa.RecordBatch.from_arrays(arrays, names=names, metadata=batch.schema.metadata)


def _lenient(rows: pa.Array) -> pa.Array:
    """Values whose every part may be null: below a null value Arrow leaves nulls also where none could be otherwise."""
    return rows.cast(_nullable(rows.type))


def _nullable(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(part.name, _nullable(part.type)) for part in type_])
    if pa.types.is_map(type_):
        return pa.map_(_nullable(type_.key_type), _nullable(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(pa.field("item", _nullable(type_.value_type)))
    # Parquet has no timestamps of whole seconds, and not every one fits as milliseconds.
    return pa.int64() if pa.types.is_timestamp(type_) and type_.unit == "s" else type_


def _plain_op(batch: pa.RecordBatch) -> pa.RecordBatch:
    metadata = {"penstock.schema": json.loads(batch.schema.metadata[b"penstock.schema"])}
    made = batch.set_column(0, pa.field("op", pa.string(), nullable=False), batch.column("op").cast(pa.string()))
    return made.replace_schema_metadata({name: json.dumps(value) for name, value in metadata.items()})


class JsonFile(RecordFile):
    """One JSON object per line."""

    def __init__(self, path: Path, compression: FileCompression, record: RecordType) -> None:
        self._record = record
        self._file = pa.OSFile(str(path), "wb")
        plain = compression is FileCompression.NONE
        self._out = self._file if plain else pa.CompressedOutputStream(self._file, compression.value)

    @property
    def size(self) -> int:
        return int(self._file.tell())

    def write(self, records: Records) -> None:
        text = pc.binary_join_element_wise(lines(records, self._record), "\n", "")
        _, offsets, data = text.buffers()
        if data is not None:
            ends = memoryview(offsets).cast("B").cast("i")
            first, last = ends[text.offset], ends[text.offset + len(text)]
            self._out.write(data.slice(first, last - first))

    def close(self) -> None:
        self._out.close()
        self._file.close()
