"""The entry that a bucket's state has for a table as a whole, under the key that no row has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.merge.range_deletions import NEVER
from penstock.model.change import NO_ORIGIN, Change, Deletion, Op, Origin


class TableEntry(NamedTuple):
    """What is remembered of a table.

    `truncation` is of tables whose source gives it a write time, as any deletion. Versions of rows that nothing is
    known of begin above `version`: rows of an earlier era had greater ones.
    """

    truncation: Deletion | None = None
    version: int = NEVER
    # Where the truncation was in the source's log, of a table that is ordered by it.
    origin: Origin = NO_ORIGIN

    def states(self) -> list[Change]:
        """As the state has it."""
        out = []
        if self.truncation is not None:
            truncation = Change(Op.TRUNCATE, time=self.truncation.time, deletion=self.truncation, origin=self.origin)
            out.append(truncation)
        # There is always one, so that the entry says under which version of the schema the state is.
        out.append(Change(Op.UPDATE, capture_time=None if self.version == NEVER else self.version))
        return out

    @staticmethod
    def of(states: Iterable[Change]) -> TableEntry:
        """The inverse."""
        entry = TableEntry()
        for state in states:
            if state.op is Op.TRUNCATE:
                entry = entry._replace(truncation=state.deletion, origin=state.origin)
                continue
            if state.capture_time is not None:
                entry = entry._replace(version=state.capture_time)
        return entry
