"""Feed: new changes of one log, handed from the follower's thread to every connected client.

The follower reads each block once; every client's queue holds the same batch, so a hundred clients cost one read. All
queues are bounded in bytes. A queue that is full is emptied and marked: its client then reads the log's files until it
meets the queue again, which begins anew at that moment. A queue thus holds an unbroken run, and memory never grows.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from penstock.errors import PenstockError
from penstock.log.follow import Follower
from penstock.log.reader import LogReader
from penstock.model.batch import ChangeBatch
from penstock.serve.rendering import JsonFrames


class Queue:
    """The hot changes of one client. Used on the event loop only."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._batches: deque[ChangeBatch] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._failure: PenstockError | None = None
        # True when changes were passed over since `restart`: the client must look into the files.
        self.lapsed = True

    @property
    def first(self) -> ChangeBatch | None:
        """The oldest batch that waits."""
        return self._batches[0] if self._batches else None

    @property
    def bytes(self) -> int:
        """What the queue keeps in memory."""
        return self._bytes

    def restart(self) -> None:
        """Begin a new unbroken run; what came before it is in the files."""
        self.lapsed = False

    def offer(self, batch: ChangeBatch) -> None:
        """Keep a batch, or, when there is no room, nothing."""
        if self.lapsed:
            return
        size = len(batch.rows)
        if self._bytes + size > self._bytes_max:
            self.lapse()
            return
        self._batches.append(batch)
        self._bytes += size
        self._wake.set()

    def lapse(self) -> None:
        """Drop everything: the client is served from the files."""
        self._batches.clear()
        self._bytes = 0
        self.lapsed = True
        self._wake.set()

    def take(self, bytes_max: int) -> list[ChangeBatch]:
        """The oldest batches, at least one when there is any, until they exceed `bytes_max`."""
        out: list[ChangeBatch] = []
        taken = 0
        while self._batches and (not out or taken < bytes_max):
            batch = self._batches.popleft()
            taken += len(batch.rows)
            out.append(batch)
        self._bytes -= taken
        return out

    def fail(self, error: PenstockError) -> None:
        """No more will come: `wait` raises this once the queue is empty."""
        self._failure = error
        self._wake.set()

    def wake(self) -> None:
        """End the wait of `wait`."""
        self._wake.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait until something is there, or `wake` was called; False after `timeout_s`."""
        if self._failure is not None and not self._batches:
            raise self._failure
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True


class Feed:
    """The queues of one log's clients, and the follower that fills them."""

    def __init__(self, directory: str, loop: asyncio.AbstractEventLoop, bytes_max: int) -> None:
        self._loop = loop
        self._bytes_max = bytes_max
        self._queues: set[Queue] = set()
        # Between the two threads: what arrived since the event loop last looked, bounded like a client's queue.
        self._lock = threading.Lock()
        self._arrived: list[ChangeBatch] = []
        self._arrived_bytes = 0
        self._overflowed = False
        self._scheduled = False
        self._failure: PenstockError | None = None
        self.directory = directory
        self.json = JsonFrames()
        # How many clients the listener has sent here.
        self.clients = 0
        # Readers are not shared between threads: this one is the event loop's.
        self.reader = LogReader(directory)
        try:
            self._follower = Follower(directory)
        except BaseException:
            self.reader.close()
            raise
        self._handle = self._follower.listen(self._on_batch, self._on_failure, self._on_lapse)

    def join(self) -> Queue:
        """A queue for one more client."""
        if self._failure is not None:
            raise self._failure
        queue = Queue(self._bytes_max)
        self._queues.add(queue)
        return queue

    def leave(self, queue: Queue) -> None:
        self._queues.discard(queue)

    def close(self) -> None:
        """Stop following. Blocks until the follower's thread has ended."""
        self._handle.cancel()
        self._follower.close()
        self.reader.close()

    def _on_batch(self, batch: ChangeBatch) -> None:
        """Called by the follower's thread for each new block."""
        with self._lock:
            size = len(batch.rows)
            if self._arrived_bytes + size > self._bytes_max:
                self._overflow()
            else:
                self._arrived.append(batch)
                self._arrived_bytes += size
        self._schedule()

    def _on_lapse(self) -> None:
        """Called by the follower's thread when batches are left out: every client looks into the files."""
        with self._lock:
            self._overflow()
        self._schedule()

    def _overflow(self) -> None:
        """Drop what has arrived. The lock is held."""
        self._arrived.clear()
        self._arrived_bytes = 0
        self._overflowed = True

    def _schedule(self) -> None:
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        self._call(self._hand_out)

    def _on_failure(self, error: PenstockError) -> None:
        """Called by the follower's thread when the log cannot be read on."""
        self._call(partial(self._fail, error))

    def _call(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            # The loop has ended; there is nobody left to tell.
            return

    def _fail(self, error: PenstockError) -> None:
        self._failure = error
        for queue in self._queues:
            queue.fail(error)

    def _hand_out(self) -> None:
        with self._lock:
            batches, self._arrived = self._arrived, []
            overflowed, self._overflowed = self._overflowed, False
            self._arrived_bytes = 0
            self._scheduled = False
        for queue in self._queues:
            # What overflowed came before the batches that are here.
            if overflowed:
                queue.lapse()
            for batch in batches:
                queue.offer(batch)
