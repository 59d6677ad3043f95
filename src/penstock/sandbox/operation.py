"""Operations: one client request on its way through the coordinator, from the first message to the answer.

A write goes to all replicas at once and is done when enough have acknowledged for its consistency level; replicas that
are down, fail or stay silent get a hint. A read asks as many replicas as its level needs, merges what they know, writes
back to those asked what each lacks, and only then answers. Too few live replicas is an error before anything is sent;
too few answers is one later, by failure or by timeout, and then the write may still take effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from penstock.errors import PenstockError, StorageError, Unavailable
from penstock.merge.table_state import TableState, fold, missing
from penstock.model.change import Change
from penstock.model.schema import TableSchema
from penstock.sandbox.consistency import Needs, counted, met, required
from penstock.sandbox.event_loop import EventLoop
from penstock.sandbox.history import History
from penstock.sandbox.network import Network
from penstock.sandbox.node import Hint, Node, Part


class Context(Protocol):
    """What an operation needs of its cluster."""

    loop: EventLoop
    network: Network
    nodes: dict[str, Node]
    history: History
    data_centres: dict[str, str]

    def seems_up(self, observer: Node, name: str) -> bool: ...

    def store_hint(self, holder: Node, hint: Hint) -> bool: ...


@dataclass(slots=True)
class Group:
    """Changes of one table that have the same replicas."""

    schema: TableSchema
    replicas: tuple[str, ...]
    needs: Needs
    changes: list[Change] = field(default_factory=list)
    # The changes encoded, once all are there.
    part: Part | None = None
    acknowledged_by: list[str] = field(default_factory=list)


class Operation(ABC):
    """A request and its answer. `done` becomes true once; then `error` says what went wrong, if anything did."""

    def __init__(self, context: Context, coordinator: Node, number: int) -> None:
        self.number = number
        self.done = False
        self.error: PenstockError | None = None
        self.coordinator = coordinator
        self._context = context
        self._callbacks: list[Callable[[Operation], None]] = []

    def on_done(self, callback: Callable[[Operation], None]) -> None:
        """Call back when the answer is there, or at once when it is already."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def abandon(self) -> None:
        """The coordinator is gone: the client hears no more, and does not know what became of its request."""
        self._finish(self._unavailable("the coordinator went down", 0, 0))

    def _finish(self, error: PenstockError | None) -> None:
        if self.done:
            return
        self.done = True
        self.error = error
        self._record()
        for callback in self._callbacks:
            callback(self)

    @abstractmethod
    def _record(self) -> None:
        """Write the outcome into the history."""

    def _unavailable(self, message: str, wanted: int, got: int) -> Unavailable:
        return Unavailable(message, required=wanted, acknowledged=got, coordinator=self.coordinator.name)

    def _send(self, target: str, request: Callable[[Node], Any], answer: Callable[[str, Any], None]) -> None:
        """Send to a replica and hand its answer, or the error it met, to `answer`; or hear nothing."""
        context = self._context
        coordinator = self.coordinator
        node = context.nodes[target]

        def arrive() -> None:
            if not node.up:
                return
            try:
                result = request(node)
            except PenstockError as error:
                result = error
            except OSError as error:
                # A log of someone else's making; for the coordinator it is the same refusal.
                result = StorageError(f"the log raised errno {error.errno}", node=target)
            context.network.send(target, coordinator.name, partial(self._hear, answer, target, result))

        context.network.send(coordinator.name, target, arrive)

    def _hear(self, answer: Callable[[str, Any], None], source: str, result: Any) -> None:
        if self.coordinator.up:
            answer(source, result)


class WriteOperation(Operation):
    """One or many changes on their way to their replicas."""

    def __init__(
        self, context: Context, coordinator: Node, number: int, groups: Sequence[Group], *, any_hint: bool = False
    ) -> None:
        super().__init__(context, coordinator, number)
        self.groups = groups
        # With consistency ANY a stored hint counts as an acknowledgement.
        self._any_hint = any_hint
        self._silent: dict[str, None] = {}
        self._failed: dict[str, None] = {}
        self._hinted: dict[str, None] = {}

    def start(self, timeout_us: int) -> None:
        context = self._context
        for group in self.groups:
            context.history.attempt(group.schema.table, group.changes)
        for group in self.groups:
            live = [name for name in group.replicas if context.seems_up(self.coordinator, name)]
            if not met(group.needs, live, context.data_centres):
                self._fail(group, "not enough live replicas", live)
                return
        targets = dict.fromkeys(name for group in self.groups for name in group.replicas)
        for name in targets:
            if context.seems_up(self.coordinator, name):
                self._silent[name] = None
                self._send(name, partial(_write, self._parts(name)), self._hear_write)
            else:
                self._failed[name] = None
                self._hint(name)
        context.loop.schedule(timeout_us, self._time_out)
        self._look()

    def _parts(self, name: str) -> list[Part]:
        """What one replica gets, as one batch per table."""
        tables: dict[int, list[Part]] = {}
        for group in self.groups:
            if name in group.replicas:
                assert group.part is not None, "groups are encoded before they start"
                tables.setdefault(id(group.schema), []).append(group.part)
        return [Part.joined(parts) for parts in tables.values()]

    def _hear_write(self, source: str, result: object) -> None:
        if source not in self._silent:
            # A doubled answer, or one that came after the timeout; a hint is under way in that case, and harmless.
            return
        del self._silent[source]
        if isinstance(result, PenstockError):
            self._failed[source] = None
            self._hint(source)
        else:
            for group in self.groups:
                if source in group.replicas:
                    group.acknowledged_by.append(source)
        if not self.done:
            self._look()

    def _look(self) -> None:
        """Answer when enough have acknowledged, or when enough never will."""
        centres = self._context.data_centres
        if all(met(group.needs, group.acknowledged_by, centres) for group in self.groups) and self._landed():
            self._finish(None)
            return
        for group in self.groups:
            possible = [name for name in group.replicas if name not in self._failed]
            if not met(group.needs, possible, centres):
                self._fail(group, "too many replicas failed", group.acknowledged_by)
                return

    def _landed(self) -> bool:
        """With ANY, that something at least was acknowledged or hinted everywhere."""
        if not self._any_hint:
            return True
        return all(group.acknowledged_by or any(n in self._hinted for n in group.replicas) for group in self.groups)

    def _time_out(self) -> None:
        if not self.coordinator.up:
            return
        late = list(self._silent)
        self._silent.clear()
        for name in late:
            self._failed[name] = None
            self._hint(name)
        if self.done:
            return
        if self._any_hint and self._landed():
            self._finish(None)
            return
        centres = self._context.data_centres
        short = [group for group in self.groups if not met(group.needs, group.acknowledged_by, centres)]
        group = short[0] if short else self.groups[0]
        self._fail(group, "timed out waiting for replicas", group.acknowledged_by)

    def _hint(self, name: str) -> None:
        for part in self._parts(name):
            if self._context.store_hint(self.coordinator, Hint(name, part)):
                self._hinted[name] = None

    def _fail(self, group: Group, message: str, nodes: Sequence[str]) -> None:
        got = counted(group.needs, nodes, self._context.data_centres)
        self._finish(self._unavailable(message, required(group.needs), got))

    def _record(self) -> None:
        for group in self.groups:
            self._context.history.record(
                self.number,
                group.schema.table,
                tuple(group.changes),
                group.replicas,
                group.needs,
                tuple(group.acknowledged_by),
                acknowledged=self.error is None,
            )


def _write(parts: list[Part], node: Node) -> None:
    for part in parts:
        node.write(part)


class ReadOperation(Operation):
    """One partition, read from some of its replicas."""

    def __init__(
        self, context: Context, coordinator: Node, number: int, schema: TableSchema, key: Mapping[str, Any]
    ) -> None:
        super().__init__(context, coordinator, number)
        self.state: TableState | None = None
        self._schema = schema
        self._key = key
        self._needs: Needs = ()
        self._answers: dict[str, list[Change]] = {}
        self._asked: tuple[str, ...] = ()
        self._repairing: dict[str, None] = {}
        self._merged = TableState(schema)

    def start(self, replicas: Sequence[str], wanted: Needs, timeout_us: int) -> None:
        """Ask the first replicas of the given order that are enough."""
        context = self._context
        self._needs = wanted
        live = [name for name in replicas if context.seems_up(self.coordinator, name)]
        if not met(wanted, live, context.data_centres):
            got = counted(wanted, live, context.data_centres)
            self._finish(self._unavailable("not enough live replicas", required(wanted), got))
            return
        asked: list[str] = []
        for need in wanted:
            here = [n for n in live if need.data_centre in (None, context.data_centres[n]) and n not in asked]
            asked += here[: need.replicas]
        self._asked = tuple(asked)
        for name in asked:
            self._send(name, partial(_read, self._schema, self._key), self._hear_read)
        context.loop.schedule(timeout_us, self._time_out)

    def _hear_read(self, source: str, result: Any) -> None:
        if self.done or source in self._answers:
            return
        if isinstance(result, PenstockError):
            self._give_up("a replica failed")
            return
        self._answers[source] = result
        if len(self._answers) == len(self._asked):
            self._repair()

    def _repair(self) -> None:
        for changes in self._answers.values():
            for change in changes:
                self._merged.apply(change)
        lacking = {name: missing(fold(self._schema, self._answers[name]), self._merged) for name in self._asked}
        self._repairing = dict.fromkeys(name for name, changes in lacking.items() if changes)
        for name in self._repairing:
            self._send(name, partial(_write, [Part.of(self._schema, lacking[name])]), self._hear_repair)
        self._look()

    def _hear_repair(self, source: str, result: object) -> None:
        if isinstance(result, PenstockError):
            self._give_up("read repair failed")
            return
        self._repairing.pop(source, None)
        self._look()

    def _look(self) -> None:
        if not self._repairing and not self.done:
            self.state = self._merged
            self._finish(None)

    def _time_out(self) -> None:
        if self.coordinator.up and not self.done:
            self._give_up("timed out waiting for replicas")

    def _give_up(self, message: str) -> None:
        self._finish(self._unavailable(message, required(self._needs), len(self._answers)))

    def _record(self) -> None:
        self._context.history.note("read", self.number, self._schema.table, self.error is None, sorted(self._answers))


def _read(schema: TableSchema, key: Mapping[str, Any], node: Node) -> list[Change]:
    return node.read(schema.table, key)
