"""A server in a process of its own: any program will do here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.errors import ServerFailed
from penstock.sandbox.java_process import JavaProcess, free_port, port_open

_SERVER = """
import signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        server.accept()[0].close()
"""


def test_a_server_is_started_stopped_and_started_again(tmp_path: Path) -> None:
    port = free_port()
    server = JavaProcess("it", [sys.executable, "-c", _SERVER, str(port)], tmp_path / "it", lambda: port_open(port))
    for end in (server.stop, server.kill):
        server.start()
        server.ready()
        assert (server.running, port_open(port)) == (True, True)
        end()
        assert (server.running, port_open(port)) == (False, False)


def test_a_server_that_ends_by_itself_says_why(tmp_path: Path) -> None:
    server = JavaProcess("it", [sys.executable, "-c", "raise SystemExit('no heap')"], tmp_path, lambda: False)
    server.start()
    with pytest.raises(ServerFailed, match="it ended with 1: …no heap"):
        server.ready()


def test_a_server_that_never_answers_is_not_waited_for_without_end(tmp_path: Path) -> None:
    server = JavaProcess("it", [sys.executable, "-c", _SERVER, str(free_port())], tmp_path, lambda: False)
    server.start()
    try:
        with pytest.raises(ServerFailed, match="did not answer"):
            server.ready(within_s=0)
    finally:
        server.kill()
