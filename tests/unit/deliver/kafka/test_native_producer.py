"""librdkafka called directly: what it takes, what it refuses, and what comes back. No broker is here."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.deliver.kafka import _send_loop
from penstock.deliver.kafka.connection import _native_column
from penstock.deliver.kafka.native_producer import NativeProducer, usable

# Nobody listens there.
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": "0"}


class Ears:
    """Hears what a producer tells."""

    def __init__(self) -> None:
        self.failed: list[KafkaError] = []
        self.said: list[KafkaError] = []

    def producer(self, **properties: str) -> NativeProducer:
        return NativeProducer({**NOWHERE, **properties}, self.failed.append, self.said.append)


@pytest.fixture
def ears() -> Ears:
    return Ears()


def records_of(count: int, *, headers: bool = True) -> _send_loop.Records:
    values = _native_column(pa.array([None if n % 3 == 2 else b"value %d" % n for n in range(count)], pa.binary()))
    keys = _native_column(pa.array([b"key %d" % n for n in range(count)], pa.binary()))
    return _send_loop.Records(count, keys, values, [(b"h", keys)] if headers else [])


def test_producers_with_tokens_are_left_to_the_package() -> None:
    assert usable(NOWHERE)
    assert usable({**NOWHERE, "transactional.id": "t"})
    assert not usable({**NOWHERE, "sasl.mechanisms": "OAUTHBEARER"})


def test_a_property_that_is_not_known_is_refused_with_its_name(ears: Ears) -> None:
    with pytest.raises(KafkaException, match=r"no\.such\.thing"):
        ears.producer(**{"no.such.thing": "1"})


def test_properties_that_exclude_each_other_are_refused(ears: Ears) -> None:
    with pytest.raises(KafkaException):
        ears.producer(**{"enable.idempotence": "true", "acks": "0"})


@pytest.mark.parametrize("headers", [True, False])
def test_all_records_are_taken_and_wait_for_the_broker(ears: Ears, headers: bool) -> None:
    producer = ears.producer()
    assert producer.produce("topic", records_of(100, headers=headers), 0) == (100, None)
    assert len(producer) == 100
    producer.purge()
    producer.flush(10)
    # Each of them failed, because it was given up, and was told once.
    assert [error.code() for error in ears.failed] == [KafkaError._PURGE_QUEUE] * 100
    assert len(producer) == 0
    producer.close()


def test_a_full_queue_says_where_to_go_on(ears: Ears) -> None:
    producer = ears.producer(**{"queue.buffering.max.messages": "10"})
    at, error = producer.produce("topic", records_of(25), 0)
    assert (at, error and error.code()) == (10, KafkaError._QUEUE_FULL)
    producer.purge()
    producer.flush(10)
    assert producer.produce("topic", records_of(25), 20) == (25, None)
    producer.purge()
    producer.flush(10)
    assert len(ears.failed) == 15
    producer.close()


def test_a_record_that_is_too_large_is_named(ears: Ears) -> None:
    producer = ears.producer(**{"message.max.bytes": "1000", "batch.size": "1000"})
    values = _native_column(pa.array([b"small", b"x" * 2000], pa.binary()))
    at, error = producer.produce("topic", _send_loop.Records(2, values, values), 0)
    assert (at, error and error.code()) == (1, KafkaError.MSG_SIZE_TOO_LARGE)
    producer.purge()
    producer.close()


def test_brokers_that_are_away_are_heard_of(ears: Ears) -> None:
    producer = ears.producer()
    while KafkaError._ALL_BROKERS_DOWN not in [error.code() for error in ears.said]:
        producer.poll(1)
    assert not ears.failed
    producer.close()


def test_columns_that_do_not_fit_their_data_are_refused() -> None:
    good = _native_column(pa.array([b"a", b"b"], pa.binary()))
    with pytest.raises(ValueError, match="offsets"):
        _send_loop.Records(2, good, (good[0], b"a", None))
    with pytest.raises(ValueError, match="offsets"):
        _send_loop.Records(3, good, good)
    with pytest.raises(ValueError, match="marks"):
        _send_loop.Records(2, good, (good[0], good[1], memoryview(b"\1")))
    with pytest.raises(ValueError, match="so many"):
        _send_loop.Records(2, good, good).hand_over(_send_loop.Calls(1, 1, 1, 1), 1, 0, 3)


def test_a_record_goes_to_the_partition_that_is_named(ears: Ears) -> None:
    producer = ears.producer()
    assert producer.put("topic", 3, b"key", b"value") is None
    assert len(producer) == 1
    producer.purge()
    producer.flush(10)
    assert [error.code() for error in ears.failed] == [KafkaError._PURGE_QUEUE]
    producer.close()


def test_errors_of_transactions_say_what_can_be_done(ears: Ears) -> None:
    producer = ears.producer(
        **{"transactional.id": "t", "message.timeout.ms": "1000", "transaction.timeout.ms": "1000"}
    )
    with pytest.raises(KafkaException) as late:
        producer.init_transactions(0.01)
    error = late.value.args[0]
    assert (error.code(), error.retriable(), error.fatal()) == (KafkaError._TIMED_OUT, True, False)
    for call in (
        producer.begin_transaction,
        lambda: producer.commit_transaction(1),
        lambda: producer.abort_transaction(1),
    ):
        with pytest.raises(KafkaException) as wrong:
            call()
        assert wrong.value.args[0].code() in (KafkaError._STATE, KafkaError._CONFLICT)
    at, refusal = producer.produce("topic", records_of(1), 0)
    assert (at, refusal is not None and refusal.code()) == (0, KafkaError._STATE)
    producer.close()
