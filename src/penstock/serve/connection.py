"""Connection: one client of the listener, from its greeting's acceptance to its end.

Three tasks share it. One sends: hot changes from the client's queue, or, when the queue had to pass some over, changes
from the log's files until the two meet; no change is left out and none is sent twice. One reads acknowledgements. One
makes them durable, several at a time when they come fast, and only then lets the sender answer them. A slow client
stops its own sender and nothing else.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

from penstock.errors import ChangesLost, CorruptFrame, InvalidInput, PositionAhead, PositionBehind
from penstock.formats import avro
from penstock.log import retention
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.model.batch import ChangeBatch
from penstock.model.position import START, Position
from penstock.model.schema import TableSchema
from penstock.serve.feed import Feed, Queue
from penstock.serve.protocol import Ack, Acked, Changes, Format, Frame, Heartbeat, Kind, Parser, Schema, parse
from penstock.serve.rendering import pieces
from penstock.settings import ListenerSettings
from penstock.system.clock import Clock

# How much is written to the socket, or read from files, in one go.
CHUNK_BYTES = 256 << 10
READ_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Link:
    """The two ends of a socket, and what was cut out of it so far."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    parser: Parser


@dataclass(frozen=True, slots=True)
class Pools:
    """Threads for what blocks: reading files, and making checkpoints durable."""

    read: Executor
    commit: Executor


class Connection:
    """One accepted client. `run` returns when the client has gone, or raises what ended it."""

    def __init__(
        self,
        link: Link,
        feed: Feed,
        format_: Format,
        after: Position,
        subscription: Subscription | None,
        *,
        settings: ListenerSettings,
        clock: Clock,
        pools: Pools,
    ) -> None:
        self._link = link
        self._feed = feed
        self._format = format_
        self._subscription = subscription
        self._settings = settings
        self._clock = clock
        self._pools = pools
        self._queue: Queue = feed.join()
        # The last change that was handed to the socket.
        self._sent = after
        self._schema: TableSchema | None = None
        self._files: LogReader | None = None
        self._ack: Position | None = subscription.position if subscription is not None else None
        self._ack_event = asyncio.Event()
        self._committed = self._ack
        # The acknowledgement that the client was told of last.
        self._told = self._ack

    async def run(self, early: list[Frame]) -> None:
        """Serve the client until it closes the connection; `early` are frames that came with its greeting."""
        try:
            for frame in early:
                self._take(frame)
            await self._run_tasks()
        finally:
            self._feed.leave(self._queue)
            await self._finish()

    async def _run_tasks(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                helpers = [tasks.create_task(self._send_forever())]
                if self._subscription is not None:
                    helpers.append(tasks.create_task(self._commit_forever()))
                await self._receive()
                for helper in helpers:
                    helper.cancel()
        except BaseExceptionGroup as group:
            # The first task to fail is the reason; the others only ended with it.
            raise group.exceptions[0] from None

    async def _finish(self) -> None:
        """Keep what the client acknowledged last, even when it did not wait for the answer."""
        loop = asyncio.get_running_loop()
        subscription = self._subscription
        if subscription is not None and self._ack is not None and self._ack != self._committed:
            await loop.run_in_executor(self._pools.commit, subscription.commit, self._ack)
        if self._files is not None:
            await loop.run_in_executor(self._pools.read, self._files.close)

    # Receiving.

    async def _receive(self) -> None:
        while True:
            data = await self._link.reader.read(READ_BYTES)
            if not data:
                return
            for frame in self._link.parser.feed(data):
                self._take(frame)

    def _take(self, frame: Frame) -> None:
        if frame.kind is not Kind.ACK:
            raise CorruptFrame("only acknowledgements may follow the greeting")
        message = parse(frame)
        assert isinstance(message, Ack)
        if self._ack is None:
            raise InvalidInput("a client without a subscription has nothing to acknowledge")
        if message.position > self._sent:
            raise PositionAhead("acknowledged before it was sent", position=message.position, sent=self._sent)
        if message.position < self._ack:
            raise PositionBehind("acknowledgements cannot go back", position=message.position, acknowledged=self._ack)
        if message.position == self._ack and self._ack == self._committed:
            # Asked again for what is durable already: answered, but nothing is to be done.
            self._told = None
            self._queue.wake()
            return
        self._ack = message.position
        self._ack_event.set()

    async def _commit_forever(self) -> None:
        subscription = self._subscription
        assert subscription is not None
        loop = asyncio.get_running_loop()
        while True:
            await self._ack_event.wait()
            self._ack_event.clear()
            position = self._ack
            assert position is not None
            await loop.run_in_executor(self._pools.commit, subscription.commit, position)
            self._committed = position
            self._queue.wake()
            # Acknowledgements that come in this pause are made durable together.
            await asyncio.sleep(self._settings.commit_interval_s)

    # Sending.

    async def _send_forever(self) -> None:
        queue = self._queue
        while True:
            if queue.lapsed:
                queue.restart()
                await self._send_from_files()
                continue
            batches = queue.take(CHUNK_BYTES)
            if batches:
                await self._send(batches)
                continue
            await self._answer()
            if not await queue.wait(self._settings.heartbeat_s):
                end = self._feed.reader.end()
                await self._write(Heartbeat(end, self._clock.now_us()).to_bytes())

    async def _send_from_files(self) -> None:
        """Send what is in the files behind the last change sent, until the queue has the next one."""
        loop = asyncio.get_running_loop()
        if self._files is None:
            self._files = await loop.run_in_executor(self._pools.read, LogReader, self._feed.directory)
        batches = self._files.read(self._sent)
        while True:
            some = await loop.run_in_executor(self._pools.read, _some, batches)
            if not some:
                return
            if self._sent == START and some[0].file > 1:
                await loop.run_in_executor(self._pools.read, self._check_start)
            await self._send(some)
            hot = self._queue.first
            if hot is not None and hot.first <= self._sent:
                return

    def _check_start(self) -> None:
        """Reading from START gives what is left; retention may have taken files since this client was welcomed."""
        assert self._files is not None
        loss = retention.lost(self._files, "", START)
        if loss is not None:
            raise ChangesLost("retention removed changes before they were sent", after=START, through=loss.through)

    async def _send(self, batches: list[ChangeBatch]) -> None:
        parts: list[bytes | memoryview] = []
        size = 0
        for batch in batches:
            batch_left = _behind(batch, self._sent)
            if batch_left is None:
                continue
            if batch_left.schema != self._schema:
                self._schema = batch_left.schema
                parts.append(self._schema_frame(batch_left.schema))
            self._sent = batch_left.last
            if not batch_left:
                # All that was left of the block was erased.
                continue
            if self._format is Format.JSON:
                await self._write(*parts)
                parts = []
                await self._send_json(batch_left)
                continue
            parts += _avro_frame(batch_left)
            size += len(batch_left.rows)
            if size >= CHUNK_BYTES:
                await self._write(*parts)
                parts, size = [], 0
        if parts:
            await self._write(*parts)
        await self._answer()

    async def _send_json(self, batch: ChangeBatch) -> None:
        loop = asyncio.get_running_loop()
        for piece in pieces(batch):
            await self._write(await loop.run_in_executor(self._pools.read, self._feed.json.frame, piece))

    def _schema_frame(self, schema: TableSchema) -> bytes:
        text = avro.schema_json(schema) if self._format is Format.AVRO else None
        return Schema(schema.to_json(), text).to_bytes()

    async def _answer(self) -> None:
        """Tell the client which acknowledgement is durable, when that has changed."""
        if self._committed is not None and self._committed != self._told:
            self._told = self._committed
            await self._write(Acked(self._committed).to_bytes())

    async def _write(self, *parts: bytes | memoryview) -> None:
        """Write to the socket, piece by piece, so that no more than a piece is ever copied for a slow client."""
        writer = self._link.writer
        small: list[bytes | memoryview] = []
        size = 0
        for part in parts:
            if size + len(part) <= CHUNK_BYTES:
                small.append(part)
                size += len(part)
                continue
            writer.write(b"".join(small))
            await writer.drain()
            small, size = [], 0
            view = memoryview(part)
            while len(view) > CHUNK_BYTES:
                writer.write(view[:CHUNK_BYTES])
                await writer.drain()
                view = view[CHUNK_BYTES:]
            small, size = [view], len(view)
        writer.write(b"".join(small))
        await writer.drain()


def _some(batches: Iterator[ChangeBatch]) -> list[ChangeBatch]:
    """The next batches, up to a chunk."""
    out: list[ChangeBatch] = []
    size = 0
    for batch in batches:
        out.append(batch)
        size += len(batch.rows)
        if size >= CHUNK_BYTES:
            break
    return out


def _behind(batch: ChangeBatch, position: Position) -> ChangeBatch | None:
    """What of a batch lies behind a position; None when nothing does."""
    if batch.last <= position:
        return None
    if batch.first > position:
        return batch
    return dataclasses.replace(batch, skip=position.ordinal + 1)


def _avro_frame(batch: ChangeBatch) -> tuple[bytes, bytes | memoryview]:
    rows = batch.rows
    if batch.skip:
        rows = memoryview(rows)[avro.row_offsets(batch.schema, rows, batch.count)[batch.skip] :]
    changes = Changes(batch.file, batch.offset, batch.skip, len(batch), rows)
    return changes.head(), rows
