"""Ring: which nodes hold a partition.

Every node owns a few places on a ring of 64-bit tokens. A partition's replicas are, for each data centre, the first
nodes of that data centre that follow the partition's token on the ring, as with Cassandra's NetworkTopologyStrategy
(without racks). The token is a stable hash, but not Cassandra's: placement is realistic, not the same as there.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping

from penstock.errors import InvalidInput

Replication = tuple[tuple[str, int], ...]


def token(data: bytes) -> int:
    """The place of a partition on the ring."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


class Ring:
    """The places of all nodes. `nodes` gives each node's data centre."""

    def __init__(self, nodes: Mapping[str, str], *, places_per_node: int = 8) -> None:
        self.nodes = dict(nodes)
        places = [(token(f"{name}/{i}".encode()), name) for name in nodes for i in range(places_per_node)]
        places.sort()
        self._tokens = [place for place, _ in places]
        self._owners = [name for _, name in places]
        self._placements: dict[Replication, list[tuple[str, ...]]] = {}

    def replicas(self, partition: bytes, replication: Replication) -> tuple[str, ...]:
        """The nodes that hold a partition, given by its serialized key."""
        placement = self._placements.get(replication)
        if placement is None:
            placement = self._placements[replication] = self._place(replication)
        return placement[bisect_right(self._tokens, token(partition)) % len(placement)]

    def check(self, replication: Replication) -> None:
        """Refuse a replication that the nodes cannot hold."""
        for data_centre, factor in replication:
            available = sum(1 for where in self.nodes.values() if where == data_centre)
            if not 0 < factor <= available:
                message = f"replication factor {factor} in a data centre with {available} nodes"
                raise InvalidInput(message, data_centre=data_centre)

    def _place(self, replication: Replication) -> list[tuple[str, ...]]:
        # Two places may name the same replicas in another order; one tuple for all keeps groups of writes together.
        seen: dict[tuple[str, ...], tuple[str, ...]] = {}
        placement = []
        for start in range(len(self._owners)):
            chosen: list[str] = []
            for data_centre, factor in replication:
                chosen += self._following(start, data_centre, factor)
            nodes = tuple(sorted(chosen))
            placement.append(seen.setdefault(nodes, nodes))
        return placement

    def _following(self, start: int, data_centre: str, factor: int) -> list[str]:
        found: list[str] = []
        for step in range(len(self._owners)):
            owner = self._owners[(start + step) % len(self._owners)]
            if self.nodes[owner] == data_centre and owner not in found:
                found.append(owner)
                if len(found) == factor:
                    break
        return found
