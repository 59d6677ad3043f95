"""OwnFunction: a user's Python callable between the merge and the sinks.

It is given an Arrow record batch of whole rows as they are after the change and returns one with the same columns and
as many rows. Rows that are gone are not shown to it. Only records with whole rows can pass through one: the changed
cells alone are not a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidSetting, InvalidValue
from penstock.pipeline.records import Records


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """One callable, and the pattern that it stands under in the settings."""

    pattern: str
    function: Callable[..., Any]

    def apply(self, records: Records) -> Records:
        if records.after is None:
            raise InvalidSetting(
                "own functions need whole rows: a sink must take records of type after or all",
                setting=f"transform.functions.{self.pattern}",
            )
        there = pc.is_valid(records.after)
        given = pa.RecordBatch.from_struct_array(records.after.filter(there))
        if not given.num_rows:
            return records
        made = self.function(given)
        if not isinstance(made, pa.RecordBatch) or made.num_rows != given.num_rows:
            raise InvalidValue(
                f"the function of transform.functions.{self.pattern} must return a record batch of as many rows",
                table=records.schema.table,
            )
        try:
            rows = made.select(given.schema.names).cast(given.schema).to_struct_array()
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidValue(
                f"the function of transform.functions.{self.pattern} must return the columns that it was given",
                table=records.schema.table,
            ) from error
        # Each row goes back to its place; where there was none, there is none.
        places = pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1), None)
        return replace(records, after=rows.take(places))
