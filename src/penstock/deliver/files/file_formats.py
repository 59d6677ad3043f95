"""Parquet and JSON lines: how the files sink writes the records of one table into one file."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.formats.arrow import to_arrow
from penstock.formats.arrow_plan import POSITION_FIELDS
from penstock.records.json_lines import lines
from penstock.records.records import Records
from penstock.settings import RecordType
from penstock.settings.sinks import FileCompression, FileFormat

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
