"""Contract: what an envelope is of one table, whatever the envelope.

An envelope says what stands in the key, in the value and in the headers of a Kafka record, and what these look like to
consumers. It says so once for each version of a table's schema, as layouts; the kernels do the rest for whole batches.
Serialisations are no business of an envelope, except where its own specification ties the two together.

The same batch at the same time always gives the same keys, values and headers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.envelopes.connect import Schema
from penstock.envelopes.layout import Arrays, Node
from penstock.envelopes.values import ValueChoice
from penstock.formats._rows import Input
from penstock.formats.change_columns import ChangeColumns
from penstock.model.schema import TableSchema
from penstock.records.records import Records
from penstock.settings.kafka import CloudEventsMode, EnvelopeKind, Serialisation

Tops = Mapping[str, pa.Array | Input]


@dataclass(frozen=True, slots=True)
class EventChoice:
    """What may be chosen about events."""

    prefix: str
    cluster: str = "Test Cluster"
    version: str = ""
    # Field names with the characters that Avro allows only.
    sanitised: bool = False
    values: ValueChoice = field(default_factory=ValueChoice)
    envelope: EnvelopeKind = EnvelopeKind.DEBEZIUM
    mode: CloudEventsMode = CloudEventsMode.STRUCTURED


@dataclass(frozen=True, slots=True)
class Asked:
    """What an envelope is wanted for."""

    schema: TableSchema
    # The columns that events have. Where the table has no such column, or one of another type, they are null.
    shown: TableSchema
    choice: EventChoice
    # Whole rows instead of changes, and whether the row before is known too.
    rows: bool
    before: bool
    # How values are written, and where their schema is if a registry has it.
    serialisation: Serialisation = Serialisation.JSON
    schema_url: str | None = None


@dataclass(slots=True)
class Batch:
    """A batch of records, as far as envelopes ask for it."""

    records: Records
    columns: ChangeColumns
    # NumPy arrays: the operations of the changes; what happened to the rows, or the same; whether there is no key.
    ops: Any
    row_ops: Any
    keyless: Any
    # When it happened at the source, in microseconds.
    when: pa.Int64Array


def _nothing(_: Batch, __: Arrays) -> Tops:
    return {}


@dataclass(frozen=True, slots=True)
class Contract:
    """One table's records in one envelope."""

    key: Node
    # What the serialisation of values writes, and a registry has the schema of.
    value: Node
    # What of a batch the layouts name beyond what every batch has; `Arrays` has that already.
    arrays: Callable[[Batch, Arrays], Tops] = _nothing
    # A layout, always in Avro, in which the written value stands as the bytes `data`. None: it is the record's value.
    around: Node | None = None
    # Headers whose values are the strings of an array, by the array's name, and those that every event has.
    headers: tuple[tuple[str, str], ...] = ()
    fixed_headers: tuple[tuple[str, str], ...] = ()

    @property
    def schemas(self) -> tuple[Schema, Schema]:
        """What a registry is told of key and value."""
        return self.key.schema, self.value.schema
