"""Batches of changes as lines of JSON, straight from their rows: what subscribers, the command line and files get.

A line is the JSON that docs/formats/change-record.md describes, byte for byte what `json.dumps` makes of it without
spaces, for one change as for thousands. The kernel walks the rows by a plan, which is made once for a table and a
spelling: names and types as tables of numbers, and for kinds of values that need Python's own numbers or text, a
function.
"""

from __future__ import annotations

import json
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

from penstock.errors import CorruptLog
from penstock.formats import avro
from penstock.formats._json_rows import JsonRows
from penstock.formats._json_values import (
    ADDRESS,
    BINARY,
    CLOCK,
    DATE,
    DECIMAL,
    FIXED_DECIMAL,
    IDENTIFIER,
    INSTANT,
    INTEGER,
    ITEMS,
    NUMBER,
    OBJECT,
    OBJECTS,
    REAL,
    TEXT,
    TRUTH,
    TUPLE,
    WALL_CLOCK,
)
from penstock.formats._kernel import RowReader
from penstock.formats.json import TEXT_KINDS, UNITS_PER_S, value_json
from penstock.formats.program import Node, number_nodes, program, tree
from penstock.formats.values import from_datum
from penstock.model.batch import ChangeBatch
from penstock.model.change import Op
from penstock.model.position import Position
from penstock.model.schema import Column, TableSchema
from penstock.model.types import TEXT as STRING
from penstock.model.types import Kind, Type

# How the kernel writes each kind of value; the others are left to Python.
_WAYS = {
    **dict.fromkeys(TEXT_KINDS, TEXT),
    **dict.fromkeys((Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64), NUMBER),
    **dict.fromkeys((Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.COUNTER), NUMBER),
    **dict.fromkeys((Kind.UINT64, Kind.VARINT), INTEGER),
    **dict.fromkeys((Kind.FLOAT32, Kind.FLOAT64), REAL),
    **dict.fromkeys((Kind.UUID, Kind.TIMEUUID), IDENTIFIER),
    **dict.fromkeys((Kind.LIST, Kind.SET, Kind.VECTOR, Kind.FLAGS), ITEMS),
    Kind.BOOLEAN: TRUTH,
    Kind.BYTES: BINARY,
    Kind.DATE: DATE,
    Kind.TIME: CLOCK,
    Kind.TIMESTAMP: INSTANT,
    Kind.DATETIME: WALL_CLOCK,
    Kind.FIXED_DECIMAL: FIXED_DECIMAL,
    Kind.DECIMAL: DECIMAL,
    Kind.INET: ADDRESS,
    Kind.TUPLE: TUPLE,
    Kind.USER: OBJECT,
}
# Kinds of which some values, or all, are left to Python.
_ASKING = {REAL, INTEGER, FIXED_DECIMAL, DECIMAL, ADDRESS, OBJECTS}
# Every number of so many digits fits 64 bits.
_INT64_DIGITS = 18
_WRONG = (TypeError, ValueError, OverflowError, KeyError, AttributeError, IndexError, ArithmeticError)


class Spelling(StrEnum):
    """What becomes of characters beyond ASCII: their escapes, or themselves in UTF-8."""

    ASCII = "ascii"
    UTF8 = "utf8"


def lines(batch: ChangeBatch, spelling: Spelling, *, ordinal: int | None = None) -> memoryview:
    """A line of each change that counts, each with its end.

    With the `ordinal` of the first, a line begins with the change's position, its table and the schema's version.
    """
    schema = batch.schema
    begin, head, first = b"{", b"", -1
    if ordinal is not None:
        place = str(Position(batch.file, batch.offset, 0)).removesuffix("0")
        table = _text(str(schema.table), spelling)
        begin, first = f'{{"position":"{place}'.encode(), ordinal
        head = f'","table":{table},"schema_version":{schema.version},'.encode()
    reader = avro.open_rows(schema, batch.rows, batch.count)
    program(schema).skip_rows(reader, batch.skip)
    try:
        text = _Plan.of(schema, spelling).render(reader, batch.count - batch.skip, begin, first, head)
    except _WRONG as error:
        raise CorruptLog("rows are damaged: a value is not of its type", byte=reader.position) from error
    avro.expect_end(reader)
    return text


def objects(batch: ChangeBatch, *, ordinal: int | None = None) -> list[dict[str, Any]]:
    """The same, each as the object that a reader of its line has."""
    return [json.loads(line) for line in bytes(lines(batch, Spelling.UTF8, ordinal=ordinal)).splitlines()]


def _text(text: str, spelling: Spelling) -> str:
    return json.dumps(text, ensure_ascii=spelling is Spelling.ASCII)


class _Plan:
    """What the kernel needs to know of a table. Kept with the schema, and used by one thread at a time."""

    def __init__(self, schema: TableSchema, spelling: Spelling) -> None:
        ascii_only = spelling is Spelling.ASCII
        self._spelling = spelling
        self._dump = json.JSONEncoder(ensure_ascii=ascii_only, separators=(",", ":")).encode
        self._nodes: list[_Value] = []
        self._literals = [f'"op":"{op}"'.encode() for op in Op]
        self._makers: list[Any] = [None]
        root = tree(schema)
        number_nodes(root)
        quote = json.encoder.encode_basestring_ascii if ascii_only else json.encoder.encode_basestring
        # A type reads alike wherever it stands, so a column has one node for its key, its cells and its values before.
        key = {c.name: self._value(c.type, at.children[0], c.name) for c, at in _pairs(schema.key, root["key"])}
        cells = {c.name: self._cell(c, at) for c, at in _pairs(schema.cells, root["cells"])}
        nodes = {**key, **{name: delta[0] for name, delta in cells.items()}}
        sections = (key, cells, schema.clustering, schema.columns)
        columns = [*key.values(), *(nodes[name] for name in cells)]
        columns += [nodes[column.name] for column in (*schema.clustering, *schema.columns)]
        tables = self._tables()
        tables["columns"] = array("i", [*columns, 0])
        tables["deltas"] = array("i", [number for delta in cells.values() for number in delta[1:]] + [0])
        tables["sections"] = tuple(len(section) for section in sections)
        self._lock = threading.Lock()
        self._rows = JsonRows(program(schema), tables, self._literals, self._makers, quote)

    @staticmethod
    def of(schema: TableSchema, spelling: Spelling) -> _Plan:
        """The one of a schema, which costs more to make than a small batch."""
        kept = schema.__dict__.setdefault("_json_rows", {})
        known = kept.get(spelling)
        if known is None:
            known = kept[spelling] = _Plan(schema, spelling)
        return cast(_Plan, known)

    def render(self, reader: RowReader, count: int, begin: bytes, ordinal: int, head: bytes) -> memoryview:
        with self._lock:
            return cast(memoryview, self._rows.render(reader, count, begin, ordinal, head, b"\n"))

    def _cell(self, column: Column, cell: Node) -> tuple[int, int, int, int]:
        """The node of a column's values, whether there are deltas of it, and the nodes of their paths and items."""
        type_ = column.type
        node = self._value(type_, cell.children[1]["value"].children[0], column.name)
        if not type_.multi_cell:
            return node, 0, 0, 0
        element = cell.children[3]["elements"].children[0]
        path = -1 if type_.path_type is None else self._value(type_.path_type, element["path"])
        item = -1 if type_.item_type is None else self._value(type_.item_type, element["value"].children[0])
        return node, 1, path, item

    def _value(self, type_: Type, node: Node, name: str = "") -> int:
        """A node for the values of a type, as a member of this name, and nodes for what they consist of."""
        way = _WAYS.get(type_.kind, OBJECTS)
        number = len(self._nodes)
        value = _Value(way, node.number, self._literal(name), self._maker(type_, way), *_limits(type_))
        self._nodes.append(value)
        if type_.kind is Kind.FLAGS:
            value.children = [self._value(STRING, node.children[0])]
        elif way == ITEMS:
            value.children = [self._value(type_.elements[0], node.children[0])]
        elif way in (TUPLE, OBJECT):
            names = type_.names if way == OBJECT else ("",) * len(type_.elements)
            parts = zip(type_.elements, node.children, names, strict=False)
            value.children = [self._value(element, part.children[0], label) for element, part, label in parts]
        return number

    def _literal(self, name: str) -> int:
        self._literals.append(f",{_text(name, self._spelling)}:".encode())
        return len(self._literals) - 1

    def _maker(self, type_: Type, way: int) -> int:
        """The number of the function that gives the JSON of what the kernel has read; 0 where it never asks."""
        if way not in _ASKING:
            return 0
        convert, dump = from_datum(type_), self._dump

        def make(datum: Any) -> bytes:
            return dump(value_json(type_, datum if convert is None else convert(datum))).encode()

        self._makers.append(make)
        return len(self._makers) - 1

    def _tables(self) -> dict[str, Any]:
        first, children = array("i"), array("i")
        for node in self._nodes:
            first.append(len(children))
            children.extend(node.children)
        # Buffers of length zero cannot be exported to the kernels.
        children.append(0)
        return {
            "kinds": array("i", [node.way for node in self._nodes]),
            "avro": array("i", [node.avro for node in self._nodes]),
            "first": first,
            "counts": array("i", [len(node.children) for node in self._nodes]),
            "children": children,
            "names": array("i", [node.name for node in self._nodes]),
            "makers": array("i", [node.maker for node in self._nodes]),
            "numbers": array("q", [node.number for node in self._nodes]),
            "limits": array("q", [node.limit for node in self._nodes]),
        }


@dataclass(slots=True)
class _Value:
    """One place where values are written."""

    way: int
    # The place in the row's program.
    avro: int
    name: int
    maker: int
    # Times: units in a second. Vectors: their length. Fixed decimals: their scale. UINT64: 1, for it has no sign.
    number: int
    # Fixed decimals: what they stay below; 0 where eight bytes always do.
    limit: int
    children: list[int] = field(default_factory=list)


def _pairs(columns: Sequence[Column], record: Node) -> list[tuple[Column, Node]]:
    return list(zip(columns, record.children, strict=True))


def _limits(type_: Type) -> tuple[int, int]:
    if type_.unit is not None:
        return UNITS_PER_S[type_.unit], 0
    if type_.kind is Kind.FIXED_DECIMAL:
        digits = max(type_.precision, 1)
        return type_.scale, 10**digits if digits <= _INT64_DIGITS else 0
    if type_.kind is Kind.VECTOR:
        return type_.length, 0
    return int(type_.kind is Kind.UINT64), 0
