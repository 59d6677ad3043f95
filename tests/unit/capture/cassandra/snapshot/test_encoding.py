"""Rows of a SELECT become changes: write times, times to live, markers, static cells, lists, damage."""

from __future__ import annotations

import struct
from random import Random
from typing import Any
from uuid import UUID

import pytest

from penstock.capture.cassandra.snapshot import encoding
from penstock.capture.cassandra.snapshot.encoding import LIST_CLOCK_MARGIN_US, Page, TableEncoder
from penstock.capture.cassandra.snapshot.statement import Times
from penstock.errors import InvalidValue
from penstock.formats import avro
from penstock.merge.cql_value import order_key, serialized
from penstock.merge.table_state import fold, visible
from penstock.model import types
from penstock.model.change import Change, Deletion, Delta, Element, Expiry, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Kind, Type
from tests.every_type import EVERY_TYPE
from tests.snapshot_pages import Raw, changes_of, page, plan, sized, table_of

NOW_S = 1_800_000_000
NOW_US = NOW_S * 10**6 + 700_000
KEY = Column("k", types.INT32, Role.PARTITION)
VALUES = TableSchema(TableId("ks", "t"), (KEY, Column("v", types.INT32), Column("w", types.TEXT)))


def number(value: int) -> bytes:
    return struct.pack(">i", value)


def long(value: int) -> bytes:
    return struct.pack(">q", value)


TOKEN = long(5)


def copied(schema: TableSchema, *rows: list[Raw], times: Times = Times.ELEMENTS, **more: Any) -> list[Change]:
    return changes_of(schema, [page(rows, NOW_US)], times, **more)


def test_a_row_of_one_insert_has_one_write_time() -> None:
    row = [number(1), number(7), long(100), None, b"x", long(100), None, TOKEN]
    assert copied(VALUES, row) == [
        Change(
            Op.SNAPSHOT,
            {"k": 1},
            {"v": Set(7), "w": Set("x")},
            time=100,
            capture_time=NOW_US,
            marker=Marker(),
        )
    ]


def test_cells_keep_their_own_times_and_the_marker_goes_with_the_oldest() -> None:
    row = [number(1), number(7), long(100), number(60), b"", long(250), None, TOKEN]
    (change,) = copied(VALUES, row)
    expiry = Expiry(60, NOW_S + 60)
    assert change.time == 250
    assert change.cells == {"v": Set(7, 100, expiry), "w": Set("")}
    assert change.marker == Marker(100, expiry)


def test_markers_can_be_left_to_what_is_certain() -> None:
    with_value = [number(1), number(7), long(100), None, None, None, None, TOKEN]
    without = [number(2), None, None, None, None, None, None, TOKEN]
    first, second = copied(VALUES, with_value, without, assume_inserted=False)
    assert first.marker is None
    # Nothing but its marker keeps such a row alive; since when is not known.
    assert second == Change(Op.SNAPSHOT, {"k": 2}, capture_time=NOW_US, marker=Marker(0))


def test_a_value_without_bytes_is_null_where_the_type_has_no_such_value() -> None:
    (change,) = copied(VALUES, [number(1), b"", long(9), None, b"", long(9), None, TOKEN])
    assert change.cells == {"v": Set(None), "w": Set("")}


STATIC = TableSchema(
    TableId("ks", "t"),
    (
        KEY,
        Column("c", types.INT32, Role.CLUSTERING),
        Column("s", types.INT32, Role.STATIC),
        Column("v", types.INT32),
    ),
)


def static_row(k: int, c: int | None, s: int | None, v: int | None) -> list[Raw]:
    static = [None, None, None] if s is None else [number(s), long(50), None]
    value = [None, None, None] if v is None else [number(v), long(60), None]
    return [number(k), None if c is None else number(c), *static, *value, TOKEN]


def test_static_cells_come_once_per_partition_as_a_change_of_their_own() -> None:
    pages = [
        page([static_row(1, 1, 7, 1), static_row(1, 2, 7, 2)], NOW_US, b"more"),
        page([static_row(1, 3, 7, 3), static_row(2, 1, None, 4), static_row(3, None, 8, None)], NOW_US),
    ]
    changes = [(change.key, dict(change.cells)) for change in changes_of(STATIC, pages)]
    assert changes == [
        ({"k": 1}, {"s": Set(7)}),
        ({"k": 1, "c": 1}, {"v": Set(1)}),
        ({"k": 1, "c": 2}, {"v": Set(2)}),
        ({"k": 1, "c": 3}, {"v": Set(3)}),
        ({"k": 2, "c": 1}, {"v": Set(4)}),
        ({"k": 3}, {"s": Set(8)}),
    ]
    assert changes_of(STATIC, pages)[0].marker is None


NESTED = TableSchema(
    TableId("ks", "t"),
    (
        KEY,
        Column("l", types.list_of(types.TEXT, multi_cell=True)),
        Column("m", types.map_of(types.INT32, types.TEXT, multi_cell=True)),
        Column("s", types.set_of(types.INT32, multi_cell=True)),
        Column("u", types.user("trio", {"a": types.INT32, "b": types.TEXT, "c": types.INT32}, multi_cell=True)),
        Column("v", types.INT32),
    ),
)


def collection(*values: Raw) -> bytes:
    return b"".join(map(sized, values))


def nested_row(times: Times) -> list[Raw]:
    columns: list[tuple[bytes, list[int | None], list[int | None]]] = [
        (number(2) + collection(b"x", b"y"), [30, 40], [None, 9]),
        (number(2) + collection(number(1), b"a", number(2), b"b"), [20, 50], [None, None]),
        (number(1) + collection(number(5)), [20], [8]),
        (collection(number(1), None, number(3)), [20, None, 60], [None, None, None]),
    ]
    row: list[Raw] = [number(1)]
    for value, written, lives in columns:
        row.append(value)
        if times is Times.ELEMENTS:
            row.append(number(len(written)) + collection(*[None if t is None else long(t) for t in written]))
            row.append(number(len(lives)) + collection(*[None if t is None else number(t) for t in lives]))
    return [*row, number(7), long(45), None, TOKEN]


def list_ids(change: Change) -> list[UUID]:
    delta = change.cells["l"]
    assert isinstance(delta, Delta)
    return [element.path for element in delta.elements]


def test_elements_have_their_own_times_where_the_server_tells_them() -> None:
    (change,) = copied(NESTED, nested_row(Times.ELEMENTS))
    first, second = list_ids(change)
    assert change.time == 60
    assert change.marker == Marker(20)
    assert change.cells == {
        "l": Delta(Deletion(40), (Element(first, "x", 41), Element(second, "y", 41, Expiry(9, NOW_S + 9)))),
        "m": Delta(None, (Element(1, "a", 20), Element(2, "b", 50))),
        "s": Delta(None, (Element(5, None, 20, Expiry(8, NOW_S + 8)),)),
        "u": Delta(None, (Element(0, 1, 20), Element(2, 3))),
        "v": Set(7, 45),
    }


def test_elements_without_times_take_the_rows_oldest_and_lists_what_was_before_the_read() -> None:
    (change,) = copied(NESTED, nested_row(Times.CELLS), times=Times.CELLS)
    first, second = list_ids(change)
    before = NOW_US - LIST_CLOCK_MARGIN_US
    assert change.time == 45
    assert change.cells == {
        "l": Delta(Deletion(before), (Element(first, "x", before + 1), Element(second, "y", before + 1))),
        "m": Delta(None, (Element(1, "a"), Element(2, "b"))),
        "s": Delta(None, (Element(5),)),
        "u": Delta(None, (Element(0, 1), Element(2, 3))),
        "v": Set(7),
    }


def test_a_row_that_tells_no_time_at_all_gives_way_to_every_change_of_the_stream() -> None:
    row = [number(1), None, number(1) + collection(number(1), b"a"), None, None, None, None, None, TOKEN]
    (change,) = copied(NESTED, row, times=Times.CELLS)
    assert change.time is None
    assert change.when == NOW_US
    assert change.marker == Marker(0)
    assert change.cells == {"m": Delta(None, (Element(1, "a", 0),))}


def test_ids_of_list_items_stand_between_later_prepends_and_appends() -> None:
    (change,) = copied(NESTED, nested_row(Times.ELEMENTS))
    ids = [order_key(types.TIMEUUID, one) for one in list_ids(change)]
    assert ids == sorted(ids)
    assert all(one.version == 1 for one in list_ids(change))
    # Midnight of 2010-01-01, at which Cassandra mirrors the ids of prepended items.
    assert [(one.time - 0x01B21DD213814000) // 10**7 for one in list_ids(change)] == [1262304000, 1262304000]


COUNTERS = TableSchema(TableId("ks", "t"), (KEY, Column("n", types.SHARDED_COUNTER)))


def test_a_counter_is_its_total_until_the_stream_tells_its_shards() -> None:
    (change,) = copied(COUNTERS, [number(1), long(-12), long(77), TOKEN])
    assert change == Change(Op.SNAPSHOT, {"k": 1}, {"n": Set(-12)}, time=77, capture_time=NOW_US)
    shard = Change(Op.UPDATE, {"k": 1}, {"n": Delta(None, (Element(UUID(int=9), (3, 40), 99),))}, time=99)
    assert visible(fold(COUNTERS, [change]), NOW_S) == [{"k": 1, "n": -12}]
    assert visible(fold(COUNTERS, [change, shard]), NOW_S) == [{"k": 1, "n": 40}]


def cql_types() -> list[tuple[Type, tuple[Any, ...]]]:
    """The types that CQL has, with their values."""
    scalars = {
        *(Kind.BOOLEAN, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.VARINT, Kind.FLOAT32, Kind.FLOAT64),
        *(Kind.DECIMAL, Kind.TEXT, Kind.ASCII, Kind.BYTES, Kind.UUID, Kind.TIMEUUID, Kind.INET, Kind.DATE),
    }
    units = {Kind.TIME: "ns", Kind.TIMESTAMP: "ms", Kind.DURATION: "ns"}
    composite = {Kind.LIST, Kind.SET, Kind.MAP, Kind.TUPLE, Kind.USER, Kind.VECTOR}

    def known(type_: Type) -> bool:
        if type_.kind in units:
            return type_.unit == units[type_.kind]
        inner = type_.kind in composite and type_.elements != () and all(map(known, type_.elements))
        return type_.kind in scalars or inner

    return [(type_, values) for type_, values in EVERY_TYPE if known(type_) and not type_.multi_cell]


@pytest.mark.parametrize(("type_", "values"), cql_types(), ids=lambda part: part.kind if isinstance(part, Type) else "")
def test_values_of_every_type_come_through(type_: Type, values: tuple[Any, ...]) -> None:
    schema = TableSchema(TableId("ks", "t"), (KEY, Column("v", type_)))
    # CQL has no duration whose parts differ in sign.
    for value in (one for one in values if type_.kind is not Kind.DURATION or min(one) >= 0 or max(one) <= 0):
        data = serialized(type_, value)
        (change,) = copied(schema, [number(1), data, long(5), None, TOKEN])
        cell = change.cells["v"]
        assert isinstance(cell, Set)
        assert serialized(type_, cell.value) == data


def test_a_page_is_handed_on_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "BATCH_BYTES", 1000)
    rows = [[number(k), number(k), long(5), None, b"x" * 90, long(5), None, long(k)] for k in range(100)]
    split = TableEncoder(table_of(VALUES), plan(VALUES), assume_inserted=True).split()
    batches = list(split.batches(page(rows, NOW_US), NOW_US))
    assert len(batches) > 5
    assert [change.key["k"] for batch in batches for change in avro.decode(batch)] == list(range(100))
    assert all(len(batch.rows) < 1200 for batch in batches)
    assert split.last_token() == 99
    assert batches[0].when_max == 5


def test_a_page_without_rows_gives_nothing() -> None:
    assert changes_of(VALUES, [page([], NOW_US), Page(0, b"", None, NOW_US)]) == []


def test_a_value_that_does_not_fit_names_its_column_and_not_itself() -> None:
    row = [number(1), b"secret", long(100), None, b"x", long(100), None, TOKEN]
    with pytest.raises(InvalidValue, match=r"table ks\.t, column v") as caught:
        copied(VALUES, row)
    assert "secret" not in str(caught.value)
    row = [number(1), number(2), long(100), None, b"x", b"short", None, TOKEN]
    with pytest.raises(InvalidValue, match="column w"):
        copied(VALUES, row)


@pytest.mark.parametrize("times", Times)
def test_damaged_pages_never_do_worse_than_be_refused(times: Times) -> None:
    random = Random(3)
    whole = page([nested_row(times)] * 3, NOW_US)
    refused = 0
    for _ in range(1000):
        body = bytearray(whole.body)
        for _ in range(random.randint(1, 3)):
            body[random.randrange(len(body))] = random.choice([0, 1, 4, 8, 127, 128, 255, random.randrange(256)])
        if random.random() < 0.3:
            del body[random.randrange(len(body)) :]
        try:
            changes_of(NESTED, [whole._replace(body=bytes(body))], times)
        except InvalidValue:
            refused += 1
    assert refused > 200
