"""An Iceberg table as the driver sees it, through pyiceberg: made, altered, committed to.

The last batch of each pipeline stands in the table's properties, with its plan, and is set in the same commit as the
batch's rows: that makes each change be in the table exactly once. Current rows are kept by copy on write: of the data
files in which a row has changed, the rows that stay are written anew. pyiceberg writes neither position deletes nor
deletion vectors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import structlog
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, Transaction

from penstock.deliver.batch_plan import BatchMark, BatchPlan, has_batch
from penstock.deliver.lakehouse.evolution import Evolution, TargetShape, evolve
from penstock.deliver.lakehouse.key_hash import key_hashes
from penstock.deliver.lakehouse.key_index import Entries, sort_order
from penstock.deliver.lakehouse.source_note import SourceNote
from penstock.deliver.lakehouse.spool import GONE
from penstock.deliver.lakehouse.types import renamed_fields
from penstock.errors import DeliveryFailed, SchemaUnfit
from penstock.log.refusal import exhausted
from penstock.model.schema import TableSchema
from penstock.settings import SchemaPolicy

log = structlog.get_logger()

# Hashes of the keys of this many rows are kept in memory, 16 bytes each; those of other files are read again.
_ROWS_KEPT_MAX = 16_000_000
# What Iceberg calls the items of collections.
_ITEMS = {"element", "key", "value"}


class IcebergTable:
    """One table, from batch to batch."""

    def __init__(self, catalog: Catalog, identifier: tuple[str, str], properties: dict[str, str]) -> None:
        self._catalog = catalog
        self._identifier = identifier
        self._properties = properties
        self._table: Table | None = None
        self._keys: OrderedDict[str, Entries] = OrderedDict()

    @property
    def name(self) -> str:
        return ".".join(self._identifier)

    @property
    def schema(self) -> pa.Schema:
        return self.shape.schema

    @property
    def shape(self) -> TargetShape:
        """The columns, and what the table has noted of its source."""
        return shape_of(self._loaded())

    def _loaded(self) -> Table:
        assert self._table is not None, "a table is prepared before its first batch"
        return self._table

    def open(self) -> None:
        """Load the table, which must be there."""
        try:
            self._table = self._catalog.load_table(self._identifier)
        except NoSuchTableError as error:
            raise DeliveryFailed("the table was not prepared", table=self.name) from error

    def open_or_make(self, shape: TargetShape) -> None:
        """Load the table, or make it."""
        try:
            self._table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            self._catalog.create_namespace_if_not_exists(self._identifier[0])
            self._table = self._catalog.create_table_if_not_exists(
                self._identifier, schema=shape.schema, properties={**self._properties, **shape.note.to_properties()}
            )
            log.info("lakehouse table made", table=self.name, directory=self._table.location())

    def follow(self, source: TableSchema, policy: SchemaPolicy, *, keyed: bool = True) -> list[str]:
        """Alter the table so that rows of a source schema fit, as far as the policy allows; gives what is left out."""
        old = self.shape
        made = evolve(source, old, policy, keyed=keyed)
        if made.shape.note == old.note and not made.altered:
            return made.ignored
        columns = ", ".join([*made.renamed.values(), *made.retyped, *made.widened, *made.added])
        with self._altering(columns) as transaction:
            # Columns are known by numbers, so one that is renamed keeps its values, and one made anew has none.
            fields = self._renamed_fields(old, made)
            if made.renamed or made.retyped or fields:
                with transaction.update_schema(allow_incompatible_changes=True) as update:
                    for path, new in fields:
                        update.rename_column(path, new)
                    for name, new in made.renamed.items():
                        update.rename_column(name, new)
                    for name in made.retyped:
                        update.delete_column(name)
            if made.retyped or made.widened or made.added:
                with transaction.update_schema() as update:
                    update.union_by_name(made.shape.schema)
            transaction.set_properties(made.shape.note.to_properties())
        if set(made.widened) & set(old.note.key):
            self._keys.clear()
        made.note(self.name)
        return made.ignored

    def _renamed_fields(self, old: TargetShape, made: Evolution) -> list[tuple[tuple[str, ...], str]]:
        """The fields inside of columns that get another name."""
        fields = [
            one
            for name in made.widened
            for one in renamed_fields(
                old.schema.field(name).type, made.shape.schema.field(made.renamed.get(name, name)).type, (name,)
            )
        ]
        for path, new in fields:
            if any({one, other} <= _ITEMS for one, other in pairwise(path)):
                # pyiceberg reads nulls there, and with the next change of a row we would write them.
                raise SchemaUnfit(
                    f"the field {path[-1]} is called {new} now, and pyiceberg does not read fields that were renamed "
                    "in a collection inside of a collection",
                    table=self.name,
                    column=path[0],
                )
        return fields

    def begin_anew(self, shape: TargetShape) -> None:
        """Make the table that of another source table: without rows, with that one's columns only, in one commit."""
        with self._altering(", ".join(shape.schema.names)) as transaction:
            self._write(transaction, {}, [], list(self._loaded().scan().plan_files()))
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                for name in self._loaded().schema().column_names:
                    if "." not in name:
                        update.delete_column(name)
            with transaction.update_schema() as update:
                update.union_by_name(shape.schema)
            transaction.set_properties(shape.note.to_properties())
        self._keys.clear()
        log.warning("lakehouse table begun anew", table=self.name, table_id=shape.note.id)

    def empty(self, note: SourceNote) -> None:
        """Take all rows out and note another source table; the columns stay."""
        with self._altering("") as transaction:
            self._write(transaction, {}, [], list(self._loaded().scan().plan_files()))
            transaction.set_properties(note.to_properties())
        self._keys.clear()
        log.warning("lakehouse table emptied", table=self.name, table_id=note.id)

    @contextmanager
    def _altering(self, columns: str) -> Iterator[Transaction]:
        """A transaction that alters the table, and what its refusals mean."""
        try:
            with self._loaded().transaction() as transaction:
                yield transaction
        except CommitFailedException as error:
            raise DeliveryFailed("another program has changed the table", table=self.name) from error
        except Exception as error:
            if (lack := exhausted(error)) is not None:
                raise lack from error
            # pyiceberg says in several ways that a type cannot become another; the columns are what matters.
            raise SchemaUnfit(f"Iceberg does not allow the change: {error}", table=self.name, column=columns) from error

    def has_batches(self, app: str) -> bool:
        """Whether a pipeline has committed batches."""
        return _property(app) in self._loaded().properties

    def has(self, app: str, plan: BatchPlan) -> bool:
        """Whether the table has a batch already; raises when it has one that is not of the pipeline's checkpoint."""
        return has_batch(self.last(app), plan, lambda: self.span(app), table=self.name)

    def last(self, app: str) -> BatchMark | None:
        """The last batch of a pipeline that the table has now."""
        self._table = self._loaded().refresh()
        found = self._loaded().properties.get(_property(app))
        if found is None:
            return None
        # An earlier Penstock sets the number only, and leaves the plan of the batch before.
        number, plan, _ = self._plan_of(app)
        return BatchMark(int(found), plan if number == found else "")

    def span(self, app: str) -> str:
        """Where the last batch of a pipeline began and ended; nothing when the table does not tell."""
        number, _, span = self._plan_of(app)
        return span if number == self._loaded().properties.get(_property(app)) else ""

    def _plan_of(self, app: str) -> tuple[str, str, str]:
        """The number, the identity and the span of the last batch whose plan is noted."""
        number, _, rest = self._loaded().properties.get(_plan_property(app), "").partition(" ")
        plan, _, span = rest.partition(" ")
        return number, plan, span

    def append(self, app: str, plan: BatchPlan, rows: pa.Table) -> None:
        """Add rows of a batch."""
        self._commit(app, plan, self._written([rows]), [])

    def merge(self, app: str, plan: BatchPlan, rows: pa.Table, key: tuple[str, ...], buffer_bytes: int) -> None:
        """Put rows of a batch in the place of those with the same keys.

        Of the files that are written anew, about `buffer_bytes` are in memory at a time, and never less than one file.
        """
        high, low = key_hashes([rows.column(name).combine_chunks() for name in key])
        order = sort_order(high, low)
        none = np.zeros(len(high), np.uint32)
        changed = Entries(high[order], low[order], none, none, ())
        replaced: list[FileScanTask] = []
        files: list[DataFile] = []
        tables = [rows.filter(pa.array(~rows.column(GONE).to_numpy())).drop_columns([GONE])]
        for task in self._loaded().scan().plan_files():
            keys = self._keys_of(task, key)
            # Most files have no changed row, and are not read for that.
            if (keys.find(changed.high, changed.low) >= 0).any():
                found = self._read(task, self.schema)
                hashes = key_hashes([found.column(name).combine_chunks() for name in key])
                tables.append(found.filter(pa.array(changed.find(*hashes) < 0)))
                replaced.append(task)
                if sum(table.nbytes for table in tables) > buffer_bytes:
                    files += self._written(tables)
                    tables = []
        self._commit(app, plan, [*files, *self._written(tables)], replaced)
        for task in replaced:
            self._keys.pop(task.file.file_path, None)

    def replace(self, app: str, plan: BatchPlan, rows: pa.Table | None) -> None:
        """Put rows of a batch in the place of all that the table has."""
        living = [] if rows is None else [rows.filter(pa.array(~rows.column(GONE).to_numpy())).drop_columns([GONE])]
        self._commit(app, plan, self._written(living), list(self._loaded().scan().plan_files()))
        self._keys.clear()

    def _keys_of(self, task: FileScanTask, key: tuple[str, ...]) -> Entries:
        """The sorted hashes of a file's keys. Files never change, so they are kept."""
        path = task.file.file_path
        kept = self._keys.get(path)
        if kept is None:
            schema = pa.schema([self.schema.field(name) for name in key])
            rows = self._read(task, schema)
            high, low = key_hashes([rows.column(name).combine_chunks() for name in key])
            order = sort_order(high, low)
            none = np.zeros(0, np.uint32)
            kept = self._keys[path] = Entries(high[order], low[order], none, none, ())
            while sum(map(len, self._keys.values())) > _ROWS_KEPT_MAX and len(self._keys) > 1:
                self._keys.popitem(last=False)
        self._keys.move_to_end(path)
        return kept

    def _read(self, task: FileScanTask, wanted: pa.Schema) -> pa.Table:
        """The living rows of a file, in the table's types of today."""
        table = self._loaded()
        schema = table.schema().select(*wanted.names)
        found = ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table([task])
        return found.select(wanted.names).cast(wanted)

    def _written(self, tables: list[pa.Table]) -> list[DataFile]:
        """Rows as data files, which no one sees before the commit."""
        rows = pa.concat_tables(tables) if tables else None
        if rows is None or not rows.num_rows:
            return []
        table = self._loaded()
        return list(_dataframe_to_data_files(table.metadata, rows, table.io))

    def _commit(self, app: str, plan: BatchPlan, files: list[DataFile], replaced: list[FileScanTask]) -> None:
        table, batch = self._loaded(), str(plan.batch)
        properties = {_property(app): batch}
        if plan.id:
            properties[_plan_property(app)] = f"{batch} {plan.id} {plan.span}"
        try:
            with table.transaction() as transaction:
                transaction.set_properties(properties)
                if files or replaced:
                    self._write(transaction, {"penstock.pipeline": app, "penstock.batch": batch}, files, replaced)
        except CommitFailedException as error:
            raise DeliveryFailed(
                "another program has changed the table; the batch is done again", table=self.name, batch=plan.batch
            ) from error

    @staticmethod
    def _write(transaction: Transaction, summary: dict[str, str], files: list[DataFile], replaced: Any) -> None:
        with transaction.update_snapshot(snapshot_properties=summary).overwrite() as snapshot:
            for task in replaced:
                snapshot.delete_data_file(task.file)
            for file in files:
                snapshot.append_data_file(file)


def _property(app: str) -> str:
    return f"penstock.batch.{app}"


def _plan_property(app: str) -> str:
    return f"penstock.plan.{app}"


def shape_of(table: Table) -> TargetShape:
    """The columns of a table, and what it has noted of its source."""
    found = schema_to_pyarrow(table.schema(), include_field_ids=False)
    schema = pa.schema([(field.name, plain_type(field.type)) for field in found])
    return TargetShape(schema, SourceNote.from_properties(table.properties, schema.names))


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The types of types.py for those that pyiceberg reads, which have large offsets."""
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(plain_type(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(plain_type(type_.key_type), plain_type(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, plain_type(field.type)) for field in type_])
    return type_
