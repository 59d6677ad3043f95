"""Transactions without a broker: what may pass is told from what will not."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from penstock.deliver.kafka.connection import passing


@pytest.mark.parametrize(
    "code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TRANSPORT]
)
def test_broker_that_is_starting_is_asked_again(code: int) -> None:
    assert passing(KafkaError(code))


def test_broker_that_says_no_is_not_asked_again() -> None:
    assert not passing(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
