"""Schemas: every table of a Cassandra, learned from its own schema tables.

Schema rows come from the log's own `system_schema` mutations, from the driver, or from a file. They are merged by write
time, so it does not matter in which order they come, or how often; an old segment that is read again never undoes what
is known. That alone would lose tables which the node has dropped and made anew: the driver only knows the new one, and
its rows win. So the log's rows are merged a second time by themselves, and what only they know is known as well, by id.

The node's truncations are known here too: a table's schema says when it was last truncated, and since when the node's
log is read, so that whoever reads the change logs can tell what came before. So is what a change log is yet to be told,
because nothing is written to it while its table has CDC off.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.capture.cassandra.schema.definitions import TableDefinitions, narrowed
from penstock.capture.cassandra.schema.rows import SchemaRow, rows_of
from penstock.capture.cassandra.schema.system_tables import SYSTEM, SYSTEM_KEYSPACES
from penstock.capture.cassandra.schema.table import CassandraTable, Truncation
from penstock.errors import InvalidSchema, PenstockError
from penstock.model.change import Change
from penstock.model.schema import TableId, TableSchema

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
        # By name the id of its table, with the time of the one before it when that had the same id.
        self._ids: dict[TableId, str] = {}
        # Tables of which an era began, as they took the name of another or were truncated, and their log was not told.
        self._untold: set[uuid.UUID] = set()
        # Tables whose CDC was switched off, and those of them that have it again since somebody asked.
        self._off: set[uuid.UUID] = set()
        self._resumed: set[uuid.UUID] = set()
        self._truncations: dict[uuid.UUID, Truncation] = {}
        self._since_us = 0

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

    def truncation(self, table_id: uuid.UUID) -> Truncation | None:
        """The last truncation of a table on this node."""
        return self._truncations.get(table_id)

    def truncate(self, table_id: uuid.UUID, truncation: Truncation) -> bool:
        """Take in a truncation; False when it or a later one is known and told already."""
        known = self._truncations.get(table_id)
        if known is not None and (known.time_us, known.told) >= (truncation.time_us, truncation.told):
            return False
        self._truncations[table_id] = truncation
        self.revision += 1
        if table_id in self._tables:
            self._publish({table_id})
        return True

    def truncate_untold(self, table_id: uuid.UUID, truncation: Truncation) -> None:
        """Take in the truncation of a table that is not captured now, or not known: its log is told when it is."""
        if self.truncate(table_id, truncation):
            self._untold.add(table_id)

    def begin(self, since_us: int) -> None:
        """The node's log is read from this time on. Only the first call counts."""
        if not self._since_us:
            self._since_us = since_us
            self.revision += 1
            self._publish(set(self._tables))

    def untold(self) -> list[CassandraTable]:
        """Tables of which an era began that their change log was not told of."""
        known = [self._tables[one] for one in sorted(self._untold, key=lambda one: one.bytes) if one in self._tables]
        there = {table.id for table in known if self.by_name(table.schema.table) is table}
        # Nobody waits to hear of tables that are gone.
        self._untold -= {table.id for table in known} - there
        return [table for table in known if table.id in there]

    def is_untold(self, table_id: uuid.UUID) -> bool:
        return table_id in self._untold

    def tell(self, table_id: uuid.UUID) -> None:
        """The table's change log is told now."""
        self._untold.discard(table_id)
        self.revision += 1

    def take_resumed(self) -> list[CassandraTable]:
        """Tables that have CDC again, after they had it and it was off, since the last call."""
        taken, self._resumed = self._resumed, set()
        return [self._tables[one] for one in sorted(taken, key=lambda one: one.bytes) if one in self._tables]

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
                self._off.discard(table_id)
                continue
            name, fingerprint = table.schema.table, table.schema.fingerprint
            before = self._tables.get(table_id)
            version, mark = self._versions.get(name, (0, ""))
            if before is not None and before.schema.fingerprint == fingerprint:
                version = before.schema.version
            elif mark != fingerprint:
                version += 1
                self._versions[name] = version, fingerprint
            self._note_id(table)
            self._note_cdc(before, table)
            self._tables[table_id] = replace(table, schema=self._stamped(table, version))
        return altered

    def _stamped(self, table: CassandraTable, version: int) -> TableSchema:
        """The schema with what only this node says of it."""
        truncation = self._truncations.get(table.id)
        truncated_us = truncation.time_us if truncation is not None else 0
        remade_us = self._merged.remade.get(table.id, 0)
        since_us = self._since_us
        return replace(table.schema, version=version, remade_us=remade_us, truncated_us=truncated_us, since_us=since_us)

    def _note_id(self, table: CassandraTable) -> None:
        name, remade_us = table.schema.table, self._merged.remade.get(table.id, 0)
        mark = f"{table.id}/{remade_us}" if remade_us else str(table.id)
        if self._merged.by_name.get(name) is not table or self._ids.get(name) == mark:
            return
        if name in self._ids:
            self._untold.add(table.id)
            if remade_us:
                # It is the one before that was truncated.
                self._truncations.pop(table.id, None)
        self._ids[name] = mark

    def _note_cdc(self, before: CassandraTable | None, table: CassandraTable) -> None:
        if before is not None and before.cdc and not table.cdc:
            self._off.add(table.id)
        elif table.cdc and table.id in self._off:
            self._off.discard(table.id)
            self._resumed.add(table.id)

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
            "ids": [[*name, table_id] for name, table_id in self._ids.items()],
            "untold": sorted(map(str, self._untold)),
            "off": sorted(map(str, self._off)),
            "truncations": [[str(table_id), *one] for table_id, one in self._truncations.items()],
            "since_us": self._since_us,
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
            # What was saved before tables had ids says nothing of these.
            out._ids = {TableId(k, t): str(table_id) for k, t, table_id in data.get("ids", ())}
            for text, time_us, segment, position, told in data.get("truncations", ()):
                out._truncations[uuid.UUID(text)] = Truncation(int(time_us), int(segment), int(position), told is True)
            out._untold = set(map(uuid.UUID, data.get("untold", ())))
            out._off = set(map(uuid.UUID, data.get("off", ())))
            out._since_us = int(data.get("since_us", 0))
            for text, version in data["tables"]:
                table = out._definition(uuid.UUID(text))
                if table is None:
                    raise InvalidSchema(f"saved schemas lack the table {text}")
                out._tables[table.id] = replace(table, schema=out._stamped(table, version))
            if out._merged.by_id.keys() - out._tables.keys():
                raise InvalidSchema("saved schemas lack the version of a table")
        except InvalidSchema:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, PenstockError) as error:
            raise InvalidSchema(f"not saved schemas: {type(error).__name__}: {error}") from error
        return out
