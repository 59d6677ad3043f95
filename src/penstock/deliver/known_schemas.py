"""Known schemas: what the tables of a target that takes anything looked like before, so that a change can be noticed.

A topic or a directory of files has no columns of its own. A sink that is to leave new columns out, or to stop at them,
therefore keeps the schema that a table had when the sink first met it, one small file per table in the pipeline's
checkpoint: a restart does not make it forget. With the policy `evolve` it follows, and keeps nothing that it need not.
The schema also says which table it was: one that was dropped and made anew under the same name is another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from penstock.errors import CorruptCheckpoint, SchemaRefused, StorageError
from penstock.log import names, sealed
from penstock.model.schema import TableId, TableSchema
from penstock.settings import SchemaPolicy
from penstock.system.files import OsFiles, make_durable_directory

# Far more than the description of a table with a thousand columns.
_BYTES_MAX = 16 << 20


class KnownSchemas:
    """The schemas that one sink goes by. Used on the driver only."""

    def __init__(self, policy: SchemaPolicy) -> None:
        self._policy = policy
        self._directory: Path | None = None
        self._known: dict[TableId, TableSchema] = {}
        self.left_out = LeftOut()

    def __reduce__(self) -> tuple[type[KnownSchemas], tuple[SchemaPolicy]]:
        """Tasks have no use for what is known, and hundreds of tables would travel to each of them."""
        return KnownSchemas, (self._policy,)

    def keep_in(self, directory: Path) -> None:
        """Remember in this directory from now on, and what was remembered there before."""
        self._directory = directory

    def shown(self, schema: TableSchema) -> TableSchema:
        """The schema whose columns the target is given; raises SchemaRefused where the policy is to stop."""
        known = self._read(schema.table)
        if known is None:
            self._known[schema.table] = schema
            if self._policy is not SchemaPolicy.EVOLVE:
                self._write(schema)
            return schema
        another = bool(known.id and schema.id and known.id != schema.id)
        if schema.order < known.order and (another or self._policy is SchemaPolicy.EVOLVE):
            # Of a table that is no more, or a late copy: newer ones have come already.
            return schema
        if known.fingerprint == schema.fingerprint and (known.id == schema.id or not schema.id):
            return schema
        if self._policy is SchemaPolicy.FAIL and (another or known.fingerprint != schema.fingerprint):
            raise SchemaRefused(
                "the table was dropped and made anew, and the sink is set to stop then"
                if another
                else "a table's schema has changed, and the sink is set to stop then",
                table=schema.table,
                version=schema.version,
            )
        if self._policy is SchemaPolicy.EVOLVE:
            self._keep(schema)
            return schema
        self._leave_out(schema, known)
        if schema.id and known.id != schema.id:
            # The columns stay those of the table that was there first.
            known = replace(known, id=schema.id, altered=max(known.altered, schema.altered))
            self._keep(known)
        return known

    def _keep(self, schema: TableSchema) -> None:
        """Go by a schema from now on."""
        self._known[schema.table] = schema
        if self._file(schema.table) is not None:
            self._write(schema)

    def _leave_out(self, schema: TableSchema, known: TableSchema) -> None:
        if [(c.name, c.type) for c in schema.key] != [(c.name, c.type) for c in known.key]:
            raise SchemaRefused(
                "a key column has another name or type, and cannot be left out",
                table=schema.table,
                version=schema.version,
            )
        self.left_out.note(
            schema, [column.name for column in schema.columns if not same_column(column.name, schema, known)]
        )

    def _file(self, table: TableId) -> Path | None:
        """Where a table's schema is kept, if it is."""
        if self._directory is None:
            return None
        file = self._directory / f"{names.directory_name(table)}.json"
        return file if file.exists() else None

    def _read(self, table: TableId) -> TableSchema | None:
        if table in self._known or (file := self._file(table)) is None:
            return self._known.get(table)
        try:
            known = TableSchema.from_json(sealed.read(OsFiles(), str(file), _BYTES_MAX))
        except OSError as error:
            raise StorageError(f"cannot read what a table looked like: {error.strerror}", file=file) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpoint("what a table looked like is damaged", file=file) from error
        self._known[table] = known
        return known

    def _write(self, schema: TableSchema) -> None:
        if self._directory is None:
            return
        try:
            make_durable_directory(OsFiles(), str(self._directory))
            name = f"{names.directory_name(schema.table)}.json"
            sealed.write(OsFiles(), str(self._directory), name, schema.to_json())
        except OSError as error:
            raise StorageError(
                f"cannot note what a table looks like: {error.strerror}", directory=self._directory
            ) from error


def same_column(name: str, one: TableSchema, other: TableSchema) -> bool:
    """Whether both schemas have this column, with values of the same type."""
    return name in one.by_name and name in other.by_name and one.by_name[name].type == other.by_name[name].type


# Columns that a target does not get because its sink's schema policy is to ignore them: logged once, and counted.

log = structlog.get_logger()


class LeftOut(dict[str, Sequence[str]]):
    """By table the columns that its target goes without."""

    def note(self, schema: TableSchema, columns: Sequence[str]) -> None:
        """Say it, unless it was said before. A version that lacks nothing says nothing: older ones may still come."""
        table = str(schema.table)
        if columns and self.get(table) != columns:
            self[table] = columns
            log.warning("columns left out", table=table, version=schema.version, columns=columns)
