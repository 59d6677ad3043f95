"""Repeats: which changes a log holds already, so that reading a source again appends none of them twice.

The agent's place is saved after the changes before it are durable, so what was appended since then is read again after
a crash: what stands in a log after the end that was noted with the place is collected, and left out when it comes
again. What makes two changes the same one is the source's to say (`ChangeKeys`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import structlog

from penstock.errors import ChangesLost, CorruptCheckpoint, PositionAhead
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.model.batch import ChangeBatch
from penstock.model.position import START, Position

log = structlog.get_logger()

# A change's identity in its source.
Key = tuple[Any, ...]


class ChangeKeys(Protocol):
    """What a source knows its changes by."""

    @property
    def counted(self) -> bool:
        """Whether different changes may have the same key: then a key in the log is that of one change alone.

        Such a source gives its changes in the same order each time, and from the saved place on.
        """
        ...

    def keys(self, batch: ChangeBatch) -> Sequence[Key | None]:
        """The key of each change of the batch that counts; None when it does not come from the source's log."""
        ...

    def order(self, key: Key) -> tuple[int, ...] | None:
        """What keys are compared by: the source gives the lesser first. None when keys do not tell."""
        ...


class Repeats:
    """What one log holds that may come again."""

    def __init__(self, keys: ChangeKeys) -> None:
        self._of = keys
        self._keys: Counter[Key] = Counter()
        # Everything that comes before this in the source is in the log too; only when the place was lost.
        self._floor: tuple[int, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self._keys) or self._floor is not None

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def collect(self, reader: LogReader, after: Position | None) -> None:
        """Note what stands in the log behind `after`. None: nobody knows where the agent stood."""
        if after is not None:
            self._keys.update(self._read(reader, after))
            return
        # The last file that holds changes is enough: what is not in it and came earlier is in a file before it.
        end = reader.end()
        found = list(self._read(reader, reader.heading(end.file).last if end != START else START))
        first = min((self._order(one, reader) for one in found), default=None)
        if first is not None and (self._floor is None or first < self._floor):
            self._floor = first
        self._keys.update(found)

    def without(self, batch: ChangeBatch) -> ChangeBatch | None:
        """The changes of the batch that the log does not hold yet."""
        if not self:
            return batch
        keep = [not self._holds(key) for key in self._of.keys(batch)]
        return batch if all(keep) else avro.select(batch, keep)

    def forget(self, keep: Callable[[Any], bool]) -> None:
        """All that could come again from the source has come; only what `keep` names still may, from elsewhere."""
        self._floor = None
        self._keys = Counter({key: count for key, count in self._keys.items() if keep(key)})

    def _holds(self, key: Key | None) -> bool:
        if key is None:
            return False
        if key not in self._keys:
            order = None if self._floor is None else self._of.order(key)
            return order is not None and self._floor is not None and order < self._floor
        if self._of.counted:
            self._keys[key] -= 1
            if not self._keys[key]:
                del self._keys[key]
        return True

    def _order(self, key: Key, reader: LogReader) -> tuple[int, ...]:
        found = self._of.order(key)
        if found is None:
            # To begin again would append everything twice, and nothing tells where to go on.
            message = "the log holds changes, and the agent's place is gone that would tell which"
            raise CorruptCheckpoint(message, directory=reader.directory)
        return found

    def _read(self, reader: LogReader, after: Position) -> Iterable[Key]:
        for batch in _batches(reader, after):
            yield from (key for key in self._of.keys(batch) if key is not None)


def _batches(reader: LogReader, after: Position) -> Iterator[ChangeBatch]:
    try:
        # One that was erased must not come back, either.
        yield from reader.read(after, with_erased=True)
    except PositionAhead:
        # The log is shorter than when the place was saved: somebody removed it or put an older copy in its place.
        # Nothing of it can be called a repeat with certainty, and a change too many is better than one too few.
        log.error("change log is shorter than it was", directory=reader.directory, noted=str(after))
    except ChangesLost:
        # Retention has removed files since; what is left is all newer.
        yield from reader.read(reader.first(), with_erased=True)
