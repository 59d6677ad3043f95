"""Batches as Arrow columns."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import CorruptLog, InvalidValue
from penstock.formats import arrow, avro
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Deleted, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from tests.every_type import every_type_table

SCHEMA = TableSchema(TableId("ks", "t"), (Column("id", t.INT32, Role.PARTITION), Column("v", t.TEXT)))


def _batch() -> ChangeBatch:
    changes = [
        Change(Op.INSERT, {"id": 1}, {"v": Set("x", 5)}, time=4),
        Change(Op.UPDATE, {"id": 2}, {"v": Set(None)}),
        Change(Op.DELETE, {"id": 3}, {"v": Deleted(6, 7)}, before={"v": None}),
        Change(Op.TRUNCATE),
    ]
    return avro.encode(SCHEMA, changes)


def test_every_type_goes_to_columns_and_back() -> None:
    schema, changes = every_type_table()
    batch = avro.encode(schema, changes)
    columns = arrow.to_arrow(batch)
    columns.validate(full=True)
    assert arrow.from_arrow(schema, columns) == batch


def test_states_and_values_stand_side_by_side() -> None:
    columns = arrow.to_arrow(_batch())
    assert columns.column("op").to_pylist() == ["insert", "update", "delete", "truncate"]
    cell = columns.column("cells").field("v")
    assert cell.field("state").to_pylist() == [1, 1, 2, 0]
    assert cell.field("value").to_pylist() == ["x", None, None, None]
    assert cell.field("time").to_pylist() == [5, None, 6, None]
    assert cell.field("local_s").to_pylist() == [None, None, 7, None]
    assert columns.column("key").to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": None}]
    assert columns.column("before").to_pylist() == [None, None, {"id": None, "v": {"value": None}}, None]


def test_positions_stand_in_the_batch() -> None:
    columns = arrow.to_arrow(replace(_batch(), file=3, offset=4096, skip=1))
    assert columns.select(["file", "offset", "ordinal"]).to_pylist() == [
        {"file": 3, "offset": 4096, "ordinal": n} for n in (1, 2, 3)
    ]


def test_parts_without_columns_are_left_out() -> None:
    only_key = TableSchema(TableId("k", "t"), (Column("id", t.INT8, Role.PARTITION),))
    no_key = TableSchema(TableId("k", "t"), (Column("v", t.INT8),))
    assert "cells" not in arrow.arrow_schema(only_key).names
    assert "key" not in arrow.arrow_schema(no_key).names
    assert "before" not in arrow.arrow_schema(no_key, []).names
    assert arrow.arrow_schema(SCHEMA, ["v"]).field("cells").type.num_fields == 1


def test_columns_that_were_read_from_a_file_are_written_again() -> None:
    batch = _batch()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow.arrow_schema(SCHEMA)) as writer:
        writer.write_batch(arrow.to_arrow(batch))
    (read,) = pa.ipc.open_stream(sink.getvalue())
    assert arrow.from_arrow(SCHEMA, read) == batch


def test_plain_strings_serve_as_operations() -> None:
    columns = arrow.to_arrow(_batch())
    plain = columns.set_column(0, "op", columns.column("op").cast(pa.string()))
    assert arrow.from_arrow(SCHEMA, plain) == _batch()
    unknown = columns.set_column(0, "op", pa.array(["insert", "no such thing", "insert", "insert"]))
    with pytest.raises(InvalidValue):
        arrow.from_arrow(SCHEMA, unknown)


def test_batches_of_another_shape_are_refused() -> None:
    columns = arrow.to_arrow(_batch())
    with pytest.raises(InvalidValue, match="lacks"):
        arrow.from_arrow(SCHEMA, columns.drop_columns(["marker"]))
    with pytest.raises(InvalidValue, match="type"):
        arrow.from_arrow(SCHEMA, columns.set_column(1, "time", pa.array(["x"] * 4)))


def test_a_state_that_does_not_exist_is_refused() -> None:
    columns = arrow.to_arrow(_batch())
    index = columns.schema.get_field_index("cells")
    cells = columns.column("cells").field("v")
    parts = [cells.field(n) for n in range(cells.type.num_fields)]
    parts[0] = pa.array([9, 9, 9, 9], pa.int8())
    bad = pa.StructArray.from_arrays([pa.StructArray.from_arrays(parts, fields=list(cells.type))], names=["v"])
    with pytest.raises(InvalidValue, match="state"):
        arrow.from_arrow(SCHEMA, columns.set_column(index, "cells", bad.cast(columns.column("cells").type)))


def test_damaged_rows_are_refused() -> None:
    batch = _batch()
    for rows in (bytes(batch.rows)[:-1], bytes(batch.rows) + b"\0", bytes(batch.rows).replace(b"x", b"\xff")):
        with pytest.raises(CorruptLog):
            arrow.to_arrow(replace(batch, rows=rows))
    wide = TableSchema(TableId("k", "t"), (Column("d", t.fixed_decimal(2, 0)),))
    nine = TableSchema(TableId("k", "t"), (Column("d", t.fixed_decimal(9, 0)),))
    many = avro.encode(nine, [Change(Op.INSERT, {}, {"d": Set(Decimal(12345))})])
    with pytest.raises(CorruptLog, match="digits"):
        arrow.to_arrow(ChangeBatch(wide, 1, many.rows))


def test_numbers_that_are_longer_than_they_must_be_are_read_alike() -> None:
    # The operation, then the branch of the time: 2 in one byte, or in two.
    short = bytes(avro.encode(SCHEMA, [Change(Op.UPDATE, {"id": 2}, {"v": Set("x")}, time=4)]).rows)
    assert short[:2] == b"\x02\x02"
    long = b"\x82\x00\x82\x00" + short[2:]
    assert arrow.to_arrow(ChangeBatch(SCHEMA, 1, long)).equals(arrow.to_arrow(ChangeBatch(SCHEMA, 1, short)))
    absent = b"\x82\x00\x80\x00" + short[3:]
    assert arrow.to_arrow(ChangeBatch(SCHEMA, 1, absent)).column("time").to_pylist() == [None]


def test_an_empty_batch_has_empty_columns() -> None:
    schema, _ = every_type_table()
    columns = arrow.to_arrow(avro.encode(schema, []))
    assert columns.num_rows == 0
    assert arrow.from_arrow(schema, columns).rows == b""
