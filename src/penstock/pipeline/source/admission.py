"""Admission: how much of each log one micro-batch takes.

A limit counts for the whole batch and is shared fairly: each log gets the same, and what a quiet log does not need goes
to the others, so that a busy table cannot hold up the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.pipeline.source.backlog import Backlog
from penstock.pipeline.source.reach import Reach


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a batch takes; None: no limit."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


def admit(backlogs: Sequence[Backlog], limits: Limits, turn: int = 0) -> list[Reach]:
    """How far to go in each log. `turn` says who comes first when there is less than one change for each."""
    ends = _shared(backlogs, limits, turn)
    waiting = [at for at, backlog in enumerate(backlogs) if backlog.rows]
    if waiting and all(ends[at].rows == backlogs[at].start.rows for at in waiting):
        # One limit may have gone to one log and the next to another. Then one log gets all of them, so that each batch
        # takes something.
        chosen = waiting[turn % len(waiting)]
        ends[chosen] = _shared([backlogs[chosen]], limits, 0)[0]
    return ends


def _shared(backlogs: Sequence[Backlog], limits: Limits, turn: int) -> list[Reach]:
    ends = [backlog.end for backlog in backlogs]
    if limits.rows is not None:
        wants = [backlog.rows for backlog in backlogs]
        for at, share in enumerate(fair_shares(wants, limits.rows, turn)):
            if share < wants[at]:
                ends[at] = _earlier(ends[at], backlogs[at].after_rows(share))
    if limits.bytes is not None:
        wants = [backlog.bytes for backlog in backlogs]
        for at, share in enumerate(fair_shares(wants, limits.bytes, turn)):
            if share < wants[at]:
                ends[at] = _earlier(ends[at], backlogs[at].after_bytes(share))
    if limits.files is not None:
        wants = [backlog.files for backlog in backlogs]
        for at, share in enumerate(fair_shares(wants, limits.files, turn)):
            if share < wants[at]:
                ends[at] = _earlier(ends[at], backlogs[at].after_files(share))
    return ends


def fair_shares(wants: Sequence[int], budget: int, turn: int = 0) -> list[int]:
    """Divide a budget: nobody gets more than is wanted, and nobody less than another who gets all that is wanted."""
    shares = [0] * len(wants)
    count = len(wants)
    left = budget
    order = sorted(range(count), key=lambda at: (wants[at], -((at + turn) % count)))
    for place, at in enumerate(order):
        shares[at] = min(wants[at], left // (count - place))
        left -= shares[at]
    return shares


def _earlier(one: Reach, other: Reach) -> Reach:
    return one if one.last <= other.last else other
