"""CaptureChoice: which tables this node's agent captures.

A table is captured when it has `cdc = true` at that place of the log, an include pattern names it and no exclude
pattern does, and this node's data centre is among those chosen for it. Cassandra's own tables and materialized views
never are: a view's rows are those of its base table.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from penstock.capture.cassandra.schema.system_tables import SYSTEM_KEYSPACES
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.table_patterns import TablePatterns, check
from penstock.model.predicate import always_quoted
from penstock.model.schema import TableId
from penstock.settings import CassandraSettings


class CaptureChoice:
    """The choice that the settings make for one data centre."""

    def __init__(self, settings: CassandraSettings, data_centre: str) -> None:
        self._patterns = TablePatterns(settings.include, settings.exclude)
        check(*settings.tables)
        self._centres = [(pattern, frozenset(choice.data_centres)) for pattern, choice in settings.tables.items()]
        self._data_centre = data_centre

    def names(self, table: TableId) -> bool:
        """Whether a table of this name is wanted, whatever its `cdc` says."""
        if table.keyspace in SYSTEM_KEYSPACES or not self._patterns.names(table):
            return False
        for pattern, centres in self._centres:
            if fnmatchcase(str(table), pattern):
                return not centres or self._data_centre in centres
        return True

    def captures(self, table: CassandraTable) -> bool:
        """Whether the table's changes are written to its log."""
        return table.cdc and not table.view and self.names(table.schema.table)

    def missing_cdc(self, table: CassandraTable) -> str | None:
        """What to tell the operator when a table was chosen by its very name and has CDC off; None when all is well."""
        name = table.schema.table
        if table.cdc or table.view or not self.names(name):
            return None
        if not any(pattern == str(name) for pattern in self._patterns.include):
            # A pattern with a star means those with CDC; only one who names a table expects to see it.
            return None
        return f"ALTER TABLE {quoted(name.keyspace)}.{quoted(name.table)} WITH cdc = true;"


def quoted(name: str) -> str:
    """A name as CQL wants it: bare when that means the same, else in quotes."""
    plain = name.isascii() and name.isidentifier() and name == name.lower()
    return name if plain else always_quoted(name)
