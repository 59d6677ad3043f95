"""The door of the servers: connections are bounded before TLS, and turning them away floods nothing."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog

from penstock.capture.status import AgentStatus
from penstock.serve.door import DISPLACED, NO_DESCRIPTOR, NO_PLACE, Bounds, Door, Place, _address, bind
from penstock.serve.http import HttpServer
from penstock.serve.tally import Tally
from penstock.settings import HttpSettings
from tests.certificates import make_certificate
from tests.listening import listening

FLOOD = 60
RUNNING = AgentStatus(node="node1", data_centre="dc1", started_time_us=1_700_000_000_000_000, running=True)
PING = b"GET /ping HTTP/1.1\r\nauthorization: Bearer a token of some length\r\nhost: x\r\n\r\n"


class Echo(asyncio.Protocol):
    """Settles its place at the first byte, and answers with it."""

    def __init__(self, door: list[Door], place: Place) -> None:
        self._door = door
        self._place = place
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._place.settle()
        self._transport.write((b"reserve " if self._place.reserve else b"common ") + data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door[0].left(self._place)


async def turn(rounds: int = 20) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


async def ask(stack: ExitStack, port: int) -> tuple[socket.socket, bytes]:
    """A connection that says something, and what it gets."""
    loop = asyncio.get_running_loop()
    client = stack.enter_context(socket.socket())
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, b"x")
    try:
        return client, await asyncio.wait_for(loop.sock_recv(client, 100), 60)
    except ConnectionResetError:
        return client, b""


def serve(bounds: Bounds) -> tuple[Door, Tally, int]:
    sockets, tally = bind("127.0.0.1", 0, "cannot listen"), Tally("test", 3600)
    doors: list[Door] = []
    doors.append(Door(sockets, partial(Echo, doors), bounds, tally))
    doors[0].open()
    return doors[0], tally, int(sockets[0].getsockname()[1])


async def close(door: Door) -> None:
    door.close()
    for place in list(door._places):
        place.abort()
    await door.wait_closed()
    assert not len(door)


def test_places_go_to_who_speaks_then_to_the_reserve_then_to_nobody() -> None:
    async def play() -> None:
        door, tally, port = serve(Bounds(2, 2, 1))
        with ExitStack() as stack:
            for _ in range(FLOOD):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
            answers = [(await ask(stack, port))[1] for _ in range(4)]
            assert answers == [b"common x", b"common x", b"reserve x", b""]
            assert len(door) == 3
        assert tally.counts[DISPLACED] >= FLOOD - 2
        assert tally.counts[NO_PLACE] == 1
        await turn()
        await close(door)

    asyncio.run(play())


def test_an_address_has_only_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a test's clients are on one machine, so the server is told that they are from elsewhere."""
    peers = iter(["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.1"])
    monkeypatch.setattr("penstock.serve.door._address", lambda _: next(peers))

    async def play() -> None:
        door, _, port = serve(Bounds(3, 1, 0))
        with ExitStack() as stack:
            answers = [(await ask(stack, port))[1] for _ in range(4)]
        assert answers == [b"common x", b"", b"common x", b""]
        await turn()
        await close(door)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("127.0.0.1", 1), None),
        (("::1", 1, 0, 0), None),
        (("::ffff:127.0.0.1", 1, 0, 0), None),
        ("", None),
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("2001:db8::1:2:3:4", 1, 0, 0), "2001:db8::/64"),
        (("fe80::1%lo", 1, 0, 1), "fe80::/64"),
    ],
)
def test_peers_are_told_apart_by_what_they_cannot_choose(peer: object, address: str | None) -> None:
    assert _address(peer) == address


def test_lack_of_descriptors_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.serve.door._REST_S", 0)
    refusals = [2]
    accept = socket.socket.accept

    def scarce(self: socket.socket) -> tuple[socket.socket, object]:
        if refusals[0]:
            refusals[0] -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", scarce)

    async def play() -> None:
        door, tally, port = serve(Bounds(2, 2, 1))
        with ExitStack() as stack:
            assert (await ask(stack, port))[1] == b"common x"
        assert tally.counts[NO_DESCRIPTOR] == 2
        await turn()
        await close(door)

    asyncio.run(play())


def test_many_are_counted_and_few_lines_written() -> None:
    async def play() -> None:
        tally = Tally("test", 3600)
        for _ in range(3000):
            tally.note("no place left")
        assert tally.counts["no place left"] == 3000
        tally.close()

    with structlog.testing.capture_logs() as lines:
        asyncio.run(play())
    assert [line["clients"] for line in lines] == [1, 2999]


def open_sockets() -> int:
    """Sockets that this process holds."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except FileNotFoundError:
            continue
    return found


@contextmanager
def flooded(port: int) -> Iterator[list[socket.socket]]:
    """Clients that connect and never say a word of TLS."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(FLOOD)]


@pytest.fixture
def secured(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "token").write_text("a token of some length")
    certificate = make_certificate(tmp_path)
    return {
        "token_file": tmp_path / "token",
        "tls_certificate_file": certificate.file,
        "tls_key_file": certificate.key_file,
    }


def test_http_is_bounded_before_the_handshake(secured: dict[str, Any]) -> None:
    settings = HttpSettings(port=0, clients_max=4, request_s=600, **secured)
    context = ssl.create_default_context(cafile=str(secured["tls_certificate_file"]))
    with HttpServer(settings, lambda: RUNNING) as server:
        before = open_sockets()
        with flooded(server.port):
            # It answers while they are there, and holds no more of them than it may: the rest is the clients' own.
            plain = socket.create_connection(("127.0.0.1", server.port), 60)
            with plain, context.wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(PING)
                assert b"pong" in client.recv(65536) + client.recv(65536)
            assert open_sockets() - before <= FLOOD + 4 + 4


def test_listener_is_bounded_before_the_handshake(tmp_path: Path, secured: dict[str, Any]) -> None:
    with listening(tmp_path, port=0, clients_max=4, handshake_s=600, **secured) as (listener, _):
        before = open_sockets()
        with flooded(listener.port) as clients:
            # The first have been let go, so all that came before the last few were seen.
            for client in clients[:-8]:
                assert client.recv(1) == b""
            assert open_sockets() - before <= FLOOD + 4 + 4


def test_failed_handshakes_leave_nothing_to_the_garbage_collector(secured: dict[str, Any]) -> None:
    # It counts objects and not their buffers of 256 KiB: a flood would take hundreds of megabytes before it comes by.
    half_a_greeting = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    with HttpServer(HttpSettings(port=0, request_s=600, **secured), lambda: RUNNING) as server:
        gc.collect()
        gc.disable()
        try:
            for sent in (half_a_greeting, b"no TLS at all", b"") * FLOOD:
                with socket.create_connection(("127.0.0.1", server.port), 60) as client, suppress(ConnectionError):
                    client.sendall(sent)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(4096):
                        pass
            left = sum(isinstance(one, SSLProtocol) for one in gc.get_objects())
        finally:
            gc.enable()
    # The last few may still be on their way out.
    assert left <= 8
