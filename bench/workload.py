"""The workload: a table of 1 KB rows, batches of it encoded beforehand, and what is needed to check them again.

The peers are given bytes that were made before the clock started, so ours are too: a batch holds encoded rows. Batches
of one size share their filling and differ in their first row, which carries a time and a transaction of its own.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Iterable

from bench.harness import CheckFailed
from penstock.formats import avro
from penstock.log.block import unseal
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op, Origin, Set, Transaction
from penstock.model.position import Position
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import BYTES, INT64

SCHEMA = TableSchema(
    TableId("bench", "rows"),
    (Column("id", INT64, Role.PARTITION), Column("payload", BYTES)),
    source="bench",
)
# Microseconds since 1970: one round moment, from which every run counts on.
EPOCH_US = 1_700_000_000_000_000
# The domain of the workload's transactions.
DOMAIN = "0"
ROW_BYTES = 1024
# Bytes that no codec or disk can make smaller.
_FILLING = os.urandom(ROW_BYTES)


def change(number: int) -> Change:
    """Change `number`: its time and its transaction grow with it. Its row takes about `ROW_BYTES`."""
    return Change(
        Op.INSERT,
        key={"id": number},
        cells={"payload": Set(_FILLING[:_PAYLOAD_BYTES])},
        time=EPOCH_US + number,
        origin=Origin(transaction=Transaction(DOMAIN, number, str(number))),
    )


def single(number: int) -> ChangeBatch:
    """A batch of one change."""
    return avro.encode(SCHEMA, [change(number)])


class Batches:
    """Batches of about `size` bytes: one new row and a run of rows that are encoded once and shared by all."""

    def __init__(self, size: int) -> None:
        self.count = max(1, size // ROW_BYTES)
        self._numbers = itertools.count(1)
        # The shared rows are older than any first row and belong to no transaction.
        filling = {"payload": Set(_FILLING[:_PAYLOAD_BYTES])}
        old = [Change(Op.INSERT, key={"id": -n}, cells=filling, time=EPOCH_US - n) for n in range(1, self.count)]
        self._shared = bytes(avro.encode(SCHEMA, old).rows) if old else b""

    def next(self) -> ChangeBatch:
        first = single(next(self._numbers))
        if not self._shared:
            return first
        return ChangeBatch(SCHEMA, self.count, bytes(first.rows) + self._shared, first.when_max, first.transactions)

    def take(self, count: int) -> list[ChangeBatch]:
        return [self.next() for _ in range(count)]


class Ledger:
    """What was acknowledged, with the position that was given for it; checked against what a reader finds there."""

    def __init__(self) -> None:
        self.changes = 0
        self._expected: dict[Position, tuple[int, int]] = {}

    def add(self, batch: ChangeBatch, position: Position) -> None:
        self.changes += batch.count
        self._expected[position] = (batch.count, zlib.crc32(batch.rows))

    def verify(self, read: Iterable[ChangeBatch]) -> None:
        """Every acknowledged batch stands at its position, byte for byte, and there is nothing else."""
        expected = dict(self._expected)
        found = 0
        for block in read:
            rows = memoryview(unseal(block.rows, block.count))
            offsets = avro.row_offsets(block.schema, rows, block.count)
            for ordinal in range(block.count):
                want = expected.pop(Position(block.file, block.offset, ordinal), None)
                if want is None:
                    continue
                count, checksum = want
                if zlib.crc32(rows[offsets[ordinal + 1 - count] : offsets[ordinal + 1]]) != checksum:
                    raise CheckFailed(f"other bytes at {block.file}:{block.offset}:{ordinal}")
            found += block.count
        if expected or found != self.changes:
            raise CheckFailed(f"{len(expected)} batches missing; {found} changes read, {self.changes} appended")


# What a row of this table costs beside its payload, so that the whole of it comes to about a kilobyte.
_PAYLOAD_BYTES = ROW_BYTES - 36
