"""Tables and records for the tests of the Kafka sink, and how their events are read back."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa

from penstock.envelopes.contract import EventChoice
from penstock.envelopes.envelope import Envelope, Events, Wire
from penstock.formats import avro
from penstock.model import types as t
from penstock.model.change import Change, Deletion, Marker, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records.records import Records, row_type
from penstock.settings.kafka import Serialisation

NOW_US = 1_794_726_693_900_000
WRITTEN_US = 1_794_726_693_414_155
USERS = TableSchema(
    TableId("lab", "users"),
    (Column("id", t.INT32, Role.PARTITION), Column("name", t.TEXT), Column("email", t.TEXT)),
    source="cassandra",
)
EVENTS = TableSchema(
    TableId("lab", "events"),
    (
        Column("a", t.INT32, Role.PARTITION),
        Column("c1", t.INT32, Role.CLUSTERING),
        Column("s", t.TEXT, Role.STATIC),
        Column("v", t.TEXT),
    ),
    source="cassandra",
)
ORIGIN = Origin("node1", "dc1", "CommitLog-8-1794726648383.log", 107091, None, 0)
CHOICE = EventChoice("lab1", version="3.7.0")


def records_of(
    schema: TableSchema,
    changes: Sequence[Change],
    *,
    after: Sequence[dict[str, Any] | None] | None = None,
    before: Sequence[dict[str, Any] | None] | None = None,
) -> Records:
    """Records of these changes; rows are given as Arrow's own plain values."""
    type_ = row_type(schema)
    rows = [None if given is None else pa.array(given, type_) for given in (after, before)]
    versions = pa.array(range(len(changes)), pa.int64())
    return Records(schema, avro.encode(schema, changes), rows[0], rows[1], versions)


def user(number: int, name: str = "Anne", **more: Any) -> Change:
    """An INSERT into the table of users."""
    cells = {"name": Set(name), "email": Set(f"{name}@example.org")}
    return Change(
        Op.INSERT, {"id": number}, cells, time=WRITTEN_US, marker=Marker(), origin=more.pop("origin", ORIGIN), **more
    )


def deleted_user(number: int) -> Change:
    return Change(Op.DELETE, {"id": number}, time=WRITTEN_US, deletion=Deletion(WRITTEN_US, 1), origin=ORIGIN)


def json_events(records: Records, choice: EventChoice = CHOICE, **kind: Any) -> list[tuple[Any, Any]]:
    """Keys and values of the events, read as JSON."""
    wire = Wire(Serialisation.JSON)
    out = []
    for events in Envelope(records.schema, choice, wire, wire, **kind).render(records, NOW_US):
        for key, value in zip(split(events, "keys"), split(events, "values"), strict=True):
            out.append((json.loads(key), json.loads(value)))
    return out


def split(events: Events, side: str) -> list[bytes]:
    """The bytes of each record."""
    return [bytes(record) for record in getattr(events, side).to_arrow().to_pylist()]


def read_avro(text: str, record: bytes) -> Any:
    """One record, which must be all there is."""
    schema = fastavro.parse_schema(json.loads(text))
    source = io.BytesIO(record)
    found = fastavro.schemaless_reader(source, schema, None)
    assert source.tell() == len(record)
    return found
