"""The checker must find what is missing; a checker that never complains proves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.formats import avro
from penstock.model import types
from penstock.model.change import Change, Marker, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.sandbox.checker import LogPlace, Verdict, check
from penstock.sandbox.consistency import Consistency, needs
from penstock.sandbox.history import History, digest
from penstock.sandbox.node_log import NodeLog, log_directory, table_logs
from testkit.crash_files import CrashFiles

T = TableId("ks", "t")
SCHEMA = TableSchema(T, (Column("p", types.INT32, Role.PARTITION), Column("v", types.FLOAT64)))
CENTRES = {"a": "dc1", "b": "dc1", "c": "dc2"}


class Machine:
    """A node as far as a log is concerned."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data_centre = CENTRES[name]
        self.files = CrashFiles()


def change(p: int) -> Change:
    return Change(Op.INSERT, {"p": p}, {"v": Set(0.5)}, time=p, marker=Marker())


def verdict(
    logs: dict[str, list[Change]],
    acknowledged_by: tuple[str, ...],
    level: Consistency = Consistency.QUORUM,
    written: Change | None = None,
) -> Verdict:
    """What the checker says when these nodes have these changes in their logs."""
    history = History()
    wanted = needs(level, (("dc1", 2), ("dc2", 1)), "dc1")
    one = written or change(1)
    history.record(1, T, (one,), ("a", "b", "c"), wanted, acknowledged_by, acknowledged=bool(acknowledged_by))
    places = []
    for name, changes in logs.items():
        machine = Machine(name)
        log: NodeLog | None = table_logs("/logs")(machine, SCHEMA)
        assert log is not None
        if changes:
            log.append(avro.encode(SCHEMA, changes))
        log.close()
        places.append(LogPlace(name, T, log_directory("/logs", name, T), machine.files))
    return check(history, places, CENTRES)


def test_enough_copies_are_sound() -> None:
    found = verdict({"a": [change(1), change(2)], "b": [change(1)], "c": []}, ("a", "b"))
    assert found.sound
    assert (found.changes_acknowledged, found.changes_in_logs, found.copies_checked) == (1, 3, 2)


def test_a_replica_that_acknowledged_and_has_it_not_is_found() -> None:
    found = verdict({"a": [change(1)], "b": [change(2)], "c": [change(1)]}, ("a", "b"))
    assert not found.sound
    assert found.lacks[0].acknowledged_without == ("b",)
    assert found.lacks[0].found_on == ("a", "c")


def test_an_acknowledgement_without_enough_replicas_is_found() -> None:
    everywhere = {name: [change(1)] for name in CENTRES}
    assert not verdict(everywhere, ("a",)).sound
    assert verdict(everywhere, ("a",), Consistency.ONE).sound
    assert not verdict(everywhere, ("a", "b"), Consistency.EACH_QUORUM).sound


def test_two_copies_in_one_log_are_one_replica() -> None:
    assert not verdict({"a": [change(1), change(1)], "b": [], "c": []}, ("a", "b")).sound


def test_a_refused_write_need_not_be_anywhere() -> None:
    assert verdict({"a": [], "b": [], "c": []}, ()).sound


def test_a_node_without_a_log_is_taken_at_its_word_and_counted() -> None:
    found = verdict({"a": [change(1)]}, ("a", "b"))
    assert found.sound
    assert found.unlogged == 1


@pytest.mark.parametrize(
    "other",
    [
        change(2),
        replace(change(1), time=2),
        replace(change(1), cells={"v": Set(0.25)}),
        replace(change(1), marker=None),
        replace(change(1), op=Op.UPDATE),
    ],
)
def test_the_digest_tells_changes_apart_but_not_their_copies(other: Change) -> None:
    assert digest(other) != digest(change(1))
    assert digest(replace(change(1), origin=Origin(node="b"), capture_time=5)) == digest(change(1))


def test_a_history_that_is_full_says_what_it_dropped() -> None:
    history = History(limit=1)
    wanted = needs(Consistency.ONE, (("dc1", 1),), "dc1")
    for number in range(3):
        history.record(number, T, (change(number),), ("a",), wanted, ("a",), acknowledged=True)
    assert (len(history.outcomes), history.acknowledged, history.dropped) == (1, 3, 2)
    assert check(history, [], CENTRES).unchecked == 2
