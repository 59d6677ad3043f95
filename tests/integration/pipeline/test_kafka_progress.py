"""What tells that a batch is in Kafka: it outlives what brokers forget, and where it is lost nothing is sent twice.

A real broker that forgets quickly. What was delivered is read back by a stock consumer of committed records.
"""

from __future__ import annotations

import pickle
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

# They are public, but the library's types do not say so.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.deliver.kafka import connection, transactions
from penstock.deliver.kafka.connection import KEPT, Kept
from penstock.deliver.kafka.sink import KafkaSink
from penstock.deliver.sink import Task
from penstock.errors import DeliveryInDoubt, InvalidSetting, TargetRefused
from penstock.settings.kafka import KafkaSettings
from testkit.kafka_broker import KafkaBroker
from tests.integration.pipeline.topic import PATIENCE_S, consumed, forget_groups
from tests.kafka_records import NOW_US, USERS, records_of, user

CACHE = Path(__file__).parent.parent.parent.parent / ".cache"
BUCKETS = 2
FORGETFUL = {
    "transaction.max.timeout.ms": "600000",
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    # As many brokers do: a topic that is asked for is made, with settings that suit no mark.
    "auto.create.topics.enable": "true",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("broker"), cache=CACHE, settings=FORGETFUL) as made:
        yield made


@pytest.fixture(scope="module")
def admin(broker: KafkaBroker) -> Any:
    return AdminClient({"bootstrap.servers": broker.address})


class Pipeline:
    """A pipeline of which only the sink is real: its batches are given, and its process can end at any moment."""

    def __init__(self, broker: KafkaBroker, checkpoint: Path, **more: Any) -> None:
        self.broker = broker
        self.name = f"p{uuid.uuid4().hex[:10]}"
        self.checkpoint = checkpoint
        given = {"topic_prefix": self.name, "bootstrap_servers": (broker.address,), "delivery": "exactly-once", **more}
        self.settings = KafkaSettings.model_validate(given)
        self.marks = f"{self.settings.progress_topic}-{self.name}"
        self.topic = f"{self.name}.lab.users"

    def start(self) -> None:
        """A driver and workers that know nothing but the checkpoint."""
        KEPT.clear()
        self.sink = KafkaSink(self.settings)
        self.sink.keep_in(self.checkpoint / "sinks" / "kafka", self.name)
        self.sink.divide(BUCKETS)
        self.sink.check()
        self.sink.prepare([USERS])

    def send(self, batch: int, *numbers: int, time_us: int = NOW_US) -> bytes:
        """The task of bucket 1; what it leaves for the driver, which dies before it hears of it."""
        task = Task(self.name, batch, 1, time_us + batch)
        there: KafkaSink = pickle.loads(pickle.dumps(self.sink))
        with there.writer(task) as writer:
            writer.write(records_of(USERS, [user(number) for number in numbers]))
            return writer.finish().payload

    def resume(self, batch: int, *numbers: int) -> None:
        self.start()
        self.send(batch, *numbers)

    def deliver(self, batch: int, *numbers: int) -> None:
        self.sink.commit(self.name, batch, [self.send(batch, *numbers)])

    @property
    def delivered(self) -> list[int]:
        return [record.id for record in consumed(self.broker, self.topic)]


@pytest.fixture
def pipeline(broker: KafkaBroker, tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(broker, tmp_path / "checkpoint")
    made.start()
    yield made
    KEPT.clear()


def done(asked: dict[Any, Any]) -> None:
    for future in asked.values():
        future.result(PATIENCE_S)


def wait_for_expiry(broker: KafkaBroker, transactional_id: str) -> None:
    """Return when the broker has forgotten the id: it then says so in the topic in which it keeps transactions."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": uuid.uuid4().hex})
    consumer.assign([TopicPartition("__transaction_state", 0, OFFSET_BEGINNING)])
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "the broker forgets nothing"
            if message.value() is None and transactional_id.encode() in (message.key() or b""):
                return
    finally:
        consumer.close()


def test_a_batch_is_not_sent_again_when_the_broker_has_forgotten_groups_and_ids(
    broker: KafkaBroker, admin: Any, pipeline: Pipeline
) -> None:
    pipeline.deliver(6, 1, 2)
    pipeline.send(7, 3, 4, 5)
    forget_groups(admin)
    wait_for_expiry(broker, f"{pipeline.name}-1")
    pipeline.start()
    pipeline.deliver(7, 3, 4, 5)
    pipeline.deliver(8, 6)
    assert pipeline.delivered == [1, 2, 3, 4, 5, 6]


def test_a_producer_whose_id_has_expired_is_made_anew_without_failing_the_batch(
    broker: KafkaBroker, pipeline: Pipeline
) -> None:
    pipeline.deliver(1, 1)
    wait_for_expiry(broker, f"{pipeline.name}-1")
    pipeline.deliver(2, 2, 3)
    assert pipeline.delivered == [1, 2, 3]


@pytest.mark.parametrize("told", [True, False], ids=["told by the driver", "not told"])
@pytest.mark.parametrize("native", [True, False], ids=["called directly", "by the package"])
def test_a_bucket_that_moves_between_workers_fails_no_batch(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool, told: bool
) -> None:
    """The producer that a worker has kept is shut out by the other worker's, and is told so in the middle of things."""
    if not native:
        monkeypatch.setattr(connection, "usable", lambda _: False)
    pipeline = Pipeline(broker, tmp_path, partitions=4)
    pipeline.start()
    workers = [Kept(), Kept()]
    batches, count = 5, 2000
    for batch in range(batches):
        monkeypatch.setattr(transactions, "KEPT", workers[batch % 2])
        numbers = range(batch * count, (batch + 1) * count)
        (pipeline.deliver if told else pipeline.send)(batch, *numbers)
    assert sorted(pipeline.delivered) == list(range(batches * count))
    for worker in workers:
        worker.clear()


def delete_topic(pipeline: Pipeline, admin: Any) -> None:
    done(admin.delete_topics([pipeline.marks]))


def make_topic_anew(pipeline: Pipeline, admin: Any) -> None:
    delete_topic(pipeline, admin)
    done(admin.create_topics([NewTopic(pipeline.marks, BUCKETS, 1, config={"cleanup.policy": "compact"})]))


def delete_records(pipeline: Pipeline, admin: Any) -> None:
    # Only what may be deleted can be deleted by hand.
    alter(admin, pipeline.marks, "cleanup.policy", "delete")
    done(admin.delete_records([TopicPartition(pipeline.marks, bucket, OFFSET_END) for bucket in range(BUCKETS)]))
    alter(admin, pipeline.marks, "cleanup.policy", "compact")


def alter(admin: Any, topic: str, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))


def begin_elsewhere(pipeline: Pipeline, _: Any) -> None:
    mine, pipeline.checkpoint = pipeline.checkpoint, pipeline.checkpoint.with_name("another")
    pipeline.start()
    pipeline.checkpoint = mine


LOSSES: dict[str, tuple[Callable[[Pipeline, Any], None], str]] = {
    "topic deleted": (delete_topic, "is gone, or was made anew"),
    "topic made anew": (make_topic_anew, "gone from Kafka"),
    "records deleted": (delete_records, "gone from Kafka"),
    "another checkpoint": (begin_elsewhere, "another checkpoint has sent"),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_nothing_is_sent_when_nobody_can_tell_whether_it_was(pipeline: Pipeline, admin: Any, lost: str) -> None:
    lose, reason = LOSSES[lost]
    pipeline.deliver(1, 1, 2)
    pipeline.send(2, 3, 4)
    lose(pipeline, admin)
    with pytest.raises(DeliveryInDoubt, match=reason):
        pipeline.resume(2, 3, 4)
    assert pipeline.delivered == [1, 2, 3, 4]
    # Whoever has looked, and found that it was not sent, can let the pipeline go on.
    (pipeline.checkpoint / "sinks" / "kafka" / "progress.json").unlink()
    pipeline.resume(3, 5)
    pipeline.resume(3, 5)
    assert pipeline.delivered == [1, 2, 3, 4, 5]


def test_proof_that_is_lost_while_the_pipeline_runs_stops_it_too(pipeline: Pipeline, admin: Any) -> None:
    pipeline.deliver(1, 1)
    make_topic_anew(pipeline, admin)
    # Another worker, which has to ask.
    KEPT.clear()
    with pytest.raises(DeliveryInDoubt, match="gone from Kafka"):
        pipeline.send(2, 2)
    assert pipeline.delivered == [1]


def test_a_checkpoint_from_a_copy_does_not_send_what_was_sent_after_it(pipeline: Pipeline) -> None:
    pipeline.deliver(1, 1)
    copy = pipeline.checkpoint.with_name("copy")
    shutil.copytree(pipeline.checkpoint, copy)
    pipeline.deliver(2, 2)
    pipeline.deliver(3, 3)
    pipeline.checkpoint = copy
    pipeline.start()
    with pytest.raises(DeliveryInDoubt, match="Kafka has batch 3"):
        pipeline.send(2, 2)
    # The last one comes again at another time: its plan was lost, so it may hold other changes.
    with pytest.raises(DeliveryInDoubt, match="Kafka has batch 3"):
        pipeline.send(3, 3, time_us=NOW_US + 1)
    pipeline.send(3, 3)
    assert pipeline.delivered == [1, 2, 3]


def test_a_topic_that_would_forget_is_refused(broker: KafkaBroker, admin: Any, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path)
    # It has too few partitions as well, which are added.
    done(admin.create_topics([NewTopic(pipeline.marks, 1, 1, config={"cleanup.policy": "compact,delete"})]))
    with pytest.raises(TargetRefused, match=r"cleanup\.policy is compact,delete and must be compact"):
        pipeline.start()
    alter(admin, pipeline.marks, "cleanup.policy", "compact")
    pipeline.start()
    pipeline.deliver(1, 1)
    assert pipeline.delivered == [1]


def test_a_topic_that_must_not_be_made_is_asked_for(broker: KafkaBroker, tmp_path: Path) -> None:
    with pytest.raises(TargetRefused, match=r"with 2 partitions and cleanup\.policy=compact"):
        Pipeline(broker, tmp_path, create_topics=False).start()


def test_the_topic_of_a_checkpoint_cannot_be_another_one(pipeline: Pipeline) -> None:
    pipeline.settings = pipeline.settings.model_copy(update={"progress_topic": "elsewhere"})
    with pytest.raises(InvalidSetting, match="are noted in the topic penstock-progress-"):
        pipeline.start()


def test_what_a_broker_refuses_for_good_ends_the_batch(pipeline: Pipeline, admin: Any) -> None:
    """It was sent again and again, without end."""
    alter(admin, pipeline.topic, "max.message.bytes", "100")
    with pytest.raises(TargetRefused, match="takes less than when the pipeline started"):
        pipeline.send(1, 1)
    alter(admin, pipeline.topic, "max.message.bytes", "100000")
    pipeline.send(1, 1)
    assert pipeline.delivered == [1]


def test_a_transaction_longer_than_the_broker_allows_is_refused(broker: KafkaBroker, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, transaction_timeout_s=900)
    pipeline.start()
    with pytest.raises(TargetRefused, match="INVALID_TRANSACTION_TIMEOUT"):
        pipeline.send(1, 1)


def test_records_of_no_batch_are_sent_without_a_mark(pipeline: Pipeline) -> None:
    """Dead letters that are delivered again have a name of their own, and leave the pipeline's marks alone."""
    pipeline.deliver(1, 1)
    with pipeline.sink.writer(replace(Task(pipeline.name, 7, 0, 7), pipeline=f"{pipeline.name}.dead-letters")) as other:
        other.write(records_of(USERS, [user(2)]))
        assert other.finish().payload == b""
    pipeline.start()
    pipeline.deliver(1, 1)
    assert pipeline.delivered == [1, 2]
