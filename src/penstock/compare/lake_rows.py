"""Tables of current rows in a lakehouse as one side of a comparison: what Delta and Iceberg have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.compare.comparison import Kind
from penstock.compare.lake_keys import has_plain_keys, plain_keys
from penstock.compare.repair_records import repair_records
from penstock.compare.shape import Shape
from penstock.compare.sides import TargetRows
from penstock.compare.spelling import Spelling, spelled_columns
from penstock.deliver.lakehouse.evolution import TargetShape, places
from penstock.deliver.lakehouse.types import lake_schema
from penstock.deliver.lakehouse.values import to_lake
from penstock.deliver.sink import Writer
from penstock.errors import InvalidInput
from penstock.model.change import Op
from penstock.model.schema import TableSchema


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


class LakeRows(TargetRows):
    """The rows of a lakehouse table, of the columns that the source has."""

    def __init__(self, name: str, schema: TableSchema) -> None:
        self.name = name
        self.schema = schema

    def key(self) -> Sequence[str]:
        return [column.name for column in self.schema.key]

    def spelled(self) -> Mapping[str, Spelling]:
        return spelled_columns(self.schema)

    def own_keys(self, found: pa.Table) -> tuple[pa.StructArray, Any] | None:
        return plain_keys(self.schema, found) if has_plain_keys(self.schema) else None

    def wanted(self, there: TargetShape) -> dict[str, str]:
        """The columns to read, by the source's names, each of which must be among those that are there."""
        found = dict(places(self.schema, there))
        for name in self.schema.by_name:
            # One that cannot hold the values may still have values that fit.
            if name not in found and name in there.schema.names:
                found[name] = name
            if name not in found:
                raise InvalidInput(f"the table has no column {name}", target=self.name)
        return {name: found[name] for name in self.schema.by_name}

    def fitted(self, found: pa.RecordBatch, wanted: Mapping[str, str]) -> pa.RecordBatch:
        """Rows in the names and types of the source."""
        columns = []
        shape = lake_schema(self.schema)
        for name, target in wanted.items():
            try:
                columns.append(found.column(target).cast(shape.field(name).type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                raise InvalidInput(
                    "a column holds values that its type in the source cannot", target=self.name, column=target
                ) from error
        return pa.RecordBatch.from_arrays(columns, schema=shape)

    def versions(
        self,
        kind: Kind,  # noqa: ARG002
        found: pa.Table | None,  # noqa: ARG002
        count: int,
        attempt: int,  # noqa: ARG002
        now_us: int,
    ) -> pa.Int64Array:
        return pa.repeat(pa.scalar(now_us, pa.int64()), count)

    def keys(self, found: pa.Table) -> pa.StructArray:
        keys, fits = plain_keys(self.schema, found)
        return keys.filter(pa.array(fits))

    def delete(self, writer: Writer, found: pa.Table, now_us: int) -> int:
        keys = self.keys(found)
        if len(keys):
            versions = pa.repeat(pa.scalar(now_us, pa.int64()), len(keys))
            writer.write(repair_records(self.schema, Op.DELETE, keys, None, versions))
        return len(keys)
