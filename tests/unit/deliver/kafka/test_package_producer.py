"""The package's producer: what it raises when the library ends in the middle of its calls. No broker is here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.deliver.kafka import connection
from penstock.deliver.kafka.package_producer import PackageProducer
from penstock.deliver.kafka.parcels import Parcel

# Nobody listens there.
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": "0"}


class Ended:
    """Stands for the package's producer after its end, as Python shows it: an error under a callback's feet."""

    def __init__(self, cause: BaseException | None) -> None:
        self._cause = cause

    def flush(self, _: float) -> None:
        raise SystemError("returned a result with an exception set") from self._cause


def producer_of(given: object) -> PackageProducer:
    made = PackageProducer(NOWHERE, lambda _: None, lambda _: None)
    made._producer = given  # type: ignore[assignment]
    return made


def test_an_error_under_a_callback_is_told_as_what_it_was() -> None:
    shut_out = KafkaException(KafkaError(KafkaError._FENCED, "a newer one", True))
    with pytest.raises(KafkaException) as told:
        producer_of(Ended(shut_out)).flush(1)
    assert told.value is shut_out


def test_an_error_without_a_cause_ends_the_producer_too() -> None:
    with pytest.raises(KafkaException) as told:
        producer_of(Ended(None)).flush(1)
    assert told.value.args[0].fatal()


def test_failures_are_told_and_a_full_queue_is_no_failure() -> None:
    failed: list[KafkaError] = []
    producer = PackageProducer({**NOWHERE, "queue.buffering.max.messages": "1"}, failed.append, lambda _: None)
    assert producer.put("topic", 0, b"k", b"v") is None
    refusal = producer.put("topic", 0, b"k", b"v")
    assert refusal is not None
    assert refusal.code() == KafkaError._QUEUE_FULL
    producer.purge()
    producer.flush(10)
    assert [error.code() for error in failed] == [KafkaError._PURGE_QUEUE]
    producer.close()


def test_a_record_has_the_headers_that_are_its_own_and_with_a_value_the_fixed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "usable", lambda _: False)
    made = connection.Connection(NOWHERE)
    assert isinstance(made.producer, PackageProducer)
    sent: list[tuple[Any, ...]] = []

    def put(*record: Any) -> None:
        sent.append(record)

    monkeypatch.setattr(made.producer, "put", put)
    columns = {"key": [b"a", b"a"], "value": [b"v", None], "id": [b"1", b"1"], "ce_id": [b"x", None]}
    batch = pa.RecordBatch.from_pydict({name: pa.array(column, pa.binary()) for name, column in columns.items()})
    made.send(Parcel("topic", batch, [], (("content-type", b"text"),)))
    assert sent == [
        ("topic", -1, b"a", b"v", [("id", b"1"), ("ce_id", b"x"), ("content-type", b"text")]),
        ("topic", -1, b"a", None, [("id", b"1")]),
    ]
    made.close()
