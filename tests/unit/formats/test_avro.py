"""Changes as Avro rows."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from penstock.errors import CorruptLog, InvalidValue
from penstock.formats import avro
from penstock.model import types as t
from penstock.model.batch import ChangeBatch, TransactionMark
from penstock.model.change import Change, Delta, Element, Op, Origin, Set, Transaction
from penstock.model.schema import Column, Role, TableId, TableSchema
from tests.every_type import EVERY_TYPE, every_type_table

SCHEMA = TableSchema(
    TableId("ks", "t"),
    (Column("id", t.INT32, Role.PARTITION), Column("v", t.TEXT), Column("tags", t.set_of(t.TEXT, multi_cell=True))),
)


def test_every_type_and_every_shape_comes_back() -> None:
    schema, changes = every_type_table()
    # By their text, because a NaN is not equal to itself.
    assert repr(avro.decode(avro.encode(schema, changes))) == repr(changes)


@pytest.mark.parametrize(("type_", "values"), EVERY_TYPE)
def test_every_type_can_be_a_key(type_: t.Type, values: tuple[Any, ...]) -> None:
    schema = TableSchema(TableId("k", "t"), (Column("k", type_, Role.PARTITION),))
    changes = [Change(Op.INSERT, {"k": value}) for value in values]
    assert repr(avro.decode(avro.encode(schema, changes))) == repr(changes)


def test_a_row_ends_with_an_empty_seal() -> None:
    batch = avro.encode(SCHEMA, [Change(Op.INSERT, {"id": 1})])
    assert bytes(batch.rows)[-1:] == b"\0"


def test_the_bytes_of_a_small_row_are_known() -> None:
    """The layout may not change without a new format version."""
    change = Change(Op.UPDATE, {"id": 1}, {"v": Set("x"), "tags": Delta(None, (Element("a"),))}, time=2)
    rows = avro.encode(SCHEMA, [change]).rows
    assert bytes(rows).hex(" ") == "02 02 04 00 00 00 00 00 00 02 02 02 02 02 78 00 06 00 02 02 61 00 00 00 00 00"


def test_a_sealed_row_reads_the_same_and_is_unsealed_by_selection() -> None:
    changes = [Change(Op.INSERT, {"id": n}) for n in range(3)]
    batch = avro.encode(SCHEMA, changes)
    sealed = replace(batch, rows=bytes(batch.rows)[:-1] + b"\x02\x08\0\0\0\0", file=1, offset=99)
    assert avro.decode(sealed) == changes
    assert avro.select(sealed, [True, False, True]) == avro.encode(SCHEMA, [changes[0], changes[2]])
    assert avro.select(sealed, [False] * 3) is None
    assert avro.row_offsets(SCHEMA, sealed.rows, 3)[-1] == len(sealed.rows)


def test_changes_before_the_skip_are_left_out() -> None:
    changes = [Change(Op.INSERT, {"id": n}) for n in range(4)]
    batch = replace(avro.encode(SCHEMA, changes), skip=3)
    assert avro.decode(batch) == changes[3:]
    assert avro.select(batch, [True]) == avro.encode(SCHEMA, changes[3:])
    with pytest.raises(ValueError, match="choices"):
        avro.select(batch, [True] * 4)


def test_the_greatest_time_and_the_first_change_of_each_transaction_are_noted() -> None:
    def at(time: int | None, domain: str, sequence: int) -> Change:
        return Change(Op.INSERT, {"id": 1}, time=time, origin=Origin(transaction=Transaction(domain, sequence, "x")))

    batch = avro.encode(SCHEMA, [at(5, "0", 1), at(9, "0", 1), at(7, "1", 1), at(None, "0", 2), Change(Op.TRUNCATE)])
    assert batch.when_max == 9
    assert batch.transactions == (TransactionMark("0", 1, 0), TransactionMark("1", 1, 2), TransactionMark("0", 2, 3))


def test_rows_may_be_a_view() -> None:
    batch = avro.encode(SCHEMA, [Change(Op.INSERT, {"id": 1})])
    assert avro.decode(replace(batch, rows=memoryview(b"x" + batch.rows)[1:])) == avro.decode(batch)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (t.INT8, 128),
        (t.INT8, "1"),
        (t.INT8, True),
        (t.INT64, 1 << 63),
        (t.UINT8, -1),
        (t.UINT64, 1 << 64),
        (t.UINT64, -1),
        (t.BOOLEAN, 1),
        (t.FLOAT32, 1e300),
        (t.FLOAT64, (1 << 60) + 1),
        (t.FLOAT64, "x"),
        (t.TEXT, b"x"),
        (t.TEXT, "\ud800"),
        (t.BYTES, "x"),
        (t.UUID, "x"),
        (t.INET, "127.0.0.1"),
        (t.VARINT, 1.5),
        (t.DECIMAL, Decimal("NaN")),
        (t.DECIMAL, 1),
        (t.fixed_decimal(4, 2), Decimal("100")),
        (t.fixed_decimal(4, 2), Decimal("0.001")),
        (t.fixed_decimal(4, 2), Decimal("1E+1000000000")),
        (t.fixed_decimal(4, 2), Decimal("1E-1000000000")),
        (t.vector(t.INT8, 2), (1,)),
        (t.tuple_of(t.INT8), (1, 2)),
        (t.list_of(t.INT8), "ab"),
        (t.list_of(t.INT8), (None,)),
        (t.map_of(t.INT8, t.INT8), ((1,),)),
        (t.duration(t.Unit.NS), (1, 2)),
        (t.array(t.INT8), (1, 2)),
        (t.user("u", {"a": t.INT8}), ()),
        (t.user("u", {}), (1,)),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_column(type_: t.Type, value: Any) -> None:
    schema = TableSchema(TableId("ks", "t"), (Column("id", t.INT32, Role.PARTITION), Column("it", type_)))
    good = Change(Op.INSERT, {"id": 1})
    with pytest.raises(InvalidValue) as caught:
        avro.encode(schema, [good, Change(Op.INSERT, {"id": 1}, {"it": Set(value)})])
    assert caught.value.place["column"] == "it"
    assert caught.value.place["change"] == 1


@pytest.mark.parametrize(
    "change",
    [
        Change(Op.INSERT, {"v": "x"}),
        Change(Op.INSERT, {}, {"id": Set(1)}),
        Change(Op.INSERT, {}, {"v": Delta()}),
        Change(Op.INSERT, {}, {"v": "bare"}),  # type: ignore[dict-item]
        Change(Op.INSERT, {}, {"tags": Delta(None, (Element("a", "b"),))}),
        Change(Op.INSERT, {}, {}, before={"nope": 1}),
        Change(Op.INSERT, {}, {}, time="now"),  # type: ignore[arg-type]
        Change("insert!", {}),  # type: ignore[arg-type]
    ],
)
def test_a_change_that_does_not_fit_the_table_is_refused(change: Change) -> None:
    with pytest.raises(InvalidValue):
        avro.encode(SCHEMA, [change])


def test_values_never_show_in_messages() -> None:
    with pytest.raises(InvalidValue) as caught:
        avro.encode(SCHEMA, [Change(Op.INSERT, {"id": 1}, {"v": Set("secret\ud800")})])
    assert "secret" not in str(caught.value)
    assert "ud800" not in str(caught.value)


def test_single_floats_are_rounded_as_databases_round_them() -> None:
    schema = TableSchema(TableId("ks", "t"), (Column("f", t.FLOAT32),))
    (change,) = avro.decode(avro.encode(schema, [Change(Op.INSERT, {}, {"f": Set(0.1)})]))
    cell = change.cells["f"]
    assert isinstance(cell, Set)
    assert math.isclose(cell.value, 0.1, rel_tol=1e-7)


@pytest.mark.parametrize("rows", [b"", b"\0", b"\xff" * 40, b"\0" * 40])
def test_bytes_that_are_no_rows_are_refused(rows: bytes) -> None:
    with pytest.raises(CorruptLog):
        avro.decode(ChangeBatch(SCHEMA, 1, rows))
    with pytest.raises(CorruptLog):
        avro.scan(SCHEMA, rows, 1)
    with pytest.raises(CorruptLog):
        avro.row_offsets(SCHEMA, rows, 1)


def test_a_count_that_is_too_small_is_refused() -> None:
    batch = avro.encode(SCHEMA, [Change(Op.INSERT, {"id": 1})] * 2)
    with pytest.raises(CorruptLog, match="left after"):
        avro.decode(replace(batch, count=1))


def test_a_schema_that_was_used_still_pickles() -> None:
    batch = avro.encode(SCHEMA, [Change(Op.INSERT, {"id": 1})])
    assert pickle.loads(pickle.dumps(batch)) == batch
