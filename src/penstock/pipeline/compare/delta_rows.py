"""A Delta table of current rows as one side of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.model.schema import TableSchema
from penstock.pipeline.compare.shape import Shape
from penstock.pipeline.sinks.lakehouse.types import lake_schema
from penstock.pipeline.sinks.lakehouse.values import to_lake


class LakeShape(Shape):
    """Rows as lakehouse tables have them."""

    def key(self, schema: TableSchema) -> Sequence[str]:
        return [column.name for column in schema.key]

    def rows(self, schema: TableSchema, rows: pa.StructArray) -> pa.RecordBatch:
        shown = rows.drop_null() if rows.null_count else rows
        columns = [to_lake(shown.field(column.name), column.type) for column in schema.columns]
        return pa.RecordBatch.from_arrays(columns, names=[column.name for column in schema.columns])


class DeltaRows:
    """The rows of a Delta table, of the columns that the source has."""

    def __init__(self, directory: Path, schema: TableSchema) -> None:
        self.name = str(directory)
        self._directory = directory
        self._schema = schema

    def key(self) -> Sequence[str]:
        return [column.name for column in self._schema.key]

    def batches(self) -> Iterator[pa.RecordBatch]:
        from deltalake import DeltaTable, QueryBuilder
        from deltalake.exceptions import TableNotFoundError

        try:
            table = DeltaTable(str(self._directory))
        except TableNotFoundError as error:
            raise InvalidInput("there is no Delta table here", directory=self._directory) from error
        wanted = lake_schema(self._schema)
        columns = ", ".join('"' + name.replace('"', '""') + '"' for name in wanted.names)
        for batch in QueryBuilder().register("rows", table).execute(f"SELECT {columns} FROM rows"):  # noqa: S608
            found = pa.record_batch(batch)
            yield found.cast(wanted)
