"""A real search node: one JVM on the loopback address, its files in one directory.

The tests of the search sink run against it. Neither OpenSearch nor Elasticsearch has a small distribution, but all
their parts are jars: Maven fetches them once into a cache directory, and a Java class of ours starts a node with the
modules that a bulk target needs. It is ended by its process id: `stop` in good order, `kill` at once; both can be
followed by another `start` on the same files and ports.
"""

from __future__ import annotations

import http.client
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import ClassVar

from penstock.errors import ServerFailed, ToolMissing
from penstock.sandbox.java_process import JavaProcess, JavaServer, free_port
from penstock.system.checksum import crc32
from testkit import maven

_COMPILE_S = 300
_COMPLAINT_CHARS = 3000
# Small and quick to start; the optimising compiler would cost more than a test's few requests give back.
_OPTIONS = [
    "-Xms512m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dlog4j2.disable.jmx=true",
]


@dataclass(frozen=True, slots=True)
class Product:
    """What is started: the class `node`, made of files in `java/`, with the jars of `java/<word>-pom.xml`."""

    name: str
    word: str
    version: str
    node: str
    sources: tuple[str, ...]
    options: tuple[str, ...] = ()

    def prepare(self, cache: Path, note: Callable[[str], None] = lambda _: None) -> str:
        """Fetch the jars and compile the node's class, once; gives the class path."""
        place = cache.absolute() / f"{self.word}-{self.version}"
        files = resources.files("testkit") / "java"
        pom = (files / f"{self.word}-pom.xml").read_text(encoding="utf-8")
        jars = maven.fetch(pom, place, f"{self.name} {self.version}", note)
        sources = {name: (files / name).read_bytes() for name in self.sources}
        # The name says what the classes are made of.
        classes = place / f"classes-{crc32(b''.join(sources.values())):08x}"
        if not classes.exists():
            _compile(sources, classes, jars)
        return f"{classes}:{jars}/*"


def _compile(sources: Mapping[str, bytes], classes: Path, jars: Path) -> None:
    """Compile beside the place, then move it there: another process may be doing the same."""
    javac = shutil.which("javac")
    if javac is None:
        raise ToolMissing("javac is not here, and it compiles a class; install openjdk-17-jdk-headless")
    classes.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="compile-", dir=classes.parent))
    for name, source in sources.items():
        (made / name).write_bytes(source)
    files = [str(made / name) for name in sources]
    done = subprocess.run(  # noqa: S603 - words of ours
        [javac, "-proc:none", "-cp", f"{jars}/*", "-d", str(made), *files],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_COMPILE_S,
        check=False,
    )
    if done.returncode:
        shutil.rmtree(made)
        raise ServerFailed(f"javac refused {', '.join(sources)}: {(done.stdout + done.stderr)[-_COMPLAINT_CHARS:]}")
    try:
        made.rename(classes)
    except OSError:
        # The other process was quicker, and has made the same.
        shutil.rmtree(made)


class SearchServer(JavaServer):
    """One node; a context manager that starts and stops it."""

    product: ClassVar[Product]

    def __init__(self, directory: Path, *, cache: Path, note: Callable[[str], None] = lambda _: None) -> None:
        product = self.product
        self.directory = directory.absolute()
        self.port = free_port()
        command = ["java", *_OPTIONS, *product.options, "-cp", product.prepare(cache, note), product.node]
        command += [str(self.directory), str(self.port), str(free_port())]
        name = f"{product.name} {product.version}"
        super().__init__(JavaProcess(name, command, self.directory, self._healthy))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/_cluster/health?wait_for_status=yellow&timeout=5s")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
