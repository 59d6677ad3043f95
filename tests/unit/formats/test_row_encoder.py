"""RowEncoder: what database decoders write row by row is what `encode` writes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.formats import avro
from penstock.formats._encoder import NO_TIME
from penstock.model import types as t
from penstock.model.change import (
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Origin,
    Set,
    Transaction,
)
from penstock.model.schema import Column, Role, TableId, TableSchema
from tests.pure_python import Formats, as_installed, pure_python

SCHEMA = TableSchema(
    TableId("ks", "t"),
    (
        Column("id", t.INT64, Role.PARTITION),
        Column("at", t.INT32, Role.CLUSTERING),
        Column("a", t.TEXT),
        Column("b", t.FLOAT64),
        Column("c", t.set_of(t.TEXT, multi_cell=True)),
        Column("d", t.INT8),
    ),
)


@pytest.fixture(params=["installed", "pure"])
def formats(request: pytest.FixtureRequest) -> Formats:
    return as_installed() if request.param == "installed" else pure_python()


def test_rows_are_those_of_the_encoder_of_changes(formats: Formats) -> None:
    origin = Origin("n", None, "f", 9, Transaction("0", 1, "0-1-1"), 4)
    changes = [
        Change(
            Op.INSERT,
            {"id": 7, "at": -1},
            {"a": Set("x", 5), "b": Set(0.5), "c": Delta(None, (Element("e"),)), "d": Set(None, None, Expiry(3, 4))},
            time=1,
            capture_time=3,
            marker=Marker(None, Expiry(60, 99)),
            origin=origin,
        ),
        Change(Op.UPDATE, {"id": 7}, {"b": Deleted(8, 9)}, deletion=Deletion(5), before={"at": 3, "d": None}),
        Change(Op.TRUNCATE),
    ]
    encoder = formats.encoder.RowEncoder(SCHEMA)
    rows = encoder.rows
    encoder.begin(0, 1, NO_TIME, 3)
    encoder.origin(b"\x02\x02n\x00\x02\x02f\x02\x12\x02\x020\x02\x0a0-1-1", 4)
    encoder.marker(NO_TIME, 60, 99)
    encoder.key(0)
    rows.put_long(7)
    encoder.key(1)
    rows.put_long(-1)
    encoder.cell_set(0)
    rows.put_bytes(b"x")
    encoder.stamp(5, 0, NO_TIME)
    encoder.cell_set(1)
    rows.put_double(0.5)
    encoder.cell_delta(2)
    rows.put_raw(b"\x00\x02\x02e\x00\x00\x00")
    encoder.cell_null(3)
    encoder.stamp(NO_TIME, 3, 4)
    encoder.finish()
    encoder.begin(1, NO_TIME, NO_TIME, NO_TIME)
    encoder.deletion(5, NO_TIME)
    encoder.key(0)
    rows.put_long(7)
    encoder.cell_deleted(1, 8, 9)
    encoder.old(1)
    rows.put_long(3)
    encoder.old_null(5)
    encoder.finish()
    encoder.begin(5, NO_TIME, NO_TIME, NO_TIME)
    encoder.finish()
    assert encoder.count == 3
    assert rows.take() == avro.encode(SCHEMA, changes).rows


def test_an_unfinished_row_can_be_taken_back(formats: Formats) -> None:
    encoder = formats.encoder.RowEncoder(SCHEMA)
    encoder.begin(0, 1, 1, 1)
    encoder.key(0)
    encoder.abandon()
    assert len(encoder.rows) == 0
    encoder.begin(5, NO_TIME, NO_TIME, NO_TIME)
    encoder.finish()
    assert encoder.rows.take() == avro.encode(SCHEMA, [Change(Op.TRUNCATE)]).rows


@pytest.mark.parametrize(
    "calls",
    [
        [("key", 0)],
        [("begin", 7, 0, 0, 0)],
        [("begin", 0, 0, 0, 0), ("begin", 0, 0, 0, 0)],
        [("begin", 0, 0, 0, 0), ("key", 2)],
        [("begin", 0, 0, 0, 0), ("key", 1), ("key", 0)],
        [("begin", 0, 0, 0, 0), ("cell_null", 0), ("key", 0)],
        [("begin", 0, 0, 0, 0), ("cell_null", 1), ("cell_null", 1)],
        [("begin", 0, 0, 0, 0), ("cell_null", 4)],
        [("begin", 0, 0, 0, 0), ("cell_delta", 0)],
        [("begin", 0, 0, 0, 0), ("stamp", 1, 1, 1)],
        [("begin", 0, 0, 0, 0), ("old_null", 3), ("cell_null", 1)],
        [("begin", 0, 0, 0, 0), ("old_null", 6)],
        [("begin", 0, 0, 0, 0), ("key", 0), ("marker", 1, 1, 1)],
        [("finish",)],
    ],
)
def test_calls_out_of_order_are_refused(formats: Formats, calls: list[tuple[Any, ...]]) -> None:
    encoder = formats.encoder.RowEncoder(SCHEMA)
    with pytest.raises(ValueError):  # noqa: PT012
        for name, *arguments in calls:
            getattr(encoder, name)(*arguments)
