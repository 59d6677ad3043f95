"""What every envelope promises, in every serialisation that it has, as readers from outside find it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from cloudevents.core.v1.event import CloudEvent

from penstock.deliver.kafka.packers import Packers, Prepared
from penstock.deliver.kafka.parcels import Registered, event_choice
from penstock.deliver.sink import DeadLetter, Task
from penstock.envelopes.avro_schema import avro_schema
from penstock.envelopes.contract import Contract
from penstock.envelopes.envelope import contract_of
from penstock.envelopes.protobuf_schema import FieldNumbers, protobuf_schema
from penstock.errors import InvalidSetting
from penstock.model import types as t
from penstock.model.change import Change, Deletion, Op, Origin, Set, Transaction
from penstock.model.schema import Column, Order, Role, TableId, TableSchema
from penstock.model.types import Kind, Unit
from penstock.records.records import Records
from penstock.settings import RecordType
from penstock.settings.kafka import KafkaSettings
from tests.every_type import EVERY_TYPE
from tests.kafka_records import EVENTS, NOW_US, ORIGIN, USERS, WRITTEN_US, deleted_user, read_avro, records_of, user
from tests.protobuf_reader import read_protobuf
from tests.unit.envelopes.test_serialisations import _from_avro, _ordinary, one_column

REGISTRY = "http://registry.example.org:8081"
# The schema of the CloudEvents Avro event format, version 1.0, from its specification.
AVRO_EVENT = fastavro.parse_schema(
    json.loads(
        """{"namespace": "io.cloudevents", "type": "record", "name": "CloudEvent", "fields": [
        {"name": "attribute", "type": {"type": "map", "values": ["null", "boolean", "int", "string", "bytes"]}},
        {"name": "data", "type": ["bytes", "null", "boolean", {"type": "map", "values": ["null", "boolean",
          {"type": "record", "name": "CloudEventData", "fields": [{"name": "value", "type": {"type": "map", "values": [
            "null", "boolean", {"type": "map", "values": "CloudEventData"},
            {"type": "array", "items": "CloudEventData"}, "double", "string"]}}]}, "double", "string"]},
          {"type": "array", "items": "CloudEventData"}, "double", "string"]}]}"""
    )
)
STOCK = TableSchema(
    TableId("shop", "stock"),
    (Column("id", t.INT64, Role.PARTITION), Column("n", t.INT32)),
    source="mariadb",
    ordered_by=Order.LOG,
)


@dataclass(frozen=True, slots=True)
class Shape:
    """An envelope in a serialisation."""

    envelope: str
    value_format: str
    mode: str = "structured"

    def settings(self, **more: Any) -> KafkaSettings:
        given = {
            "bootstrap_servers": "b:9092",
            "topic_prefix": "lab1",
            "registry_url": REGISTRY,
            "decimals": "string",
            "varints": "string",
            "envelope": self.envelope,
            "cloudevents_mode": self.mode,
            "value_format": self.value_format,
        }
        return KafkaSettings.model_validate(given | more)

    def __str__(self) -> str:
        return f"{self.envelope}-{self.mode}-{self.value_format}"


SHAPES = [Shape("debezium", how) for how in ("json", "json_schema", "avro", "protobuf", "string")]
CLOUDEVENTS = [Shape("cloudevents", how, mode) for mode in ("structured", "binary") for how in ("json", "avro")]
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES + CLOUDEVENTS, ids=str)
EVERY_CLOUDEVENT = pytest.mark.parametrize("shape", CLOUDEVENTS, ids=str)


@dataclass(slots=True)
class Seen:
    """A record as its consumer has it."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


def sent(shape: Shape, records: Records, batch: int = 1, **more: Any) -> tuple[list[Seen], list[DeadLetter]]:
    """The records that go to the topic, and those that do not."""
    settings = shape.settings(**more)
    contract = contract_for(shape, records.schema, settings)
    numbers = FieldNumbers()
    if shape.value_format == "protobuf":
        protobuf_schema(contract.value.schema, numbers)
    prepared = Prepared({records.schema.fingerprint: Registered(7, 8, {}, numbers.known)})
    seen, dead = [], []
    for parcel in Packers(settings, prepared).pack(records, Task("p", batch, 0, NOW_US)):
        dead += parcel.dead
        for row in parcel.records.to_pylist():
            headers = {name: row[name] for name in parcel.headers if row[name] is not None}
            seen.append(Seen(row["key"], row["value"], headers | (dict(parcel.fixed) if row["value"] else {})))
    return seen, dead


def contract_for(shape: Shape, schema: TableSchema, settings: KafkaSettings | None = None) -> Contract:
    given = settings or shape.settings()
    rows = given.record is not RecordType.CHANGE
    before = given.record is RecordType.ALL
    return contract_of(schema, event_choice(given), rows=rows, before=before, values=given.value_format)


def event_of(shape: Shape, record: Seen) -> CloudEvent:
    """A record as the official SDK understands it, which refuses what the specification does."""
    assert record.value is not None
    if shape == Shape("cloudevents", "avro"):
        assert record.headers["content-type"] == b"application/cloudevents+avro"
        source = io.BytesIO(record.value)
        found: Any = fastavro.schemaless_reader(source, AVRO_EVENT, None)
        assert source.tell() == len(record.value)
        assert isinstance(found["data"], bytes)
        attributes = found["attribute"]
        attributes["time"] = datetime.fromisoformat(attributes["time"])
        return CloudEvent(attributes, found["data"])
    if shape.mode == "structured":
        assert record.headers["content-type"] == b"application/cloudevents+json; charset=UTF-8"
        assert not [name for name in record.headers if name.startswith("ce_")]
    else:
        assert record.headers["content-type"] == f"application/{shape.value_format}".encode()
    made = from_kafka_event(KafkaMessage(record.headers, None, record.value))
    assert isinstance(made, CloudEvent)
    return made


def told(shape: Shape, one: Seen, schema: TableSchema, record: str = "change") -> dict[str, Any]:
    """What the event tells, whatever stands around it, as JSON would have it."""
    value: Any = one.value
    if shape.envelope == "cloudevents":
        data: Any = event_of(shape, one).get_data()
        value = one.value if shape.mode == "binary" else data
    shown = contract_for(shape, schema, shape.settings(record=record)).value.schema
    if shape.value_format == "avro":
        assert value[:5] == b"\0\0\0\0\x08"
        found: dict[str, Any] = _from_avro(read_avro(avro_schema(shown), value[5:]), shown)
        return found
    if shape.value_format == "protobuf":
        assert value[:6] == b"\0\0\0\0\x08\0"
        return read_protobuf(protobuf_schema(shown, FieldNumbers()), value[6:])
    found = value if isinstance(value, dict) else json.loads(value)
    return found["payload"] if shape.value_format == "json_schema" else found


def fitting(number: int) -> tuple[Any, ...]:
    """Of a type's values those that a consumer's type can hold."""
    type_, values = EVERY_TYPE[number]
    if type_.kind is Kind.DURATION:
        return values[:-1]
    if type_.unit is Unit.S or (type_.kind is Kind.USER and not type_.elements):
        return values[:1]
    return values


@pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES + CLOUDEVENTS if shape.value_format not in ("protobuf", "string")], ids=str
)
def test_every_type_of_column_is_read_back(shape: Shape) -> None:
    for number, (type_, _) in enumerate(EVERY_TYPE):
        values = (*fitting(number), None)
        schema, changes = one_column(type_, values)
        records, dead = sent(shape, records_of(schema, changes))
        assert dead == []
        found = [told(shape, record, schema)["after"]["v"]["value"] for record in records]
        assert found == [_ordinary(type_, value) for value in values], type_


def test_protocol_buffers_read_back_what_they_have_a_type_for() -> None:
    shape = Shape("debezium", "protobuf")
    for type_, value in ((t.TEXT, "żółć \U0001f30a"), (t.INT32, -(1 << 31)), (t.BOOLEAN, True), (t.FLOAT64, 0.1)):
        schema, changes = one_column(type_, (value, None))
        first, none = sent(shape, records_of(schema, changes))[0]
        assert told(shape, first, schema)["after"]["v"] == {"value": value, "set": True}
        assert told(shape, none, schema)["after"]["v"] == {"set": True}


ROW = {"id": 1, "name": "Anne", "email": None}


def a_life() -> list[Change]:
    """A row that comes, changes and goes, and then all of its table."""
    changed = Change(Op.UPDATE, {"id": 1}, {"name": Set("Bea")}, time=WRITTEN_US, origin=replace(ORIGIN, ordinal=1))
    ended = replace(deleted_user(1), origin=replace(ORIGIN, ordinal=2))
    emptied = Change(Op.TRUNCATE, time=WRITTEN_US, deletion=Deletion(WRITTEN_US), origin=replace(ORIGIN, ordinal=3))
    return [user(1), changed, ended, emptied]


@EVERY_SHAPE
def test_a_truncated_table_has_no_key_and_other_changes_have_their_rows(shape: Shape) -> None:
    records, dead = sent(shape, records_of(USERS, a_life()))
    assert dead == []
    assert [record.key for record in records] == [b'{"id":1}'] * 3 + [None]
    assert all(record.value for record in records)


@EVERY_SHAPE
def test_changes_and_rows_say_what_happened(shape: Shape) -> None:
    if shape.value_format == "string":
        # What Java prints of a struct has no reader.
        letters = [re.search(rb"[{,]op=(\w)", record.value or b"") for record in sent(shape, life_of("change"))[0]]
        assert [found and found[1] for found in letters] == [b"i", b"u", b"d", b"t"]
        return
    for record, wanted in (("change", "iudt"), ("after", "cudt"), ("all", "cudt")):
        seen, _ = sent(shape, life_of(record), record=record)
        if shape.envelope == "cloudevents":
            assert [event_of(shape, one).get_extension("op") for one in seen] == list(wanted)
        else:
            assert [told(shape, one, USERS, record=record)["op"] for one in seen] == list(wanted)
        if record == "all":
            images = [told(shape, one, USERS, record=record) for one in seen]
            names = [[(image.get(side) or {}).get("name") for side in ("before", "after")] for image in images]
            assert names == [[None, "Anne"], ["Anne", "Bea"], ["Bea", None], [None, None]]


def life_of(record: str) -> Records:
    later = {**ROW, "name": "Bea"}
    after = None if record == "change" else [ROW, later, None, None]
    return records_of(USERS, a_life(), after=after, before=[None, ROW, later, None] if record == "all" else None)


@EVERY_SHAPE
def test_a_tombstone_is_no_event(shape: Shape) -> None:
    records, _ = sent(shape, records_of(USERS, a_life()), tombstones=True)
    assert [record.value is None for record in records] == [False, False, False, True, False]
    assert records[3].key == records[2].key
    assert list(records[3].headers) == ["penstock.change"]
    assert records[3].headers["penstock.change"] == records[2].headers["penstock.change"]


@EVERY_SHAPE
def test_the_header_of_penstock_can_be_left_out(shape: Shape) -> None:
    with_it, without = (sent(shape, records_of(USERS, [user(1)]), headers=given)[0][0] for given in (True, False))
    assert set(with_it.headers) - set(without.headers) == {"penstock.change"}
    assert (with_it.key, with_it.value) == (without.key, without.value)


@EVERY_SHAPE
def test_a_value_without_a_place_becomes_a_dead_letter_and_the_others_go_on(shape: Shape) -> None:
    schema, changes = one_column(t.VARINT, (1, 1 << 80, 3))
    records, dead = sent(shape, records_of(schema, changes), varints="long")
    assert [record.key for record in records] == [b'{"id":0}', b'{"id":2}']
    assert [letter.key for letter in dead] == ['{"id":1}']


@EVERY_SHAPE
def test_a_key_without_a_place_becomes_a_dead_letter_too(shape: Shape) -> None:
    columns = (Column("id", t.VARINT, Role.PARTITION), Column("v", t.TEXT))
    schema = TableSchema(TableId("lab", "numbers"), columns, source="cassandra")
    changes = [Change(Op.INSERT, {"id": number}, {"v": Set("x")}, time=1, origin=ORIGIN) for number in (1, 1 << 80)]
    records, dead = sent(shape, records_of(schema, changes), varints="long")
    assert ([record.key for record in records], len(dead)) == ([b'{"id":1}'], 1)


@EVERY_SHAPE
def test_no_records_are_no_events(shape: Shape) -> None:
    assert sent(shape, records_of(USERS, [])) == ([], [])


@EVERY_SHAPE
def test_a_batch_in_several_parts_is_the_same_events(shape: Shape) -> None:
    changes = [user(number, origin=replace(ORIGIN, position=number)) for number in range(600)]
    records, _ = sent(shape, records_of(USERS, changes))
    alone = [sent(shape, records_of(USERS, [changes[number]]))[0][0] for number in (0, 300, 599)]
    assert [records[number] for number in (0, 300, 599)] == alone
    assert len(records) == 600


@EVERY_CLOUDEVENT
def test_attributes_are_those_of_the_specification(shape: Shape) -> None:
    [record] = sent(shape, records_of(USERS, [user(1)]))[0]
    event = event_of(shape, record)
    attributes = dict(event.get_attributes())
    place = "node1:CommitLog-8-1794726648383.log:107091:0"
    wanted = {
        "specversion": "1.0",
        "id": f'{place}/i/{{"id":1}}',
        "source": "/penstock/cassandra/lab1/lab/users",
        "type": "io.penstock.cassandra.DataChangeEvent",
        "subject": '{"id":1}',
        "time": datetime.fromtimestamp(WRITTEN_US // 1_000_000, UTC).replace(microsecond=WRITTEN_US % 1_000_000),
        "datacontenttype": f"application/{shape.value_format}",
        "op": "i",
        "table": "lab.users",
        "position": place,
    }
    if shape.value_format == "avro":
        wanted["dataschema"] = f"{REGISTRY}/schemas/ids/8"
    assert attributes == wanted
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in attributes)


def ids(shape: Shape, records: Records, **more: Any) -> list[tuple[str, str]]:
    events = [event_of(shape, record) for record in sent(shape, records, **more)[0]]
    return [(event.get_source(), event.get_id()) for event in events]


@EVERY_CLOUDEVENT
def test_a_change_has_the_same_id_each_time_and_no_other_change_has_it(shape: Shape) -> None:
    key = {"a": 1, "c1": 2}
    partition = {"a": 1}
    changes = [
        Change(Op.INSERT, key, {"v": Set("x")}, time=1, origin=ORIGIN),
        Change(Op.INSERT, {"a": 1, "c1": 3}, {"v": Set("x")}, time=1, origin=ORIGIN),
        Change(Op.INSERT, key, {"v": Set("x")}, time=1, origin=replace(ORIGIN, ordinal=1)),
        Change(Op.INSERT, key, {"v": Set("x")}, time=1, origin=replace(ORIGIN, node="node2")),
        # The static row of a partition goes with the partition: two events of one change, of the same key.
        Change(Op.DELETE, partition, time=2, deletion=Deletion(2), origin=ORIGIN),
        Change(Op.DELETE_PARTITION, partition, time=2, deletion=Deletion(2), origin=ORIGIN),
        # Rows of a snapshot, and the same row in a later one.
        Change(Op.SNAPSHOT, key, time=1, capture_time=10, origin=Origin("node1")),
        Change(Op.SNAPSHOT, {"a": 1, "c1": 3}, time=1, capture_time=10, origin=Origin("node1")),
        Change(Op.SNAPSHOT, key, time=1, capture_time=11, origin=Origin("node1")),
        # What no log has: two values of a row that expire one after the other.
        Change(Op.UPDATE, key, commit_time=5),
        Change(Op.UPDATE, key, commit_time=6),
    ]
    records = records_of(EVENTS, changes)
    found = ids(shape, records)
    assert len(set(found)) == len(changes)
    assert ids(shape, records, batch=2) == found
    other = TableSchema(TableId("lab", "others"), EVENTS.columns, source="cassandra")
    assert not set(ids(shape, records_of(other, changes))) & set(found)


def stock(op: Op, sequence: int, ordinal: int, node: str = "db1", **cells: int) -> Change:
    origin = Origin(node=node, transaction=Transaction("0", sequence, f"0-1-{sequence}"), ordinal=ordinal)
    return Change(op, {"id": 1}, {name: Set(n) for name, n in cells.items()}, commit_time=10**15, origin=origin)


def one_two_one(sequence: int, node: str = "db1") -> list[Change]:
    return [
        stock(Op.INSERT, sequence, 0, node, n=1),
        stock(Op.UPDATE, sequence, 1, node, n=2),
        stock(Op.UPDATE, sequence, 2, node, n=1),
    ]


@EVERY_SHAPE
def test_one_two_one_in_a_transaction_are_three_events(shape: Shape) -> None:
    records, _ = sent(shape, records_of(STOCK, [*one_two_one(1), *one_two_one(2)]))
    assert len({record.headers["penstock.change"] for record in records}) == 6
    if shape.value_format != "string":
        values = [told(shape, record, STOCK)["after"]["n"]["value"] for record in records]
        assert values == [1, 2, 1] * 2


@EVERY_CLOUDEVENT
def test_one_two_one_have_three_ids_and_a_second_capture_finds_the_same(shape: Shape) -> None:
    first, second = ids(shape, records_of(STOCK, one_two_one(1))), ids(shape, records_of(STOCK, one_two_one(2)))
    assert len({*first, *second}) == 6
    assert ids(shape, records_of(STOCK, one_two_one(1, "elsewhere"))) == first
    event = event_of(shape, sent(shape, records_of(STOCK, one_two_one(1)))[0][1])
    assert event.get_extension("transaction") == "0-1-1"
    assert event.get_extension("position") == "0:0-1-1:1:1"


@EVERY_CLOUDEVENT
def test_a_time_that_rfc_3339_has_not_is_the_nearest_that_it_has(shape: Shape) -> None:
    times = [-(1 << 63) + 1, -1, 0, (1 << 63) - 1]
    changes = [replace(user(number), time=time) for number, time in enumerate(times)]
    found = [event_of(shape, record).get_time() for record in sent(shape, records_of(USERS, changes))[0]]
    near = [datetime.min, datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1), datetime.max]
    assert found == [time.replace(tzinfo=UTC) for time in near]


@EVERY_CLOUDEVENT
def test_attributes_have_no_character_that_they_must_not_have(shape: Shape) -> None:
    columns = (Column("id", t.TEXT, Role.PARTITION), Column("v", t.TEXT))
    schema = TableSchema(TableId("lab", "texts"), columns, source="cassandra")
    nasty = ["a\x00\x1f\x7f\x85", "\ufdd0\uffff\U0010ffff", "żółć 🌊", 'a"b\\', "x"]
    changes = [Change(Op.INSERT, {"id": text}, {"v": Set("x")}, time=1, origin=ORIGIN) for text in nasty]
    for record, text in zip(sent(shape, records_of(schema, changes))[0], nasty, strict=True):
        attributes = event_of(shape, record).get_attributes()
        for name in ("id", "subject"):
            assert not re.search("[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\uffff\U0010ffff]", attributes[name])
        assert json.loads(attributes["subject"]) == {"id": text}


@EVERY_CLOUDEVENT
def test_a_large_key_counts_where_it_is_written(shape: Shape) -> None:
    columns = (Column("id", t.TEXT, Role.PARTITION), Column("v", t.TEXT))
    schema = TableSchema(TableId("lab", "texts"), columns, source="cassandra")
    change = Change(Op.INSERT, {"id": "x" * 2000}, {"v": Set("x")}, time=1, origin=ORIGIN)
    [record] = sent(shape, records_of(schema, [change]))[0]
    taken = len(record.key or b"") + len(record.value or b"")
    taken += sum(len(name) + len(text) for name, text in record.headers.items() if name != "penstock.change")
    assert sent(shape, records_of(schema, [change]), record_bytes_max=taken - 1)[0] == []
    assert sent(shape, records_of(schema, [change]), record_bytes_max=taken + 100)[1] == []


@pytest.mark.parametrize("how", ["json_schema", "protobuf", "string"])
def test_cloudevents_are_json_or_avro(how: str) -> None:
    with pytest.raises((InvalidSetting, ValueError), match="json or avro"):
        Shape("cloudevents", how).settings()
