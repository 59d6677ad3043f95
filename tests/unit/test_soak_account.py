"""The accounts of a soak: what is missing, invented or forgotten is found, and only what was announced is excused."""

from __future__ import annotations

from pathlib import Path

from penstock.log.table_log import TableLog
from penstock.model.position import START, Position
from penstock.settings import LogSettings
from tests import sample
from tests.soak.account import Account, FileEnds, Row, note_of
from tests.soak.witness import Watch


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


def test_a_witness_places_a_cut_that_ends_where_no_reader_came() -> None:
    ends = FileEnds()
    account = account_of(ends, (0, 9, Position(1, 100, 9)), (15, 19, Position(3, 100, 4)))
    account.announce(Position(1, 100, 9), Position(2, 100, 3))
    assert not account.settle()
    ends.note(Position(2, 100, 3), 13)
    assert account.settle()
    # The last number before those that came is a loss: the cut that was announced ends before it.
    assert account.unannounced() == [14]


def test_what_was_excused_is_not_kept_and_what_was_not_stays_a_loss() -> None:
    ends = FileEnds()
    account = Account("reader", ends)
    for file in range(2, 6000, 2):
        # Of every ten numbers the first three come, four are cut with an announcement, and of some one more is missing.
        first = 5 * file
        account.take(rows(first, first + 2), Position(file, 100, 2), written=100_000)
        ends.note(Position(file, 200, 3), first + 6)
        account.announce(Position(file, 100, 2), Position(file, 200, 3), cut=4)
        account.take(rows(first + 7 + (file % 2000 == 0), first + 9), Position(file + 1, 100, 2), written=100_000)
        assert account.settle()
    assert account.unannounced() == [*range(10), 10_007, 20_007]
    assert account.missing == 10 + 2999 * 4 + 2


def test_the_witness_says_how_each_file_ends_also_when_it_is_gone(tmp_path: Path) -> None:
    log, links = tmp_path / "log", tmp_path / "links"
    links.mkdir()
    watch = Watch(log, links)
    assert watch.look() == []
    ends: dict[int, tuple[Position, int]] = {}
    said: list[tuple[Position, int]] = []
    with TableLog.open(str(log), sample.SCHEMA, settings=LogSettings(file_bytes_max=8192)) as table_log:
        for number in range(60):
            position = table_log.append(sample.batch(number, note="n" * 500))
            ends[position.file] = position, number
            if number == 30:
                said += watch.look()
                for path in log.glob("*.avro"):
                    path.unlink() if f"{position.file:06}" not in path.name else None
    said += watch.look()
    assert said == [ends[file] for file in sorted(ends)[:-1]]
    assert len(list(links.iterdir())) == 1


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
