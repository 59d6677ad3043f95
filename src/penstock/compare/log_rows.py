"""The rows that the change logs of all nodes give together, folded by the plain merge and not by the pipeline's own.

It is the source of a comparison where there is no database to ask, as in the sandbox, and a referee for the pipeline:
the two folds have no code in common but the rules. Of each node's log what counts is what the node itself still has:
the newest table of that name, since the node last truncated it, and of its columns what is newer than all drops since;
of a log that ended before the others were truncated, nothing. Large logs are first spread over buckets of partitions on
disk, and one bucket is folded after another, so that memory does not grow with the table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from penstock.compare.shape import Shape
from penstock.compare.sides import SourceRows
from penstock.errors import InvalidInput
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.merge.dropped import without_older
from penstock.merge.table_state import TableState, visible
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Marker, Op, Set
from penstock.model.schema import Order, TableId, TableSchema
from penstock.records.records import images, pick
from penstock.system.checksum import crc32

_BATCH_ROWS = 10_000
# About so much of the logs is folded at once; as Python's objects it takes some thirty times as much.
_BUCKET_BYTES = 8 << 20
_BUCKETS_MAX = 1024
# Nodes truncate a table within this of each other.
_TRUNCATION_US = 10_000_000


class LogRows(SourceRows):
    """The rows of one table, from all its logs."""

    def __init__(
        self,
        directories: Sequence[str],
        table: TableId,
        shape: Shape,
        now_s: int,
        *,
        bucket_bytes: int = _BUCKET_BYTES,
    ) -> None:
        self.name = f"the logs of {table}"
        self.shape = shape
        self._directories = directories
        self._now_s = now_s
        self._bucket_bytes = bucket_bytes
        self.schema = newest_schema(directories, table)
        self._remade_us = max(map(self._last_remade, directories), default=0)
        self._drops = {drop for directory in directories for drop in self._dropped(directory)}

    def images(self) -> Iterator[pa.StructArray]:
        if self.schema.ordered_by is Order.LOG:
            for batches in self._parted():
                yield from as_images(self.schema, _in_order(self._changes(batches)))
            return
        for state in self.states():
            yield from as_images(self.schema, visible(state, self._now_s))

    def states(self) -> Iterator[TableState]:
        for batches in self._parted():
            state = TableState(self.schema)
            for change in self._changes(batches):
                state.apply(change)
            yield state

    def _parted(self) -> Iterator[Iterable[ChangeBatch]]:
        """The changes of all logs, some partitions after the other."""
        size = sum(file.stat().st_size for directory in self._directories for file in Path(directory).iterdir())
        buckets = min(_BUCKETS_MAX, size // self._bucket_bytes)
        if buckets < 2:
            yield self._batches()
            return
        with tempfile.TemporaryFile(prefix="penstock-compare-") as file:
            for parts in self._spread(file, buckets):
                yield (part.read(file) for part in parts)

    def _batches(self) -> Iterator[ChangeBatch]:
        last = {directory: self._last_truncation(directory) for directory in self._directories}
        newest = max((truncated_us for truncated_us, _ in last.values()), default=0)
        for directory, (truncated_us, since_us) in last.items():
            if max(truncated_us, since_us) < newest - _TRUNCATION_US:
                continue
            with LogReader(directory) as reader:
                for batch in reader.read():
                    if self._is_same_table(batch.schema) and batch.schema.truncated_us == truncated_us:
                        yield batch

    def _is_same_table(self, schema: TableSchema) -> bool:
        if not schema.id or not self.schema.id:
            return True
        return schema.id == self.schema.id and not 0 < schema.altered <= self._remade_us

    def _last_remade(self, directory: str) -> int:
        """When a table that had this one's id before was last altered; 0: none had, or this node has not seen it."""
        with LogReader(directory) as reader:
            schemas = [reader.heading(number).schema for number in reader.numbers()]
        return max((schema.remade_us for schema in schemas if schema.id == self.schema.id), default=0)

    def _dropped(self, directory: str) -> set[tuple[int, str, int]]:
        """The drops of columns that a log tells of: the version that says it, the column, and the time of the drop."""
        with LogReader(directory) as reader:
            schemas = [reader.heading(number).schema for number in reader.numbers()]
        found: set[tuple[int, str, int]] = set()
        for schema in filter(self._is_same_table, schemas):
            again = ((one.name, one.dropped_us) for one in schema.cells if one.dropped_us is not None)
            found |= {(schema.altered, name, time) for name, time in (*again, *schema.dropped)}
        return found

    def _floors(self, schema: TableSchema) -> dict[str, int]:
        """Up to which time cells are gone that were logged under a version: the drops that it knows, and later ones."""
        floors: dict[str, int] = {}
        for altered, name, time in self._drops:
            if altered >= schema.altered:
                floors[name] = max(time, floors.get(name, time))
        return floors

    def _last_truncation(self, directory: str) -> tuple[int, int]:
        """When a node last truncated the table, and when its log began; 0: never, or nobody knows."""
        with LogReader(directory) as reader:
            schemas = [reader.heading(number).schema for number in reader.numbers()]
        found = [schema for schema in schemas if self._is_same_table(schema)]
        times = [(schema.truncated_us, schema.since_us) for schema in found]
        return max((one for one, _ in times), default=0), max((one for _, one in times), default=0)

    def _changes(self, batches: Iterable[ChangeBatch]) -> Iterator[Change]:
        """The changes as those of the newest version of the schema."""
        names = {column.name for column in self.schema.columns}
        for batch in batches:
            # Key columns are never added or dropped, but may get another name.
            pairs = zip(batch.schema.key, self.schema.key, strict=True)
            renamed = {old.name: new.name for old, new in pairs if old.name != new.name}
            floors = self._floors(batch.schema)
            for change in avro.decode(batch):
                if change.op is Op.TRUNCATE and batch.schema.id and batch.schema.ordered_by is Order.WRITE_TIME:
                    continue
                # What a dropped column held is of no more interest.
                cells = {name: cell for name, cell in change.cells.items() if name in names}
                key = {renamed.get(name, name): value for name, value in change.key.items()}
                yield without_older(replace(change, cells=cells, key=key), floors)

    def _spread(self, file: IO[bytes], buckets: int) -> list[list[_Part]]:
        """Write the changes into the file, those of one bucket of partitions together; where those of each are."""
        parts: list[list[_Part]] = [[] for _ in range(buckets)]
        for batch in self._batches():
            numbers: list[list[int]] = [[] for _ in range(buckets)]
            for number, change in enumerate(avro.decode(batch)):
                # The truncation of the table concerns every bucket.
                for chosen in numbers if change.op is Op.TRUNCATE else [numbers[_bucket(change, batch, buckets)]]:
                    chosen.append(number)
            for bucket, chosen in enumerate(numbers):
                if chosen:
                    picked = pick(batch, pa.array(chosen, pa.int64()))
                    parts[bucket].append(_Part(picked.schema, len(chosen), file.tell(), len(picked.rows)))
                    file.write(picked.rows)
        return parts


@dataclass(frozen=True, slots=True)
class _Part:
    """Some changes of one bucket: where in the file they are."""

    schema: TableSchema
    count: int
    place: int
    size: int

    def read(self, file: IO[bytes]) -> ChangeBatch:
        file.seek(self.place)
        return ChangeBatch(self.schema, self.count, file.read(self.size))


def _in_order(changes: Iterable[Change]) -> Iterator[dict[str, Any]]:
    """The rows of a table that is ordered by its log: its changes one after another, of one place the first."""
    found: dict[tuple[str, int, float], Change] = {}
    for change in changes:
        transaction, ordinal = change.origin.transaction, change.origin.ordinal
        if transaction is None:
            raise InvalidInput("a change does not say where it is in its source's log", key=sorted(change.key))
        found.setdefault((transaction.domain, transaction.sequence, inf if ordinal is None else ordinal), change)
    # Sequences of several domains cannot be compared: there the order of the log counts.
    alone = len({domain for domain, _, _ in found}) == 1
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for place in sorted(found) if alone else found:
        change = found[place]
        name = tuple(map(repr, change.key.values()))
        if change.op is Op.TRUNCATE:
            rows.clear()
        elif change.op in (Op.DELETE, Op.DELETE_PARTITION):
            rows.pop(name, None)
        else:
            known = {} if change.op in (Op.INSERT, Op.SNAPSHOT) else rows.get(name, {})
            cells = {column: getattr(cell, "value", None) for column, cell in change.cells.items()}
            rows[name] = known | dict(change.key) | cells
    yield from rows.values()


def _bucket(change: Change, batch: ChangeBatch, buckets: int) -> int:
    """The same for all changes of a partition."""
    values = [change.key[column.name] for column in batch.schema.partition]
    return crc32(repr(values).encode()) % buckets


def newest_schema(directories: Iterable[str], table: TableId) -> TableSchema:
    """The newest schema that any of the logs has."""
    newest: TableSchema | None = None
    for directory in directories:
        with LogReader(directory) as reader:
            numbers = reader.numbers()
            found = reader.heading(numbers[-1]).schema if numbers else None
        if found is not None and (newest is None or found.order > newest.order):
            newest = found
    if newest is None:
        raise InvalidInput("there is no log of this table", table=table)
    return newest


def as_images(schema: TableSchema, rows: Iterable[dict[str, Any]]) -> Iterator[pa.StructArray]:
    """Rows as `visible` gives them, as columns."""
    keys = {column.name for column in schema.key}
    waiting: list[Change] = []
    for row in rows:
        there = {name: value for name, value in row.items() if value is not None}
        key = {name: value for name, value in there.items() if name in keys}
        cells = {name: Set(value) for name, value in there.items() if name not in keys}
        marker = Marker() if len(key) == len(keys) else None
        waiting.append(Change(Op.INSERT, key, cells, time=0, marker=marker))
        if len(waiting) == _BATCH_ROWS:
            yield images(schema, avro.encode(schema, waiting), 0)
            waiting = []
    if waiting:
        yield images(schema, avro.encode(schema, waiting), 0)
