"""Packers: for each version of each table's schema the packer that makes its records ready.

They are made of what the driver has prepared: topics, what these take, and the numbers of schemas. A task that meets a
version which the driver has not prepared asks the registry itself, which gives the same numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.deliver.kafka.parcels import Packer, Parcel, Registered, event_choice
from penstock.deliver.kafka.producer_properties import client_properties
from penstock.deliver.kafka.registry import Registry, Version
from penstock.deliver.kafka.topics import TopicNames
from penstock.deliver.sink import Task
from penstock.envelopes.avro_schema import avro_schema
from penstock.envelopes.connect import Schema
from penstock.envelopes.envelope import contract_of
from penstock.envelopes.protobuf_schema import FieldNumbers, protobuf_schema
from penstock.errors import SchemaRefused, TargetRefused
from penstock.model.schema import TableSchema
from penstock.records.records import Records
from penstock.settings import RecordType, SchemaPolicy
from penstock.settings.kafka import KafkaSettings, Serialisation

# What the broker adds to a record that is alone in its batch, and the header, fit in this.
_OVERHEAD_BYTES = 1024
# What the broker's own default leaves, for a topic that does not say what it takes.
_DEFAULT_BYTES_MAX = 1_048_588 - _OVERHEAD_BYTES
# More versions of tables than a pipeline has at one time.
_KEPT_MAX = 2000


class _Kept(threading.local):
    """The packers of this thread: making one costs more than a small batch."""

    def __init__(self) -> None:
        self.made: dict[tuple[object, ...], Packer] = {}


_KEPT = _Kept()


@dataclass(slots=True)
class Prepared:
    """What the driver has found out, which travels to the tasks."""

    # By the fingerprint of a schema version; by topic.
    registered: dict[str, Registered] = field(default_factory=dict)
    bytes_max: dict[str, int] = field(default_factory=dict)
    # By the fingerprint of a version whose new columns are left out: the version whose columns events have.
    shown: dict[str, TableSchema] = field(default_factory=dict)


class Packers:
    """The packers of one task."""

    def __init__(self, settings: KafkaSettings, prepared: Prepared) -> None:
        self._settings = settings
        self._prepared = prepared
        self._names = TopicNames(settings)
        # What packers differ in beside the schema; nothing secret is in this text, and nothing secret in a packer.
        self._text = settings.model_dump_json()
        self._refused = 0
        sent_max = client_properties(settings).get("message.max.bytes", "")
        self._sent_max = int(sent_max) if sent_max.isdecimal() else None

    def pack(self, records: Records, task: Task) -> Iterator[Parcel]:
        """The records of one batch, ready to be sent."""
        for parcel in self._packer(records.schema).pack(records, task):
            self._refused += len(parcel.dead)
            if self._refused > self._settings.refused_records_max:
                raise TargetRefused(
                    f"{self._refused} records of one task cannot be delivered, the last one because "
                    f"{parcel.dead[-1].reason}",
                    table=records.schema.table,
                    topic=parcel.topic,
                    setting="kafka.refused_records_max",
                )
            yield parcel

    def _packer(self, schema: TableSchema) -> Packer:
        topic = self._names.of(schema.table)
        registered = self._prepared.registered.get(schema.fingerprint)
        shown = self._prepared.shown.get(schema.fingerprint, schema)
        if registered is None:
            registered = self._prepared.registered[schema.fingerprint] = register(shown, topic, self._settings)
        bytes_max = self._bytes_max(topic)
        versions = (schema.fingerprint, schema.version, shown.fingerprint)
        key = (self._text, *versions, registered.key, registered.value, bytes_max)
        packer = _KEPT.made.get(key)
        if packer is None:
            if len(_KEPT.made) >= _KEPT_MAX:
                _KEPT.made.clear()
            packer = _KEPT.made[key] = Packer(schema, self._settings, topic, registered, bytes_max, shown)
        return packer

    def _bytes_max(self, topic: str) -> int:
        """How large a record may be: what the operator says, as far as producer and topic take it."""
        settings = self._settings
        known = [self._prepared.bytes_max.get(topic), self._sent_max]
        taken = min((size for size in known if size is not None), default=None)
        if taken is None:
            return settings.record_bytes_max or _DEFAULT_BYTES_MAX
        return min(taken - _OVERHEAD_BYTES, settings.record_bytes_max or taken)


def register(schema: TableSchema, topic: str, settings: KafkaSettings) -> Registered:
    """Register a table's schemas as far as the formats need it; gives their numbers."""
    formats = (settings.key_format, settings.value_format)
    if not any(chosen.registered for chosen in formats):
        return Registered()
    registry = Registry(settings)
    contract = contract_of(
        schema,
        event_choice(settings),
        rows=settings.record is not RecordType.CHANGE,
        before=settings.record is RecordType.ALL,
        values=settings.value_format,
    )
    (key, key_fields), (value, value_fields) = (
        _register(registry, f"{topic}-{side}", shape, chosen, settings)
        for side, shape, chosen in zip(("key", "value"), contract.schemas, formats, strict=True)
    )
    return Registered(key, value, key_fields, value_fields)


def _register(
    registry: Registry, subject: str, shape: Schema, chosen: Serialisation, settings: KafkaSettings
) -> tuple[int, dict[str, dict[str, int]]]:
    if not chosen.registered:
        return 0, {}
    numbers = FieldNumbers()
    newest: Version | None = None
    if chosen is Serialisation.PROTOBUF or settings.schema_policy is SchemaPolicy.FAIL:
        newest = registry.latest(subject)
    if chosen is Serialisation.PROTOBUF:
        numbers = FieldNumbers() if newest is None else FieldNumbers.read(newest.text)
        text = protobuf_schema(shape, numbers)
    else:
        text = avro_schema(shape)
    kind = chosen.value.upper()
    stopping = settings.schema_policy is SchemaPolicy.FAIL
    if stopping and newest is not None and registry.find(subject, text, kind) is None:
        raise SchemaRefused(
            "a table's schema has changed, and the sink is set to stop then", subject=subject, version=newest.version
        )
    number = registry.register(subject, text, kind)
    if settings.compatibility is not None:
        registry.demand(subject, settings.compatibility)
    return number, numbers.known
