"""The source's own order: where changes are in the log that their database keeps of its transactions.

A place is the sequence of the transaction in its domain, then the ordinal in the transaction. It is the source's, not
that of a change log: whoever captures the same log again, here or on another machine, gives changes the same places. A
row that a snapshot read has the transaction of its seam and no ordinal: it comes after all changes of that transaction.
Sequences of several domains cannot be compared; changes of a table in several domains count as they are logged.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidValue
from penstock.formats.arrow import to_arrow
from penstock.model.batch import ChangeBatch
from penstock.records.keys import CONTENT_HIGH, CONTENT_LOW, Scan

_LAST = (1 << 63) - 1
_PARTS = frozenset(("origin",))
# Odd numbers with bits all over, which spread those of a number over a hash.
_SPREAD = tuple(np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class SourceOrder(NamedTuple):
    """Per change: its domain as a number, sequence and ordinal, and when it was; numpy arrays."""

    domains: Any
    sequences: Any
    ordinals: Any
    whens: Any

    def take(self, chosen: Any) -> SourceOrder:
        return SourceOrder(*(column[chosen] for column in self))

    def sorted(self) -> Any:
        """The numbers of the changes in order, of several with one place the first.

        All rows that a snapshot read have the place of its seam, so none of them is left out.
        """
        order = np.lexsort((self.ordinals, self.sequences, self.domains))
        ordered = self.take(order)
        order = order[~ordered.is_repeat() | (ordered.ordinals == _LAST)]
        several = len(order) and (self.domains[order] != self.domains[order[0]]).any()
        return np.sort(order) if several else order

    def is_repeat(self) -> Any:
        """Which have the place of the one before them."""
        repeat = np.zeros(len(self.domains), bool)
        repeat[1:] = np.logical_and.reduce([column[1:] == column[:-1] for column in self[:3]])
        return repeat

    def is_after(self, other: SourceOrder) -> Any:
        """Which of these come after the others, one by one; where domains differ, all that is logged now does."""
        later = self.sequences > other.sequences
        later |= (self.sequences == other.sequences) & (self.ordinals > other.ordinals)
        return later | (self.domains != other.domains)

    def mark(self, scan: Scan) -> None:
        """Let the scan know changes by their places instead of by what they say.

        Rows of a snapshot share the place of its seam: each of them is known by both.
        """
        copied = self.ordinals == _LAST
        for lane, turn in ((CONTENT_HIGH, 0), (CONTENT_LOW, 1)):
            found = np.zeros(len(scan), np.uint64)
            for column, spread in zip(self[:3], _SPREAD[turn:] + _SPREAD[:turn], strict=True):
                found = (found ^ column.astype(np.uint64)) * spread
                found ^= found >> np.uint64(29 + turn)
            scan.hashes[:, lane] = np.where(copied, found ^ scan.hashes[:, lane], found)


def source_order(batch: ChangeBatch) -> SourceOrder:
    """The places of the changes that count. Raises InvalidValue when one has none."""
    columns = to_arrow(batch, (), _PARTS)
    origin = columns.column("origin")
    transaction = pc.struct_field(origin, ["transaction"])
    if transaction.null_count:
        raise InvalidValue("a change without its place in the source's log", table=batch.schema.table)
    domains = pc.dictionary_encode(transaction.field("domain"))
    numbers = np.array([_domain_number(name) for name in domains.dictionary.to_pylist()] or [0], np.int64)
    times = [columns.column(name).cast(pa.int64()) for name in ("commit_time", "time", "capture_time")]
    return SourceOrder(
        numbers[domains.indices.to_numpy(zero_copy_only=False)] if len(batch) else np.zeros(0, np.int64),
        _integers(transaction.field("sequence")),
        _integers(pc.struct_field(origin, ["ordinal"]), _LAST),
        _integers(pc.coalesce(*times)),
    )


def climbing(groups: Any, times: Any, floors: Any) -> Any:
    """Times made to grow within each group, whose members are next to each other, and begin above its floor.

    `floors` has an entry per member, of which the group's first counts.
    """
    count = len(groups)
    if not count:
        return np.zeros(0, np.int64)
    begins = np.concatenate(([True], groups[1:] != groups[:-1]))
    starts = np.flatnonzero(begins)
    ranks = np.arange(count) - np.repeat(starts, np.diff(np.append(starts, count)))
    # With r the place in the group, the greatest (time - r) so far, plus r, is the least that grows.
    least = times - ranks
    least[starts] = np.maximum(least[starts], floors[starts] + 1)
    codes, back = np.unique(least, return_inverse=True)
    base = (np.cumsum(begins) - 1) * (len(codes) + 1)
    return codes[np.maximum.accumulate(base + back) - base] + ranks


def _integers(values: pa.Array, none: int = 0) -> Any:
    return pc.fill_null(values, none).to_numpy(zero_copy_only=False).astype(np.int64)


def _domain_number(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
