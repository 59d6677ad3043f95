"""Rows that are written as they are read, and what makes a row take the other way: the changes are the same."""

from __future__ import annotations

import struct

import pytest

from penstock.model import types as t
from penstock.model.change import Change, Delta, Element, Op, Removed, Set
from penstock.model.schema import Column, Role
from tests.mutation_bytes import (
    ALL,
    END,
    NO_VALUE,
    ROW_TIME,
    T0,
    TIMED,
    changes,
    counted,
    decoded,
    decoder,
    mutation,
    names,
    refusal,
    section,
    table,
    update,
    uv,
)

K = Column("k", t.INT32, Role.PARTITION)
C = Column("c", t.INT32, Role.CLUSTERING)
PAIR = table(K, C, Column("v", t.TEXT), Column("w", t.INT32))
LABELS = table(K, Column("labels", t.map_of(t.TEXT, t.TEXT, multi_cell=True)))
NUMBER = table(K, Column("v", t.INT64))
KEY = struct.pack(">i", 7)
CLUSTERING = uv(0) + struct.pack(">i", 3)


def text(time: int, value: bytes = b"a") -> bytes:
    return b"\0" + uv(time) + counted(value)


def number(time: int, value: int = 1) -> bytes:
    return b"\0" + uv(time) + struct.pack(">i", value)


def pair(*cells: bytes, columns: bytes = names("v", "w")) -> bytes:
    row = bytes([ALL]) + CLUSTERING + b"".join(cells)
    return mutation(update(PAIR, KEY, row + END, columns=columns))


def label(key: bytes, time: int, value: bytes | None = b"x") -> bytes:
    if value is None:
        return bytes([0x01 | NO_VALUE]) + uv(time) + uv(5) + counted(key)
    return b"\0" + uv(time) + counted(key) + counted(value)


def labels(*cells: bytes) -> Change:
    row = bytes([ALL]) + uv(len(cells)) + b"".join(cells)
    (change,) = decoded([LABELS], mutation(update(LABELS, KEY, row + END, columns=names("labels"))))
    return change


def test_a_later_cell_may_have_the_greatest_time() -> None:
    (change,) = decoded([PAIR], pair(text(4), number(9)))
    assert (change.op, change.time) == (Op.UPDATE, T0 + 9)
    assert change.cells == {"v": Set("a", T0 + 4), "w": Set(1)}


def test_columns_in_another_order_than_the_tables_make_the_same_change() -> None:
    (ordered,) = decoded([PAIR], pair(text(9), number(4)))
    (other,) = decoded([PAIR], pair(number(4), text(9), columns=names("w", "v")))
    assert (other.time, other.key, other.cells) == (ordered.time, ordered.key, ordered.cells)


def test_rows_of_both_ways_are_counted_in_one_order() -> None:
    rows = [bytes([ALL]) + uv(0) + struct.pack(">i", n) + text(n % 2) + number(0) for n in range(6)]
    rows += [bytes([ALL]) + uv(0) + struct.pack(">i", n) + text(0) + number(n % 2) for n in range(6, 12)]
    found = decoded([PAIR], mutation(update(PAIR, KEY, b"".join(rows) + END, columns=names("v", "w"))))
    assert [change.origin.ordinal for change in found] == list(range(12))
    assert [change.key["c"] for change in found] == list(range(12))
    assert [change.time for change in found] == [T0 + n % 2 for n in range(12)]


def test_a_row_that_is_wrong_at_its_end_leaves_nothing() -> None:
    whole = pair(text(4), number(9))
    assert refusal([PAIR], whole[:-3]) == "it ends inside a value"
    assert refusal([PAIR], pair(text(4, b"\xff"), number(4))) == "a value does not fit its type"


def test_changes_before_one_that_is_wrong_stay() -> None:
    made = decoder(PAIR)
    made.decode(section(pair(text(4), number(4)), pair(text(4), b"\0" + uv(4) + b"\0"), pair(text(6), number(6))))
    assert [change.time for change in changes(made)] == [T0 + 4, T0 + 6]
    assert made.counts.damaged == 1


def test_living_elements_are_a_delta() -> None:
    change = labels(label(b"a", 4), label(b"b", 4, b""))
    assert change.time == T0 + 4
    assert change.cells == {"labels": Delta(elements=(Element("a", "x"), Element("b", "")))}


def test_elements_may_be_gone_or_have_later_times() -> None:
    change = labels(label(b"a", 4), label(b"b", 9, None), label(b"c", 6))
    assert change.time == T0 + 9
    (delta,) = change.cells.values()
    assert isinstance(delta, Delta)
    assert delta.elements == (Element("a", "x", T0 + 4), Element("c", "x", T0 + 6))
    assert [type(one) for one in delta.removed] == [Removed]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 300])
def test_a_delta_may_have_many_elements(count: int) -> None:
    change = labels(*[label(b"%d" % n, 4) for n in range(count)])
    (delta,) = change.cells.values()
    assert isinstance(delta, Delta)
    assert [one.path for one in delta.elements] == [str(n) for n in range(count)]


def test_numbers_of_every_length_are_written() -> None:
    """Numbers are spread over bytes without a loop, whose edges are the powers of two."""
    edges = [sign * (1 << bit) + more for bit in range(63) for sign in (1, -1) for more in (-1, 0, 1)]
    edges += [(1 << 63) - 1, -(1 << 63), 0]
    payloads = []
    for value in edges:
        row = bytes([TIMED | ALL]) + uv(5) + bytes([ROW_TIME]) + struct.pack(">q", value)
        payloads.append(mutation(update(NUMBER, KEY, row + END, columns=names("v"))))
    assert [change.cells["v"] for change in decoded([NUMBER], *payloads)] == [Set(value) for value in edges]


def test_times_of_every_length_are_read() -> None:
    """Variable-length numbers of one to nine bytes are read with one load."""
    times = [1 << bit for bit in range(62)]
    found = decoded([PAIR], *[pair(text(time), number(time)) for time in times])
    assert [change.time for change in found] == [T0 + time for time in times]


@pytest.mark.parametrize("size", [*range(40), 63, 64, 65, 127, 128, 200])
def test_text_of_every_length_is_copied_and_checked(size: int) -> None:
    plain = b"abcdefghijklmnopqrstuvwxyz" * 8
    (change,) = decoded([PAIR], pair(text(4, plain[:size]), number(4)))
    assert change.cells["v"] == Set(plain[:size].decode())
    for at in range(size):
        wrong = plain[:at] + b"\xff" + plain[at + 1 : size]
        assert refusal([PAIR], pair(text(4, wrong), number(4))) == "a value does not fit its type"
