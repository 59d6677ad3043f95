"""Every kind of column in every serialisation, compared with what a reader of that serialisation finds."""

from __future__ import annotations

import base64
import ipaddress
import json
import math
import uuid
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pytest

from penstock.envelopes.avro_schema import avro_schema
from penstock.envelopes.compilation import wire_header
from penstock.envelopes.connect import Schema
from penstock.envelopes.contract import EventChoice
from penstock.envelopes.envelope import Envelope, Wire, contract_of
from penstock.envelopes.protobuf_schema import FieldNumbers, protobuf_schema
from penstock.envelopes.values import ValueChoice
from penstock.model import types as t
from penstock.model.change import Change, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Duration, Kind, Type, Unit
from penstock.settings.kafka import Handling, Serialisation
from tests.every_type import EVERY_TYPE, every_type_table
from tests.kafka_records import NOW_US, read_avro, records_of, split
from tests.protobuf_reader import read_protobuf

_DAY_NS = 86_400_000_000_000
_SHOWN = ("c2 int16", "c4 int64", "c10 varint", "c19 text", "c22 bytes", "c23 uuid", "c42 list", "c56 counter")
CHOICES = {
    "double": ValueChoice(Handling.DOUBLE, Handling.LONG),
    "precise": ValueChoice(Handling.PRECISE, Handling.PRECISE),
    "string": ValueChoice(Handling.STRING, Handling.STRING),
}


def events_of(schema: TableSchema, changes: list[Change], choice: ValueChoice, how: Serialisation) -> Any:
    """The values of the changes, None where one was refused, and their schema."""
    chosen = EventChoice("lab1", values=choice)
    shape = contract_of(schema, chosen, rows=False, before=False).value.schema
    numbers = FieldNumbers()
    text = ""
    if how is Serialisation.AVRO:
        text = avro_schema(shape)
    elif how is Serialisation.PROTOBUF:
        text = protobuf_schema(shape, numbers)
    envelope = Envelope(schema, chosen, Wire(Serialisation.JSON), Wire(how, b"", numbers))
    out: list[bytes | None] = []
    for events in envelope.render(records_of(schema, changes), NOW_US):
        records: list[bytes | None] = list(split(events, "values"))
        for number in events.refused:
            assert records[number] == b""
            records[number] = None
        out += records
    return text, out, shape


def one_column(type_: Type, values: tuple[Any, ...]) -> tuple[TableSchema, list[Change]]:
    columns = (Column("id", t.INT32, Role.PARTITION), Column("v", type_))
    schema = TableSchema(TableId("ks", "one"), columns, source="cassandra")
    return schema, [Change(Op.INSERT, {"id": i}, {"v": Set(value)}, time=1) for i, value in enumerate(values)]


def _ordinary(type_: Type, value: Any) -> Any:
    """What a consumer finds in JSON with the handling `string`, said in Python once more and slowly."""
    kind = type_.kind
    if value is None:
        return None
    if kind in (Kind.VARINT, Kind.DECIMAL, Kind.UINT64):
        return str(value)
    if kind is Kind.FIXED_DECIMAL:
        if type_.precision <= 76:
            return str(value)
        return base64.b64encode(_two_complement(int(value.scaleb(type_.scale, Context(prec=100))))).decode()
    if kind is Kind.BYTES:
        return base64.b64encode(value).decode()
    if kind is Kind.DURATION:
        return (value.months * 30 + value.days) * _DAY_NS + value.rest
    if kind in (Kind.FLOAT32, Kind.FLOAT64):
        return _float_json(value, narrow=kind is Kind.FLOAT32)
    if kind in (Kind.TIMESTAMP, Kind.DATETIME):
        return value * 1000 if type_.unit is Unit.S else value
    if kind is Kind.TIME_TZ:
        return {"time": value.time, "offset_s": value.offset_s}
    if kind in (Kind.LIST, Kind.SET, Kind.VECTOR):
        return [_ordinary(type_.elements[0], item) for item in value]
    if kind is Kind.MAP:
        pairs = [
            [_ordinary(element, part) for element, part in zip(type_.elements, pair, strict=True)] for pair in value
        ]
        return dict(pairs) if type_.elements[0].kind is Kind.TEXT else pairs
    if kind in (Kind.TUPLE, Kind.USER):
        names = type_.names or [f"field{number + 1}" for number in range(len(type_.elements))]
        return {n: _ordinary(e, part) for n, e, part in zip(names, type_.elements, value, strict=True)}
    if kind is Kind.ARRAY:
        items = [_ordinary(type_.elements[0], item) for item in value.items]
        return {"lengths": list(value.lengths), "lower_bounds": list(value.lower_bounds), "items": items}
    if isinstance(value, uuid.UUID | ipaddress.IPv4Address | ipaddress.IPv6Address):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _two_complement(number: int) -> bytes:
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


@pytest.mark.parametrize("number", range(len(EVERY_TYPE)), ids=lambda n: f"{n} {EVERY_TYPE[n][0].kind}")
def test_json_has_every_value_of_every_type(number: int) -> None:
    type_, values = EVERY_TYPE[number]
    if type_.kind is Kind.DURATION:
        values = values[:-1]
    if type_.unit is Unit.S or (type_.kind is Kind.USER and not type_.elements):
        values = values[:1]
    schema, changes = one_column(type_, (*values, None))
    _, found, _ = events_of(schema, changes, CHOICES["string"], Serialisation.JSON)
    for record, value in zip(found, (*values, None), strict=True):
        assert json.loads(record)["after"]["v"]["value"] == _ordinary(type_, value)


@pytest.mark.parametrize("handling", CHOICES)
def test_avro_and_json_say_the_same(handling: str) -> None:
    schema, changes = every_type_table()
    text, records, shape = events_of(schema, changes, CHOICES[handling], Serialisation.AVRO)
    _, texts, _ = events_of(schema, changes, CHOICES[handling], Serialisation.JSON)
    assert [record is None for record in records] == [record is None for record in texts]
    seen = 0
    for record, other in zip(records, texts, strict=True):
        if record is not None:
            seen += 1
            # fastavro would round long numbers to the digits of the logical type.
            bare = text.replace('"logicalType":"decimal"', '"x":"x"')
            assert _from_avro(read_avro(bare, record), shape) == json.loads(other)
    assert seen > 6


def _from_avro(value: Any, shape: Schema) -> Any:
    """A value that an Avro reader has found, as JSON has it."""
    if value is None:
        return None
    if shape.type == "struct":
        # Avro's names are narrower than JSON's.
        return {name: _from_avro(part, below) for part, (name, below) in zip(value.values(), shape.fields, strict=True)}
    if shape.type == "array":
        return [_from_avro(item, shape.parts[0]) for item in value]
    if shape.type == "map":
        pairs = [
            [_from_avro(entry["key"], shape.parts[0]), _from_avro(entry["value"], shape.parts[1])] for entry in value
        ]
        return dict(pairs) if shape.parts[0].type == "string" else pairs
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return _float_json(value, narrow=shape.type == "float")
    return value


def _float_json(value: float, *, narrow: bool) -> Any:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    # A narrow float has the fewest digits that give it again.
    return float(str(np.float32(value))) if narrow else value


@pytest.mark.parametrize("handling", CHOICES)
def test_protocol_buffers_own_parser_reads_every_type(handling: str) -> None:
    schema, changes = every_type_table()
    text, records, _ = events_of(schema, changes, CHOICES[handling], Serialisation.PROTOBUF)
    _, texts, _ = events_of(schema, changes, CHOICES[handling], Serialisation.JSON)
    for record, other in zip(records, texts, strict=True):
        if record is None:
            continue
        value, wanted = read_protobuf(text, record), json.loads(other)
        assert value["op"] == wanted["op"]
        after, cells = value["after"], wanted["after"]
        assert set(after) == {name.replace(" ", "_") for name, cell in cells.items() if cell is not None}
        for name in _SHOWN:
            cell = cells[name]
            found = after.get(name.replace(" ", "_"), {}).get("value")
            if cell is not None and cell["value"] not in (None, [], ""):
                assert (found if isinstance(found, list) else str(found)) == _plain(cell["value"])


def _plain(value: Any) -> Any:
    return value if isinstance(value, list) else str(value)


@pytest.mark.parametrize(
    ("type_", "value", "choice"),
    [
        (t.VARINT, 1 << 63, "double"),
        (t.VARINT, -(1 << 63) - 1, "double"),
        (t.duration(Unit.NS), Duration(4_000, 0, 0), "double"),
        (t.duration(Unit.NS), Duration(0, 106_751, (1 << 63) - 1), "double"),
        (t.timestamp(Unit.S), 1 << 62, "double"),
    ],
)
@pytest.mark.parametrize("how", Serialisation)
def test_a_value_that_the_consumers_type_cannot_hold_is_refused_and_not_cut(
    type_: Type, value: Any, choice: str, how: Serialisation
) -> None:
    schema, changes = one_column(type_, (value, None))
    _, found, _ = events_of(schema, changes, CHOICES[choice], how)
    assert found[0] is None
    assert found[1]


@pytest.mark.parametrize(
    "value", ["0", "19.90", "-0.05", "123456789012345", "0.000001", "1E+30", "-7E-9", "0E-3", "1E+3"]
)
def test_decimals_are_printed_as_java_prints_them(value: str) -> None:
    schema, changes = one_column(t.DECIMAL, (Decimal(value),))
    _, [text], _ = events_of(schema, changes, CHOICES["string"], Serialisation.JSON)
    assert json.loads(text)["after"]["v"]["value"] == str(Decimal(value))
    _, [double], _ = events_of(schema, changes, CHOICES["double"], Serialisation.JSON)
    assert json.loads(double)["after"]["v"]["value"] == float(Decimal(value))
    avro_text, [record], _ = events_of(schema, changes, CHOICES["double"], Serialisation.AVRO)
    assert read_avro(avro_text, record)["after"]["v"]["value"] == float(Decimal(value))


def test_text_is_escaped_where_json_asks_for_it() -> None:
    nasty = 'a"b\\c\n\r\t\x00\x1f/é🌊'
    schema, changes = one_column(t.TEXT, (nasty,))
    _, [text], _ = events_of(schema, changes, CHOICES["string"], Serialisation.JSON)
    assert json.loads(text)["after"]["v"]["value"] == nasty


def test_a_record_of_a_registry_begins_with_its_schemas_number() -> None:
    assert wire_header(258) == b"\x00\x00\x00\x01\x02"
    assert wire_header(1, message_index=True) == b"\x00\x00\x00\x00\x01\x00"


_SEMANTIC: list[tuple[Type, str, str | None]] = [
    (t.UUID, "string", "io.debezium.data.Uuid"),
    (t.TIMEUUID, "string", "io.debezium.data.Uuid"),
    (t.DATE, "int32", "io.debezium.time.Date"),
    (t.timestamp(Unit.MS), "int64", "io.debezium.time.Timestamp"),
    (t.time(Unit.NS), "int64", None),
    (t.duration(Unit.NS), "int64", "io.debezium.time.NanoDuration"),
    (t.INT8, "int8", None),
    (t.INT16, "int16", None),
    (t.FLOAT32, "float", None),
    (t.BYTES, "bytes", None),
    (t.INET, "string", None),
    (t.COUNTER, "int64", None),
    (t.vector(t.FLOAT32, 3), "array", None),
    (t.tuple_of(t.INT32, t.TEXT), "struct", "Int32UTF8Tuple"),
    (t.user("address", {"street": t.TEXT}), "struct", "address"),
]


@pytest.mark.parametrize(("type_", "name", "meaning"), _SEMANTIC, ids=lambda x: str(getattr(x, "kind", x)))
def test_types_are_those_of_debeziums_connector(type_: Type, name: str, meaning: str | None) -> None:
    schema, _ = one_column(type_, ())
    _, shape = contract_of(schema, EventChoice("lab1"), rows=True, before=False).schemas
    found = dict(dict(shape.fields)["after"].fields)["v"]
    assert (found.type, found.name, found.optional) == (name, meaning, True)


def test_numbers_without_a_bound_have_the_type_that_was_chosen() -> None:
    def types(choice: ValueChoice) -> list[tuple[str, str | None]]:
        out = []
        for type_ in (t.DECIMAL, t.VARINT):
            schema, _ = one_column(type_, ())
            _, shape = contract_of(schema, EventChoice("p", values=choice), rows=True, before=False).schemas
            found = dict(dict(shape.fields)["after"].fields)["v"]
            out.append((found.type, found.name))
        return out

    assert types(CHOICES["double"]) == [("double", None), ("int64", None)]
    assert types(CHOICES["string"]) == [("string", None), ("string", None)]
    assert types(CHOICES["precise"]) == [
        ("struct", "io.debezium.data.VariableScaleDecimal"),
        ("bytes", "org.apache.kafka.connect.data.Decimal"),
    ]
