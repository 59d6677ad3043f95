"""PackageProducer: the producer of librdkafka's Python package, for where the library cannot be called directly.

The package calls back from inside its calls. When the library gives a producer up, for instance because another one has
taken its transactional id, the package sets Python's error and may then go on to call back for records: Python takes
the first thing that such a callback does for the origin of that error and raises SystemError, or finds no error at all
where one was promised. That is told here as what it is, an error that ends the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.deliver.kafka.clients import silent

Headers = list[tuple[str, bytes]] | None


class PackageProducer:
    """One producer. What failed is given to `failed`, what the library says of itself to `said`."""

    def __init__(
        self,
        properties: Mapping[str, str],
        failed: Callable[[KafkaError], None],
        said: Callable[[KafkaError], None],
    ) -> None:
        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed(error)

        hooks: dict[str, Any] = {"on_delivery": delivered, "error_cb": said, "delivery.report.only.error": True}
        self._producer = Producer({**properties, **hooks}, logger=silent())

    def __len__(self) -> int:
        return len(self._producer)

    def put(self, topic: str, partition: int, key: Any, value: Any, headers: Headers = None) -> KafkaError | None:
        """Hand over one record, with its headers when it has some; gives why when it was refused."""
        try:
            _told(self._producer.produce, topic, value, key, partition, headers=headers or None)
        except BufferError:
            return KafkaError(KafkaError._QUEUE_FULL)
        except KafkaException as error:
            refusal: KafkaError = error.args[0]
            return refusal
        return None

    def poll(self, seconds: float) -> None:
        _told(self._producer.poll, seconds)

    def flush(self, seconds: float) -> None:
        _told(self._producer.flush, seconds)

    def purge(self) -> None:
        _told(self._producer.purge)

    def close(self) -> None:
        """The library lets go of it as soon as nobody has it any more."""

    def init_transactions(self, seconds: float) -> None:
        _told(self._producer.init_transactions, seconds)

    def begin_transaction(self) -> None:
        _told(self._producer.begin_transaction)

    def commit_transaction(self, seconds: float) -> None:
        _told(self._producer.commit_transaction, seconds)

    def abort_transaction(self, seconds: float) -> None:
        _told(self._producer.abort_transaction, seconds)


def _told(work: Callable[..., Any], *given: Any, **named: Any) -> None:
    try:
        work(*given, **named)
    except SystemError as error:
        raise _origin(error) from error


def _origin(error: BaseException) -> KafkaException:
    """The library's own error, as far as it is known."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, KafkaException):
            return found
        found = found.__cause__ or found.__context__
    return KafkaException(KafkaError(KafkaError._FATAL, "the producer has ended", True))
