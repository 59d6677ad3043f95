"""The entry that a bucket's state has for a table as a whole, under the key that no row has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.merge.range_deletions import NEVER
from penstock.model.change import Change, Deletion, Op
from penstock.model.schema import TableSchema


class TableEntry(NamedTuple):
    """What is remembered of a table.

    `truncation` is of tables whose source gives it a write time, as any deletion. Versions of rows that nothing is
    known of begin above `version`: rows of an earlier era had greater ones. What columns held that were dropped up to
    `dropped_us` is in no row any more.
    """

    truncation: Deletion | None = None
    version: int = NEVER
    dropped_us: int = NEVER

    def states(self) -> list[Change]:
        """As the state has it."""
        out = []
        if self.truncation is not None:
            out.append(Change(Op.TRUNCATE, time=self.truncation.time, deletion=self.truncation))
        if self.version != NEVER or self.dropped_us != NEVER:
            version = None if self.version == NEVER else self.version
            dropped_us = None if self.dropped_us == NEVER else self.dropped_us
            out.append(Change(Op.UPDATE, commit_time=dropped_us, capture_time=version))
        return out

    @staticmethod
    def of(states: Iterable[Change]) -> TableEntry:
        """The inverse."""
        entry = TableEntry()
        for state in states:
            if state.op is Op.TRUNCATE:
                entry = entry._replace(truncation=state.deletion)
                continue
            if state.commit_time is not None:
                entry = entry._replace(dropped_us=state.commit_time)
            if state.capture_time is not None:
                entry = entry._replace(version=state.capture_time)
        return entry


def last_drop(schema: TableSchema) -> int:
    """When the last of the columns was dropped that were added again."""
    return max((column.dropped_us for column in schema.cells if column.dropped_us is not None), default=NEVER)
