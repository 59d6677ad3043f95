"""Listener: a socket to which local daemons connect and from which changes are pushed to them as they come.

It listens on a Unix socket that only its owner may open, or on TCP, where a token is asked for and where any address
but the loopback also needs TLS. Who has not shown the token gets nothing but a refusal. Clients are bounded in number,
before TLS (see `door`), and each in memory, in the size of its requests and in the time it may take to introduce
itself; what one client does wrong ends that client's connection and touches no other. docs/formats/listener.md
describes the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Self

import structlog

from penstock.errors import (
    AccessDenied,
    ChangesLost,
    CorruptFrame,
    InvalidInput,
    InvalidSetting,
    PenstockError,
    PositionAhead,
    StorageError,
)
from penstock.log import names
from penstock.log.subscription import Start, Subscription
from penstock.model.position import Position
from penstock.serve.access import EVERYTHING, Right, Rights, Tokens, read_tokens, tls_context
from penstock.serve.connection import CHUNK_BYTES, READ_BYTES, Connection, Link, Pools
from penstock.serve.door import NO_PLACE, Bounds, Door, Place, bind, let_go
from penstock.serve.feed import Feed
from penstock.serve.protocol import REQUESTS, Failure, Frame, Hello, Kind, Parser, Welcome, parse
from penstock.serve.tally import Tally
from penstock.settings import ListenerSettings, RetentionSettings
from penstock.system.clock import Clock, SystemClock

log = structlog.get_logger()

_THREADS = 8
# How long a refused client is given to take the reason.
_GOODBYE_S = 2.0
# Places for clients that are told that there are too many.
_RESERVE = 4
# The event loop needs up to four rounds to accept a connection or to close one.
_ROUNDS = 5


class Listener:
    """The listening socket of one directory of logs. `root` holds one directory per log."""

    def __init__(
        self,
        root: str,
        settings: ListenerSettings,
        *,
        retention: RetentionSettings | None = None,
        clock: Clock | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._root = root
        self._settings = settings
        self._retention = retention
        self._clock = clock or SystemClock()
        self._tokens = _tokens(settings)
        host = None if settings.path is not None else settings.host
        self._tls = tls_context(host, settings.tls_certificate_file, settings.tls_key_file)
        self._tally = tally or Tally("listener")
        self._sockets: list[socket.socket] = []
        self._door: Door | None = None
        self._feeds: dict[str, Feed] = {}
        self._feeds_lock = asyncio.Lock()
        self._clients: set[asyncio.Task[None]] = set()
        self._pools = Pools(_pool("read"), _pool("commit"))

    async def start(self) -> None:
        """Begin to listen."""
        settings = self._settings
        if settings.path is not None:
            self._sockets = [_unix_socket(str(settings.path))]
        else:
            self._sockets = bind(settings.host, settings.port, "cannot listen")
        for pool in (self._pools.read, self._pools.commit):
            _fill(pool)
        bounds = Bounds(settings.clients_max, settings.clients_per_address_max, _RESERVE)
        self._door = Door(
            self._sockets, self._protocol, bounds, self._tally, tls=self._tls, handshake_s=settings.handshake_s
        )
        self._door.open()
        log.info("listener started", address=self.address, tls=self._tls is not None, token=self._tokens is not None)

    @property
    def address(self) -> str:
        """Where it listens: the path of the socket, or host:port."""
        if self._settings.path is not None:
            return str(self._settings.path)
        return f"{self._settings.host}:{self.port}"

    @property
    def port(self) -> int:
        """The TCP port, also when the settings left the choice to the system."""
        return int(self._sockets[0].getsockname()[1])

    @property
    def clients(self) -> int:
        """How many clients are connected now. May be asked from any thread."""
        return len(self._clients)

    async def close(self) -> None:
        """Stop listening, let every client go and wait for them."""
        door, self._door = self._door, None
        if door is not None:
            # First no more are accepted; one that was accepted just now is known when that has ended.
            door.close()
            await door.wait_closed()
        for client in list(self._clients):
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        # Their sockets are closed in the rounds after that.
        await _let_loop_turn()
        if door is not None and self._settings.path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._settings.path)
        for pool in (self._pools.read, self._pools.commit):
            pool.shutdown()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # One client.

    def _protocol(self, place: Place) -> asyncio.Protocol:
        assert self._door is not None
        return _Stream(partial(self._accept, place), partial(self._door.left, place))

    def _accept(self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called for each connection. The socket is closed even if the task never begins to run."""
        writer.transport.set_write_buffer_limits(high=CHUNK_BYTES)
        task = asyncio.get_running_loop().create_task(self._attend(place, reader, writer))
        self._clients.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._clients.discard(task)
            writer.transport.abort()

        task.add_done_callback(ended)

    async def _attend(self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            error = await self._serve(place, Link(reader, writer, Parser(REQUESTS, self._settings.request_bytes_max)))
            if error is not None:
                await _say_goodbye(reader, writer, error)
        except asyncio.CancelledError:
            # Only `close` cancels a client.
            return
        except Exception:
            # A fault of ours ends this client and no other.
            log.exception("listener client failed")

    async def _serve(self, place: Place, link: Link) -> PenstockError | None:
        """Serve a client to its end; the error is what it is to be told, None when it left by itself."""
        try:
            if place.reserve:
                raise InvalidInput("too many clients")
            hello, early = await self._handshake(link)
            place.settle()
            await self._run(link, hello, early)
        except PenstockError as error:
            if place.settled:
                log.warning("listener client refused", error=type(error).__name__, reason=error.message)
            else:
                # Anybody can come so far, as often as he likes.
                self._tally.note(NO_PLACE if place.reserve else type(error).__name__)
            let_go(error)
            return error
        except (ConnectionError, ssl.SSLError, TimeoutError) as error:
            if place.settled:
                log.info("listener client vanished")
            let_go(error)
        return None

    async def _handshake(self, link: Link) -> tuple[Hello, list[Frame]]:
        frames: list[Frame] = []
        try:
            async with asyncio.timeout(self._settings.handshake_s):
                while not frames:
                    data = await link.reader.read(READ_BYTES)
                    if not data:
                        raise ConnectionResetError("the client left before its greeting")
                    frames = link.parser.feed(data)
        except TimeoutError:
            raise CorruptFrame("no greeting came in time") from None
        if frames[0].kind is not Kind.HELLO:
            raise CorruptFrame("the first frame must be a greeting")
        hello = parse(frames[0])
        assert isinstance(hello, Hello)
        rights = EVERYTHING if self._tokens is None else self._tokens.rights(hello.token or "")
        if rights is None:
            raise AccessDenied("access denied")
        # Before it is looked whether there is such a log: who may not read it is not told.
        _check_rights(rights, hello)
        return hello, frames[1:]

    async def _run(self, link: Link, hello: Hello, early: list[Frame]) -> None:
        loop = asyncio.get_running_loop()
        directory = os.path.join(self._root, names.directory_name(hello.table, hello.log))
        feed = await self._join(directory)
        subscription: Subscription | None = None
        try:
            if hello.subscription is not None:
                subscription = await loop.run_in_executor(self._pools.commit, self._subscribe(directory, hello))
                after = subscription.position
            else:
                after = _start_position(feed, hello.start)
            connection = Connection(
                link,
                feed,
                hello.format,
                after,
                subscription,
                settings=self._settings,
                clock=self._clock,
                pools=self._pools,
            )
            link.writer.write(Welcome(feed.reader.log_id, after, feed.reader.end()).to_bytes())
            await connection.run(early)
        finally:
            if subscription is not None:
                await loop.run_in_executor(self._pools.commit, subscription.close)
            await self._leave(directory)

    def _subscribe(self, directory: str, hello: Hello) -> Callable[[], Subscription]:
        name, start = hello.subscription, _start(hello.start)
        assert name is not None

        def opened() -> Subscription:
            subscription = Subscription.open(
                directory, name, clock=self._clock, start=start, retention_settings=self._retention
            )
            try:
                if hello.accept_loss:
                    subscription.accept_loss()
                subscription.check_loss()
            except BaseException:
                subscription.close()
                raise
            return subscription

        return opened

    async def _join(self, directory: str) -> Feed:
        """The feed of a log, which its first client opens and its last one closes."""
        async with self._feeds_lock:
            feed = self._feeds.get(directory)
            if feed is None:
                if not os.path.isdir(directory):
                    raise InvalidInput("there is no such log")
                loop = asyncio.get_running_loop()
                size = self._settings.client_buffer_bytes
                feed = await loop.run_in_executor(self._pools.read, Feed, directory, loop, size)
                self._feeds[directory] = feed
            feed.clients += 1
            return feed

    async def _leave(self, directory: str) -> None:
        async with self._feeds_lock:
            feed = self._feeds[directory]
            feed.clients -= 1
            if not feed.clients:
                del self._feeds[directory]
                await asyncio.get_running_loop().run_in_executor(self._pools.read, feed.close)


class _Stream(asyncio.StreamReaderProtocol):
    """A connection as a pair of streams, which says when it is closed."""

    def __init__(
        self, accepted: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None], left: Callable[[], None]
    ) -> None:
        super().__init__(asyncio.StreamReader(), accepted)
        self._left = left

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._left()


async def _let_loop_turn() -> None:
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


def _start(text: str) -> Start:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    return Position.parse(text)


def _start_position(feed: Feed, text: str) -> Position:
    """Where a client without a subscription begins."""
    start = _start(text)
    first, end = feed.reader.first(), feed.reader.end()
    if start == "earliest":
        return first
    if start == "latest":
        return end
    if start > end:
        raise PositionAhead("the start lies ahead of the log", position=start, end=end)
    if start < first:
        raise ChangesLost("retention removed changes after this start", after=start, through=first)
    return start


async def _say_goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, error: PenstockError) -> None:
    """Tell the client why, and read what it still sends: unread bytes would make the system throw the reason away."""
    place = {key: str(value) for key, value in error.place.items()}
    with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
        async with asyncio.timeout(_GOODBYE_S):
            writer.write(Failure(type(error).__name__, error.message, place).to_bytes())
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
                while await reader.read(READ_BYTES):
                    pass
            writer.close()
            await writer.wait_closed()


def _tokens(settings: ListenerSettings) -> Tokens | None:
    tokens = read_tokens(settings, "listener")
    if tokens is None and settings.path is None:
        raise InvalidSetting(
            "a TCP listener needs listener.token_file or listener.tokens: anyone on the machine could connect"
        )
    return tokens


def _check_rights(rights: Rights, hello: Hello) -> None:
    rights.require(Right.READ, hello.table)
    if hello.subscription is not None:
        rights.require(Right.SUBSCRIBE, hello.table)


def _pool(kind: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, f"penstock-listener-{kind}")


def _fill(pool: Executor) -> None:
    """Start every thread of a pool.

    By itself a pool starts one more whenever more are busy at once than ever before, and lets none go: what an agent
    takes would creep up for weeks.
    """
    together = threading.Barrier(_THREADS)
    try:
        for waiting in [pool.submit(together.wait) for _ in range(_THREADS)]:
            waiting.result()
    finally:
        # Those that came wait for no thread that could not be started.
        together.abort()


def _unix_socket(path: str) -> socket.socket:
    """A bound socket that only its owner may open. A socket that a killed listener left is replaced."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(path):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise StorageError("this is no socket and is in the way", file=path)
            if _answers(path):
                raise StorageError("another process listens on this socket", file=path)
            os.unlink(path)
        listening.bind(path)
        # Nobody can connect before `listen`, so there is no moment in which the socket is open to others.
        os.chmod(path, 0o600)
    except OSError as error:
        listening.close()
        raise StorageError(f"cannot listen: {error.strerror or error}", file=path) from error
    except StorageError:
        listening.close()
        raise
    return listening


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True
