"""Reading stretches of logs in a task, and making runs of them.

Blocks are small when a node is quiet and large when it is busy; here they are put together until there is enough for
Arrow and for Spark to work with at once. Memory is bounded by that amount, whatever a task reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from penstock.errors import CorruptLog
from penstock.formats import avro, container
from penstock.log import erased, segment
from penstock.log.block import Block, TornBlock
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.model.batch import ChangeBatch
from penstock.model.schema import Era, Order, TableId, TableSchema
from penstock.pipeline.source.backlog import Stretch
from penstock.pipeline.source.places import Address
from penstock.records import runs
from penstock.records._groups import Contents
from penstock.records.keys import Part, split
from penstock.records.runs import Run

# Blocks are put together up to about this size before they are worked on.
GATHER_BYTES = 2 << 20
# A run that has grown to this size is sent on, and so is everything when all runs together have grown to the other.
# Java copies a run several times on its way, which takes longer when it does not fit the processor's cache.
RUN_BYTES = 512 << 10
_RUN_GATHER_BYTES = 1 << 20
HELD_BYTES = 32 << 20
# More than the size of any file of a log needs.
_OFFSET_BITS = 40


@lru_cache(maxsize=1024)
def _seal_bytes(epoch: int) -> int:
    """The length of a block's seal: the branch of its union, the writer's epoch and a checksum."""
    return 1 + len(container.long_bytes(epoch)) + 4


@dataclass(slots=True)
class Gathered:
    """Changes of consecutive blocks of one file, without seals."""

    schema: TableSchema
    file: int
    parts: list[bytes | memoryview] = field(default_factory=list)
    # Of each block: its offset, the ordinal of the first change that counts, and how many count.
    blocks: list[tuple[int, int, int]] = field(default_factory=list)
    bytes: int = 0
    count: int = 0

    @property
    def place(self) -> int:
        """A number that grows with the place of the first change in its log."""
        return self.file << _OFFSET_BITS | self.blocks[0][0]

    def batch(self) -> ChangeBatch:
        """All of it as one batch without positions."""
        rows = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        return ChangeBatch(self.schema, self.count, rows)

    def add(self, block: Block, skip: int, until: int) -> None:
        """Take the changes of a block from number `skip` up to number `until`."""
        if skip or until < block.count:
            whole = ChangeBatch(self.schema, block.count, block.rows, skip=skip)
            chosen = avro.select(whole, [True] * (until - skip) + [False] * (block.count - until))
            assert chosen is not None
            self.parts.append(chosen.rows)
            self.bytes += len(chosen.rows)
        else:
            # The block was checked when it was read, so its seal is where it must be.
            end = len(block.rows) - _seal_bytes(block.epoch)
            self.parts += (memoryview(block.rows)[:end], b"\0")
            self.bytes += end + 1
        self.blocks.append((block.offset, skip, until - skip))
        self.count += until - skip


def gather(reader: LogReader, stretch: Stretch, size: int = GATHER_BYTES) -> Iterator[Gathered]:
    """The changes of a stretch, in log order."""
    heading = reader.heading(stretch.number)
    held = Gathered(heading.schema, stretch.number)
    for block, skip, until in _blocks(reader, stretch):
        held.add(block, skip, until)
        if held.bytes >= size:
            yield held
            held = Gathered(heading.schema, stretch.number)
    if held.count:
        yield held


def _blocks(reader: LogReader, stretch: Stretch) -> Iterator[tuple[Block, int, int]]:
    """The blocks of a stretch, and from which to which of its changes each belongs to it."""
    number, at, skip = stretch.number, stretch.start, stretch.skip
    heading = reader.heading(number)
    limit = stretch.stop
    if stretch.tail:
        limit = reader.file_end(number, reader.watermark(), reader.numbers())
    file = reader.open(number)
    try:
        for block in segment.blocks(file, heading, at, limit):
            last = block.offset >= stretch.stop
            until = min(stretch.tail, block.count) if last else block.count
            if block.erased:
                runs = erased.left(heading.schema, block, skip)
                yield from ((block, begin, min(end, until)) for begin, end in runs if begin < until)
            elif skip < until:
                yield block, skip, until
            if last:
                return
            at, skip = block.end, 0
    except TornBlock as torn:
        path = reader.path(number)
        raise CorruptLog(f"damage inside the log: {torn.reason}", file=path, offset=at, table=reader.table) from torn
    except OSError as error:
        raise refused(error, "reading a file of the log", reader.path(number)) from error
    finally:
        file.close()
        # Readers are kept from task to task, and there may be many.
        reader.close()


@dataclass(slots=True)
class _Held:
    """A run that still grows."""

    schema: TableSchema
    node: str
    bucket: int
    place: int
    parts: list[bytes | memoryview] = field(default_factory=list)
    count: int = 0
    size: int = 0
    left_out: int = 0

    def run(self) -> Run:
        rows = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        return Run(self.schema, self.node, self.bucket, self.count, rows, self.place, self.left_out)


class RunBuilder:
    """Divides changes into buckets, and joins what belongs together to long runs.

    Of the tables that are `copied`, a change that says what one before has said is left out. They are given table by
    table, and node by node in the order of their names: then the copy that stays is the one that the fold would take.
    """

    def __init__(
        self,
        buckets: int,
        copied: frozenset[TableId] = frozenset(),
        *,
        run_bytes: int = RUN_BYTES,
        held_bytes: int = HELD_BYTES,
    ) -> None:
        self._buckets = buckets
        self._copied = copied
        # What the changes of one table have said so far, by era. Those of two nodes are of one era for sure when the
        # table was never truncated; else the fold finds out.
        self._said: tuple[TableId, dict[Era, Contents]] | None = None
        self._run_bytes = run_bytes
        self._held_bytes = held_bytes
        self._held: dict[tuple[str, str, int], _Held] = {}
        self._bytes = 0

    def add(self, node: str, gathered: Gathered) -> Iterator[Run]:
        """Take changes; gives the runs that are long enough by that."""
        batch = gathered.batch()
        text = runs.schema_text(batch.schema)
        for part in self._divide(batch):
            key = text, node, part.bucket
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = _Held(batch.schema, node, part.bucket, gathered.place)
            held.left_out += part.copies - part.count
            if not part.count:
                continue
            held.parts.append(part.rows)
            held.count += part.count
            held.size += len(part.rows)
            self._bytes += len(part.rows)
            if held.size >= self._run_bytes:
                del self._held[key]
                self._bytes -= held.size
                yield held.run()
        if self._bytes >= self._held_bytes:
            yield from self.finish()

    def finish(self) -> Iterator[Run]:
        """What is left."""
        held, self._held, self._bytes = self._held, {}, 0
        return (one.run() for one in held.values())

    def _divide(self, batch: ChangeBatch) -> list[Part]:
        table = batch.schema.table
        # Only by write time does the same said twice mean a copy.
        if table in self._copied and batch.schema.ordered_by is Order.WRITE_TIME:
            if self._said is None or self._said[0] != table:
                self._said = table, {}
            era = batch.schema.era
            if era not in self._said[1]:
                self._said[1][era] = Contents()
            return split(batch, self._buckets, self._said[1][era])
        if self._buckets == 1:
            return [Part(0, batch.count, memoryview(batch.rows), batch.count)]
        return split(batch, self._buckets)


def read_runs(
    pieces: Iterable[tuple[Address, LogReader, Stretch]],
    buckets: int,
    copied: frozenset[TableId] = frozenset(),
    size: int = RUN_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The changes of a partition as record batches of runs, each of about `size` bytes.

    Of tables that are `copied` each change is given once.
    """
    builder = RunBuilder(buckets, copied, run_bytes=size)
    ready: list[Run] = []
    held = 0
    for address, reader, stretch in pieces:
        for gathered in gather(reader, stretch, _RUN_GATHER_BYTES):
            for run in builder.add(address.node, gathered):
                ready.append(run)
                held += len(run.rows)
            if held >= size:
                yield runs.to_arrow(ready)
                ready, held = [], 0
    for run in builder.finish():
        ready.append(run)
        held += len(run.rows)
        if held >= size:
            yield runs.to_arrow(ready)
            ready, held = [], 0
    if ready:
        yield runs.to_arrow(ready)
