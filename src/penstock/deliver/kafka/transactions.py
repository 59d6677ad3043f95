"""The transactional writer: one transaction per task, which also says that the task's part of the batch is done.

The transaction's id is the pipeline's name and the bucket, so a task that is started twice fences the first attempt.
The last record of the transaction is the mark of the batch (`progress`). A batch that comes again after a crash finds
it, and sends nothing. What was sent is also kept in a spool until the transaction is committed: one that the broker has
given up, after an outage longer than its time, is begun again, and so is one whose producer was shut out.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO, Any

import pyarrow as pa
import structlog
from confluent_kafka import KafkaException

from penstock.deliver.kafka.connection import KEPT, REFUSALS, Connection, passing
from penstock.deliver.kafka.packers import Packers
from penstock.deliver.kafka.parcels import NAME, Parcel
from penstock.deliver.kafka.progress import Mark, Proof, TopicMissingError, last_mark, payload_of
from penstock.deliver.outages import Waiting
from penstock.deliver.sink import Delivered, Task, Writer
from penstock.errors import DeliveryFailed, DeliveryInDoubt
from penstock.records.records import Records

log = structlog.get_logger()
_ANSWER_S = 10.0
# The least time between two tries of one request.
_BACKOFF_MS = 400
# Two attempts of one task that shut each other out do not go on for ever.
_RENEWALS_MAX = 5
# A broker that has just started, or that has not heard of a new topic, is asked once more.
_MISSING_TRIES = 5
_SPOOL_MEMORY_BYTES = 16 << 20


class TransactionalWriter(Writer):
    """Writes the records of one task, all of them or none, and once.

    Without a proof, as for records that no batch will bring again, only all of them or none.
    """

    def __init__(
        self, packers: Packers, properties: tuple[dict[str, str], dict[str, str]], task: Task, proof: Proof | None
    ) -> None:
        self._packers = packers
        self._properties = properties
        self._task = task
        self._proof = proof
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
        if self._session is None:
            self._session = self._begun()
        for parcel in self._packers.pack(records, self._task):
            self._delivered.dead += parcel.dead
            if self._done:
                continue
            self._delivered.records += parcel.records.num_rows
            self._spool.add(parcel)
            if not self._broken:
                self._delivered.bytes += self._session.send(parcel)
                self._broken = self._session.failed

    def finish(self) -> Delivered:
        while self._session is not None and not self._done:
            try:
                if self._broken:
                    self._broken = not self._again(self._session)
                else:
                    self._done = self._session.commit(self._proof)
                    self._broken = not self._done
            except FencedError as error:
                # Its end may have been the commit whose answer was lost, or another attempt's, so the question whether
                # the batch is done is asked once more.
                if self._proof is None and not self._broken:
                    raise DeliveryInDoubt("whether the records were sent cannot be told", reason=error) from error
                self._shut_out(error)
                self._session = self._begun()
                self._broken = not self._done
        self._spool.close()
        if self._session is not None and self._proof is not None:
            self._delivered.payload = payload_of(self._proof)
        return self._delivered

    def abort(self) -> None:
        self._waiting.over()
        self._spool.close()
        KEPT.drop(self._key())

    def _again(self, session: Session) -> bool:
        """Give the transaction up and send everything in a new one; whether that went well."""
        session.check_failures()
        log.warning("transaction begun again", pipeline=self._task.pipeline, bucket=self._task.bucket)
        session.rollback()
        self._session = session = self._kept()
        session.begin()
        for parcel in self._spool.parcels():
            session.send(parcel)
            if session.failed:
                return False
        return True

    def _begun(self) -> Session:
        """A session, with a transaction that is open unless the batch was done before."""
        while True:
            try:
                session = self._kept()
                self._done = session.has_done(self._proof)
                if not self._done:
                    session.begin()
                return session
            except FencedError as error:
                self._shut_out(error)

    def _kept(self) -> Session:
        """The session of this process, or another one when it is of no more use."""
        made = self._kept_or_new()
        if made.doubtful or made.outdated(self._proof):
            KEPT.drop(self._key())
            made = self._kept_or_new()
        made.told(self._waiting)
        return made

    def _kept_or_new(self) -> Session:
        made: Session = KEPT.get(
            self._key(), self._properties, lambda: Session(*self._properties, self._task, self._waiting)
        )
        return made

    def _shut_out(self, error: FencedError) -> None:
        """Forget a session that the broker, or another attempt of the same task, has shut out.

        A transaction that lives too long is ended by the broker in this way.
        """
        self._renewals += 1
        if self._renewals > _RENEWALS_MAX:
            raise DeliveryFailed(
                f"a transaction cannot go on: {error}", pipeline=self._task.pipeline, bucket=self._task.bucket
            ) from error
        KEPT.drop(self._key())

    def _key(self) -> object:
        servers = self._properties[0]["bootstrap.servers"]
        checkpoint = None if self._proof is None else (self._proof.topic, self._proof.mark.checkpoint)
        return ("transactions", servers, self._task.pipeline, self._task.bucket, checkpoint)


class Session:
    """A transactional producer of one bucket, and what it has committed last."""

    def __init__(self, producer: dict[str, str], client: dict[str, str], task: Task, waiting: Waiting) -> None:
        name = f"{task.pipeline}-{task.bucket}"
        self._client = client
        self._group = f"penstock-{name}"
        backoff_ms = max(_BACKOFF_MS, int(producer["retry.backoff.ms"]))
        # librdkafka varies it by a fifth.
        self._straight_s = 0.75 * backoff_ms / 1000
        self._connection = Connection({**producer, "transactional.id": name, "retry.backoff.ms": str(backoff_ms)}, name)
        self.told(waiting)
        # The mark that was committed last, as far as it is known here.
        self._last: Mark | None = None
        self._in_transaction = False
        # Whether a request to end a transaction may still be on its way: a connection broke or was silent, and the
        # request was sent again. Were it to arrive late, it would end the next transaction of this producer; a new
        # producer of the same id it cannot harm.
        self.doubtful = False
        # This ends what an earlier producer of the same id has left open.
        try:
            self._until_answered(lambda: self._connection.producer.init_transactions(_ANSWER_S))
        except BaseException:
            self._connection.close()
            raise

    def told(self, waiting: Waiting) -> None:
        """Say it here from now on when brokers are away."""
        self._connection.waiting = waiting

    @property
    def failed(self) -> bool:
        return bool(self._connection.failures)

    def check_failures(self) -> None:
        """Raise when the broker has refused something that it will refuse again, or this producer for good."""
        for failure in self._connection.failures:
            if failure.code() in REFUSALS:
                raise self._connection.trouble(failure)
        for failure in self._connection.failures:
            if failure.fatal():
                raise FencedError(failure.name())

    def outdated(self, proof: Proof | None) -> bool:
        """Whether another process has sent batches of this bucket since this one did.

        Its producer has then shut this one out, which the broker would tell only after everything was sent.
        """
        if proof is None or proof.known is None or self._last is None:
            return False
        return self._last not in (proof.known, proof.mark)

    def has_done(self, proof: Proof | None) -> bool:
        """Whether this very batch was committed before; raises when nobody can tell."""
        if proof is None:
            return False
        if self._last is None:
            found = self._found(proof)
            proof.check(found)
            self._last = found
        return self._last == proof.mark

    def _found(self, proof: Proof) -> Mark | None:
        """The last mark of the bucket. What was begun before this session is over, so nothing can follow it."""
        found: list[Mark | None] = []
        for _ in range(_MISSING_TRIES):
            try:
                self._until_answered(lambda: found.append(last_mark(self._client, self._group, proof)))
                return found[-1]
            except TopicMissingError:
                self._connection.wait()
        return None

    def begin(self) -> None:
        self._connection.failures.clear()
        try:
            self._connection.producer.begin_transaction()
        except KafkaException as error:
            raise FencedError(error.args[0].name()) from error
        self._in_transaction = True

    def send(self, parcel: Parcel) -> int:
        return self._connection.send(parcel)

    def commit(self, proof: Proof | None) -> bool:
        """Commit records and mark together; False when the transaction must be begun again."""
        if proof is not None:
            self._connection.put(proof.topic, proof.bucket, proof.key, proof.mark.encode())
        # What is still on its way would be waited for in the call that is timed.
        self._connection.drain()
        if self.failed:
            return False
        try:
            self._end(self._connection.producer.commit_transaction)
        except _GivenUp:
            return False
        self._last = None if proof is None else proof.mark
        self._in_transaction = False
        return True

    def rollback(self) -> None:
        if not self._in_transaction:
            return
        self._connection.give_up()
        # The end of a transaction that no broker has heard of needs no broker.
        self._end(self._connection.producer.abort_transaction, proof=False)
        self._in_transaction = False
        self._connection.wait(0)

    def close(self) -> None:
        self._connection.close()

    def _end(self, work: Callable[[float], Any], *, proof: bool = True) -> None:
        """End the transaction. What that leaves is in doubt when the request may have been sent twice.

        librdkafka does that by itself and does not tell, but never before the time between two tries has passed.
        """
        self.doubtful = True
        began = time.monotonic()
        self._until_answered(lambda: work(_ANSWER_S), proof=proof)
        self.doubtful = time.monotonic() - began >= self._straight_s

    def _until_answered(self, work: Callable[[], Any], *, proof: bool = True) -> None:
        """Do it until the brokers have answered; each attempt waits a while for them.

        `proof`: that it is done shows that they are there.
        """
        while True:
            try:
                work()
            except KafkaException as error:
                found = error.args[0]
                if found.code() in REFUSALS:
                    raise self._connection.trouble(found) from error
                if found.fatal():
                    raise FencedError(found.name()) from error
                if found.txn_requires_abort():
                    raise _GivenUp from error
                if not passing(found):
                    raise self._connection.trouble(found) from error
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
        # Of each parcel where it begins, and what is not in its records.
        self._heads: list[tuple[int, Parcel]] = []

    def add(self, parcel: Parcel) -> None:
        self._heads.append((self._file.tell(), replace(parcel, records=None, dead=[])))
        with pa.ipc.new_stream(self._file, parcel.records.schema) as stream:
            stream.write_batch(parcel.records)

    def parcels(self) -> Iterator[Parcel]:
        """All of them once more, in order."""
        for place, head in self._heads:
            self._file.seek(place)
            yield replace(head, records=pa.ipc.open_stream(self._file).read_next_batch())
        self._file.seek(0, 2)

    def close(self) -> None:
        self._file.close()
