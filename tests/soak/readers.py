"""Readers of a soak, each a thread with an account: subscriptions of the library, listener clients, HTTP readers.

A reader goes on after whatever ends its session: an agent that was killed, a place that was taken, a loss that it was
told of. It ends when it is told to and has everything that was written.
"""

from __future__ import annotations

import http.client
import io
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import fastavro

from penstock.errors import ChangesLost, PenstockError
from penstock.formats import avro
from penstock.log.subscription import Subscription
from penstock.model.change import Change, Set
from penstock.model.position import Position
from penstock.serve.client import Client
from penstock.serve.protocol import Acked, Changes, Format, Hello
from tests.soak.account import Account, Row
from tests.soak.agents import TABLE, TOKEN, AgentProcess

_LOOK_S = 0.2


@dataclass(frozen=True)
class Habits:
    """How a reader goes about it: rest after each batch, commits, how long a session lasts, and the rest after it."""

    rest_s: float = 0.0
    batches_per_commit: int = 1
    session_s: float = 3600.0
    # It stays away for this long, and until retention has cut something from it.
    away_s: float = 0.0
    # Its subscription is moved back after each session: to the begin of the log, and a few batches, in turn.
    rewinds: bool = False


class Reader(threading.Thread):
    """What all readers share. `ending` says that no more is written."""

    def __init__(self, agent: AgentProcess, account: Account, habits: Habits, ending: threading.Event) -> None:
        super().__init__(name=f"soak-{account.name}", daemon=True)
        self.agent = agent
        self.account = account
        self.habits = habits
        self.events: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self.abandon = threading.Event()
        self._ending = ending
        self._batches = 0

    def run(self) -> None:
        try:
            while not self.finished:
                self._session()
        except BaseException as error:  # noqa: BLE001 - the run that waits for this thread raises it.
            self.failure = error

    def subscribe(self) -> None:
        """Let there be a subscription at the begin of the log: from now on nothing may be cut from it in silence."""
        Subscription.open(str(self.agent.log), self.account.name).close()

    @property
    def finished(self) -> bool:
        """Whether all was read and no more will come, or nobody waits for it any longer."""
        if self.abandon.is_set():
            return True
        return self._ending.is_set() and (self.account.next or 0) >= self.agent.node.written

    def _session(self) -> None:
        raise NotImplementedError

    def _rest(self, seconds: float) -> None:
        """Slow is slow only as long as there is something to be slower than."""
        if seconds:
            self._ending.wait(seconds)

    def _take(self, changes: list[Change], last: Position) -> bool:
        """Note what came; whether it is time to commit."""
        self.account.take([_row(change) for change in changes], last, written=self.agent.node.written)
        self._batches += 1
        return self._batches % self.habits.batches_per_commit == 0 or self._ending.is_set()


class LibraryReader(Reader):
    """A subscription of the Python library, on the log's own files."""

    def _session(self) -> None:
        account = self.account
        with Subscription.open(str(self.agent.log), account.name) as subscription:
            account.resume(subscription.position)
            end = time.monotonic() + self.habits.session_s
            while not self.finished and (time.monotonic() < end or self._ending.is_set()):
                try:
                    self._read(subscription)
                except ChangesLost:
                    loss = subscription.accept_loss()
                    if loss is not None:
                        self.events["losses told"] += 1
                        account.announce(loss.after, loss.through)
        if not self._ending.is_set():
            self._after_session()

    def _read(self, subscription: Subscription) -> None:
        batch = subscription.next(_LOOK_S)
        if batch is None:
            return
        if self._take(avro.decode(batch), batch.last):
            self.account.sent(batch.last)
            subscription.commit(batch.last)
            self.account.durable(batch.last)
        self._rest(self.habits.rest_s)

    def _after_session(self) -> None:
        if self.habits.away_s:
            before = self.account.cut
            self._ending.wait(self.habits.away_s)
            while self.account.cut == before and not self._ending.wait(_LOOK_S):
                pass
            self.events["stops"] += 1
        if self.habits.rewinds:
            self._rewind()

    def _rewind(self) -> None:
        place = self.account.earlier(20) if self.events["rewinds asked for"] % 2 else None
        self.events["rewinds asked for"] += 1
        found = _log(self.agent)
        if found is None:
            return
        path = f"/logs/{found['id']}/subscription/rewind?name={self.account.name}&to={place or 'begin'}"
        answer = _ask(self.agent, "POST", path)
        # It may be told that the place is gone, or get no answer.
        if answer is not None and answer[0] == 200:
            moved = json.loads(answer[1])
            before, after = (Position.parse(moved[name]) for name in ("before", "position"))
            self.account.rewound(before, after, moved["again"])
            self.events["rewinds"] += 1


class ListenerReader(Reader):
    """A client of the listener with a subscription."""

    def __init__(self, agent: AgentProcess, account: Account, habits: Habits, ending: threading.Event) -> None:
        super().__init__(agent, account, habits, ending)
        self._accept_loss = False

    def _session(self) -> None:
        hello = Hello(TABLE, subscription=self.account.name, token=TOKEN, accept_loss=self._accept_loss)
        try:
            with Client(self.agent.listener, hello, tls=self.agent.tls) as client:
                self._accept_loss = False
                self.account.resume(client.welcome.position)
                self.events["sessions"] += 1
                end = time.monotonic() + self.habits.session_s
                while not self.finished and (time.monotonic() < end or self._ending.is_set()):
                    self._read(client)
        except ChangesLost as error:
            after, through = (Position.parse(str(error.place[name])) for name in ("after", "through"))
            self.account.announce(after, through)
            self.events["losses told"] += 1
            self._accept_loss = True
        except (OSError, PenstockError) as error:
            self.events[_ended(error)] += 1
            self.abandon.wait(_LOOK_S)

    def _read(self, client: Client) -> None:
        try:
            message = client.receive(_LOOK_S)
        except TimeoutError:
            return
        if isinstance(message, Acked):
            self.account.durable(message.position)
        elif isinstance(message, Changes):
            if self._take(client.decode(message), message.last):
                self.account.sent(message.last)
                client.ack(message.last)
            self._rest(self.habits.rest_s)


class JsonFollower(Reader):
    """A client of the listener that only looks on, in JSON: it holds no place and begins at the end each time."""

    def subscribe(self) -> None:
        """It has no place to be cut from."""

    @property
    def finished(self) -> bool:
        return self._ending.is_set() or self.abandon.is_set()

    def _session(self) -> None:
        hello = Hello(TABLE, start="latest", format=Format.JSON, token=TOKEN)
        self.account.begin_anywhere()
        try:
            with Client(self.agent.listener, hello, tls=self.agent.tls) as client:
                self.events["sessions"] += 1
                end = time.monotonic() + self.habits.session_s
                while not self.finished and time.monotonic() < end:
                    self._read(client)
        except (OSError, PenstockError) as error:
            self.events[_ended(error)] += 1
            self.abandon.wait(_LOOK_S)

    def _read(self, client: Client) -> None:
        try:
            message = client.receive(_LOOK_S)
        except TimeoutError:
            return
        if isinstance(message, Changes):
            lines = [json.loads(line) for line in bytes(message.rows).splitlines()]
            rows = [Row(line["key"]["id"], line["cells"]["note"]["value"]) for line in lines]
            self.account.take(rows, message.last, written=self.agent.node.written)


class HttpReader(Reader):
    """Fetches whole files over HTTP and reads them with fastavro, and commits under a name."""

    def __init__(self, agent: AgentProcess, account: Account, habits: Habits, ending: threading.Event) -> None:
        super().__init__(agent, account, habits, ending)
        self._subscribed = False
        self._done = 0

    def _session(self) -> None:
        self.abandon.wait(_LOOK_S)
        found = _log(self.agent)
        if found is None:
            return
        if not self._subscribed:
            self._subscribed = self._commit(found["id"], None)
        answer = _ask(self.agent, "GET", f"/logs/{found['id']}")
        if answer is None or answer[0] != 200:
            return
        numbers = [file["number"] for file in json.loads(answer[1])["files"]]
        for number in numbers if self._ending.is_set() else numbers[:-1]:
            # The newest file is read when it does not grow any more.
            if number > self._done and not self._fetch(found["id"], number, newest=number == numbers[-1]):
                return

    def _fetch(self, log_id: str, number: int, *, newest: bool) -> bool:
        """Read one file; False when it could not be had now."""
        answer = _ask(self.agent, "GET", f"/logs/{log_id}/data/{number}")
        if answer is None or answer[0] != 206:
            self.events["files that were gone" if answer is not None and answer[0] == 404 else "no answer"] += 1
            return False
        rows: list[Row] = []
        last: Position | None = None
        for block in fastavro.block_reader(io.BytesIO(answer[1])):
            records: list[Any] = list(block)
            rows += [Row(record["key"]["id"], record["cells"]["note"]["value"]) for record in records]
            last = Position(number, block.offset, len(records) - 1)
        if newest and (not rows or rows[-1].number + 1 < self.agent.node.written):
            # The agent has not caught up with the writer yet.
            return False
        self.events["files"] += 1
        self._done = number
        if last is not None:
            self.account.take(rows, last, written=self.agent.node.written)
            self._commit(log_id, last)
        return True

    def _commit(self, log_id: str, position: Position | None) -> bool:
        path = f"/logs/{log_id}/subscription?name={self.account.name}"
        if position is not None:
            self.account.sent(position)
            path += f"&position={position}"
        answer = _ask(self.agent, "POST", path)
        if answer is None or answer[0] != 200:
            return False
        found = Position.parse(json.loads(answer[1])["position"])
        if position is None:
            self.account.resume(found)
        elif found == position:
            self.account.durable(position)
        return True


def _ended(error: Exception) -> str:
    """What ended a session, for the count of such ends."""
    said = f": {error.message}" if isinstance(error, PenstockError) else ""
    return f"ended by {type(error).__name__}{said}"


def _row(change: Change) -> Row:
    cell = change.cells["note"]
    assert isinstance(cell, Set)
    return Row(change.key["id"], cell.value)


def _ask(agent: AgentProcess, method: str, path: str) -> tuple[int, bytes] | None:
    """One request; None when the agent is not there or has no place: whoever asks comes again."""
    try:
        status, body = agent.ask(method, path)
    except (OSError, http.client.HTTPException):
        return None
    return None if status == 503 else (status, body)


def _log(agent: AgentProcess) -> dict[str, Any] | None:
    """What the agent says of the table's log."""
    answer = _ask(agent, "GET", "/logs")
    if answer is None or answer[0] != 200:
        return None
    for found in json.loads(answer[1])["logs"]:
        if (found["keyspace"], found["table"], found["name"]) == (*TABLE, ""):
            return dict(found)
    return None
