"""TableVersion: which version of a table a flat DataFrame shows, and which later versions it can still take in.

A DataFrame has the same columns from beginning to end. It is made with the newest version of the table that any of its
logs has, and the columns that only another node's log has. Older changes fit in; a file that begins later with a column
which has no place ends the stream with an error that says so, after everything before it was delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.errors import InvalidSetting, SchemaChanged
from penstock.log.reader import LogReader
from penstock.log.segment import Heading
from penstock.model.schema import TableSchema
from penstock.pipeline.source import flat
from penstock.pipeline.source.backlog import Backlog
from penstock.pipeline.source.options import SourceOptions
from penstock.pipeline.source.planner import Planner
from penstock.pipeline.source.reach import Reach


@dataclass(frozen=True)
class TableVersion:
    """The version, and the last file of each log that was there when it was chosen."""

    schema: TableSchema
    known: dict[str, int] = field(default_factory=dict)
    # False when the user chose the columns: then newer ones are not missed.
    whole: bool = True

    @classmethod
    def find(cls, options: SourceOptions) -> TableVersion:
        """Look at all logs of the table. InvalidSetting when there is none."""
        planner = Planner(replace(options, subscription=None))
        try:
            found = {log_id: seen.place.reader(seen.address) for log_id, seen in planner.look().items()}
            if not found:
                raise InvalidSetting("there is no log of this table here", table=options.table, log=options.log or None)
            if options.schema_version is not None:
                return cls(_numbered(found.values(), options.schema_version), whole=False)
            newest = {log_id: reader.heading(reader.numbers()[-1]) for log_id, reader in found.items()}
            return cls(_joined(newest.values()), {log_id: heading.number for log_id, heading in newest.items()})
        finally:
            planner.close()

    def flat_schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """The columns of the DataFrame."""
        return flat.flat_schema(self.schema, columns)

    def choosing(self, wanted: pa.Schema) -> TableVersion:
        """The same for a user who chose the columns; InvalidSetting when the table does not have them so."""
        usual = flat.flat_schema(self.schema, ["*", *wanted.names])
        for one in wanted:
            there = usual.field(one.name).type
            if there != one.type:
                raise InvalidSetting(
                    f"column {one.name} is {there}, not {one.type}", table=self.schema.table, column=one.name
                )
        return replace(self, whole=False)

    def check(self, backlog: Backlog, end: Reach, planned: bool) -> Reach:
        """How far a batch can go before a version comes that has no place."""
        if not self.whole:
            return end
        known = self.known.get(backlog.address.log_id, 0)
        names = flat.flat_names(self.schema)
        columns = flat.flat_schema(self.schema)
        for heading in backlog.headings():
            if heading.number <= known or heading.schema.fingerprint == self.schema.fingerprint:
                continue
            if heading.number > end.last.file:
                break
            column = flat.accepts(columns, names, heading.schema)
            if column is None:
                continue
            before = backlog.before_file(heading.number)
            if planned or before.last <= backlog.start.last:
                raise SchemaChanged(
                    "the table has changed, and this DataFrame has no place for the new columns",
                    table=self.schema.table,
                    column=column,
                    version=heading.schema.version,
                    node=backlog.address.node,
                )
            return before
        return end


def _joined(headings: Iterable[Heading]) -> TableSchema:
    """The newest version, with what only others of the newest versions have."""
    ordered = sorted(headings, key=lambda heading: heading.schema.order, reverse=True)
    schema = ordered[0].schema
    for heading in ordered[1:]:
        more = [column for column in heading.schema.columns if column.name not in schema.by_name]
        if more:
            schema = replace(schema, columns=(*schema.columns, *more))
    return schema


def _numbered(readers: Iterable[LogReader], version: int) -> TableSchema:
    there: set[int] = set()
    for reader in readers:
        for number in reader.numbers():
            schema = reader.heading(number).schema
            there.add(schema.version)
            if schema.version == version:
                return schema
    listed = ", ".join(map(str, sorted(there)))
    raise InvalidSetting(f"no file was written with version {version} of the table; there are {listed}")
