"""The SELECT of a snapshot: columns, times by version, odd names, hidden columns."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.snapshot.ring import TokenRange
from penstock.capture.cassandra.snapshot.statement import (
    COUNTER,
    EMPTY,
    LIST,
    MAP,
    PLAIN,
    SET,
    USER,
    Statement,
    Times,
    statement,
    times_of,
)
from penstock.model import types
from penstock.model.schema import Column, Role, TableId, TableSchema

KEY = Column("k", types.INT32, Role.PARTITION)


def planned(*columns: Column, times: Times = Times.ELEMENTS, hidden: str = "", compact: bool = False) -> Statement:
    table = CassandraTable(UUID(int=1), TableSchema(TableId("ks", "t"), columns), cdc=True)
    visible = {column.name for column in columns} - {hidden}
    return statement(table, times, visible=visible, compact=compact)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("3.11.19", Times.CELLS),
        ("4.0.19", Times.CELLS),
        ("4.1.10", Times.CELLS),
        ("5.0.9", Times.ELEMENTS),
        ("6.0-alpha2", Times.ELEMENTS),
        ("10.0", Times.ELEMENTS),
        ("", Times.CELLS),
    ],
)
def test_the_version_says_which_write_times_there_are(version: str, expected: Times) -> None:
    assert times_of(version) is expected


def test_every_cell_comes_with_its_write_time_and_time_to_live_and_every_row_with_its_token() -> None:
    text = planned(KEY, Column("c", types.TEXT, Role.CLUSTERING), Column("v", types.TEXT)).text(TokenRange(-5, 7))
    assert text == (
        'SELECT "k", "c", "v", WRITETIME("v"), TTL("v"), token("k") FROM "ks"."t" '
        'WHERE token("k") > -5 AND token("k") <= 7'
    )


def test_names_are_quoted_whatever_they_are() -> None:
    columns = (
        Column('ke"y', types.INT32, Role.PARTITION),
        Column("select", types.INT32, Role.PARTITION),
        Column("Größe; --", types.INT32),
    )
    text = planned(*columns).text(TokenRange(0, 9))
    assert text.startswith('SELECT "ke""y", "select", "Größe; --", WRITETIME("Größe; --"), TTL("Größe; --"), token(')
    assert text.endswith('WHERE token("ke""y", "select") > 0 AND token("ke""y", "select") <= 9')


COLLECTIONS = (
    KEY,
    Column("f", types.list_of(types.INT32)),
    Column("l", types.list_of(types.INT32, multi_cell=True)),
    Column("m", types.map_of(types.INT32, types.TEXT, multi_cell=True)),
    Column("s", types.set_of(types.INT32, multi_cell=True)),
    Column("u", types.user("pair", {"a": types.INT32}, multi_cell=True)),
    Column("v", types.INT32),
)


@pytest.mark.parametrize(
    ("times", "timed"),
    [(Times.ELEMENTS, [1, 1, 1, 1, 1, 1]), (Times.CELLS, [1, 0, 0, 0, 0, 1])],
)
def test_older_servers_are_not_asked_for_what_they_do_not_tell(times: Times, timed: list[int]) -> None:
    chosen = planned(*COLLECTIONS, times=times)
    layout = chosen.layout
    assert list(layout.shapes[:6]) == [PLAIN, LIST, MAP, SET, USER, PLAIN]
    assert list(layout.timed[:6]) == timed
    for column, known in zip(layout.cell_types, timed, strict=True):
        assert (f'TTL("{column.name}")' in chosen.select) == bool(known)
    assert layout.width == chosen.select.split(" FROM ")[0].count(",") + 1


def test_a_counter_has_a_write_time_only_and_its_table_no_markers() -> None:
    chosen = planned(KEY, Column("n", types.SHARDED_COUNTER))
    assert '"n", WRITETIME("n"), token' in chosen.select
    assert list(chosen.layout.shapes[:1]) == [COUNTER]
    assert not chosen.layout.has_marker


def test_a_compact_table_has_no_markers() -> None:
    assert planned(KEY, Column("v", types.INT32)).layout.has_marker
    assert not planned(KEY, Column("v", types.INT32), compact=True).layout.has_marker


def test_the_hidden_value_of_a_compact_table_is_not_selected_but_known_to_be_there() -> None:
    hidden = Column("value", types.BYTES, source_type="empty")
    chosen = planned(KEY, Column("c", types.INT32, Role.CLUSTERING), hidden, hidden="value", compact=True)
    assert "value" not in chosen.select
    assert list(chosen.layout.shapes[:1]) == [EMPTY]


def test_the_hidden_key_of_a_compact_table_leaves_its_static_cells() -> None:
    columns = (
        KEY,
        Column("column1", types.TEXT, Role.CLUSTERING),
        Column("a", types.INT32, Role.STATIC),
        Column("value", types.BYTES, source_type="blob"),
    )
    table = CassandraTable(UUID(int=1), TableSchema(TableId("ks", "t"), columns), cdc=True)
    chosen = statement(table, Times.CELLS, visible={"k", "a"}, compact=True)
    assert "column1" not in chosen.select
    assert [column.name for column in chosen.layout.cell_types] == ["a"]
    assert chosen.layout.keys == 1
