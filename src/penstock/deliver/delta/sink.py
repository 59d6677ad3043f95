"""Delta tables as a target: current rows, the history of changes, or both.

Each table is committed on its own, once per batch, with the pipeline's transaction identifier. Tasks write the data
files; with deletion vectors the driver only adds up which rows no longer count. Without, tasks leave the changed rows
in a spool directory and the driver merges them (copy_on_write.py).
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.deliver.batch_plan import BatchPlan, has_batch, not_ours
from penstock.deliver.delta import compaction, copy_on_write, manifest_file
from penstock.deliver.delta.appended import AppendedRows
from penstock.deliver.delta.current import CurrentTable
from penstock.deliver.delta.table import DeltaTable, last_batch, now_ms, read_description, span_of
from penstock.deliver.delta.writer import CurrentRows, Layout
from penstock.deliver.known_schemas import LeftOut
from penstock.deliver.lakehouse.evolution import TargetShape, fresh, of_new_table
from penstock.deliver.lakehouse.history import CHANGE_FIELDS, check_no_clash
from penstock.deliver.lakehouse.rows import dead_letters
from penstock.deliver.lakehouse.storage import Storage, side_by_side
from penstock.deliver.refusals import refusals
from penstock.deliver.sink import DeadLetter, Delivered, Sink, Task, Writer, about
from penstock.deliver.target_marker import Begun
from penstock.errors import DeliveryFailed, InvalidSetting, SchemaUnfit, StorageError
from penstock.log.names import directory_name, encode
from penstock.model.schema import TableId, TableSchema
from penstock.records.records import Records
from penstock.settings import RecordType
from penstock.settings.sinks import DeltaSettings, LakeCodec

CURRENT, HISTORY = "current", "history"
_REFUSED = "cannot write files of a Delta table"


class DeltaSink(Sink):
    """The Delta tables of a pipeline."""

    name = "delta"
    record = RecordType.AFTER

    def __init__(self, settings: DeltaSettings) -> None:
        self.settings = settings
        self.every = settings.history
        self.final = settings.history
        # Of this process only: tables do not travel to tasks.
        self._tables: dict[tuple[str, TableId], DeltaTable] = {}
        self._current: dict[TableId, CurrentTable] = {}
        self._left_out = LeftOut()
        self._begun = Begun()
        self._plan = BatchPlan(-1)

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["settings"])  # type: ignore[misc]

    def keep_in(self, directory: Path, pipeline: str) -> None:
        self._begun.keep_in(directory, pipeline)

    def begin_batch(self, plan: BatchPlan) -> None:
        self._plan = plan

    def storage(self, kind: str, table: TableId) -> Storage:
        """Where a table is."""
        template = self.settings.path if kind == CURRENT else self.settings.history_path
        return Storage(
            self.settings.directory / template.format(keyspace=encode(table.keyspace), table=encode(table.table))
        )

    def layout(self, table: TableId) -> Layout:
        codec = self.settings.codec
        name = "none" if codec is LakeCodec.NONE else codec.value
        return Layout(name, _chosen(self.settings.cluster_by, table), self.settings.rows_per_file)

    def check(self) -> None:
        try:
            self.settings.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot make the directory of the tables: {error.strerror}", directory=self.settings.directory
            ) from error

    def prepare(self, schemas: Sequence[TableSchema]) -> None:
        for schema in schemas:
            with about(schema.table):
                try:
                    if self.settings.current:
                        self._prepare_current(schema)
                    if self.settings.history:
                        self._prepare_history(schema)
                except OSError as error:
                    raise StorageError(f"cannot prepare a Delta table: {error}") from error

    def _prepare_current(self, schema: TableSchema) -> None:
        table = self._open(CURRENT, schema, fresh(schema), vectors=self.settings.deletion_vectors)
        self._begin_era(table, schema)
        self._follow(CURRENT, table, schema)
        if not self.settings.deletion_vectors:
            table.describe()
            return
        if schema.table not in self._current:
            self._current[schema.table] = self._make_current(table, schema.table)
        self._current[schema.table].sync()

    def _make_current(self, table: DeltaTable, name: TableId) -> CurrentTable:
        return CurrentTable(table, self.layout(name), self.settings.file_bytes)

    def _prepare_history(self, schema: TableSchema) -> None:
        check_no_clash(schema)
        table = self._open(HISTORY, schema, fresh(schema, CHANGE_FIELDS), vectors=False)
        self._follow(HISTORY, table, schema)
        table.describe()

    def _begin_era(self, table: DeltaTable, schema: TableSchema) -> None:
        """Where the source's table was dropped and made anew, let the target be that one's, as the policy says."""
        if not table.shape.note.is_of_another_table(schema) or table.shape.note.is_older(schema):
            return
        begun = of_new_table(schema, table.shape, self.settings.schema_policy)
        if begun is None:
            table.begin_anew(fresh(schema), _chosen(self.settings.partition_by, schema.table))
        else:
            table.empty(begun)

    def _follow(self, kind: str, table: DeltaTable, schema: TableSchema) -> None:
        if table.shape.note.is_of_another_table(schema) and table.shape.note.is_older(schema):
            # Of a table that is no more; nothing of it will come.
            return
        left_out = table.follow(schema, self.settings.schema_policy, keyed=kind == CURRENT)
        self._left_out.note(schema, left_out)
        self._check_clustering(table, schema)

    def left_out(self) -> Mapping[str, Sequence[str]]:
        return self._left_out

    def _check_clustering(self, table: DeltaTable, schema: TableSchema) -> None:
        wanted = _chosen(self.settings.cluster_by, schema.table)
        there = table.schema
        for column, name in zip(wanted, table.shape.note.current_names(wanted), strict=True):
            # One that the source has dropped is still there.
            if name not in there.names or pa.types.is_nested(there.field(name).type):
                raise SchemaUnfit("rows cannot be sorted by this column", table=schema.table, column=column)

    def _open(self, kind: str, schema: TableSchema, wanted: TargetShape, *, vectors: bool) -> DeltaTable:
        table = self._tables.get((kind, schema.table))
        if table is None:
            table = self._make_table(kind, schema.table, vectors=vectors)
            for (_, other), taken in self._tables.items():
                if taken.storage.directory == table.storage.directory:
                    raise InvalidSetting(
                        f"tables {other} and {schema.table} would share a directory; use {{keyspace}} and {{table}}",
                        table=schema.table,
                        directory=table.storage.directory,
                    )
            self._tables[kind, schema.table] = table
        partition = _chosen(self.settings.partition_by, schema.table)
        table.open_or_make(wanted, partition, self.settings.properties)
        there = application(self._begun.pipeline, schema.table) in table.log.transactions
        self._begun.begin(f"{directory_name(schema.table)}.{kind}", taken=there, table=schema.table)
        return table

    def _make_table(self, kind: str, name: TableId, *, vectors: bool) -> DeltaTable:
        return DeltaTable(
            self.storage(kind, name),
            f"{name}" if kind == CURRENT else f"{name} (history)",
            vectors=vectors,
            checkpoint_every=self.settings.checkpoint_every,
        )

    def _reopen(self, kind: str, name: TableId) -> DeltaTable:
        """A table that an earlier run has prepared: rows that expire come without a schema that would be new."""
        vectors = kind == CURRENT and self.settings.deletion_vectors
        table = self._make_table(kind, name, vectors=vectors)
        if not table.log.refresh() and table.log.version < 0:
            raise DeliveryFailed("the table was not prepared", table=name)
        self._tables[kind, name] = table
        if vectors:
            self._current[name] = self._make_current(table, name)
        return table

    def end_eras(self, schemas: Sequence[TableSchema]) -> None:
        """Old rows are not written anew in a batch that takes them out."""
        for schema in schemas:
            current = self._current.get(schema.table)
            if current is not None:
                with about(schema.table):
                    current.write_nothing_anew()

    def files(self, table: TableId) -> list[dict[str, Any]]:
        """On the driver: the data files of a table of current rows that was prepared."""
        return list(self._tables[CURRENT, table].log.adds.values())

    def writer(self, task: Task) -> DeltaWriter:
        return DeltaWriter(self, task)

    def commit(self, pipeline: str, batch: int, payloads: Sequence[bytes]) -> None:
        parts: dict[tuple[str, TableId], list[dict[str, Any]]] = defaultdict(list)
        for payload in payloads:
            for part in json.loads(payload):
                parts[part["kind"], TableId(*part["table"])].append(part)
        plan = self._plan if self._plan.batch == batch else BatchPlan(batch)
        try:
            self._check_last(pipeline, plan, parts)
        except OSError as error:
            raise DeliveryFailed(f"cannot read the log of a Delta table: {error}", batch=batch) from error

        def commit(entry: tuple[tuple[str, TableId], list[dict[str, Any]]]) -> None:
            (kind, table), reports = entry
            with about(table):
                try:
                    self._commit(pipeline, plan, kind, table, reports)
                except OSError as error:
                    raise DeliveryFailed(f"cannot commit to a Delta table: {error}", batch=batch) from error

        side_by_side(commit, sorted(parts.items()))

    def _check_last(self, pipeline: str, plan: BatchPlan, parts: Iterable[tuple[str, TableId]]) -> None:
        """Refuse tables whose last batch is not of this checkpoint, and note in it what the others are to be given."""
        last = {}
        for kind, name in sorted(parts):
            app, target = application(pipeline, name), f"{directory_name(name)}.{kind}"
            with about(name):
                table = self._tables.get((kind, name)) or self._reopen(kind, name)
                found = last[target] = table.last(app)
                if found is not None and not self._begun.knows(target, found, plan):
                    raise not_ours(found.batch, table.span(app, found), plan, table=table.name)
        self._begun.gives(last, plan)

    def _commit(self, pipeline: str, plan: BatchPlan, kind: str, name: TableId, reports: list[dict[str, Any]]) -> None:
        table = self._tables.get((kind, name)) or self._reopen(kind, name)
        app = application(pipeline, name)
        if kind == HISTORY:
            now = now_ms()
            adds = [{"add": {**add, "modificationTime": now}} for report in reports for add in report["adds"]]
            table.commit(app, plan, lambda: adds, operation="WRITE")
        elif self.settings.deletion_vectors:
            self._current[name].commit(app, plan, reports)
        else:
            copy_on_write.commit(table, app, plan, reports, self.layout(name))
        optimize_every = self.settings.history_optimize_every if kind == HISTORY else self.settings.optimize_every
        changed = compaction.after_batch(table, optimize_every, self.settings, self.layout(name).codec)
        if changed and name in self._current and kind == CURRENT:
            self._current[name].sync()


def application(pipeline: str, table: TableId) -> str:
    """The application identifier of a pipeline's transactions in a table."""
    return f"{pipeline}/{table}"


def _chosen(choices: dict[str, tuple[str, ...]], table: TableId) -> tuple[str, ...]:
    return next((columns for pattern, columns in choices.items() if fnmatchcase(str(table), pattern)), ())


class DeltaWriter(Writer):
    """The records of one task, table by table."""

    def __init__(self, sink: DeltaSink, task: Task) -> None:
        self._sink = sink
        self._task = task
        self._stem = f"part-{task.batch}-{task.bucket}-{uuid.uuid4().hex}"
        # None: the table has this batch already.
        self._current: dict[TableId, CurrentRows | AppendedRows | None] = {}
        self._history: dict[TableId, AppendedRows] = {}
        self._records = 0
        self._dead: list[DeadLetter] = []

    def write(self, records: Records) -> None:
        if not len(records):
            return
        self._records += len(records)
        table = records.schema.table
        settings = self._sink.settings
        if settings.history:
            if table not in self._history:
                self._history[table] = self._appended(HISTORY, table)
            self._add(self._history[table], records)
        if settings.current:
            if table not in self._current:
                self._current[table] = self._make_current(table)
            self._add(self._current[table], records.last() if settings.history else records)

    def take_out(self, schema: TableSchema, keys: list[pa.Array]) -> bool:
        """Mark every row that has one of these keys, also those that the index does not know of.

        False: the table has no deletion vectors, and a deletion of the keys finds all of them.
        """
        table = schema.table
        if not self._sink.settings.deletion_vectors:
            return False
        if table not in self._current:
            self._current[table] = self._make_current(table)
        rows = self._current[table]
        if isinstance(rows, CurrentRows):
            rows.take_out(keys, self._sink.files(table))
        return True

    def _add(self, rows: CurrentRows | AppendedRows | None, records: Records) -> None:
        if rows is None:
            return
        with refusals(records.schema.table, _REFUSED):
            poison = rows.add(records)
        # With both kinds of table, the history's writer has met the same records already.
        if isinstance(rows, AppendedRows) or not self._sink.settings.history:
            self._dead += dead_letters(records, poison, self._sink.name)
        if rows.buffered_bytes > self._sink.settings.buffer_bytes:
            with refusals(records.schema.table, _REFUSED):
                rows.flush()

    def _make_current(self, table: TableId) -> CurrentRows | AppendedRows | None:
        if not self._sink.settings.deletion_vectors:
            return self._appended(CURRENT, table)
        storage = self._sink.storage(CURRENT, table)
        manifest = manifest_file.newest(storage)
        if manifest is None:
            raise DeliveryFailed("the table was not prepared", table=table, batch=self._task.batch)
        app = application(self._task.pipeline, table)
        found, version = last_batch(manifest.transactions, app), manifest.version
        plan = self._task.plan or BatchPlan(self._task.batch)
        if has_batch(found, plan, lambda: span_of(storage, version, app, found), table=table):
            return None
        return CurrentRows(
            storage, manifest.for_application(app), self._task.bucket, self._stem, self._sink.layout(table)
        )

    def _appended(self, kind: str, table: TableId) -> AppendedRows:
        storage = self._sink.storage(kind, table)
        description = read_description(storage)
        if description is None:
            raise DeliveryFailed("the table was not prepared", table=table, batch=self._task.batch)
        layout = self._sink.layout(table)
        return AppendedRows(storage, description, self._task.batch, self._stem, layout, spooled=kind == CURRENT)

    def finish(self) -> Delivered:
        open_tables: list[tuple[str, TableId, CurrentRows | AppendedRows]] = []
        for kind, tables in ((CURRENT, self._current), (HISTORY, self._history)):
            open_tables += [(kind, table, rows) for table, rows in tables.items() if rows is not None]

        def finish(entry: tuple[str, TableId, CurrentRows | AppendedRows]) -> dict[str, Any]:
            kind, table, rows = entry
            with refusals(table, _REFUSED):
                return {"kind": kind, "table": list(table), "bucket": self._task.bucket, **rows.finish()}

        reports = side_by_side(finish, open_tables)
        payload = json.dumps(reports, separators=(",", ":")).encode() if reports else b""
        size = sum(add["size"] for report in reports for add in report["adds"])
        return Delivered(records=self._records, bytes=size, payload=payload, dead=self._dead)
