"""An own sink: current rows in a SQLite database, one table per source table, one JSON document per row.

Name it in the settings, with the directory of this file on PYTHONPATH:

    [pipeline]
    sinks = ["sqlite"]

    [pipeline.own_sinks]
    sqlite = "own_sink:SqliteSink"

    [pipeline.own_sink_options.sqlite]
    file = "rows.db"
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import ClassVar

from penstock import Delivered, Records, RecordType, Sink, TableSchema, Task, Writer
from penstock.errors import InvalidSetting, StorageError
from penstock.records.json_lines import key_text, row_text

# The version decides: a state that the database has already, or has passed, changes nothing. So a batch that comes
# again, as every batch does after a crash, has no effect.
_UPSERT = """
INSERT INTO "{table}" (key, version, row) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET version = excluded.version, row = excluded.row WHERE excluded.version > version
"""


class SqliteSink(Sink):
    """What Penstock makes of the settings, once. It travels to the tasks by pickle, so it holds no connection."""

    name: ClassVar[str] = "sqlite"

    def __init__(self, options: Mapping[str, str]) -> None:
        # Whole rows after the change, and of each row only the last record of a batch.
        self.record = RecordType.AFTER
        self.every = False
        if "file" not in options:
            raise InvalidSetting("this sink needs a file", setting="pipeline.own_sink_options.sqlite.file")
        self._file = options["file"]

    def check(self) -> None:
        """Before the stream starts: is the target there?"""
        try:
            with closing(sqlite3.connect(self._file)) as database:
                database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise StorageError(f"SQLite refuses the file: {error}", file=self._file) from error

    def prepare(self, schemas: Sequence[TableSchema]) -> None:
        """A table, or a version of its schema, that comes for the first time in this run."""
        with closing(sqlite3.connect(self._file)) as database, database:
            for schema in schemas:
                columns = "key TEXT PRIMARY KEY, version INTEGER NOT NULL, row TEXT"
                database.execute(f'CREATE TABLE IF NOT EXISTS "{_name(schema)}" ({columns})')

    def writer(self, task: Task) -> Writer:
        return SqliteWriter(self._file)


class SqliteWriter(Writer):
    """Takes the records of one bucket of keys, in a task."""

    def __init__(self, file: str) -> None:
        self._database = sqlite3.connect(file, timeout=60)
        self._delivered = Delivered()

    def write(self, records: Records) -> None:
        assert records.after is not None
        # A row that is gone keeps its key and version, so that a late change does not bring it back.
        keys = key_text(records.changes).to_pylist()
        rows = row_text(records.schema, records.after).to_pylist()
        statement = _UPSERT.format(table=_name(records.schema))
        self._database.executemany(statement, zip(keys, records.versions.to_pylist(), rows, strict=True))
        self._delivered.records += len(records)

    def finish(self) -> Delivered:
        """When this returns, a crash cannot take the rows away; were it to raise, the batch would come again."""
        self._database.commit()
        self._database.close()
        return self._delivered

    def abort(self) -> None:
        self._database.close()


def _name(schema: TableSchema) -> str:
    return str(schema.table).replace('"', '""')
