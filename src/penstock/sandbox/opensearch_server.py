"""A real OpenSearch node: one JVM on the loopback address, its files in one directory.

The tests of the search sink run against it. OpenSearch has no small distribution, but all its parts are jars: Maven
fetches them once into a cache directory, and one Java class (java/OpenSearchNode.java) starts a node with the modules
that a bulk target needs. It is ended by its process id: `stop` in good order, `kill` at once; both can be followed by
another `start` on the same files and ports.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Self

from penstock.errors import ServerFailed, ToolMissing
from penstock.sandbox import maven

VERSION = "2.19.6"
_READY_S = 300
_STOP_S = 60
_COMPILE_S = 300
_TAIL_CHARS = 3000
# Small and quick to start; the optimising compiler would cost more than a test's few requests give back.
_OPTIONS = [
    "-Xms512m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dlog4j2.disable.jmx=true",
    "-Dopensearch.set.netty.runtime.available.processors=false",
]


def prepare(cache: Path, note: Callable[[str], None] = lambda _: None) -> str:
    """Fetch the jars and compile the node's class, once; gives the class path."""
    place = cache.absolute() / f"opensearch-{VERSION}"
    files = resources.files("penstock.sandbox") / "java"
    pom = (files / "opensearch-pom.xml").read_text(encoding="utf-8")
    jars = maven.fetch(pom, place, f"OpenSearch {VERSION}", note)
    source = (files / "OpenSearchNode.java").read_bytes()
    classes, compiled = place / "classes", place / "classes" / "OpenSearchNode.java"
    if not compiled.exists() or compiled.read_bytes() != source:
        _compile(source, classes, jars)
    return f"{classes}:{jars}/*"


def _compile(source: bytes, classes: Path, jars: Path) -> None:
    """Compile beside the place, then move it there: another process may be doing the same."""
    javac = shutil.which("javac")
    if javac is None:
        raise ToolMissing("javac is not here, and it compiles a class; install openjdk-17-jdk-headless")
    made = classes.with_name(f"classes-{os.getpid()}")
    made.mkdir(parents=True, exist_ok=True)
    file = made / "OpenSearchNode.java"
    file.write_bytes(source)
    done = subprocess.run(
        [javac, "-proc:none", "-cp", f"{jars}/*", "-d", str(made), str(file)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_COMPILE_S,
        check=False,
    )
    if done.returncode:
        raise ServerFailed(f"javac refused OpenSearchNode.java: {(done.stdout + done.stderr)[-_TAIL_CHARS:]}")
    classes.mkdir(exist_ok=True)
    # The source goes last: it says that the class beside it is made of it.
    for part in sorted(made.iterdir(), key=lambda part: part.suffix == ".java"):
        os.replace(part, classes / part.name)
    made.rmdir()


class OpenSearchServer:
    """One node; a context manager that starts and stops it."""

    def __init__(self, directory: Path, *, cache: Path, note: Callable[[str], None] = lambda _: None) -> None:
        self.directory = directory.absolute()
        self._path = prepare(cache, note)
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self._transport = _free_ports(2)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, wait: bool = True) -> None:
        """Start the node and wait until it answers. Without `wait`, call `ready` later."""
        assert not self.running
        self.directory.mkdir(parents=True, exist_ok=True)
        command = ["java", *_OPTIONS, "-cp", self._path, "OpenSearchNode"]
        with (self.directory / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, str(self.directory), str(self.port), str(self._transport)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                start_new_session=True,
            )
        if not wait:
            return
        try:
            self.ready()
        except BaseException:
            self.kill()
            raise

    def ready(self, within_s: float = _READY_S) -> None:
        """Wait until the node has recovered its indices and takes requests."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if not self.running:
                raise ServerFailed(f"OpenSearch {VERSION} ended: {self._tail()}")
            if self._healthy():
                return
            time.sleep(0.1)
        raise ServerFailed(f"OpenSearch {VERSION} did not answer within {within_s:.0f} s: {self._tail()}")

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/_cluster/health?wait_for_status=yellow&timeout=5s")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """End the node in good order; one that does not end is killed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the node at once, as a power cut of the process would."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        os.kill(process.pid, number)
        try:
            process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

    def _tail(self) -> str:
        try:
            text = (self.directory / "output.log").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            text = ""
        return f"…{text[-_TAIL_CHARS:]}" if text else "it wrote no log"


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
