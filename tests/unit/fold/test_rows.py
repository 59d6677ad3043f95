"""What the records of whole rows say, case by case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InvalidValue
from penstock.fold.bootstrap import changes_of_rows
from penstock.formats import avro
from penstock.model import types
from penstock.model.change import Bound, Change, Deleted, Deletion, Delta, Element, Expiry, Marker, Op, Range, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records.records import Records
from penstock.settings import Copies, MergeSettings, RecordType
from tests.folding import Pipeline, runs_of

CARTS = TableSchema(
    TableId("shop", "carts"),
    (
        Column("customer", types.INT32, Role.PARTITION),
        Column("item", types.TEXT, Role.CLUSTERING),
        Column("owner", types.TEXT, Role.STATIC),
        Column("count", types.INT32),
        Column("tags", types.set_of(types.TEXT, multi_cell=True)),
    ),
)
STOCK = TableSchema(
    TableId("shop", "stock"),
    (Column("item", types.TEXT, Role.PARTITION), Column("count", types.INT32), Column("place", types.TEXT)),
)


def insert(item: str, time: int, **cells: Any) -> Change:
    values = {name: cell if isinstance(cell, Set | Deleted | Delta) else Set(cell) for name, cell in cells.items()}
    return Change(Op.INSERT, {"item": item}, values, time=time, marker=Marker())


def cart(item: str, time: int, count: int) -> Change:
    return Change(Op.INSERT, {"customer": 1, "item": item}, {"count": Set(count)}, time=time, marker=Marker())


class Case:
    """A pipeline of one bucket, with batches as lists of changes."""

    def __init__(self, directory: Path, schema: TableSchema, record: RecordType = RecordType.ALL, **how: Any) -> None:
        self.schema = schema
        self.pipeline = Pipeline(str(directory), 1, record, **how)

    def fold(self, *changes: Change, now_s: int = 0, schema: TableSchema | None = None) -> list[Records]:
        schema = schema or self.schema
        runs = runs_of(schema, "n1", changes, 1) if changes else []
        return self.pipeline.fold(runs, now_s)

    def told(self, *changes: Change, now_s: int = 0, schema: TableSchema | None = None) -> list[tuple[Any, ...]]:
        """Per record: operation, row before, row after."""
        out = []
        for records in self.fold(*changes, now_s=now_s, schema=schema):
            assert records.before is not None
            assert records.after is not None
            said = avro.decode(records.changes)
            ops = [change.op for change in said]
            # What is known without reading the changes is what they say.
            assert [list(Op)[number] for number in records.ops] == ops
            assert records.times is None or records.times.tolist() == [change.time for change in said]
            times = [change.time for change in said if change.time is not None]
            assert records.newest_time() == max(times, default=None)
            assert not records.single or len(set(records.keys().to_pylist())) == len(records)
            out += list(zip(ops, records.before.to_pylist(), records.after.to_pylist(), strict=True))
        return out


def test_a_row_grows_cell_by_cell_and_each_record_has_before_and_after(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    first = {"item": "nut", "count": 5, "place": "A"}
    second = {"item": "nut", "count": 4, "place": "A"}
    assert case.told(insert("nut", 10, count=5, place="A")) == [(Op.INSERT, None, first)]
    update = Change(Op.UPDATE, {"item": "nut"}, {"count": Set(4)}, time=20)
    assert case.told(update, update) == [(Op.UPDATE, first, second)]
    assert case.told(update) == []
    gone = Change(Op.DELETE_PARTITION, {"item": "nut"}, time=30)
    assert case.told(gone) == [(Op.DELETE, second, None)]
    assert case.told(insert("nut", 25, count=9)) == []
    assert case.told(insert("nut", 31, count=9)) == [(Op.INSERT, None, {"item": "nut", "count": 9, "place": None})]


def test_changes_of_one_batch_are_delivered_in_the_order_of_their_write_times(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    told = case.told(insert("nut", 20, count=2), insert("nut", 10, count=1))
    assert [after["count"] for _, _, after in told] == [1, 2]


def test_only_the_last_record_of_a_row_says_what_was_before_the_batch(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK, every=False)
    case.fold(insert("nut", 1, count=1))
    told = case.told(insert("nut", 2, count=2), insert("nut", 3, count=3), insert("bolt", 3, count=7))
    by_item = {after["item"]: (before and before["count"], after["count"]) for _, before, after in told}
    assert by_item == {"nut": (1, 3), "bolt": (None, 7)}


def test_the_last_record_of_a_partitions_static_row_is_not_its_deletion(tmp_path: Path) -> None:
    case = Case(tmp_path, CARTS, every=False)
    case.fold(Change(Op.UPDATE, {"customer": 1}, {"owner": Set("ann")}, time=5))
    told = case.told(Change(Op.DELETE_PARTITION, {"customer": 1}, time=20))
    assert [(op, after) for op, _, after in told] == [(Op.DELETE, None), (Op.DELETE_PARTITION, None)]


def test_a_partition_deletion_tells_each_row_that_it_takes_and_then_itself(tmp_path: Path) -> None:
    case = Case(tmp_path, CARTS)
    case.fold(cart("a", 10, 1), cart("b", 30, 2))
    told = case.told(Change(Op.DELETE_PARTITION, {"customer": 1}, time=20))
    assert [(op, after) for op, _, after in told] == [(Op.DELETE, None), (Op.DELETE_PARTITION, None)]
    assert told[0][1]["item"] == "a"


def test_a_range_deletion_tells_the_rows_inside_it(tmp_path: Path) -> None:
    case = Case(tmp_path, CARTS)
    case.fold(*(cart(item, 10, 1) for item in "abcd"))
    where = Range(Bound(("b",), True), Bound(("d",), False))
    told = case.told(Change(Op.DELETE_RANGE, {"customer": 1}, time=20, deletion=Deletion(20), range=where))
    assert [(op, before and before["item"]) for op, before, _ in told] == [
        (Op.DELETE, "b"),
        (Op.DELETE, "c"),
        (Op.DELETE_RANGE, None),
    ]
    assert case.told(cart("b", 15, 9)) == []
    assert [after["count"] for _, _, after in case.told(cart("b", 21, 9))] == [9]


def test_a_static_cell_shows_in_every_row_and_alone_where_there_is_none(tmp_path: Path) -> None:
    case = Case(tmp_path, CARTS)
    owner = Change(Op.UPDATE, {"customer": 1}, {"owner": Set("ann")}, time=5)
    ((op, before, after),) = case.told(owner)
    assert (op, before, after["owner"], after["item"]) == (Op.UPDATE, None, "ann", None)
    # The first row takes the place of the row without clustering values.
    told = case.told(cart("a", 10, 1))
    assert [(op, after and (after["item"], after["owner"])) for op, _, after in told] == [
        (Op.INSERT, ("a", "ann")),
        (Op.DELETE, None),
    ]
    case.fold(cart("b", 10, 1))
    told = case.told(replace(owner, cells={"owner": Set("bob")}, time=20))
    assert [(after["item"], after["owner"]) for _, _, after in told] == [("a", "bob"), ("b", "bob")]


def test_a_truncated_table_tells_all_rows_and_keeps_later_ones(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    case.fold(insert("nut", 10, count=1), insert("bolt", 30, count=2))
    told = case.told(Change(Op.TRUNCATE, time=20, deletion=Deletion(20)))
    assert [(op, before and before["item"], after) for op, before, after in told] == [
        (Op.DELETE, "nut", None),
        (Op.TRUNCATE, None, None),
    ]
    assert case.told(insert("nut", 15, count=3)) == []
    assert case.told(Change(Op.TRUNCATE, time=20, deletion=Deletion(20))) == []


def test_a_cell_that_expires_makes_a_record_at_its_second(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    case.fold(insert("nut", 10, count=Set(5, None, Expiry(60, 100)), place="A"), now_s=50)
    assert case.pipeline.store.next_due_s() == 100
    assert case.told(now_s=99) == []
    (records,) = case.fold(now_s=100)
    (change,) = avro.decode(records.changes)
    assert (change.op, change.time, change.commit_time) == (Op.UPDATE, None, 100_000_000)
    assert change.cells == {"count": Deleted(10, 100)}
    assert records.after is not None
    assert records.after.to_pylist() == [{"item": "nut", "count": None, "place": "A"}]
    assert case.told(now_s=101) == []
    assert case.pipeline.store.next_due_s() is None


def test_a_row_whose_last_cell_expires_is_deleted(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    case.fold(Change(Op.UPDATE, {"item": "nut"}, {"count": Set(5, None, Expiry(1, 100))}, time=10))
    assert [(op, after) for op, _, after in case.told(now_s=100)] == [(Op.DELETE, None)]


def test_elements_of_a_collection_are_joined_and_expire(tmp_path: Path) -> None:
    case = Case(tmp_path, CARTS)
    row = {"customer": 1, "item": "a"}
    elements = (Element("new"), Element("hot", None, None, Expiry(1, 50)))
    case.fold(cart("a", 5, 1), Change(Op.UPDATE, row, {"tags": Delta(None, elements)}, time=10))
    # A plain cell of the row changes, and the collection stays as it is.
    ((_, _, after),) = case.told(cart("a", 11, 2))
    assert (after["count"], after["tags"]) == (2, ["hot", "new"])
    ((op, _, after),) = case.told(now_s=50)
    assert (op, after["tags"]) == (Op.UPDATE, ["new"])


def test_a_new_column_shows_in_rows_that_were_written_before_it(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    case.fold(insert("nut", 10, count=1, place="A"))
    wider = replace(STOCK, version=2, columns=(STOCK.columns[0], Column("colour", types.TEXT), *STOCK.columns[1:]))
    colour = Change(Op.UPDATE, {"item": "nut"}, {"colour": Set("red")}, time=20)
    ((_, before, after),) = case.told(colour, schema=wider)
    assert before == {"item": "nut", "colour": None, "count": 1, "place": "A"}
    assert after == {"item": "nut", "colour": "red", "count": 1, "place": "A"}
    # A late change of the older version still counts.
    ((_, _, after),) = case.told(insert("nut", 30, count=2))
    assert after == {"item": "nut", "colour": "red", "count": 2, "place": "A"}


def test_a_column_that_was_dropped_and_added_again_begins_empty(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    case.fold(insert("nut", 10, count=1, place="A"))
    without = replace(STOCK, version=2, columns=STOCK.columns[:2])
    again = replace(STOCK, version=3)
    again = replace(again, columns=(*STOCK.columns[:2], replace(STOCK.columns[2], source_type="varchar")))
    case.fold(insert("bolt", 20, count=1), schema=without)
    ((_, _, after),) = case.told(insert("nut", 30, count=2), schema=again)
    assert after == {"item": "nut", "count": 2, "place": None}


NO_PLACE = replace(STOCK, version=2, columns=STOCK.columns[:2], dropped=(("place", 15),))
PLACE_AGAIN = replace(STOCK, version=3, columns=(*STOCK.columns[:2], replace(STOCK.columns[2], dropped_us=15)))


def test_a_dropped_column_takes_its_values_and_the_rows_that_it_kept_alive(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    case.fold(
        insert("nut", 10, count=1, place="A"),
        insert("bolt", 10, count=1),
        Change(Op.UPDATE, {"item": "gear"}, {"place": Set("B")}, time=10),
    )
    told = case.told(insert("pin", 20, count=1), schema=NO_PLACE)
    assert sorted((str(op), before, after) for op, before, after in told) == [
        ("delete", {"item": "gear", "count": None}, None),
        ("insert", None, {"item": "pin", "count": 1}),
        ("update", {"item": "nut", "count": 1}, {"item": "nut", "count": 1}),
    ]
    # Once is enough, and a late copy brings nothing back.
    assert case.told(insert("nut", 10, count=1, place="A")) == []
    assert case.told(insert("nut", 10, count=1, place="A"), schema=PLACE_AGAIN) == []


def test_a_cell_newer_than_the_drop_of_its_column_shows_when_the_column_is_there_again(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    case.fold(insert("nut", 10, count=1, place=Set("later", 17)), insert("bolt", 10, count=1, place="A"))
    told = case.told(insert("pin", 20, count=1), schema=NO_PLACE)
    assert {after["item"] for _, _, after in told} == {"nut", "bolt", "pin"}
    # What comes late, of the version that had the column, waits as well.
    assert case.told(Change(Op.UPDATE, {"item": "bolt"}, {"place": Set("late")}, time=16)) == []
    told = case.told(insert("pin", 30, count=2), schema=PLACE_AGAIN)
    assert {after["item"]: after["place"] for _, _, after in told} == {"nut": "later", "bolt": "late", "pin": None}
    assert case.told(insert("gear", 40, count=1), schema=PLACE_AGAIN)[0][2]["item"] == "gear"


def test_a_renamed_key_column_is_still_the_key(tmp_path: Path) -> None:
    case = Case(tmp_path, CARTS)
    case.fold(cart("a", 10, 1), cart("b", 10, 2))
    columns = [replace(c, name={"customer": "buyer", "item": "thing"}.get(c.name, c.name)) for c in CARTS.columns]
    renamed = replace(CARTS, version=2, columns=tuple(columns))
    update = Change(Op.UPDATE, {"buyer": 1, "thing": "a"}, {"count": Set(9)}, time=20)
    ((_, before, after),) = case.told(update, schema=renamed)
    assert (before["count"], after["count"], after["buyer"], after["thing"]) == (1, 9, 1, "a")
    # A late range deletion of the older version still finds its rows.
    where = Range(Bound(("b",), True), None)
    told = case.told(Change(Op.DELETE_RANGE, {"customer": 1}, time=30, deletion=Deletion(30), range=where))
    assert [(op, before and before["thing"]) for op, before, _ in told] == [(Op.DELETE, "b"), (Op.DELETE_RANGE, None)]


def test_a_column_of_a_wider_type_keeps_its_values_and_of_another_type_does_not(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    case.fold(insert("nut", 10, count=1, place="A"))
    wider = (STOCK.columns[0], Column("count", types.INT64), Column("place", types.INET))
    update = Change(Op.UPDATE, {"item": "nut"}, {"count": Set(1 << 40)}, time=20)
    ((_, before, after),) = case.told(update, schema=replace(STOCK, version=2, columns=wider))
    assert (before["count"], after["count"]) == (1, 1 << 40)
    assert (before["place"], after["place"]) == (None, None)


@pytest.mark.parametrize("multi_cell", [False, True])
def test_a_user_type_with_one_more_field_keeps_its_values(tmp_path: Path, multi_cell: bool) -> None:
    key = Column("item", types.TEXT, Role.PARTITION)
    small = types.user("size", {"x": types.INT32, "y": types.TEXT}, multi_cell=multi_cell)
    large = types.user("size", {"x": types.INT32, "y": types.TEXT, "z": types.INT32}, multi_cell=multi_cell)
    first = TableSchema(TableId("shop", "boxes"), (key, Column("size", small)))
    second = replace(first, version=2, columns=(key, Column("size", large), Column("count", types.INT32)))
    case = Case(tmp_path, first)
    case.fold(insert("box", 10, size=(1, "a")))
    ((_, before, after),) = case.told(insert("box", 20, count=3), schema=second)
    assert before["size"] == after["size"] == {"x": 1, "y": "a", "z": None}


@pytest.mark.parametrize("shape", ["frozen", "non-frozen", "list", "map", "inside of another"])
def test_a_user_type_whose_fields_were_renamed_keeps_its_values(tmp_path: Path, shape: str) -> None:
    def table(version: int, *names: str) -> TableSchema:
        fields = dict(zip(names, (types.INT32, types.TEXT, types.INT32), strict=False))
        size = types.user("size", fields)
        kinds = {
            "non-frozen": types.user("size", fields, multi_cell=True),
            "list": types.list_of(size, multi_cell=True),
            "map": types.map_of(types.TEXT, size),
            "inside of another": types.user("outer", {f"inner{version}": size}),
        }
        columns = (Column("item", types.TEXT, Role.PARTITION), Column("size", kinds.get(shape, size)))
        return TableSchema(TableId("shop", "boxes"), (*columns, Column("count", types.INT32)), version)

    def shown(version: int, *values: Any) -> Any:
        row = dict(zip(("y", "x", "z"), values, strict=False))
        return {"list": [row], "map": [("m", row)], "inside of another": {f"inner{version}": row}}.get(shape, row)

    value: Any = (1, "a")
    wrapped = {"list": (value,), "map": (("m", value),), "inside of another": (value,)}.get(shape, value)
    case = Case(tmp_path, table(1, "x", "y"))
    case.fold(insert("box", 10, size=wrapped))
    # The two fields have exchanged their names, and there is a third.
    ((_, before, after),) = case.told(insert("box", 20, count=3), schema=table(2, "y", "x", "z"))
    assert before["size"] == after["size"] == shown(2, 1, "a", None)


def test_copies_under_two_schema_versions_are_one_change(tmp_path: Path) -> None:
    wider = replace(STOCK, version=2, columns=(*STOCK.columns, Column("colour", types.TEXT)))
    change = insert("nut", 10, count=1)
    pipeline = Pipeline(str(tmp_path), 1, RecordType.CHANGE)
    runs = runs_of(STOCK, "n1", [change], 1) + runs_of(wider, "n2", [change], 1)
    assert sum(map(len, pipeline.fold(runs, 0))) == 1


def test_every_copy_is_passed_on_when_asked_for(tmp_path: Path) -> None:
    merge = MergeSettings(copies=Copies.EACH)
    pipeline = Pipeline(str(tmp_path), 1, RecordType.CHANGE, merge=merge)
    change = insert("nut", 10, count=1)
    runs = runs_of(STOCK, "n1", [change], 1) + runs_of(STOCK, "n2", [change], 1)
    (records,) = pipeline.fold(runs, 0)
    assert len(records) == 2
    assert records.versions.to_pylist() == [10, 11]


def test_whole_rows_wait_for_the_quorum_too(tmp_path: Path) -> None:
    merge = MergeSettings(copies=Copies.QUORUM, quorum=2)
    pipeline = Pipeline(str(tmp_path), 1, RecordType.AFTER, merge=merge)
    change = insert("nut", 10, count=1)
    assert pipeline.fold(runs_of(STOCK, "n1", [change], 1), 0) == []
    (records,) = pipeline.fold(runs_of(STOCK, "n2", [change], 1), 0)
    assert len(records) == 1
    assert pipeline.fold(runs_of(STOCK, "n3", [change], 1), 0) == []


def test_a_change_that_was_given_back_waits_for_no_quorum(tmp_path: Path) -> None:
    merge = MergeSettings(copies=Copies.QUORUM, quorum=3)
    pipeline = Pipeline(str(tmp_path), 1, RecordType.AFTER, merge=merge)
    change = insert("nut", 10, count=1)
    (records,) = pipeline.fold(runs_of(STOCK, "replayed", [change], 1), 0)
    assert len(records) == 1
    assert pipeline.fold(runs_of(STOCK, "n1", [change], 1), 0) == []


def test_rows_that_a_target_has_are_where_the_first_batch_begins(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    rows = pa.RecordBatch.from_pylist(
        [{"item": "nut", "count": 5, "place": None}, {"item": "bolt", "count": 1, "place": "B"}]
    )
    case.pipeline.store.load(
        [
            changes_of_rows(
                STOCK,
                rows.cast(pa.schema([("item", pa.string()), ("count", pa.int64()), ("place", pa.string())])),
                [10, 20],
            )
        ]
    )
    assert case.pipeline.store.committed == -1
    assert case.told(insert("bolt", 15, count=9)) == []
    update = Change(Op.UPDATE, {"item": "bolt"}, {"count": Set(2)}, time=30)
    before = {"item": "bolt", "count": 1, "place": "B"}
    assert case.told(update) == [(Op.UPDATE, before, {**before, "count": 2})]


def test_a_change_without_a_write_time_cannot_be_joined(tmp_path: Path) -> None:
    case = Case(tmp_path, STOCK)
    with pytest.raises(InvalidValue, match="without a write time"):
        case.fold(Change(Op.INSERT, {"item": "nut"}, {"count": Set(1)}, marker=Marker()))


def test_a_deletion_that_covers_some_static_cells_shows_in_the_row_that_they_make(tmp_path: Path) -> None:
    wider = replace(CARTS, columns=(*CARTS.columns, Column("city", types.TEXT, Role.STATIC)))
    case = Case(tmp_path, wider)
    key = {"customer": 1}
    case.fold(Change(Op.UPDATE, key, {"owner": Set("ann"), "city": Set("Ulm", 30)}, time=5))
    told = case.told(Change(Op.DELETE_PARTITION, key, time=20))
    assert [(op, after and (after["owner"], after["city"])) for op, _, after in told] == [
        (Op.UPDATE, (None, "Ulm")),
        (Op.DELETE_PARTITION, None),
    ]


def test_a_static_cell_of_a_change_whose_row_stays_dead_shows_in_the_row_without_clustering_values(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, CARTS)
    case.fold(Change(Op.UPDATE, {"customer": 1}, {"owner": Set("ann")}, time=5))
    row = {"customer": 1, "item": "a"}
    told = case.told(Change(Op.UPDATE, row, {"owner": Set("bob")}, time=10, deletion=Deletion(10)))
    assert [(op, after and (after["item"], after["owner"])) for op, _, after in told] == [
        (Op.UPDATE, None),
        (Op.UPDATE, (None, "bob")),
    ]
