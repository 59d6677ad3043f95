"""Iceberg tables as a target, through pyiceberg: current rows, the history of changes, or both.

Tasks leave their rows in a spool directory; the driver brings them into the tables, one commit per table and batch.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog

from penstock.deliver.batch_plan import BatchPlan, not_ours
from penstock.deliver.iceberg.table import IcebergTable
from penstock.deliver.known_schemas import LeftOut
from penstock.deliver.lakehouse.data_files import to_parquet
from penstock.deliver.lakehouse.evolution import TargetShape, fresh, of_new_table
from penstock.deliver.lakehouse.history import CHANGE_FIELDS, check_no_clash, history_rows
from penstock.deliver.lakehouse.rows import dead_letters, is_of_another_table
from penstock.deliver.lakehouse.source_note import SourceNote
from penstock.deliver.lakehouse.spool import read_spool, spooled_rows
from penstock.deliver.lakehouse.storage import Storage
from penstock.deliver.refusals import refusals
from penstock.deliver.sink import DeadLetter, Delivered, Sink, Task, Writer, about
from penstock.deliver.target_marker import Begun
from penstock.errors import DeliveryFailed, InvalidSetting, StorageError
from penstock.log.names import directory_name, encode
from penstock.log.refusal import exhausted
from penstock.model.schema import TableId, TableSchema
from penstock.records.records import Records
from penstock.settings import RecordType
from penstock.settings.sinks import IcebergSettings
from penstock.system import json_text
from penstock.system.files import OsFiles, sync_parents

CURRENT, HISTORY = "current", "history"
_REFUSED = "cannot write to the spool of an Iceberg table"
_SCHEMA_FILE = "schema"
_DURABLE = "penstock.deliver.iceberg.durable_io.DurableFileIO"
# In its metadata: what the table has noted of its source.
_NOTE = b"penstock.source"
# A file is the least that copy on write holds in memory, so files are no larger than the buffer.
_FILE_BYTES = "write.target-file-size-bytes"


class IcebergSink(Sink):
    """The Iceberg tables of a pipeline."""

    name = "iceberg"
    record = RecordType.AFTER

    def __init__(self, settings: IcebergSettings) -> None:
        self.settings = settings
        self.every = settings.history
        self.final = settings.history
        # Of this process only: neither catalog nor tables travel to tasks.
        self._catalog: Catalog | None = None
        self._tables: dict[tuple[str, TableId], IcebergTable] = {}
        self._left_out = LeftOut()
        self._begun = Begun()
        self._plan = BatchPlan(-1)

    def left_out(self) -> Mapping[str, Sequence[str]]:
        return self._left_out

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["settings"])  # type: ignore[misc]

    def keep_in(self, directory: Path, pipeline: str) -> None:
        self._begun.keep_in(directory, pipeline)

    def begin_batch(self, plan: BatchPlan) -> None:
        self._plan = plan

    def spool(self, kind: str, table: TableId) -> Storage:
        """Where tasks leave rows of a table for the driver."""
        directory = self.settings.spool_directory or self.settings.warehouse / "spool"
        return Storage(directory / f"{encode(table.keyspace)}.{encode(table.table)}.{kind}")

    def check(self) -> None:
        self.catalog()

    def catalog(self) -> Catalog:
        """The catalog of the settings, opened once."""
        if self._catalog is None:
            settings = self.settings
            properties = dict(settings.catalog_properties)
            try:
                if not properties:
                    settings.warehouse.mkdir(parents=True, exist_ok=True)
                    where = settings.warehouse.resolve()
                    sync_parents(OsFiles(), str(where))
                    uri = f"sqlite:///{where}/{encode(settings.catalog)}.db"
                    properties = {"type": "sql", "uri": uri, "warehouse": where.as_uri()}
                self._catalog = load_catalog(settings.catalog, **{"py-io-impl": _DURABLE, **properties})
            except OSError as error:
                raise StorageError(
                    f"cannot make the warehouse: {error.strerror}", directory=settings.warehouse
                ) from error
            # What a catalog raises depends on its kind; whatever it is, the properties are what to look at.
            except Exception as error:
                if (lack := exhausted(error)) is not None:
                    raise lack from error
                raise InvalidSetting(
                    f"the catalog cannot be opened: {_without(str(error), properties.values())}",
                    setting="iceberg.catalog_properties",
                ) from None
        return self._catalog

    def prepare(self, schemas: Sequence[TableSchema]) -> None:
        for schema in schemas:
            with about(schema.table):
                if self.settings.current:
                    self._prepare(CURRENT, schema, fresh(schema))
                if self.settings.history:
                    check_no_clash(schema)
                    self._prepare(HISTORY, schema, fresh(schema, CHANGE_FIELDS))

    def _prepare(self, kind: str, schema: TableSchema, wanted: TargetShape) -> None:
        table = self._tables.get((kind, schema.table))
        if table is None:
            taken = {other.name: name for (_, name), other in self._tables.items()}
            identifier = ".".join(self._identifier(kind, schema.table))
            if identifier in taken:
                raise InvalidSetting(
                    f"tables {taken[identifier]} and {schema.table} would be the same; use {{keyspace}} and {{table}}",
                    table=schema.table,
                    target=identifier,
                )
            table = IcebergTable(self.catalog(), self._identifier(kind, schema.table), self._properties())
            self._tables[kind, schema.table] = table
        table.open_or_make(wanted)
        there = table.has_batches(f"{self._begun.pipeline}/{schema.table}")
        self._begun.begin(f"{directory_name(schema.table)}.{kind}", taken=there, table=schema.table)
        self._follow(kind, table, schema)
        self._describe(kind, table, schema.table)

    def _follow(self, kind: str, table: IcebergTable, schema: TableSchema) -> None:
        note, policy = table.shape.note, self.settings.schema_policy
        if note.is_of_another_table(schema):
            if note.is_older(schema):
                # Of a table that is no more; nothing of it will come.
                return
            if kind == CURRENT:
                begun = of_new_table(schema, table.shape, policy)
                if begun is None:
                    table.begin_anew(fresh(schema))
                else:
                    table.empty(begun)
        self._left_out.note(schema, table.follow(schema, policy, keyed=kind == CURRENT))

    def _describe(self, kind: str, table: IcebergTable, name: TableId) -> None:
        """Leave for the tasks what they must know of the table."""
        spool = self.spool(kind, name)
        shape = table.shape
        noted = shape.schema.with_metadata({_NOTE: json.dumps(shape.note.to_json())})
        try:
            spool.make_directory(".")
            token = f"{_SCHEMA_FILE}.{uuid.uuid4().hex}"
            spool.write(token, noted.serialize().to_pybytes())
            spool.rename(token, _SCHEMA_FILE)
        except OSError as error:
            raise StorageError(f"cannot use the spool: {error}", table=name) from error

    def _identifier(self, kind: str, table: TableId) -> tuple[str, str]:
        template = self.settings.table if kind == CURRENT else self.settings.history_table
        names = {"keyspace": table.keyspace, "table": table.table}
        return self.settings.namespace.format(**names), template.format(**names)

    def _properties(self) -> dict[str, str]:
        codec = "uncompressed" if self.settings.codec.value == "none" else self.settings.codec.value
        usual = {"write.parquet.compression-codec": codec, _FILE_BYTES: str(self.settings.buffer_bytes)}
        return {**usual, **self.settings.properties}

    def _reopen(self, kind: str, name: TableId) -> IcebergTable:
        """A table that an earlier run has prepared: rows that expire come without a schema that would be new."""
        table = IcebergTable(self.catalog(), self._identifier(kind, name), self._properties())
        table.open()
        self._tables[kind, name] = table
        return table

    def writer(self, task: Task) -> IcebergWriter:
        return IcebergWriter(self, task)

    def commit(self, pipeline: str, batch: int, payloads: Sequence[bytes]) -> None:
        parts: dict[tuple[str, TableId], list[dict[str, Any]]] = defaultdict(list)
        for payload in payloads:
            for part in json_text.parse(payload):
                parts[part["kind"], TableId(*part["table"])].append(part)
        plan = self._plan if self._plan.batch == batch else BatchPlan(batch)
        try:
            self._check_last(pipeline, plan, parts)
        except OSError as error:
            raise DeliveryFailed(f"cannot read an Iceberg table: {error}", batch=batch) from error
        for (kind, table), reports in sorted(parts.items()):
            with about(table):
                try:
                    self._commit(pipeline, plan, kind, table, reports)
                except OSError as error:
                    raise DeliveryFailed(f"cannot commit to an Iceberg table: {error}", batch=batch) from error
        self._sync_catalog()

    def _check_last(self, pipeline: str, plan: BatchPlan, parts: Iterable[tuple[str, TableId]]) -> None:
        """Refuse tables whose last batch is not of this checkpoint, and note in it what the others are to be given."""
        last = {}
        for kind, name in sorted(parts):
            app, target = f"{pipeline}/{name}", f"{directory_name(name)}.{kind}"
            with about(name):
                table = self._tables.get((kind, name)) or self._reopen(kind, name)
                found = last[target] = table.last(app)
                if found is not None and not self._begun.knows(target, found, plan):
                    raise not_ours(found.batch, table.span(app), plan, table=table.name)
        self._begun.gives(last, plan)

    def _sync_catalog(self) -> None:
        """Make what a catalog in SQLite has committed safe from a power loss.

        SQLite deletes its journal to commit, and does not sync that: after a power loss the journal can be back, and
        then takes the commit back.
        """
        _, found, file = self.catalog().properties.get("uri", "").partition("sqlite:///")
        if found and file:
            try:
                OsFiles().sync_directory(os.path.dirname(file.partition("?")[0]) or ".")
            except OSError as error:
                raise StorageError(f"cannot sync the catalog: {error.strerror}", file=file) from error

    def _commit(self, pipeline: str, plan: BatchPlan, kind: str, name: TableId, reports: list[dict[str, Any]]) -> None:
        table, spool = self._tables.get((kind, name)) or self._reopen(kind, name), self.spool(kind, name)
        app = f"{pipeline}/{name}"
        paths = [path for report in reports for path in report["paths"]]
        truncated = kind == CURRENT and any(report["truncated"] for report in reports)
        if (paths or truncated) and not table.has(app, plan):
            full = [spool.path(path) for path in paths]
            key = tuple(reports[0]["key"])
            if truncated:
                table.replace(app, plan, read_spool(full, table.schema, key) if full else None)
            elif kind == CURRENT:
                table.merge(app, plan, read_spool(full, table.schema, key), key, self.settings.buffer_bytes)
            else:
                rows = pa.concat_tables([pq.read_table(path) for path in full], promote_options="default")
                table.append(app, plan, _completed(rows, table.schema))
        # Also what tasks have left whose batch never came to its commit.
        for path in spool.list():
            if path.startswith(_stem_of(pipeline)):
                spool.delete(path)


def _stem_of(pipeline: str) -> str:
    """What the names of a pipeline's files in the spool begin with."""
    return f"{encode(pipeline)}.part-"


def _without(text: str, values: Iterable[str]) -> str:
    """A message without the catalog's properties, some of which are secrets."""
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "…") if len(value) > 3 else text
    return text


def _completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(rows.schema.names)
    columns = [rows.column(f.name) if f.name in there else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.table(columns, schema=schema)


class IcebergWriter(Writer):
    """The records of one task, on their way to the spool."""

    def __init__(self, sink: IcebergSink, task: Task) -> None:
        self._sink = sink
        self._task = task
        self._stem = f"{_stem_of(task.pipeline)}{task.batch}-{task.bucket}-{uuid.uuid4().hex}"
        self._spooled: dict[tuple[str, TableId], _Spooled] = {}
        self._records = 0
        self._dead: list[DeadLetter] = []

    def write(self, records: Records) -> None:
        if not len(records):
            return
        self._records += len(records)
        settings = self._sink.settings
        if settings.history:
            rows, poison = history_rows(records, self._part(HISTORY, records).shape, self._task.batch)
            self._dead += dead_letters(records, poison, self._sink.name)
            self._add(HISTORY, records, rows)
        if settings.current:
            self._write_current(records.last() if settings.history else records)

    def _write_current(self, records: Records) -> None:
        part = self._part(CURRENT, records)
        if is_of_another_table(records, part.shape):
            return
        later = records.since_truncation()
        if later is not None:
            part.truncate()
            records = later
        rows, poison = spooled_rows(records, part.shape)
        if not self._sink.settings.history:
            self._dead += dead_letters(records, poison, self._sink.name)
        self._add(CURRENT, records, rows)

    def _part(self, kind: str, records: Records) -> _Spooled:
        table = records.schema.table
        found = self._spooled.get((kind, table))
        if found is None:
            found = _Spooled(self._sink.spool(kind, table), self._stem, self._sink.settings.codec.value)
            self._spooled[kind, table] = found
        return found

    def _add(self, kind: str, records: Records, rows: pa.Table) -> None:
        part = self._part(kind, records)
        part.rows.append(rows)
        if sum(each.nbytes for each in part.rows) > self._sink.settings.buffer_bytes:
            with refusals(records.schema.table, _REFUSED):
                part.flush()

    def finish(self) -> Delivered:
        reports = []
        size = 0
        for (kind, table), part in self._spooled.items():
            with refusals(table, _REFUSED):
                part.flush()
            size += part.size
            report = {"kind": kind, "table": list(table), "key": part.shape.note.key}
            reports.append({**report, "paths": part.paths, "truncated": part.truncated})
        payload = json.dumps(reports).encode() if reports else b""
        return Delivered(records=self._records, bytes=size, payload=payload, dead=self._dead)


class _Spooled:
    """Rows of one table in one task."""

    def __init__(self, storage: Storage, stem: str, codec: str) -> None:
        try:
            found = pa.ipc.read_schema(pa.py_buffer(storage.read(_SCHEMA_FILE)))
        except FileNotFoundError as error:
            raise DeliveryFailed("the table was not prepared", directory=storage.directory) from error
        self.shape = TargetShape(
            found.remove_metadata(), SourceNote.from_json(json_text.parse((found.metadata or {}).get(_NOTE, b"{}")))
        )
        self._storage = storage
        self._stem = stem
        self._codec = codec
        self.rows: list[pa.Table] = []
        self.paths: list[str] = []
        # The table was truncated: of what it had, and of what came before, nothing counts any more.
        self.truncated = False
        self.size = 0

    def truncate(self) -> None:
        self.truncated = True
        self.rows = []
        for path in self.paths:
            self._storage.delete(path)
        self.paths = []

    def flush(self) -> None:
        if not self.rows:
            return
        content, _ = to_parquet(pa.concat_tables(self.rows, promote_options="default"), self._codec)
        path = f"{self._stem}-{len(self.paths)}.parquet"
        self._storage.write(path, content)
        self.paths.append(path)
        self.size += content.size
        self.rows = []
