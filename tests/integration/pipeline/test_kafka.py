"""The Kafka sink on a real broker and a real schema registry, read back by a stock consumer."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import signal
import struct
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
import structlog
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from cloudevents.core.v1.event import CloudEvent

from penstock.deliver import outages
from penstock.deliver.kafka.connection import KEPT
from penstock.deliver.kafka.sink import KafkaSink
from penstock.deliver.sink import Delivered, Task, Writer
from penstock.errors import SchemaRefused
from penstock.model import types as t
from penstock.model.change import Change, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records.records import Records
from penstock.settings.kafka import KafkaSettings
from testkit.apicurio_registry import ApicurioRegistry
from testkit.kafka_broker import KafkaBroker
from tests.contract.test_envelopes import AVRO_EVENT, STOCK, one_two_one
from tests.integration.pipeline.kafka_task_process import RECORDS
from tests.integration.pipeline.test_pipeline import put, run
from tests.integration.pipeline.test_pipeline import settings as pipeline_settings
from tests.integration.pipeline.topic import PATIENCE_S, Seen, consumed
from tests.kafka_records import NOW_US, USERS, deleted_user, read_avro, records_of, user
from tests.protobuf_reader import read_protobuf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent.parent
CACHE = ROOT / ".cache"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, ApicurioRegistry]]:
    directory = tmp_path_factory.mktemp("kafka")
    registry = ApicurioRegistry(directory / "registry", cache=CACHE)
    broker = KafkaBroker(directory / "broker", cache=CACHE)
    registry.start(wait=False)
    try:
        with broker:
            registry.ready()
            yield broker, registry
    finally:
        registry.stop()


@pytest.fixture
def broker(services: tuple[KafkaBroker, ApicurioRegistry]) -> KafkaBroker:
    return services[0]


@pytest.fixture
def registry(services: tuple[KafkaBroker, ApicurioRegistry]) -> ApicurioRegistry:
    return services[1]


def settings_of(broker: KafkaBroker, **more: Any) -> KafkaSettings:
    """Settings with topics that no other test has."""
    given = {"topic_prefix": f"t{uuid.uuid4().hex[:10]}", "bootstrap_servers": (broker.address,), **more}
    return KafkaSettings.model_validate(given)


def a_task(batch: int = 0, bucket: int = 0, pipeline: str = "") -> Task:
    return Task(pipeline or f"p{uuid.uuid4().hex[:10]}", batch, bucket, NOW_US + batch)


def with_checkpoint(settings: KafkaSettings, directory: Path, pipeline: str) -> KafkaSink:
    """A sink as the driver has it after its start."""
    sink = KafkaSink(settings)
    sink.keep_in(directory, pipeline)
    sink.divide(1)
    sink.check()
    sink.prepare([USERS])
    return sink


def travelled(sink: KafkaSink, task: Task) -> Writer:
    """A writer as a task has it: the sink has come there by pickle."""
    there: KafkaSink = pickle.loads(pickle.dumps(sink))
    return there.writer(task)


def deliver(sink: KafkaSink, records: Sequence[Records], task: Task | None = None) -> Delivered:
    """One task of one batch."""
    sink.prepare([made.schema for made in records])
    with travelled(sink, task or a_task()) as writer:
        for made in records:
            writer.write(made)
        return writer.finish()


def topic_of(settings: KafkaSettings, table: str = "users") -> str:
    return f"{settings.topic_prefix}.lab.{table}"


def registered(registry: ApicurioRegistry, record: bytes, prefix: int = 5) -> tuple[str, bytes]:
    """The schema that a record names, and what follows."""
    magic, number = struct.unpack(">bI", record[:5])
    assert magic == 0
    with urllib.request.urlopen(f"{registry.url}/schemas/ids/{number}", timeout=PATIENCE_S) as answer:
        return str(json.load(answer)["schema"]), record[prefix:]


def test_records_arrive_with_their_keys_and_their_identity(broker: KafkaBroker) -> None:
    settings = settings_of(broker, partitions=3, topic_settings={"retention.ms": "3600000"})
    sink = KafkaSink(settings)
    sink.check()
    done = deliver(sink, [records_of(USERS, [user(number) for number in range(100)])], a_task(batch=17))
    assert (done.records, done.dead) == (100, [])
    found = consumed(broker, topic_of(settings))
    assert sorted(record.id for record in found) == list(range(100))
    assert {record.partition for record in found} == {0, 1, 2}
    assert found[0].headers == {"penstock.change": b"node1:CommitLog-8-1794726648383.log:107091:0;schema=1;batch=17"}
    value = json.loads(found[0].value)
    assert (value["op"], value["source"]["table"], value["after"]["name"]["value"]) == ("i", "users", "Anne")


def test_a_key_goes_where_javas_producer_puts_it(broker: KafkaBroker) -> None:
    settings = settings_of(broker, partitions=3)
    deliver(KafkaSink(settings), [records_of(USERS, [user(number) for number in range(30)])])
    found = consumed(broker, topic_of(settings))
    assert {record.key: record.partition for record in found} == {
        record.key: (_murmur2(record.key) & 0x7FFFFFFF) % 3 for record in found
    }


def _murmur2(data: bytes) -> int:
    """The hash of Kafka's own partitioner."""
    length, m, mask = len(data), 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ length) & mask
    for at in range(0, length - length % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    rest = data[length - length % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def test_a_tombstone_follows_a_delete(broker: KafkaBroker) -> None:
    settings = settings_of(broker, tombstones=True, record="after")
    row = {"id": 1, "name": "Anne", "email": None}
    records = records_of(USERS, [user(1), deleted_user(1)], after=[row, None])
    assert deliver(KafkaSink(settings), [records]).records == 3
    found = consumed(broker, topic_of(settings))
    assert [json.loads(record.value)["op"] for record in found[:2]] == ["c", "d"]
    assert [record.tombstone for record in found] == [False, False, True]
    assert {record.key for record in found} == {b'{"id":1}'}


def test_avro_records_are_read_with_the_schemas_of_the_registry(
    broker: KafkaBroker, registry: ApicurioRegistry
) -> None:
    settings = settings_of(broker, key_format="avro", value_format="avro", registry_url=registry.url)
    sink = KafkaSink(settings)
    sink.check()
    deliver(sink, [records_of(USERS, [user(1001)])])
    [record] = consumed(broker, topic_of(settings))
    assert read_avro(*registered(registry, record.key)) == {"id": 1001}
    text, rest = registered(registry, record.value)
    value = read_avro(text, rest)
    assert value["after"]["name"] == {"value": "Anne", "deletion_ts": None, "set": True}
    schema = json.loads(text)
    assert (schema["name"], schema["namespace"]) == (
        "Envelope",
        f"io.debezium.connector.cassandra.{settings.topic_prefix}.lab.users",
    )
    assert schema["connect.name"] == f"{schema['namespace']}.Envelope"


def _altered(version: int, *columns: Column) -> TableSchema:
    return TableSchema(USERS.table, (USERS.columns[0], *columns), version, "cassandra")


def test_columns_come_and_go_and_grow_while_the_registry_agrees(
    broker: KafkaBroker, registry: ApicurioRegistry
) -> None:
    settings = settings_of(
        broker, key_format="avro", value_format="avro", registry_url=registry.url, compatibility="BACKWARD"
    )
    sink = KafkaSink(settings)
    age, wide_age, city = Column("age", t.INT32), Column("age", t.INT64), Column("city", t.TEXT)
    versions = [_altered(1, age), _altered(2, age, city), _altered(3, wide_age, city), _altered(4, city)]
    for schema in versions:
        cells = {column.name: Set("x" if column.name == "city" else 7) for column in schema.cells}
        deliver(sink, [records_of(schema, [Change(Op.INSERT, {"id": schema.version}, cells, time=1)])])
    found = consumed(broker, topic_of(settings))
    texts = [registered(registry, record.value) for record in found]
    afters = [read_avro(*text)["after"] for text in texts]
    assert [after["id"]["value"] for after in afters] == [1, 2, 3, 4]
    assert [sorted(set(after) & {"age", "city"}) for after in afters] == [
        ["age"],
        ["age", "city"],
        ["age", "city"],
        ["city"],
    ]
    # A consumer that has the newest schema reads what was written with the oldest.
    parsed = [fastavro.parse_schema(json.loads(text)) for text, _ in texts]
    old: Any = fastavro.schemaless_reader(io.BytesIO(texts[0][1]), parsed[0], parsed[3])
    assert (old["after"]["id"]["value"], old["after"]["city"]) == (1, None)


def test_a_schema_that_the_registry_refuses_stops_the_batch_with_subject_and_version(
    broker: KafkaBroker, registry: ApicurioRegistry
) -> None:
    settings = settings_of(broker, value_format="avro", registry_url=registry.url)
    sink = KafkaSink(settings)
    sink.prepare([_altered(1, Column("age", t.TEXT))])
    with pytest.raises(SchemaRefused, match="does not fit the versions before") as refusal:
        sink.prepare([_altered(2, Column("age", t.INT32))])
    place = {"subject": f"{topic_of(settings)}-value", "version": 1, "table": USERS.table}
    assert refusal.value.place == place


def test_a_sink_that_is_set_to_stop_knows_the_schema_of_an_earlier_run(
    broker: KafkaBroker, registry: ApicurioRegistry
) -> None:
    settings = settings_of(broker, value_format="avro", registry_url=registry.url, schema_policy="fail")
    KafkaSink(settings).prepare([USERS])
    KafkaSink(settings).prepare([USERS])
    with pytest.raises(SchemaRefused, match="set to stop") as refusal:
        KafkaSink(settings).prepare([_altered(2, Column("city", t.TEXT))])
    place = {"subject": f"{topic_of(settings)}-value", "version": 1, "table": USERS.table}
    assert refusal.value.place == place
    # The new schema was not registered on the way.
    with urllib.request.urlopen(f"{registry.url}/subjects/{topic_of(settings)}-value/versions", timeout=60) as answer:
        assert json.load(answer) == [1]


@pytest.mark.parametrize("value_format", ["avro", "protobuf"])
def test_a_sink_that_ignores_changes_keeps_the_schema_that_the_registry_has(
    broker: KafkaBroker, registry: ApicurioRegistry, value_format: str
) -> None:
    settings = settings_of(broker, value_format=value_format, registry_url=registry.url, schema_policy="ignore")
    sink = KafkaSink(settings)
    age, city = Column("age", t.INT32), Column("city", t.TEXT)
    for schema in (_altered(1, age), _altered(2, age, city), _altered(3, Column("age", t.TEXT)), _altered(4, city)):
        cells = {
            name: Set(7 if column.type == t.INT32 else "x") for name, column in schema.by_name.items() if name != "id"
        }
        deliver(sink, [records_of(schema, [Change(Op.INSERT, {"id": schema.version}, cells, time=1)])])
    found = consumed(broker, topic_of(settings))
    assert len({record.value[:5] for record in found}) == 1
    with urllib.request.urlopen(f"{registry.url}/subjects/{topic_of(settings)}-value/versions", timeout=60) as answer:
        assert json.load(answer) == [1]
    if value_format == "avro":
        afters = [read_avro(*registered(registry, record.value))["after"] for record in found]
        assert [after["age"] and after["age"]["value"] for after in afters] == [7, 7, None, None]
        assert not any("city" in after for after in afters)
    assert sink.left_out() == {"lab.users": ["city"]}


def test_protobuf_records_are_read_by_protocol_buffers_own_parser(
    broker: KafkaBroker, registry: ApicurioRegistry
) -> None:
    settings = settings_of(broker, key_format="protobuf", value_format="protobuf", registry_url=registry.url)
    sink = KafkaSink(settings)
    deliver(sink, [records_of(USERS, [user(1001)])])
    city = Column("city", t.list_of(t.TEXT))
    # A column goes and another comes: the others keep their numbers, and the old number is not used again.
    schema = TableSchema(USERS.table, (USERS.columns[0], USERS.columns[2], city), 2, "cassandra")
    cells = {"email": Set("e"), "city": Set(("Ulm", "Bonn"))}
    deliver(sink, [records_of(schema, [Change(Op.INSERT, {"id": 2}, cells, time=1)])])
    first, second = consumed(broker, topic_of(settings))
    assert first.key[5:6] == b"\0"
    assert read_protobuf(*registered(registry, first.key, 6)) == {"id": 1001}
    text, rest = registered(registry, first.value, 6)
    assert read_protobuf(text, rest)["after"]["name"] == {"value": "Anne", "set": True}
    later, after = registered(registry, second.value, 6)
    assert read_protobuf(later, after)["after"]["city"] == {"value": ["Ulm", "Bonn"], "set": True}
    assert "EmailMessage email = 3;" in later
    assert "NameMessage name = 2;" in later
    assert "CityMessage city = 6;" in later
    assert read_protobuf(text, after)["after"]["email"] == {"value": "e", "set": True}


@pytest.mark.parametrize("value_format", ["json", "avro"])
@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_cloudevents_are_read_by_their_own_sdk(
    broker: KafkaBroker, registry: ApicurioRegistry, mode: str, value_format: str
) -> None:
    given = {"envelope": "cloudevents", "cloudevents_mode": mode, "value_format": value_format, "tombstones": True}
    settings = settings_of(broker, registry_url=registry.url, **given)
    assert deliver(KafkaSink(settings), [records_of(USERS, [user(1), deleted_user(1)])]).records == 3
    *found, tombstone = consumed(broker, topic_of(settings))
    assert (tombstone.tombstone, list(tombstone.headers)) == (True, ["penstock.change"])
    events = [_cloudevent(record) for record in found]
    assert [event.get_extension("op") for event in events] == ["i", "d"]
    assert len({event.get_id() for event in events}) == 2
    assert {event.get_source() for event in events} == {f"/penstock/cassandra/{settings.topic_prefix}/lab/users"}
    assert {record.key for record in found} == {event.get_subject().encode() for event in events}
    data: Any = events[0].get_data()
    if value_format == "avro":
        text, rest = registered(registry, data if mode == "structured" else found[0].value)
        # Who does not know the registry's framing finds the schema by the attribute.
        with urllib.request.urlopen(events[0].get_dataschema(), timeout=PATIENCE_S) as answer:
            assert json.load(answer)["schema"] == text
        data = read_avro(text, rest)
    assert data["after"]["name"] == {"value": "Anne", "deletion_ts": None, "set": True}


def _cloudevent(record: Seen) -> Any:
    """A record as the official SDK understands it; what it has no reader for, its own Avro format, it still checks."""
    if record.headers["content-type"] == b"application/cloudevents+avro":
        found: Any = fastavro.schemaless_reader(io.BytesIO(record.value), AVRO_EVENT, None)
        attributes = found["attribute"]
        return CloudEvent({**attributes, "time": datetime.fromisoformat(attributes["time"])}, found["data"])
    return from_kafka_event(KafkaMessage(record.headers, None, record.value))


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_one_two_one_of_a_transaction_are_three_events_of_a_pipeline(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, mode: str
) -> None:
    settings = settings_of(broker, envelope="cloudevents", cloudevents_mode=mode)
    put(tmp_path, "db1", *one_two_one(1), schema=STOCK)
    run(spark, pipeline_settings(tmp_path, "kafka", nodes=("db1",), kafka=settings))
    events = [_cloudevent(record) for record in consumed(broker, f"{settings.topic_prefix}.shop.stock")]
    assert [event.get_data()["after"]["n"]["value"] for event in events] == [1, 2, 1]
    assert [event.get_extension("position") for event in events] == [f"0:0-1-1:1:{ordinal}" for ordinal in range(3)]
    assert len({event.get_id() for event in events}) == 3


def test_a_record_that_is_too_large_becomes_a_dead_letter_and_the_others_go_on(broker: KafkaBroker) -> None:
    settings = settings_of(broker, topic_settings={"max.message.bytes": "20000"})
    changes = [user(1), user(2, "x" * 30_000), *(user(number, "y" * 1000) for number in range(3, 60))]
    done = deliver(KafkaSink(settings), [records_of(USERS, changes)])
    [letter] = done.dead
    assert (letter.table, letter.key, letter.sink) == ("lab.users", '{"id":2}', "kafka")
    assert "the topic" in letter.reason
    assert "xxx" not in letter.reason
    found = consumed(broker, topic_of(settings))
    assert [record.id for record in found] == [1, *range(3, 60)]


def test_a_batch_that_comes_again_after_its_transaction_shows_once(broker: KafkaBroker, tmp_path: Path) -> None:
    settings = settings_of(broker, delivery="exactly-once")
    first, second = a_task(3), a_task(4)
    second = replace(second, pipeline=first.pipeline)
    sink = with_checkpoint(settings, tmp_path / "first", first.pipeline)
    records = [records_of(USERS, [user(number) for number in range(50)])]
    assert deliver(sink, records, first).records == 50
    # Another process does the batch again: it knows nothing of the first.
    KEPT.clear()
    assert deliver(sink, records, first).records == 0
    assert deliver(sink, [records_of(USERS, [user(99)])], second).records == 1
    found = [record.id for record in consumed(broker, topic_of(settings))]
    assert found == [*range(50), 99]
    # The first batches of a new checkpoint under the same name are not those of the old one.
    anew = with_checkpoint(settings, tmp_path / "second", first.pipeline)
    assert deliver(anew, records, first).records == 50


def test_what_a_dead_task_has_sent_is_never_seen(broker: KafkaBroker, tmp_path: Path) -> None:
    settings = settings_of(broker, delivery="exactly-once")
    task = a_task(1)
    sink = with_checkpoint(settings, tmp_path, task.pipeline)
    records = records_of(USERS, [user(number) for number in range(20)])
    dead = travelled(sink, task)
    dead.write(records)
    # The task is started again elsewhere, while the first attempt is still there and does not know.
    kept = KEPT.clear(close=False)
    assert deliver(sink, [records], task).records == 20
    # It finds itself shut out, asks again, and hears that the batch is done.
    dead.finish()
    assert len(consumed(broker, topic_of(settings))) == 20
    assert len(consumed(broker, topic_of(settings), "read_uncommitted")) > 20
    for session in kept:
        session.close()


def test_a_task_that_is_killed_again_and_again_delivers_every_record_once(broker: KafkaBroker, tmp_path: Path) -> None:
    settings = settings_of(broker)
    # Each process is killed at this step: with a transaction open, with one whose end nobody noted, and in between.
    steps = ["sent", "done", "kept", "done", "sent"]
    batches = 10
    arguments = [broker.address, settings.topic_prefix, settings.topic_prefix, str(tmp_path / "next"), str(batches)]
    for round_, step in enumerate([*steps, "end"]):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.pipeline.kafka_task_process", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert child.stdout is not None
        with child.stdout as lines:
            # Some batches pass first, so that the step comes from different batches.
            seen = [line.strip() for line in itertools.islice(_until(lines, step, round_ % 3), 1000)]
        if step == "end":
            assert child.wait(PATIENCE_S) == 0
        else:
            assert step in seen
            child.kill()
            assert child.wait(PATIENCE_S) == -signal.SIGKILL
    found = [record.id for record in consumed(broker, topic_of(settings))]
    assert found == list(range(batches * RECORDS))


def _until(lines: Iterable[str], step: str, times: int) -> Iterator[str]:
    """The lines up to the step, which may come some times before."""
    for line in lines:
        yield line
        if line.strip() == step:
            if times == 0:
                return
            times -= 1


def test_nothing_is_lost_or_doubled_when_the_broker_dies_in_the_middle(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, parts = 2000, 10
    common: dict[str, Any] = {"queue_bytes_max": 1 << 20, "partitions": 1, "transaction_timeout_s": 6}
    chosen = {
        delivery: settings_of(broker, delivery=delivery, **common) for delivery in ("at-least-once", "exactly-once")
    }
    begun = {delivery: threading.Event() for delivery in chosen}
    seen = {delivery: threading.Event() for delivery in chosen}
    given_up, killed = threading.Event(), threading.Event()
    outcomes: dict[str, Delivered] = {}

    def noted(_: object, __: str, event: structlog.typing.EventDict) -> str:
        if event["event"] == "transaction begun again":
            given_up.set()
        return ""

    def write(delivery: str, writer: Writer) -> None:
        with writer:
            for part in range(parts):
                changes = [user(part * count + number, "z" * 200) for number in range(count)]
                writer.write(records_of(USERS, changes))
                begun[delivery].set()
                # Neither may be done before the other has begun.
                assert killed.wait(PATIENCE_S)
            outcomes[delivery] = writer.finish()

    usual = outages.Waiting.again

    def looked_at(waiting: outages.Waiting, reason: str) -> None:
        usual(waiting, reason)
        for delivery, event in seen.items():
            if any(outage.since_s is not None for outage in outages.read(tmp_path / delivery)):
                event.set()

    monkeypatch.setattr(outages.Waiting, "again", looked_at)
    structlog.configure(processors=[noted])
    threads = []
    for delivery, settings in chosen.items():
        task = replace(a_task(1), outages=str(tmp_path / delivery))
        sink = with_checkpoint(settings, tmp_path / "sinks" / delivery, task.pipeline)
        threads.append(threading.Thread(target=write, args=(delivery, travelled(sink, task))))
    for thread in threads:
        thread.start()
    for event in begun.values():
        assert event.wait(PATIENCE_S)
    broker.kill()
    killed.set()
    # The outage is longer than a transaction lives: what it held is sent again in another one.
    assert given_up.wait(PATIENCE_S)
    # Anybody can see that both wait for the broker.
    for event in seen.values():
        assert event.wait(PATIENCE_S)
    broker.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    for delivery, settings in chosen.items():
        assert outcomes[delivery].records == count * parts
        found = [record.id for record in consumed(broker, topic_of(settings))]
        assert found == list(range(count * parts))
        # Nobody waits any longer, and how often it was tried again is still known.
        [after] = outages.read(tmp_path / delivery)
        assert (after.since_s, after.retries > 0) == (None, True)


def test_a_table_of_another_name_has_the_topic_that_a_function_gives(broker: KafkaBroker) -> None:
    settings = settings_of(broker, topic_function="tests.integration.pipeline.test_kafka:one_topic")
    other = TableSchema(TableId("lab", "more"), (Column("id", t.INT32, Role.PARTITION),), source="cassandra")
    deliver(
        KafkaSink(settings),
        [records_of(USERS, [user(1)]), records_of(other, [Change(Op.INSERT, {"id": 2}, time=1)])],
    )
    found = consumed(broker, f"{settings.topic_prefix}-lab")
    assert [json.loads(record.value)["source"]["table"] for record in found] == ["users", "more"]


def one_topic(prefix: str, keyspace: str, table: str) -> str:
    """A routing function: all tables of a keyspace go to one topic."""
    return f"{prefix}-{keyspace}"
