"""A real schema registry: Apicurio, which speaks Confluent's interface too, on the loopback address.

The tests of the Kafka sink run against it. It is one archive that Maven fetches into a cache directory, once. Schemas
are kept in memory, so a registry that is started again is empty.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

from penstock.errors import ServerFailed, ToolMissing
from penstock.sandbox.java_process import JavaProcess, JavaServer, free_port

VERSION = "3.0.9"
_ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_PATH = "/apis/ccompat/v7"
_FETCH_S = 900
_OPTIONS = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto"]


def prepare(cache: Path, note: Callable[[str], None] = lambda _: None) -> Path:
    """The directory with the registry's jars; they are fetched when they are not there yet."""
    place = cache.absolute() / f"apicurio-{VERSION}"
    app = place / "app"
    if app.is_dir():
        return app
    if shutil.which("mvn") is None:
        raise ToolMissing("Maven is not here, and it fetches Apicurio; install it, for example with: apt install maven")
    place.mkdir(parents=True, exist_ok=True)
    with (place / "fetch.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not app.is_dir():
            note(f"fetching Apicurio {VERSION} with mvn into {place}, once")
            _fetch(place, app)
    return app


def _fetch(place: Path, app: Path) -> None:
    command = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={place}"]
    done = subprocess.run(  # noqa: S603 - words of ours
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=place,
        timeout=_FETCH_S,
        check=False,
    )
    archives = sorted(place.glob("*.tar.gz"))
    if done.returncode or not archives:
        raise ServerFailed(f"Maven could not fetch Apicurio: {done.stdout.decode(errors='replace')[-500:]}")
    unpacked = place / "unpacking"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(archives[0]) as archive:
        archive.extractall(unpacked, filter="data")
    archives[0].unlink()
    # The directory has its name only when it is whole.
    unpacked.rename(app)


class ApicurioRegistry(JavaServer):
    """One registry; a context manager that starts and stops it."""

    def __init__(self, directory: Path, *, cache: Path, note: Callable[[str], None] = lambda _: None) -> None:
        app = prepare(cache, note)
        self.port = free_port()
        properties = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(self.port),
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": str(free_port()),
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
        }
        jar = app / f"apicurio-registry-app-{VERSION}-runner.jar"
        command = ["java", *_OPTIONS, *(f"-D{name}={value}" for name, value in properties.items()), "-jar", str(jar)]
        super().__init__(JavaProcess(f"Apicurio {VERSION}", command, directory, self._answers))

    @property
    def url(self) -> str:
        """Where Confluent's interface is."""
        return f"http://127.0.0.1:{self.port}{_PATH}"

    def _prepare(self) -> None:
        # Without this it takes any schema: its own default is to compare nothing.
        self._request("PUT", "/config", {"compatibility": "BACKWARD"})

    def _answers(self) -> bool:
        try:
            return self._request("GET", "/subjects") == 200
        except (OSError, http.client.HTTPException):
            return False

    def _request(self, method: str, path: str, body: dict[str, str] | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, _PATH + path, content, {"Content-Type": "application/json"})
            return connection.getresponse().status
        finally:
            connection.close()
