"""The transactional writer: one transaction per task, which also says that the task's part of the batch is done.

The transaction's id is the pipeline's name and the bucket, so a task that is started twice fences the first attempt.
Together with the records, an offset is committed for the progress topic, whose value is the number of the batch. A
batch that comes again after a crash finds it, and sends nothing. What was sent is also kept in a spool until the
transaction is committed: one that the broker has given up, after an outage longer than its time, is begun again.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa
import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.errors import DeliveryFailed
from penstock.pipeline.outages import Waiting
from penstock.pipeline.records import Records
from penstock.pipeline.sinks.kafka.clients import silent
from penstock.pipeline.sinks.kafka.connection import KEPT, Connection, passing
from penstock.pipeline.sinks.kafka.packers import Packers
from penstock.pipeline.sinks.kafka.parcels import NAME, PARCEL, Parcel
from penstock.pipeline.sinks.sink import Delivered, Task, Writer
from penstock.settings.kafka import KafkaSettings

log = structlog.get_logger()
_ANSWER_S = 10.0
# A call that takes much longer than it was given does not come back.
_HANG_S = 3 * _ANSWER_S
# The least time between two tries of one request.
_BACKOFF_MS = 400
# Two attempts of one task that shut each other out do not go on for ever.
_RENEWALS_MAX = 5
_SPOOL_MEMORY_BYTES = 16 << 20


class TransactionalWriter(Writer):
    """Writes the records of one task, all of them or none, and once."""

    def __init__(
        self, packers: Packers, settings: KafkaSettings, properties: tuple[dict[str, str], dict[str, str]], task: Task
    ) -> None:
        self._packers = packers
        self._settings = settings
        self._properties = properties
        self._task = task
        self._waiting = task.waiting(NAME)
        self._delivered = Delivered()
        self._session: Session | None = None
        self._spool = Spool()
        self._done = False
        self._broken = False
        self._renewals = 0

    def write(self, records: Records) -> None:
        if not len(records):
            return
        session = self._open()
        for parcel in self._packers.pack(records, self._task):
            self._delivered.dead += parcel.dead
            if self._done:
                continue
            self._delivered.records += parcel.records.num_rows
            self._spool.add(parcel)
            if not self._broken:
                self._delivered.bytes += session.send(parcel, headers=self._packers.headers)
                self._broken = session.failed

    def finish(self) -> Delivered:
        while self._session is not None and not self._done:
            try:
                if self._broken:
                    self._broken = not self._again(self._session)
                else:
                    self._done = self._session.commit(self._task)
                    self._broken = not self._done
            except FencedError as error:
                self._session = self._renewed(error)
        self._spool.close()
        return self._delivered

    def abort(self) -> None:
        self._waiting.over()
        self._spool.close()
        KEPT.drop(self._key())

    def _again(self, session: Session) -> bool:
        """Give the transaction up and send everything in a new one; whether that went well."""
        log.warning("transaction begun again", pipeline=self._task.pipeline, bucket=self._task.bucket)
        session.rollback()
        self._session = session = self._kept()
        session.begin()
        for parcel in self._spool.parcels():
            session.send(parcel, headers=self._packers.headers)
            if session.failed:
                return False
        return True

    def _open(self) -> Session:
        """The session, with a transaction that is open unless the batch was done before."""
        if self._session is None:
            try:
                self._session = self._kept()
                self._done = self._session.has_done(self._task)
                if not self._done:
                    self._session.begin()
            except FencedError as error:
                self._session = self._renewed(error)
                self._broken = False
                if not self._done:
                    self._session.begin()
        return self._session

    def _kept(self) -> Session:
        """The session of this process, or another one when nobody knows what its last request may still do."""
        made = self._kept_or_new()
        if made.doubtful:
            KEPT.drop(self._key())
            made = self._kept_or_new()
        made.told(self._waiting)
        return made

    def _kept_or_new(self) -> Session:
        made: Session = KEPT.get(
            self._key(), lambda: Session(self._settings.progress_topic, *self._properties, self._task, self._waiting)
        )
        return made

    def _renewed(self, error: FencedError) -> Session:
        """A new session after the broker, or another attempt of the same task, has shut the old one out.

        A transaction that lives too long is ended by the broker in this way. Its end may also have been the commit
        whose answer was lost, or another attempt's, so the question whether the batch is done is asked once more.
        """
        self._renewals += 1
        if self._renewals > _RENEWALS_MAX:
            raise DeliveryFailed(
                f"a transaction cannot go on: {error}", pipeline=self._task.pipeline, bucket=self._task.bucket
            ) from error
        KEPT.drop(self._key())
        session = self._kept()
        self._done = session.has_done(self._task)
        self._broken = not self._done
        return session

    def _key(self) -> object:
        return (*sorted(self._properties[0].items()), self._task.pipeline, self._task.bucket)


class Session:
    """A transactional producer of one bucket, and what it has committed last."""

    def __init__(
        self, progress: str, producer: dict[str, str], client: dict[str, str], task: Task, waiting: Waiting
    ) -> None:
        name = f"{task.pipeline}-{task.bucket}"
        self._place = TopicPartition(progress, 0)
        backoff_ms = max(_BACKOFF_MS, int(producer["retry.backoff.ms"]))
        # librdkafka varies it by a fifth.
        self._straight_s = 0.75 * backoff_ms / 1000
        self._connection = Connection({**producer, "transactional.id": name, "retry.backoff.ms": str(backoff_ms)}, name)
        self.told(waiting)
        reading = {**client, "group.id": f"penstock-{name}", "enable.auto.commit": "false"}
        self._reader = Consumer({**reading, "reconnect.backoff.max.ms": "1000"}, logger=silent())
        # The batch whose transaction is known to be committed, with its time.
        self._last: tuple[int, int] | None = None
        self._in_transaction = False
        # Whether a request to end a transaction may still be on its way: a connection broke or was silent, and the
        # request was sent again. Were it to arrive late, it would end the next transaction of this producer; a new
        # producer of the same id it cannot harm.
        self.doubtful = False
        # Whether librdkafka has not come back from a call.
        self._stuck = False
        # This ends what an earlier producer of the same id has left open.
        self._until_answered(lambda: self._connection.producer.init_transactions(_ANSWER_S))

    def told(self, waiting: Waiting) -> None:
        """Say it here from now on when brokers are away."""
        self._connection.waiting = waiting

    @property
    def failed(self) -> bool:
        return bool(self._connection.failures)

    def has_done(self, task: Task) -> bool:
        """Whether this very batch was committed before. Another checkpoint's batch of the same number was not."""
        if self._last is None:
            found: list[Any] = []
            self._until_answered(lambda: found.extend(self._committed()))
            offset, text = found[-1].offset, found[-1].metadata or ""
            self._last = (offset - 1, int(text) if text.isdecimal() else -1)
        return self._last == (task.batch, task.now_us)

    def _committed(self) -> list[TopicPartition]:
        found = self._reader.committed([self._place], _ANSWER_S)
        # An error of the partition alone is no answer either, and not the same as nothing committed.
        if found[0].error is not None:
            raise KafkaException(found[0].error)
        return list(found)

    def begin(self) -> None:
        self._connection.failures.clear()
        try:
            self._connection.producer.begin_transaction()
        except KafkaException as error:
            raise FencedError(error.args[0].name()) from error
        self._in_transaction = True

    def send(self, parcel: Parcel, *, headers: bool) -> int:
        return self._connection.send(parcel, headers=headers)

    def commit(self, task: Task) -> bool:
        """Commit records and progress together; False when the transaction must be begun again."""
        offset = TopicPartition(self._place.topic, self._place.partition, task.batch + 1, str(task.now_us))
        producer = self._connection.producer
        try:
            group = self._reader.consumer_group_metadata()
            self._until_answered(
                lambda: self._in_time(producer.send_offsets_to_transaction, [offset], group, _ANSWER_S)
            )
            # What is still on its way would be waited for in the call that is timed.
            self._connection.drain()
            self._end(producer.commit_transaction)
        except _GivenUp:
            return False
        self._last = (task.batch, task.now_us)
        self._in_transaction = False
        return True

    def rollback(self) -> None:
        if not self._in_transaction:
            return
        self._connection.producer.purge()
        # The end of a transaction that no broker has heard of needs no broker.
        self._end(self._connection.producer.abort_transaction, proof=False)
        self._in_transaction = False
        self._connection.wait(0)

    def close(self) -> None:
        if self._stuck:
            # It cannot be closed. The broker shuts it out as soon as there is a newer one.
            return
        self._connection.close()
        self._reader.close()

    def _end(self, work: Callable[[float], Any], *, proof: bool = True) -> None:
        """End the transaction. What that leaves is in doubt when the request may have been sent twice.

        librdkafka does that by itself and does not tell, but never before the time between two tries has passed.
        """
        self.doubtful = True
        began = time.monotonic()
        self._until_answered(lambda: work(_ANSWER_S), proof=proof)
        self.doubtful = time.monotonic() - began >= self._straight_s

    def _in_time(self, work: Callable[..., Any], *given: Any) -> None:
        """Do what has a time limit that librdkafka does not always keep: it may hang when a coordinator went away."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                work(*given)
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        thread = threading.Thread(target=run, name="penstock-kafka", daemon=True)
        thread.start()
        thread.join(_HANG_S)
        if thread.is_alive():
            self._stuck = True
            raise FencedError("a call did not come back")
        if errors:
            raise errors[0]

    def _until_answered(self, work: Callable[[], Any], *, proof: bool = True) -> None:
        """Do it until the brokers have answered; each attempt waits a while for them.

        `proof`: that it is done shows that they are there.
        """
        while True:
            try:
                work()
            except KafkaException as error:
                found = error.args[0]
                if found.fatal():
                    raise FencedError(found.name()) from error
                if found.txn_requires_abort():
                    raise _GivenUp from error
                if not passing(found):
                    raise self._connection.trouble(found, self._place.topic) from error
                self._connection.waiting.again(found.name())
                self._connection.wait()
                continue
            if proof:
                self._connection.answered()
            return


class FencedError(Exception):
    """A producer that can do nothing more: the broker takes only newer ones of its name."""


class _GivenUp(Exception):
    """A transaction that can only be ended and begun again."""


class Spool:
    """The parcels of one task, in memory or, when there are many, in a file that has no name."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_SPOOL_MEMORY_BYTES)  # noqa: SIM115
        # Of each parcel where it begins, and its topic.
        self._heads: list[tuple[int, str]] = []

    def add(self, parcel: Parcel) -> None:
        self._heads.append((self._file.tell(), parcel.topic))
        with pa.ipc.new_stream(self._file, PARCEL) as stream:
            stream.write_batch(parcel.records)

    def parcels(self) -> Iterator[Parcel]:
        """All of them once more, in order."""
        for place, topic in self._heads:
            self._file.seek(place)
            yield Parcel(topic, pa.ipc.open_stream(self._file).read_next_batch(), [])
        self._file.seek(0, 2)

    def close(self) -> None:
        self._file.close()
