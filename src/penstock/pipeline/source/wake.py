"""Waking a query at a given second although nothing new came, as a row needs whose time to live ends.

The driver of the query writes the second into a small file. When it has come, the next offset differs from the last by
its `tick`, and so Spark runs a batch. A file that is missing or holds no number wakes nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_BYTES_MAX = 32


class Wake:
    """Watches the file of one query."""

    def __init__(self, file: str | None, now_us: Callable[[], int]) -> None:
        self._file = None if file is None else Path(file)
        self._now_us = now_us
        self._until: int | None = None

    def freeze(self) -> None:
        """From now on, only what is due by now counts: a query that ends when all is done must come to its end."""
        self._until = self._now_us() // 1_000_000

    def tick(self, last: int) -> int:
        """The second that has come and was not answered yet, else `last`."""
        wanted = self._wanted()
        now = self._now_us() // 1_000_000 if self._until is None else self._until
        return wanted if wanted is not None and last < wanted <= now else last

    def _wanted(self) -> int | None:
        if self._file is None:
            return None
        try:
            with self._file.open("rb") as opened:
                text = opened.read(_BYTES_MAX).strip()
        except OSError:
            return None
        return int(text) if text.isdigit() else None
