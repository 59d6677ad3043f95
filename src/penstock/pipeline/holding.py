"""Holding: which tables a pipeline leaves out at the moment, and how each comes back. The driver's side of `troubles`.

A table in trouble is held: batches leave its logs and its rows' state as they are. When it is tried again, it takes
part from a batch that is noted beforehand, its trial; with that batch's commit it is well again. Where the trouble came
in the middle of a batch, Spark has noted positions behind changes that were not delivered; the next batch sets these
back (source/held.py), and the trial comes after it. Everything that decides what a batch does is durable before its
tasks begin, so a batch that is done again is the same. Tables are released and held between two queries only: the
source is told when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import structlog

from penstock.errors import PenstockError, Retry
from penstock.fold.state import StateStore
from penstock.log.names import directory_name
from penstock.model.schema import TableId
from penstock.pipeline.checkpoint import Checkpoint
from penstock.pipeline.source.held import Held
from penstock.pipeline.troubles import Trouble, Troubles, reason_of
from penstock.system.clock import Clock

log = structlog.get_logger()

# Where time alone may help, a table is tried again after so many seconds, and then less and less often.
_AGAIN_S, _AGAIN_S_MAX = 30.0, 15 * 60.0


class Holding:
    """The troubles of one pipeline."""

    def __init__(self, checkpoint: Checkpoint, state: StateStore, clock: Clock) -> None:
        self._checkpoint = checkpoint
        self._state = state
        self._clock = clock
        self._kept = Troubles(checkpoint.troubles)
        self._troubles = self._kept.read()
        self._started = False

    @property
    def troubles(self) -> dict[TableId, Trouble]:
        return dict(self._troubles)

    def begin(self, wanted: Callable[[TableId], bool]) -> None:
        """Before a query: release whom it is time for, at the first one all."""
        asked = self._kept.asked()
        noted = self._noted()
        for table, trouble in self.troubles.items():
            name = directory_name(table)
            if not wanted(table):
                self._forget(table)
            elif trouble.trial is not None and self._state.committed >= trouble.trial:
                self._heal(trouble)
            elif trouble.held and (not self._started or name in asked or self._due(trouble)):
                # A batch that sets positions back comes first.
                trial = noted + (2 if trouble.batch == noted and trouble.moved else 1)
                self._keep(replace(trouble, trial=trial, next_us=None))
                # It may have rows that expire and no new changes.
                self._checkpoint.wake_at(self._clock.now_us() // 1_000_000)
            self._kept.answered(name)
        self._started = True

    def held(self) -> Held:
        """What a query that starts now must know."""
        noted = self._noted()
        held = [trouble for trouble in self._troubles.values() if trouble.held]
        back = [trouble for trouble in self._troubles.values() if trouble.batch == noted and trouble.moved]
        return Held(
            frozenset(trouble.table for trouble in held),
            frozenset(trouble.table for trouble in back),
            # Those of a batch that takes the table in some buckets are read once more, should it be done again.
            frozenset(one for trouble in held if not (trouble.taken and trouble in back) for one in trouble.logs),
            {one: reaches for trouble in back for one, reaches in trouble.moved.items()},
            frozenset(one for trouble in back if not trouble.taken for one in trouble.moved),
        )

    def asks(self) -> bool:
        """Whether a table is to be tried again now."""
        if not self._troubles:
            return False
        asked = self._kept.asked()
        held = [trouble for trouble in self._troubles.values() if trouble.held]
        return any(directory_name(trouble.table) in asked or self._due(trouble) for trouble in held)

    def _due(self, trouble: Trouble) -> bool:
        return trouble.next_us is not None and trouble.next_us <= self._clock.now_us()

    def aside(self, batch: int) -> dict[TableId, frozenset[int]]:
        """The tables that a batch leaves out, and the buckets that take each all the same."""
        found = (trouble for trouble in self._troubles.values() if trouble.aside(batch))
        return {one.table: one.taken if one.batch == batch else frozenset() for one in found}

    def expired(self, batch: int) -> dict[TableId, Mapping[int, int]]:
        """Of the tables that return: up to where their expiries were delivered."""
        return {one.table: one.expired for one in self._troubles.values() if not one.aside(batch)}

    def hold(
        self,
        error: PenstockError,
        tables: Collection[TableId],
        logs: Mapping[str, TableId],
        taken: frozenset[int],
        *,
        timed: bool = False,
    ) -> bool:
        """Leave these tables out from the batch on that is under way, or from the next; False: that cannot help.

        `taken`: buckets that take them in that batch all the same. `timed`: time may help, whatever the error says.
        """
        timed = timed or error.retry is Retry.TIMED
        noted = self._noted()
        batch = noted if noted > self._state.committed else None
        if any(known.held for table in tables if (known := self._troubles.get(table)) is not None):
            return False
        moved = {} if batch is None else self._moved(batch)
        if moved.keys() - logs.keys():
            # Whose these are nobody can tell.
            return False
        for table in sorted(tables):
            known = self._troubles.get(table)
            all_logs = frozenset(one for one, of in logs.items() if of == table)
            if known is not None and (batch is None or known.aside(batch)):
                # It came back and did not get to a batch; what an earlier one has left is still to be set back.
                self._hold(replace(known, logs=known.logs | all_logs), error, timed=timed)
                continue
            mine = {one: reaches for one, reaches in moved.items() if logs[one] == table}
            expired = dict(self._state.expired() if known is None else known.expired)
            if batch is not None and taken:
                second = self._checkpoint.time_of(batch) // 1_000_000
                expired |= {bucket: max(second, expired.get(bucket, 0)) for bucket in taken}
            since_us = self._clock.now_us() if known is None else known.since_us
            tries = -1 if known is None else known.tries
            made = Trouble(table, "", "", since_us, tries, None, batch, mine, all_logs, taken, expired)
            self._hold(made, error, timed=timed)
        return True

    def _hold(self, trouble: Trouble, error: PenstockError, *, timed: bool) -> None:
        known = self._troubles.get(trouble.table)
        tries = trouble.tries + 1
        wait_us = int(min(_AGAIN_S_MAX, _AGAIN_S * 2 ** min(tries, 16)) * 1_000_000)
        next_us = self._clock.now_us() + wait_us if timed else None
        reason = reason_of(error)
        self._keep(
            replace(trouble, error=type(error).__name__, reason=reason, tries=tries, next_us=next_us, trial=None)
        )
        if known is None or known.reason != reason:
            pipeline = self._checkpoint.identity.name
            log.warning("table in trouble", table=str(trouble.table), pipeline=pipeline, error=reason)

    def delivered(self, batch: int) -> None:
        """A batch is committed; tables whose trial it was are well again."""
        for trouble in list(self._troubles.values()):
            if trouble.trial is not None and trouble.trial <= batch:
                self._heal(trouble)

    def ended(self) -> None:
        """A query has delivered all that there is: tables that took part in it have nothing left."""
        pending = self._noted()
        for trouble in list(self._troubles.values()):
            if trouble.trial is not None and trouble.batch != pending:
                self._heal(trouble)

    def _heal(self, trouble: Trouble) -> None:
        self._forget(trouble.table)
        passed_s = (self._clock.now_us() - trouble.since_us) / 1_000_000
        log.warning(
            "table well again",
            table=str(trouble.table),
            pipeline=self._checkpoint.identity.name,
            after_s=round(passed_s, 1),
        )

    def _keep(self, trouble: Trouble) -> None:
        self._kept.write(trouble)
        self._troubles[trouble.table] = trouble

    def _forget(self, table: TableId) -> None:
        self._kept.remove(table)
        del self._troubles[table]

    def _noted(self) -> int:
        """The newest batch whose positions are noted."""
        return self._checkpoint.noted()

    def _moved(self, batch: int) -> dict[str, tuple[str | None, str]]:
        """The logs that a batch moves: where each was, and where the batch has it."""
        before = self._checkpoint.positions(batch - 1) if batch else {}
        after = self._checkpoint.positions(batch)
        return {one: (before.get(one), reach) for one, reach in after.items() if before.get(one) != reach}
