"""Events of the changed columns only: names, order and meaning as Debezium's connector for Cassandra has them."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

from penstock.envelopes.envelope import Envelope, Wire, contract_of
from penstock.model import types as t
from penstock.model.change import Bound, Change, Deleted, Deletion, Delta, Element, Expiry, Op, Range, Set
from penstock.model.schema import Column, Role, TableSchema
from penstock.settings.kafka import Serialisation
from tests.kafka_records import (
    CHOICE,
    EVENTS,
    NOW_US,
    ORIGIN,
    USERS,
    WRITTEN_US,
    deleted_user,
    json_events,
    records_of,
    split,
    user,
)

_SOURCE = (
    '{"version":"3.7.0","connector":"cassandra","name":"lab1","ts_ms":1794726693414,"snapshot":"false","db":"NULL",'
    '"sequence":null,"ts_us":1794726693414155,"ts_ns":1794726693414155000,"cluster":"Test Cluster",'
    '"file":"CommitLog-8-1794726648383.log","pos":107091,"keyspace":"lab","table":"users"}'
)


def test_an_insert_is_written_byte_for_byte_as_debezium_writes_it() -> None:
    wire = Wire(Serialisation.JSON)
    records = records_of(USERS, [user(1001)])
    [events] = Envelope(USERS, CHOICE, wire, wire).render(records, NOW_US)
    assert split(events, "keys") == [b'{"id":1001}']
    after = ",".join(
        f'"{name}":{{"value":{value},"deletion_ts":null,"set":true}}'
        for name, value in (("id", "1001"), ("name", '"Anne"'), ("email", '"Anne@example.org"'))
    )
    wanted = f'{{"ts_ms":1794726693900,"op":"i","source":{_SOURCE},"after":{{{after},'
    wanted += '"_range_start":null,"_range_end":null}}'
    assert split(events, "values") == [wanted.encode()]


def test_a_column_that_was_not_touched_is_null_and_an_expiring_one_says_when_it_ends() -> None:
    change = Change(
        Op.UPDATE, {"id": 1}, {"email": Set("x", expiry=Expiry(600, 1_794_727_293))}, time=WRITTEN_US, origin=ORIGIN
    )
    [(_, value)] = json_events(records_of(USERS, [change]))
    assert value["op"] == "u"
    assert value["after"]["name"] is None
    assert value["after"]["email"] == {"value": "x", "deletion_ts": 1_794_727_293_000_000, "set": True}


def test_a_deleted_column_has_no_value_and_is_set() -> None:
    change = Change(Op.UPDATE, {"id": 1}, {"email": Deleted(WRITTEN_US, 5), "name": Set(None)}, time=WRITTEN_US)
    [(_, value)] = json_events(records_of(USERS, [change]))
    gone = {"value": None, "deletion_ts": None, "set": True}
    assert (value["after"]["email"], value["after"]["name"]) == (gone, gone)


def test_a_deleted_row_has_its_key_and_the_deletion_in_all_other_columns() -> None:
    [(key, value)] = json_events(records_of(USERS, [deleted_user(7)]))
    assert (key, value["op"]) == ({"id": 7}, "d")
    assert value["after"]["id"] == {"value": 7, "deletion_ts": None, "set": True}
    assert value["after"]["name"] == {"value": None, "deletion_ts": WRITTEN_US, "set": True}


def test_the_deletion_of_a_row_leaves_the_static_columns_of_its_partition_alone() -> None:
    row = Change(Op.DELETE, {"a": 1, "c1": 2}, time=WRITTEN_US, deletion=Deletion(9, 1))
    partition = Change(Op.DELETE_PARTITION, {"a": 1}, time=WRITTEN_US, deletion=Deletion(9, 1))
    (_, of_row), (key, of_partition) = json_events(records_of(EVENTS, [row, partition]))
    assert of_row["after"]["s"] is None
    assert of_row["after"]["v"]["deletion_ts"] == 9
    assert key == {"a": 1, "c1": None}
    assert of_partition["op"] == "d"
    gone = {"value": None, "deletion_ts": 9, "set": True}
    assert [of_partition["after"][name] for name in ("c1", "s", "v")] == [gone] * 3


def test_a_range_tombstone_names_its_ends() -> None:
    bounds = Range(Bound((2,), True), Bound((5,), False))
    change = Change(Op.DELETE_RANGE, {"a": 1}, time=WRITTEN_US, deletion=Deletion(9, 1), range=bounds)
    [(_, value)] = json_events(records_of(EVENTS, [change]))
    of_type = {"name": "c1", "type": "org.apache.cassandra.db.marshal.Int32Type"}
    assert value["op"] == "r"
    assert value["after"] == {
        "a": {"value": 1, "deletion_ts": None, "set": True},
        "c1": None,
        "s": None,
        "v": None,
        "_range_start": {"method": "INCL_START_BOUND", "values": [{**of_type, "value": "2"}]},
        "_range_end": {"method": "EXCL_END_BOUND", "values": [{**of_type, "value": "5"}]},
    }


def test_the_row_of_a_snapshot_is_an_insert_that_says_so_and_has_no_place() -> None:
    change = replace(user(1), op=Op.SNAPSHOT, capture_time=WRITTEN_US + 5)
    [(_, value)] = json_events(records_of(USERS, [change]))
    source = value["source"]
    assert (value["op"], source["snapshot"], source["file"], source["pos"]) == ("i", "true", "", -1)
    assert source["ts_us"] == WRITTEN_US + 5


def test_a_change_of_a_collection_has_the_elements_that_were_written() -> None:
    types = {
        "tags": t.set_of(t.TEXT, multi_cell=True),
        "notes": t.map_of(t.TEXT, t.INT32, multi_cell=True),
        "home": t.user("address", {"street": t.TEXT, "no": t.INT32}, multi_cell=True),
        "visits": t.SHARDED_COUNTER,
        "old": t.list_of(t.INT32, multi_cell=True),
    }
    columns = (Column("id", t.INT32, Role.PARTITION), *(Column(name, type_) for name, type_ in types.items()))
    schema = TableSchema(USERS.table, columns, source="cassandra")
    cells = {
        "tags": Delta(None, (Element("a"), Element("b"))),
        "notes": Delta(None, (Element("k", 1), Element("n", None))),
        "home": Delta(None, (Element(1, 7), Element(0, None))),
        "visits": Delta(None, (Element(uuid.UUID(int=5), (3, -7)),)),
        "old": Delta(Deletion(4, 1)),
    }
    [(_, value)] = json_events(records_of(schema, [Change(Op.UPDATE, {"id": 1}, cells, time=5)]))
    found = {name: value["after"][name]["value"] for name in types}
    assert found == {
        "tags": ["a", "b"],
        "notes": {"k": 1, "n": None},
        "home": {"street": None, "no": 7},
        "visits": -7,
        "old": None,
    }


def test_schemas_have_debeziums_names_and_types() -> None:
    key, value = contract_of(USERS, CHOICE, rows=False, before=False).schemas
    name = "io.debezium.connector.cassandra.lab1.lab.users"
    assert key.to_json() == {
        "type": "struct",
        "fields": [{"type": "int32", "optional": True, "field": "id"}],
        "optional": False,
        "name": f"{name}.Key",
    }
    made = value.to_json()
    assert made["name"] == f"{name}.Envelope"
    assert [field["field"] for field in made["fields"]] == ["ts_ms", "op", "source", "after"]
    source, after = made["fields"][2], made["fields"][3]
    wanted = "version connector name ts_ms snapshot db sequence ts_us ts_ns cluster file pos keyspace table"
    assert [field["field"] for field in source["fields"]] == wanted.split()
    assert next(field["type"] for field in source["fields"] if field["field"] == "pos") == "int32"
    cell = after["fields"][0]
    assert (cell["name"], cell["version"], cell["optional"]) == ("cell_value", 1, True)
    assert [(field["field"], field["type"]) for field in cell["fields"]] == [
        ("value", "int32"),
        ("deletion_ts", "int64"),
        ("set", "boolean"),
    ]


def test_json_with_schema_has_the_schema_beside_the_payload() -> None:
    wire = Wire(Serialisation.JSON_SCHEMA)
    [events] = Envelope(USERS, CHOICE, wire, wire).render(records_of(USERS, [user(1)]), NOW_US)
    found = json.loads(split(events, "keys")[0])
    assert found == {
        "schema": contract_of(USERS, CHOICE, rows=False, before=False).key.schema.to_json(),
        "payload": {"id": 1},
    }


def test_plain_text_is_what_java_prints_of_a_struct() -> None:
    wire = Wire(Serialisation.STRING)
    [events] = Envelope(USERS, CHOICE, wire, wire).render(records_of(USERS, [deleted_user(1)]), NOW_US)
    assert split(events, "keys") == [b"Struct{id=1}"]
    [text] = split(events, "values")
    assert text.startswith(
        b"Struct{ts_ms=1794726693900,op=d,source=Struct{version=3.7.0,connector=cassandra,name=lab1,"
    )
    assert (
        f"after=Struct{{id=Struct{{value=1,set=true}},name=Struct{{deletion_ts={WRITTEN_US},set=true}}".encode() in text
    )
    assert b"sequence" not in text


def test_names_can_be_made_to_suit_avro() -> None:
    schema = TableSchema(USERS.table, (Column("1 id", t.INT32, Role.PARTITION), Column("a-b", t.TEXT)))
    change = Change(Op.INSERT, {"1 id": 1}, {"a-b": Set("x")}, time=1)
    [(key, value)] = json_events(records_of(schema, [change]), replace(CHOICE, sanitised=True))
    assert key == {"_1_id": 1}
    assert value["after"]["a_b"]["value"] == "x"


def test_a_write_time_that_no_clock_shows_does_not_stop_the_event() -> None:
    written = 1_700_000_000_000_000_000
    [(_, value)] = json_events(records_of(USERS, [replace(user(1), time=written)]))
    source = value["source"]
    assert (source["ts_us"], source["ts_ns"]) == (written, (1 << 63) - 1 - ((1 << 63) - 1) % 1000)
