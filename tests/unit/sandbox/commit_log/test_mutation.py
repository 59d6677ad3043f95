"""Mutations of unusual shapes, byte layouts that are known, and what a mutation cannot be."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.segment import FORMATS
from penstock.errors import InvalidValue
from penstock.merge.cql_value import unsigned_vint
from penstock.model import types as t
from penstock.model.change import (
    Bound,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Range,
    Removed,
    Set,
)
from penstock.model.schema import Column, Role, TableId
from penstock.sandbox.commit_log.mutation import encode_key, encode_mutation
from penstock.sandbox.commit_log.statements import create_table
from penstock.sandbox.commit_log.writer import CommitLogWriter
from tests.commit_logs import as_table, normal, normal_update, read_back

TIME = 1_700_000_000_000_000
SECOND = TIME // 1_000_000
GONE = Deletion(TIME, SECOND)


def table(*columns: Column, number: int = 1) -> CassandraTable:
    return as_table(TableId("ks", f"t{number}"), columns, uuid.UUID(int=number))


def round_trip(tmp_path: Path, mutations: Any, format_: int = 7) -> dict[uuid.UUID, list[Any]]:
    """The normal form of what comes back, by table."""
    root = tmp_path / str(format_)
    log = CommitLogWriter(f"{root}/commitlog", f"{root}/cdc_raw", format=format_, segment_bytes=1 << 20, durable=False)
    known = {each.id: each for mutation in mutations for each, _ in mutation}
    for each in known.values():
        log.append(create_table(each, TIME))
    for mutation in mutations:
        log.append(mutation)
    log.close()
    found = read_back([log.segment])
    assert found.damage == []
    return {name: [normal(known[name].schema, one) for one in changes] for name, changes in found.changes.items()}


def check(tmp_path: Path, *mutations: Any, format_: int = 7) -> None:
    """What comes back is what was written."""
    expected: dict[uuid.UUID, list[Any]] = {}
    for mutation in mutations:
        for each, changes in mutation:
            expected.setdefault(each.id, []).extend(normal_update(each.schema, changes))
    assert round_trip(tmp_path, mutations, format_) == expected


def test_the_bytes_of_an_insert_are_known() -> None:
    orders = table(Column("id", t.INT32, Role.PARTITION), Column("note", t.TEXT))
    change = Change(Op.INSERT, {"id": 1}, {"note": Set("hi")}, time=1_442_880_000_000_000 + 5, marker=Marker())
    body = (
        "0400000001 10"  # the key, and that a row count follows
        "05 00 00"  # least time, second and time to live
        "01 04 6e6f7465"  # one column, note
        "01 24"  # one row, with a time and all columns
        "00"  # its time
        "08 02 6869"  # the cell has the row's time
        "01"
    )
    update = uuid.UUID(int=1).bytes + bytes.fromhex(body)
    for format_ in (6, 7, 8):
        assert encode_mutation([(orders, [change])], format_) == b"\x01" + update
    assert encode_mutation([(orders, [change])], 9, epoch=300) == b"\x00\x01" + update[:16] + b"\x81\x2c" + update[16:]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8080"),
        (16_383, "bfff"),
        (16_384, "c04000"),
        ((1 << 56) - 1, "feffffffffffffff"),
        (1 << 56, "ff0100000000000000"),
        ((1 << 64) - 1, "ffffffffffffffffff"),
    ],
)
def test_variable_length_numbers(value: int, encoded: str) -> None:
    assert unsigned_vint(value).hex() == encoded


def test_a_key_of_several_columns_has_lengths() -> None:
    wide = table(Column("a", t.TEXT, Role.PARTITION), Column("b", t.INT8, Role.PARTITION))
    assert encode_key(wide.schema, ("xy", 5)) == b"\x00\x02xy\x00\x00\x01\x05\x00"


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("count", [63, 64, 80])
def test_rows_of_wide_tables_name_their_columns(tmp_path: Path, format_: int, count: int) -> None:
    columns = [Column(f"c{number:03}", t.INT32) for number in range(count)]
    wide = table(Column("id", t.INT32, Role.PARTITION), Column("at", t.INT32, Role.CLUSTERING), *columns)

    def row(at: int, present: range) -> Change:
        cells = {f"c{number:03}": Set(number) for number in present}
        return Change(Op.INSERT, {"id": 1, "at": at}, cells, time=TIME, marker=Marker())

    rows = [
        row(0, range(count)),
        row(1, range(3)),
        row(2, range(2, count)),
        row(3, range(count // 2)),
        row(4, range(0)),
    ]
    rows += [row(5, range(count - 1, count)), row(6, range(0, count, 2))]
    check(tmp_path, [(wide, rows)], format_=format_)


def test_clustering_keys_go_in_batches_of_thirty_two(tmp_path: Path) -> None:
    clustering = [Column(f"k{number:02}", t.TEXT if number % 3 else t.INT32, Role.CLUSTERING) for number in range(70)]
    deep = table(Column("id", t.INT32, Role.PARTITION), *clustering)
    values = {
        column.name: (number if column.type == t.INT32 else "x" * (number % 5))
        for number, column in enumerate(clustering)
    }
    whole = Change(Op.INSERT, {"id": 1, **values}, time=TIME, marker=Marker())
    bound = Bound(tuple(values[column.name] for column in clustering[:40]), inclusive=True)
    gone = Change(Op.DELETE_RANGE, {"id": 2}, deletion=GONE, range=Range(bound, None))
    check(tmp_path, [(deep, [whole])], [(deep, [gone])])


def test_one_mutation_may_write_several_tables(tmp_path: Path) -> None:
    first = table(Column("id", t.INT32, Role.PARTITION), Column("v", t.TEXT))
    second = table(
        Column("id", t.INT32, Role.PARTITION),
        Column("c", t.INT32, Role.CLUSTERING),
        Column("s", t.TEXT, Role.STATIC),
        number=2,
    )
    mutation = [
        (first, [Change(Op.INSERT, {"id": 1}, {"v": Set("a")}, time=TIME, marker=Marker())]),
        (
            second,
            [
                Change(Op.UPDATE, {"id": 1}, {"s": Set("s")}, time=TIME),
                Change(Op.DELETE, {"id": 1, "c": 2}, deletion=GONE),
            ],
        ),
    ]
    for format_ in FORMATS:
        check(tmp_path, mutation, format_=format_)


def test_touching_ranges_are_joined_by_boundaries(tmp_path: Path) -> None:
    rows = table(
        Column("id", t.INT32, Role.PARTITION),
        Column("c", t.INT32, Role.CLUSTERING),
        Column("d", t.TEXT, Role.CLUSTERING, descending=True),
    )

    def gone(time: int, start: Bound | None, end: Bound | None) -> Change:
        return Change(Op.DELETE_RANGE, {"id": 1}, deletion=Deletion(time, SECOND), range=Range(start, end))

    changes = [
        gone(TIME, None, Bound((1,), inclusive=False)),
        gone(TIME + 1, Bound((1,), inclusive=True), Bound((3,), inclusive=True)),
        gone(TIME + 2, Bound((3,), inclusive=False), Bound((5, "x"), inclusive=True)),
        gone(TIME + 1, Bound((4,), inclusive=True), Bound((9,), inclusive=False)),
        gone(TIME, Bound((20, "b"), inclusive=False), Bound((20, "a"), inclusive=True)),
        gone(TIME, Bound((30,), inclusive=False), None),
    ]
    inside = [
        Change(Op.INSERT, {"id": 1, "c": c, "d": d}, time=TIME + 5, marker=Marker())
        for c, d in ((0, "a"), (1, "z"), (3, "m"), (5, "x"), (5, "w"), (20, "a"), (99, ""))
    ]
    check(tmp_path, [(rows, [*inside, *changes])])


def test_a_row_may_be_deleted_and_written_at_once(tmp_path: Path) -> None:
    simple = table(Column("id", t.INT32, Role.PARTITION), Column("v", t.INT32), Column("w", t.TEXT))
    changes = [
        Change(Op.INSERT, {"id": 1}, {"v": Set(1)}, time=TIME + 1, marker=Marker(), deletion=GONE),
        Change(Op.UPDATE, {"id": 2}, {"v": Deleted(None, 5)}, time=TIME + 1, deletion=GONE),
        Change(Op.UPDATE, {"id": 3}, {"v": Set(None), "w": Set("")}, time=TIME),
        Change(Op.DELETE, {"id": 4}, deletion=GONE),
        Change(Op.INSERT, {"id": 5}, time=TIME, marker=Marker(None, Expiry(60, SECOND + 60))),
        Change(
            Op.INSERT,
            {"id": 6},
            {"v": Set(1, None, Expiry(60, SECOND + 60)), "w": Set("x", TIME - 9, Expiry(61, SECOND + 61))},
            time=TIME,
            marker=Marker(None, Expiry(60, SECOND + 60)),
        ),
    ]
    for format_ in FORMATS:
        check(tmp_path, *([(simple, [change])] for change in changes), format_=format_)


def test_one_deleted_collection_makes_the_others_say_that_they_are_not(tmp_path: Path) -> None:
    several = table(
        Column("id", t.INT32, Role.PARTITION),
        Column("a", t.set_of(t.INT32, multi_cell=True)),
        Column("b", t.map_of(t.TEXT, t.INT32, multi_cell=True)),
        Column("c", t.list_of(t.INT32, multi_cell=True)),
        Column("d", t.user("person", {"name": t.TEXT, "age": t.INT32}, multi_cell=True)),
    )
    cell = uuid.UUID("5132b130-ae79-11e4-ab27-0800200c9a66")
    cells = {
        "a": Delta(Deletion(TIME - 1, SECOND), (Element(5), Element(-5))),
        "b": Delta(None, (Element("x", 1, TIME + 1, Expiry(9, SECOND)),), (Removed("a", None, SECOND),)),
        "c": Delta(None, (Element(cell, 7),)),
        "d": Delta(Deletion(TIME - 1, SECOND)),
    }
    for format_ in FORMATS:
        check(tmp_path, [(several, [Change(Op.UPDATE, {"id": 1}, cells, time=TIME)])], format_=format_)


def test_a_counters_shards_come_back(tmp_path: Path) -> None:
    counted = table(Column("id", t.INT32, Role.PARTITION), Column("n", t.SHARDED_COUNTER))
    shards = Delta(None, (Element(uuid.UUID(int=9), (3, -7)), Element(uuid.UUID(int=4), (1 << 60, 9))))
    check(tmp_path, [(counted, [Change(Op.UPDATE, {"id": 1}, {"n": shards}, time=TIME)])])


def test_static_and_other_cells_of_one_change_go_to_their_rows(tmp_path: Path) -> None:
    both = table(
        Column("id", t.INT32, Role.PARTITION),
        Column("c", t.INT32, Role.CLUSTERING),
        Column("s", t.TEXT, Role.STATIC),
        Column("v", t.TEXT),
    )
    change = Change(Op.INSERT, {"id": 1, "c": 2}, {"s": Set("s"), "v": Set("v")}, time=TIME, marker=Marker())
    found = round_trip(tmp_path, [[(both, [change])]])[both.id]
    assert [(one[0], one[1], sorted(one[2])) for one in found] == [
        (Op.UPDATE, {"id": 1}, ["s"]),
        (Op.INSERT, {"id": 1, "c": 2}, ["v"]),
    ]


def test_seconds_beyond_2038_need_format_8(tmp_path: Path) -> None:
    simple = table(Column("id", t.INT32, Role.PARTITION), Column("v", t.INT32))
    far = Change(Op.UPDATE, {"id": 1}, {"v": Set(1, None, Expiry(60, (1 << 32) - 3))}, time=TIME, deletion=GONE)
    check(tmp_path, [(simple, [far])], format_=8)
    with pytest.raises(InvalidValue, match="format 7"):
        encode_mutation([(simple, [far])], 7)


SIMPLE = table(
    Column("id", t.INT32, Role.PARTITION),
    Column("c", t.INT32, Role.CLUSTERING),
    Column("s", t.INT32, Role.STATIC),
    Column("l", t.list_of(t.INT32, multi_cell=True)),
    Column("v", t.INT32),
)
ROW = {"id": 1, "c": 1}
CELL = uuid.UUID("5132b130-ae79-11e4-ab27-0800200c9a66")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([], "needs a change"),
        ([Change(Op.INSERT, {"c": 1}, time=1, marker=Marker())], "key column has no value"),
        ([Change(Op.INSERT, {"id": 1}, {"v": Set(1)}, time=1, marker=Marker())], "without its clustering key"),
        ([Change(Op.INSERT, ROW, {"v": Set(1)}, marker=Marker())], "without a time"),
        ([Change(Op.INSERT, ROW, {"v": Set("text")}, time=1, marker=Marker())], "does not fit"),
        ([Change(Op.UPDATE, ROW, {"l": Set((1,))}, time=1)], "takes a delta"),
        ([Change(Op.UPDATE, ROW, {"v": Delta()}, time=1)], "takes a value"),
        ([Change(Op.UPDATE, ROW, {"v": Set(1)}, time=1)] * 2, "two changes of one row"),
        ([Change(Op.UPDATE, {"id": 1}, {"s": Set(1)}, time=1)] * 2, "two changes of one static column"),
        ([Change(Op.DELETE, ROW, deletion=GONE), Change(Op.DELETE, {"id": 2, "c": 1}, deletion=GONE)], "one partition"),
        ([Change(Op.TRUNCATE, {"id": 1}, time=1)], "holds no truncate"),
        (
            [Change(Op.UPDATE, ROW, {"l": Delta(None, (Element(CELL, 1),), (Removed(CELL, 1, 1),))}, time=1)],
            "two cells with one path",
        ),
    ],
)
def test_what_no_mutation_can_hold_is_refused(changes: list[Change], why: str) -> None:
    with pytest.raises(InvalidValue, match=why):
        encode_mutation([(SIMPLE, changes)], 7)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidValue, match="format 5"):
        encode_mutation([], 5)
