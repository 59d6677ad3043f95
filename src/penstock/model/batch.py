"""ChangeBatch: a run of changes of one table and one schema version, encoded, with their positions.

Hot paths pass batches; no Python object is made per change. `rows` holds the Avro binary encoding of the changes, one
after another (docs/formats/change-log.md), exactly as they stand in a block of the change log. A batch that was not
appended yet has no position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.position import Position
from penstock.model.schema import TableSchema


class TransactionMark(NamedTuple):
    """The first change of a transaction in a batch."""

    domain: str
    sequence: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Encoded changes. `first` is where the block starts; the changes before `skip` were read already."""

    schema: TableSchema
    count: int
    rows: bytes | memoryview
    # The greatest `Change.when` of the batch, None when no change has one.
    when_max: int | None = None
    transactions: tuple[TransactionMark, ...] = ()
    # File number and offset of the block, once appended.
    file: int = 0
    offset: int = 0
    skip: int = 0

    @property
    def last(self) -> Position:
        """The position of the last change; what to commit when the whole batch is done."""
        return Position(self.file, self.offset, self.count - 1)

    @property
    def first(self) -> Position:
        """The position of the first change that counts."""
        return Position(self.file, self.offset, self.skip)

    def __len__(self) -> int:
        return self.count - self.skip
