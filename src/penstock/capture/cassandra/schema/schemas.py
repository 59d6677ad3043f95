"""Schemas: every table of a Cassandra, learned from its own schema tables.

Schema rows come from the log's own `system_schema` mutations, from the driver, or from a file. They are merged by write
time, so it does not matter in which order they come, or how often; an old segment that is read again never undoes what
is known. That alone would lose tables which the node has dropped and made anew: the driver only knows the new one, and
its rows win. So the log's rows are merged a second time by themselves, and what only they know is known as well, by id.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.capture.cassandra.schema.definitions import TableDefinitions, narrowed
from penstock.capture.cassandra.schema.rows import SchemaRow, rows_of
from penstock.capture.cassandra.schema.system_tables import SYSTEM, SYSTEM_KEYSPACES
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.errors import InvalidSchema, PenstockError
from penstock.model.change import Change
from penstock.model.schema import TableId

_FORMAT = 1


class Schemas:
    """All tables that are known. Not for several threads at once."""

    def __init__(self) -> None:
        # Grows with everything that is taken in: what was saved at the same revision is up to date.
        self.revision = 0
        self._merged = TableDefinitions()
        self._logged = TableDefinitions(self._merged.user_types)
        # As handed out, with their version.
        self._tables: dict[uuid.UUID, CassandraTable] = {}
        # By name the latest version and what it looks like. Kept when the table is gone, so that none repeats.
        self._versions: dict[TableId, tuple[int, str]] = {}

    def table(self, table_id: uuid.UUID) -> CassandraTable | None:
        """The table with this id, also when it was dropped meanwhile; Cassandra's own tables are always known."""
        return self._tables.get(table_id) or SYSTEM.get(table_id)

    def by_name(self, name: TableId) -> CassandraTable | None:
        """The table that has this name now."""
        found = self._merged.by_name.get(name)
        return None if found is None else self._tables[found.id]

    def tables(self) -> list[CassandraTable]:
        """The tables and views that exist now, without Cassandra's own."""
        found = self._merged.by_name.items()
        return [self._tables[table.id] for name, table in found if name.keyspace not in SYSTEM_KEYSPACES]

    def learn(self, table: TableId, changes: Sequence[Change]) -> set[uuid.UUID]:
        """Take in what the log says of a schema table: best all changes of one mutation at once.

        Returns the ids of tables that are new, altered or dropped by them.
        """
        rows = self._counted(SchemaRow(table, change) for change in changes)
        altered = self._merged.load(rows)
        own = [row for row in rows if row.change.key.get("keyspace_name") not in SYSTEM_KEYSPACES]
        altered |= {table_id for table_id in self._logged.load(own) if table_id not in self._merged.by_id}
        return self._publish(altered)

    def load(self, rows: Iterable[SchemaRow]) -> set[uuid.UUID]:
        """Take in rows from elsewhere, such as the driver's. Returns as `learn` does."""
        return self._publish(self._merged.load(self._counted(rows)))

    def add(self, table: CassandraTable, *, time_us: int = 0) -> set[uuid.UUID]:
        """Take in a table from elsewhere. With the default time, whatever the log says about it is newer."""
        return self.load(rows_of(table, time_us))

    def _counted(self, rows: Iterable[SchemaRow]) -> list[SchemaRow]:
        out = [narrow for row in rows if (narrow := narrowed(row)) is not None]
        self.revision += len(out)
        return out

    def _publish(self, altered: set[uuid.UUID]) -> set[uuid.UUID]:
        """Give tables that look different a new version."""
        for table_id in sorted(altered, key=lambda one: one.bytes):
            table = self._definition(table_id)
            if table is None:
                self._tables.pop(table_id, None)
                continue
            name, fingerprint = table.schema.table, table.schema.fingerprint
            before = self._tables.get(table_id)
            version, mark = self._versions.get(name, (0, ""))
            if before is not None and before.schema.fingerprint == fingerprint:
                version = before.schema.version
            elif mark != fingerprint:
                version += 1
                self._versions[name] = version, fingerprint
            self._tables[table_id] = replace(table, schema=replace(table.schema, version=version))
        return altered

    def _definition(self, table_id: uuid.UUID) -> CassandraTable | None:
        return self._merged.by_id.get(table_id) or self._logged.by_id.get(table_id)

    def to_json(self) -> dict[str, Any]:
        """All that is known, for `from_json`."""
        return {
            "format": _FORMAT,
            "merged": self._merged.to_json(),
            "logged": self._logged.to_json(),
            "versions": [[*name, version, mark] for name, (version, mark) in self._versions.items()],
            "tables": [[str(table_id), table.schema.version] for table_id, table in self._tables.items()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schemas:
        """What `to_json` gave; InvalidSchema for anything else."""
        if data.get("format") != _FORMAT:
            raise InvalidSchema(f"saved schemas of format {data.get('format')!r}; this Penstock reads {_FORMAT}")
        out = cls()
        try:
            out._merged.restore(data["merged"])
            out._logged.restore(data["logged"])
            out._versions = {TableId(k, t): (int(v), str(mark)) for k, t, v, mark in data["versions"]}
            for text, version in data["tables"]:
                table = out._definition(uuid.UUID(text))
                if table is None:
                    raise InvalidSchema(f"saved schemas lack the table {text}")
                out._tables[table.id] = replace(table, schema=replace(table.schema, version=version))
            if out._merged.by_id.keys() - out._tables.keys():
                raise InvalidSchema("saved schemas lack the version of a table")
        except InvalidSchema:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, PenstockError) as error:
            raise InvalidSchema(f"not saved schemas: {type(error).__name__}: {error}") from error
        return out
