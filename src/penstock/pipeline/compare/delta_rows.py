"""A Delta table of current rows as one side of a comparison, repaired through the sink that wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.model.change import Op
from penstock.model.predicate import always_quoted
from penstock.model.schema import TableSchema
from penstock.pipeline.compare.comparison import Kind, Report
from penstock.pipeline.compare.lake_keys import check_keys, plain_keys
from penstock.pipeline.compare.repair_records import repair_records
from penstock.pipeline.compare.shape import Shape
from penstock.pipeline.compare.sides import TargetRows
from penstock.pipeline.sinks.lakehouse.delta_sink import DeltaSink
from penstock.pipeline.sinks.lakehouse.types import lake_schema
from penstock.pipeline.sinks.lakehouse.values import to_lake
from penstock.pipeline.sinks.sink import Sink, Writer
from penstock.settings.sinks import DeltaSettings

if TYPE_CHECKING:
    from deltalake import DeltaTable

_VECTORS = "delta.enableDeletionVectors"


class LakeShape(Shape):
    """Rows as lakehouse tables have them."""

    def key(self, schema: TableSchema) -> Sequence[str]:
        return [column.name for column in schema.key]

    def shown(self, schema: TableSchema, rows: pa.StructArray) -> pa.StructArray:  # noqa: ARG002
        """All of them: a partition that has static cells and no row is a row without clustering values there too."""
        return rows.drop_null()

    def rows(self, schema: TableSchema, rows: pa.StructArray) -> pa.RecordBatch:
        columns = [to_lake(rows.field(column.name), column.type) for column in schema.columns]
        return pa.RecordBatch.from_arrays(columns, names=[column.name for column in schema.columns])


class DeltaRows(TargetRows):
    """The rows of a Delta table, of the columns that the source has."""

    def __init__(self, directory: Path, schema: TableSchema, settings: DeltaSettings | None = None) -> None:
        self.name = str(directory)
        self._directory = directory
        self._schema = schema
        self._settings = settings or DeltaSettings()

    def key(self) -> Sequence[str]:
        return [column.name for column in self._schema.key]

    def batches(self) -> Iterator[pa.RecordBatch]:
        from deltalake import QueryBuilder

        wanted = lake_schema(self._schema)
        table = self._open()
        there = {field.name for field in table.schema().fields}
        missing = [name for name in wanted.names if name not in there]
        if missing:
            raise InvalidInput(f"the table has no column {missing[0]}", directory=self._directory)
        columns = ", ".join(map(always_quoted, wanted.names))
        for batch in QueryBuilder().register("rows", table).execute(f"SELECT {columns} FROM rows"):  # noqa: S608
            found = pa.record_batch(batch)
            yield pa.RecordBatch.from_arrays([self._fitting(found, field) for field in wanted], schema=wanted)

    def _fitting(self, found: pa.RecordBatch, wanted: pa.Field) -> pa.Array:
        try:
            return found.column(wanted.name).cast(wanted.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InvalidInput(
                "a column holds values that its type in the source cannot",
                directory=self._directory,
                column=wanted.name,
            ) from error

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(str(self._directory))
        except TableNotFoundError as error:
            raise InvalidInput("there is no Delta table here", directory=self._directory) from error

    def sink(self, report: Report) -> Sink:
        if report.counts[Kind.EXTRA]:
            check_keys(self._schema)
        directory = self._directory.absolute()
        name = directory.name.replace("{", "{{").replace("}", "}}")
        vectors = self._open().metadata().configuration.get(_VECTORS) == "true"
        chosen = {
            "directory": directory.parent,
            "path": name,
            "history_path": f"{name}_history",
            "current": True,
            "history": False,
            "deletion_vectors": vectors,
            "partition_by": {},
        }
        return DeltaSink(self._settings.model_copy(update=chosen))

    def versions(
        self,
        kind: Kind,  # noqa: ARG002
        found: pa.Table | None,  # noqa: ARG002
        count: int,
        attempt: int,  # noqa: ARG002
        now_us: int,
    ) -> pa.Int64Array:
        return pa.repeat(pa.scalar(now_us, pa.int64()), count)

    def delete(self, writer: Writer, found: pa.Table, now_us: int) -> int:
        keys, fits = plain_keys(self._schema, found)
        keys = keys.filter(pa.array(fits))
        if len(keys):
            versions = pa.repeat(pa.scalar(now_us, pa.int64()), len(keys))
            writer.write(repair_records(self._schema, Op.DELETE, keys, None, versions))
        return len(keys)
