"""History: what clients asked for and what they were told, and nothing else. The checker judges by it.

Each write is kept as digests of its changes, who acknowledged it and what its consistency level asked for. The digest
leaves out what differs between replicas (origin and capture time), so it finds the same change in every log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.model.change import Change
from penstock.model.schema import TableId
from penstock.sandbox.consistency import Needs


def digest(change: Change) -> bytes:
    """Sixteen bytes that name what a change says, whoever logged it."""
    said = (
        change.op.value,
        change.time,
        sorted(change.key.items()),
        sorted(change.cells.items()),
        change.marker,
        change.deletion,
        change.range,
    )
    return hashlib.blake2b(repr(said).encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Outcome:
    """One write of one table to one set of replicas."""

    number: int
    table: TableId
    digests: tuple[bytes, ...]
    replicas: tuple[str, ...]
    needs: Needs
    acknowledged: bool
    # The replicas that had acknowledged when the client was answered.
    acknowledged_by: tuple[str, ...]


class History:
    """Outcomes in the order in which clients learned them, up to a limit, and a running digest of all of them."""

    def __init__(self, *, limit: int | None = None, keep_changes: bool = False) -> None:
        self.outcomes: list[Outcome] = []
        # Every change that was ever attempted, when asked for: nothing else may be in the logs.
        self.attempts: dict[TableId, list[Change]] = {}
        self.acknowledged = 0
        self.refused = 0
        # Writes that were not kept because the limit was reached; they cannot be checked.
        self.dropped = 0
        self._limit = limit
        self._keep_changes = keep_changes
        self._running = hashlib.blake2b(digest_size=16)

    def attempt(self, table: TableId, changes: Iterable[Change]) -> None:
        if self._keep_changes:
            self.attempts.setdefault(table, []).extend(changes)

    def note(self, *facts: object) -> None:
        """Add to the running digest what is no write: reads, faults, the passing of time."""
        self._running.update(repr(facts).encode())

    def record(
        self,
        number: int,
        table: TableId,
        changes: tuple[Change, ...],
        replicas: tuple[str, ...],
        needs: Needs,
        acknowledged_by: tuple[str, ...],
        *,
        acknowledged: bool,
    ) -> None:
        """One group of changes has been answered for."""
        if acknowledged:
            self.acknowledged += len(changes)
        else:
            self.refused += len(changes)
        if self._limit is not None and len(self.outcomes) >= self._limit:
            self.dropped += len(changes)
            return
        digests = tuple(map(digest, changes))
        self.outcomes.append(Outcome(number, table, digests, replicas, needs, acknowledged, acknowledged_by))
        self._running.update(b"".join(digests))
        self.note(number, table, replicas, acknowledged, acknowledged_by)

    @property
    def fingerprint(self) -> str:
        """Equal for equal histories."""
        return self._running.copy().hexdigest()
