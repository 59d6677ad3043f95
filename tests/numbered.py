"""A log whose changes are numbered, so that a test can say which came, which came twice and which are missing."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op, Set
from penstock.model.position import Position
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import LogSettings
from penstock.system.files import Files

TABLE = TableId("shop", "orders")
SCHEMA = TableSchema(TABLE, (Column("id", t.INT64, Role.PARTITION), Column("pad", t.BYTES)), source="sandbox")
SMALL_FILES = LogSettings(file_bytes_max=8192)


def batch(first: int, count: int = 1, pad: int = 0) -> ChangeBatch:
    """Changes numbered from `first` on, each with a filling of `pad` bytes."""
    filling = bytes(pad)
    return avro.encode(
        SCHEMA, [Change(Op.INSERT, {"id": first + i}, {"pad": Set(filling)}, time=1000 + i) for i in range(count)]
    )


def numbers(batches: Iterable[ChangeBatch]) -> list[int]:
    """The numbers of the changes in batches that were read."""
    return [change.key["id"] for one in batches for change in avro.decode(one)]


def fill(directory: str, count: int, *, first: int = 0, pad: int = 1500, files: Files | None = None) -> list[Position]:
    """Append changes one by one, about three to a file, and return their positions."""
    with TableLog.open(directory, SCHEMA, settings=SMALL_FILES, files=files) as log:
        return [log.append(batch(first + i, pad=pad)) for i in range(count)]


class ManualClock:
    """A clock that stands until it is moved."""

    def __init__(self, now_s: int = 1_000_000) -> None:
        self.now_s = now_s

    def now_us(self) -> int:
        return self.now_s * 1_000_000

    def monotonic(self) -> float:
        return float(self.now_s)
