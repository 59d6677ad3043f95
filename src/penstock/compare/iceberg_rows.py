"""An Iceberg table of current rows as one side of a comparison, repaired through the sink that wrote it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from penstock.compare.comparison import Kind, Report
from penstock.compare.lake_keys import check_keys
from penstock.compare.lake_rows import LakeRows
from penstock.deliver.iceberg.sink import IcebergSink
from penstock.deliver.iceberg.table import shape_of
from penstock.deliver.sink import Sink, Writer
from penstock.errors import InvalidInput
from penstock.model.schema import TableSchema
from penstock.settings.sinks import IcebergSettings

_PREFIX = "iceberg:"


class IcebergRows(LakeRows):
    """The rows of an Iceberg table, named `iceberg:namespace.table`, in the catalog of the settings."""

    def __init__(self, name: str, schema: TableSchema, settings: IcebergSettings) -> None:
        super().__init__(name, schema)
        namespace, point, table = name.removeprefix(_PREFIX).rpartition(".")
        if not point or not namespace or not table:
            raise InvalidInput(f"an Iceberg table is named {_PREFIX}namespace.table", target=name)
        names = {"namespace": namespace, "table": table}
        chosen: dict[str, object] = {part: _literal(text) for part, text in names.items()}
        chosen |= {"history_table": f"{chosen['table']}_history", "current": True, "history": False}
        self._identifier = (namespace, table)
        self._sink = IcebergSink(settings.model_copy(update=chosen))

    def batches(self) -> Iterator[pa.RecordBatch]:
        table = self._open()
        wanted = self.wanted(shape_of(table))
        for batch in table.scan(selected_fields=tuple(wanted.values())).to_arrow_batch_reader():
            yield self.fitted(batch, wanted)

    def _open(self) -> Table:
        try:
            return self._sink.catalog().load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise InvalidInput("the catalog has no such Iceberg table", target=self.name) from error

    def sink(self, report: Report) -> Sink:
        if report.counts[Kind.EXTRA]:
            check_keys(self.schema)
        return self._sink

    def take_out(self, writer: Writer, found: pa.Table) -> bool:  # noqa: ARG002
        """Nothing to do: a row that is written takes the place of all that have its key."""
        return True


def _literal(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")
