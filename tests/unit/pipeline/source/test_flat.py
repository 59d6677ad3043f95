"""The flat shape: values against the changes they come from, versions of a table, and names."""

from __future__ import annotations

import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from penstock.errors import InvalidSetting, SchemaChanged
from penstock.formats import avro
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
    Removed,
    Set,
)
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Kind, Type
from penstock.pipeline.source.flat import RESERVED, FlatBatches, flat_names, flat_schema
from penstock.pipeline.source.stretches import Gathered
from tests.every_type import EVERY_TYPE, every_type_table

ID = uuid.UUID("5132b130-ae79-11e4-ab27-0800200c9a66")


def gathered(schema: TableSchema, changes: list[Change], *blocks: tuple[int, int, int]) -> Gathered:
    batch = avro.encode(schema, changes)
    places = list(blocks) or [(100, 0, batch.count)]
    return Gathered(schema, 7, [bytes(batch.rows)], places, len(batch.rows), batch.count)


def convert(schema: TableSchema, changes: list[Change], columns: list[str] | None = None) -> list[dict[str, Any]]:
    made = FlatBatches(schema, flat_schema(schema, columns)).convert(gathered(schema, changes), "n1")
    made.validate(full=True)
    rows: list[dict[str, Any]] = made.to_pylist()
    return rows


def table(*columns: Column) -> TableSchema:
    return TableSchema(TableId("ks", "t"), (Column("id", t.INT64, Role.PARTITION), *columns), source="cassandra")


def plain(value: Any, type_: Type) -> Any:
    """The value as Spark shows it, by the table of types in docs/reference/spark-source.md."""
    kind = type_.kind
    if value is None:
        return None
    if kind in (Kind.UINT64, Kind.FIXED_DECIMAL):
        return Decimal(value) if kind is Kind.UINT64 or type_.precision <= 38 else str(value)
    if kind in (Kind.UUID, Kind.TIMEUUID, Kind.INET, Kind.VARINT, Kind.DECIMAL):
        return str(value)
    if kind in (Kind.DURATION, Kind.TIME_TZ):
        return value._asdict()
    if kind is Kind.ARRAY:
        return {name: list(part) for name, part in value._asdict().items()}
    if kind in (Kind.LIST, Kind.SET, Kind.VECTOR):
        return [plain(one, type_.elements[0]) for one in value]
    if kind is Kind.FLAGS:
        return list(value)
    if kind is Kind.MAP:
        return [(plain(key, type_.elements[0]), plain(one, type_.elements[1])) for key, one in value]
    if kind in (Kind.TUPLE, Kind.USER):
        if not type_.elements:
            return {"empty": None}
        names = type_.names or [f"f{at}" for at in range(len(value))]
        return {name: plain(one, part) for name, one, part in zip(names, value, type_.elements, strict=True)}
    return value


WITHOUT_TIMES = [(type_, values) for type_, values in EVERY_TYPE if "date" not in repr(type_) and not type_.unit]


@pytest.mark.parametrize(("type_", "values"), WITHOUT_TIMES, ids=lambda one: str(getattr(one, "kind", "")))
def test_values_of_every_type_are_the_values_that_were_written(type_: Type, values: tuple[Any, ...]) -> None:
    schema = table(Column("c", type_))
    changes = [Change(Op.INSERT, {"id": 1}, {"c": Set(value)}) for value in (*values, None)]
    found = [row["c"] for row in convert(schema, changes, ["c"])]
    wanted = [plain(value, type_) for value in (*values, None)]
    assert str(found) == str(wanted)


def test_columns_of_every_type_and_shape_are_sound_arrow_that_spark_takes() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    schema, changes = every_type_table()
    wanted = flat_schema(schema, ["*", *RESERVED])
    made = FlatBatches(schema, wanted).convert(gathered(schema, changes), "n1")
    made.validate(full=True)
    assert made.num_rows == len(changes)
    # What Spark makes of the columns is what it expects back, to the last flag.
    assert to_arrow_schema(from_arrow_schema(wanted), timezone="UTC").equals(made.schema)


def test_times_keep_their_instant_and_those_beyond_64_bits_are_clipped_and_counted() -> None:
    schema = table(
        Column("ms", t.timestamp(t.Unit.MS)), Column("ns", t.timestamp(t.Unit.NS)), Column("at", t.time(t.Unit.NS))
    )
    far = (1 << 63) - 1
    changes = [
        Change(Op.INSERT, {"id": 1}, {"ms": Set(1_700_000_000_123), "ns": Set(-1), "at": Set(86_399_999_999_999)}),
        Change(Op.INSERT, {"id": 2}, {"ms": Set(far), "ns": Set(None)}),
    ]
    with capture_logs() as said:
        made = FlatBatches(schema, flat_schema(schema)).convert(gathered(schema, changes), "n1")
    assert made.column("ms").cast(pa.int64()).to_pylist() == [1_700_000_000_123_000, far // 1000 * 1000]
    assert made.column("ns").cast(pa.int64()).to_pylist() == [-1, None]
    assert made.column("at").to_pylist() == [86_399_999_999_999, None]
    assert [(entry["event"], entry["count"]) for entry in said] == [("times beyond Spark's range were clipped", 1)]


def test_many_decimals_become_text_whatever_their_scale_and_size() -> None:
    schema = table(Column("d", t.DECIMAL), Column("v", t.VARINT))
    numbers = [0, 1, -1, 127, 128, -128, -129, 255, 256, (1 << 63) - 1, -(1 << 63)]
    small = [Decimal(number).scaleb(-scale) for number in numbers for scale in (0, 2, 10)]
    for more in ([], [Decimal(1 << 200)]):
        values = [*small, *more, None]
        changes = [Change(Op.INSERT, {"id": 1}, {"d": Set(value)}) for value in values]
        changes += [Change(Op.INSERT, {"id": 1}, {"v": Set(number)}) for number in [*numbers, *map(int, more)]]
        rows = convert(schema, changes, ["d", "v"])
        assert [row["d"] for row in rows[: len(values)]] == [None if one is None else str(one) for one in values]
        assert [row["v"] for row in rows[len(values) :]] == [str(one) for one in [*numbers, *map(int, more)]]


def test_untouched_set_deleted_and_null_cells_are_told_apart() -> None:
    schema = table(Column("a", t.TEXT), Column("s", t.TEXT, Role.STATIC))
    changes = [
        Change(Op.INSERT, {"id": 1}, {"a": Set("x", 5, Expiry(60, 99))}, time=7),
        Change(Op.UPDATE, {"id": 1}, {"a": Set(None)}, time=8),
        Change(Op.UPDATE, {"id": 1}, {"a": Deleted(9, 4)}, time=9),
        Change(Op.UPDATE, {"id": 1}, {"s": Set("y")}, time=10),
    ]
    rows = convert(schema, changes, ["*", "_cells"])
    assert [row["a"] for row in rows] == ["x", None, None, None]
    assert [row["_cell_times"] for row in rows] == [
        {"a": 5, "s": None},
        {"a": 8, "s": None},
        {"a": 9, "s": None},
        {"a": None, "s": 10},
    ]
    states = [row["_cells"]["a"] for row in rows]
    assert [state["state"] for state in states] == [1, 1, 2, 0]
    assert states[0] == {"state": 1, "time": 5, "ttl_s": 60, "expires_s": 99, "local_s": None}
    assert (states[2]["time"], states[2]["local_s"]) == (9, 4)
    assert (rows[3]["s"], rows[3]["_cells"]["s"]["state"]) == ("y", 1)


def test_a_collection_shows_what_was_written_and_its_delta_the_rest() -> None:
    schema = table(
        Column("m", t.map_of(t.TEXT, t.INT32, multi_cell=True)),
        Column("l", t.list_of(t.TEXT, multi_cell=True)),
        Column("s", t.set_of(t.UUID, multi_cell=True)),
    )
    cells = {
        "m": Delta(Deletion(4, 1), (Element("k", 5, 6),), (Removed("g", 7, 8),)),
        "l": Delta(None, (Element(ID, "x"),)),
        "s": Delta(None, (), (Removed(ID),)),
    }
    changes = [Change(Op.UPDATE, {"id": 1}, cells), Change(Op.UPDATE, {"id": 1}, {})]
    first, second = convert(schema, changes, ["m", "l", "s", "_cells"])
    assert (first["m"], first["l"], first["s"]) == ([("k", 5)], ["x"], [])
    assert (second["m"], second["l"], second["s"]) == (None, None, None)
    delta = first["_cells"]["m"]["delta"]
    assert delta["replaced"] == {"time": 4, "local_s": 1}
    assert delta["elements"] == [{"path": "k", "value": 5, "time": 6, "ttl_s": None, "expires_s": None}]
    assert delta["removed"] == [{"path": "g", "time": 7, "local_s": 8}]
    assert first["_cells"]["l"]["delta"]["elements"][0]["path"] == str(ID)
    assert second["_cells"]["m"]["delta"] is None


def test_kinds_of_change_have_sparks_names_where_spark_has_one() -> None:
    schema = table(Column("a", t.TEXT))
    rows = convert(schema, [Change(op, {"id": 1}) for op in Op])
    assert {row["_op"]: row["_change_type"] for row in rows} == {
        "insert": "insert",
        "snapshot": "insert",
        "update": "update_postimage",
        "delete": "delete",
        "delete_partition": "delete_partition",
        "delete_range": "delete_range",
        "truncate": "truncate",
    }


def test_the_version_of_a_change_is_its_commit_time_else_its_write_time_else_its_capture_time() -> None:
    schema = table(Column("a", t.TEXT))
    changes = [
        Change(Op.INSERT, {"id": 1}, time=2, commit_time=1, capture_time=3),
        Change(Op.INSERT, {"id": 1}, time=2, capture_time=3),
        Change(Op.INSERT, {"id": 1}, capture_time=3),
        Change(Op.INSERT, {"id": 1}),
    ]
    rows = convert(schema, changes, ["_commit_version", "_commit_timestamp"])
    assert [row["_commit_version"] for row in rows] == [change.when for change in changes] == [1, 2, 3, None]
    assert [None if row["_commit_timestamp"] is None else row["_commit_timestamp"].microsecond for row in rows] == [
        1,
        2,
        3,
        None,
    ]


def test_positions_are_those_of_the_blocks() -> None:
    schema = table(Column("a", t.TEXT))
    changes = [Change(Op.INSERT, {"id": number}) for number in range(6)]
    found = gathered(schema, changes, (100, 2, 3), (200, 0, 1), (300, 0, 2))
    made = FlatBatches(schema, flat_schema(schema, ["_position"])).convert(found, "n1")
    places = [tuple(row["_position"].values()) for row in made.to_pylist()]
    assert places == [(7, 100, 2), (7, 100, 3), (7, 100, 4), (7, 200, 0), (7, 300, 0), (7, 300, 1)]


def test_operations_that_are_not_wanted_are_left_out() -> None:
    schema = table(Column("a", t.TEXT))
    changes = [Change(op, {"id": at}) for at, op in enumerate(Op)]
    flat = FlatBatches(schema, flat_schema(schema, ["id", "_op"]), [Op.DELETE, Op.INSERT])
    assert flat.convert(gathered(schema, changes), "n1").to_pylist() == [
        {"id": 0, "_op": "insert"},
        {"id": 2, "_op": "delete"},
    ]


# Versions.


def test_changes_of_an_older_version_fit_in() -> None:
    old = table(Column("gone", t.TEXT), Column("n", t.INT32), Column("key2", t.TEXT))
    new = replace(table(Column("n", t.INT64), Column("more", t.list_of(t.UUID))), version=2)
    wanted = flat_schema(new, ["*", "_schema_version", "_cells", "_before"])
    flat = FlatBatches(new, wanted)
    first = flat.convert(
        gathered(old, [Change(Op.INSERT, {"id": 1}, {"n": Set(5), "gone": Set("x")}, before={"n": 4})]), "n1"
    )
    second = flat.convert(gathered(new, [Change(Op.INSERT, {"id": 2}, {"n": Set(6), "more": Set((ID,))})]), "n1")
    [one], [two] = first.to_pylist(), second.to_pylist()
    assert (one["n"], one["more"], one["_schema_version"], one["_cells"]["more"]) == (5, None, 1, None)
    assert (one["_before"]["n"], one["_cells"]["n"]["state"], one["_cell_times"]["more"]) == (4, 1, None)
    assert (two["n"], two["more"], two["_schema_version"]) == (6, [str(ID)], 2)


def test_a_type_that_cannot_hold_the_old_values_is_told() -> None:
    old, new = table(Column("n", t.TEXT)), table(Column("n", t.INT32))
    flat = FlatBatches(new, flat_schema(new))
    with pytest.raises(SchemaChanged, match="type changed from string to int32") as raised:
        flat.convert(gathered(old, [Change(Op.INSERT, {"id": 1})]), "n1")
    assert raised.value.place["column"] == "n"


def test_names_that_spark_cannot_tell_apart_get_a_mark() -> None:
    schema = table(Column("Name", t.TEXT), Column("name", t.TEXT), Column("_op", t.TEXT), Column("name_", t.TEXT))
    assert flat_names(schema) == {"id": "id", "Name": "Name", "name": "name_", "_op": "_op_", "name_": "name__"}
    [row] = convert(schema, [Change(Op.INSERT, {"id": 1}, {"_op": Set("x"), "name": Set("y")})])
    assert (row["_op"], row["_op_"], row["name_"]) == ("insert", "x", "y")


def test_a_column_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidSetting, match=r"no column 'colour'; it has id, a, _op"):
        flat_schema(table(Column("a", t.TEXT)), ["id", "colour"])


def test_a_table_that_is_all_key_has_no_cells() -> None:
    schema = TableSchema(TableId("ks", "t"), (Column("id", t.INT64, Role.PARTITION),))
    [row] = convert(schema, [Change(Op.INSERT, {"id": 1})])
    assert row["id"] == 1
    assert row.keys() & {"_cells", "_cell_times"} == set()


def test_what_every_change_has_cannot_be_null_unless_the_user_says_so() -> None:
    schema = table(Column("a", t.TEXT))
    wanted = flat_schema(schema, ["*", *(name for name in RESERVED if name != "_range")])
    sure = {"_op", "_change_type", "_node", "_position", "_schema_version", "_cell_times", "_cells"}
    assert {field.name for field in wanted if not field.nullable} == sure
    found = gathered(schema, [Change(op, {"id": 1}) for op in Op])
    made = FlatBatches(schema, wanted).convert(found, "n1")
    assert [made.column(name).null_count for name in sure] == [0] * len(sure)
    loose = pa.schema([field.with_nullable(True) for field in wanted])
    assert FlatBatches(schema, loose).convert(found, "n1").schema.equals(loose)


def test_what_is_seldom_wanted_is_read_only_when_it_is_asked_for() -> None:
    schema = table(Column("a", t.TEXT))
    usual = ["_op", "_change_type", "_commit_version", "_commit_timestamp", "_time", "_node", "_position"]
    assert flat_schema(schema).names == ["id", "a", *usual, "_cell_times"]
    origin = Origin(node="n9", file="CommitLog-1.log", position=8)
    changes = [Change(Op.DELETE, {"id": 1}, deletion=Deletion(4, 1), origin=origin)]
    changes.append(Change(Op.INSERT, {"id": 2}, {"a": Set("x")}, marker=Marker(time=3)))
    deleted, inserted = convert(schema, changes, ["_deletion", "_origin", "_marker", "id"])
    assert deleted["_deletion"] == {"time": 4, "local_s": 1}
    assert (deleted["_origin"]["node"], deleted["_origin"]["position"], deleted["_marker"]) == ("n9", 8, None)
    assert (inserted["_deletion"], inserted["_origin"], inserted["_marker"]["time"]) == (None, None, 3)
