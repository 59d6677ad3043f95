"""Hypothesis strategies for the vocabulary: random types, table schemas, and changes that fit them.

The strategies are kept once made: making one costs more than drawing from it.
"""

from __future__ import annotations

import ipaddress
import uuid
from decimal import Decimal
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from penstock.model import types as t
from penstock.model.change import (
    NO_ORIGIN,
    Bound,
    Cell,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Origin,
    Range,
    Removed,
    Set,
    Transaction,
)
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Duration, Kind, NdArray, TimeTz, Type, Unit

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.one_of(st.sampled_from(["id", "a", "v", "_", "_x", "_x0041_", "A", "a b", "ü", "1st", ""]), TEXT)
LABELS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=4), min_size=1, max_size=4, unique=True)

_SIMPLE = [
    Type(kind)
    for kind in Kind
    if kind
    not in {
        Kind.FIXED_DECIMAL,
        Kind.TIME,
        Kind.TIME_TZ,
        Kind.TIMESTAMP,
        Kind.DATETIME,
        Kind.DURATION,
        Kind.ENUM,
        Kind.FLAGS,
        Kind.LIST,
        Kind.SET,
        Kind.MAP,
        Kind.TUPLE,
        Kind.USER,
        Kind.VECTOR,
        Kind.ARRAY,
    }
]
_TIMED = [Kind.TIME, Kind.TIME_TZ, Kind.TIMESTAMP, Kind.DATETIME, Kind.DURATION]
_INTEGERS = {
    Kind.INT8: (-128, 127),
    Kind.INT16: (-(1 << 15), (1 << 15) - 1),
    Kind.INT32: (-(1 << 31), (1 << 31) - 1),
    Kind.UINT8: (0, 255),
    Kind.UINT16: (0, (1 << 16) - 1),
    Kind.UINT32: (0, (1 << 32) - 1),
    Kind.UINT64: (0, (1 << 64) - 1),
    Kind.DATE: (-(1 << 31), (1 << 31) - 1),
}


@lru_cache(maxsize=4096)
def scalar_types() -> st.SearchStrategy[Type]:
    fixed = st.tuples(st.integers(1, 90), st.integers(0, 90)).map(lambda p: t.fixed_decimal(max(p), min(p)))
    timed = st.builds(lambda kind, unit: Type(kind, unit=unit), st.sampled_from(_TIMED), st.sampled_from(Unit))
    labelled = st.builds(
        lambda kind, labels: Type(kind, names=tuple(labels)), st.sampled_from([Kind.ENUM, Kind.FLAGS]), LABELS
    )
    return st.one_of(st.sampled_from(_SIMPLE), fixed, timed, labelled)


@lru_cache(maxsize=4096)
def types(max_leaves: int = 5) -> st.SearchStrategy[Type]:
    """Any frozen type."""
    return st.recursive(scalar_types(), _composites, max_leaves=max_leaves)


def _composites(element: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.one_of(
        element.map(t.list_of),
        element.map(t.set_of),
        st.builds(t.map_of, element, element),
        st.lists(element, min_size=1, max_size=3).map(lambda parts: t.tuple_of(*parts)),
        st.builds(t.user, st.just("address"), st.dictionaries(NAMES, element, max_size=3)),
        st.builds(t.vector, element, st.integers(1, 3)),
        element.map(t.array),
    )


@lru_cache(maxsize=4096)
def cell_types(max_leaves: int = 5) -> st.SearchStrategy[Type]:
    """Any type of a regular column, non-frozen ones among them."""
    element = types(max_leaves)
    multi = st.one_of(
        element.map(lambda e: t.list_of(e, multi_cell=True)),
        element.map(lambda e: t.set_of(e, multi_cell=True)),
        st.builds(lambda k, v: t.map_of(k, v, multi_cell=True), element, element),
        st.dictionaries(NAMES, element, min_size=1, max_size=3).map(lambda f: t.user("person", f, multi_cell=True)),
        st.just(t.SHARDED_COUNTER),
    )
    return st.one_of(types(max_leaves), multi)


@st.composite
def schemas(draw: st.DrawFn, columns_max: int = 5, max_leaves: int = 5) -> TableSchema:
    """A table with any mix of column roles; SQL-like tables without clustering columns and keyless ones occur too."""
    names = draw(st.lists(NAMES, min_size=1, max_size=columns_max, unique=True))
    columns = []
    for name in names:
        role = draw(st.sampled_from(Role))
        key = role in (Role.PARTITION, Role.CLUSTERING)
        type_ = draw(types(max_leaves) if key else cell_types(max_leaves))
        columns.append(Column(name, type_, role, descending=role is Role.CLUSTERING and draw(st.booleans())))
    table = TableId(draw(st.sampled_from(["ks", "", "ü"])), draw(st.sampled_from(["t", "a.b", "../x"])))
    return TableSchema(
        table, tuple(columns), version=draw(st.integers(1, 9)), source=draw(st.sampled_from(["", "sandbox"]))
    )


@lru_cache(maxsize=4096)
def values(type_: Type) -> st.SearchStrategy[Any]:
    """The Python values of a type; never None."""
    kind = type_.kind
    if kind in _INTEGERS:
        return st.integers(*_INTEGERS[kind])
    if kind in _VALUES:
        return _VALUES[kind]
    if kind is Kind.FIXED_DECIMAL:
        limit = 10**type_.precision - 1
        return st.integers(-limit, limit).map(lambda unscaled: _decimal(unscaled, type_.scale))
    if kind is Kind.ENUM:
        return st.sampled_from(type_.names)
    if kind is Kind.FLAGS:
        return st.lists(st.sampled_from(type_.names), max_size=3).map(tuple)
    parts = [values(element) for element in type_.elements]
    if kind in (Kind.LIST, Kind.SET):
        return st.lists(parts[0], max_size=3).map(tuple)
    if kind is Kind.VECTOR:
        return st.lists(parts[0], min_size=type_.length, max_size=type_.length).map(tuple)
    if kind is Kind.MAP:
        return st.lists(st.tuples(parts[0], st.none() | parts[1]), max_size=3).map(tuple)
    if kind is Kind.ARRAY:
        items = st.lists(st.none() | parts[0], max_size=4).map(tuple)
        dimensions = st.lists(st.tuples(INT32, INT32), max_size=3)
        return st.builds(lambda d, i: NdArray(tuple(a for a, _ in d), tuple(b for _, b in d), i), dimensions, items)
    return st.tuples(*[st.none() | part for part in parts])


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


_VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOLEAN: st.booleans(),
    Kind.INT64: INT64,
    Kind.COUNTER: INT64,
    Kind.VARINT: st.integers() | st.integers(-(1 << 300), 1 << 300),
    # NaN is not equal to itself; its round trip has a test of its own.
    Kind.FLOAT32: st.floats(width=32, allow_nan=False),
    Kind.FLOAT64: st.floats(allow_nan=False),
    Kind.DECIMAL: st.builds(_decimal, st.integers() | st.integers(-(1 << 300), 1 << 300), INT32),
    Kind.NUMERIC: st.sampled_from(["NaN", "Infinity", "-Infinity", "1.50", "-0.0001"]),
    Kind.TEXT: TEXT,
    Kind.ASCII: st.text(st.characters(codec="ascii"), max_size=8),
    Kind.JSON: st.sampled_from(["{}", "[1, 2]", '"x"', "null"]),
    Kind.BYTES: st.binary(max_size=12),
    Kind.UUID: st.uuids(),
    Kind.TIMEUUID: st.uuids(version=1),
    Kind.INET: st.ip_addresses().map(lambda a: ipaddress.ip_address(a.packed)),
    Kind.CIVIL_DATE: st.sampled_from(["0000-00-00", "2024-02-00", "9999-12-31"]),
    Kind.CIVIL_DATETIME: st.sampled_from(["0000-00-00 00:00:00", "2024-02-29 12:00:00.5"]),
    Kind.TIME: INT64,
    Kind.TIMESTAMP: INT64,
    Kind.DATETIME: INT64,
    Kind.TIME_TZ: st.builds(TimeTz, INT64, INT32),
    Kind.DURATION: st.builds(Duration, INT32, INT32, INT64),
    Kind.BITS: st.text("01", max_size=9),
    Kind.OTHER: TEXT,
}

TIMES = st.none() | INT64
EXPIRIES = st.none() | st.builds(Expiry, INT32, INT64)
DELETIONS = st.builds(Deletion, INT64, TIMES)
TRANSACTIONS = st.builds(Transaction, TEXT, INT64, TEXT)
ORIGINS = st.just(NO_ORIGIN) | st.builds(
    Origin, st.none() | TEXT, st.none() | TEXT, st.none() | TEXT, TIMES, st.none() | TRANSACTIONS, TIMES
)


@lru_cache(maxsize=4096)
def cells(type_: Type) -> st.SearchStrategy[Cell]:
    """What can happen to a column."""
    plain = [st.builds(Set, st.none() | values(type_), TIMES, EXPIRIES), st.builds(Deleted, TIMES, TIMES)]
    if not type_.multi_cell:
        return st.one_of(*plain)
    replaced = st.none() | DELETIONS
    elements = st.lists(_elements(type_), max_size=3).map(tuple)
    removed = st.lists(st.builds(Removed, _paths(type_), TIMES, TIMES), max_size=3).map(tuple)
    return st.one_of(*plain, st.builds(Delta, replaced, elements, removed))


@lru_cache(maxsize=4096)
def _paths(type_: Type) -> st.SearchStrategy[Any]:
    if type_.path_type is None:
        return st.integers(0, len(type_.elements) - 1)
    return values(type_.path_type)


@st.composite
def _elements(draw: st.DrawFn, type_: Type) -> Element:
    path = draw(_paths(type_))
    item = type_.elements[path] if type_.kind is Kind.USER else type_.item_type
    value = None if item is None else draw(st.none() | values(item))
    return Element(path, value, draw(TIMES), draw(EXPIRIES))


@st.composite
def changes(draw: st.DrawFn, schema: TableSchema) -> Change:
    """Any change of a table; parts that no database would send together may stand together."""
    key = {c.name: draw(values(c.type)) for c in schema.key if draw(st.booleans())}
    touched = {c.name: draw(cells(c.type)) for c in schema.cells if draw(st.booleans())}
    before = None
    if draw(st.booleans()):
        before = {c.name: draw(st.none() | values(c.type)) for c in schema.columns if draw(st.booleans())}
    return Change(
        op=draw(st.sampled_from(Op)),
        key=key,
        cells=touched,
        time=draw(TIMES),
        commit_time=draw(TIMES),
        capture_time=draw(TIMES),
        marker=draw(st.none() | st.builds(Marker, TIMES, EXPIRIES)),
        deletion=draw(st.none() | DELETIONS),
        range=draw(st.none() | _ranges(schema)),
        before=before,
        origin=draw(ORIGINS),
    )


@st.composite
def _bounds(draw: st.DrawFn, schema: TableSchema) -> Bound:
    count = draw(st.integers(0, len(schema.clustering)))
    return Bound(tuple(draw(values(c.type)) for c in schema.clustering[:count]), draw(st.booleans()))


def _ranges(schema: TableSchema) -> st.SearchStrategy[Range]:
    bounds = st.none() | _bounds(schema)
    return st.builds(Range, bounds, bounds)


@st.composite
def tables_of_changes(
    draw: st.DrawFn, columns_max: int = 5, changes_max: int = 4, max_leaves: int = 5
) -> tuple[TableSchema, list[Change]]:
    """A table and changes of it."""
    schema = draw(schemas(columns_max, max_leaves))
    return schema, draw(st.lists(changes(schema), max_size=changes_max))


def uuid_of(number: int) -> uuid.UUID:
    """A fixed UUID for examples."""
    return uuid.UUID(int=number)
