"""Tables learned from Cassandra's schema tables, in whatever order their rows come."""

from __future__ import annotations

import itertools
import json
import random
import uuid
from dataclasses import replace
from typing import Any

import pytest

from penstock.capture.cassandra.schema.definitions import TableDefinitions
from penstock.capture.cassandra.schema.rows import SchemaRow, rows_of
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.system_tables import SCHEMA_TABLES, SYSTEM, SYSTEM_KEYSPACES, system_table_id
from penstock.capture.cassandra.schema.table import CassandraTable, DroppedColumn, Truncation
from penstock.errors import InvalidSchema
from penstock.model import types as t
from penstock.model.change import Bound, Range, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from tests.schema_changes import column, dropped_keyspace, gone, place, range_gone, row, table_row

ID, OTHER_ID = uuid.UUID(int=0x1111), uuid.UUID(int=0x2222)
NAME = TableId("ks", "orders")


def created(time: int = 100, table_id: uuid.UUID = ID) -> list[SchemaRow]:
    """CREATE TABLE ks.orders, a static and two regular columns, one clustering column in descending order."""
    return [
        table_row(time, "orders", table_id, cdc=True, flags=("compound",)),
        column(time, "orders", "shop", "partition_key", 1, "text"),
        column(time, "orders", "year", "partition_key", 0, "int"),
        column(time, "orders", "at", "clustering", 0, "timeuuid", "desc"),
        column(time, "orders", "owner", "static", -1, "text"),
        column(time, "orders", "total", "regular", -1, "decimal"),
        column(time, "orders", "items", "regular", -1, "map<text, int>"),
    ]


def learned(*groups: SchemaRow | list[SchemaRow]) -> Schemas:
    """What is known after these mutations: a list is one mutation, as one statement makes it."""
    schemas = Schemas()
    for group in groups:
        schemas.load([group] if isinstance(group, SchemaRow) else group)
    return schemas


def orders(schemas: Schemas) -> CassandraTable:
    found = schemas.by_name(NAME)
    assert found is not None
    return found


def names(table: CassandraTable) -> list[str]:
    return [one.name for one in table.schema.columns]


def test_a_created_table_is_known_by_id_and_name() -> None:
    schemas = learned(created())
    table = orders(schemas)
    assert schemas.table(ID) is table
    assert schemas.tables() == [table]
    assert (table.id, table.cdc, table.view, table.schema.source, table.schema.version) == (
        ID,
        True,
        False,
        "cassandra",
        1,
    )


def test_columns_stand_as_select_gives_them() -> None:
    table = orders(learned(created()))
    assert names(table) == ["year", "shop", "at", "owner", "items", "total"]
    assert table.schema.by_name["at"] == Column("at", t.TIMEUUID, Role.CLUSTERING, True, "timeuuid")
    assert table.schema.by_name["owner"].role is Role.STATIC
    assert table.schema.by_name["items"].type.multi_cell


def test_names_are_ordered_by_their_bytes() -> None:
    more = [column(110, "orders", name, "regular", -1, "int") for name in ("Z", "é", "a_b", "aB")]
    table = orders(learned(created(), more))
    assert names(table)[4:] == ["Z", "aB", "a_b", "items", "total", "é"]


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    rows = [
        *created(),
        column(120, "orders", "note", "regular", -1, "text"),
        gone("columns", 130, ("orders", "total")),
        row("dropped_columns", 130, ("orders", "total"), dropped_time=1, kind="regular", type="decimal"),
        row("types", 90, ("addr",), field_names=("a",), field_types=("int",)),
        column(140, "orders", "home", "regular", -1, "frozen<addr>"),
        row("types", 150, ("addr",), field_names=("a", "b"), field_types=("int", "text")),
    ]
    wanted = orders(learned(rows))
    random.Random(seed).shuffle(rows)
    for found in (orders(learned(rows)), orders(learned(*rows))):
        assert found.schema.columns == wanted.schema.columns
        assert found.dropped == wanted.dropped


def test_older_rows_never_undo_newer_ones() -> None:
    schemas = learned(created(), column(200, "orders", "total", "regular", -1, "double"))
    before = orders(schemas)
    assert schemas.load(created()) == set()
    assert orders(schemas) == before


def test_learning_tells_what_changed() -> None:
    schemas = Schemas()
    first, *rest = created()
    assert schemas.learn(first.table, [first.change]) == set()
    assert schemas.load(rest) == {ID}
    note = column(200, "orders", "note", "regular", -1, "text")
    assert schemas.learn(note.table, [note.change]) == {ID}
    assert schemas.learn(note.table, [note.change]) == set()
    drop = gone("tables", 300, ("orders",))
    assert schemas.learn(drop.table, [drop.change]) == {ID}


@pytest.mark.parametrize("missing", ["tables row", "year", "at"])
def test_a_table_is_not_usable_until_it_is_whole(missing: str) -> None:
    rows = [*created(), column(100, "orders", "no", "clustering", 1, "int", "asc")]
    last = rows.pop({"tables row": 0, "year": 2, "at": 3}[missing])
    schemas = learned(rows)
    assert schemas.table(ID) is None
    assert schemas.tables() == []
    assert schemas.learn(last.table, [last.change]) == {ID}
    assert schemas.table(ID) is not None


def test_a_table_waits_for_its_user_types() -> None:
    schemas = learned(created(), column(100, "orders", "home", "regular", -1, "frozen<addr>"))
    before = schemas.table(ID)
    assert before is not None
    assert "home" not in names(before)
    schemas = learned([column(100, "orders", "home", "regular", -1, "frozen<addr>"), *created()])
    assert schemas.table(ID) is None
    type_row = row("types", 90, ("addr",), field_names=("a",), field_types=("int",))
    assert schemas.learn(type_row.table, [type_row.change]) == {ID}
    assert orders(schemas).schema.by_name["home"].type == t.user("addr", {"a": t.INT32})


def test_an_altered_type_alters_the_tables_that_use_it() -> None:
    addr = row("types", 90, ("addr",), field_names=("a",), field_types=("int",))
    inner = row("types", 90, ("outer",), field_names=("x",), field_types=("frozen<addr>",))
    home = column(100, "orders", "home", "regular", -1, "list<frozen<outer>>")
    schemas = learned(addr, inner, created(), home)
    other = [table_row(100, "plain", OTHER_ID), column(100, "plain", "k", "partition_key", 0, "int")]
    schemas.load(other)
    assert orders(schemas).schema.version == 2
    grown = row("types", 200, ("addr",), field_names=("a", "b"), field_types=("int", "text"))
    assert schemas.learn(grown.table, [grown.change]) == {ID}
    assert orders(schemas).schema.version == 3
    assert orders(schemas).schema.by_name["home"].type.elements[0].elements[0].names == ("a", "b")
    renamed = row("types", 300, ("addr",), field_names=("a", "c"), field_types=("int", "text"))
    assert schemas.learn(renamed.table, [renamed.change]) == {ID}


def test_a_dropped_column_is_remembered_with_its_type() -> None:
    schemas = learned(
        created(),
        gone("columns", 200, ("orders", "items")),
        row("dropped_columns", 200, ("orders", "items"), dropped_time=7, kind="regular", type="map<text, int>"),
        gone("columns", 200, ("orders", "owner")),
        row("dropped_columns", 200, ("orders", "owner"), dropped_time=8, kind="static", type="text"),
    )
    table = orders(schemas)
    assert names(table) == ["year", "shop", "at", "total"]
    items = Column("items", t.map_of(t.TEXT, t.INT32, multi_cell=True), source_type="map<text, int>")
    assert table.dropped["items"] == DroppedColumn(items, 7000)
    assert table.dropped["owner"].column.role is Role.STATIC
    assert table.schema.dropped == (("items", 7000), ("owner", 8000))


def test_a_column_that_was_added_again_is_both_there_and_dropped() -> None:
    schemas = learned(
        created(),
        gone("columns", 200, ("orders", "total")),
        row("dropped_columns", 200, ("orders", "total"), dropped_time=7, kind="regular", type="decimal"),
        column(300, "orders", "total", "regular", -1, "decimal"),
    )
    table = orders(schemas)
    assert "total" in names(table)
    assert "total" in table.dropped
    assert table.schema.dropped == ()
    assert table.schema.by_name["total"].dropped_us == 7000


def test_a_renamed_key_column_changes_the_version() -> None:
    schemas = learned(created())
    old, new = gone("columns", 200, ("orders", "shop")), column(200, "orders", "store", "partition_key", 1, "text")
    assert schemas.learn(place("columns"), [old.change, new.change]) == {ID}
    assert names(orders(schemas))[:2] == ["year", "store"]
    assert orders(schemas).schema.version == 2


def test_half_a_rename_leaves_the_table_as_it_was() -> None:
    schemas = learned(created())
    old, new = gone("columns", 200, ("orders", "year")), column(200, "orders", "season", "partition_key", 0, "int")
    for first, second in ((old, new), (new, old)):
        fresh = Schemas.from_json(schemas.to_json())
        assert fresh.learn(first.table, [first.change]) == set()
        assert names(orders(fresh))[:2] == ["year", "shop"]
        saved = Schemas.from_json(json.loads(json.dumps(fresh.to_json())))
        assert names(orders(saved))[:2] == ["year", "shop"]
        assert saved.learn(second.table, [second.change]) == {ID}
        assert names(orders(saved))[:2] == ["season", "shop"]


def test_cdc_can_be_switched_without_a_new_schema_version() -> None:
    schemas = learned(created())
    off = row("tables", 200, ("orders",), cdc=False)
    assert schemas.learn(off.table, [off.change]) == {ID}
    assert (orders(schemas).cdc, orders(schemas).schema.version) == (False, 1)
    on = row("tables", 300, ("orders",), cdc=True)
    schemas.learn(on.table, [on.change])
    assert orders(schemas).cdc


def test_options_that_concern_no_reader_change_nothing() -> None:
    schemas = learned(created())
    for more in (row("tables", 200, ("orders",), comment="x"), row("indexes", 200, ("orders", "i"), kind="KEYS")):
        assert schemas.learn(more.table, [more.change]) == set()


def test_changes_of_other_tables_teach_nothing() -> None:
    schemas = Schemas()
    assert schemas.learn(TableId("ks", "tables"), [created()[0].change]) == set()
    assert schemas.revision == 0


def test_the_revision_grows_with_every_row() -> None:
    schemas = Schemas()
    revisions = [schemas.revision]
    for one in created():
        schemas.learn(one.table, [one.change])
        revisions.append(schemas.revision)
    assert revisions == sorted(set(revisions))


def test_a_dropped_table_is_still_known_by_its_id() -> None:
    schemas = learned(created(), gone("tables", 200, ("orders",)))
    assert schemas.by_name(NAME) is None
    assert schemas.tables() == []
    assert schemas.table(ID) is not None
    again = Schemas.from_json(json.loads(json.dumps(schemas.to_json())))
    assert again.table(ID) == schemas.table(ID)


def test_a_table_that_was_made_anew_has_a_new_id_and_a_later_version() -> None:
    drops = [gone("columns", 200, ("orders", name)) for name in ("year", "shop", "at", "owner", "items", "total")]
    total = column(300, "orders", "total", "regular", -1, "decimal")
    # The order of the parts of one mutation is Cassandra's affair: the drop of the columns may come first.
    schemas = learned(created(), drops, gone("tables", 200, ("orders",)), [*created(300, OTHER_ID)[:4], total])
    new, old = orders(schemas), schemas.table(ID)
    assert old is not None
    assert new.id == OTHER_ID
    assert (old.schema.version, names(old)) == (1, ["year", "shop", "at", "owner", "items", "total"])
    assert new.schema.version > 1
    assert names(new) == ["year", "shop", "at", "total"]


def test_a_table_made_anew_with_equal_columns_keeps_its_version() -> None:
    schemas = learned(created(), gone("tables", 200, ("orders",)))
    assert schemas.load(created(300, OTHER_ID)) == {OTHER_ID}
    assert orders(schemas).schema.version == 1


def test_a_replaced_table_without_a_drop_tells_both_ids() -> None:
    schemas = learned(created())
    new = table_row(300, "orders", OTHER_ID)
    assert schemas.learn(new.table, [new.change]) == {ID, OTHER_ID}
    assert schemas.table(ID) is not None


def test_dropping_a_keyspace_drops_its_tables_and_types() -> None:
    schemas = learned(created(), row("types", 90, ("addr",), field_names=("a",), field_types=("int",)))
    assert schemas.load(dropped_keyspace(200)) == {ID}
    assert schemas.tables() == []
    schemas.load(created(300, OTHER_ID))
    home = column(300, "orders", "home", "regular", -1, "frozen<addr>")
    assert schemas.learn(home.table, [home.change]) == set()
    assert orders(schemas).id == OTHER_ID


def test_a_range_deletion_of_columns_counts() -> None:
    schemas = learned(created())
    where = Range(Bound(("orders", "i"), True), Bound(("orders", "s"), False))
    one = range_gone("columns", 200, where)
    assert schemas.learn(one.table, [one.change]) == {ID}
    assert names(orders(schemas)) == ["year", "shop", "at", "total"]


def test_views_are_tables_too() -> None:
    schemas = learned(
        row("views", 100, ("by_total",), id=OTHER_ID, base_table_name="orders", include_all_columns=False),
        column(100, "by_total", "total", "partition_key", 0, "decimal"),
        column(100, "by_total", "year", "clustering", 0, "int", "asc"),
    )
    view = schemas.table(OTHER_ID)
    assert view is not None
    assert view.view
    assert not view.cdc
    drop = gone("views", 200, ("by_total",))
    assert schemas.learn(drop.table, [drop.change]) == {OTHER_ID}


def test_a_counter_is_known_by_its_shards() -> None:
    schemas = learned(created(), column(100, "orders", "hits", "regular", -1, "counter"))
    assert orders(schemas).schema.by_name["hits"].type == t.SHARDED_COUNTER


def test_a_compact_table_keeps_its_hidden_column() -> None:
    schemas = learned(
        table_row(100, "dense", ID, flags=("dense",)),
        column(100, "dense", "k", "partition_key", 0, "int"),
        column(100, "dense", "c", "clustering", 0, "int", "asc"),
        column(100, "dense", "value", "regular", -1, "empty"),
    )
    table = schemas.table(ID)
    assert table is not None
    assert table.schema.by_name["value"] == Column("value", t.BYTES, source_type="empty")


@pytest.mark.parametrize(
    "wrong",
    [{"type": "no<such>"}, {"kind": "novel"}, {"type": None}, {"kind": "partition_key", "position": None}],
)
def test_rows_of_an_unknown_kind_do_not_break_what_is_known(wrong: dict[str, str | None]) -> None:
    schemas = learned(created())
    values: dict[str, Any] = {"kind": "regular", "type": "int", "position": -1, **wrong}
    odd = row("columns", 200, ("orders", "odd"), **values)
    assert schemas.learn(odd.table, [odd.change]) == set()
    assert names(orders(schemas)) == ["year", "shop", "at", "owner", "items", "total"]


def test_what_is_known_survives_saving() -> None:
    schemas = learned(
        row("types", 90, ("addr",), field_names=("a",), field_types=("int",)),
        created(),
        column(150, "orders", "home", "regular", -1, "addr"),
        gone("columns", 200, ("orders", "total")),
        row("dropped_columns", 200, ("orders", "total"), dropped_time=7, kind="regular", type="decimal"),
        gone("tables", 300, ("other",)),
    )
    again = Schemas.from_json(json.loads(json.dumps(schemas.to_json())))
    assert again.tables() == schemas.tables()
    assert again.table(ID) == schemas.table(ID)
    assert json.loads(json.dumps(again.to_json())) == json.loads(json.dumps(schemas.to_json()))
    # An older CREATE of the dropped table still loses against the drop.
    late = [table_row(250, "other", OTHER_ID), column(250, "other", "k", "partition_key", 0, "int")]
    again.load(late)
    assert again.table(OTHER_ID) is None


@pytest.mark.parametrize(
    "data", [{}, {"format": 2}, {"format": 1}, {"format": 1, "rows": {"tables": [{"op": "x"}]}, "versions": []}]
)
def test_saved_data_that_is_wrong_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(InvalidSchema):
        Schemas.from_json(data)


def test_a_table_from_elsewhere_gives_way_to_the_log() -> None:
    address = t.user("Home Addr", {"Street": t.TEXT, "where": t.tuple_of(t.INT32, t.list_of(t.TEXT))})
    columns = (
        Column("k", t.INT32, Role.PARTITION),
        Column("c", t.TEXT, Role.CLUSTERING, descending=True),
        Column("s", t.set_of(address, multi_cell=True), Role.STATIC),
        Column("v", t.vector(t.FLOAT32, 3)),
    )
    dropped = {"w": DroppedColumn(Column("w", t.INT32, source_type="int"), 5000)}
    given = CassandraTable(ID, TableSchema(NAME, columns, source="cassandra"), cdc=True, dropped=dropped)
    schemas = Schemas()
    assert schemas.add(given) == {ID}
    known = orders(schemas)
    assert [(c.name, c.type, c.role, c.descending) for c in known.schema.columns] == [
        (c.name, c.type, c.role, c.descending) for c in columns
    ]
    assert (known.cdc, known.dropped) == (True, dropped)
    added = column(10, "orders", "x", "regular", -1, "int")
    assert schemas.learn(added.table, [added.change]) == {ID}
    assert names(orders(schemas)) == ["k", "c", "s", "v", "x"]
    assert schemas.add(given) == set()


def test_a_table_becomes_rows_and_the_same_table() -> None:
    schemas = learned(
        row("types", 90, ("addr",), field_names=("a",), field_types=("int",)),
        created(),
        column(100, "orders", "home", "regular", -1, "addr"),
    )
    again = Schemas()
    again.load(rows_of(orders(schemas), 1))
    assert orders(again).schema.columns == orders(schemas).schema.columns
    assert CassandraTable.from_json(json.loads(json.dumps(orders(schemas).to_json()))) == orders(schemas)


@pytest.mark.parametrize("data", [{}, {"id": "x"}, {"id": str(ID), "keyspace": "k", "table": "t", "columns": [3]}])
def test_json_that_is_no_table_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(InvalidSchema):
        CassandraTable.from_json(data)


def test_a_great_many_dropped_tables_are_forgotten_one_by_one() -> None:
    schemas = Schemas()
    for number in range(1, 1003):
        schemas.load(created(number * 10, uuid.UUID(int=number)))
    assert schemas.table(uuid.UUID(int=1)) is None
    assert schemas.table(uuid.UUID(int=2)) is not None
    assert orders(schemas).id == uuid.UUID(int=1002)


def test_the_schema_tables_themselves_are_always_known() -> None:
    schemas = Schemas()
    tables = schemas.table(uuid.UUID("afddfb9d-bc1e-3068-8056-eed6c302ba09"))
    assert tables is not None
    assert tables.schema.table == TableId("system_schema", "tables")
    local = schemas.table(uuid.UUID("7ad54392-bcdd-35a6-8417-4e047860b377"))
    assert local is not None
    assert local.schema.by_name["truncated_at"].type == t.map_of(t.UUID, t.BYTES, multi_cell=True)


def test_system_layouts_are_well_formed() -> None:
    assert {table.schema.table.keyspace for table in SYSTEM.values()} == SYSTEM_KEYSPACES
    assert {name.table for name in SCHEMA_TABLES} == {
        *("aggregates", "column_masks", "columns", "dropped_columns", "functions", "indexes"),
        *("keyspaces", "tables", "triggers", "types", "views"),
    }
    for table, other in itertools.combinations(SYSTEM.values(), 2):
        assert table.schema.table != other.schema.table
    assert all(table.schema.partition for table in SYSTEM.values())


def test_a_system_table_as_learned_keeps_the_columns_of_other_versions() -> None:
    table_id = system_table_id("system_schema", "types")
    rows = [
        row("tables", 1, ("types",), keyspace="system_schema", id=table_id),
        *(
            row("columns", 1, ("types", name), keyspace="system_schema", kind=kind, position=at, type=type_)
            for name, kind, at, type_ in (
                ("keyspace_name", "partition_key", 0, "text"),
                ("type_name", "clustering", 0, "text"),
                ("field_names", "regular", -1, "frozen<list<text>>"),
                ("novelty", "regular", -1, "int"),
            )
        ),
    ]
    schemas = learned(rows)
    found = schemas.table(table_id)
    assert found is not None
    assert names(found) == ["keyspace_name", "type_name", "field_names", "field_types", "novelty"]
    assert schemas.tables() == []


def test_learning_thousands_of_tables_does_not_search_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    original = TableDefinitions._members

    def counted(self: TableDefinitions, table: str, name: TableId) -> object:
        nonlocal looked
        looked += 1
        return original(self, table, name)

    monkeypatch.setattr(TableDefinitions, "_members", counted)
    schemas = Schemas()
    for number in range(300):
        name = f"t{number}"
        rows = [table_row(1, name, uuid.UUID(int=number + 1)), column(1, name, "k", "partition_key", 0, "int")]
        schemas.load(rows)
    assert looked == 2 * 300


def learn(schemas: Schemas, rows: list[SchemaRow]) -> set[uuid.UUID]:
    """As the decoder does: table by table."""
    altered: set[uuid.UUID] = set()
    for table, group in itertools.groupby(rows, key=lambda one: one.table):
        altered |= schemas.learn(table, [one.change for one in group])
    return altered


def test_a_table_that_was_made_anew_meanwhile_is_known_from_the_log() -> None:
    schemas = Schemas()
    home = column(500, "orders", "home", "regular", -1, "frozen<addr>")
    addr = row("types", 90, ("addr",), field_names=("a",), field_types=("int",))
    schemas.load([*created(500, OTHER_ID), addr, home])
    # The log is read from before: the first CREATE, an ALTER with a type from elsewhere, the DROP, the second CREATE.
    assert learn(schemas, created(100)) == {ID}
    old = schemas.table(ID)
    assert old is not None
    assert "home" not in names(old)
    assert ID in learn(schemas, [column(150, "orders", "place", "regular", -1, "frozen<addr>")])
    grown = schemas.table(ID)
    assert grown is not None
    assert names(grown)[-2:] == ["place", "total"]
    assert grown.schema.version == old.schema.version + 1
    learn(schemas, [gone("tables", 200, ("orders",)), gone("columns", 200, ("orders", "place"))])
    assert schemas.table(ID) == grown
    assert orders(schemas).id == OTHER_ID
    assert "place" not in names(orders(schemas))
    again = Schemas.from_json(json.loads(json.dumps(schemas.to_json())))
    assert again.table(ID) == grown
    assert again.by_name(NAME) == orders(schemas)


def test_versions_of_one_name_never_repeat() -> None:
    schemas = Schemas()
    schemas.load([*created(500, OTHER_ID), column(500, "orders", "home", "regular", -1, "int")])
    learn(schemas, created(100))
    seen = {orders(schemas).schema.version: orders(schemas).schema.fingerprint}
    old = schemas.table(ID)
    assert old is not None
    assert old.schema.version not in seen
    seen[old.schema.version] = old.schema.fingerprint
    for time in range(600, 620):
        learn(schemas, [column(time, "orders", f"c{time}", "regular", -1, "int")])
        assert orders(schemas).schema.version not in seen
        seen[orders(schemas).schema.version] = orders(schemas).schema.fingerprint


def test_values_that_are_null_count_as_missing() -> None:
    odd = row("columns", 200, ("orders", "odd"), kind="regular", type="int")
    null = replace(odd.change, cells={**odd.change.cells, "position": Set(None), "clustering_order": Set(None)})
    key = row("columns", 200, ("orders", "odd_key"), kind="clustering", type="int")
    no_position = replace(key.change, cells={**key.change.cells, "position": Set(None)})
    schemas = learned(created())
    assert schemas.learn(odd.table, [null]) == {ID}
    assert schemas.learn(odd.table, [no_position]) == set()


# Tables that are made anew, truncated or switched off, and what their logs are to be told of it.


def dropped(time: int) -> list[SchemaRow]:
    """DROP TABLE ks.orders."""
    names = ("year", "shop", "at", "owner", "items", "total")
    return [gone("tables", time, ("orders",)), *(gone("columns", time, ("orders", name)) for name in names)]


def saved(schemas: Schemas) -> Schemas:
    return Schemas.from_json(json.loads(json.dumps(schemas.to_json())))


def test_table_made_again_with_its_id_says_when_the_one_before_was_altered() -> None:
    schemas = learned(created(100), dropped(200), created(300))
    for found in (schemas, saved(schemas)):
        assert (orders(found).schema.remade_us, orders(found).schema.altered) == (100, 300)
        assert [table.id for table in found.untold()] == [ID]
    schemas.load([table_row(400, "orders", ID, cdc=True, flags=("compound",))])
    assert (orders(schemas).schema.remade_us, orders(schemas).schema.altered) == (100, 400)


def test_truncation_of_a_table_is_not_one_of_the_next_that_has_its_id() -> None:
    schemas = learned(created(100))
    schemas.truncate(ID, Truncation(150, 1, 1, told=True))
    assert orders(schemas).schema.truncated_us == 150
    for group in (dropped(200), created(300)):
        schemas.load(group)
    assert orders(schemas).schema.truncated_us == 0


def test_table_whose_row_is_gone_for_a_moment_is_not_made_again() -> None:
    schemas = learned(created(100), gone("tables", 199, ("orders",)), table_row(200, "orders", ID, cdc=True))
    assert orders(schemas).schema.remade_us == 0
    assert schemas.untold() == []


def test_era_waits_to_be_told_until_it_is_and_longer_than_an_agent_lives() -> None:
    schemas = learned(created(100), dropped(200), created(300, OTHER_ID))
    again = saved(schemas)
    assert [table.id for table in again.untold()] == [OTHER_ID]
    again.tell(OTHER_ID)
    assert again.untold() == []
    assert saved(again).untold() == []


def test_truncation_of_a_table_that_is_not_known_yet_is_not_forgotten() -> None:
    schemas = Schemas()
    schemas.truncate_untold(ID, Truncation(150, 1, 1, told=True))
    assert schemas.untold() == []
    schemas.load(created(100))
    assert [table.schema.truncated_us for table in schemas.untold()] == [150]


def test_nobody_is_told_of_a_table_that_is_gone() -> None:
    schemas = learned(created(100))
    schemas.truncate_untold(ID, Truncation(150, 1, 1, told=True))
    schemas.load(dropped(200))
    assert schemas.untold() == []
    assert schemas.to_json()["untold"] == []


def test_table_that_has_cdc_again_is_named_once() -> None:
    def switched(time: int, *, cdc: bool) -> SchemaRow:
        return table_row(time, "orders", ID, cdc=cdc, flags=("compound",))

    schemas = learned(created(100))
    assert schemas.take_resumed() == []
    schemas.load([switched(200, cdc=False)])
    assert schemas.take_resumed() == []
    schemas = saved(schemas)
    schemas.load([switched(300, cdc=True)])
    assert [table.id for table in schemas.take_resumed()] == [ID]
    assert schemas.take_resumed() == []
