"""Column types and tables as tables of numbers, which the kernels walk instead of Python objects.

Each place where a type stands gets a node of its own: a type nests to a bound and never contains itself, so the
kernels' recursion is bounded by the schema, not by the data.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from penstock.capture.cassandra.decoding._cells import TablePlan
from penstock.capture.cassandra.decoding._values import Values
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.errors import InvalidSchema
from penstock.model.schema import Column, Role
from penstock.model.types import Kind, Type

# As _values.pxd numbers them.
_ORDER = (
    *(Kind.BOOLEAN, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.FLOAT32, Kind.FLOAT64, Kind.TEXT, Kind.ASCII),
    *(Kind.BYTES, Kind.UUID, Kind.TIMEUUID, Kind.VARINT, Kind.DECIMAL, Kind.INET, Kind.DATE, Kind.DURATION),
    *(Kind.LIST, Kind.MAP, Kind.TUPLE, Kind.USER, Kind.VECTOR),
)
_NUMBERS = {kind: number for number, kind in enumerate(_ORDER)} | {
    Kind.SET: _ORDER.index(Kind.LIST),
    Kind.COUNTER: _ORDER.index(Kind.INT64),
    Kind.TIME: _ORDER.index(Kind.INT64),
    Kind.TIMESTAMP: _ORDER.index(Kind.INT64),
}
# The types whose values stand in the log without their length. Others of one length, such as date and smallint, do not.
_BYTES = {
    Kind.BOOLEAN: 1,
    Kind.INT32: 4,
    Kind.FLOAT32: 4,
    Kind.INT64: 8,
    Kind.FLOAT64: 8,
    Kind.TIMESTAMP: 8,
    Kind.UUID: 16,
    Kind.TIMEUUID: 16,
}
# As _cells.pxd numbers them; anything else is one cell.
_SHAPES = {Kind.LIST: 1, Kind.SET: 2, Kind.MAP: 3, Kind.USER: 4, Kind.COUNTER: 5}
# The type of compact tables' columns that hold nothing: its length is fixed, and zero.
EMPTY_TYPES = ("empty", "'org.apache.cassandra.db.marshal.EmptyType'")
WRITE, READ, WAIT = range(3)


def fixed_bytes(type_: Type) -> int:
    """The length of a type's values where the log does not write it; else -1."""
    if type_.kind is Kind.VECTOR:
        one = fixed_bytes(type_.elements[0])
        return -1 if one < 0 else one * type_.length
    return _BYTES.get(type_.kind, -1)


def value_plan(types: Sequence[Type]) -> tuple[Values, list[int]]:
    """The kernel's form of these types, and the node of each."""
    nodes: list[Type] = []
    below: list[list[int]] = []

    def add(type_: Type) -> int:
        if type_.kind not in _NUMBERS:
            raise InvalidSchema(f"Cassandra has no type {type_.kind}")
        number = len(nodes)
        nodes.append(type_)
        below.append([])
        below[number] = [add(element) for element in type_.elements]
        return number

    roots = [add(type_) for type_ in types]
    first, children = array("i"), array("i")
    for parts in below:
        first.append(len(children))
        children.extend(parts)
    # Buffers of length zero cannot be exported to the kernels.
    children.append(0)
    values = Values(
        array("i", [_NUMBERS[node.kind] for node in nodes]),
        array("i", [fixed_bytes(node) for node in nodes]),
        first,
        array("i", [node.length if node.kind is Kind.VECTOR else len(node.elements) for node in nodes]),
        children,
    )
    return values, roots


def table_plan(table: CassandraTable, mode: int, *, learns: bool = False) -> TablePlan:
    """The kernel's form of a table."""
    schema = table.schema
    cells = schema.cells
    shapes = [_SHAPES.get(column.type.kind, 0) if column.type.multi_cell else 0 for column in cells]
    types = [column.type for column in schema.key]
    types += [_cell_type(column) for column in cells]
    types += [_path_type(column) for column in cells]
    values, roots = value_plan(types)
    partitions, keys = len(schema.partition), len(schema.key)
    numbers: dict[Role, dict[bytes, int]] = {Role.STATIC: {}, Role.REGULAR: {}}
    for number, column in enumerate(cells):
        numbers[column.role][column.name.encode()] = number
    return TablePlan(
        table.id.bytes,
        mode,
        learns,
        values,
        (roots[:partitions], roots[partitions:keys]),
        (
            roots[keys : keys + len(cells)],
            roots[keys + len(cells) :],
            shapes,
            [_width(column) for column in cells],
        ),
        (numbers[Role.STATIC], numbers[Role.REGULAR]),
    )


def _cell_type(column: Column) -> Type:
    """What a cell holds: of a non-frozen list or map one element; of a user type the whole, for its fields."""
    type_ = column.type
    if type_.multi_cell and type_.kind in (Kind.LIST, Kind.MAP):
        return type_.elements[-1]
    return type_


def _path_type(column: Column) -> Type:
    """What names a cell of a non-frozen column; where nothing does, any type will do."""
    type_ = column.type
    return (type_.path_type if type_.multi_cell else None) or Type(Kind.BYTES)


def _width(column: Column) -> int:
    if column.source_type in EMPTY_TYPES:
        return 0
    return -1 if column.type.multi_cell else fixed_bytes(column.type)
