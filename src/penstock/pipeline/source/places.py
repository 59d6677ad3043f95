"""Places: where logs are, on this machine or behind an agent, with the same few operations for both.

A place belongs to one node. The driver looks at all its logs at once, as often as Spark asks for new data; tasks get
addresses and open readers themselves. Subscriptions are moved through the place, so that the retention of each log
knows what the pipeline still needs.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.errors import CorruptLog, PenstockError, PositionBehind
from penstock.log import snapshot_requests
from penstock.log.log_directory import LogDirectory, LogEntry
from penstock.log.names import encode
from penstock.log.reader import LogReader
from penstock.log.subscription import Start, Subscription
from penstock.log.watermark import Watermark
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.pipeline.source.held import naming
from penstock.pipeline.source.options import SourceOptions
from penstock.system.clock import SystemClock
from penstock.system.files import OsFiles

# What speaks HTTP is imported where an agent is spoken to: few processes of Spark do.
if TYPE_CHECKING:
    from penstock.pipeline.source.remote import Access

# Readers that one process keeps, more than most pipelines have logs: where each batch has all of them, one less would
# mean to make every one of them anew for each batch. Between two tasks none has an open file.
_READERS_MAX = 1024


@dataclass(frozen=True, slots=True)
class Address:
    """One log: the directory it stands in or the agent that serves it, and what it is."""

    directory: str
    agent: str
    log_id: str
    table: TableId
    node: str


class Place(Protocol):
    """The logs of one node. For one thread."""

    def look(self) -> dict[str, tuple[Address, Watermark]]:
        """Every log that is wanted, by its id, and how far each is durable now."""
        ...

    def has(self, log_id: str) -> bool:
        """Whether the last look found the log, wanted or not."""
        ...

    def unreadable(self, log_id: str) -> PenstockError | None:
        """What is wrong with a log that the last look passed over."""
        ...

    def tables(self) -> dict[str, TableId]:
        """Of which table each log is, also those that cannot be read."""
        ...

    def reader(self, address: Address) -> LogReader:
        """A reader of the log, which the place keeps."""
        ...

    def subscribe(self, address: Address, name: str, start: Start) -> Position:
        """Make sure that the subscription exists, from `start` on when it is new; says what it has committed."""
        ...

    def commit(self, address: Address, name: str, position: Position) -> None:
        """Everything up to `position` is done. A position before the committed one changes nothing."""
        ...

    def ask_snapshot(self, table: TableId) -> bool:
        """Have the agent copy a table again. False when there is no agent, or it copies no tables."""
        ...

    def close(self) -> None: ...


class LocalPlace:
    """A directory of logs on this machine."""

    def __init__(self, root: str, options: SourceOptions) -> None:
        self._root = root
        self._directory = LogDirectory(root)
        self._retention = options.retention
        self._wants = _chooser(options)
        self._held = options.held.logs
        self._label = os.path.basename(os.path.abspath(root))
        self._addresses: dict[str, Address] = {}
        self._entries: dict[str, LogEntry] | None = None

    def look(self) -> dict[str, tuple[Address, Watermark]]:
        entries = self._directory.look()
        if entries is not self._entries:
            self._entries = entries
            self._addresses = {
                entry.log_id: Address(entry.directory, "", entry.log_id, entry.table, entry.node or self._label)
                for entry in entries.values()
                if self._wants(entry.table, entry.name, entry.parked, entry.node or self._label)
            }
        return {
            log_id: (address, self._watermark(address))
            for log_id, address in self._addresses.items()
            # Nobody reads them, and whatever is wrong with them is known.
            if log_id not in self._held
        }

    def _watermark(self, address: Address) -> Watermark:
        with naming(lambda: (address,)):
            return self._directory.watermark(address.log_id)

    def has(self, log_id: str) -> bool:
        return self._entries is not None and log_id in self._entries

    def unreadable(self, log_id: str) -> PenstockError | None:
        found = self._directory.unreadable().get(log_id)
        return None if found is None else found[1]

    def tables(self) -> dict[str, TableId]:
        found = {log_id: entry.table for log_id, entry in self._directory.look().items()}
        return found | {log_id: table for log_id, (table, _) in self._directory.unreadable().items()}

    def reader(self, address: Address) -> LogReader:
        return self._directory.reader(address.log_id)

    def subscribe(self, address: Address, name: str, start: Start) -> Position:
        with Subscription.open(address.directory, name, start=start) as subscription:
            return subscription.position

    def commit(self, address: Address, name: str, position: Position) -> None:
        with Subscription.open(address.directory, name, retention_settings=self._retention) as subscription:
            # What retention took is told to whoever reads; here it only means that the place to commit moved on.
            subscription.accept_loss()
            if position > subscription.position:
                subscription.commit(position)

    def ask_snapshot(self, table: TableId) -> bool:
        files = OsFiles()
        directory = snapshot_requests.usual_directory(files, self._root)
        if directory is None:
            return False
        snapshot_requests.request(files, directory, table, SystemClock().now_us())
        return True

    def close(self) -> None:
        self._directory.close()


class RemotePlace:
    """The logs of a node behind its agent's HTTP server."""

    def __init__(self, url: str, options: SourceOptions) -> None:
        from penstock.pipeline.source.remote import Agent

        self._agent = Agent(url, access(options))
        self._wants = _chooser(options)
        self._addresses: dict[str, Address] = {}
        self._readers: OrderedDict[Address, LogReader] = OrderedDict()
        self._found: frozenset[str] = frozenset()

    def look(self) -> dict[str, tuple[Address, Watermark]]:
        out = {}
        logs = self._agent.logs()
        self._found = frozenset(served.log_id for served in logs)
        for served in logs:
            node = served.node or self._agent.url
            if not self._wants(served.table, served.name, served.parked, node):
                continue
            address = self._addresses.get(served.log_id)
            if address is None:
                address = Address("", self._agent.url, served.log_id, served.table, node)
                self._addresses[served.log_id] = address
            out[served.log_id] = address, served.watermark
        return out

    def has(self, log_id: str) -> bool:
        return log_id in self._found

    def unreadable(self, log_id: str) -> PenstockError | None:  # noqa: ARG002
        # An agent does not serve such a log, and does not say why.
        return None

    def tables(self) -> dict[str, TableId]:
        return {served.log_id: served.table for served in self._agent.logs()}

    def reader(self, address: Address) -> LogReader:
        return _kept(self._readers, address, lambda: LogReader(address.log_id, files=self._agent))

    def subscribe(self, address: Address, name: str, start: Start) -> Position:
        return self._agent.subscribe(address.log_id, name, start)

    def commit(self, address: Address, name: str, position: Position) -> None:
        with suppress(PositionBehind):
            self._agent.commit(address.log_id, name, position)

    def ask_snapshot(self, table: TableId) -> bool:
        found = next((one for one in self._addresses.values() if one.table == table), None)
        return found is not None and self._agent.ask_snapshot(found.log_id)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


def access(options: SourceOptions) -> Access:
    """How agents are spoken to."""
    from penstock.pipeline.source.remote import Access

    return Access(token_file=options.token_file, tls_ca_file=options.tls_ca_file, retry_s=options.retry_s)


def places(options: SourceOptions) -> list[Place]:
    """Every place that the options name."""
    local: Sequence[Place] = [LocalPlace(root, options) for root in options.path]
    remote: Sequence[Place] = [RemotePlace(url, options) for url in options.agents]
    return [*local, *remote]


_task_readers: OrderedDict[Address, LogReader] = OrderedDict()


def open_reader(address: Address, how: Access) -> LogReader:
    """A reader for a task, who closes it when it is done: it stays of use then, and opens again what it needs.

    Spark's workers live on, so the readers of their last tasks are kept, with what they know of their logs.
    """
    return _kept(_task_readers, address, lambda: _reader(address, how))


def _reader(address: Address, how: Access) -> LogReader:
    if not address.agent:
        return LogReader(address.directory)
    from penstock.pipeline.source.remote import Agent

    return LogReader(address.log_id, files=Agent(address.agent, how))


def _kept(readers: OrderedDict[Address, LogReader], address: Address, make: Callable[[], LogReader]) -> LogReader:
    # By the whole address: a copy of a log, in another place, is another one to read.
    reader = readers.get(address)
    if reader is None:
        reader = make()
        if reader.log_id != address.log_id:
            raise CorruptLog("another log stands in the place of this one", directory=reader.directory)
        while len(readers) >= _READERS_MAX:
            readers.popitem(last=False)[1].close()
        readers[address] = reader
    readers.move_to_end(address)
    return reader


def _chooser(options: SourceOptions) -> Callable[[TableId, str, bool, str], bool]:
    wanted = encode(options.log) if options.log else ""

    def wants(table: TableId, name: str, parked: bool, node: str) -> bool:
        of_node = not options.nodes or node in options.nodes
        return not parked and of_node and name == wanted and options.wants(table)

    return wants
