"""The envelope kernels: compiled and plain Python write the same, and every serialisation says the same."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.formats import avro
from penstock.model.change import Change
from penstock.model.schema import TableSchema
from tests.kafka_records import NOW_US, read_avro
from tests.pure_python import second_copy
from tests.strategies import tables_of_changes

_SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
_PACKAGES = ("penstock.formats", "penstock.records", "penstock.envelopes")
_FORMATS = ("json", "json_schema", "avro", "protobuf", "string")
_HANDLINGS = (("double", "long"), ("precise", "precise"), ("string", "string"))


def _load() -> tuple[ModuleType, ModuleType, ModuleType]:
    for package in _PACKAGES:
        importlib.import_module(package)
    names = ("envelope", "contract", "values")
    made = [importlib.import_module(f"penstock.envelopes.{name}") for name in names]
    return made[0], made[1], made[2]


@cache
def _pure() -> tuple[ModuleType, ModuleType, ModuleType]:
    """A second copy of the modules, whose kernels are plain Python."""
    made = second_copy(_PACKAGES, _load)
    kernel = made[0].Rendering.__init__.__globals__["_tree"]
    assert not kernel.compiled
    return made


def _written(
    modules: tuple[ModuleType, ModuleType, ModuleType],
    table: tuple[TableSchema, list[Change]],
    how: str,
    handling: tuple[str, str],
) -> list[tuple[bytes, bytes, bytes, object]]:
    from penstock.settings.kafka import Handling, Serialisation

    envelope, events, values = modules
    # A fresh schema for each side, because programs are kept with the schema.
    schema = replace(table[0])
    choice = events.EventChoice("lab", values=values.ValueChoice(*map(Handling, handling)))
    wire = envelope.Wire(Serialisation(how))
    maker = envelope.Envelope(schema, choice, wire, wire)
    batch = avro.encode(table[0], table[1])
    versions = pa.array(range(len(table[1])), pa.int64())
    records = envelope.Records(schema, replace(batch, schema=schema), None, None, versions)
    return [
        (bytes(made.keys.data), bytes(made.values.data), bytes(made.identities.data), sorted(made.refused.items()))
        for made in maker.render(records, NOW_US, b";batch=7")
    ]


@_SETTINGS
@given(tables_of_changes(), st.sampled_from(_FORMATS), st.sampled_from(_HANDLINGS))
def test_both_kinds_of_kernel_write_the_same_bytes(
    table: tuple[TableSchema, list[Change]], how: str, handling: tuple[str, str]
) -> None:
    assert _written(_load(), table, how, handling) == _written(_pure(), table, how, handling)


@_SETTINGS
@given(tables_of_changes())
def test_an_identity_says_where_its_change_comes_from(table: tuple[TableSchema, list[Change]]) -> None:
    from penstock.envelopes.contract import EventChoice
    from penstock.envelopes.envelope import Envelope, Wire
    from penstock.records.records import Records
    from penstock.settings.kafka import Serialisation

    schema, changes = table
    wire = Wire(Serialisation.JSON)
    records = Records(schema, avro.encode(schema, changes), None, None, pa.array(range(len(changes)), pa.int64()))
    found = [
        identity.decode()
        for events in Envelope(schema, EventChoice("lab"), wire, wire).render(records, NOW_US, b";batch=7")
        for identity in events.identities.to_arrow().to_pylist()
    ]
    origins = [
        (change.origin.node, change.origin.file, change.origin.position, change.origin.ordinal) for change in changes
    ]
    assert found == [":".join("" if part is None else str(part) for part in one) + ";batch=7" for one in origins]


@_SETTINGS
@given(tables_of_changes(), st.sampled_from(_HANDLINGS))
def test_json_and_avro_are_readable_and_agree(
    table: tuple[TableSchema, list[Change]], handling: tuple[str, str]
) -> None:
    from penstock.envelopes.avro_schema import avro_schema
    from penstock.envelopes.contract import EventChoice
    from penstock.envelopes.envelope import Envelope, Wire, contract_of
    from penstock.envelopes.values import ValueChoice
    from penstock.records.records import Records
    from penstock.settings.kafka import Handling, Serialisation

    schema, changes = table
    choice = EventChoice("lab", values=ValueChoice(*map(Handling, handling)))
    records = Records(schema, avro.encode(schema, changes), None, None, pa.array(range(len(changes)), pa.int64()))
    text = avro_schema(contract_of(schema, choice, rows=False, before=False).value.schema)
    made: dict[str, Any] = {}
    for how in (Serialisation.JSON, Serialisation.AVRO):
        wire = Wire(how)
        made[how] = [
            record
            for events in Envelope(schema, choice, wire, wire).render(records, NOW_US)
            for record in events.values.to_arrow().to_pylist()
        ]
    for as_json, as_avro in zip(made[Serialisation.JSON], made[Serialisation.AVRO], strict=True):
        assert bool(as_json) == bool(as_avro)
        if as_json:
            one, other = json.loads(as_json), read_avro(text, as_avro)
            assert one["op"] == other["op"]
            present = [cell is not None for cell in one["after"].values()]
            assert present == [cell is not None for cell in other["after"].values()]
