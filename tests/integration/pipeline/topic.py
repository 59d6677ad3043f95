"""A topic as a stock consumer of Kafka reads it, from its beginning to its end."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from testkit.kafka_broker import KafkaBroker

PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a consumer sees it."""

    key: bytes
    value: bytes
    tombstone: bool
    partition: int
    headers: dict[str, Any]

    @property
    def id(self) -> int:
        """The user's number in a key that is JSON."""
        return int(json.loads(self.key)["id"])


def consumed(broker: KafkaBroker, topic: str, isolation: str = "read_committed") -> list[Seen]:
    """All records of a topic, by a stock consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": uuid.uuid4().hex,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 1000,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: list[Seen] = []
        ended: set[int | None] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is None:
                value = message.value()
                headers = dict(message.headers() or [])
                found.append(Seen(message.key() or b"", value or b"", value is None, message.partition() or 0, headers))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return found
    finally:
        consumer.close()


def forget_groups(admin: Any) -> None:
    """Let the broker forget all consumer groups, as it does by itself after offsets.retention.minutes."""
    groups = [group.group_id for group in admin.list_consumer_groups().result(PATIENCE_S).valid]
    if groups:
        for future in admin.delete_consumer_groups(groups).values():
            future.result(PATIENCE_S)
