"""A writer at a steady rate, in a process of its own so that what it costs is not the pipeline's.

`python -m bench.paced_writer DIRECTORY TABLES CHANGES_PER_S SECONDS` encodes everything first, writes one tick, says
`ready`, and waits for a line; then it writes a tick every so often, to every table as much, and says `done`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from bench.harness import ROOT, CheckFailed
from bench.records import changes_of, schema_of
from penstock.log.table_log import TableLog
from penstock.settings import Acknowledge, LogSettings

TICK_S = 0.2


def ticks_of(seconds: float) -> int:
    """How many ticks there are, the first one included."""
    return 1 + round(seconds / TICK_S)


def main() -> None:
    directory, tables, rate, seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    each = round(rate * TICK_S) // tables
    schemas = [schema_of(f"t{number}") for number in range(tables)]
    ticks = [[changes_of(schema, tick * each, each) for schema in schemas] for tick in range(ticks_of(seconds))]
    # Hundreds of syncs a tick would be the disk's benchmark.
    settings = LogSettings(acknowledge=Acknowledge.WRITTEN, reserve_bytes=0)
    with ExitStack() as opened:
        logs = [
            opened.enter_context(
                TableLog.open(str(directory / str(schema.table)), schema, settings=settings, node="n1")
            )
            for schema in schemas
        ]
        for log, batch in zip(logs, ticks[0], strict=True):
            log.append(batch)
        print("ready", flush=True)
        sys.stdin.readline()
        begun = time.monotonic()
        for number, tick in enumerate(ticks[1:]):
            time.sleep(max(0.0, begun + number * TICK_S - time.monotonic()))
            for log, batch in zip(logs, tick, strict=True):
                log.append(batch)
        print("done", flush=True)
        # The logs stay open until the other side has read them.
        sys.stdin.readline()


class PacedWriter:
    """The other side of it; a context manager, entered when the first tick is written."""

    def __init__(self, directory: Path, tables: int, rate: int, seconds: float) -> None:
        self.first = round(rate * TICK_S) // tables * tables
        self.total = self.first * ticks_of(seconds)
        command = [sys.executable, "-m", "bench.paced_writer", str(directory), str(tables), str(rate), str(seconds)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, bufsize=1
        )

    def __enter__(self) -> Self:
        self._expect("ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def go(self) -> None:
        """Let it write at its rate; returns when it has written everything."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._expect("done")

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word:
            raise CheckFailed("the writer has ended")


if __name__ == "__main__":
    main()
