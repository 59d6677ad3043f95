"""Node: one replica. It logs a change, then holds it in memory, then acknowledges; never in another order.

A crash loses the memory. At restart the node reads its change logs back (or its journal, for tables that it does not
log) and knows again every change that it ever acknowledged. Hints for other nodes are modelled as durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from penstock.errors import PenstockError
from penstock.formats import avro
from penstock.merge.table_state import TableState, fold
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Origin
from penstock.model.schema import TableId, TableSchema
from penstock.sandbox.event_loop import SkewedClock
from penstock.sandbox.node_log import NodeLog, OpenLog, Recoverable
from penstock.system.files import Files

PowerLoss = Callable[[Files], Files]


@dataclass(frozen=True, slots=True)
class Part:
    """What one replica is to write of one table: as objects for its memory, and encoded for its log.

    The coordinator encodes once for all replicas. Therefore `origin` in a change names the coordinator; which replica
    logged it stands in the header of the log's files.
    """

    changes: Sequence[Change]
    batch: ChangeBatch

    @classmethod
    def of(cls, schema: TableSchema, changes: Sequence[Change]) -> Part:
        return cls(changes, avro.encode(schema, changes))

    @classmethod
    def joined(cls, parts: Sequence[Part]) -> Part:
        """Several parts of the same table and schema as one batch; encoded rows just follow each other."""
        if len(parts) == 1:
            return parts[0]
        times = [part.batch.when_max for part in parts if part.batch.when_max is not None]
        rows = b"".join(part.batch.rows for part in parts)
        count = sum(part.batch.count for part in parts)
        batch = ChangeBatch(parts[0].batch.schema, count, rows, max(times, default=None))
        return cls([change for part in parts for change in part.changes], batch)


@dataclass(frozen=True, slots=True)
class Hint:
    """Changes that a replica has missed."""

    target: str
    part: Part


class Node:
    """One member of the cluster."""

    def __init__(
        self, name: str, data_centre: str, number: int, *, clock: SkewedClock, files: Files, open_log: OpenLog
    ) -> None:
        self.name = name
        self.data_centre = data_centre
        self.number = number
        self.clock = clock
        self.files = files
        self.up = True
        self.down_since_us: int | None = None
        self.changes_written = 0
        # By number, so that the one that is delivered can be taken out.
        self.hints: dict[int, Hint] = {}
        self._hint_number = 0
        self._open_log = open_log
        self.origin = Origin(node=name, data_centre=data_centre)
        self._schemas: dict[TableId, TableSchema] = {}
        self._states: dict[TableId, TableState] = {}
        self._logs: dict[TableId, NodeLog | None] = {}
        self._journals: dict[TableId, list[Change]] = {}
        self._last_time = 0

    def timestamp(self) -> int:
        """A write time by this node's clock. Never twice the same, even when the clock goes back."""
        self._last_time = max(self.clock.now_us(), self._last_time + 1)
        return self._last_time

    def add_table(self, schema: TableSchema) -> None:
        """Know a table, or a new version of its schema."""
        old = self._schemas.get(schema.table)
        self._schemas[schema.table] = schema
        if self.up and old is None:
            self._load(schema)
        elif self.up:
            state = self._states[schema.table]
            self._states[schema.table] = fold(schema, state.changes())

    def write(self, part: Part) -> None:
        """Log the changes, then hold them. Raises what the log raises, and then the write has failed here."""
        table = part.batch.schema.table
        log = self._logs[table]
        if log is not None:
            batch = part.batch
            if batch.schema is not self._schemas[table]:
                # A hint from before the schema changed; the newest version holds all that older ones do.
                batch = avro.encode(self._schemas[table], part.changes)
            log.append(batch)
        if not _recoverable(log):
            self._journals.setdefault(table, []).extend(part.changes)
        state = self._states[table]
        for change in part.changes:
            state.apply(change)
        self.changes_written += len(part.changes)

    def read(self, table: TableId, key: Mapping[str, Any]) -> list[Change]:
        """What this replica knows of a partition, as changes: a copy that later writes do not touch."""
        state = self._states[table]
        partition = state.partition(key)
        if partition is not None:
            return list(state.changes(partition))
        return list(TableState.changes(_only_truncation(state)))

    def state(self, table: TableId) -> TableState:
        """All that this replica holds in memory of a table; for inspection."""
        return self._states[table]

    def crash(self, now_us: int, power_loss: PowerLoss | None) -> None:
        """Stop at once. With a simulated disk, `power_loss` says what is left of it."""
        self.up = False
        self.down_since_us = now_us
        self._states.clear()
        if power_loss is not None:
            self.files = power_loss(self.files)
        else:
            self._close_logs()
        self._logs.clear()

    def restart(self) -> None:
        """Come back with everything that was ever acknowledged. Raises what opening a log raises, and stays down."""
        try:
            for schema in self._schemas.values():
                self._load(schema)
        except PenstockError:
            self._close_logs()
            self._logs.clear()
            self._states.clear()
            raise
        self.up = True
        self.down_since_us = None

    def close(self) -> None:
        """Close the logs; the node is not used again."""
        self._close_logs()

    def add_hint(self, hint: Hint) -> None:
        self._hint_number += 1
        self.hints[self._hint_number] = hint

    def forget_hint(self, number: int) -> None:
        """The target has it now."""
        self.hints.pop(number, None)

    def _load(self, schema: TableSchema) -> None:
        log = self._logs[schema.table] = self._open_log(self, schema)
        known = log.recover() if _recoverable(log) else self._journals.get(schema.table, ())
        self._states[schema.table] = fold(schema, known)

    def _close_logs(self) -> None:
        for log in self._logs.values():
            if log is not None:
                log.close()


def _recoverable(log: object) -> TypeGuard[Recoverable]:
    return isinstance(log, Recoverable)


def _only_truncation(state: TableState) -> TableState:
    bare = TableState(state.schema)
    bare.truncation = state.truncation
    return bare
