"""A Java server in a process of its own: started, waited for, stopped or killed by its process id.

What it says goes to a file in its directory; when it ends by itself, the end of that file, or of the log that it keeps
itself, is in the error. Both `stop` and `kill` can be followed by another `start` on the same files and ports.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Self

from penstock.errors import ServerFailed

_STOP_S = 60
_READY_S = 300.0
_TAIL_CHARS = 3000
_PORTS = (10_000, 32_000)
_PORT_TRIES = 100


class JavaProcess:
    """One server. `answers` says whether it is ready, and `log` is a log of its own."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, answers: Callable[[], bool], log: Path | None = None
    ) -> None:
        self._name = name
        self._log = log
        self._command = list(command)
        self._directory = directory.absolute()
        self._answers = answers
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; `ready` waits until it answers."""
        assert not self.running
        self._directory.mkdir(parents=True, exist_ok=True)
        # A session of its own: Ctrl-C in a terminal is for the program that started the server, not for the server.
        with (self._directory / "output.log").open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - words of ours
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._directory,
                start_new_session=True,
            )

    def ready(self, within_s: float = _READY_S) -> None:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if not self.running:
                code = None if self._process is None else self._process.returncode
                raise ServerFailed(f"{self._name} ended with {code}: {self._tail()}")
            if self._answers():
                return
            time.sleep(0.1)
        raise ServerFailed(f"{self._name} did not answer within {within_s:.0f} s: {self._tail()}")

    def stop(self) -> None:
        """End it in good order."""
        if self._process is None or not self.running:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()

    def _tail(self) -> str:
        """The end of what it said: in its log, or, when it never came that far, in its output."""
        for file in (self._log, self._directory / "output.log"):
            if file is not None and file.exists() and (text := file.read_text(errors="replace").strip()):
                return f"…{text[-_TAIL_CHARS:]}"
        return "it said nothing"


class JavaServer:
    """A server that a `JavaProcess` runs; a context manager that starts and stops it."""

    def __init__(self, process: JavaProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.running

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, wait: bool = True) -> None:
        """Start it and wait until it answers. Without `wait`, call `ready` later."""
        self._process.start()
        if wait:
            self.ready()

    def ready(self, within_s: float = _READY_S) -> None:
        """Wait until it takes requests; one that never does is ended."""
        try:
            self._process.ready(within_s)
            self._prepare()
        except BaseException:
            self.kill()
            raise

    def _prepare(self) -> None:
        """What is to be done once it answers."""

    def stop(self) -> None:
        """End it in good order; one that does not end is killed."""
        self._process.stop()

    def kill(self) -> None:
        """End it at once, as a power cut of the process would."""
        self._process.kill()


def port_open(port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has, below those that systems give to connections: a server takes it later."""
    random = SystemRandom()
    for _ in range(_PORT_TRIES):
        port = random.randint(*_PORTS)
        if bindable("127.0.0.1", port):
            return port
    raise ServerFailed("found no free port")


def bindable(address: str, port: int) -> bool:
    """Whether a server could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
