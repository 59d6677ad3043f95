"""LogKeys: what a change of a change log is known by: its place in the first source, or else what it says.

A log gives its changes in one order, each once, so equal keys can be counted. The place in the first source comes
first, because it stays what it is when values are masked or erased.
"""

from __future__ import annotations

import hashlib
from typing import Any

from penstock.capture.repeats import Key
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Origin


class LogKeys:
    """The keys of all changes of a change log. They have no order that could be told from them."""

    counted = True

    def keys(self, batch: ChangeBatch) -> list[Key]:
        changes = avro.decode(batch)
        starts, ends = avro.bounds(batch.schema, batch.rows, batch.count)
        rows = memoryview(batch.rows)
        out = []
        for index, change in enumerate(changes, batch.skip):
            found = _place(change.origin)
            out.append(found or (hashlib.blake2b(rows[starts[index] : ends[index]], digest_size=16).digest(),))
        return out

    def order(self, key: tuple[Any, ...]) -> None:  # noqa: ARG002 - the contract's
        return None


def _place(origin: Origin) -> Key | None:
    """Where the first source had it; None when that does not tell changes apart."""
    if origin.file is not None and origin.position is not None:
        return origin.file, origin.position, origin.ordinal
    if origin.transaction is not None and origin.ordinal is not None:
        return origin.transaction.domain, origin.transaction.sequence, origin.ordinal
    return None
