"""Transactions without a broker: what may pass is told from what will not, and no call is waited for without end."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError

from penstock.pipeline.sinks.kafka import transactions
from penstock.pipeline.sinks.kafka.connection import passing
from penstock.pipeline.sinks.kafka.transactions import FencedError, Session


@pytest.mark.parametrize(
    "code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TRANSPORT]
)
def test_broker_that_is_starting_is_asked_again(code: int) -> None:
    assert passing(KafkaError(code))


def test_broker_that_says_no_is_not_asked_again() -> None:
    assert not passing(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


def test_call_that_never_comes_back_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_HANG_S", 0.01)
    session = object.__new__(Session)
    session._stuck = False
    late = threading.Event()
    with pytest.raises(FencedError, match="did not come back"):
        session._in_time(late.wait)
    # What is stuck cannot be closed either, and is left alone.
    session.close()
    late.set()


def test_error_of_a_call_is_its_own() -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    with pytest.raises(ValueError, match="so"):
        object.__new__(Session)._in_time(fail, "so")
