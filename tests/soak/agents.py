"""A node's commit log that is written to for as long as the soak lasts, and the `penstock agent` beside it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from penstock.model.change import Change, Marker, Op, Set
from penstock.model.schema import TableId
from penstock.sandbox.commit_log.statements import create_keyspace, create_table
from penstock.sandbox.commit_log.writer import CommitLogWriter
from tests.scripted_agent import START_US, cassandra_table
from tests.soak.account import note_of

TABLE = TableId("shop", "orders")
TOKEN = "only-for-the-soak-0123456789"
_TICK_S = 0.05
_SYNC_TICKS = 20


class Node:
    """A node whose clients write rows with rising numbers, now and then many at once."""

    def __init__(self, root: Path, rows_per_s: int, burst_rows: int, seed: int) -> None:
        self.root = root
        self.cdc_raw = root / "cdc_raw"
        # Counted before it is written: a reader may be quicker than the writer's next line.
        self.written = 0
        self._rows = max(1, int(rows_per_s * _TICK_S))
        self._burst_rows = burst_rows
        self._random = Random(seed)
        self._log = CommitLogWriter(str(root / "commitlog"), str(self.cdc_raw), segment_bytes=1 << 20, durable=False)
        self._table = cassandra_table()
        self._log.append(create_keyspace(TABLE.keyspace, START_US), cdc=False)
        self._log.append(create_table(self._table, START_US), cdc=False)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, name="soak-writer")

    def begin(self) -> None:
        """Write a few rows, so that the table's log comes into being."""
        for _ in range(self._rows):
            self._insert()
        self._log.mark()
        self._log.sync()

    def start(self) -> None:
        """Write until the end."""
        self._thread.start()

    def end(self) -> None:
        """Write no more; what was written is in the files. Ending twice is no error."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._log.sync()

    def close(self) -> None:
        """End, and let go of the files."""
        self.end()
        self._log.close()

    def _write(self) -> None:
        ticks = 0
        while not self._ending.wait(_TICK_S):
            burst = not self._random.randrange(200)
            for _ in range(self._burst_rows if burst else self._rows):
                self._insert()
            ticks += 1
            self._log.mark()
            if ticks % _SYNC_TICKS == 0:
                self._log.sync()
                # As when all tables were flushed: what the agent needs is in cdc_raw.
                self._log.discard()

    def _insert(self) -> None:
        number = self.written
        self.written += 1
        cells = {"note": Set(note_of(number))}
        change = Change(Op.INSERT, {"id": number}, cells, time=START_US + number, marker=Marker())
        self._log.append([(self._table, [change])])


class AgentProcess:
    """`penstock agent` as a process, what it says, and a way to ask it over HTTP. For many threads."""

    def __init__(self, node: Node, name: str, sections: dict[str, dict[str, Any]], tls: ssl.SSLContext | None) -> None:
        self.name = name
        self.node = node
        self.data = node.root / "data"
        self.said = node.root / "said"
        self._config = node.root / "agent.toml"
        self._tls = tls
        given: dict[str, dict[str, Any]] = {
            "cassandra": {"cdc_raw_directory": str(node.cdc_raw), "schema_from": "log", "data_centre": "dc1"},
            "agent": {"directory": str(self.data), "node": name, "listen": True},
            **sections,
        }
        lines = []
        for section, values in given.items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        self._config.write_text("\n".join(lines))
        self._process: subprocess.Popen[str] | None = None
        self.http = ""
        self.listener = ""
        self._read_to = 0

    @property
    def log(self) -> Path:
        """The directory of the table's log."""
        return self.data / str(TABLE)

    def has_log(self) -> bool:
        """Whether the table's log has come into being."""
        return (self.log / "log.json").exists() and (self.log / "watermark").exists()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it runs."""
        command = [sys.executable, "-m", "penstock", "agent", str(self._config), "--json"]
        with self.said.open("ab") as said:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.said.read_text()[-2000:]
        facts = json.loads(line)
        self.http, self.listener = facts["http"], facts["listener"]

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; its code."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.communicate(timeout=180)
        return self._process.returncode

    def close(self) -> None:
        """End it if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, bytes]:
        """One request; OSError or HTTPException when there is no answer."""
        where = urlsplit(self.http)
        assert where.hostname is not None
        if self._tls is None:
            connection = http.client.HTTPConnection(where.hostname, where.port, timeout=10)
        else:
            connection = http.client.HTTPSConnection(where.hostname, where.port, timeout=10, context=self._tls)
        try:
            connection.request(method, path, headers={"Authorization": f"Bearer {TOKEN}", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self._tls

    def news(self) -> Iterator[dict[str, Any]]:
        """The lines that it has logged since the last look."""
        with self.said.open("rb") as said:
            said.seek(self._read_to)
            for line in said:
                if not line.endswith(b"\n"):
                    return
                self._read_to += len(line)
                with suppress(ValueError):
                    yield json.loads(line)


def private_kib(pid: int) -> int:
    """The memory that a process has written for itself alone.

    Pages of files that it only reads are left out: they are the page cache's, and whether they count as private says
    only whether another process has mapped the same libraries just now.
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1])
    raise LookupError("Private_Dirty")


def resident_kib(pid: int) -> int:
    return _status(pid, "VmRSS")


def threads(pid: int) -> int:
    return _status(pid, "Threads")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


def disk_kib(*roots: Path) -> int:
    """What directories take on disk; a file that is linked twice counts once."""
    found: dict[tuple[int, int], int] = {}
    for root in roots:
        for place, _, names in os.walk(root):
            for name in names:
                with suppress(FileNotFoundError):
                    facts = os.stat(os.path.join(place, name), follow_symlinks=False)
                    found[facts.st_dev, facts.st_ino] = facts.st_blocks // 2
    return sum(found.values())
