"""Transforms: what of a record reaches the sinks, and what is refused before anything does."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import InvalidSetting, InvalidStatement, InvalidValue
from penstock.filters.functions import Functions
from penstock.formats import avro
from penstock.formats.arrow import to_arrow
from penstock.model import types as t
from penstock.model.change import Bound, Change, Delta, Element, Marker, Op, Range, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records.records import Records, row_type
from penstock.settings import RecordType, TransformSettings
from penstock.transforms.transforms import Transforms, check_against

SCHEMA = TableSchema(
    TableId("shop", "orders"),
    (
        Column("id", t.INT32, Role.PARTITION),
        Column("line", t.INT32, Role.CLUSTERING),
        Column("name", t.TEXT),
        Column("total", t.INT64),
        Column("photo", t.BYTES),
        Column("tags", t.set_of(t.TEXT, multi_cell=True)),
    ),
)


def insert(number: int, **cells: Any) -> Change:
    values = {name: value if isinstance(value, Delta) else Set(value) for name, value in cells.items()}
    return Change(Op.INSERT, {"id": number, "line": 1}, values, time=1000 + number, marker=Marker())


def row(number: int, **values: Any) -> dict[str, Any]:
    return {"id": number, "line": 1, "name": None, "total": None, "photo": None, "tags": None, **values}


def records(
    changes: Iterable[Change],
    after: Sequence[dict[str, Any] | None] | None = None,
    before: Sequence[dict[str, Any] | None] | None = None,
) -> Records:
    batch = avro.encode(SCHEMA, list(changes))
    type_ = row_type(SCHEMA)
    return Records(
        SCHEMA,
        batch,
        None if after is None else pa.array(after, type_),
        None if before is None else pa.array(before, type_),
        pa.array(range(len(batch)), pa.int64()),
    )


def applied(given: Records, functions: Functions | None = None, **settings: Any) -> Records | None:
    made = Transforms(TransformSettings.model_validate(settings), functions or Functions())
    return next(iter(made.apply([given])), None)


def operations(found: Records | None) -> list[str]:
    assert found is not None
    return [str(op) for op in to_arrow(found.changes, ()).column("op").cast(pa.string()).to_pylist()]


def test_without_settings_records_pass_as_they_are() -> None:
    given = records([insert(1, name="a")])
    assert applied(given) is given


@pytest.mark.parametrize("name", ["insert", "i", "c"])
def test_skipped_operations_are_not_delivered(name: str) -> None:
    given = records([insert(1), Change(Op.UPDATE, {"id": 2, "line": 1}, {"total": Set(5)}, time=5)])
    assert operations(applied(given, skipped_operations=[name])) == ["update"]
    assert applied(records([insert(1)]), skipped_operations=[name]) is None


def test_excluded_columns_are_gone_from_schema_changes_and_rows() -> None:
    given = records([insert(1, name="a", total=3)], after=[row(1, name="a", total=3)])
    found = applied(given, exclude_columns=["shop.*.name", "shop.orders.tags"])
    assert found is not None
    assert [column.name for column in found.schema.columns] == ["id", "line", "total", "photo"]
    assert avro.decode(found.changes)[0].cells == {"total": Set(3)}
    assert found.after is not None
    assert found.after.to_pylist() == [{"id": 1, "line": 1, "total": 3, "photo": None}]


def test_keys_stay_whatever_the_patterns_say() -> None:
    found = applied(records([insert(1, name="a", total=3)]), exclude_columns=["*.*.*"])
    assert found is not None
    assert [column.name for column in found.schema.columns] == ["id", "line"]
    included = applied(records([insert(1, name="a", total=3)]), include_columns=["shop.orders.total"])
    assert included is not None
    assert [column.name for column in included.schema.columns] == ["id", "line", "total"]


def test_columns_and_tables_get_new_names_in_keys_and_ranges_too() -> None:
    gone = Change(Op.DELETE_RANGE, {"id": 1}, time=9, range=Range(Bound((2,), inclusive=True), None), deletion=None)
    found = applied(
        records([insert(1, name="a"), gone]),
        renames={"shop.orders.line": "no", "shop.orders.name": "title"},
        routes={"shop.*": "lake.{keyspace}_{table}"},
    )
    assert found is not None
    assert found.schema.table == TableId("lake", "shop_orders")
    first, second = avro.decode(found.changes)
    assert first.key == {"id": 1, "no": 1}
    assert first.cells == {"title": Set("a")}
    assert second.range == Range(Bound((2,), inclusive=True), None)


def test_collections_pass_through_a_projection() -> None:
    tags = Delta(None, (Element("x"), Element("y")))
    found = applied(records([insert(1, tags=tags)], after=[row(1, tags=["x", "y"])]), exclude_columns=["*.*.name"])
    assert found is not None
    assert avro.decode(found.changes)[0].cells["tags"] == tags
    assert found.after is not None
    assert found.after[0]["tags"].as_py() == ["x", "y"]


def test_masks_hide_values_in_changes_and_rows(tmp_path: Path) -> None:
    salt = tmp_path / "salt"
    salt.write_bytes(b"pepper\n")
    given = records(
        [insert(1, name="Anne", total=3, photo=b"\x01\x02\x03")],
        after=[row(1, name="Anne", total=3, photo=b"\x01\x02\x03")],
    )
    masks = {"shop.orders.name": "hash", "shop.orders.total": "null", "shop.orders.photo": "truncate:2"}
    found = applied(given, masks=masks, mask_salt_file=salt)
    assert found is not None
    assert found.after is not None
    digest = hmac.new(b"pepper", b"Anne", hashlib.sha256).hexdigest()
    cells = avro.decode(found.changes)[0].cells
    assert cells == {"name": Set(digest), "total": Set(None), "photo": Set(b"\x01\x02")}
    assert found.after[0].as_py() == {**row(1), "name": digest, "photo": b"\x01\x02"}


def test_salt_goes_to_the_tasks_and_its_file_does_not(tmp_path: Path) -> None:
    salt = tmp_path / "salt"
    salt.write_bytes(b"pepper \xff")
    made = Transforms(TransformSettings(masks={"a.b.c": "hash"}, mask_salt_file=salt), Functions())
    sent = made.settings_for_tasks()
    assert sent.mask_salt_file is None
    assert "pepper" not in repr(sent)
    salt.unlink()
    assert Transforms(sent, Functions())._salt == b"pepper \xff"


def test_hashed_partition_key_stays_a_key() -> None:
    found = applied(records([insert(7)]), masks={"shop.orders.id": "hash"}, mask_salt="s")
    assert found is not None
    assert avro.decode(found.changes)[0].key["id"] == hmac.new(b"s", b"7", hashlib.sha256).hexdigest()


def test_filter_of_changes_asks_the_change() -> None:
    given = records([insert(1, total=3), insert(2, total=30), Change(Op.DELETE, {"id": 3, "line": 1}, time=9)])
    found = applied(given, filters={"shop.orders": "total > 10"})
    assert found is not None
    # A deletion passes: to miss one is worse than to apply one that was not needed.
    assert [change.key["id"] for change in avro.decode(found.changes)] == [2, 3]


def test_filter_of_rows_delivers_what_leaves_as_a_delete() -> None:
    update = Change(Op.UPDATE, {"id": 1, "line": 1}, {"total": Set(3)}, time=5)
    before = [row(1, total=30), row(1, total=3), row(1, total=30), None]
    after = [row(1, total=3), row(1, total=3), row(1, total=40), row(1, total=50)]
    given = records([update, update, update, update], after=after, before=before)
    found = applied(given, filters={"shop.*": "total > 10"})
    assert operations(found) == ["delete", "update", "update"]
    assert found is not None
    assert found.after is not None
    assert [None if one is None else one["total"] for one in found.after.to_pylist()] == [None, 40, 50]
    assert found.versions.to_pylist() == [0, 2, 3]
    assert avro.decode(found.changes)[0].cells == {}


def test_filter_of_rows_lets_deletions_of_many_rows_pass() -> None:
    gone = Change(Op.DELETE_PARTITION, {"id": 1}, time=9)
    assert operations(applied(records([gone], after=[None], before=[None]), filters={"*.*": "total > 10"})) == [
        "delete_partition"
    ]


def test_filter_may_call_registered_functions() -> None:
    functions = Functions({"big": lambda total: total is not None and total > 10})
    given = records([insert(1, total=3), insert(2, total=30)])
    found = applied(given, functions, filters={"shop.orders": "big(total) = true"})
    assert found is not None
    assert [change.key["id"] for change in avro.decode(found.changes)] == [2]


def test_whole_rows_are_asked_before_and_after_when_there_is_a_filter() -> None:
    made = Transforms(TransformSettings(filters={"a.b": "x = 1"}), Functions())
    assert made.needs(RecordType.AFTER) is RecordType.ALL
    assert made.needs(RecordType.CHANGE) is RecordType.CHANGE


def double_totals(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = batch.schema.get_field_index("total")
    return batch.set_column(at, "total", pc.multiply(batch.column("total"), 2))


def one_row_less(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1)


def one_row_less_of_frame(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.iloc[1:]


def test_own_function_sees_rows_that_are_there() -> None:
    given = records([insert(1), insert(2), insert(3)], after=[row(1, total=3), None, row(3, total=4)])
    made = Transforms(TransformSettings(functions={"shop.orders": f"{__name__}:double_totals"}), Functions())
    found = next(iter(made.apply([given])))
    assert found.after is not None
    assert [None if one is None else one["total"] for one in found.after.to_pylist()] == [6, None, 8]


def in_capitals(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(name=frame["name"].str.upper(), total=frame["total"] + 1)


def with_plain_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """What pandas makes of numbers with nulls among them when nobody keeps it from it."""
    return frame.astype({"total": "float64", "name": object})[sorted(frame.columns)]


def upside_down(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.iloc[::-1]


def without_names(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns="name")


def failing(frame: pd.DataFrame) -> pd.DataFrame:
    raise KeyError(frame["name"][0])


def over_frames(name: str, given: Records) -> Records:
    settings = TransformSettings(dataframe_functions={"shop.*": f"{__name__}:{name}"})
    return next(iter(Transforms(settings, Functions()).apply([given])))


def test_function_over_dataframes_keeps_numbers_exact_beside_nulls() -> None:
    great = (1 << 53) + 1
    rows = [row(1, name="anne", total=great), None, row(2, name=None, total=None), row(3, tags=["x", "y"])]
    found = over_frames("in_capitals", records([insert(1), insert(9), insert(2), insert(3)], after=rows))
    assert found.after is not None
    made = found.after.to_pylist()
    assert [None if one is None else one["total"] for one in made] == [great + 1, None, None, None]
    assert made[0]["name"] == "ANNE"
    assert made[1] is None
    assert made[3]["tags"] == ["x", "y"]


def test_frames_of_other_types_and_orders_of_columns_become_the_table_again() -> None:
    rows = [row(1, total=3), row(2, name="b", total=None)]
    found = over_frames("with_plain_columns", records([insert(1), insert(2)], after=rows))
    assert found.after is not None
    assert found.after.to_pylist() == rows


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("upside_down", "in the order in which they came, with their keys"),
        ("without_names", "the columns that it was given"),
        ("one_row_less_of_frame", "a DataFrame of as many rows"),
        ("failing", r"dataframe_functions.shop.\* failed with KeyError"),
    ],
)
def test_function_over_dataframes_that_breaks_the_rows_is_refused_without_their_values(
    function: str, message: str
) -> None:
    given = records([insert(1), insert(2)], after=[row(1, name="secret"), row(2)])
    with pytest.raises(InvalidValue, match=message) as refused:
        over_frames(function, given)
    assert "secret" not in str(refused.value)
    assert "shop.orders" in str(refused.value)


def test_both_kinds_of_functions_are_applied_to_a_table() -> None:
    settings = TransformSettings(
        functions={"shop.orders": f"{__name__}:double_totals"},
        dataframe_functions={"shop.orders": f"{__name__}:in_capitals"},
    )
    found = next(iter(Transforms(settings, Functions()).apply([records([insert(1)], after=[row(1, total=3)])])))
    assert found.after is not None
    assert found.after.to_pylist()[0]["total"] == 7


def keys_swapped(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take([1, 0])


def test_own_function_must_keep_the_rows() -> None:
    made = Transforms(TransformSettings(functions={"shop.orders": f"{__name__}:one_row_less"}), Functions())
    with pytest.raises(InvalidValue, match="as many rows"):
        list(made.apply([records([insert(1)], after=[row(1)])]))
    with pytest.raises(InvalidSetting, match="whole rows"):
        list(made.apply([records([insert(1)])]))
    made = Transforms(TransformSettings(functions={"shop.orders": f"{__name__}:keys_swapped"}), Functions())
    with pytest.raises(InvalidValue, match="with their keys"):
        list(made.apply([records([insert(1), insert(2)], after=[row(1), row(2)])]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exclude_columns": ["shop.orders"]}, "it looks like keyspace.table.column"),
        ({"filters": {"shop": "a = 1"}}, "it looks like keyspace.table"),
        ({"filters": {"shop.orders": "total >"}}, "not a condition"),
        ({"masks": {"shop.orders.name": "scramble"}}, "not a mask"),
        ({"skipped_operations": ["x"]}, "no such operation"),
        ({"mask_salt_file": "/nowhere/salt"}, "cannot read the salt"),
    ],
)
def test_wrong_settings_are_refused_before_any_table_is_known(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        Transforms(TransformSettings.model_validate(settings), Functions())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"masks": {"shop.orders.name": "hash"}}, "needs transform.mask_salt"),
        ({"masks": {"shop.orders.tags": "null"}}, "cannot be masked"),
        ({"masks": {"shop.orders.line": "hash"}, "mask_salt": "s"}, "only partition columns"),
        ({"masks": {"shop.orders.total": "truncate:3"}}, "only text and bytes"),
        ({"filters": {"shop.orders": "nothing = 1"}}, "nothing"),
    ],
)
def test_settings_that_do_not_fit_a_table_are_refused_before_the_stream_starts(
    settings: dict[str, Any], message: str
) -> None:
    made = Transforms(TransformSettings.model_validate(settings), Functions())
    with pytest.raises((InvalidSetting, InvalidStatement), match=message):
        check_against(made, [SCHEMA])


def test_tables_that_are_routed_have_no_id_because_several_may_have_one_target() -> None:
    transforms = Transforms(TransformSettings.model_validate({"routes": {"shop.*": "lake.all"}}), Functions())
    assert transforms.target(replace(SCHEMA, id="one")).id == ""
    given = replace(records([Change(Op.TRUNCATE, time=1)], [None]), schema=replace(SCHEMA, id="one"))
    assert next(iter(transforms.apply([given]))).since_truncation() is None


def test_a_table_made_anew_is_not_taken_for_the_old_one_of_the_same_columns() -> None:
    transforms = Transforms(TransformSettings.model_validate({"exclude_columns": ["shop.*.photo"]}), Functions())
    ids = [transforms.target(replace(SCHEMA, id=name)).id for name in ("one", "two")]
    assert ids == ["one", "two"]
