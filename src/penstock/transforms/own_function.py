"""OwnFunction: a user's Python callable between the merge and the sinks.

It is given whole rows as they are after the change, as an Arrow record batch or as a pandas DataFrame whose columns are
Arrow's, and returns as many rows with the same columns. Rows that are gone are not shown to it. Rows go back to their
places by their order, so the key columns must come back as they were. Only records with whole rows can pass through
one: the changed cells alone are not a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidSetting, InvalidValue
from penstock.model.schema import TableSchema
from penstock.records.records import Records

_WIDTHS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """One callable, the setting that names it, and whether it works on DataFrames."""

    setting: str
    function: Callable[..., Any]
    frames: bool = False

    def apply(self, records: Records) -> Records:
        if records.after is None:
            raise InvalidSetting(
                "own functions need whole rows: a sink must take records of type after or all", setting=self.setting
            )
        there = pc.is_valid(records.after)
        given = pa.RecordBatch.from_struct_array(records.after.filter(there))
        if not given.num_rows:
            return records
        made = self._called(given, records.schema)
        if not _same_keys(given, made, records.schema):
            raise self._wrong("must return the rows in the order in which they came, with their keys", records.schema)
        # Each row goes back to its place; where there was none, there is none.
        places = pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1), None)
        return replace(records, after=made.to_struct_array().take(places))

    def _called(self, given: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
        """What the function makes of the rows, in the columns and types that they had."""
        try:
            made = self.function(_as_frame(given) if self.frames else given)
        # The function is not ours, so anything can come out of it. Its message may hold values of rows.
        except Exception as error:
            raise self._wrong(f"failed with {type(error).__name__}", schema) from error
        if self.frames:
            return self._from_frame(made, given, schema)
        if not isinstance(made, pa.RecordBatch) or made.num_rows != given.num_rows:
            raise self._wrong("must return a record batch of as many rows", schema)
        try:
            return made.select(given.schema.names).cast(given.schema)
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._wrong("must return the columns that it was given", schema) from error

    def _from_frame(self, made: Any, given: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
        import pandas as pd

        if not isinstance(made, pd.DataFrame) or len(made) != given.num_rows:
            raise self._wrong("must return a DataFrame of as many rows", schema)
        try:
            return pa.RecordBatch.from_pandas(made, schema=given.schema, preserve_index=False)
        except (KeyError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise self._wrong("must return the columns that it was given", schema) from error

    def _wrong(self, what: str, schema: TableSchema) -> InvalidValue:
        return InvalidValue(f"the function of {self.setting} {what}", table=schema.table)


def _as_frame(batch: pa.RecordBatch) -> Any:
    """Rows as a DataFrame that holds the same memory: numbers stay exact beside nulls, and nested values nested."""
    import pandas as pd

    return batch.to_pandas(types_mapper=pd.ArrowDtype)


def _same_keys(given: pa.RecordBatch, made: pa.RecordBatch, schema: TableSchema) -> bool:
    names = [column.name for column in schema.key]
    return all(_exact(made.column(name)).equals(_exact(given.column(name))) for name in names)


def _exact(array: pa.Array) -> pa.Array:
    """A key that is NaN is itself, so numbers with a point are compared by their bits."""
    width = _WIDTHS.get(array.type)
    return array if width is None else array.view(width)
