"""History tables: every change once, and the SCD2 view of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.lakehouse.history import scd2_query
from penstock.errors import SchemaRefused
from penstock.model import types
from penstock.model.schema import Column, TableSchema
from penstock.settings.sinks import DeltaSettings
from tests.lake_records import SCHEMA, TABLE, by_key, deliver, query, records


def make(directory: Path, *schemas: TableSchema, **settings: Any) -> DeltaSink:
    sink = DeltaSink(DeltaSettings(directory=directory, history=True, **settings))
    sink.check()
    sink.prepare(schemas or (SCHEMA,))
    return sink


def row(note: str) -> dict[str, Any]:
    return {"note": note, "amount": 1}


def fill(sink: DeltaSink) -> None:
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((1, "a"), row("two")), ((2, "a"), row("x"))])]})
    deliver(sink, 1, {0: [records(SCHEMA, [((1, "a"), None), ((2, "a"), row("y"))], version=10)]})


def test_every_change_is_a_row_with_its_origin_and_the_current_rows_are_kept_too(tmp_path: Path) -> None:
    sink = make(tmp_path)
    assert sink.every
    fill(sink)
    history = query(tmp_path / "shop/orders_history", "SELECT * FROM t ORDER BY _version")
    assert [(each["id"], each["note"], each["_op"], each["_deleted"], each["_version"]) for each in history] == [
        (1, "one", "insert", False, 1),
        (1, "two", "insert", False, 2),
        (2, "x", "insert", False, 3),
        (1, None, "delete", True, 10),
        (2, "y", "insert", False, 11),
    ]
    assert {(each["line"], each["_node"], each["_file"]) for each in history} == {("a", "n1", "CommitLog-1.log")}
    assert [each["_batch"] for each in history] == [0, 0, 0, 1, 1]
    assert history[0]["_time"].microsecond == 1
    assert by_key(query(tmp_path / "shop/orders")) == {(2, "a"): row("y")}


def test_a_batch_that_comes_again_adds_nothing(tmp_path: Path) -> None:
    fill(make(tmp_path))
    last = records(SCHEMA, [((1, "a"), None), ((2, "a"), row("y"))], version=10)
    deliver(make(tmp_path), 1, {0: [last]})
    assert len(query(tmp_path / "shop/orders_history")) == 5


def test_history_can_stand_alone(tmp_path: Path) -> None:
    fill(make(tmp_path, current=False))
    assert len(query(tmp_path / "shop/orders_history")) == 5
    assert not (tmp_path / "shop/orders").exists()


def test_the_scd2_view_says_from_when_until_when_each_state_held(tmp_path: Path) -> None:
    fill(make(tmp_path))
    found = query(tmp_path / "shop/orders_history", scd2_query(SCHEMA, "t") + " ORDER BY id, valid_from")
    shown = [(each["id"], each["note"], each["valid_from"], each["valid_to"], each["is_current"]) for each in found]
    assert shown == [
        (1, "one", 1, 2, False),
        (1, "two", 2, 10, False),
        (2, "x", 3, 11, False),
        (2, "y", 11, None, True),
    ]


def test_a_history_table_follows_new_columns(tmp_path: Path) -> None:
    sink = make(tmp_path)
    fill(sink)
    wider = TableSchema(TABLE, (*SCHEMA.columns, Column("paid", types.BOOLEAN)), version=2, source="sandbox")
    sink.prepare([wider])
    deliver(sink, 2, {0: [records(wider, [((7, "a"), {**row("z"), "paid": True})], version=20)]})
    found = query(tmp_path / "shop/orders_history", "SELECT paid, _version FROM t WHERE id = 7 OR _version = 1")
    assert sorted((each["_version"], each["paid"]) for each in found) == [(1, None), (20, True)]


def test_a_source_column_with_the_name_of_a_history_column_is_refused(tmp_path: Path) -> None:
    clash = TableSchema(TABLE, (*SCHEMA.columns, Column("_op", types.TEXT)), source="sandbox")
    with pytest.raises(SchemaRefused, match="column _op"):
        make(tmp_path, clash)
