"""Parcels: records of one table, ready to be sent: the topic, keys and values, and what the records say of themselves.

A parcel is made in the task. Records that the topic cannot take, because a value has no place in the consumer's type or
the record is too large, become dead letters here, before anything is sent; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import __version__
from penstock.deliver.dead_letter import dead_letter
from penstock.deliver.sink import DeadLetter, Task
from penstock.envelopes.compilation import wire_header
from penstock.envelopes.contract import EventChoice
from penstock.envelopes.envelope import Envelope, Events, Wire
from penstock.envelopes.protobuf_schema import FieldNumbers
from penstock.envelopes.values import ValueChoice
from penstock.model.schema import TableSchema
from penstock.records.records import Records
from penstock.settings import RecordType
from penstock.settings.kafka import KafkaSettings, Serialisation

NAME = "kafka"
# One header says it all: each further one costs as much as the record itself. Envelopes may have headers of their own.
HEADER = "penstock.change"
# Letters are made of so many records at a time: each of them looks at all of these.
_LETTERS = 64


@dataclass(frozen=True, slots=True)
class Registered:
    """The numbers of one table's schemas in the registry, and those of Protocol Buffers' fields."""

    key: int = 0
    value: int = 0
    key_fields: dict[str, dict[str, int]] = field(default_factory=dict)
    value_fields: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Parcel:
    """Records to send, and those that cannot be sent."""

    topic: str
    # Binary columns: key, value, and a header each of the others, under its name. A value that is null is a tombstone,
    # a header that is null is not there.
    records: pa.RecordBatch
    dead: list[DeadLetter]
    # Headers that each record with a value has.
    fixed: tuple[tuple[str, bytes], ...] = ()

    @property
    def headers(self) -> list[str]:
        """The names of the headers that have columns."""
        names: list[str] = self.records.schema.names[2:]
        return names


def event_choice(settings: KafkaSettings) -> EventChoice:
    """What the settings say about events."""
    return EventChoice(
        prefix=settings.topic_prefix,
        cluster=settings.cluster_name,
        version=__version__,
        sanitised=settings.sanitise_names,
        values=ValueChoice(settings.decimals, settings.varints),
        envelope=settings.envelope,
        mode=settings.cloudevents_mode,
    )


class Packer:
    """Makes parcels of one version of a table's schema."""

    def __init__(
        self,
        schema: TableSchema,
        settings: KafkaSettings,
        topic: str,
        registered: Registered,
        bytes_max: int,
        shown: TableSchema | None = None,
    ) -> None:
        self._schema = schema
        self._topic = topic
        self._settings = settings
        self._bytes_max = bytes_max
        self._envelope = Envelope(
            schema,
            event_choice(settings),
            _wire(settings.key_format, registered.key, registered.key_fields),
            _wire(settings.value_format, registered.value, registered.value_fields, settings.registry_url),
            rows=settings.record is not RecordType.CHANGE,
            before=settings.record is RecordType.ALL,
            partial_keys=settings.partial_keys,
            shown=shown,
        )
        self._fixed = tuple((name, text.encode()) for name, text in self._envelope.fixed_headers)
        self._fixed_bytes = sum(len(name) + len(text) for name, text in self._fixed)

    def pack(self, records: Records, task: Task) -> Iterator[Parcel]:
        """The parcels of a batch, each of which takes little memory."""
        mark = f";schema={self._schema.version};batch={task.batch}".encode()
        for events in self._envelope.render(records, task.now_us, mark):
            dead, good = self._sorted_out(records, events)
            yield Parcel(self._topic, self._outgoing(events, good), dead, self._fixed)

    def _sorted_out(self, records: Records, events: Events) -> tuple[list[DeadLetter], Any]:
        """What cannot be sent, as dead letters, and the numbers of what can."""
        sizes = np.diff(np.frombuffer(events.keys.offsets, np.int32)) + np.diff(
            np.frombuffer(events.values.offsets, np.int32)
        )
        sizes += self._fixed_bytes
        for name, texts in events.headers:
            sizes += len(name) + pc.binary_length(texts).to_numpy(zero_copy_only=False)
        good = ~events.skipped
        large = good & (sizes > self._bytes_max)
        reasons = {
            int(number): f"the record has {sizes[number]} bytes, and the topic {self._topic} takes {self._bytes_max}"
            for number in np.flatnonzero(large)
        }
        reasons |= {number: reason for number, reason in events.refused.items() if good[number]}
        good[list(reasons)] = False
        return self._letters(records, events.first, reasons), np.flatnonzero(good)

    def _letters(self, records: Records, first: int, reasons: dict[int, str]) -> list[DeadLetter]:
        numbers = sorted(reasons)
        letters = []
        for at in range(0, len(numbers), _LETTERS):
            some = numbers[at : at + _LETTERS]
            picked = records.take(np.array(some, np.int64) + first)
            for place, number in enumerate(some):
                letters.append(dead_letter(NAME, picked, place, reasons[number], self._settings.record))
        return letters

    def _outgoing(self, events: Events, good: Any) -> pa.RecordBatch:
        keys, values = events.keys.to_arrow(), events.values.to_arrow()
        headers = dict(events.headers)
        identities = {HEADER: events.identities.to_arrow()} if self._settings.headers else {}
        if events.keyless.any():
            keys = pc.if_else(pa.array(events.keyless), pa.scalar(None, pa.binary()), keys)
        if len(good) != len(keys) or (self._settings.tombstones and events.deletes.any()):
            order = good
            follows = np.zeros(len(good), bool)
            if self._settings.tombstones:
                # A delete comes twice: the second time without a value, and so without the headers of an event.
                order = np.repeat(good, 1 + events.deletes[good])
                follows = np.zeros(len(order), bool)
                follows[1:] = order[1:] == order[:-1]
            chosen, filled = pa.array(order, pa.int64()), pa.array(order, pa.int64(), mask=follows)
            keys, values = keys.take(chosen), values.take(filled)
            identities = {name: column.take(chosen) for name, column in identities.items()}
            headers = {name: column.take(filled) for name, column in headers.items()}
        return pa.RecordBatch.from_pydict({"key": keys, "value": values, **identities, **headers})


def _wire(
    serialisation: Serialisation, number: int, fields: dict[str, dict[str, int]], registry: str | None = None
) -> Wire:
    if not serialisation.registered:
        return Wire(serialisation)
    header = wire_header(number, message_index=serialisation is Serialisation.PROTOBUF)
    url = None if registry is None else f"{registry.rstrip('/')}/schemas/ids/{number}"
    return Wire(serialisation, header, FieldNumbers({place: dict(names) for place, names in fields.items()}), url)
