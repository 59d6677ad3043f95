"""Distinct changes: the copies that several replicas have of one change are passed on once.

Two changes are copies of each other when they say the same: their content hashes are equal. Hashes of what was passed
on are remembered for a window, so that a copy that comes late, in another micro-batch or after a restart, is not passed
on again. With a quorum a change waits until so many different nodes have logged it; the nodes are remembered meanwhile.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from penstock.fold.bucket import BucketState
from penstock.fold.entries import Entries
from penstock.records.keys import CONTENT_HIGH, CONTENT_LOW, Scan

# Stands for "passed on" where a node's number would stand.
_DELIVERED = 0
# The name of the node whose log has changes that were set aside and given back: one of it stands for all its copies.
REPLAYED = "replayed"


def node_number(node: str) -> int:
    """A node's name as a number above zero."""
    digest = hashlib.blake2b(node.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1 or 1


def distinct(scan: Scan, nodes: Any, state: BucketState, *, quorum: int, window_s: int) -> Any:
    """The numbers of the changes to pass on, in order; what they are is remembered in the state.

    `nodes` has for each change the number of the node that logged it.
    """
    if not len(scan):
        return np.zeros(0, np.int64)
    groups, firsts = scan.group_by_content()
    order = np.argsort(scan.hashes[firsts, CONTENT_HIGH])
    highs = np.ascontiguousarray(scan.hashes[firsts[order], CONTENT_HIGH])
    lows = np.ascontiguousarray(scan.hashes[firsts[order], CONTENT_LOW])
    known, known_nodes = state.seen(scan.schema.table, highs, lows)
    known = order[known]
    fresh = np.ones(len(firsts), bool)
    fresh[known[known_nodes == _DELIVERED]] = False
    waiting: tuple[Any, Any] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    if quorum > 1:
        reached, waiting = _counted(groups, nodes, known, known_nodes, quorum, len(firsts))
        reached[groups[nodes == node_number(REPLAYED)]] = True
        waits = fresh[waiting[0]] & ~reached[waiting[0]]
        waiting = waiting[0][waits], waiting[1][waits]
        fresh &= reached
    chosen = order[fresh[order]]
    numbers = np.concatenate([chosen, waiting[0]])
    if len(numbers):
        hashes = scan.hashes[firsts[numbers]]
        kept_nodes = np.concatenate([np.full(len(chosen), _DELIVERED, np.int64), waiting[1]])
        forgotten = np.full(len(numbers), state.now_s + window_s, np.int64)
        highs, lows = hashes[:, CONTENT_HIGH], hashes[:, CONTENT_LOW]
        state.put(Entries.of_seen(scan.schema, highs, lows, forgotten, kept_nodes))
    return np.sort(firsts[chosen])


def _counted(
    groups: Any, nodes: Any, known: Any, known_nodes: Any, quorum: int, count: int
) -> tuple[Any, tuple[Any, Any]]:
    """Which changes enough nodes have logged, and the pairs of change and node that are new."""
    all_groups = np.concatenate([known, groups])
    all_nodes = np.concatenate([known_nodes, nodes])
    # Old pairs come first, so the first of equal ones tells whether the pair is new.
    order = np.lexsort((np.arange(len(all_groups)), all_nodes, all_groups))
    sorted_groups, sorted_nodes = all_groups[order], all_nodes[order]
    first = np.ones(len(order), bool)
    first[1:] = (sorted_groups[1:] != sorted_groups[:-1]) | (sorted_nodes[1:] != sorted_nodes[:-1])
    first &= sorted_nodes != _DELIVERED
    reached = np.bincount(sorted_groups[first], minlength=count) >= quorum
    new = first & (order >= len(known))
    return reached, (sorted_groups[new], sorted_nodes[new])
