"""What each consistency level asks for."""

from __future__ import annotations

import pytest

from penstock.sandbox.consistency import Consistency, Need, counted, met, needs, required

REPLICATION = (("dc1", 3), ("dc2", 2))
CENTRES = {"a": "dc1", "b": "dc1", "c": "dc1", "x": "dc2", "y": "dc2"}


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        (Consistency.ANY, (Need(None, 0),)),
        (Consistency.ONE, (Need(None, 1),)),
        (Consistency.TWO, (Need(None, 2),)),
        (Consistency.THREE, (Need(None, 3),)),
        (Consistency.QUORUM, (Need(None, 3),)),
        (Consistency.ALL, (Need(None, 5),)),
        (Consistency.LOCAL_ONE, (Need("dc2", 1),)),
        (Consistency.LOCAL_QUORUM, (Need("dc2", 2),)),
        (Consistency.EACH_QUORUM, (Need("dc1", 2), Need("dc2", 2))),
    ],
)
def test_levels_count_as_in_cassandra(level: Consistency, wanted: tuple[Need, ...]) -> None:
    assert needs(level, REPLICATION, "dc2") == wanted


def test_every_level_is_tested_here() -> None:
    assert {level for level in Consistency if needs(level, REPLICATION, "dc1")} == set(Consistency)


def test_only_replicas_of_the_right_data_centre_count() -> None:
    local = needs(Consistency.LOCAL_QUORUM, REPLICATION, "dc1")
    assert not met(local, ["a", "x", "y"], CENTRES)
    assert counted(local, ["a", "x", "y"], CENTRES) == 1
    assert met(local, ["a", "b"], CENTRES)
    each = needs(Consistency.EACH_QUORUM, REPLICATION, "dc1")
    assert not met(each, ["a", "b", "c", "x"], CENTRES)
    assert met(each, ["a", "b", "x", "y"], CENTRES)
    assert required(each) == 4


def test_a_local_level_without_local_replicas_cannot_be_met() -> None:
    assert not met(needs(Consistency.LOCAL_QUORUM, REPLICATION, "dc3"), CENTRES, CENTRES)
