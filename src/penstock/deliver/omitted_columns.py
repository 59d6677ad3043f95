"""Columns that a target does not get because its sink's schema policy is to ignore them: logged once, and counted."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from penstock.model.schema import TableSchema

log = structlog.get_logger()


class LeftOut(dict[str, Sequence[str]]):
    """By table the columns that its target goes without."""

    def note(self, schema: TableSchema, columns: Sequence[str]) -> None:
        """Say it, unless it was said before. A version that lacks nothing says nothing: older ones may still come."""
        table = str(schema.table)
        if columns and self.get(table) != columns:
            self[table] = columns
            log.warning("columns left out", table=table, version=schema.version, columns=columns)
