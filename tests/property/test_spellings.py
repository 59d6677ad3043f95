"""Clustering values that are equal but not alike (1.0 and 1.00) are one row, whichever spelling a change uses."""

from __future__ import annotations

import random
import struct
import tempfile
from dataclasses import replace
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.formats import avro
from penstock.merge.cql_value import one_spelling, order_key
from penstock.merge.range_deletions import row_place
from penstock.merge.table_state import fold, normal, visible
from penstock.model import types
from penstock.model.change import Bound, Change, Deleted, Delta, Element, Expiry, Marker, Op, Range, Removed, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Type
from penstock.settings import RecordType
from tests.folding import Pipeline, Target, runs_of

_SETTINGS = settings(max_examples=40, deadline=None)

ONE = [Decimal("1"), Decimal("1.0"), Decimal("1.00")]
TEN = [Decimal("10"), Decimal("1E+1"), Decimal("10.0")]
ZERO = [Decimal("0"), Decimal("0.00"), Decimal("0E+5")]
PAIR = {"a": types.DECIMAL, "b": types.INT32}


def _nan(bits: int) -> float:
    return float(struct.unpack(">d", struct.pack(">Q", bits))[0])


# Of each type groups of values: those of one group are one value to Cassandra.
SPELLINGS: list[tuple[Type, list[list[Any]]]] = [
    (types.DECIMAL, [ONE, TEN, ZERO]),
    (types.FLOAT64, [[_nan(0x7FF8000000000000), _nan(0x7FF8000000000001), _nan(0xFFF8000000000000)], [0.0], [-0.0]]),
    (types.tuple_of(types.DECIMAL, types.INT32), [[(one, None) for one in ONE], [(one, 2) for one in ONE]]),
    (types.user("pair", PAIR), [[(one, None) for one in ONE], [(None, 1)]]),
    (types.list_of(types.DECIMAL), [[(one, ten) for one, ten in zip(ONE, TEN, strict=True)], [()]]),
    (types.set_of(types.DECIMAL), [[(one, ten) for one, ten in zip(ONE, TEN, strict=True)], [(ONE[1],)]]),
    (
        types.map_of(types.DECIMAL, types.DECIMAL),
        [[((o, t),) for o, t in zip(ONE, TEN, strict=True)], [((ONE[0], ONE[2]),)]],
    ),
    (types.vector(types.DECIMAL, 2), [[(one, zero) for one, zero in zip(ONE, ZERO, strict=True)]]),
    (types.VARINT, [[1], [-1]]),
]


def _schema(kind: Type) -> TableSchema:
    columns = (
        # Partition keys go by their bytes: 1.0 and 1.00 are two.
        Column("p", types.DECIMAL, Role.PARTITION),
        Column("c", kind, Role.CLUSTERING, descending=True),
        Column("s", types.INT32, Role.STATIC),
        Column("v", types.INT32),
        Column("e", types.set_of(types.DECIMAL, multi_cell=True)),
    )
    return TableSchema(TableId("ks", "spelled"), columns)


times = st.integers(0, 5)
expiries = st.none() | st.builds(Expiry, st.just(1), st.integers(1, 3))
elements = st.sampled_from([*ONE, *TEN])


@st.composite
def histories(draw: st.DrawFn) -> tuple[TableSchema, list[Change]]:
    kind, groups = draw(st.sampled_from(SPELLINGS))
    values = st.sampled_from([value for group in groups for value in group])
    return _schema(kind), draw(st.lists(_changes(values), max_size=12))


@st.composite
def _changes(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> Change:
    ops = [Op.INSERT, Op.INSERT, Op.UPDATE, Op.UPDATE, Op.DELETE, Op.DELETE, Op.DELETE_RANGE, Op.DELETE_PARTITION]
    op = draw(st.sampled_from(ops))
    key = {"p": draw(st.sampled_from(ONE[1:]))}
    time = draw(times)
    if op is Op.DELETE_PARTITION:
        return Change(op, key, time=time)
    if op is Op.DELETE_RANGE:
        ends = st.none() | st.builds(Bound, st.tuples(values), st.booleans())
        return Change(op, key, time=time, range=Range(draw(ends), draw(ends)))
    key["c"] = draw(values)
    if op is Op.DELETE:
        return Change(op, key, time=time)
    cells: dict[str, Any] = {}
    if draw(st.booleans()):
        cells["v"] = draw(st.builds(Set, st.integers(0, 2), st.none(), expiries) | st.just(Deleted()))
    if draw(st.booleans()):
        added = tuple(Element(path) for path in draw(st.lists(elements, max_size=2)))
        cells["e"] = Delta(None, added, tuple(Removed(path) for path in draw(st.lists(elements, max_size=1))))
    if draw(st.integers(0, 5)) == 0:
        cells["s"] = Set(draw(st.integers(0, 2)))
    marker = Marker(None, draw(expiries)) if op is Op.INSERT else None
    return Change(op, key, cells, time=time, marker=marker)


def _by_place(schema: TableSchema, row: dict[str, Any]) -> tuple[Any, ...]:
    """A row, in which equal values are equal whatever their spelling; of the partition key the spelling counts."""
    place = () if row["c"] is None else row_place(schema.clustering, (row["c"],))
    shown = None if row["e"] is None else tuple(order_key(types.DECIMAL, one) for one in row["e"])
    return row["p"].as_tuple(), place, row["s"], row["v"], shown


def _plain(schema: TableSchema, row: dict[str, Any]) -> dict[str, Any]:
    """A row of a target with values as merging has them."""
    return {column.name: _value(column.type, row[column.name]) for column in schema.columns}


def _value(kind: Type, value: Any) -> Any:
    if value is None:
        return None
    if kind.kind is types.DECIMAL.kind:
        return Decimal(int.from_bytes(value["unscaled"], "big", signed=True)).scaleb(-value["scale"])
    if kind.kind is types.VARINT.kind:
        return int.from_bytes(value, "big", signed=True)
    if isinstance(value, dict):
        return tuple(_value(element, one) for element, one in zip(kind.elements, value.values(), strict=True))
    if kind.kind is types.Kind.MAP:
        return tuple(
            tuple(_value(element, one) for element, one in zip(kind.elements, pair, strict=True)) for pair in value
        )
    return tuple(_value(kind.elements[0], one) for one in value) if isinstance(value, list) else value


@_SETTINGS
@given(
    histories(), st.randoms(use_true_random=False), st.sampled_from([RecordType.AFTER, RecordType.ALL]), st.booleans()
)
def test_one_row_in_several_spellings_is_one_row_in_a_target(
    table: tuple[TableSchema, list[Change]], chance: random.Random, record: RecordType, every: bool
) -> None:
    schema, history = table
    logged = history + [one for one in history if chance.random() < 0.3]
    chance.shuffle(logged)
    with tempfile.TemporaryDirectory() as directory:
        pipeline = Pipeline(directory, 2, record, every=every)
        target = Target()
        while True:
            cut = chance.randint(1, 6)
            now_s = 4 if len(logged) <= cut else 1
            runs = runs_of(replace(schema), "n0", logged[:cut], pipeline.store.buckets)
            for records in pipeline.fold(runs, now_s):
                target.write(records)
            logged = logged[cut:]
            if not logged:
                break
    wanted = [_by_place(schema, row) for row in visible(fold(schema, history), 4)]
    found = [_by_place(schema, _plain(schema, row)) for row in target.rows.values()]
    assert sorted(found, key=lambda row: row[:2]) == sorted(wanted, key=lambda row: row[:2])


@_SETTINGS
@given(histories(), st.randoms(use_true_random=False))
def test_spellings_do_not_matter_to_merging(table: tuple[TableSchema, list[Change]], chance: random.Random) -> None:
    schema, history = table
    groups = next(groups for kind, groups in SPELLINGS if kind == schema.by_name["c"].type)

    def respelled(value: Any) -> Any:
        for group in groups:
            if any(avro_key(schema, value) == avro_key(schema, one) for one in group):
                return chance.choice(group)
        return value

    other = []
    for one in history:
        key = dict(one.key) | ({"c": respelled(one.key["c"])} if "c" in one.key else {})
        where = one.range and Range(*(end and end._replace(values=(respelled(end.values[0]),)) for end in one.range))
        other.append(replace(one, key=key, range=where))
    assert normal(fold(schema, other)) == normal(fold(schema, history))


def avro_key(schema: TableSchema, value: Any) -> bytes:
    return bytes(avro.encode(schema, [Change(Op.DELETE, {"p": ONE[0], "c": value}, time=0)]).rows)


def test_types_of_one_spelling_say_so() -> None:
    for kind, groups in SPELLINGS:
        places = [{order_key(kind, value) for value in group} for group in groups]
        assert all(len(place) == 1 for place in places)
        assert len(set.union(*places)) == len(groups)
        assert one_spelling(kind) == all(len(group) == 1 for group in groups)


def test_a_tuple_without_its_last_field_is_one_with_null_there() -> None:
    kind = types.tuple_of(types.DECIMAL, types.INT32)
    assert order_key(kind, (ONE[0],)) == order_key(kind, (ONE[2], None))
