"""Era division: which of a table's decoded changes came before a truncation of it, and which after.

A node notes a truncation with the place in its commit log up to which the table is gone; each change has its own place.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from penstock.capture.cassandra.schema.table import Truncation
from penstock.capture.cassandra.segments.segment import segment_name
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Origin


class Overtaken(NamedTuple):
    """Entries that were decoded before it was known that they came after a truncation: they are to be decoded again.

    Of this table, and between two places of the log.
    """

    table: uuid.UUID
    after: tuple[int, int]
    until: tuple[int, int]


def of_era(batch: ChangeBatch, truncated_us: int) -> ChangeBatch:
    """The changes as of the era that a truncation began; 0: of one before any."""
    if batch.schema.truncated_us == truncated_us:
        return batch
    return replace(batch, schema=replace(batch.schema, truncated_us=truncated_us))


def divided(batch: ChangeBatch, truncation: Truncation) -> Iterator[ChangeBatch]:
    """What came before a truncation, as rows of an era before it, and what came after it."""
    after = [_came_after(change.origin, truncation) for change in avro.decode(batch)]
    gone = avro.select(batch, [not one for one in after])
    if gone is not None:
        yield gone if batch.schema.truncated_us < truncation.time_us else of_era(gone, 0)
    kept = avro.select(batch, after)
    if kept is not None:
        yield of_era(kept, truncation.time_us)


def _came_after(origin: Origin, truncation: Truncation) -> bool:
    name = segment_name(origin.file or "")
    return (name.id if name is not None else 0, origin.position or 0) > truncation.place
