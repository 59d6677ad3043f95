"""Repeats: which changes a log holds already, so that reading the commit log again appends none of them twice.

The agent's place is saved after the changes before it are durable, so what was appended since then is read again after
a crash. Each change carries its origin (segment, position, number inside the mutation), which is its identity: what
stands in a log behind the end that was noted with the place is collected, and left out when it comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import structlog

from penstock.capture.cassandra.segments.segment import segment_name
from penstock.errors import ChangesLost, PositionAhead
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change
from penstock.model.position import START, Position

log = structlog.get_logger()

# A change's identity: its segment's file, its entry's position, its number in the entry.
Key = tuple[str, int, int]


def key(change: Change) -> Key | None:
    """A change's identity; None when it does not come from a commit log, as those of a snapshot."""
    origin = change.origin
    if origin.file is None or origin.position is None:
        return None
    return origin.file, origin.position, origin.ordinal or 0


def segment_id(found: Key) -> int:
    """The id of the segment that a change comes from."""
    name = segment_name(found[0])
    return name.id if name is not None else 0


class Repeats:
    """What one log holds that may come again."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        # Everything that comes before this in the commit log is in the log too; only when the place was lost.
        self._floor: tuple[int, int, int] | None = None

    def __bool__(self) -> bool:
        return bool(self._keys) or self._floor is not None

    def collect(self, reader: LogReader, after: Position | None) -> None:
        """Note what stands in the log behind `after`. None: nobody knows where the agent stood."""
        if after is not None:
            self._keys |= _keys(reader, after)
            return
        # The last file that holds changes is enough: what is not in it and came earlier is in a file before it.
        end = reader.end()
        found = _keys(reader, reader.heading(end.file).last if end != START else START)
        first = min((_order(one) for one in found), default=None)
        if first is not None and (self._floor is None or first < self._floor):
            self._floor = first
        self._keys |= found

    def without(self, batch: ChangeBatch) -> ChangeBatch | None:
        """The changes of the batch that the log does not hold yet."""
        if not self:
            return batch
        keep = [not self._holds(change) for change in avro.decode(batch)]
        return batch if all(keep) else avro.select(batch, keep)

    def forget(self, keep: Callable[[Key], bool]) -> None:
        """All that could come again from the segments has come; only what `keep` names still may, from elsewhere."""
        self._floor = None
        self._keys = {one for one in self._keys if keep(one)}

    def reach(self) -> dict[int, int]:
        """The last position of each segment that is held: by then its repeats have come."""
        return reach(self._keys)

    def _holds(self, change: Change) -> bool:
        found = key(change)
        return found is not None and (found in self._keys or (self._floor is not None and _order(found) < self._floor))


def reach(keys: Iterable[Key]) -> dict[int, int]:
    """The last position in each segment."""
    out: dict[int, int] = {}
    for found in keys:
        id_ = segment_id(found)
        out[id_] = max(out.get(id_, 0), found[1])
    return out


def _keys(reader: LogReader, after: Position) -> set[Key]:
    return {found for change in _changes(reader, after) if (found := key(change)) is not None}


def _changes(reader: LogReader, after: Position) -> Iterator[Change]:
    try:
        # One that was erased must not come back, either.
        for batch in reader.read(after, with_erased=True):
            yield from avro.decode(batch)
    except PositionAhead:
        # The log is shorter than when the place was saved: somebody removed it or put an older copy in its place.
        # Nothing of it can be called a repeat with certainty, and a change too many is better than one too few.
        log.error("change log is shorter than it was", directory=reader.directory, noted=str(after))
    except ChangesLost:
        # Retention has removed files since; what is left is all newer.
        for batch in reader.read(reader.first(), with_erased=True):
            yield from avro.decode(batch)


def _order(found: Key) -> tuple[int, int, int]:
    return segment_id(found), found[1], found[2]
