"""Outages: targets that are away or busy, as the tasks that wait for them see it and the driver tells it.

A task that waits says nothing to Spark before it ends. So it leaves a small file where the driver looks, one per sink
and bucket: since when it waits, why, and how often it has tried again in all. The counts only grow, over restarts too.
These are figures and nothing more: a file that cannot be written or read is missing from them and stops nobody.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.log.names import encode
from penstock.system import json_text

_REASON_CHARS = 200
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Outage:
    """What the tasks of one bucket have to say of one sink."""

    sink: str
    retries: int = 0
    # Seconds since 1970; None: nobody waits now.
    since_s: float | None = None
    reason: str = ""


class Waiting:
    """A task's waits for its target. Without a directory nobody is told."""

    def __init__(
        self, directory: str | None, sink: str, bucket: int, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._sink = sink
        self._file = None if directory is None else Path(directory) / f"{encode(sink)}-{bucket}{_SUFFIX}"
        self._clock = clock
        self._now: Outage | None = None

    def again(self, reason: str) -> None:
        """The target did not take something, and is tried again."""
        before = self._now or Outage(self._sink, self._retries_before(), self._clock())
        self._now = Outage(self._sink, before.retries + 1, before.since_s, reason[:_REASON_CHARS])
        self._write(self._now)

    def over(self) -> None:
        """The target answers, or nobody waits for it any more."""
        if self._now is not None:
            self._write(Outage(self._sink, self._now.retries))
        self._now = None

    def _retries_before(self) -> int:
        found = None if self._file is None else _read(self._file)
        return 0 if found is None else found.retries

    def _write(self, outage: Outage) -> None:
        if self._file is None:
            return
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            whole = self._file.with_name(f"{self._file.name}.{os.getpid()}")
            whole.write_text(json.dumps(asdict(outage)), encoding="utf-8")
            whole.replace(self._file)


def read(directory: Path) -> list[Outage]:
    """What all tasks have to say."""
    try:
        files = sorted(file for file in directory.iterdir() if file.suffix == _SUFFIX)
    except OSError:
        return []
    return [found for file in files if (found := _read(file)) is not None]


def _read(file: Path) -> Outage | None:
    try:
        return Outage(**json_text.parse(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
