"""Witness: a process that sees every file of a log before retention takes it, and says which change each ends with.

What is announced as cut is named by positions, and on a slow machine the file in which a cut ends may be one that no
reader ever came to. The witness puts a second link to each file as soon as it is there, and reads it with fastavro, not
with the product, once the next one has begun. It is a process of its own, so that it need not wait for the readers.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastavro

from penstock.model.position import Position
from tests.soak.agents import TABLE

_EVERY_S = 0.01


class Witness:
    """The process, and what it said. `close` ends it when it has looked at all that is there."""

    def __init__(self, log: Path, links: Path) -> None:
        links.mkdir()
        self._command = [sys.executable, "-m", "tests.soak.witness", str(log), str(links)]
        self._said = links / "said"
        self._said.touch()
        self._read_to = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=said)

    def news(self) -> Iterator[tuple[Position, int]]:
        """The last place of each file that it has read since the last look, and the number of the change there."""
        with self._said.open("rb") as said:
            said.seek(self._read_to)
            for line in said:
                if not line.endswith(b"\n"):
                    return
                self._read_to += len(line)
                position, number = json.loads(line)
                yield Position.parse(position), number

    def close(self) -> None:
        """End it. Ending twice is no error; a witness that failed is one."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0, "the witness failed"


class Watch:
    """One look after another at the directory of a log."""

    def __init__(self, log: Path, links: Path) -> None:
        self._log = log
        self._links = links
        # The files to which there is a link, by number.
        self._held: dict[int, int] = {}
        self._newest = 0

    def look(self) -> list[tuple[Position, int]]:
        """Link what is new; the ends of the files that have become full since the last look."""
        for number in sorted(self._numbers()):
            if number >= self._newest:
                self._hold(number)
        full = sorted(number for number in self._held if number < self._newest)
        return [end for number in full if (end := self._end(number)) is not None]

    def _numbers(self) -> list[int]:
        names = os.listdir(self._log) if self._log.exists() else []
        return [int(name.split(".")[-2]) for name in names if name.endswith(".avro")]

    def _hold(self, number: int) -> None:
        """Link a file. The newest may be made anew under its number while it is empty."""
        path, link = self._log / _name(number), self._links / _name(number)
        with suppress(FileNotFoundError):
            if self._held.get(number) == path.stat().st_ino:
                return
            link.unlink(missing_ok=True)
            link.hardlink_to(path)
            self._held[number] = link.stat().st_ino
            self._newest = number

    def _end(self, number: int) -> tuple[Position, int] | None:
        """The last place of a file and the number of the change there; None when it has none."""
        link = self._links / _name(number)
        found: tuple[Position, int] | None = None
        with link.open("rb") as file:
            # A block's rows are decoded only when somebody wants them.
            for block in deque(fastavro.block_reader(file), 1):
                records: list[Any] = list(block)
                found = Position(number, block.offset, len(records) - 1), records[-1]["key"]["id"]
        link.unlink()
        del self._held[number]
        return found


def _name(number: int) -> str:
    return f"{TABLE}.{number:06d}.avro"


def main(log: str, links: str) -> None:
    """Look until the other end of the standard input is closed, and once more."""
    watch = Watch(Path(log), Path(links))
    ended = False
    while not ended:
        ended = bool(select.select([sys.stdin], [], [], _EVERY_S)[0])
        for position, number in watch.look():
            sys.stdout.write(json.dumps([str(position), number]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
