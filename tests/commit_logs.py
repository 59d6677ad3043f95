"""Random tables and mutations as Cassandra has them, their normal form, and a log's changes read back.

The normal form is what a change says whatever the way it was put: every cell with its own time, rows in clustering
order, range deletions disjoint, the static row by itself.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

from hypothesis import strategies as st

from penstock.capture.cassandra.decoding.decoder import Decoder, MemoryParking
from penstock.capture.cassandra.schema import cql_types
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable, in_order
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import Damage, SegmentReader
from penstock.capture.cassandra.segments.segment import Encryption
from penstock.formats import avro
from penstock.merge.cql_value import order_key
from penstock.merge.range_deletions import RangeDeletions, row_place
from penstock.model import types as t
from penstock.model.change import (
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
    Range,
    Removed,
    Set,
)
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Duration, Kind, Type, Unit
from tests import strategies

KEY = bytes(range(16))
KEYS = KeyStore("store", {"testing:1": lambda: KEY})
# How segments may be written, as arguments of the writer.
CODECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "direct": {"direct": True},
    "encrypted": {"encryption": Encryption("AES/CBC/PKCS5Padding", "testing:1", bytes(16)), "key": KEY},
    **{name: {"compression": f"{name}Compressor"} for name in ("LZ4", "Snappy", "Deflate", "Zstd", "Noop")},
}

_SCALARS = [
    *(t.BOOLEAN, t.INT8, t.INT16, t.INT32, t.INT64, t.FLOAT32, t.FLOAT64, t.DECIMAL, t.VARINT, t.TEXT, t.ASCII),
    *(t.BYTES, t.UUID, t.TIMEUUID, t.INET, t.DATE, t.time(Unit.NS), t.timestamp(Unit.MS)),
]
# Of these, Cassandra stores a value without bytes, which means null; other types have no such value.
_NULL_WHEN_EMPTY = {Kind.BOOLEAN, Kind.INT32, Kind.INT64, Kind.FLOAT32, Kind.FLOAT64, Kind.DECIMAL, Kind.VARINT}
_NULL_WHEN_EMPTY |= {Kind.UUID, Kind.TIMEUUID, Kind.INET, Kind.TIMESTAMP}
_DURATION = t.duration(Unit.NS)
_TIMES = st.integers(1 - (1 << 63), (1 << 63) - 1) | st.integers(1_700_000_000_000_000, 1_700_000_000_000_009)
_NAMES = strategies.NAMES.filter(bool)
_DAY_NS = 86_400_000_000_000
_INT32_MAX = (1 << 31) - 1


# Types and values.


@cache
def key_types() -> st.SearchStrategy[Type]:
    """Frozen types with an order."""
    return st.recursive(st.sampled_from(_SCALARS), _composites, max_leaves=3)


def frozen_types() -> st.SearchStrategy[Type]:
    return st.recursive(st.sampled_from([*_SCALARS, _DURATION]), _composites, max_leaves=4)


def _composites(element: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    ordered = element.filter(lambda kind: not _has_duration(kind))
    return st.one_of(
        element.map(t.list_of),
        ordered.map(t.set_of),
        st.builds(t.map_of, ordered, element),
        st.lists(element, min_size=1, max_size=3).map(lambda parts: t.tuple_of(*parts)),
        st.dictionaries(_NAMES, element, min_size=1, max_size=3).map(_user),
        st.builds(t.vector, element, st.integers(1, 3)),
    )


def _user(fields: dict[str, Type]) -> Type:
    # One name has one meaning in a keyspace.
    return t.user(f"u{zlib.crc32(repr(fields).encode()):08x}", fields)


def _has_duration(kind: Type) -> bool:
    return kind.kind is Kind.DURATION or any(map(_has_duration, kind.elements))


@cache
def cell_types() -> st.SearchStrategy[Type]:
    element = frozen_types()
    ordered = key_types()
    return st.one_of(
        st.sampled_from([*_SCALARS, _DURATION]),
        st.sampled_from([*_SCALARS, _DURATION]),
        frozen_types(),
        element.map(lambda e: t.list_of(e, multi_cell=True)),
        ordered.map(lambda e: t.set_of(e, multi_cell=True)),
        st.builds(lambda k, v: t.map_of(k, v, multi_cell=True), ordered, element),
        st.dictionaries(_NAMES, element, min_size=1, max_size=3).map(lambda f: replace(_user(f), multi_cell=True)),
    )


@lru_cache(maxsize=4096)
def values(kind: Type) -> st.SearchStrategy[Any]:
    """Values as Cassandra takes them: sets and maps in order and without repetition, times within a day."""
    if kind.kind is Kind.TIME:
        return st.integers(0, _DAY_NS - 1)
    if kind.kind is Kind.DURATION:
        parts = st.tuples(st.integers(0, _INT32_MAX), st.integers(0, _INT32_MAX), st.integers(0, (1 << 63) - 1))
        return st.builds(lambda p, sign: Duration(*(sign * part for part in p)), parts, st.sampled_from([1, -1]))
    if not kind.elements:
        return strategies.values(kind)
    inner = [values(element) for element in kind.elements]
    if kind.kind is Kind.LIST:
        return st.lists(inner[0], max_size=3).map(tuple)
    if kind.kind is Kind.VECTOR:
        return st.lists(inner[0], min_size=kind.length, max_size=kind.length).map(tuple)
    if kind.kind is Kind.SET:
        return st.lists(inner[0], max_size=3).map(lambda items: _ordered(kind.elements[0], items, lambda item: item))
    if kind.kind is Kind.MAP:
        pairs = st.lists(st.tuples(*inner), max_size=3)
        return pairs.map(lambda items: _ordered(kind.elements[0], items, lambda item: item[0]))
    return st.tuples(*[st.none() | part for part in inner])


def _ordered(kind: Type, items: Iterable[Any], key: Any) -> tuple[Any, ...]:
    found = {order_key(kind, key(item)): item for item in items}
    return tuple(found[place] for place in sorted(found))


# Tables.


@st.composite
def tables(draw: st.DrawFn, regular_max: int = 6) -> CassandraTable:
    """A table of any shape that CQL allows."""
    names = iter(draw(st.lists(_NAMES, min_size=16, max_size=16, unique=True)))
    columns = [Column(next(names), draw(key_types()), Role.PARTITION) for _ in range(draw(st.integers(1, 3)))]
    clustering = draw(st.integers(0, 3))
    columns += [
        Column(next(names), draw(key_types()), Role.CLUSTERING, descending=draw(st.booleans()))
        for _ in range(clustering)
    ]
    if draw(st.integers(0, 5)) == 0:
        kinds: st.SearchStrategy[Type] = st.just(t.SHARDED_COUNTER)
        count = draw(st.integers(1, 3))
    else:
        kinds, count = cell_types(), draw(st.integers(0, regular_max))
    if clustering:
        columns += [Column(next(names), draw(kinds), Role.STATIC) for _ in range(draw(st.integers(0, 2)))]
    columns += [Column(next(names), draw(kinds)) for _ in range(count)]
    return as_table(TableId("ks", draw(st.sampled_from(["t", "Other table"]))), columns, draw(st.uuids()))


def as_table(name: TableId, columns: Sequence[Column], table_id: uuid.UUID, *, cdc: bool = True) -> CassandraTable:
    """A table with its columns in Cassandra's order and their types in words."""
    named = [replace(column, source_type=cql_types.text_of(column.type)) for column in columns]
    return CassandraTable(table_id, TableSchema(name, in_order(named), source="cassandra"), cdc)


# Changes.


class Limits(NamedTuple):
    """What a format's seconds can be."""

    second_max: int

    @classmethod
    def of(cls, format_: int) -> Limits:
        # One second less than the older formats can hold: 5.0 takes the last one for a time that overflowed.
        return cls((1 << 31) - 3 if format_ < 8 else (1 << 32) - 3)


@st.composite
def updates(draw: st.DrawFn, table: CassandraTable, format_: int, rows_max: int = 3) -> list[Change]:
    """What one mutation may say about one partition of a table; never nothing."""
    schema = table.schema
    limits = Limits.of(format_)
    key = {column.name: draw(values(column.type)) for column in schema.partition}
    out = []
    if draw(st.integers(0, 3)) == 0:
        out.append(Change(Op.DELETE_PARTITION, key, deletion=draw(_deletions(limits))))
    if schema.clustering:
        for _ in range(draw(st.integers(0, 3))):
            where = draw(_ranges(schema))
            out.append(Change(Op.DELETE_RANGE, key, deletion=draw(_deletions(limits)), range=where))
    static = draw(_cells([c for c in schema.cells if c.role is Role.STATIC], limits))
    if static:
        out.append(Change(Op.UPDATE, key, static, time=draw(_TIMES)))
    places = set()
    for _ in range(draw(st.integers(0 if out else 1, rows_max if schema.clustering else 1))):
        clustering = tuple(draw(values(column.type)) for column in schema.clustering)
        place = row_place(schema.clustering, clustering)
        if place not in places:
            places.add(place)
            names = [column.name for column in schema.clustering]
            out.append(draw(_rows(schema, {**key, **dict(zip(names, clustering, strict=True))}, limits)))
    return out


@st.composite
def _rows(draw: st.DrawFn, schema: TableSchema, key: dict[str, Any], limits: Limits) -> Change:
    cells = draw(_cells([c for c in schema.cells if c.role is Role.REGULAR], limits))
    time = draw(_TIMES)
    counter = any(column.type.kind is Kind.COUNTER for column in schema.columns)
    marker = None if counter else draw(st.none() | st.builds(Marker, st.none() | _TIMES, _expiries(limits)))
    deletion = draw(st.none() | _deletions(limits))
    if marker is None and deletion is None and not cells:
        deletion = draw(_deletions(limits))
    op = Op.INSERT if marker is not None else Op.UPDATE if cells else Op.DELETE
    return Change(op, key, cells, time=time, marker=marker, deletion=deletion)


def _deletions(limits: Limits) -> st.SearchStrategy[Deletion]:
    return st.builds(Deletion, _TIMES, st.integers(0, limits.second_max))


def _expiries(limits: Limits) -> st.SearchStrategy[Expiry | None]:
    # Nothing was written before 1970.
    last = limits.second_max
    return st.none() | st.builds(
        lambda ttl, written: Expiry(ttl, min(ttl + written, last)), st.integers(1, 630_720_000), st.integers(0, last)
    )


@st.composite
def _cells(draw: st.DrawFn, columns: list[Column], limits: Limits) -> dict[str, Cell]:
    return {column.name: draw(_cell(column.type, limits)) for column in columns if draw(st.booleans())}


@st.composite
def _cell(draw: st.DrawFn, kind: Type, limits: Limits) -> Cell:
    if kind.kind is Kind.COUNTER:
        shards = draw(
            st.dictionaries(st.uuids(), st.tuples(strategies.INT64, strategies.INT64), max_size=3, min_size=1)
        )
        return Delta(None, tuple(Element(path, value) for path, value in shards.items()))
    tombstones = st.builds(Deleted, st.none() | _TIMES, st.integers(0, limits.second_max))
    if not kind.multi_cell:
        nullable: st.SearchStrategy[Any] = values(kind)
        if kind.kind in _NULL_WHEN_EMPTY:
            nullable |= st.none()
        return draw(st.builds(Set, nullable, st.none() | _TIMES, _expiries(limits)) | tombstones)
    replaced = draw(st.none() | _deletions(limits))
    elements, removed = [], []
    places = set()
    for _ in range(draw(st.integers(0 if replaced else 1, 3))):
        path, place = draw(_paths(kind))
        if place in places:
            continue
        places.add(place)
        time = draw(st.none() | _TIMES)
        if draw(st.booleans()):
            item = kind.elements[path] if kind.kind is Kind.USER else kind.item_type
            value = None if item is None else draw(values(item))
            elements.append(Element(path, value, time, draw(_expiries(limits))))
        else:
            removed.append(Removed(path, time, draw(st.integers(0, limits.second_max))))
    return Delta(replaced, tuple(elements), tuple(removed))


@st.composite
def _paths(draw: st.DrawFn, kind: Type) -> tuple[Any, Any]:
    if kind.path_type is None:
        index = draw(st.integers(0, len(kind.elements) - 1))
        return index, index
    path = draw(values(kind.path_type))
    return path, order_key(kind.path_type, path)


@st.composite
def _ranges(draw: st.DrawFn, schema: TableSchema) -> Range:
    return Range(*(draw(st.none() | _bounds(schema)) for _ in range(2)))


@st.composite
def _bounds(draw: st.DrawFn, schema: TableSchema) -> Bound:
    count = draw(st.integers(1, len(schema.clustering)))
    return Bound(tuple(draw(values(column.type)) for column in schema.clustering[:count]), draw(st.booleans()))


# The normal form.


def normal_update(schema: TableSchema, changes: Sequence[Change]) -> list[Any]:
    """What an update says, in the order in which its changes are read back."""
    deletions, ranges, static, rows = [], RangeDeletions(), [], {}
    partition = [column.name for column in schema.partition]
    for change in changes:
        if change.op is Op.DELETE_PARTITION:
            deletions.append(normal(schema, change))
        elif change.op is Op.DELETE_RANGE:
            assert change.range is not None
            assert change.deletion is not None
            ranges.add(schema.clustering, change.range, change.deletion)
        elif len(change.key) == len(partition) and schema.clustering:
            static.append(normal(schema, change))
        else:
            place = row_place(schema.clustering, tuple(change.key[c.name] for c in schema.clustering))
            rows[place] = normal(schema, change)
    key = {name: changes[0].key[name] for name in partition}
    steps = [
        normal(schema, Change(Op.DELETE_RANGE, key, deletion=step.deletion, range=step.range)) for step in ranges.steps
    ]
    return [*deletions, *steps, *static, *(rows[place] for place in sorted(rows))]


def normal(schema: TableSchema, change: Change) -> Any:
    """One change with every time of its own."""
    cells = {name: _normal_cell(schema.by_name[name].type, cell, change) for name, cell in change.cells.items()}
    marker = None
    if change.marker is not None:
        marker = (change.time if change.marker.time is None else change.marker.time, change.marker.expiry)
    return change.op, _exact(dict(change.key)), _exact(cells), marker, change.deletion, change.range


def _normal_cell(kind: Type, cell: Cell, change: Change) -> Any:
    def own(time: int | None) -> int | None:
        return change.time if time is None else time

    if isinstance(cell, Set):
        return "set", cell.value, own(cell.time), cell.expiry
    if isinstance(cell, Deleted):
        return "deleted", own(cell.time), cell.local_s
    path_kind = kind.path_type

    def place(path: Any) -> Any:
        return path if path_kind is None else order_key(path_kind, path)

    elements = sorted((place(e.path), (e.path, e.value, own(e.time), e.expiry)) for e in cell.elements)
    removed = sorted((place(r.path), (r.path, own(r.time), r.local_s)) for r in cell.removed)
    return "delta", cell.replaced, [e for _, e in elements], [r for _, r in removed]


def _exact(value: Any) -> Any:
    """Floats by their bits, so that minus zero is not zero."""
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, dict):
        return {name: _exact(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return tuple(map(_exact, value))
    return value


# Reading back.


class ReadBack(NamedTuple):
    """What a log gave: changes by table id in log order, and what was wrong."""

    changes: dict[uuid.UUID, list[Change]]
    damage: list[Damage]
    schemas: Schemas
    decoder: Decoder


def read_back(paths: Iterable[str], *, live: bool = False, schemas: Schemas | None = None) -> ReadBack:
    """The changes of segments, with the schema from the log alone."""
    known = schemas or Schemas()
    decoder = Decoder(known, captures=lambda table: table.cdc, parking=MemoryParking())
    changes: dict[uuid.UUID, list[Change]] = {}
    damage: list[Damage] = []
    for path in paths:
        with SegmentReader(path, keys=KEYS) as reader:
            decoder.begin(reader.header, reader.name)
            position = 0
            sections = None if live else reader.sections()
            while True:
                item = reader.live(position, final=True) if sections is None else next(sections, None)
                if item is None:
                    break
                if isinstance(item, Damage):
                    damage.append(item)
                else:
                    position = max(position, decoder.decode(item, position))
        for batch in decoder.take():
            table = known.by_name(batch.schema.table)
            assert table is not None
            changes.setdefault(table.id, []).extend(avro.decode(batch))
    return ReadBack(changes, damage + decoder.damage, known, decoder)
