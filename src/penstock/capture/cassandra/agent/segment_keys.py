"""SegmentKeys: what a change of a commit log is known by: its segment, its entry's position, its number in the entry.

A segment is read in one way only, so the same write has the same key whenever it is read, also from an entry that was
parked or from a segment that is read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.capture.cassandra.segments.segment import segment_name
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change

# The segment's file, the entry's position, the number in the entry.
Key = tuple[str, int, int]


class SegmentKeys:
    """The keys of all changes that come from a commit log. Those of a snapshot have none."""

    counted = False

    def keys(self, batch: ChangeBatch) -> list[Key | None]:
        return [key(change) for change in avro.decode(batch)]

    def order(self, key: tuple[Any, ...]) -> tuple[int, ...]:
        return segment_id(key), key[1], key[2]


def key(change: Change) -> Key | None:
    """A change's identity; None when it does not come from a commit log, as those of a snapshot."""
    origin = change.origin
    if origin.file is None or origin.position is None:
        return None
    return origin.file, origin.position, origin.ordinal or 0


def segment_id(found: tuple[Any, ...]) -> int:
    """The id of the segment that a change comes from."""
    name = segment_name(found[0])
    return name.id if name is not None else 0


def reach(keys: Iterable[tuple[Any, ...]]) -> dict[int, int]:
    """The last position in each segment: by then its repeats have come."""
    out: dict[int, int] = {}
    for found in keys:
        id_ = segment_id(found)
        out[id_] = max(out.get(id_, 0), found[1])
    return out
