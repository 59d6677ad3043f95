"""Records that write rows as a source has them now, or delete rows that it does not have."""

from __future__ import annotations

import pyarrow as pa

from penstock.formats.arrow import arrow_schema, from_arrow
from penstock.model.change import Op
from penstock.model.schema import TableSchema
from penstock.pipeline.records import Records, row_type


def repair_records(
    schema: TableSchema, op: Op, keys: pa.StructArray, rows: pa.StructArray | None, versions: pa.Int64Array
) -> Records:
    """One record per key; without rows, each says that its row is gone."""
    count = len(keys)
    wanted = arrow_schema(schema)
    columns = {field.name: pa.nulls(count, field.type) for field in wanted if field.nullable}
    number = pa.array([list(Op).index(op)] * count, pa.int8())
    columns["op"] = pa.DictionaryArray.from_arrays(number, pa.array([each.value for each in Op], pa.string()))
    columns["time"] = versions
    if schema.key:
        type_ = wanted.field("key").type
        columns["key"] = pa.StructArray.from_arrays([keys.field(field.name) for field in type_], fields=list(type_))
    if schema.cells:
        type_ = wanted.field("cells").type
        columns["cells"] = pa.StructArray.from_arrays(
            [_unset(field.type, count) for field in type_], fields=list(type_)
        )
    given = pa.schema([field for field in wanted if field.name in columns])
    batch = pa.RecordBatch.from_arrays([columns[name] for name in given.names], schema=given)
    after = pa.nulls(count, row_type(schema)) if rows is None else rows
    return Records(schema, from_arrow(schema, batch), after, None, versions)


def _unset(type_: pa.StructType, count: int) -> pa.StructArray:
    """A cell that the record says nothing of: the row after it says all."""
    rest = [pa.nulls(count, type_.field(at).type) for at in range(1, type_.num_fields)]
    return pa.StructArray.from_arrays([pa.array([0] * count, pa.int8()), *rest], fields=list(type_))
