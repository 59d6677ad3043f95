"""The judge itself: each kind of broken promise is recognised, and a sound log is not accused."""

from __future__ import annotations

import pytest

from tests.simulation.checker import Finding, History, check, settle


def history() -> History:
    """Four batches, of which the first three were acknowledged."""
    return History(
        attempted=[("a",), ("b", "c"), ("d",), ("e",)],
        acknowledged={0: (1,), 1: (3,), 2: (4,)},
        commits={"s": [(1,), (3,)]},
        committed={"s": (3,)},
    )


SOUND = [((1,), "a"), ((2,), "b"), ((3,), "c"), ((4,), "d")]
AT = {"s": (3,)}


@pytest.mark.parametrize(
    "changes",
    [SOUND, [*SOUND, ((5,), "e")], SOUND[1:], SOUND[3:]],
    ids=["all acknowledged", "with the one in flight", "consumed file gone", "all consumed gone"],
)
def test_sound_logs_are_not_accused(changes: list[tuple[tuple[int, ...], str]]) -> None:
    assert check(history(), Finding(list(changes), dict(AT))) == []


@pytest.mark.parametrize(
    ("changes", "checkpoint", "accusation"),
    [
        (SOUND[:3], (3,), "lost"),
        (SOUND[1:], None, "lost"),
        ([*SOUND, ((5,), "x")], (3,), "invented"),
        ([*SOUND, ((5,), "d")], (3,), "invented"),
        ([SOUND[1], SOUND[0], *SOUND[2:]], (3,), "order"),
        ([((1,), "b"), ((2,), "a"), *SOUND[2:]], (3,), "order"),
        ([*SOUND[:3], ((9,), "d")], (3,), "moved"),
        ([SOUND[0], SOUND[1], SOUND[3]], (3,), "torn"),
        ([SOUND[0], SOUND[3]], (3,), "gap"),
        (SOUND, (1,), "checkpoint"),
        (SOUND, None, "checkpoint"),
        (SOUND, (4,), "checkpoint"),
    ],
)
def test_every_broken_promise_is_named(
    changes: list[tuple[tuple[int, ...], str]], checkpoint: tuple[int, ...] | None, accusation: str
) -> None:
    problems = check(history(), Finding(changes, {"s": checkpoint}))
    assert any(problem.startswith(accusation) for problem in problems), problems


@pytest.mark.parametrize(
    ("noted", "accused"),
    [
        ({1: 10, 2: 20}, False),
        ({1: 10, 2: 20, 3: 30}, False),
        ({2: 20}, True),
        ({1: 10, 2: 21}, True),
        ({1: 10, 2: 20, 3: 15}, True),
        ({}, True),
    ],
)
def test_what_retention_noted_of_a_file_must_stay(noted: dict[int, int], accused: bool) -> None:
    told = history()
    told.noted = {0: 5, 1: 10, 2: 20}
    problems = check(told, Finding(list(SOUND), dict(AT), (1, 2, 3), noted))
    assert bool(problems) is accused
    assert all(problem.startswith("note") for problem in problems)


def test_what_a_reader_saw_must_stay() -> None:
    told = history()
    told.seen[(5,)] = "e"
    assert check(told, Finding(list(SOUND), dict(AT))) == ["lost: (5,), which a reader had seen"]


def test_a_failed_append_may_be_missing_but_not_an_unfailed_one() -> None:
    told = history()
    told.attempted.append(("f",))
    told.acknowledged[4] = (6,)
    changes = [*SOUND, ((6,), "f")]
    assert check(told, Finding(changes, dict(AT))) == ["gap: batch 3 is missing before batch 4"]
    told.failed.add(3)
    assert check(told, Finding(changes, dict(AT))) == []


def test_what_was_gone_must_not_come_back() -> None:
    told = history()
    settle(told, Finding(list(SOUND), dict(AT)))
    assert check(told, Finding(list(SOUND), dict(AT))) == []
    assert check(told, Finding([*SOUND, ((5,), "e")], dict(AT))) == ["invented: batch 3 was gone and came back"]
