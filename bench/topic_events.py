"""Events as they stand in topics, so that what two connectors wrote of the same changes can be compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

from bench.harness import CheckFailed

_WITHIN_S = 60


def events(address: str, topic: str, count: int, columns: Collection[str]) -> Counter[str]:
    """The first `count` events of a topic of one partition: key, operation and these columns of `after`."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "events", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: Counter[str] = Counter()
    try:
        left = count
        while left:
            messages = consumer.consume(min(left, 10_000), timeout=_WITHIN_S)
            if not messages:
                raise CheckFailed(f"{topic}: {left} of {count} records did not come")
            for message in messages:
                key, value = message.key(), message.value()
                if message.error() is not None or key is None or value is None:
                    raise CheckFailed(f"{topic}: a record without key or value at {message.offset()}")
                found[_text(json.loads(key), json.loads(value), columns)] += 1
            left -= len(messages)
    finally:
        consumer.close()
    return found


def _text(key: Any, event: dict[str, Any], columns: Collection[str]) -> str:
    after = event["after"] or {}
    return json.dumps([key, event["op"], {name: after.get(name) for name in columns}], sort_keys=True)
