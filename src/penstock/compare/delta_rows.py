"""A Delta table of current rows as one side of a comparison, repaired through the sink that wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.compare.comparison import Kind, Report
from penstock.compare.lake_keys import check_keys
from penstock.compare.lake_rows import LakeRows
from penstock.deliver.delta.schema import from_delta
from penstock.deliver.delta.sink import DeltaSink, DeltaWriter
from penstock.deliver.lakehouse.evolution import TargetShape
from penstock.deliver.lakehouse.source_note import SourceNote
from penstock.deliver.sink import Sink, Writer
from penstock.errors import InvalidInput
from penstock.model.predicate import always_quoted
from penstock.model.schema import TableSchema
from penstock.settings.sinks import DeltaSettings

if TYPE_CHECKING:
    from deltalake import DeltaTable

_VECTORS = "delta.enableDeletionVectors"


class DeltaRows(LakeRows):
    """The rows of a Delta table."""

    def __init__(self, directory: Path, schema: TableSchema, settings: DeltaSettings | None = None) -> None:
        super().__init__(str(directory), schema)
        self._directory = directory
        self._settings = settings or DeltaSettings()

    def batches(self) -> Iterator[pa.RecordBatch]:
        from deltalake import QueryBuilder

        table = self._open()
        schema = from_delta(table.schema().to_json())
        note = SourceNote.from_properties(table.metadata().configuration, schema.names)
        wanted = self.wanted(TargetShape(schema, note))
        columns = ", ".join(map(always_quoted, wanted.values()))
        for batch in QueryBuilder().register("rows", table).execute(f"SELECT {columns} FROM rows"):  # noqa: S608 - quoted
            yield self.fitted(pa.record_batch(batch), wanted)

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(str(self._directory))
        except TableNotFoundError as error:
            raise InvalidInput("there is no Delta table here", directory=self._directory) from error

    def sink(self, report: Report) -> Sink:
        if report.counts[Kind.EXTRA]:
            check_keys(self.schema)
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

    def take_out(self, writer: Writer, found: pa.Table) -> bool:
        """Mark all places of these keys, for the index knows one of each. Without vectors a deletion finds them all."""
        assert isinstance(writer, DeltaWriter)
        return writer.take_out(self.schema, [found.column(name).combine_chunks() for name in self.key()])
