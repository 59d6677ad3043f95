"""Door: accepts the connections of one server, a bounded number of them, counted before a single byte is read.

A connection takes a place when it is accepted, before TLS, and keeps it until its socket is closed; so no number of
clients, however silent, can use up the process's descriptors or memory. One address may have only so many of them. When
there is none left, the connection that has said nothing for longest gives up its own; when all have said what they
want, a newcomer gets one of a few places in reserve, in which a server answers only what is short. What is turned away
is counted. That the process has no descriptor left ends nothing: the next look comes after a pause.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from penstock.errors import StorageError
from penstock.serve.tally import Tally
from penstock.system.descriptors import EXHAUSTED

_BACKLOG: Final = 64
_REST_S: Final = 0.5
# How long a peer may take to say goodbye over TLS.
_SHUTDOWN_S: Final = 2.0
# The event loop needs up to four rounds to close a connection.
_ROUNDS: Final = 5
# So many errors that led to each other are let go of; errors may go round in a circle.
_ERRORS_MAX: Final = 64
_NOT_HERE: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
_SCARCE: Final = EXHAUSTED | {errno.ENOBUFS, errno.ENOMEM}

NO_PLACE: Final = "no place left"
DISPLACED: Final = "silent when places ran out"
NO_DESCRIPTOR: Final = "no descriptor left"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections there may be: in all, of one address, and beyond them all in reserve."""

    places: int
    per_address: int
    reserve: int


class Place:
    """The place of one connection."""

    def __init__(self, connection: socket.socket, address: str | None, *, reserve: bool) -> None:
        # None: the peer is on this machine, and cannot be told from others there.
        self.address = address
        self.connection = connection
        self.reserve = reserve
        # Whether the client has said what it wants.
        self.settled = False
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.BaseTransport | None = None

    def settle(self) -> None:
        """The client has said what it wants; its place is its own until it leaves."""
        self.settled = True

    def abort(self) -> None:
        """End the connection at once, whatever it is doing."""
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()
            return
        # It is still in its handshake, which ends by itself when nothing more can come.
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class Door:
    """The listening sockets of one server. `connect` makes the protocol of a place; it must tell `left` in the end."""

    def __init__(
        self,
        sockets: list[socket.socket],
        connect: Callable[[Place], asyncio.Protocol],
        bounds: Bounds,
        tally: Tally,
        *,
        tls: ssl.SSLContext | None = None,
        handshake_s: float | None = None,
    ) -> None:
        self._sockets = sockets
        self._connect = connect
        self._bounds = bounds
        self._tally = tally
        self._tls = tls
        self._handshake_s = handshake_s if tls is not None else None
        # In the order of their coming.
        self._places: dict[Place, None] = {}
        self._closed = False

    def open(self) -> None:
        """Begin to accept."""
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            listening.setblocking(False)
            listening.listen(_BACKLOG)
            loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Accept no more, and end the connections that have not said what they want."""
        self._closed = True
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
        for place in list(self._places):
            if not place.settled:
                place.abort()

    async def wait_closed(self) -> None:
        """Wait until what `close` ended has ended, and close the sockets."""
        tasks = [place.task for place in self._places if place.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        # A connection's socket is closed in the rounds after that.
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        for listening in self._sockets:
            listening.close()
        self._tally.close()

    def __len__(self) -> int:
        return len(self._places)

    def left(self, place: Place) -> None:
        """The connection of this place is closed. Telling it twice is no error."""
        self._places.pop(place, None)

    def _accept(self, listening: socket.socket) -> None:
        """Called when somebody waits; takes one of them, so that everything else has its turn."""
        try:
            connection, peer = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            # It left before its turn.
            return
        except OSError as error:
            if error.errno in _SCARCE:
                self._tally.note(NO_DESCRIPTOR)
            self._rest(listening)
            return
        connection.setblocking(False)
        self._take_in(connection, _address(peer))

    def _rest(self, listening: socket.socket) -> None:
        """Accept nothing for a moment."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)

        def go_on() -> None:
            if not self._closed:
                loop.add_reader(listening, self._accept, listening)

        loop.call_later(_REST_S, go_on)

    def _take_in(self, connection: socket.socket, address: str | None) -> None:
        reserve = self._find_place(address)
        if reserve is None:
            self._tally.note(NO_PLACE)
            connection.close()
            return
        place = Place(connection, address, reserve=reserve)
        self._places[place] = None
        place.task = asyncio.get_running_loop().create_task(self._admit(place))
        place.task.add_done_callback(lambda task: self._admitted(place, task))

    def _find_place(self, address: str | None) -> bool | None:
        """Make a place for a newcomer: whether it is one in reserve, None when there is none."""
        common = [place for place in self._places if not place.reserve]
        own = [place for place in common if place.address == address]
        full = common
        if address is not None and len(own) >= self._bounds.per_address:
            full = own
        elif len(common) < self._bounds.places:
            return False
        if self._displace(full):
            return False
        reserved = [place for place in self._places if place.reserve]
        return True if len(reserved) < self._bounds.reserve or self._displace(reserved) else None

    def _displace(self, places: list[Place]) -> bool:
        """End the connection that has been silent for longest; False when all have said what they want."""
        silent = next((place for place in places if not place.settled), None)
        if silent is None:
            return False
        self._tally.note(DISPLACED)
        self.left(silent)
        silent.abort()
        return True

    async def _admit(self, place: Place) -> None:
        loop = asyncio.get_running_loop()
        place.transport, _ = await loop.connect_accepted_socket(
            lambda: self._connect(place),
            place.connection,
            ssl=self._tls,
            ssl_handshake_timeout=self._handshake_s,
            ssl_shutdown_timeout=None if self._tls is None else _SHUTDOWN_S,
        )

    def _admitted(self, place: Place, task: asyncio.Task[None]) -> None:
        place.task = None
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            # The handshake failed; the socket is closed already, or nobody had it.
            self.left(place)
            place.connection.close()
            let_go(error)


def let_go(error: BaseException | None) -> None:
    """Drop the frames of what ended a connection, once nobody wants to know where it was raised.

    Frames and errors hold each other, and with them the buffers of the connection. They would stay until the garbage
    collector comes to them, which counts objects and not how large they are.
    """
    left = [error]
    for _ in range(_ERRORS_MAX):
        if not left:
            return
        one = left.pop()
        if one is not None:
            one.__traceback__ = None
            left += [one.__context__, one.__cause__]
            if isinstance(one, BaseExceptionGroup):
                left += one.exceptions


def bind(host: str, port: int, what: str) -> list[socket.socket]:
    """Sockets bound to the addresses of a host, so that a port in use is found out before anything else begins."""
    bound: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                bound.append(_bound(family, address))
            except OSError as error:
                # A name may stand for an address that this machine does not have, beside one that it has.
                if error.errno not in _NOT_HERE or (not bound and address == found[-1][4]):
                    raise
            # Any free port is one port; another address would get another.
            if bound and not port:
                break
    except OSError as error:
        for listening in bound:
            listening.close()
        reason = error.strerror or "no such address"
        raise StorageError(f"{what}: {reason}", host=host, port=port) from error
    return bound


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port whose last user has just gone may be taken at once; one that is in use may not.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _address(peer: object) -> str | None:
    """What tells a peer from others: its address, of IPv6 the network; None for this machine."""
    if not isinstance(peer, tuple) or not peer:
        return None
    with suppress(ValueError):
        found = ipaddress.ip_address(str(peer[0]).partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address):
            found = found.ipv4_mapped or found
        if found.is_loopback:
            return None
        if isinstance(found, ipaddress.IPv6Address):
            # One machine has as many addresses of its network as it likes.
            return str(ipaddress.ip_network((found, 64), strict=False))
        return str(found)
    return str(peer[0])
