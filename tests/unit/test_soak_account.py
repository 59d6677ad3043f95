"""The accounts of a soak: what is missing, invented or forgotten is found, and only what was announced is excused."""

from __future__ import annotations

from penstock.model.position import START, Position
from tests.soak.account import Account, FileEnds, Row, note_of


def rows(first: int, last: int) -> list[Row]:
    return [Row(number, note_of(number)) for number in range(first, last + 1)]


def account_of(ends: FileEnds, *batches: tuple[int, int, Position]) -> Account:
    account = Account("reader", ends)
    for first, last, position in batches:
        account.take(rows(first, last), position, written=1000)
        account.sent(position)
        account.durable(position)
    return account


def test_a_gap_that_nobody_announced_is_a_loss() -> None:
    account = account_of(FileEnds(), (0, 9, Position(1, 100, 9)), (15, 19, Position(2, 100, 4)))
    assert account.unannounced() == [10, 11, 12, 13, 14]
    assert account.missing == 5


def test_only_what_an_announcement_covers_is_excused() -> None:
    ends = FileEnds()
    account_of(ends, (0, 9, Position(1, 100, 9)), (10, 12, Position(1, 900, 2)), (13, 19, Position(2, 100, 6)))
    account = account_of(ends, (0, 9, Position(1, 100, 9)), (15, 19, Position(2, 100, 6)))
    account.announce(Position(1, 100, 9), Position(1, 900, 2), cut=3)
    assert account.settle()
    assert account.unannounced() == [13, 14]
    assert account.cut == 3


def test_an_announcement_that_nobody_can_place_stays_open() -> None:
    account = account_of(FileEnds(), (0, 9, Position(1, 100, 9)))
    account.announce(START, Position(7, 100, 0))
    assert not account.settle()


def test_rows_that_come_again_or_were_never_written_or_differ_are_invented() -> None:
    account = account_of(FileEnds(), (0, 9, Position(1, 100, 9)))
    account.take(rows(9, 10), Position(1, 200, 1), written=1000)
    account.take([Row(11, "another text")], Position(1, 300, 0), written=1000)
    account.take(rows(1000, 1000), Position(1, 400, 0), written=1000)
    assert account.broken == {"invented": 3}


def test_what_was_not_committed_may_come_again_and_what_was_durable_may_not() -> None:
    account = account_of(FileEnds(), (0, 4, Position(1, 100, 4)), (5, 9, Position(1, 200, 4)))
    account.take(rows(10, 14), Position(1, 300, 4), written=1000)
    account.resume(Position(1, 200, 4))
    account.take(rows(10, 14), Position(1, 300, 4), written=1000)
    assert (account.broken, account.repeated) == ({}, 5)
    account.resume(Position(1, 100, 4))
    assert account.broken == {"durable commits that were forgotten": 1}


def test_a_reader_goes_on_behind_a_commit_or_a_cut_and_nowhere_else() -> None:
    account = account_of(FileEnds(), (0, 4, Position(1, 100, 4)))
    account.resume(Position(3, 100, 0))
    assert account.strange_places() == [Position(3, 100, 0)]
    account.announce(Position(1, 100, 4), Position(3, 100, 0))
    assert account.strange_places() == []


def test_a_reader_may_be_given_again_what_lies_behind_a_cut_and_was_not_committed() -> None:
    account = account_of(FileEnds(), (0, 4, Position(1, 100, 4)))
    account.take(rows(5, 29), Position(2, 500, 9), written=1000)
    account.announce(Position(1, 100, 4), Position(1, 900, 9))
    account.resume(Position(1, 900, 9))
    account.take(rows(20, 29), Position(2, 500, 9), written=1000)
    assert (account.broken, account.repeated) == ({}, 10)
    account.take(rows(25, 29), Position(2, 500, 9), written=1000)
    assert account.broken == {"invented": 5}


def test_a_rewind_makes_so_many_come_again_as_was_said() -> None:
    account = account_of(FileEnds(), (0, 4, Position(1, 100, 4)), (5, 9, Position(1, 200, 4)))
    account.rewound(Position(1, 200, 4), Position(1, 100, 4), again=5)
    account.take(rows(5, 9), Position(1, 200, 4), written=1000)
    assert account.broken == {}
    account.rewound(Position(1, 200, 4), Position(1, 100, 4), again=3)
    assert account.broken == {"rewinds to another place than was said": 1}
