"""Placement: the right number of replicas in each data centre, evenly, and stable for ever."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.errors import InvalidInput
from penstock.sandbox.ring import Ring, token

NODES = {f"{where}-{number}": where for where in ("dc1", "dc2") for number in range(1, 5)}
REPLICATION = (("dc1", 3), ("dc2", 2))


def test_each_data_centre_gets_its_number_of_different_nodes() -> None:
    ring = Ring(NODES)
    for number in range(200):
        replicas = ring.replicas(str(number).encode(), REPLICATION)
        assert len(set(replicas)) == 5
        assert Counter(NODES[name] for name in replicas) == {"dc1": 3, "dc2": 2}


def test_partitions_are_spread_over_all_nodes() -> None:
    ring = Ring(NODES)
    held = Counter(name for number in range(2000) for name in ring.replicas(str(number).encode(), REPLICATION))
    assert set(held) == set(NODES)
    assert min(held.values()) > 200


def test_tokens_and_placement_never_change() -> None:
    # Recorded when the ring was made: logs of an older run must still be found on the same nodes.
    assert token(b"penstock") == -896554740593971633
    assert Ring(NODES).replicas(b"penstock", (("dc1", 1),)) == ("dc1-3",)


def test_more_replicas_than_nodes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="replication factor 5"):
        Ring(NODES).check((("dc1", 5),))
    with pytest.raises(InvalidInput):
        Ring(NODES).check((("dc3", 1),))
    with pytest.raises(InvalidInput):
        Ring(NODES).check((("dc1", 0),))
