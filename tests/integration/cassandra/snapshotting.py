"""Snapshots of real nodes: run one until it is complete, and collect the changes that it wrote."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from penstock.capture.cassandra.node.connection import connect
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.snapshot.snapshotter import Snapshotter
from penstock.capture.cassandra.snapshot.status import SnapshotStatus
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change
from penstock.model.schema import TableId, TableSchema
from penstock.settings import CassandraSettings, SnapshotSettings

_DEADLINE_S = 240
_LOOK_S = 0.05

# Snapshots do not depend on the log's format; these are the versions that differ in what they answer.
COPIED = ("5.0-format-8", "4.1", "6.0", "3.11")
Copied = dict[TableId, list[tuple[TableSchema, Change]]]


class Collector:
    """A sink that keeps the batches, and may do something after each."""

    def __init__(self, after: Callable[[int], None] | None = None) -> None:
        self.batches: list[ChangeBatch] = []
        self._after = after

    def __call__(self, batch: ChangeBatch) -> None:
        self.batches.append(batch)
        if self._after is not None:
            self._after(len(self.batches))

    @property
    def count(self) -> int:
        return sum(len(batch) for batch in self.batches)

    def changes(self) -> Copied:
        out: Copied = defaultdict(list)
        for batch in self.batches:
            out[batch.schema.table] += [(batch.schema, change) for change in avro.decode(batch)]
        return out


def snapshotter(
    address: str,
    sink: Callable[[ChangeBatch], None],
    directory: Path,
    captures: Callable[[CassandraTable], bool],
    *,
    node: str | None = None,
    **settings: Any,
) -> Snapshotter:
    contact = CassandraSettings(contact_points=(address,))
    chosen = SnapshotSettings(**{"scan_interval_s": 1.0, **settings})
    return Snapshotter(partial(connect, contact), sink, str(directory), chosen, captures=captures, node=node)


@contextmanager
def running(one: Snapshotter) -> Iterator[list[BaseException]]:
    """Run it in a thread of its own; what it raised is in the list."""
    stop = threading.Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            one.run(stop)
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        stop.set()
        thread.join(_DEADLINE_S)
        assert not thread.is_alive()


def wait_until(one: Snapshotter, reached: Callable[[SnapshotStatus], bool]) -> SnapshotStatus:
    """Wait for a status; what it is now, if it does not come, is in the message."""
    deadline = time.monotonic() + _DEADLINE_S
    while not reached(status := one.status()):
        assert status.failure is None, f"failed: {status}"
        assert time.monotonic() < deadline, f"still: {status}"
        threading.Event().wait(_LOOK_S)
    return status


def take(address: str, directory: Path, captures: Callable[[CassandraTable], bool], **settings: Any) -> Copied:
    """One whole snapshot."""
    sink = Collector()
    one = snapshotter(address, sink, directory, captures, **settings)
    with running(one) as raised:
        wait_until(one, lambda status: status.completed)
    assert not raised
    return sink.changes()
