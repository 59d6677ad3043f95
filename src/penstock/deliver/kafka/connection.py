"""Connection: a producer that a process keeps from task to task, and how it waits for brokers that are away.

What waits for the broker is bounded: when the queue is full, sending waits, for as long as it takes. librdkafka tries
again at least once a second meanwhile, and keeps the order. An outage is logged when it begins and when it ends. Only
failures are reported back, so a record that was sent costs Python nothing more.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException

from penstock.deliver.kafka._send_loop import Records
from penstock.deliver.kafka.clients import refused_property
from penstock.deliver.kafka.native_producer import NativeProducer, usable
from penstock.deliver.kafka.package_producer import PackageProducer
from penstock.deliver.kafka.parcels import NAME, Parcel
from penstock.deliver.outages import Waiting
from penstock.errors import DeliveryFailed, PenstockError, TargetRefused

log = structlog.get_logger()
_WAIT_S = 1.0
_LOOK_S = 0.1
_BROKERS_AWAY = "brokers away"
# The partition that a record's key says.
_ANYWHERE = -1
# Between two looks at what came back.
_POLL_RECORDS = 5000
_KEPT_MAX = 64
_SIZE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
# What sending once more does not change, whatever becomes of the producer.
REFUSALS = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    *_SIZE,
    # These may be healed by making the topic again, but not by waiting for it in the same task.
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
# What brokers say while they start, move or catch up. Only producers' own calls mark these as worth another try.
_PASSING = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
)


def passing(error: KafkaError) -> bool:
    """Whether the same call may work a little later."""
    return error.retriable() or error.code() in _PASSING or error.name().startswith("_")


class Connection:
    """One producer. Used by one thread at a time."""

    def __init__(self, properties: dict[str, str], name: str = "") -> None:
        self._name = name
        self._away = False
        self._heard = 0
        # Who is told of brokers that are away; each task sets its own.
        self.waiting = Waiting(None, NAME, 0)
        # What the broker said of records that it did not take.
        self.failures: list[KafkaError] = []
        made = NativeProducer if usable(properties) else PackageProducer
        try:
            self.producer: NativeProducer | PackageProducer = made(properties, self.failures.append, self._error)
        except KafkaException as error:
            raise refused_property(error) from error

    def send(self, parcel: Parcel) -> int:
        """Hand all records of a parcel to the producer; gives their bytes. Stops early when something has failed."""
        if isinstance(self.producer, NativeProducer):
            self._send_together(self.producer, parcel)
        else:
            self._send_each(self.producer, parcel)
        return sum(buffer.size for column in parcel.records.columns[:2] for buffer in column.buffers()[2:] if buffer)

    def _send_together(self, producer: NativeProducer, parcel: Parcel) -> None:
        keys, values, *more = (_native_column(column) for column in parcel.records.columns)
        headers = [(name.encode(), column) for name, column in zip(parcel.headers, more, strict=True)]
        fixed = [(name.encode(), value) for name, value in parcel.fixed]
        records = Records(parcel.records.num_rows, keys, values, headers, fixed)
        at = 0
        while at < records.count and not self.failures:
            at, error = producer.produce(parcel.topic, records, at)
            if error is None:
                self.wait(0)
            else:
                self._refused(error, parcel.topic)

    def _send_each(self, producer: PackageProducer, parcel: Parcel) -> None:
        keys, values, *more = (_slices(column) for column in parcel.records.columns)
        topic = parcel.topic
        for number, key in enumerate(keys):
            told = ((name, column[number]) for name, column in zip(parcel.headers, more, strict=True))
            headers = [(name, value) for name, value in told if value is not None]
            if values[number] is not None:
                headers += parcel.fixed
            while (error := producer.put(topic, _ANYWHERE, key, values[number], headers)) is not None:
                self._refused(error, topic)
                if self.failures:
                    break
            if number % _POLL_RECORDS == 0:
                self.wait(0)
            if self.failures:
                break

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Hand one record for one partition to the producer, unless something has failed."""
        while not self.failures and (error := self.producer.put(topic, partition, key, value)) is not None:
            self._refused(error, topic)

    def _refused(self, error: KafkaError, topic: str) -> None:
        """The producer itself does not take a record: not yet, or never."""
        if error.code() == KafkaError._QUEUE_FULL:
            self.wait()
        elif error.code() in (KafkaError._STATE, KafkaError._FATAL) or error.fatal():
            # Something has failed already, and only the report of it is still on its way.
            self.failures.append(error)
        else:
            raise self.trouble(error, topic)

    def wait(self, seconds: float = _WAIT_S) -> None:
        """Let the producer work for a while."""
        # What the library says of itself counts as waiting too, until it was heard.
        before, heard = len(self.producer), self._heard
        try:
            self.producer.poll(seconds)
        except KafkaException as error:
            self.failures.append(error.args[0])
        if self._away and before - len(self.producer) > self._heard - heard and not self.failures:
            self.answered()
        elif self._away and seconds:
            self.waiting.again(_BROKERS_AWAY)

    def drain(self) -> None:
        """Return when the brokers have everything, or have refused something."""
        while len(self.producer) and not self.failures:
            try:
                self.producer.flush(_WAIT_S)
            except KafkaException as error:
                self.failures.append(error.args[0])
            if self._away and len(self.producer):
                self.waiting.again(_BROKERS_AWAY)

    def give_up(self) -> None:
        """Forget what still waits, and return when all of it was told."""
        self.producer.purge()
        until = time.monotonic() + _WAIT_S
        while len(self.producer) and time.monotonic() < until:
            self.wait(_LOOK_S)

    def flush(self) -> None:
        """Return when the brokers have everything; raises when they refuse something."""
        self.drain()
        if self.failures:
            raise self.trouble(self.failures[0])
        self.answered()

    def trouble(self, error: KafkaError, topic: str | None = None) -> PenstockError:
        """What a failure means for the batch."""
        if error.code() in _SIZE:
            return TargetRefused("a topic takes less than when the pipeline started; start it again", topic=topic)
        if passing(error) or (error.fatal() and error.code() not in REFUSALS):
            return DeliveryFailed(f"Kafka did not take all records: {error.name()}", topic=topic)
        return TargetRefused(f"Kafka refuses records: {error.name()}", topic=topic)

    def close(self) -> None:
        """Give up what still waits."""
        # One that the broker has shut out says so once more.
        with suppress(KafkaException):
            self.producer.purge()
            self.producer.flush(_WAIT_S)
        self.producer.close()

    def _error(self, error: KafkaError) -> None:
        self._heard += 1
        if error.code() == KafkaError._ALL_BROKERS_DOWN and not self._away:
            self._away = True
            log.warning("brokers away", producer=self._name, reason=error.name(), waiting=len(self.producer))
        elif error.fatal():
            self.failures.append(error)

    def answered(self) -> None:
        """The brokers have taken something, so they are there."""
        self.waiting.over()
        if self._away:
            self._away = False
            log.info("brokers back", producer=self._name)


class Kept:
    """What a process keeps from task to task, one thing for each use; the longest unused goes first."""

    def __init__(self) -> None:
        # With what each was made of.
        self._kept: OrderedDict[object, tuple[object, Any]] = OrderedDict()

    def get(self, key: object, made_of: object, make: Callable[[], Any]) -> Any:
        """What is kept for this use. When it was made of something else it is closed, and another one is made."""
        if key in self._kept and self._kept[key][0] == made_of:
            self._kept.move_to_end(key)
            return self._kept[key][1]
        self.drop(key)
        while len(self._kept) >= _KEPT_MAX:
            self._kept.popitem(last=False)[1][1].close()
        made = make()
        self._kept[key] = (made_of, made)
        return made

    def clear(self, *, close: bool = True) -> list[Any]:
        """Forget everything, as a new process would; gives what was kept."""
        gone = [kept for _, kept in self._kept.values()]
        self._kept.clear()
        for kept in gone if close else ():
            kept.close()
        return gone

    def drop(self, key: object) -> None:
        """Forget what no longer works."""
        _, gone = self._kept.pop(key, (None, None))
        if gone is not None:
            gone.close()


# Of this process: Spark's Python workers live through many tasks.
KEPT = Kept()


def _native_column(column: Any) -> tuple[Any, Any, Any]:
    """Offsets and bytes of a binary array as they are, and a mark for each value when some are null."""
    _, offsets, data = column.buffers()
    places = memoryview(offsets).cast("B")[: offsets.size // 4 * 4].cast("i")
    there = None
    if column.null_count:
        there = memoryview(column.is_valid().to_numpy(zero_copy_only=False).view("uint8"))
    content = b"" if data is None else memoryview(data).cast("B")
    return places[column.offset : column.offset + len(column) + 1], content, there


def _slices(column: Any) -> list[Any]:
    """The values of a binary array, which librdkafka takes as nothing but bytes; None where it is null."""
    offsets = memoryview(column.buffers()[1]).cast("i")[column.offset : column.offset + len(column) + 1].tolist()
    data = b"" if column.buffers()[2] is None else column.buffers()[2].to_pybytes()
    made: list[Any] = [data[start:stop] for start, stop in pairwise(offsets)]
    if column.null_count:
        for number in column.is_null().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
            made[number] = None
    return made
