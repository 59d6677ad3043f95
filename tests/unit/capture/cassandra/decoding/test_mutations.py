"""The layout of mutations, byte by byte: what the kernel reads, and what it refuses."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

from penstock.capture.cassandra.segments.segment import FORMATS
from penstock.model import types as t
from penstock.model.change import Bound, Deleted, Deletion, Delta, Element, Expiry, Marker, Op, Range, Removed, Set
from penstock.model.schema import Column, Role
from tests.mutation_bytes import (
    ALL,
    COMPLEX,
    DELETED,
    EMPTY,
    END,
    ESTIMATE,
    EXPIRES,
    NO_VALUE,
    ROW_DELETED,
    ROW_TIME,
    S0,
    STATIC,
    T0,
    TIMED,
    counted,
    decoded,
    mutation,
    names,
    refusal,
    table,
    update,
    uv,
)

K = Column("k", t.INT32, Role.PARTITION)
C = Column("c", t.INT32, Role.CLUSTERING)
ROWS = table(K, C, Column("s", t.TEXT, Role.STATIC), Column("v", t.TEXT), Column("w", t.INT32))
KEY = struct.pack(">i", 7)


def clustering(value: int) -> bytes:
    return uv(0) + struct.pack(">i", value)


def difference(second: int) -> bytes:
    """A second as the log has it: 32 bits from the epoch on, with the sign before them."""
    low = (second - S0) % (1 << 32)
    return uv((low - (1 << 32)) % (1 << 64) if low >> 31 else low)


def text(value: str, flags: int = ROW_TIME) -> bytes:
    return bytes([flags]) + counted(value.encode())


def one(body: bytes, columns: bytes = names("v", "w"), **more: Any) -> bytes:
    return mutation(update(ROWS, KEY, body, columns=columns, **more), format_=more.get("format_", 7))


# Rows.


@pytest.mark.parametrize("format_", FORMATS)
def test_an_insert_has_a_marker_and_its_cells_inherit_its_time(format_: int) -> None:
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5) + text("a") + bytes([ROW_TIME]) + struct.pack(">i", -9)
    (change,) = decoded([ROWS], one(row + END, format_=format_), format_=format_)
    assert change.op is Op.INSERT
    assert change.key == {"k": 7, "c": 3}
    assert change.time == T0 + 5
    assert change.marker == Marker()
    assert change.cells == {"v": Set("a"), "w": Set(-9)}
    assert (change.origin.file, change.origin.ordinal) == (f"CommitLog-{format_}-5.log", 0)
    assert change.origin.position == 100 + 12 + len(one(row + END, format_=format_))


def test_an_update_has_the_greatest_time_of_its_cells() -> None:
    row = bytes([ALL]) + clustering(3) + b"\0" + uv(9) + counted(b"a") + b"\0" + uv(4) + struct.pack(">i", 1) + END
    (change,) = decoded([ROWS], one(row))
    assert change.op is Op.UPDATE
    assert change.time == T0 + 9
    assert change.cells == {"v": Set("a"), "w": Set(1, T0 + 4)}


def test_a_row_with_deletion_and_newer_cells_is_one_change() -> None:
    row = bytes([ROW_DELETED]) + clustering(3) + uv(5) + uv(6) + uv(0b10) + b"\0" + uv(9) + counted(b"a") + END
    (change,) = decoded([ROWS], one(row))
    assert change.op is Op.UPDATE
    assert change.deletion == Deletion(T0 + 5, S0 + 6)
    assert change.cells == {"v": Set("a")}


def test_a_row_deletion_alone_is_a_delete() -> None:
    row = bytes([ROW_DELETED]) + clustering(3) + uv(5) + uv(6) + uv(0b11) + END
    (change,) = decoded([ROWS], one(row))
    assert (change.op, change.time, change.deletion, change.cells) == (Op.DELETE, T0 + 5, Deletion(T0 + 5, S0 + 6), {})


def test_a_row_without_anything_is_passed_over() -> None:
    assert decoded([ROWS], one(b"\0" + clustering(3) + uv(0b11) + END)) == []


def test_a_rows_time_to_live_stands_before_its_second_and_a_cells_behind() -> None:
    row = bytes([TIMED | EXPIRES | ALL]) + clustering(3) + uv(5) + uv(60) + uv(1000)
    row += text("a", ROW_TIME | 0x12) + bytes([0x02]) + uv(8) + uv(2000) + uv(90) + struct.pack(">i", 1) + END
    (change,) = decoded([ROWS], one(row))
    assert change.marker == Marker(None, Expiry(60, S0 + 1000))
    assert change.cells["v"] == Set("a", None, Expiry(60, S0 + 1000))
    assert change.cells["w"] == Set(1, T0 + 8, Expiry(90, S0 + 2000))


def test_a_time_to_live_without_marker_is_not_read() -> None:
    row = bytes([EXPIRES | ALL]) + clustering(3) + b"\0" + uv(9) + counted(b"a") + b"\0" + uv(9) + KEY + END
    (change,) = decoded([ROWS], one(row))
    assert change.marker is None


def test_a_tombstone_keeps_its_second() -> None:
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5) + bytes([0x05]) + uv(4) + uv(77) + bytes([ROW_TIME | 0x05])
    (change,) = decoded([ROWS], one(row + uv(78) + END))
    assert change.cells == {"v": Deleted(T0 + 4, S0 + 77), "w": Deleted(None, S0 + 78)}


def test_an_empty_value_is_empty_text_and_of_other_types_null() -> None:
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5) + bytes([ROW_TIME | NO_VALUE]) * 2 + END
    (change,) = decoded([ROWS], one(row))
    assert change.cells == {"v": Set(""), "w": Set(None)}


def test_a_static_row_comes_before_the_rows_and_has_no_clustering_key() -> None:
    static = bytes([ALL | 0x80, 0x01]) + b"\0" + uv(1) + counted(b"s")
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5) + END
    data = one(row, columns=b"\0", flags=ESTIMATE | STATIC, static_columns=names("s"), before=static)
    first, second = decoded([ROWS], data)
    assert (first.op, first.key, first.cells) == (Op.UPDATE, {"k": 7}, {"s": Set("s")})
    assert (second.op, second.key) == (Op.INSERT, {"k": 7, "c": 3})
    assert [first.origin.ordinal, second.origin.ordinal] == [0, 1]


def test_a_partition_deletion_comes_first() -> None:
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5) + END
    first, second = decoded([ROWS], one(row, b"\0", flags=ESTIMATE | DELETED, before=uv(3) + uv(4)))
    assert (first.op, first.key, first.deletion) == (Op.DELETE_PARTITION, {"k": 7}, Deletion(T0 + 3, S0 + 4))
    assert second.op is Op.INSERT


def test_an_empty_update_changes_nothing() -> None:
    data = mutation(ROWS.id.bytes + counted(KEY) + bytes([EMPTY]))
    assert decoded([ROWS], data) == []


def test_several_tables_in_one_mutation_share_the_ordinals() -> None:
    other = table(K, Column("x", t.BOOLEAN), number=2, name="other")
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5) + END
    flag = bytes([TIMED | ALL]) + uv(6) + bytes([ROW_TIME, 1]) + END
    data = mutation(update(ROWS, KEY, row), update(other, KEY, flag, columns=names("x")))
    found = decoded([ROWS, other], data)
    assert [(change.origin.ordinal, dict(change.cells)) for change in found] == [(0, {}), (1, {"x": Set(True)})]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("second", [-1 % (1 << 32), (1 << 31) - 1, 1 << 31, (1 << 32) - 2, 5])
def test_seconds_have_a_sign_up_to_format_7_and_none_later(format_: int, second: int) -> None:
    row = bytes([ROW_DELETED]) + clustering(3) + uv(5) + difference(second) + uv(0b11) + END
    (change,) = decoded([ROWS], one(row, format_=format_), format_=format_)
    assert change.deletion is not None
    greatest = (1 << 31) - 2 if format_ < 8 else (1 << 32) - 3
    assert change.deletion.local_s == (second if second <= greatest else None)


@pytest.mark.parametrize(("format_", "fits"), [(7, False), (8, True)])
def test_a_cell_that_expires_after_2038_is_an_overflow_up_to_format_7(format_: int, fits: bool) -> None:
    second = (1 << 31) + 5
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5) + text("a") + bytes([ROW_TIME | 0x02])
    data = one(row + difference(second) + uv(90) + KEY + END, format_=format_)
    if fits:
        (change,) = decoded([ROWS], data, format_=format_)
        assert change.cells["w"] == Set(7, None, Expiry(90, second))
    else:
        assert refusal([ROWS], data, format_) == "a time or time to live is impossible"


# Columns.


@pytest.mark.parametrize("count", [3, 63, 64, 80, 100])
@pytest.mark.parametrize("shape", ["few", "most", "none", "all", "first", "last"])
def test_a_row_has_some_of_the_columns(count: int, shape: str) -> None:
    columns = [f"v{number:03}" for number in range(count)]
    wide = table(K, *[Column(name, t.INT32) for name in columns])
    chosen = {
        "few": [number for number in range(count) if number % 7 == 1],
        "most": [number for number in range(count) if number % 7 != 1],
        "none": [],
        "all": list(range(count)),
        "first": [0],
        "last": [count - 1],
    }[shape]
    missing = [number for number in range(count) if number not in chosen]
    if not missing:
        subset = uv(0)
    elif count < 64:
        subset = uv(sum(1 << number for number in missing))
    else:
        subset = uv(len(missing))
        for number in chosen if len(chosen) < count // 2 else missing:
            subset += uv(number)
    cells = b"".join(bytes([ROW_TIME]) + struct.pack(">i", number) for number in chosen)
    row = bytes([TIMED]) + uv(5) + subset + cells + END
    (change,) = decoded([wide], mutation(update(wide, KEY, row, columns=names(*columns))))
    assert change.cells == {columns[number]: Set(number) for number in chosen}


@pytest.mark.parametrize("subset", [uv(1 << 3), uv(81), uv(40) + uv(5) * 40, uv(79) + uv(80), uv(1) + uv(80)])
def test_a_choice_of_columns_that_do_not_exist_is_refused(subset: bytes) -> None:
    count = 3 if subset == uv(1 << 3) else 80
    columns = [f"v{number:03}" for number in range(count)]
    wide = table(K, *[Column(name, t.INT32) for name in columns])
    cells = (bytes([ROW_TIME]) + KEY) * count
    row = bytes([TIMED]) + uv(5) + subset + cells + END
    assert refusal([wide], mutation(update(wide, KEY, row, columns=names(*columns)))) in (
        "its columns make no sense",
        "it ends inside a value",
    )


def test_a_column_that_is_named_twice_is_refused() -> None:
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5) + text("a") * 2 + END
    assert refusal([ROWS], one(row, columns=names("v", "v"))) == "its columns make no sense"


def test_column_lists_are_told_apart_by_their_bytes() -> None:
    both = bytes([TIMED | ALL]) + clustering(1) + uv(5) + text("a") + bytes([ROW_TIME]) + KEY + END
    only = bytes([TIMED | ALL]) + clustering(2) + uv(5) + bytes([ROW_TIME]) + KEY + END
    found = decoded([ROWS], one(both), one(only, names("w")), one(both), one(only, names("w")))
    assert [sorted(change.cells) for change in found] == [["v", "w"], ["w"], ["v", "w"], ["w"]]


def test_more_lists_than_are_remembered_are_read_as_well() -> None:
    columns = [f"v{number:03}" for number in range(40)]
    wide = table(K, *[Column(name, t.INT32) for name in columns])
    payloads = []
    for name in columns * 2:
        row = bytes([TIMED | ALL]) + uv(5) + bytes([ROW_TIME]) + KEY + END
        payloads.append(mutation(update(wide, KEY, row, columns=names(name))))
    assert [list(change.cells) for change in decoded([wide], *payloads)] == [[name] for name in columns * 2]


# Clustering keys.


def test_clustering_values_come_in_batches_of_32() -> None:
    columns = [Column(f"c{number:02}", t.INT8, Role.CLUSTERING) for number in range(40)]
    deep = table(K, *columns)
    values = b""
    for start in (0, 32):
        values += uv(0)
        values += b"".join(counted(bytes([number])) for number in range(start, min(start + 32, 40)))
    (change,) = decoded([deep], mutation(update(deep, KEY, bytes([TIMED | ALL]) + values + uv(5) + END)))
    assert change.key == {"k": 7, **{f"c{number:02}": number for number in range(40)}}


def test_a_clustering_value_may_be_null_or_empty() -> None:
    deep = table(K, *[Column(name, t.TEXT, Role.CLUSTERING) for name in ("a", "b", "c")])
    values = uv(0b00_01_10) + counted(b"x")
    (change,) = decoded([deep], mutation(update(deep, KEY, bytes([TIMED | ALL]) + values + uv(5) + END)))
    assert change.key == {"k": 7, "b": "", "c": "x"}


def test_a_key_of_several_columns_has_lengths_and_ends() -> None:
    pair = table(Column("a", t.TEXT, Role.PARTITION), Column("b", t.INT32, Role.PARTITION))
    row = bytes([TIMED | ALL]) + uv(5) + END
    key = b"\0\2xy\0" + b"\0\4" + KEY + b"\0"
    (change,) = decoded([pair], mutation(update(pair, key, row)))
    assert change.key == {"a": "xy", "b": 7}
    for bad in (key[:-1], key[:-1] + b"\1", key + b"\0", b"\0\2xy\0", b"\xff\xff", b""):
        assert refusal([pair], mutation(update(pair, bad, row))) == "a value does not fit its type"


# Range deletions.

KINDS = {"excl_end": 0, "incl_start": 1, "excl_incl": 2, "incl_excl": 5, "incl_end": 6, "excl_start": 7}


def marker(kind: int, values: list[int], *deletions: int) -> bytes:
    data = b"\x02" + bytes([kind]) + struct.pack(">H", len(values))
    if values:
        data += uv(0) + b"".join(struct.pack(">i", value) for value in values)
    return data + b"".join(uv(time) + uv(time) for time in deletions)


def ranges(body: bytes) -> list[tuple[Range | None, Deletion | None]]:
    return [(change.range, change.deletion) for change in decoded([ROWS], one(body + END))]


@pytest.mark.parametrize(("start", "begins"), [(KINDS["incl_start"], True), (KINDS["excl_start"], False)])
@pytest.mark.parametrize(("end", "ends"), [(KINDS["incl_end"], True), (KINDS["excl_end"], False)])
def test_markers_pair_into_a_range(start: int, begins: bool, end: int, ends: bool) -> None:
    found = ranges(marker(start, [1], 5) + marker(end, [2], 5))
    assert found == [(Range(Bound((1,), begins), Bound((2,), ends)), Deletion(T0 + 5, S0 + 5))]


@pytest.mark.parametrize(("kind", "ends", "begins"), [(2, False, True), (5, True, False)])
def test_a_boundary_ends_one_range_and_begins_the_next(kind: int, ends: bool, begins: bool) -> None:
    found = ranges(marker(1, [1], 5) + marker(kind, [2], 5, 6) + marker(6, [3], 6))
    assert found == [
        (Range(Bound((1,), True), Bound((2,), ends)), Deletion(T0 + 5, S0 + 5)),
        (Range(Bound((2,), begins), Bound((3,), True)), Deletion(T0 + 6, S0 + 6)),
    ]


def test_a_bound_without_values_is_open() -> None:
    assert ranges(marker(1, [], 5) + marker(6, [2], 5))[0][0] == Range(None, Bound((2,), True))
    assert ranges(marker(7, [2], 5) + marker(6, [], 5))[0][0] == Range(Bound((2,), False), None)


def test_ranges_come_before_the_static_row_and_the_rows() -> None:
    static = bytes([ALL | 0x80, 0x01]) + b"\0" + uv(1) + counted(b"s")
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5)
    body = row + marker(1, [4], 5) + row + marker(6, [8], 5) + row + END
    data = one(body, b"\0", flags=ESTIMATE | STATIC | DELETED, static_columns=names("s"), before=uv(1) + uv(1) + static)
    found = decoded([ROWS], data)
    order = [Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.UPDATE, Op.INSERT, Op.INSERT, Op.INSERT]
    assert [change.op for change in found] == order
    assert [change.origin.ordinal for change in found] == list(range(6))


@pytest.mark.parametrize(
    "body",
    [
        marker(6, [1], 5),
        marker(1, [1], 5),
        marker(1, [1], 5) + marker(1, [2], 5) + marker(6, [3], 5),
        marker(1, [1], 5) + marker(6, [2], 6),
        marker(2, [1], 5, 6) + marker(6, [2], 6),
        marker(1, [1], 5) + marker(2, [2], 5, 6),
        marker(3, [1], 5),
        marker(4, [1], 5),
        marker(8, [1], 5),
        marker(255, [1], 5),
        marker(1, [1, 2], 5) + marker(6, [1], 5),
    ],
)
def test_markers_that_do_not_pair_are_damage_of_the_mutation(body: bytes) -> None:
    assert refusal([ROWS], one(body + END)) == "its range deletions do not pair"


# Non-frozen columns and counters.

ID = uuid.UUID("8f0d1860-0d3c-11f0-8000-000000000001")
PAIR = t.user("pair", {"a": t.INT32, "b": t.TEXT}, multi_cell=True)
COMPLEX_TABLE = table(
    K,
    Column("list", t.list_of(t.INT32, multi_cell=True)),
    Column("map", t.map_of(t.TEXT, t.INT32, multi_cell=True)),
    Column("pair", PAIR),
    Column("set", t.set_of(t.TEXT, multi_cell=True)),
)


def element(path: bytes, value: bytes | None, flags: int = ROW_TIME, times: bytes = b"") -> bytes:
    data = bytes([flags | (NO_VALUE if value is None else 0)]) + times + counted(path)
    return data if value is None else data + counted(value)


def complex_row(column: str, cells: bytes, flags: int = TIMED | ALL) -> bytes:
    return mutation(update(COMPLEX_TABLE, KEY, bytes([flags]) + uv(5) + cells + END, columns=names(column)))


def test_elements_of_a_list_have_a_length_though_ints_do_not() -> None:
    (change,) = decoded([COMPLEX_TABLE], complex_row("list", uv(1) + element(ID.bytes, KEY)))
    assert change.cells == {"list": Delta(None, (Element(ID, 7),))}


def test_an_overwrite_is_a_deletion_and_the_new_elements() -> None:
    cells = uv(4) + uv(9) + uv(1) + element(b"x", None)
    (change,) = decoded([COMPLEX_TABLE], complex_row("set", cells, TIMED | ALL | COMPLEX))
    assert change.cells == {"set": Delta(Deletion(T0 + 4, S0 + 9), (Element("x"),))}


@pytest.mark.parametrize("second", [(1 << 31) - 1, (1 << 32) - 1])
def test_no_deletion_is_told_by_its_time(second: int) -> None:
    none = uv((-(1 << 63) - T0) % (1 << 64)) + difference(second)
    (change,) = decoded([COMPLEX_TABLE], complex_row("set", none + uv(1) + element(b"x", None), TIMED | ALL | COMPLEX))
    assert change.cells == {"set": Delta(None, (Element("x"),))}


def test_a_column_without_cells_and_deletion_was_not_touched() -> None:
    (change,) = decoded([COMPLEX_TABLE], complex_row("set", uv(0)))
    assert change.cells == {}


def test_a_deletion_of_a_whole_column_gives_the_change_its_time() -> None:
    data = mutation(
        update(COMPLEX_TABLE, KEY, bytes([ALL | COMPLEX]) + uv(4) + uv(9) + uv(0) + END, columns=names("map"))
    )
    (change,) = decoded([COMPLEX_TABLE], data)
    assert (change.op, change.time) == (Op.UPDATE, T0 + 4)
    assert change.cells == {"map": Delta(Deletion(T0 + 4, S0 + 9))}


def test_elements_that_live_and_that_do_not_are_kept_apart() -> None:
    cells = uv(3) + element(b"a", KEY) + element(b"b", None, 0x01, uv(3) + uv(8)) + element(b"c", KEY, 0, uv(6))
    (change,) = decoded([COMPLEX_TABLE], complex_row("map", cells))
    elements = Element("a", 7), Element("c", 7, T0 + 6)
    assert change.cells == {"map": Delta(None, elements, (Removed("b", T0 + 3, S0 + 8),))}


def test_the_path_of_a_user_types_field_is_its_number() -> None:
    cells = uv(2) + element(b"\0\0", KEY) + element(b"\0\1", b"x")
    (change,) = decoded([COMPLEX_TABLE], complex_row("pair", cells))
    assert change.cells == {"pair": Delta(None, (Element(0, 7), Element(1, "x")))}
    assert refusal([COMPLEX_TABLE], complex_row("pair", uv(1) + element(b"\0", KEY))) == "a value does not fit its type"


def test_an_element_of_a_set_has_no_value() -> None:
    assert refusal([COMPLEX_TABLE], complex_row("set", uv(1) + element(b"x", b"y"))) == "a value does not fit its type"


def test_a_counter_is_its_shards() -> None:
    counters = table(K, Column("n", t.SHARDED_COUNTER))
    other = uuid.UUID(int=77)
    context = (
        struct.pack(">hh", 1, -32768) + ID.bytes + struct.pack(">qq", 3, -5) + other.bytes + struct.pack(">qq", 1, 9)
    )

    def write(value: bytes) -> bytes:
        row = bytes([ALL]) + b"\0" + uv(5) + counted(value) + END
        return mutation(update(counters, KEY, row, columns=names("n")))

    (change,) = decoded([counters], write(context))
    assert (change.op, change.time) == (Op.UPDATE, T0 + 5)
    assert change.cells == {"n": Delta(None, (Element(ID, (3, -5)), Element(other, (1, 9))))}
    # A negative number of marks says that the local shards are to be cleared.
    (change,) = decoded([counters], write(struct.pack(">hh", -1, 0) + context[4:]))
    assert len(change.cells["n"].elements) == 2  # type: ignore[union-attr]
    for bad in (b"", context[:1], context[:-1], context + b"\0", struct.pack(">h", 99), struct.pack(">h", -32768)):
        assert refusal([counters], write(bad)) == "a value does not fit its type"
    row = bytes([ALL]) + bytes([0x05]) + uv(5) + uv(6) + END
    (change,) = decoded([counters], mutation(update(counters, KEY, row, columns=names("n"))))
    assert change.cells == {"n": Deleted(None, S0 + 6)}


# What is refused.

GOOD = bytes([TIMED | ALL]) + clustering(3) + uv(5) + text("a") + bytes([ROW_TIME]) + KEY + END


@pytest.mark.parametrize("size", range(10, len(one(GOOD))))
def test_a_mutation_that_ends_too_early_is_damage(size: int) -> None:
    assert refusal([ROWS], one(GOOD)[:size]) in ("it ends inside a value", "a value does not fit its type")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (one(GOOD) + b"\0", "bytes are left at its end"),
        (uv(0) + one(GOOD)[1:], "it ends inside a value"),
        (uv(1 << 63) + one(GOOD)[1:], "it ends inside a value"),
        (one(GOOD, flags=ESTIMATE | 0x02), "its flags make no sense"),
        (one(GOOD, flags=0), "its flags make no sense"),
        (one(bytes([0x80 | ALL, 1]) + GOOD), "its flags make no sense"),
        (
            one(bytes([TIMED | ALL]) + clustering(3) + uv((-(1 << 63) - T0) % (1 << 64)) + GOOD[7:]),
            "a time or time to live is impossible",
        ),
        (one(bytes([ALL]) + clustering(3) + text("a") + END), "a time or time to live is impossible"),
        (one(GOOD[:7] + bytes([ROW_TIME | 1]) + uv(1) + counted(b"x") + GOOD[10:]), "a value does not fit its type"),
        (one(GOOD[:7] + bytes([ROW_TIME]) + counted(b"\xff") + GOOD[10:]), "a value does not fit its type"),
    ],
)
def test_nonsense_is_damage(data: bytes, message: str) -> None:
    assert refusal([ROWS], data) == message


@pytest.mark.parametrize("number", [1 << 31, 1 << 32, 15_186_788_352, (1 << 64) - (1 << 31) - 1])
def test_a_second_or_time_to_live_of_more_than_32_bits_is_refused(number: int) -> None:
    row = bytes([ROW_DELETED]) + clustering(3) + uv(5) + uv(number) + uv(0b11) + END
    assert refusal([ROWS], one(row)) == "a time or time to live is impossible"
    row = bytes([TIMED | EXPIRES | ALL]) + clustering(3) + uv(5) + uv(number) + uv(9) + END
    assert refusal([ROWS], one(row, b"\0")) == "a time or time to live is impossible"
    assert refusal([ROWS], one(GOOD, rows=number)) == "a time or time to live is impossible"


def test_a_static_row_with_a_marker_is_refused() -> None:
    static = bytes([ALL | TIMED | 0x80, 0x01]) + uv(1) + b"\x08" + counted(b"s")
    data = one(END, b"\0", flags=ESTIMATE | STATIC, static_columns=names("s"), before=static)
    assert refusal([ROWS], data) == "its flags make no sense"


def test_a_mutation_is_taken_back_from_all_its_tables() -> None:
    other = table(K, Column("x", t.BOOLEAN), number=2, name="other")
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5) + END
    data = mutation(update(ROWS, KEY, row), update(other, KEY, bytes([TIMED | ALL]) + uv(6) + bytes([ROW_TIME])))
    assert refusal([ROWS, other], data) == "it ends inside a value"


def test_a_key_that_is_repeated_without_end_is_refused() -> None:
    """Each change repeats the key, so that few bytes could take a lot of memory."""
    wide = table(Column("k", t.BYTES, Role.PARTITION), Column("c", t.INT32, Role.CLUSTERING))
    row = bytes([TIMED | ALL]) + clustering(3) + uv(5)
    data = mutation(update(wide, bytes(60_000), row * 4000 + END))
    assert refusal([wide], data) == "its changes take too much memory"
