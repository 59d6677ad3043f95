"""A small client of the listener: one blocking socket, for Python programs and as a model for other languages.

It keeps no state beyond the connection. Whoever uses a subscription acknowledges what is done; after a break the
listener goes on behind the last acknowledgement that it answered, so what was not acknowledged comes again.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from penstock import errors
from penstock.errors import CorruptFrame, InvalidInput, PenstockError
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change
from penstock.model.position import Position
from penstock.model.schema import TableSchema
from penstock.serve.protocol import (
    REPLIES,
    REPLY_BYTES_MAX,
    Ack,
    Acked,
    Changes,
    Failure,
    Format,
    Hello,
    Message,
    Parser,
    Schema,
    Welcome,
    parse,
)

_READ_BYTES = 256 << 10


class Client:
    """One connection to a listener. `address` is the path of a Unix socket, or `host:port`."""

    def __init__(
        self, address: str, hello: Hello, *, tls: ssl.SSLContext | None = None, timeout_s: float | None = 10.0
    ) -> None:
        self._format = hello.format
        self._parser = Parser(REPLIES, REPLY_BYTES_MAX)
        self._messages: deque[Message] = deque()
        self.schema: TableSchema | None = None
        # The last acknowledgement that the listener has made durable.
        self.acked: Position | None = None
        self._socket = _connect(address, tls, timeout_s)
        try:
            # A listener that refuses may have closed already; its reason is still there to be read.
            with contextlib.suppress(ConnectionError):
                self._socket.sendall(hello.to_bytes())
            welcome = self._receive()
            if not isinstance(welcome, Welcome):
                raise CorruptFrame("the listener did not begin with a welcome")
        except BaseException:
            self._socket.close()
            raise
        self.welcome = welcome

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. TimeoutError when none comes in time, ConnectionError when the listener is gone."""
        self._socket.settimeout(timeout_s)
        message = self._receive()
        if isinstance(message, Schema):
            self.schema = TableSchema.from_json(message.schema)
        elif isinstance(message, Acked):
            self.acked = message.position
        return message

    def changes(self, timeout_s: float | None = None) -> Iterator[Changes]:
        """The frames of changes as they come, for ever; TimeoutError when nothing at all comes in time."""
        while True:
            message = self.receive(timeout_s)
            if isinstance(message, Changes):
                yield message

    def decode(self, changes: Changes) -> list[Change]:
        """The changes of an Avro frame as objects."""
        if self.schema is None or self._format is not Format.AVRO:
            raise InvalidInput("only Avro frames that came with a schema can be decoded")
        return avro.decode(ChangeBatch(self.schema, changes.count, changes.rows))

    def ack(self, position: Position) -> None:
        """Everything up to and including `position` is done. An Acked message says when that is durable."""
        self._socket.sendall(Ack(position).to_bytes())

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self) -> Message:
        while not self._messages:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the listener closed the connection")
            self._messages.extend(map(parse, self._parser.feed(data)))
        message = self._messages.popleft()
        if isinstance(message, Failure):
            raise _as_error(message)
        return message


def _connect(address: str, tls: ssl.SSLContext | None, timeout_s: float | None) -> socket.socket:
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in address:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
        return connection if tls is None else tls.wrap_socket(connection, server_hostname=host.strip("[]"))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _as_error(failure: Failure) -> PenstockError:
    """The listener's refusal as the error that it raised there."""
    kind = getattr(errors, failure.error, PenstockError)
    if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
        kind = PenstockError
    return kind(failure.message, **failure.place)
