"""The peer: Cassandra's own commit-log classes in a Java process, driven line by line (tests/java).

It reads segments with CommitLogReader, as a node does when it replays its log, and writes them with CommitLog, as a
node does when it is written to; there is no node. The jars are those that real nodes are started from. The sources are
compiled against them once and kept in the repository's cache directory.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from bench.harness import ROOT, CheckFailed, cpu_s_of, say
from penstock.capture.cassandra.schema import cql_types
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.model.predicate import always_quoted
from penstock.model.schema import Role
from penstock.model.types import Kind, Type
from penstock.sandbox import cassandra_jars
from penstock.sandbox.cassandra_server import module_options
from penstock.system.java import java_major

SOURCES = ROOT / "tests" / "java"
WORKLOAD = SOURCES / "workload.cql"
CACHE = ROOT / ".cache"
# It reads formats 6, 7 and 8, and writes 7 or 8; the others read and write the format that they are named after.
VERSION = cassandra_jars.LATEST
# It only reads.
VERSION_OF_6 = "3.11.19"
VERSION_OF_7 = "4.1.10"
VERSION_OF_9 = "6.0-alpha2"
_LOGBACK = """\
<configuration>
  <appender name="errors" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="OFF"><appender-ref ref="errors"/></root>
</configuration>
"""


def prepare(version: str = VERSION, cache: Path = CACHE) -> list[str]:
    """Fetch the jars and compile the peer, once; gives the command that runs it, without its arguments."""
    jars = cassandra_jars.jars(version, cache, say)
    java = cassandra_jars.java_for(version, cache, say)
    old = cassandra_jars.number_of(version) < (4, 0)
    sources = sorted((SOURCES / "of-3.11" if old else SOURCES).glob("*.java"))
    text = "".join(source.read_text(encoding="utf-8") for source in sources)
    # Other sources, such as those of another checkout that has the same cache, are compiled beside these.
    place = CACHE / "commit-log-peer" / version / sha256(text.encode()).hexdigest()[:12]
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = place / "compiled"
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != text:
            shutil.rmtree(place / "classes", ignore_errors=True)
            compiler = Path(java).with_name("javac")
            command = [str(compiler) if compiler.exists() else "javac", "-nowarn", "-proc:none", "--release", "11"]
            subprocess.run([*command, "-cp", f"{jars}/*", "-d", str(place / "classes"), *map(str, sources)], check=True)  # noqa: S603 - words of ours
            (place / "logback.xml").write_text(_LOGBACK, encoding="utf-8")
            stamp.write_text(text, encoding="utf-8")
    options = ["-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
    options += module_options(java_major(java) or 0)
    options.append(f"-Dlogback.configurationFile={place / 'logback.xml'}")
    return [str(java), *options, "-cp", f"{place / 'classes'}:{jars}/*", "CommitLogPeer"]


class CommitLogPeer:
    """A running peer; a context manager. `settings` are further lines of its cassandra.yaml."""

    def __init__(
        self, directory: Path, *, version: str = VERSION, settings: Mapping[str, str] | None = None, cache: Path = CACHE
    ) -> None:
        command = prepare(version, cache)
        self.directory = directory.absolute()
        # A mutation that cannot be read is saved to a temporary file, for which nobody asked.
        temporary = self.directory / "temporary"
        temporary.mkdir(parents=True, exist_ok=True)
        words = [f"{key}={value}" for key, value in (settings or {}).items()]
        with (self.directory / "output.log").open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - words of ours
                [command[0], f"-Djava.io.tmpdir={temporary}", *command[1:], str(self.directory), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """CPU-seconds of the whole process so far."""
        return cpu_s_of(self.pid)

    def schema(self, file: Path) -> None:
        """Apply the statements of a .cql file."""
        self._ask("schema", file)

    def dump(self, file: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The entries of a segment that Cassandra accepts, and the summary: errors, unknown tables."""
        *entries, summary = self.dump_all([file])[0]
        return entries, summary

    def dump_all(self, files: Sequence[Path]) -> list[list[dict[str, Any]]]:
        """The same for many files, each list with its summary last."""
        return [[json.loads(line) for line in lines] for lines in self.dump_lines(files)]

    def dump_lines(self, files: Sequence[Path]) -> Iterator[list[str]]:
        """The lines that the peer answers for each file, as they come."""
        for file in files:
            self._send("dump", file.absolute())
            lines: list[str] = []
            while not lines or not lines[-1].startswith('{"end"'):
                lines.append(self._line())
                if lines[-1].startswith('{"error"'):
                    raise CheckFailed(f"the peer failed: {lines[-1]}")
            yield lines

    def measure(self, mode: str, files: Sequence[Path]) -> dict[str, Any]:
        """Read the files once; `mode` is deserialise, rows or values."""
        return self._ask("pass", mode, *(file.absolute() for file in files))

    def write(self, to: Path, **settings: object) -> list[Path]:
        """Write segments with Cassandra's own commit log (SegmentWriter.java says with which settings).

        Gives those that hold something; their index files stand beside them when CDC is on.
        """
        words = [f"{key}={value}" for key, value in {"to": to.absolute(), **settings}.items()]
        files = [Path(file) for file in self._ask("write", *words)["files"]]
        # Behind the last one stands the next one, made beforehand.
        return [file for file in files if _has_sections(file)]

    def _ask(self, *words: object) -> dict[str, Any]:
        self._send(*words)
        return self._answer()

    def _send(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = (self.directory / "output.log").read_text(errors="replace")[-2000:]
            raise CheckFailed(f"the peer ended: {said}")
        return line

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._line())
        if "error" in answer:
            raise CheckFailed(f"the peer failed: {answer['error']}")
        return answer


def _has_sections(file: Path) -> bool:
    """Whether a segment's first marker was written."""
    with file.open("rb") as stream:
        head = stream.read(14)
        length = int.from_bytes(head[12:14], "big")
        stream.seek(14 + length + 4)
        return any(stream.read(8))


def statements(tables: Iterable[CassandraTable]) -> str:
    """The CQL that makes tables, with their ids, their keyspaces and their types."""
    text = []
    made: set[tuple[str, str]] = set()
    for table in tables:
        schema = table.schema
        keyspace = always_quoted(schema.table.keyspace)
        if (keyspace, "") not in made:
            replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            text.append(f"CREATE KEYSPACE {keyspace} WITH replication = {replication};")
            made.add((keyspace, ""))
        for column in schema.columns:
            for kind in _user_types(column.type):
                if (keyspace, kind.name) not in made:
                    named = zip(kind.names, kind.elements, strict=True)
                    fields = ", ".join(f"{always_quoted(name)} {cql_types.text_of(part)}" for name, part in named)
                    text.append(f"CREATE TYPE {keyspace}.{always_quoted(kind.name)} ({fields});")
                    made.add((keyspace, kind.name))
        text.append(_create_table(table))
    return "\n".join(text)


def _create_table(table: CassandraTable) -> str:
    schema = table.schema
    columns = [
        f"{always_quoted(column.name)} {cql_types.text_of(column.type)}"
        f"{' static' if column.role is Role.STATIC else ''}"
        for column in schema.columns
    ]
    partition = ", ".join(always_quoted(column.name) for column in schema.partition)
    clustering = "".join(f", {always_quoted(column.name)}" for column in schema.clustering)
    columns.append(f"PRIMARY KEY (({partition}){clustering})")
    order = ", ".join(f"{always_quoted(c.name)} {'DESC' if c.descending else 'ASC'}" for c in schema.clustering)
    options = f"ID = {table.id}" + (f" AND CLUSTERING ORDER BY ({order})" if order else "")
    name = f"{always_quoted(schema.table.keyspace)}.{always_quoted(schema.table.table)}"
    return f"CREATE TABLE {name} ({', '.join(columns)}) WITH {options};"


def _user_types(kind: Type) -> Iterator[Type]:
    """The user types in a type, those that are parts of others first."""
    for element in kind.elements:
        yield from _user_types(element)
    if kind.kind is Kind.USER:
        yield kind
