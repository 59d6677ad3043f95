"""Parking for one run of a command: whatever still waits for a schema when the run ends is reported, not kept.

`SpooledParking` has entries in memory up to a bound and in a temporary file beyond it; `CountingParking` is for runs
that only want to know how many there are.
"""

from __future__ import annotations

import tempfile
import uuid
from collections import deque
from types import TracebackType
from typing import NamedTuple, Self

from penstock.capture.cassandra.decoding.decoder import ParkedEntry
from penstock.log.refusal import refused

_MEMORY_BYTES = 32 << 20
# What is given back at once.
_TAKEN_BYTES = 4 << 20


class CountingParking:
    """Keeps nothing but how many entries could not be decoded where they stood."""

    def __init__(self) -> None:
        self.counts: dict[uuid.UUID, int] = {}

    def park(self, entry: ParkedEntry) -> None:
        self.counts[entry.table] = self.counts.get(entry.table, 0) + 1

    def holds(self, table: uuid.UUID) -> bool:
        del table
        return False

    def take(self, table: uuid.UUID) -> list[ParkedEntry]:
        del table
        return []


class _Spooled(NamedTuple):
    entry: ParkedEntry
    offset: int
    size: int


class SpooledParking:
    """Parking for one run. Close it when done."""

    def __init__(self, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=memory_bytes, prefix="penstock-parked-")  # noqa: SIM115
        self._end = 0
        self._waiting: dict[uuid.UUID, deque[_Spooled]] = {}

    def park(self, entry: ParkedEntry) -> None:
        """Keep an entry behind those that wait for the same table."""
        try:
            self._file.seek(self._end)
            self._file.write(entry.data)
        except OSError as error:
            raise refused(error, "parking an entry", tempfile.gettempdir()) from error
        spooled = _Spooled(entry._replace(data=b""), self._end, len(entry.data))
        self._waiting.setdefault(entry.table, deque()).append(spooled)
        self._end += spooled.size

    def holds(self, table: uuid.UUID) -> bool:
        return table in self._waiting

    def take(self, table: uuid.UUID) -> list[ParkedEntry]:
        """Some of what waits for a table, in order; empty when nothing does."""
        waiting = self._waiting.get(table)
        out: list[ParkedEntry] = []
        size = 0
        while waiting and size < _TAKEN_BYTES:
            spooled = waiting.popleft()
            out.append(spooled.entry._replace(data=self._read(spooled)))
            size += spooled.size
        if not waiting:
            self._waiting.pop(table, None)
        if not self._waiting:
            # Nothing waits, so the room can be used again.
            self._end = 0
        return out

    def _read(self, spooled: _Spooled) -> bytes:
        try:
            self._file.seek(spooled.offset)
            return self._file.read(spooled.size)
        except OSError as error:
            raise refused(error, "reading a parked entry", tempfile.gettempdir()) from error

    def counts(self) -> dict[uuid.UUID, tuple[int, str]]:
        """By table how many entries wait, and why the first of them does."""
        return {table: (len(waiting), waiting[0].entry.reason) for table, waiting in self._waiting.items()}

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
