"""Portions: a batch's stretches of logs, divided among tasks.

By node, the logs of one node stand together, in portions of about the same size. Together, a task gets the same share
of what every node has of a table: replicas log the same changes at about the same time, so most copies of a change are
in one task then, which can pass on one of them. A copy that another task has is only not noticed there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from penstock.model.schema import TableId
from penstock.pipeline.source.backlog import Backlog, Stretch
from penstock.pipeline.source.places import Address

# A task costs as much as reading this many bytes.
PORTION_BYTES_MIN = 4 << 20


class Piece(NamedTuple):
    """A stretch of a log, for a task."""

    address: Address
    stretch: Stretch


def copied_tables(pieces: Iterable[Piece]) -> frozenset[TableId]:
    """The tables of which there are logs of more than one node."""
    found = {(piece.address.table, piece.address.node) for piece in pieces}
    nodes = Counter(table for table, _ in found)
    return frozenset(table for table, count in nodes.items() if count > 1)


def by_node(backlogs: Sequence[Backlog], tasks: int, size: int) -> list[list[Piece]]:
    """Stretches of the same node in portions of up to about `size` bytes, and so small that each task gets one."""
    total = sum(backlog.bytes for backlog in backlogs)
    if tasks > 1 and total:
        size = min(size, max(total // tasks, PORTION_BYTES_MIN))
    open_: dict[str, tuple[list[Piece], int]] = {}
    out: list[list[Piece]] = []
    for backlog in backlogs:
        for whole in backlog.stretches():
            for stretch in backlog.cuts(whole, size):
                pieces, held = open_.get(backlog.address.node, ([], 0))
                pieces.append(Piece(backlog.address, stretch))
                held += stretch.bytes
                if held >= size:
                    out.append(pieces)
                    pieces, held = [], 0
                open_[backlog.address.node] = pieces, held
    return [*out, *(pieces for pieces, _ in open_.values() if pieces)]


def together(backlogs: Sequence[Backlog], tasks: int, size: int) -> list[list[Piece]]:
    """Portions of up to about `size` bytes, as many as `tasks` can share evenly, each with its share of every node.

    The pieces of a portion are ordered by table, then by node, then as the log has them.
    """
    total = sum(backlog.bytes for backlog in backlogs)
    rounds = -(-total // (tasks * size)) or 1
    count = max(1, min(tasks * rounds, total // PORTION_BYTES_MIN))
    out: list[list[Piece]] = [[] for _ in range(count)]
    ordered = sorted(backlogs, key=lambda backlog: (backlog.address.table, backlog.address.node))
    begin = 0
    for _, logs in groupby(ordered, key=lambda backlog: backlog.address.table):
        group = list(logs)
        held = sum(backlog.bytes for backlog in group)
        for backlog in group:
            # Each log is laid along its table's part of the whole, however much or little the log has.
            done, all_ = 0, max(backlog.bytes, 1)
            share = max(1, all_ * total // (count * max(held, 1)))
            for whole in backlog.stretches():
                for stretch in backlog.cuts(whole, share):
                    middle = begin + held * (2 * done + stretch.bytes) // (2 * all_)
                    out[min(count - 1, count * middle // max(total, 1))].append(Piece(backlog.address, stretch))
                    done += stretch.bytes
        begin += held
    return [pieces for pieces in out if pieces]
