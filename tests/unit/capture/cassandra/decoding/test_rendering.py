"""Changes of the commit log as JSON and as text. The command's own tests have the usual ones."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.capture.cassandra.decoding import rendering
from penstock.model import types as t
from penstock.model.change import (
    Bound,
    Cell,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Origin,
    Range,
    Removed,
    Set,
)
from penstock.model.schema import Column, Role, TableId, TableSchema
from tests import commit_logs

PATH = uuid.UUID("2e2bb4c0-e0fd-11f1-9dd5-134c5003f6ff")
SCHEMA = TableSchema(
    TableId("ks", 'odd"name'),
    (
        Column("Key", t.INT32, Role.PARTITION),
        Column("c", t.DECIMAL, Role.CLUSTERING),
        Column("d", t.TEXT, Role.CLUSTERING),
        Column("s", t.TEXT, Role.STATIC),
        Column("l", t.list_of(t.INT32, multi_cell=True)),
        Column("m", t.map_of(t.INT32, t.TEXT, multi_cell=True)),
        Column("n", t.SHARDED_COUNTER),
        Column("se", t.set_of(t.tuple_of(t.INT32, t.TEXT), multi_cell=True)),
        Column("u", t.user("u", {"F": t.INT32, "g": t.TEXT}, multi_cell=True)),
        Column("v", t.user("u", {"F": t.INT32, "g": t.TEXT})),
        Column("x", t.DECIMAL),
    ),
    source="cassandra",
)
KEY = {"Key": 1, "c": Decimal("1.50"), "d": "y"}


def record(change: Change) -> dict[str, Any]:
    out = json.loads(rendering.record(change, SCHEMA, 7), parse_float=Decimal)
    assert isinstance(out, dict)
    return out


def cell(name: str, value: Cell, time: int | None = 5) -> Any:
    return record(Change(Op.UPDATE, KEY, {name: value}, time=time))["cells"][name]


def test_every_record_has_the_same_fields() -> None:
    fields = ["keyspace", "table", "op", "static", "key", "time", "deletion_time", "cells", "range", "origin"]
    for change in (Change(Op.UPDATE, KEY, time=5), Change(Op.TRUNCATE, deletion=Deletion(5))):
        assert list(record(change)) == fields
    assert record(Change(Op.UPDATE, KEY))["table"] == 'odd"name'
    assert record(Change(Op.UPDATE, KEY))["key"] == {"Key": 1, "c": Decimal("1.50"), "d": "y"}


def test_the_origin_names_the_segment() -> None:
    change = Change(Op.UPDATE, KEY, time=5, origin=Origin(file="CommitLog-7-9.log", position=12, ordinal=3))
    assert record(change)["origin"] == {"file": "CommitLog-7-9.log", "position": 12, "segment": 7}


def test_only_a_row_that_was_inserted_has_a_time() -> None:
    assert record(Change(Op.UPDATE, KEY, time=5))["time"] is None
    assert record(Change(Op.INSERT, KEY, time=5, marker=Marker()))["time"] == 5
    assert record(Change(Op.INSERT, KEY, time=5, marker=Marker(4)))["time"] == 4


def test_a_rows_own_expiry_is_shown() -> None:
    shown = record(Change(Op.INSERT, KEY, time=5, marker=Marker(None, Expiry(10, 20))))
    assert (shown["ttl"], shown["expires"]) == (10, 20)


def test_cells_have_their_own_time_or_the_changes() -> None:
    assert cell("x", Set(Decimal("1E+3"))) == {"value": Decimal("1E+3"), "time": 5}
    assert cell("x", Set(Decimal("0.10"), 4, Expiry(1, 2))) == {
        "value": Decimal("0.10"),
        "time": 4,
        "ttl": 1,
        "expires": 2,
    }
    assert cell("x", Set(None)) == {"value": None, "time": 5}
    assert cell("x", Deleted()) == {"deleted": True, "time": 5}
    assert cell("x", Deleted(3, 1)) == {"deleted": True, "time": 3}
    assert cell("x", Set(Decimal(1)), None) == {"value": 1, "time": None}


def test_frozen_values_are_one_value() -> None:
    assert cell("v", Set((1, None))) == {"value": {'"F"': 1, "g": None}, "time": 5}


def test_elements_have_paths() -> None:
    assert cell("l", Delta(None, (Element(PATH, 3),), (Removed(PATH),))) == {
        "replaced": False,
        "set": [{"path": str(PATH), "value": 3, "time": 5}],
        "removed": [str(PATH)],
    }
    assert cell("m", Delta(Deletion(4), (Element(1, "a", 6, Expiry(7, 8)),))) == {
        "replaced": True,
        "deletion_time": 4,
        "set": [{"path": 1, "value": "a", "time": 6, "ttl": 7, "expires": 8}],
        "removed": [],
    }
    assert cell("se", Delta(None, (Element((1, "a")),))) == {
        "replaced": False,
        "set": [{"path": [1, "a"], "value": None, "time": 5}],
        "removed": [],
    }
    assert cell("u", Delta(None, (Element(0, 2),), (Removed(1),))) == {
        "replaced": False,
        "set": [{"path": "F", "value": 2, "time": 5}],
        "removed": ["g"],
    }


def test_a_counter_is_the_sum_of_its_shards() -> None:
    shards = (Element(PATH, (1, 5), 6), Element(uuid.UUID(int=1), (2, -7)))
    assert cell("n", Delta(None, shards)) == {"value": -2, "time": 6}
    assert cell("n", Delta(Deletion(4))) == {"deleted": True, "time": 4}
    assert cell("n", Set(9)) == {"value": 9, "time": 5}


def test_ranges_have_values_in_clustering_order() -> None:
    where = Range(Bound((Decimal("2.0"), "a"), False), Bound((Decimal("2.0"),), True))
    shown = record(Change(Op.DELETE_RANGE, {"Key": 1}, deletion=Deletion(9), range=where))
    assert shown["range"] == {
        "start": {"values": [Decimal("2.0"), "a"], "inclusive": False},
        "end": {"values": [Decimal("2.0")], "inclusive": True},
    }
    assert shown["deletion_time"] == 9
    open_ends = record(Change(Op.DELETE_RANGE, {"Key": 1}, deletion=Deletion(9), range=Range(None, None)))
    assert open_ends["range"] == {"start": None, "end": None}


def test_the_static_row_is_told_from_rows_and_partitions() -> None:
    cells: dict[str, Cell] = {"s": Set("x")}
    assert rendering.is_static(Change(Op.UPDATE, {"Key": 1}, cells), SCHEMA)
    assert not rendering.is_static(Change(Op.UPDATE, KEY), SCHEMA)
    assert not rendering.is_static(Change(Op.DELETE_PARTITION, {"Key": 1}), SCHEMA)
    single = TableSchema(TableId("ks", "t"), (Column("k", t.INT32, Role.PARTITION), Column("v", t.INT32)))
    assert not rendering.is_static(Change(Op.UPDATE, {"k": 1}, {"v": Set(1)}), single)


def test_text_shows_what_happened() -> None:
    cells: dict[str, Cell] = {
        "l": Delta(Deletion(1), (Element(PATH, 3),)),
        "m": Delta(None, (Element(1, "a"),), (Removed(2),)),
        "n": Delta(None, (Element(PATH, (1, 5)),)),
        "se": Delta(Deletion(1)),
        "u": Delta(None, (), (Removed(1),)),
        "x": Set(Decimal("1.10"), None, Expiry(9, 99)),
        "v": Deleted(),
    }
    change = Change(Op.INSERT, KEY, cells, time=5, marker=Marker(None, Expiry(9, 99)), deletion=Deletion(1))
    key, text = rendering.summary(change, SCHEMA)
    assert key == 'Key=1 c=1.50 d="y"'
    assert text == (f'-row l={{"{PATH}":3}} m+={{1:"a"}} m-={{2}} n=5 -se u-={{"g"}} x=1.10(ttl 9s) -v (row ttl 9s)')


def test_long_values_are_cut_in_text() -> None:
    _, text = rendering.summary(Change(Op.UPDATE, KEY, {"s": Set("z" * 1000)}), SCHEMA)
    assert len(text) == len("s=") + 60
    assert text.endswith("…")


@given(st.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_change_has_json_and_text(data: st.DataObject) -> None:
    table = data.draw(commit_logs.tables())
    for change in data.draw(commit_logs.updates(table, 8)):
        shown = json.loads(rendering.record(change, table.schema, 1), parse_int=str)
        assert shown["op"] == change.op.value
        assert set(shown["cells"]) == set(change.cells)
        rendering.summary(change, table.schema)
