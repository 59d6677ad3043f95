"""Ways in which others have lost or doubled records on their way into Kafka, each as a test on a real broker.

docs/reference/losses.md lists these with those that need no server.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from penstock.deliver.kafka.connection import KEPT, Connection
from penstock.deliver.kafka.parcels import Parcel
from penstock.deliver.kafka.sink import KafkaSink
from penstock.deliver.kafka.transactions import TransactionalWriter
from penstock.deliver.sink import Task
from penstock.settings.kafka import KafkaSettings
from testkit.kafka_broker import KafkaBroker
from tests.integration.pipeline.kafka_proxy import KafkaProxy
from tests.kafka_records import NOW_US, USERS, deleted_user, records_of, user
from tests.query_stand_in import Crash

CACHE = Path(__file__).parent.parent.parent.parent / ".cache"
PATIENCE_S = 120


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProxy]:
    """A broker that all clients reach through the proxy only."""
    with KafkaProxy() as made:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{made.port}"}
        with KafkaBroker(tmp_path_factory.mktemp("broker"), cache=CACHE, settings=advertised) as broker:
            made.broker = broker.port
            yield made


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    yield
    KEPT.clear()


def sink_of(proxy: KafkaProxy, directory: Path, **more: Any) -> tuple[KafkaSink, str]:
    """A sink with a topic that no other test has, whose pipeline has the topic's name."""
    prefix = f"t{uuid.uuid4().hex[:10]}"
    given = {"topic_prefix": prefix, "bootstrap_servers": (f"127.0.0.1:{proxy.port}",), "partitions": 1, **more}
    sink = KafkaSink(KafkaSettings.model_validate(given))
    sink.keep_in(directory / prefix, f"{prefix}.lab.users")
    sink.divide(1)
    sink.check()
    sink.prepare([USERS])
    return sink, f"{prefix}.lab.users"


def consumed(proxy: KafkaProxy, topic: str) -> list[tuple[int, bool]]:
    """Of each committed record the user's number, and whether it is a tombstone."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[tuple[int, bool]] = []
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append((json.loads(message.key() or b"")["id"], message.value() is None))
    finally:
        consumer.close()


def deliver(sink: KafkaSink, task: Task, *numbers: int) -> None:
    with sink.writer(task) as writer:
        writer.write(records_of(USERS, [user(number) for number in numbers]))
        writer.finish()


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_no_derived_record_is_lost_between_the_records_of_one_change(
    proxy: KafkaProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    """A delete and its tombstone came in two batches, and the first one committed both (debezium/dbz#2549)."""
    changes = records_of(USERS, [deleted_user(1), deleted_user(2)])
    wanted = [(1, False), (1, True), (2, False), (2, True)]
    original = Connection.send
    for count in range(len(wanted)):
        sink, topic = sink_of(proxy, tmp_path, delivery=delivery, tombstones=True)
        task = Task(topic, 1, 0, NOW_US)

        def some(self: Connection, parcel: Parcel, _count: int = count) -> int:
            original(self, replace(parcel, records=parcel.records.slice(0, _count)))
            self.producer.flush(PATIENCE_S)
            raise Crash

        dead = sink.writer(task)
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "send", some)
            with pytest.raises(Crash):
                dead.write(changes)
        # Another process, which finds what this one left behind.
        left = KEPT.clear(close=False)
        with sink.writer(task) as writer:
            writer.write(changes)
            writer.finish()
        found = consumed(proxy, topic)
        assert found == (wanted if delivery == "exactly-once" else [*wanted[:count], *wanted])
        dead.abort()
        for session in left:
            session.close()


def test_lost_answer_to_a_commit_is_asked_for_again(proxy: KafkaProxy, tmp_path: Path) -> None:
    """What ends a transaction was done, and whoever asked for it never heard (Jepsen's report on Bufstream)."""
    sink, topic = sink_of(proxy, tmp_path, delivery="exactly-once")
    first, second = (Task(topic, batch, 0, NOW_US + batch) for batch in (1, 2))
    proxy.lose_next_answer()
    deliver(sink, first, 1, 2, 3)
    assert proxy.cut.is_set()
    deliver(sink, second, 4, 5)
    assert [number for number, _ in consumed(proxy, topic)] == [1, 2, 3, 4, 5]


def test_end_of_a_transaction_that_comes_late_does_not_end_the_next_one(proxy: KafkaProxy, tmp_path: Path) -> None:
    """A late commit or abort ended the next transaction: torn, lost and aborted records (the same report)."""
    sink, topic = sink_of(proxy, tmp_path, delivery="exactly-once")
    first, second = (Task(topic, batch, 0, NOW_US + batch) for batch in (1, 2))
    proxy.hold_next_end()
    deliver(sink, first, 1, 2, 3)
    assert proxy.cut.is_set()
    with sink.writer(second) as writer:
        assert isinstance(writer, TransactionalWriter)
        writer.write(records_of(USERS, [user(4), user(5)]))
        assert writer._session is not None
        writer._session._connection.producer.flush(PATIENCE_S)
        # The broker refuses it, for it knows a newer producer of the name.
        assert proxy.release() != 0
        assert [number for number, _ in consumed(proxy, topic)] == [1, 2, 3]
        writer.write(records_of(USERS, [user(6)]))
        writer.finish()
    assert [number for number, _ in consumed(proxy, topic)] == [1, 2, 3, 4, 5, 6]
