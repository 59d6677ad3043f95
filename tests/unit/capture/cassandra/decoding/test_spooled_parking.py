"""Entries that wait in memory, and in a temporary file when there are many."""

from __future__ import annotations

import uuid

import pytest

from penstock.capture.cassandra.decoding.decoder import ParkedEntry
from penstock.capture.cassandra.decoding.spooled_parking import SpooledParking

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def entry(table: uuid.UUID, number: int, size: int = 10) -> ParkedEntry:
    return ParkedEntry(table, "the table is not known", "CommitLog-7-1.log", 1, number, 7, bytes([number % 256]) * size)


def taken(parking: SpooledParking, table: uuid.UUID) -> list[ParkedEntry]:
    out: list[ParkedEntry] = []
    while more := parking.take(table):
        out += more
    return out


@pytest.mark.parametrize("memory", [1 << 20, 100])
def test_entries_come_back_in_order_by_table(memory: int) -> None:
    with SpooledParking(memory) as parking:
        for number in range(50):
            parking.park(entry(ONE if number % 3 else TWO, number))
        assert parking.holds(ONE)
        assert parking.counts() == {ONE: (33, "the table is not known"), TWO: (17, "the table is not known")}
        assert taken(parking, TWO) == [entry(TWO, number) for number in range(0, 50, 3)]
        assert not parking.holds(TWO)
        assert taken(parking, ONE) == [entry(ONE, number) for number in range(50) if number % 3]
        assert parking.counts() == {}


def test_much_is_given_back_in_parts() -> None:
    with SpooledParking(1 << 20) as parking:
        for number in range(6):
            parking.park(entry(ONE, number, 2 << 20))
        parts = []
        while more := parking.take(ONE):
            parts.append([one.position for one in more])
        assert parts == [[0, 1], [2, 3], [4, 5]]


def test_entries_can_be_parked_again_while_others_are_taken() -> None:
    with SpooledParking(100) as parking:
        parking.park(entry(ONE, 1))
        parking.park(entry(TWO, 2))
        (first,) = parking.take(ONE)
        parking.park(first._replace(table=TWO))
        assert [one.position for one in taken(parking, TWO)] == [2, 1]
        parking.park(entry(ONE, 3))
        assert taken(parking, ONE) == [entry(ONE, 3)]


def test_nothing_waits_at_first() -> None:
    with SpooledParking() as parking:
        assert not parking.holds(ONE)
        assert parking.take(ONE) == []
