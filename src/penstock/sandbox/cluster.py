"""Cluster: the sandbox's nodes as one thing that clients write to and read from. It is not a database.

In virtual time (the default) a run is a deterministic simulation: the seed decides every delay, loss and choice, and
equal seeds give equal histories. In real time (`clock=SystemClock()`) messages arrive at once and nothing waits, which
is what the demo uses. No call starts a thread.

    cluster = Cluster("/data", data_centres={"dc1": 3, "dc2": 3}, seed=7)
    cluster.create_table(schema)
    cluster.insert(table, {"id": 1, "name": "a"}, consistency=Consistency.QUORUM)   # raises Unavailable
    cluster.write_many(statements)             # one ChangeBatch per replica and table, however many statements
    rows = cluster.read(table, {"id": 1})      # as a SELECT would give them

`insert` and its siblings run the event loop until their answer is there. `start` and `start_read` do not: they return
an Operation, and the caller moves the cluster with `step()` (one event), `run_until(done)`, `run_for(us)` or `settle()`
(until nothing is under way). In real time, call `step()` until it returns False now and then, or make the next request:
timers (timeouts, hints, scheduled faults) only fire inside such calls. Not for several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Self

from penstock.errors import InvalidInput, InvalidSchema, InvalidStatement, PenstockError, Unavailable
from penstock.merge.cql_value import partition_id
from penstock.merge.range_deletions import greater
from penstock.merge.table_state import TableState, visible
from penstock.model.change import Bound, Op
from penstock.model.schema import TableId, TableSchema
from penstock.model.types import Kind
from penstock.sandbox.consistency import Consistency, needs
from penstock.sandbox.event_loop import EventLoop, SkewedClock, VirtualClock
from penstock.sandbox.history import History
from penstock.sandbox.network import USUAL, Conditions, Network
from penstock.sandbox.node import Hint, Node, Part, PowerLoss
from penstock.sandbox.node_log import Captures, OpenLog, everywhere, table_logs
from penstock.sandbox.operation import Group, Operation, ReadOperation, WriteOperation
from penstock.sandbox.ring import Replication, Ring
from penstock.sandbox.statements import (
    Delete,
    DeletePartition,
    DeleteRange,
    Insert,
    Stamp,
    Statement,
    Truncate,
    Update,
    change,
)
from penstock.settings import LogSettings
from penstock.system.clock import Clock
from penstock.system.files import Files, OsFiles

_HINTS_PER_TURN = 64
_REPLICATION_USUAL = 3


class Cluster:
    """N nodes in data centres. Nodes are called `dc1-1`, `dc1-2` and so on."""

    def __init__(
        self,
        root: str,
        *,
        data_centres: Mapping[str, int],
        replication: Mapping[str, int] | None = None,
        seed: int = 0,
        clock: Clock | None = None,
        disks: Callable[[str], Files] | None = None,
        conditions: Conditions | None = None,
        log_settings: LogSettings | None = None,
        captures: Captures = everywhere,
        open_log: OpenLog | None = None,
        history: History | None = None,
        timeout_us: int = 2_000_000,
        detection_us: int = 500_000,
        hint_window_us: int = 3 * 3600 * 1_000_000,
        hint_delay_us: int = 1_000_000,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.loop = EventLoop(self.clock)
        self.random = Random(f"cluster/{seed}")  # noqa: S311 - seeded, to be repeated
        virtual = isinstance(self.clock, VirtualClock)
        usual = replace(USUAL) if virtual else Conditions()
        self.network = Network(self.loop, Random(f"network/{seed}"), conditions or usual)  # noqa: S311 - seeded, to be repeated
        self.history = history or History()
        self.data_centres: dict[str, str] = {
            f"{name}-{number}": name for name, count in data_centres.items() for number in range(1, count + 1)
        }
        if not self.data_centres:
            raise InvalidInput("a cluster needs at least one node")
        self.ring = Ring(self.data_centres)
        self.replication = _replication(
            replication or {name: min(_REPLICATION_USUAL, count) for name, count in data_centres.items() if count}
        )
        self.ring.check(self.replication)
        opener = open_log or table_logs(root, settings=log_settings, captures=captures, seed=seed)
        shared = OsFiles()
        self.nodes: dict[str, Node] = {
            name: Node(
                name,
                where,
                number,
                clock=SkewedClock(self.clock),
                files=disks(name) if disks else shared,
                open_log=opener,
            )
            for number, (name, where) in enumerate(self.data_centres.items())
        }
        self.tables: dict[TableId, TableSchema] = {}
        self._replications: dict[TableId, Replication] = {}
        self._timeout_us = timeout_us
        self._detection_us = detection_us
        self._hint_window_us = hint_window_us
        self._hint_delay_us = hint_delay_us
        self._hints_due: set[str] = set()
        self._number = 0
        self._pending: dict[int, Operation] = {}

    # Tables.

    def create_table(self, schema: TableSchema, *, replication: Mapping[str, int] | None = None) -> None:
        """Create a table on every node, with the cluster's replication or its own."""
        if schema.table in self.tables:
            raise InvalidInput("the table exists already", table=schema.table)
        if not schema.partition:
            raise InvalidSchema("a table of the sandbox needs a partition key", table=schema.table)
        if any(column.type.kind is Kind.COUNTER for column in schema.columns):
            raise InvalidSchema("the sandbox keeps no counters", table=schema.table)
        own = self.replication if replication is None else _replication(replication)
        self.ring.check(own)
        self._replications[schema.table] = own
        self._spread(schema)

    def alter_table(self, schema: TableSchema) -> None:
        """Give a table a newer version of its schema, with all the columns it had and perhaps more."""
        old = self._schema(schema.table)
        if not set(old.columns) <= set(schema.columns) or schema.version <= old.version or schema.key != old.key:
            raise InvalidSchema("a new version keeps every column and counts up", table=schema.table)
        self._spread(schema)

    def _spread(self, schema: TableSchema) -> None:
        self.tables[schema.table] = schema
        for node in self.nodes.values():
            node.add_table(schema)

    def _schema(self, table: TableId) -> TableSchema:
        schema = self.tables.get(table)
        if schema is None:
            raise InvalidStatement("no such table", table=table)
        return schema

    # Requests that wait for their answer.

    def insert(
        self,
        table: TableId,
        values: Mapping[str, Any],
        *,
        consistency: Consistency = Consistency.QUORUM,
        timestamp: int | None = None,
        ttl_s: int | None = None,
        coordinator: str | None = None,
    ) -> None:
        statement = Insert(table, values, timestamp=timestamp, ttl_s=ttl_s)
        self.write(statement, consistency=consistency, coordinator=coordinator)

    def update(
        self,
        table: TableId,
        key: Mapping[str, Any],
        values: Mapping[str, Any],
        *,
        consistency: Consistency = Consistency.QUORUM,
        timestamp: int | None = None,
        ttl_s: int | None = None,
        coordinator: str | None = None,
    ) -> None:
        statement = Update(table, key, values, timestamp=timestamp, ttl_s=ttl_s)
        self.write(statement, consistency=consistency, coordinator=coordinator)

    def delete(
        self,
        table: TableId,
        key: Mapping[str, Any],
        columns: tuple[str, ...] = (),
        *,
        consistency: Consistency = Consistency.QUORUM,
        timestamp: int | None = None,
        coordinator: str | None = None,
    ) -> None:
        """Delete a row, or some of its cells."""
        statement = Delete(table, key, columns, timestamp=timestamp)
        self.write(statement, consistency=consistency, coordinator=coordinator)

    def delete_range(
        self,
        table: TableId,
        key: Mapping[str, Any],
        start: Bound | None = None,
        end: Bound | None = None,
        *,
        consistency: Consistency = Consistency.QUORUM,
        timestamp: int | None = None,
        coordinator: str | None = None,
    ) -> None:
        statement = DeleteRange(table, key, start, end, timestamp=timestamp)
        self.write(statement, consistency=consistency, coordinator=coordinator)

    def delete_partition(
        self,
        table: TableId,
        key: Mapping[str, Any],
        *,
        consistency: Consistency = Consistency.QUORUM,
        timestamp: int | None = None,
        coordinator: str | None = None,
    ) -> None:
        statement = DeletePartition(table, key, timestamp=timestamp)
        self.write(statement, consistency=consistency, coordinator=coordinator)

    def truncate(self, table: TableId, *, timestamp: int | None = None, coordinator: str | None = None) -> None:
        """Delete all that was written up to now. Every node must acknowledge, as in Cassandra."""
        self.write(Truncate(table, timestamp=timestamp), consistency=Consistency.ALL, coordinator=coordinator)

    def write(
        self,
        statement: Statement,
        *,
        consistency: Consistency = Consistency.QUORUM,
        coordinator: str | None = None,
    ) -> None:
        """Write and wait. Raises Unavailable, with `required` and `acknowledged`, when the level is missed."""
        self.write_many([statement], consistency=consistency, coordinator=coordinator)

    def write_many(
        self,
        statements: Iterable[Statement],
        *,
        consistency: Consistency = Consistency.QUORUM,
        coordinator: str | None = None,
    ) -> None:
        """Write many and wait for all. When one of them misses its level the whole call raises."""
        self.wait(self.start(statements, consistency=consistency, coordinator=coordinator))

    def read(
        self,
        table: TableId,
        key: Mapping[str, Any],
        *,
        consistency: Consistency = Consistency.QUORUM,
        coordinator: str | None = None,
    ) -> list[dict[str, Any]]:
        """The rows of a partition, as a SELECT at this level gives them now."""
        state = self.read_state(table, key, consistency=consistency, coordinator=coordinator)
        return visible(state, self.clock.now_us() // 1_000_000)

    def rows(self, table: TableId, now_s: int | None = None) -> list[dict[str, Any]]:
        """All rows of a table at this second, by what all nodes that are up hold in memory together."""
        state = TableState(self.tables[table])
        for node in self.nodes.values():
            for held in node.state(table).changes() if node.up else ():
                state.apply(held)
        return visible(state, self.clock.now_us() // 1_000_000 if now_s is None else now_s)

    def read_state(
        self,
        table: TableId,
        key: Mapping[str, Any],
        *,
        consistency: Consistency = Consistency.QUORUM,
        coordinator: str | None = None,
    ) -> TableState:
        """What a read resolves to before expiry is applied: tombstones and write times included."""
        operation = self.start_read(table, key, consistency=consistency, coordinator=coordinator)
        self.wait(operation)
        assert operation.state is not None, "a read that did not fail has an answer"
        return operation.state

    def scan_state(self, table: TableId, *, consistency: Consistency = Consistency.ALL) -> TableState:
        """Every partition that any live node knows of, each read at the given level."""
        schema = self._schema(table)
        names = [column.name for column in schema.partition]
        known = [node.state(table) for node in self.nodes.values() if node.up]
        keys = {
            identity: dict(zip(names, partition.key, strict=True))
            for state in known
            for identity, partition in state.partitions.items()
        }
        merged = TableState(schema)
        for state in known:
            # A table that was truncated and is empty has no partition to read it from.
            merged.truncation = greater(merged.truncation, state.truncation)
        for _, key in sorted(keys.items()):
            merged.join(self.read_state(table, key, consistency=consistency))
        return merged

    # Requests that do not wait.

    def start(
        self,
        statements: Iterable[Statement],
        *,
        consistency: Consistency = Consistency.QUORUM,
        coordinator: str | None = None,
    ) -> WriteOperation:
        """Send writes on their way. What does not fit its table raises at once, before anything is sent."""
        node = self._coordinator(coordinator)
        now_s = node.clock.now_us() // 1_000_000
        groups: dict[tuple[TableId, tuple[str, ...]], Group] = {}
        for statement in statements:
            schema = self._schema(statement.table)
            time = node.timestamp() if statement.timestamp is None else statement.timestamp
            made = change(statement, schema, Stamp(time, now_s, node.number, node.origin))
            replication = self._replications[schema.table]
            if made.op is Op.TRUNCATE:
                replicas = tuple(self.nodes)
                # Every node must acknowledge, whatever the replication factor is.
                wanted = needs(Consistency.ALL, (("", len(replicas)),), "")
            else:
                replicas = self.ring.replicas(partition_id(schema.partition, made.key), replication)
                wanted = needs(consistency, replication, node.data_centre)
            group = groups.setdefault((schema.table, replicas), Group(schema, replicas, wanted))
            group.changes.append(made)
        for group in groups.values():
            group.part = Part.of(group.schema, group.changes)
        self._number += 1
        operation = WriteOperation(
            self, node, self._number, list(groups.values()), any_hint=consistency is Consistency.ANY
        )
        self._launch(operation, partial(operation.start, self._timeout_us))
        return operation

    def start_read(
        self,
        table: TableId,
        key: Mapping[str, Any],
        *,
        consistency: Consistency = Consistency.QUORUM,
        coordinator: str | None = None,
    ) -> ReadOperation:
        if consistency is Consistency.ANY:
            raise InvalidStatement("ANY is a consistency level for writes only", table=table)
        node = self._coordinator(coordinator)
        schema = self._schema(table)
        replication = self._replications[table]
        replicas = list(self.ring.replicas(partition_id(schema.partition, key), replication))
        self.random.shuffle(replicas)
        replicas.sort(key=lambda name: self.data_centres[name] != node.data_centre)
        self._number += 1
        operation = ReadOperation(self, node, self._number, schema, dict(key))
        wanted = needs(consistency, replication, node.data_centre)
        self._launch(operation, partial(operation.start, replicas, wanted, self._timeout_us))
        return operation

    def _launch(self, operation: Operation, start: Callable[[], None]) -> None:
        self._pending[operation.number] = operation
        operation.on_done(self._forget)
        start()

    def _forget(self, operation: Operation) -> None:
        del self._pending[operation.number]

    def _coordinator(self, name: str | None) -> Node:
        if name is not None:
            node = self.nodes.get(name)
            if node is None:
                raise InvalidInput("no such node", node=name)
            if not node.up:
                raise Unavailable("the coordinator is down", required=1, acknowledged=0, coordinator=name)
            return node
        up = [node for node in self.nodes.values() if node.up]
        if not up:
            raise Unavailable("every node is down", required=1, acknowledged=0)
        return up[self.random.randrange(len(up))]

    # Time.

    def wait(self, operation: Operation) -> None:
        """Run until an operation has its answer; raise its error."""
        self.loop.run_until(lambda: operation.done)
        assert operation.done, "every operation has a timeout"
        if operation.error is not None:
            raise operation.error

    def step(self) -> bool:
        """Let one event happen; False when none is due."""
        return self.loop.step()

    def run_until(self, done: Callable[[], bool], *, limit_us: int | None = None) -> bool:
        return self.loop.run_until(done, limit_us=limit_us)

    def run_for(self, duration_us: int) -> None:
        self.loop.run_for(duration_us)

    def settle(self, *, limit_us: int = 600_000_000) -> bool:
        """Run until no request or message is under way and no hint waits. Whether that was reached.

        In virtual time, until no timer is left either; in real time, timers that are not due yet are not waited for.
        """
        return self.loop.run_until(lambda: self.loop.idle and not self._pending and not self.hints, limit_us=limit_us)

    @property
    def hints(self) -> int:
        """How many hints wait, on all nodes."""
        return sum(len(node.hints) for node in self.nodes.values())

    # Faults.

    def crash(self, name: str, power_loss: PowerLoss | None = None) -> None:
        """Stop a node at once. Its requests as coordinator are lost; a simulated disk may lose what was not synced."""
        node = self.nodes[name]
        if not node.up:
            return
        self.history.note("crash", name, self.loop.now_us() if isinstance(self.clock, VirtualClock) else 0)
        node.crash(self.loop.now_us(), power_loss)
        for operation in [one for one in self._pending.values() if one.coordinator is node]:
            operation.abandon()

    def restart(self, name: str) -> None:
        """Bring a node back; it reads its logs again. Raises what opening them raises, and the node stays down."""
        node = self.nodes[name]
        if node.up:
            return
        node.restart()
        self.history.note("restart", name)
        self._plan_hints(node)

    def close(self) -> None:
        """Close all logs."""
        for node in self.nodes.values():
            node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What operations ask for.

    def seems_up(self, observer: Node, name: str) -> bool:
        """Whether a node believes that another one is up: a crash or a cut is noticed after a while."""
        if observer.name == name:
            return True
        now = self.loop.now_us()
        since = self.nodes[name].down_since_us
        cut = self.network.cut_since(observer.name, name)
        return all(moment is None or now - moment < self._detection_us for moment in (since, cut))

    def store_hint(self, holder: Node, hint: Hint) -> bool:
        """Keep what a replica missed, unless it has been down for longer than the hint window."""
        since = self.nodes[hint.target].down_since_us
        if since is not None and self.loop.now_us() - since > self._hint_window_us:
            return False
        holder.add_hint(hint)
        self._plan_hints(holder)
        return True

    def _plan_hints(self, holder: Node) -> None:
        if holder.hints and holder.name not in self._hints_due:
            self._hints_due.add(holder.name)
            self.loop.schedule(self._hint_delay_us, partial(self._replay_hints, holder))

    def _replay_hints(self, holder: Node) -> None:
        """Send some of the oldest hints to nodes that seem up; what is not acknowledged is sent again next time."""
        self._hints_due.discard(holder.name)
        if not holder.up:
            return
        sendable = [(n, hint) for n, hint in holder.hints.items() if self.seems_up(holder, hint.target)]
        for number, hint in sendable[:_HINTS_PER_TURN]:
            target = self.nodes[hint.target]
            self.network.send(holder.name, target.name, partial(self._take_hint, holder, target, number, hint))
        self._plan_hints(holder)

    def _take_hint(self, holder: Node, target: Node, number: int, hint: Hint) -> None:
        if not target.up:
            return
        try:
            target.write(hint.part)
        except (PenstockError, OSError):
            # The holder hears nothing, keeps the hint and sends it again.
            return
        self.network.send(target.name, holder.name, partial(holder.forget_hint, number))


def _replication(factors: Mapping[str, int]) -> Replication:
    return tuple(sorted(factors.items()))
