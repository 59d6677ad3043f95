"""The Kafka sink: one topic per table, with the events that consumers of Debezium know.

The driver makes topics and registers schemas before a batch whose tables are new; the tasks send. There is nothing to
commit on the driver: without transactions a record counts when the broker has it, with them when its task's
transaction does. The driver only remembers until which batch each bucket has come, so that a task whose bucket was
elsewhere meanwhile knows that what its process has kept is of no more use.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from penstock.deliver.kafka.connection import Connection
from penstock.deliver.kafka.packers import Packers, Prepared, register
from penstock.deliver.kafka.parcels import NAME
from penstock.deliver.kafka.producer_properties import client_properties, producer_properties, without_effect
from penstock.deliver.kafka.progress import Progress, key_of, read_note, write_note
from penstock.deliver.kafka.registry import Registry
from penstock.deliver.kafka.topics import TopicNames, Topics
from penstock.deliver.kafka.transactions import TransactionalWriter
from penstock.deliver.kafka.writer import KafkaWriter
from penstock.deliver.known_schemas import KnownSchemas
from penstock.deliver.sink import Sink, Task, Writer, about
from penstock.model.schema import TableSchema
from penstock.settings import RecordType
from penstock.settings.kafka import Delivery, KafkaSettings

log = structlog.get_logger()
# librdkafka's own bound on one record.
_RECORD_BYTES_MAX = 1_000_000_000
_BATCH_BYTES = 1_000_000


class KafkaSink(Sink):
    """Kafka topics."""

    name = NAME
    every = True

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self.record: RecordType = settings.record
        self.once = settings.delivery is Delivery.EXACTLY_ONCE
        self._prepared = Prepared()
        self._known = KnownSchemas(settings.schema_policy)

        self._directory: Path | None = None
        self._pipeline = ""
        self._buckets = 0
        # What travels to the tasks of the pipeline's own batches; others have no number that could come again.
        self._progress: Progress | None = None

    def keep_in(self, directory: Path, pipeline: str) -> None:
        self._known.keep_in(directory)
        self._directory, self._pipeline = directory, pipeline

    def divide(self, buckets: int) -> None:
        self._buckets = buckets

    def left_out(self) -> Mapping[str, Sequence[str]]:
        return self._known.left_out

    def check(self) -> None:
        """Raise when a setting, the brokers or the registry will not do."""
        settings = self._settings
        Connection(producer_properties(settings)).close()
        topics = Topics(settings)
        topics.check()
        self._begin(topics)
        if settings.key_format.registered or settings.value_format.registered:
            Registry(settings).check()
        TopicNames(settings)
        idle = without_effect(settings)
        if idle:
            log.warning("producer properties without effect", names=idle)

    def prepare(self, schemas: Sequence[TableSchema]) -> None:
        """Make the topics of new tables, and register new schemas."""
        names = TopicNames(self._settings)
        found = [(schema, names.of(schema.table)) for schema in schemas]
        topics = Topics(self._settings)
        # When the pipeline started, the brokers may have been away.
        self._begin(topics)
        topics.make(topic for _, topic in found)
        for schema, topic in found:
            with about(schema.table):
                shown = self._known.shown(schema)
                if shown.fingerprint != schema.fingerprint:
                    self._prepared.shown[schema.fingerprint] = shown
                self._prepared.registered[schema.fingerprint] = register(shown, topic, self._settings)
        self._prepared.bytes_max |= topics.sizes(topic for _, topic in found)

    def _begin(self, topics: Topics) -> None:
        """See to it that what was sent can be told from what was not, for as long as the checkpoint lives."""
        settings = self._settings
        exactly = settings.delivery is Delivery.EXACTLY_ONCE
        if not exactly or not self._buckets or self._directory is None or self._progress is not None:
            return
        topic = f"{settings.progress_topic}-{self._pipeline}"
        noted = read_note(self._directory, topic)
        topics.make_progress(topic, self._buckets, begun=noted is not None)
        if noted is None:
            noted = Progress(topic, uuid.uuid4().hex)
            connection = Connection(producer_properties(settings), self._pipeline)
            try:
                for bucket in range(self._buckets):
                    connection.put(topic, bucket, key_of(bucket), noted.first().encode())
                connection.flush()
            finally:
                connection.close()
            write_note(self._directory, noted)
        self._progress = noted

    def writer(self, task: Task) -> Writer:
        settings = self._settings
        packers = Packers(settings, self._prepared)
        properties = {**self._sizes(), **producer_properties(settings)}
        if settings.delivery is Delivery.EXACTLY_ONCE:
            mine = self._progress is not None and task.pipeline == self._pipeline
            proof = self._progress.proof(task) if mine and self._progress is not None else None
            return TransactionalWriter(packers, (properties, client_properties(settings)), task, proof)
        return KafkaWriter(packers, properties, task)

    def commit(self, pipeline: str, batch: int, payloads: Sequence[bytes]) -> None:  # noqa: ARG002
        if self._progress is not None and pipeline == self._pipeline:
            for payload in payloads:
                self._progress.done(payload)

    def _sizes(self) -> dict[str, str]:
        """A batch must fit the topic that takes least, and a record the one that takes most."""
        taken = [*self._prepared.bytes_max.values()]
        least, most = min(taken, default=_BATCH_BYTES), max(taken, default=_BATCH_BYTES)
        most = max(most, (self._settings.record_bytes_max or 0) + _BATCH_BYTES)
        return {
            "batch.size": str(min(_BATCH_BYTES, max(least * 9 // 10, 1))),
            "message.max.bytes": str(min(max(most, _BATCH_BYTES), _RECORD_BYTES_MAX)),
        }
