"""What Spark's Java machine writes, and with it the Python processes that it starts: every line becomes a log event.

Spark prints where its parent does, at any moment: into a live view, or between the JSON lines of a log. So it is given
a pipe instead of a terminal, and a thread reads that. A line that is an event already, as `log4j2.properties` and our
own workers print them, keeps its level and its facts; any other one is the text of an event. The last lines are kept,
because a machine that does not start, or dies, says why only there. In a program that has not set structlog up, lines
go to Python's own logging.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import deque
from typing import Any

import structlog

log = structlog.get_logger()

_LINES_KEPT = 12
_LINE_BYTES_MAX = 64 << 10
_SHOWN_MAX = 300
_LEVELS = {"trace": logging.DEBUG, "warn": logging.WARNING, "fatal": logging.CRITICAL}


class JavaOutput:
    """The reading end of one Java machine's output. `writer` is given to the process, and then closed here."""

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        self._last: deque[str] = deque(maxlen=_LINES_KEPT)
        # What is printed on the way to a machine that answers matters only when it does not come to that.
        self._level = logging.DEBUG
        self._thread = threading.Thread(target=self._read, args=(reader,), name="spark-output", daemon=True)
        self._thread.start()

    def close_writer(self) -> None:
        """Leave the pipe to the processes that have it: it ends with the last of them."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def answers(self) -> None:
        """The machine has started: from now on, what it writes is news."""
        self._level = logging.INFO

    def last_words(self, wait_s: float = 0.0) -> str:
        """The last lines, each on a line of its own; `wait_s`: for the end of a process that is ending."""
        self._thread.join(wait_s)
        return "".join(f"\n  {line[:_SHOWN_MAX]}" for line in self._last)

    def _read(self, reader: int) -> None:
        with open(reader, "rb") as lines:
            while line := lines.readline(_LINE_BYTES_MAX):
                text = line.decode(errors="backslashreplace").rstrip()
                if text:
                    self._take(text)

    def _take(self, text: str) -> None:
        level, facts = _event(text) or (self._level, {"event": text, "logger": "spark"})
        event = facts.pop("event")
        self._last.append(event if "exception" not in facts else f"{event}: {facts['exception']}")
        if structlog.is_configured():
            log.log(level, event, **facts)
        else:
            # In a program of somebody else's, structlog would print to standard output, where the program's data is.
            told = " ".join((event, *(f"{name}={value}" for name, value in facts.items())))
            logging.getLogger("penstock").log(level, "%s", told)


def _event(text: str) -> tuple[int, dict[str, Any]] | None:
    """The level and the facts of a line that is an event; None when it is not."""
    if not text.startswith("{"):
        return None
    try:
        facts = json.loads(text)
    except ValueError:
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("event"), str):
        return None
    name = str(facts.pop("level", "info")).lower()
    level = _LEVELS.get(name) or logging.getLevelNamesMapping().get(name.upper(), logging.INFO)
    facts.pop("timestamp", None)
    return level, {"logger": "spark", **{key: value for key, value in facts.items() if value != ""}}
