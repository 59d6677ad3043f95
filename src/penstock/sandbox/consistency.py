"""Consistency levels: how many replicas, and where, must answer before a request counts as done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from penstock.sandbox.ring import Replication


class Consistency(StrEnum):
    """As in Cassandra. ANY is for writes only: a stored hint is enough."""

    ANY = "any"
    ONE = "one"
    TWO = "two"
    THREE = "three"
    QUORUM = "quorum"
    ALL = "all"
    LOCAL_ONE = "local_one"
    LOCAL_QUORUM = "local_quorum"
    EACH_QUORUM = "each_quorum"


class Need(NamedTuple):
    """So many replicas; of one data centre, or of any when that is None."""

    data_centre: str | None
    replicas: int


Needs = tuple[Need, ...]


def needs(consistency: Consistency, replication: Replication, local: str) -> Needs:
    """What a level asks for, seen from a coordinator in the data centre `local`."""
    factors = dict(replication)
    total = sum(factors.values())
    match consistency:
        case Consistency.ANY:
            return (Need(None, 0),)
        case Consistency.ONE:
            return (Need(None, 1),)
        case Consistency.TWO:
            return (Need(None, 2),)
        case Consistency.THREE:
            return (Need(None, 3),)
        case Consistency.QUORUM:
            return (Need(None, total // 2 + 1),)
        case Consistency.ALL:
            return (Need(None, total),)
        case Consistency.LOCAL_ONE:
            return (Need(local, 1),)
        case Consistency.LOCAL_QUORUM:
            return (Need(local, factors.get(local, 0) // 2 + 1),)
        case Consistency.EACH_QUORUM:
            return tuple(Need(name, factor // 2 + 1) for name, factor in replication)


def required(wanted: Needs) -> int:
    """The number of replicas that a level asks for, all data centres together."""
    return sum(need.replicas for need in wanted)


def counted(wanted: Needs, nodes: Iterable[str], data_centres: Mapping[str, str]) -> int:
    """How many of these nodes count towards what is asked for."""
    places = {need.data_centre for need in wanted}
    return sum(1 for node in nodes if None in places or data_centres[node] in places)


def met(wanted: Needs, nodes: Iterable[str], data_centres: Mapping[str, str]) -> bool:
    """Whether these nodes are enough."""
    found = list(nodes)
    return all(counted((need,), found, data_centres) >= need.replicas for need in wanted)
