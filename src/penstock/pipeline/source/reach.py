"""Reach: how far reading has come in one log, and Spark's offsets, which are the reach of every log.

A reach says the same thing in two ways: the position of the last change that was taken, which is what a subscription
commits, and the byte at which reading goes on, so that nobody has to look at a block twice to find its end. It also
counts the changes up to there. What the header of its file says is taken with it, also when the file has no changes: a
table that was altered, made anew or truncated is news without any. An offset is a flat JSON object from log ids to
reaches as text; a log id belongs to one log of one node for ever, so an offset cannot be mistaken for one of other
logs. Its `tick` is the second for which the query was last woken without new changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from penstock.errors import CorruptCheckpoint
from penstock.log.segment import Heading
from penstock.log.watermark import Watermark
from penstock.model.position import START, Position

FORMAT = 1
_FORMAT_KEY, _TICK_KEY = "format", "tick"
_TEXT = re.compile(r"\d{1,19}(:\d{1,19}){4,5}", re.ASCII)
# More than the logs of a pipeline: an idle log's text is parsed once.
_KEPT_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Reach:
    """Everything up to `last` is taken; reading goes on at byte `next` of file `file`, after `rows` changes.

    `file` is the last one whose header is taken, and it may be empty: then `last` is in one before it.
    """

    file: int = 0
    next: int = 0
    last: Position = START
    rows: int = 0

    @property
    def skip(self) -> int:
        """How many changes of the block at `next` are taken already."""
        return self.last.ordinal + 1 if self.next and self.last[:2] == (self.file, self.next) else 0

    def __str__(self) -> str:
        file, offset, ordinal = self.last
        if file == self.file:
            return f"{self.file}:{self.next}:{offset}:{ordinal}:{self.rows}"
        return f"{self.file}:{self.next}:{file}:{offset}:{ordinal}:{self.rows}"

    @classmethod
    def of(cls, mark: Watermark) -> Reach:
        """The end of a log."""
        return cls(mark.file, mark.end, mark.last, mark.rows)

    @classmethod
    def before(cls, heading: Heading) -> Reach:
        """The end of the file before this one: everything before it is taken, and not its header."""
        return cls(heading.number - 1, heading.previous_end, heading.last, heading.rows_before)

    @classmethod
    def at(cls, heading: Heading) -> Reach:
        """The beginning of a file: its header is taken, and no change of it."""
        return cls(heading.number, heading.size, heading.last, heading.rows_before)


# Before the first change of a log from which nothing was removed.
BEGINNING = Reach()


@lru_cache(maxsize=_KEPT_MAX)
def parse(text: str) -> Reach:
    """The inverse of `str`."""
    if _TEXT.fullmatch(text) is None:
        raise CorruptCheckpoint("the query's checkpoint holds an offset that is not one of change logs")
    numbers = [int(part) for part in text.split(":")]
    if len(numbers) == 5:
        numbers.insert(2, numbers[0])
    file, next_, last_file, offset, ordinal, rows = numbers
    return Reach(file, next_, Position(last_file, offset, ordinal), rows)


def to_offset(reaches: Mapping[str, Reach], tick: int = 0) -> dict[str, int | str]:
    """What Spark writes into its checkpoint."""
    head: dict[str, int | str] = {_FORMAT_KEY: FORMAT, _TICK_KEY: tick} if tick else {_FORMAT_KEY: FORMAT}
    return {**head, **{log_id: str(reaches[log_id]) for log_id in sorted(reaches)}}


def tick_of(offset: Mapping[str, object]) -> int:
    """The second for which the query was last woken; 0: never."""
    tick = offset.get(_TICK_KEY, 0)
    return tick if isinstance(tick, int) else 0


def from_offset(offset: Mapping[str, object]) -> dict[str, Reach]:
    """The inverse. CorruptCheckpoint when the offset was written by another source or a newer version."""
    if offset.get(_FORMAT_KEY) != FORMAT:
        raise CorruptCheckpoint(
            f"the query's checkpoint has offsets of format {offset.get(_FORMAT_KEY)!r}; this version reads {FORMAT}"
        )
    return {log_id: parse(str(text)) for log_id, text in offset.items() if log_id not in (_FORMAT_KEY, _TICK_KEY)}
