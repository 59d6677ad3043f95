"""Keys of a lakehouse table turned back into plain values, so that a row that nobody else has can be deleted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.deliver.lakehouse.plain_values import from_lake
from penstock.deliver.lakehouse.values import to_lake
from penstock.errors import InvalidInput
from penstock.model.schema import Role, TableSchema
from penstock.model.types import Kind
from penstock.records.records import row_type

_COMPOSITE = {
    Kind.LIST,
    Kind.SET,
    Kind.MAP,
    Kind.TUPLE,
    Kind.USER,
    Kind.VECTOR,
    Kind.ARRAY,
    Kind.FLAGS,
    Kind.TIME_TZ,
    Kind.DURATION,
}


def has_plain_keys(schema: TableSchema) -> bool:
    """Whether keys are made of single values."""
    return not any(column.type.kind in _COMPOSITE for column in schema.key)


def check_keys(schema: TableSchema) -> None:
    """Refuse keys that are not made of single values."""
    for column in schema.key:
        if column.type.kind in _COMPOSITE:
            raise InvalidInput(
                "rows that are too many cannot be deleted where a collection, tuple or user type is part of the key",
                table=schema.table,
                column=column.name,
            )


def plain_keys(schema: TableSchema, found: pa.Table) -> tuple[pa.StructArray, Any]:
    """The keys of rows of a lakehouse table, and which of them (a NumPy mask) the source's types can hold."""
    plain = row_type(schema)
    fits = np.ones(found.num_rows, bool)
    arrays, fields = [], []
    for column in schema.key:
        there = found.column(column.name).combine_chunks()
        made = from_lake(there, column.type, plain.field(column.name).type)
        # A text that is not written as we would write it names no key of ours.
        again = zip(to_lake(made, column.type), there, strict=True)
        fits &= np.array([one.equals(other) for one, other in again], bool)
        if column.role is Role.PARTITION:
            fits &= made.is_valid().to_numpy(zero_copy_only=False)
        arrays.append(made)
        fields.append(plain.field(column.name))
    return pa.StructArray.from_arrays(arrays, fields=fields), fits
