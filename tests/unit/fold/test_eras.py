"""Which rows of tables that were truncated, or dropped and made anew, still count."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptCheckpoint
from penstock.fold.eras import Drop, Eras, EraStore, Header
from penstock.model import types
from penstock.model.schema import Column, Role, TableId, TableSchema

TABLE = TableId("shop", "carts")
SECOND = 1_000_000
FIRST = TableSchema(
    TABLE, (Column("id", types.INT64, Role.PARTITION), Column("note", types.TEXT)), id="aa", altered=10, since_us=1
)
MORE = Column("more", types.TEXT)


def truncated(node: str, second: float, schema: TableSchema = FIRST) -> Header:
    return Header(node, replace(schema, truncated_us=int(second * SECOND)))


def learned(*headers: Header) -> Eras:
    eras = Eras()
    for header in headers:
        eras = eras.learn([header])
    return eras


def test_a_table_that_was_never_truncated_has_one_era() -> None:
    eras = learned(Header("a", FIRST), Header("b", replace(FIRST, version=4)))
    assert eras.numbers() == {}
    assert not eras.is_stale(Header("a", FIRST))


def test_what_a_node_logged_before_its_truncation_is_stale_and_what_it_logged_after_is_not() -> None:
    eras = learned(Header("a", FIRST), truncated("a", 100))
    assert eras.is_stale(Header("a", FIRST))
    assert not eras.is_stale(truncated("a", 100))
    assert eras.numbers() == {TABLE: 1}


def test_one_truncation_on_three_nodes_is_one_era() -> None:
    headers = [Header(node, FIRST) for node in "abc"] + [truncated(node, 100 + at) for at, node in enumerate("abc")]
    for order in itertools.permutations(headers[3:]):
        eras = learned(*headers[:3], *order)
        assert eras.numbers() == {TABLE: 1}
        assert [eras.is_stale(header) for header in headers] == [True] * 3 + [False] * 3


def test_a_node_that_is_read_late_does_not_begin_an_era_again() -> None:
    eras = learned(Header("a", FIRST), truncated("a", 100), truncated("a", 102))
    later = eras.learn([truncated("b", 100.5)])
    assert later.numbers() == {TABLE: 2}
    assert later.is_stale(truncated("b", 100.5))
    last = later.learn([truncated("b", 102.4)])
    assert last.numbers() == {TABLE: 2}
    assert not last.is_stale(truncated("b", 102.4))
    assert last.moves(later) == {}


def test_a_node_that_joined_after_a_truncation_is_of_the_new_era() -> None:
    eras = learned(Header("a", FIRST), truncated("a", 100))
    assert not eras.is_stale(Header("d", replace(FIRST, since_us=200 * SECOND)))
    assert eras.is_stale(Header("d", replace(FIRST, since_us=50 * SECOND)))


def test_a_table_made_anew_under_the_name_begins_an_era_however_nodes_count_versions() -> None:
    anew = replace(FIRST, id="0b", altered=20, version=1)
    before = learned(Header("a", replace(FIRST, version=7)), truncated("a", 100))
    eras = before.learn([Header("a", anew)])
    assert eras.is_stale(truncated("a", 100))
    assert not eras.is_stale(Header("b", anew))
    move = eras.moves(before)[TABLE]
    assert (move.schema.id, move.number, move.began_us) == ("0b", 2, 20)
    # Another node's log still has the older one.
    assert eras.learn([truncated("b", 300)]) == eras


def test_the_newest_schema_is_the_one_that_was_altered_last() -> None:
    wider = replace(FIRST, columns=(*FIRST.columns, Column("more", types.TEXT)), altered=30, version=1)
    before = learned(Header("a", replace(FIRST, version=9)))
    eras = before.learn([Header("d", wider)])
    assert eras.tables[TABLE].schema == wider
    assert eras.moves(before)[TABLE].began_us == 0


def test_logs_that_know_no_ids_are_never_stale() -> None:
    old = replace(FIRST, id="", altered=0)
    eras = learned(Header("a", old), Header("a", FIRST), truncated("a", 100))
    assert not eras.is_stale(Header("b", old))


truncations = st.lists(st.integers(1, 40), min_size=1, max_size=5, unique=True).map(sorted)


@given(truncations, st.integers(1, 3), st.randoms(use_true_random=False))
def test_any_order_of_reading_gives_the_same_eras(times: list[int], nodes: int, chance: object) -> None:
    """Each node notes each truncation a little later than it began, and before the next one begins."""
    headers = [truncated("abc"[node], 100 + 3 * time + node * 0.4) for time in times for node in range(nodes)]
    chance.shuffle(headers)  # type: ignore[attr-defined]
    eras = learned(Header("a", FIRST), *headers)
    last = [truncated("abc"[node], 100 + 3 * times[-1] + node * 0.4) for node in range(nodes)]
    assert [header for header in headers if not eras.is_stale(header)] == [one for one in headers if one in last]
    assert all(eras.learn([header]).tables[TABLE].groups == eras.tables[TABLE].groups for header in headers)


def test_eras_are_kept_by_batch(tmp_path: Path) -> None:
    store = EraStore(tmp_path / "eras")
    assert store.before(0) == Eras()
    first, second = learned(Header("a", FIRST)), learned(Header("a", FIRST), truncated("a", 100))
    store.write(0, first)
    store.write(4, second)
    again = EraStore(tmp_path / "eras")
    assert [again.before(batch) for batch in (0, 1, 4, 5, 9)] == [Eras(), first, first, second, second]


def test_damaged_eras_are_refused(tmp_path: Path) -> None:
    store = EraStore(tmp_path)
    store.write(3, learned(Header("a", FIRST)))
    (tmp_path / "eras-000000000003.json").write_text("{}")
    with pytest.raises(CorruptCheckpoint):
        EraStore(tmp_path).before(4)


# A table that has the id of one that was dropped.

AGAIN = replace(FIRST, altered=20, remade_us=FIRST.altered)


def test_table_that_is_made_again_with_its_id_begins_an_era() -> None:
    eras = learned(Header("a", FIRST), Header("a", AGAIN))
    assert eras.numbers() == {TABLE: 1}
    assert eras.is_stale(Header("b", FIRST))
    assert not eras.is_stale(Header("b", AGAIN))
    assert eras.learn([Header("b", FIRST), Header("b", AGAIN)]) is eras


def test_node_that_has_not_seen_the_drop_logs_rows_that_count() -> None:
    unaware = Header("b", replace(FIRST, altered=20))
    altered = Header("b", replace(FIRST, altered=30))
    for order in itertools.permutations([Header("a", AGAIN), unaware, altered]):
        eras = learned(Header("a", FIRST), *order)
        assert eras.numbers() == {TABLE: 1}
        assert not eras.is_stale(unaware)
        assert not eras.is_stale(altered)
        assert eras.tables[TABLE].schema.altered == 30


def test_truncations_of_the_table_before_say_nothing_of_the_one_that_has_its_id() -> None:
    eras = learned(Header("a", FIRST), truncated("a", 100), Header("a", AGAIN))
    assert not eras.is_stale(Header("a", AGAIN))
    assert eras.is_stale(truncated("a", 100))
    assert eras.learn([truncated("b", 101)]) is eras
    later = eras.learn([truncated("a", 200, AGAIN)])
    assert later.is_stale(Header("a", AGAIN))


def test_eras_of_a_table_that_has_the_id_of_another_are_kept(tmp_path: Path) -> None:
    eras = learned(Header("a", FIRST), Header("a", AGAIN))
    EraStore(tmp_path / "eras").write(3, eras)
    assert EraStore(tmp_path / "eras").before(4) == eras


def dropped(*times: int) -> list[TableSchema]:
    """The table, and for each of these drops of its note the versions without and with it."""
    key, note = FIRST.columns
    versions = [FIRST]
    for number, time in enumerate(times):
        versions.append(replace(FIRST, columns=(key,), altered=20 + 20 * number, dropped=(("note", time),)))
        versions.append(replace(FIRST, columns=(key, replace(note, dropped_us=time)), altered=30 + 20 * number))
    return versions


def test_drops_that_the_newest_version_knows_of_are_not_remembered() -> None:
    for times in [(5,), (5, 7), (5, 5), (5, 7, 9)]:
        assert learned(*(Header("a", version) for version in dropped(*times))).drops() == {}


@pytest.mark.parametrize("order", list(itertools.permutations(range(5))))
def test_a_drop_that_is_followed_by_one_of_an_earlier_time_is_remembered_in_any_order(order: tuple[int, ...]) -> None:
    versions = dropped(7, 5)
    eras = learned(*(Header("ab"[number % 2], versions[number]) for number in order))
    assert eras.drops() == {TABLE: (Drop(30, "note", 7),)}
    assert eras.tables[TABLE].schema == versions[-1]
    assert learned(*(Header("a", version) for version in dropped(7, 5, 9))).drops() == {}


def test_a_batch_tells_what_went_with_the_versions_that_it_passes(tmp_path: Path) -> None:
    versions = dropped(7, 5)
    before = learned(Header("a", versions[0]))
    after = before.learn([Header("a", version) for version in versions[1:]])
    assert after.moves(before)[TABLE].floors == {"note": 7}
    more = after.learn([Header("a", replace(versions[-1], altered=90, columns=(*versions[-1].columns, MORE)))])
    assert more.moves(after)[TABLE].floors == {}
    assert more.drops() == after.drops()
    EraStore(tmp_path / "eras").write(3, more)
    assert EraStore(tmp_path / "eras").before(4) == more
