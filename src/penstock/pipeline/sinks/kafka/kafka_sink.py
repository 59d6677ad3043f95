"""The Kafka sink: one topic per table, with the events that consumers of Debezium know.

The driver makes topics and registers schemas before a batch whose tables are new; the tasks send. There is nothing to
commit on the driver: without transactions a record counts when the broker has it, with them when its task's
transaction does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from penstock.model.schema import TableSchema
from penstock.pipeline.sinks.kafka.connection import Connection
from penstock.pipeline.sinks.kafka.kafka_writer import KafkaWriter
from penstock.pipeline.sinks.kafka.packers import Packers, Prepared, register
from penstock.pipeline.sinks.kafka.parcels import NAME
from penstock.pipeline.sinks.kafka.producer_properties import client_properties, producer_properties, without_effect
from penstock.pipeline.sinks.kafka.registry import Registry
from penstock.pipeline.sinks.kafka.topics import TopicNames, Topics
from penstock.pipeline.sinks.kafka.transactions import TransactionalWriter
from penstock.pipeline.sinks.known_schemas import KnownSchemas
from penstock.pipeline.sinks.sink import Sink, Task, Writer, about
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
        self._prepared = Prepared()
        self._known = KnownSchemas(settings.schema_policy)

    def keep_in(self, directory: Path, pipeline: str) -> None:  # noqa: ARG002
        self._known.keep_in(directory)

    def left_out(self) -> Mapping[str, Sequence[str]]:
        return self._known.left_out

    def check(self) -> None:
        """Raise when a setting, the brokers or the registry will not do."""
        settings = self._settings
        Connection(producer_properties(settings)).close()
        topics = Topics(settings)
        topics.check()
        if settings.delivery is Delivery.EXACTLY_ONCE:
            topics.make_progress()
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
        topics.make(topic for _, topic in found)
        for schema, topic in found:
            with about(schema.table):
                shown = self._known.shown(schema)
                if shown.fingerprint != schema.fingerprint:
                    self._prepared.shown[schema.fingerprint] = shown
                self._prepared.registered[schema.fingerprint] = register(shown, topic, self._settings)
        self._prepared.bytes_max |= topics.sizes(topic for _, topic in found)

    def writer(self, task: Task) -> Writer:
        settings = self._settings
        packers = Packers(settings, self._prepared)
        properties = {**self._sizes(), **producer_properties(settings)}
        if settings.delivery is Delivery.EXACTLY_ONCE:
            return TransactionalWriter(packers, settings, (properties, client_properties(settings)), task)
        return KafkaWriter(packers, properties, task)

    def _sizes(self) -> dict[str, str]:
        """A batch must fit the topic that takes least, and a record the one that takes most."""
        taken = [*self._prepared.bytes_max.values()]
        least, most = min(taken, default=_BATCH_BYTES), max(taken, default=_BATCH_BYTES)
        most = max(most, (self._settings.record_bytes_max or 0) + _BATCH_BYTES)
        return {
            "batch.size": str(min(_BATCH_BYTES, max(least * 9 // 10, 1))),
            "message.max.bytes": str(min(max(most, _BATCH_BYTES), _RECORD_BYTES_MAX)),
        }
