"""Position: the place of one change in one log, and the only thing a checkpoint stores.

Positions of one log are totally ordered: file number, offset of the block in the file, ordinal of the change in the
block. They print as `file:offset:ordinal` and survive restarts, because files are never rewritten.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.errors import InvalidValue

_TEXT = re.compile(r"(\d{1,12}):(\d{1,18}):(\d{1,18})", re.ASCII)


class Position(NamedTuple):
    """One change's place; comparing positions compares places."""

    file: int
    offset: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.file:06d}:{self.offset}:{self.ordinal}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The inverse of `str`."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidValue(f"not a position: {text[:60]!r}; positions look like 000001:4096:0")
        return cls(*map(int, match.groups()))


# Before the first change of any log.
START = Position(0, 0, 0)
