"""Token ranges: which part of the ring an agent reads, and how that is cut into splits.

A range holds the tokens above `start` up to and including `end`, as Cassandra's own do. Murmur3 never gives the least
64-bit number as a token, so `FULL` holds every row, and no range has to wrap around. Everything here is arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

TOKEN_MIN = -(1 << 63)
TOKEN_MAX = (1 << 63) - 1


class TokenRange(NamedTuple):
    """The tokens t with start < t ≤ end."""

    start: int
    end: int

    @property
    def width(self) -> int:
        """How many tokens it holds."""
        return self.end - self.start


FULL = TokenRange(TOKEN_MIN, TOKEN_MAX)


def primary_ranges(ring: Iterable[tuple[int, object]], owners: Collection[object]) -> list[TokenRange]:
    """What these owners are the first replica of: from the token before each of theirs up to theirs.

    The ring is (token, owner) pairs in any order. Every token of the ring belongs to exactly one owner, so the ranges
    of all owners together are the whole ring, each part once.
    """
    tokens = sorted(ring, key=lambda pair: pair[0])
    out: list[TokenRange] = []
    for index, (token, owner) in enumerate(tokens):
        if owner not in owners:
            continue
        if index > 0:
            out.append(TokenRange(tokens[index - 1][0], token))
        else:
            # The first owner also has what lies behind the last token.
            out += (TokenRange(TOKEN_MIN, token), TokenRange(tokens[-1][0], TOKEN_MAX))
    return joined(out)


def joined(ranges: Iterable[TokenRange]) -> list[TokenRange]:
    """The same tokens in the fewest ranges, in order."""
    out: list[TokenRange] = []
    for one in sorted(ranges):
        if one.width <= 0:
            continue
        if out and one.start <= out[-1].end:
            out[-1] = TokenRange(out[-1].start, max(out[-1].end, one.end))
        else:
            out.append(one)
    return out


def without(ranges: Iterable[TokenRange], gone: Iterable[TokenRange]) -> list[TokenRange]:
    """The tokens of `ranges` that no range of `gone` has."""
    holes = joined(gone)
    out: list[TokenRange] = []
    for one in joined(ranges):
        start = one.start
        for hole in holes:
            if hole.end <= start or hole.start >= one.end:
                continue
            if hole.start > start:
                out.append(TokenRange(start, hole.start))
            start = hole.end
        if start < one.end:
            out.append(TokenRange(start, one.end))
    return out


def cut(ranges: Sequence[TokenRange], pieces: int) -> list[TokenRange]:
    """Cut ranges into about so many splits of about equal width; a range is never joined with another."""
    total = width(ranges)
    out: list[TokenRange] = []
    for one in ranges:
        count = max(1, min(one.width, round(pieces * one.width / total)))
        bounds = [one.start + one.width * number // count for number in range(count + 1)]
        out += [TokenRange(start, end) for start, end in pairwise(bounds)]
    return out


def width(ranges: Iterable[TokenRange]) -> int:
    """How many tokens the ranges hold together."""
    return sum(one.width for one in ranges)
