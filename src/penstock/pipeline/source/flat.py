"""The flat shape: one row per change, with the table's columns as plain columns and everything else beside them.

The columns are those of one version of the table. Changes that were written with another version fit in by name: what
they do not have is null. docs/reference/spark-source.md describes every column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidSetting, SchemaChanged
from penstock.formats.arrays import integers, repeated, texts
from penstock.formats.arrow import to_arrow
from penstock.model.change import Op
from penstock.model.schema import Column, Role, TableSchema
from penstock.model.types import Kind, Type
from penstock.pipeline.source import values
from penstock.pipeline.source.stretches import Gathered
from penstock.pipeline.source.values import TIMESTAMP, loosen, spark_type, struct_array, to_spark, unique_names

_CHANGE_TYPES = {
    Op.INSERT: "insert",
    Op.SNAPSHOT: "insert",
    Op.UPDATE: "update_postimage",
    Op.DELETE: "delete",
}
_POSITION = pa.struct([pa.field(name, pa.int64(), nullable=False) for name in ("file", "offset", "ordinal")])
_TRANSACTION = pa.struct([("domain", pa.string()), ("sequence", pa.int64()), ("id", pa.string())])
_ORIGIN = pa.struct(
    [
        ("node", pa.string()),
        ("data_centre", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("transaction", _TRANSACTION),
        ("ordinal", pa.int64()),
    ]
)
_MARKER = pa.struct([("time", pa.int64()), ("ttl_s", pa.int32()), ("expires_s", pa.int64())])
_DELETION = pa.struct([("time", pa.int64()), ("local_s", pa.int64())])
# What every table has, in this order, behind the table's own columns.
PLAIN: dict[str, pa.DataType] = {
    "_op": pa.string(),
    "_change_type": pa.string(),
    "_commit_version": pa.int64(),
    "_commit_timestamp": TIMESTAMP,
    "_time": pa.int64(),
    "_commit_time": pa.int64(),
    "_capture_time": pa.int64(),
    "_node": pa.string(),
    "_position": _POSITION,
    "_schema_version": pa.int32(),
    "_origin": _ORIGIN,
    "_marker": _MARKER,
    "_deletion": _DELETION,
}
TIMES, CELLS, RANGE, BEFORE = "_cell_times", "_cells", "_range", "_before"
# Every field costs Spark more than it costs here, so what is seldom wanted is there only when it is asked for by name.
USUAL = ("_op", "_change_type", "_commit_version", "_commit_timestamp", "_time", "_node", "_position", TIMES)
RESERVED = (*PLAIN, TIMES, CELLS, RANGE, BEFORE)
# These every change has; where the schema says so, Spark does not look for nulls, row by row.
_ALWAYS = ("_op", "_change_type", "_node", "_position", "_schema_version", TIMES, CELLS)
# The part of the change record that a column is made of.
_PART_OF = {"_origin": "origin", "_marker": "marker", "_deletion": "deletion", RANGE: "range", BEFORE: "before"}


def flat_names(schema: TableSchema) -> dict[str, str]:
    """What each column of a table is called: its own name, unless that is taken."""
    ordered = [column.name for column in (*schema.key, *schema.cells)]
    return dict(zip(ordered, unique_names(ordered, RESERVED), strict=True))


def flat_schema(schema: TableSchema, columns: Sequence[str] | None = None) -> pa.Schema:
    """The columns of the flat shape: all usual ones, or those named; `*` stands for all usual ones."""
    names = flat_names(schema)
    made: dict[str, pa.DataType] = {}
    for column in (*schema.key, *schema.cells):
        made[names[column.name]] = value_type(column.type)
    own = tuple(made)
    made.update(PLAIN)
    if schema.cells:
        made[TIMES] = pa.struct([(names[column.name], pa.int64()) for column in schema.cells])
        made[CELLS] = pa.struct([(names[column.name], _cell_type(column.type)) for column in schema.cells])
    usual = [name for name in made if name in own or name in USUAL]
    if schema.clustering:
        made[RANGE] = pa.struct([("start", _bound_type(schema, names)), ("end", _bound_type(schema, names))])
    made[BEFORE] = pa.struct([(names[column.name], spark_type(column.type)) for column in schema.columns])
    if columns is None:
        chosen = usual
    else:
        chosen = list(dict.fromkeys(name for one in columns for name in (usual if one == "*" else [one])))
    for name in chosen:
        if name not in made:
            raise InvalidSetting(f"the table has no column {name[:60]!r}; it has {', '.join(made)}", table=schema.table)
    return pa.schema([pa.field(name, made[name], nullable=name not in _ALWAYS) for name in chosen])


def value_type(type_: Type) -> pa.DataType:
    """Of a column's plain value: of a non-frozen collection, what a change wrote of it."""
    return _SHARDS if type_.kind is Kind.COUNTER and type_.multi_cell else spark_type(type_)


_SHARDS = pa.int64()


def _cell_type(type_: Type) -> pa.DataType:
    fields = [
        ("state", pa.int8()),
        ("time", pa.int64()),
        ("ttl_s", pa.int32()),
        ("expires_s", pa.int64()),
        ("local_s", pa.int64()),
    ]
    if type_.multi_cell:
        fields.append(("delta", _delta_type(type_)))
    return pa.struct(fields)


def _delta_type(type_: Type) -> pa.DataType:
    path = pa.int32() if type_.path_type is None else spark_type(type_.path_type)
    held = _element_type(type_)
    value = [] if held is None else [("value", spark_type(held))]
    element = [("path", path), *value, ("time", pa.int64()), ("ttl_s", pa.int32()), ("expires_s", pa.int64())]
    removed = [("path", path), ("time", pa.int64()), ("local_s", pa.int64())]
    return pa.struct(
        [
            ("replaced", _DELETION),
            ("elements", values.list_type(pa.struct(element))),
            ("removed", values.list_type(pa.struct(removed))),
        ]
    )


def _element_type(type_: Type) -> Type | None:
    """What the `value` of a delta's element is: of a user type all fields, of which one has the value."""
    return type_ if type_.kind is Kind.USER else type_.item_type


def _bound_type(schema: TableSchema, names: dict[str, str]) -> pa.DataType:
    found = pa.struct([(names[column.name], spark_type(column.type)) for column in schema.clustering])
    return pa.struct([("count", pa.int32()), ("inclusive", pa.bool_()), ("values", found)])


@dataclass(frozen=True, slots=True)
class _Block:
    """A record batch of changes, and where they stand."""

    arrow: pa.RecordBatch
    gathered: Gathered
    node: str


class FlatBatches:
    """Makes batches of one flat schema out of changes of any version of the table."""

    def __init__(self, schema: TableSchema, wanted: pa.Schema, operations: Sequence[Op] = ()) -> None:
        """With `operations`, changes of other kinds are left out."""
        self._schema = schema
        kept = (at for at, op in enumerate(Op) if op in operations)
        self._kept = integers(kept, pa.int8()) if operations else None
        self._names = flat_names(schema)
        self._wanted = wanted
        self._parts = frozenset(_PART_OF[name] for name in wanted.names if name in _PART_OF)
        self._makers: dict[str, tuple[frozenset[str] | None, list[Callable[[_Block], pa.Array]]]] = {}

    def convert(self, gathered: Gathered, node: str) -> pa.RecordBatch:
        """Changes as one record batch."""
        version = gathered.schema
        known = self._makers.get(version.fingerprint)
        if known is None:
            known = self._makers[version.fingerprint] = self._plan(version)
        columns, makers = known
        block = _Block(to_arrow(gathered.batch(), columns, self._parts), gathered, node)
        made = pa.RecordBatch.from_arrays([make(block) for make in makers], schema=self._wanted)
        if self._kept is None:
            return made
        # The dictionary of the column is the list of operations, in their order.
        return made.filter(pc.is_in(block.arrow.column("op").indices, value_set=self._kept))

    def _plan(self, version: TableSchema) -> tuple[frozenset[str] | None, list[Callable[[_Block], pa.Array]]]:
        own = {flat: name for name, flat in self._names.items()}
        needed: set[str] = set()
        makers = []
        for field in self._wanted:
            if field.name in own:
                name = own[field.name]
                needed.add(name)
                makers.append(self._value(version, name, field.type))
            elif field.name in PLAIN:
                makers.append(_plain(field.name))
            else:
                columns = version.clustering if field.name == RANGE else version.columns
                needed.update(column.name for column in columns)
                makers.append(self._nested(version, field))
        known = {name for name in needed if name in version.by_name}
        return frozenset(known) if known != set(version.by_name) else None, makers

    def _value(self, version: TableSchema, name: str, wanted: pa.DataType) -> Callable[[_Block], pa.Array]:
        column = version.by_name.get(name)
        if column is None:
            return lambda block: pa.nulls(block.arrow.num_rows, wanted)
        made = _key_value(column) if column.role in (Role.PARTITION, Role.CLUSTERING) else _cell_value(column)
        return _fitting(made, value_type(column.type), wanted, version, column)

    def _nested(self, version: TableSchema, field: pa.Field) -> Callable[[_Block], pa.Array]:
        if field.name == RANGE:
            return self._range(version, field.type)
        cells = field.name in (CELLS, TIMES)
        own = {flat: name for name, flat in self._names.items()}
        parts: list[tuple[str, Callable[[_Block], pa.Array]]] = []
        for at in range(field.type.num_fields):
            part = field.type.field(at)
            column = version.by_name.get(own[part.name])
            make: Callable[[_Block], pa.Array]
            if column is None or (cells and column not in version.cells):
                make = _nothing(part.type)
            elif field.name == TIMES:
                make = _cell_time(column)
            elif cells:
                make = _fitting(_cell_state(column), _cell_type(column.type), part.type, version, column)
            else:
                make = _fitting(_old_value(column), spark_type(column.type), part.type, version, column)
            parts.append((part.name, make))

        def nested(block: _Block) -> pa.Array:
            fields = [make(block) for _, make in parts]
            if cells:
                return pa.StructArray.from_arrays(fields, fields=list(field.type))
            return struct_array(block.arrow.column("before"), field.type, fields)

        return nested

    def _range(self, version: TableSchema, wanted: pa.DataType) -> Callable[[_Block], pa.Array]:
        def bound(found: pa.Array) -> pa.Array:
            columns = [
                to_spark(found.field("values").field(at), column.type) for at, column in enumerate(version.clustering)
            ]
            type_ = wanted.field(0).type
            made = struct_array(found.field("values"), type_.field("values").type, columns)
            return struct_array(found, type_, [found.field("count"), found.field("inclusive"), made])

        def make(block: _Block) -> pa.Array:
            found = block.arrow.column("range")
            if not version.clustering or version.clustering != self._schema.clustering:
                return pa.nulls(block.arrow.num_rows, wanted)
            return struct_array(found, wanted, [bound(found.field("start")), bound(found.field("end"))])

        return make


def _nothing(type_: pa.DataType) -> Callable[[_Block], pa.Array]:
    return lambda block: pa.nulls(block.arrow.num_rows, type_)


def _fitting(
    make: Callable[[_Block], pa.Array], found: pa.DataType, wanted: pa.DataType, version: TableSchema, column: Column
) -> Callable[[_Block], pa.Array]:
    """A column of an older version whose type has changed since; only a type that holds every old value fits."""
    if found == wanted:
        return make
    if not can_hold(found, wanted):
        raise SchemaChanged(
            f"a column's type changed from {found} to {wanted}, and the values do not fit",
            table=version.table,
            column=column.name,
            version=version.version,
        )
    return lambda block: make(block).cast(wanted)


def can_hold(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of one type is one of the other."""
    if found == wanted:
        return True
    both = found, wanted
    if all(pa.types.is_signed_integer(type_) for type_ in both):
        return bool(found.bit_width <= wanted.bit_width)
    if all(pa.types.is_floating(type_) for type_ in both):
        return bool(found.bit_width <= wanted.bit_width)
    if all(pa.types.is_decimal(type_) for type_ in both):
        return bool(found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale)
    return bool(pa.types.is_string(found) and pa.types.is_binary(wanted))


def accepts(wanted: pa.Schema, names: dict[str, str], version: TableSchema) -> str | None:
    """The column of a newer version that has no place in the flat schema; None when all have one."""
    for column in version.columns:
        flat = names.get(column.name)
        at = -1 if flat is None else wanted.get_field_index(flat)
        if at < 0 or not can_hold(value_type(column.type), wanted.field(at).type):
            return column.name
    return None


# The columns, each from the columns of docs/formats/change-record.md.


def _key_value(column: Column) -> Callable[[_Block], pa.Array]:
    return lambda block: to_spark(_part(block, "key", column.name), column.type)


def _cell_value(column: Column) -> Callable[[_Block], pa.Array]:
    type_ = column.type

    def make(block: _Block) -> pa.Array:
        cell = _part(block, "cells", column.name)
        if type_.multi_cell:
            return _written(cell.field("delta"), type_)
        return to_spark(cell.field("value"), type_)

    return make


def _written(delta: pa.Array, type_: Type) -> pa.Array:
    """The elements that a change wrote of a non-frozen collection; null where it wrote none of it."""
    wanted = value_type(type_)
    if type_.kind in (Kind.USER, Kind.COUNTER):
        return pa.nulls(len(delta), wanted)
    elements = delta.field("elements")
    # The list itself is never null, so where there is no delta the struct around it says so.
    places = pa.Array.from_buffers(
        pa.list_(elements.type.value_field),
        len(elements),
        [delta.buffers()[0], elements.buffers()[1]],
        children=[elements.values],
    )
    path = to_spark(elements.values.field("path"), type_.path_type) if type_.path_type is not None else None
    if type_.kind is Kind.SET:
        assert path is not None
        return values.list_array(places, wanted, path)
    held = to_spark(elements.values.field("value"), type_.elements[-1])
    if type_.kind is Kind.LIST:
        return values.list_array(places, wanted, held)
    assert path is not None
    return values.map_array(places, wanted, path, held)


def _cell_state(column: Column) -> Callable[[_Block], pa.Array]:
    wanted = _cell_type(column.type)

    def make(block: _Block) -> pa.Array:
        cell = _part(block, "cells", column.name)
        fields = [cell.field(name) for name in ("state", "time", "ttl_s", "expires_s", "local_s")]
        if column.type.multi_cell:
            fields.append(_delta(cell.field("delta"), column.type, wanted.field("delta").type))
        return struct_array(cell, wanted, fields)

    return make


def _cell_time(column: Column) -> Callable[[_Block], pa.Array]:
    """When the change wrote or deleted the column; null where it did not touch it."""

    def make(block: _Block) -> pa.Array:
        cell, times = _part(block, "cells", column.name), block.arrow.column("time")
        state, own = cell.field("state"), cell.field("time")
        if own.null_count < len(own):
            times = pc.coalesce(own, times)
        # Not by Arrow's own functions, which import pandas.
        if np.frombuffer(state.buffers()[1], np.int8, len(state), state.offset).all():
            return times
        return pc.if_else(state.cast(pa.bool_()), times, pa.nulls(len(times), pa.int64()))

    return make


def _delta(delta: pa.Array, type_: Type, wanted: pa.DataType) -> pa.Array:
    elements, removed = delta.field("elements"), delta.field("removed")
    path, held = type_.path_type, _element_type(type_)

    def paths(array: pa.Array) -> pa.Array:
        return array if path is None else to_spark(array, path)

    found = elements.values
    parts = [paths(found.field("path"))]
    if held is not None:
        parts.append(to_spark(found.field("value"), held))
    parts += [found.field(name) for name in ("time", "ttl_s", "expires_s")]
    made = struct_array(found, wanted.field("elements").type.value_type, parts)
    gone = removed.values
    left = [paths(gone.field("path")), gone.field("time"), gone.field("local_s")]
    lost = struct_array(gone, wanted.field("removed").type.value_type, left)
    return struct_array(
        delta,
        wanted,
        [
            loosen(delta.field("replaced")),
            values.list_array(elements, wanted.field("elements").type, made),
            values.list_array(removed, wanted.field("removed").type, lost),
        ],
    )


def _old_value(column: Column) -> Callable[[_Block], pa.Array]:
    return lambda block: to_spark(_part(block, "before", column.name).field("value"), column.type)


def _part(block: _Block, group: str, name: str) -> pa.Array:
    return block.arrow.column(group).field(name)


def _plain(name: str) -> Callable[[_Block], pa.Array]:
    return _PLAIN_MAKERS[name]


def _op(block: _Block) -> pa.Array:
    return block.arrow.column("op").cast(pa.string())


_CHANGE_TYPE_OF_OP = texts([_CHANGE_TYPES.get(op, op.value) for op in Op])


def _change_type(block: _Block) -> pa.Array:
    # The dictionary of the column is the list of operations, in their order.
    return _CHANGE_TYPE_OF_OP.take(block.arrow.column("op").indices)


def _when(block: _Block) -> pa.Array:
    return pc.coalesce(*(block.arrow.column(name) for name in ("commit_time", "time", "capture_time")))


def _position(block: _Block) -> pa.Array:
    offsets, firsts, counts = np.array(block.gathered.blocks, np.int64).reshape(-1, 3).T
    begins = np.cumsum(counts) - counts
    count = block.gathered.count
    ordinals = np.arange(count, dtype=np.int64) - np.repeat(begins - firsts, counts)
    columns = [np.full(count, block.gathered.file, np.int64), np.repeat(offsets, counts), ordinals]
    held = [pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(column)]) for column in columns]
    return pa.StructArray.from_arrays(held, fields=list(_POSITION))


def _node(block: _Block) -> pa.Array:
    data, count = block.node.encode(), block.arrow.num_rows
    ends = np.arange(count + 1, dtype=np.int32) * len(data)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(data * count)])


def _same(name: str) -> Callable[[_Block], pa.Array]:
    return lambda block: block.arrow.column(name)


def _loosened(name: str) -> Callable[[_Block], pa.Array]:
    return lambda block: loosen(block.arrow.column(name))


_PLAIN_MAKERS: dict[str, Callable[[_Block], pa.Array]] = {
    "_op": _op,
    "_change_type": _change_type,
    "_commit_version": _when,
    "_commit_timestamp": lambda block: _when(block).cast(TIMESTAMP),
    "_time": _same("time"),
    "_commit_time": _same("commit_time"),
    "_capture_time": _same("capture_time"),
    "_node": _node,
    "_position": _position,
    "_schema_version": lambda block: repeated(block.gathered.schema.version, block.arrow.num_rows, pa.int32()),
    "_origin": _loosened("origin"),
    "_marker": _loosened("marker"),
    "_deletion": _loosened("deletion"),
}
