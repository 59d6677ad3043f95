"""The rows of a source as the pipeline's transforms leave them: filtered, masked, with other columns and names.

Each row is put through the transforms as if it had just been inserted, so what is compared, and written by a repair, is
what a sink was given. That is not so where an operation is skipped: then the target has what the source has no more.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.compare.sides import SourceRows
from penstock.errors import InvalidInput
from penstock.model.change import Op
from penstock.records.records import Records
from penstock.records.row_changes import row_changes
from penstock.transforms.transforms import Transforms


class TransformedRows(SourceRows):
    """Another source, transformed."""

    def __init__(self, source: SourceRows, transforms: Transforms) -> None:
        self.name = source.name
        self.shape = source.shape
        self.schema = transforms.target(source.schema)
        self._source = source
        self._transforms = transforms

    @property
    def left_out(self) -> tuple[str, ...]:
        return self._source.left_out

    @property
    def masked(self) -> tuple[str, ...]:
        return self._source.masked

    def check_repair(self) -> None:
        """Refuse to repair a table whose rows in the target are not made of the source's rows alone."""
        transform = self._transforms.for_table(self._source.schema)
        if transform.skipped is not None:
            names = ", ".join(transform.skipped.to_pylist())
            raise InvalidInput(
                f"transform.skipped_operations keeps operations from the target ({names}); nobody can tell whether a "
                "row that differs is wrong or is so on purpose",
                table=self._source.schema.table,
            )
        for function in transform.functions:
            raise InvalidInput(
                f"{function.setting} makes other rows of the source's, and may do so in another way today",
                table=self._source.schema.table,
            )

    def images(self) -> Iterator[pa.StructArray]:
        schema = self._source.schema
        for found in self._source.images():
            rows = found.drop_null()
            if not len(rows):
                continue
            versions = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
            nothing = pa.nulls(len(rows), rows.type)
            records = Records(schema, row_changes(schema, Op.INSERT, rows, times=versions), rows, nothing, versions)
            for left in self._transforms.apply([records]):
                assert left.after is not None
                yield left.after

    def close(self) -> None:
        self._source.close()
