"""Floods of connections against the ports of an agent: a bounded number each, of clients that want nothing good.

Some leave at once, some say nothing, some begin TLS and stop, some send what is no request, some show a wrong token.
After each flood the agent must still say how it is.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from urllib.parse import urlsplit

from penstock.errors import PenstockError
from penstock.serve.client import Client
from penstock.serve.protocol import Hello
from tests.soak.agents import TABLE, AgentProcess

# Beyond `http.clients_max` and its reserve, so that some are turned away.
CLIENTS = 48
_TRIES = 60
_TRY_S = 0.25
_WRONG = "this-token-is-a-wrong-one"
# The head of a record of 512 bytes that never comes, with a ClientHello in it.
_HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
_GARBAGE = b"\x00\xff\xfe GET nothing\r\n\r\n" * 8


class Flood(threading.Thread):
    """Floods an agent again and again until it is told to end."""

    def __init__(self, agent: AgentProcess, every_s: float, hold_s: float, seed: int, ending: threading.Event) -> None:
        super().__init__(name="soak-flood", daemon=True)
        self.events: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._agent = agent
        self._every_s = every_s
        self._hold_s = hold_s
        self._random = Random(seed)
        self._ending = ending

    def run(self) -> None:
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("clients that leave at once", lambda: self._hold(b"", 0)),
            ("silent clients", lambda: self._hold(b"", self._hold_s)),
            ("half handshakes", lambda: self._hold(_HALF_HELLO, self._hold_s)),
            ("garbage", lambda: self._hold(_GARBAGE, self._hold_s / 4)),
            ("wrong tokens", self._show_wrong_tokens),
        ]
        try:
            while not self._ending.wait(self._every_s):
                for name, flood in self._random.sample(kinds, len(kinds)):
                    flood()
                    self.events[name] += CLIENTS
                    self.events["floods"] += 1
                    self._check_answers()
                    if self._ending.wait(self._every_s):
                        break
        except BaseException as error:  # noqa: BLE001 - the run that waits for this thread raises it.
            self.failure = error

    def _ports(self) -> list[tuple[str, int]]:
        where = urlsplit(self._agent.http)
        host, _, port = self._agent.listener.rpartition(":")
        assert where.hostname is not None
        assert where.port is not None
        return [(where.hostname, where.port), (host, int(port))]

    def _hold(self, data: bytes, seconds: float) -> None:
        """Connect to both ports, send something, and stay for a while."""
        held: list[socket.socket] = []
        try:
            for number in range(CLIENTS):
                with suppress(OSError):
                    held.append(socket.create_connection(self._ports()[number % 2], 2))
                    if data:
                        held[-1].sendall(data)
            if seconds:
                self._ending.wait(seconds)
        finally:
            for one in held:
                one.close()

    def _show_wrong_tokens(self) -> None:
        for number in range(CLIENTS):
            # One that is turned away before it could show it is none the worse for it.
            with suppress(OSError, http.client.HTTPException):
                if number % 2:
                    status, _ = self._agent.ask("GET", "/logs", Authorization=f"Bearer {_WRONG}")
                    self.events[f"wrong tokens answered {status}"] += 1
                    assert status in (401, 503), status
                else:
                    self._greet()

    def _greet(self) -> None:
        try:
            with Client(self._agent.listener, Hello(TABLE, token=_WRONG), tls=self._agent.tls):
                raise AssertionError("a wrong token was let in")
        except PenstockError as error:
            self.events[f"wrong tokens refused by {type(error).__name__}"] += 1

    def _check_answers(self) -> None:
        """Whoever asks how the agent is gets an answer, at the latest when the flood has gone."""
        looking = threading.Event()
        for _ in range(_TRIES):
            try:
                status, body = self._agent.ask("GET", "/ping")
                metrics, _ = self._agent.ask("GET", "/metrics")
            except (OSError, http.client.HTTPException):
                self.events["monitoring had to ask again"] += 1
                looking.wait(_TRY_S)
                continue
            assert (status, body.strip(), metrics) == (200, b"pong", 200), (status, metrics)
            return
        raise AssertionError("the agent does not answer after a flood")
