"""A proxy in front of a Kafka broker that loses or holds back what ends a transaction.

It understands no more of the protocol than where a request begins and which one it is.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Self

_END_TRANSACTION = 26
_HEAD = struct.Struct(">ihhi")
_LENGTH_BYTES = 4


class KafkaProxy:
    """Listens on a port of its own; `broker` is set once that one runs. A context manager."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.broker = 0
        # Set when a request that ends a transaction was cut off in the way that was asked for.
        self.cut = threading.Event()
        self._lose_answer = False
        self._hold = False
        self._held: tuple[socket.socket, bytes] | None = None
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # One that waits in accept is woken by the end of the socket only on shutdown.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._open:
            one.close()
        self._thread.join()

    def lose_next_answer(self) -> None:
        """The broker does the next end of a transaction, and the answer is lost with the connection."""
        self.cut.clear()
        self._lose_answer = True

    def hold_next_end(self) -> None:
        """The next end of a transaction stays on its way, and its sender's connection breaks."""
        self.cut.clear()
        self._hold = True

    def release(self) -> int:
        """Now the request arrives, late; the broker's error code for it."""
        assert self._held is not None
        broker, request = self._held
        broker.sendall(request)
        answer = _frame(broker)
        broker.close()
        # Length, correlation, throttle time, error, as in the versions that librdkafka speaks.
        return int(struct.unpack(">iiih", answer)[3])

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            broker = socket.socket()
            self._open += [client, broker]
            if broker.connect_ex(("127.0.0.1", self.broker)):
                client.close()
                continue
            link = _Link(client, broker)
            threading.Thread(target=self._requests, args=(link,), daemon=True).start()
            threading.Thread(target=link.answers, daemon=True).start()

    def _requests(self, link: _Link) -> None:
        with suppress(OSError):
            while request := _frame(link.client):
                kind = _HEAD.unpack_from(request)[1]
                if kind == _END_TRANSACTION and self._hold:
                    self._hold = False
                    # Answers to what came before are not wanted either.
                    link.cut()
                    self._held = (socket.create_connection(("127.0.0.1", self.broker)), request)
                    self.cut.set()
                    break
                if kind == _END_TRANSACTION and self._lose_answer:
                    self._lose_answer = False
                    link.lose = True
                    link.broker.sendall(request)
                    link.lost.wait(60)
                    self.cut.set()
                    break
                link.broker.sendall(request)
        link.cut()


class _Link:
    """One client's connection."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        self.lose = False
        self.lost = threading.Event()

    def answers(self) -> None:
        with suppress(OSError):
            while answer := _frame(self.broker):
                if self.lose:
                    self.lost.set()
                    continue
                self.client.sendall(answer)
        self.cut()

    def cut(self) -> None:
        for one in (self.client, self.broker):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _frame(source: socket.socket) -> bytes:
    """A request or an answer with its length in front; nothing at the end."""
    head = _exactly(source, _LENGTH_BYTES)
    return head + _exactly(source, struct.unpack(">i", head)[0]) if head else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)
