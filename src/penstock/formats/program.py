"""Programs: an Avro schema turned into flat tables of numbers that the kernels walk.

A node is a row of the tables: what it is, where its children stand, and its limits. Named types are written out at each
use, so that a node stands for one place in the record; types nest to a bound and never contain themselves, so the
kernels' recursion is bounded by the schema, not by the data.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.errors import InvalidSchema
from penstock.formats import record
from penstock.formats._kernel import Program
from penstock.model.schema import TableSchema
from penstock.model.types import DEPTH_MAX

NULL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, ARRAY, UNION, RECORD, NULLABLE, BIG = range(15)
_PRIMITIVES = {
    "null": NULL,
    "boolean": BOOLEAN,
    "int": INT,
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "bytes": BYTES,
    "string": STRING,
}
_LIMITS = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
_NARROW = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint8": (0, (1 << 8) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
}
# The fewest bytes that a value of each primitive takes.
_LEAST = {NULL: 0, FLOAT: 4, DOUBLE: 8}
# A level of a column's type is at most two Avro levels (a union around a record); the change around it has a few more.
_AVRO_DEPTH_MAX = 4 * DEPTH_MAX


@dataclass(slots=True)
class Node:
    """One place in the record."""

    kind: int
    children: list[Node] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    # INT, LONG, ENUM, UNION: the range of the number. FIXED: the size.
    low: int = 0
    high: int = 0
    # The fewest bytes that a value takes; counts of array items are checked with it.
    least: int = 1
    number: int = -1

    def __getitem__(self, name: str) -> Node:
        return self.children[self.names.index(name)]


def parse(schema: Any) -> Node:
    """The tree of an Avro schema (parsed JSON). Raises InvalidSchema on what no change record contains."""
    try:
        return _parse(schema, {}, 0)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidSchema(f"not a usable Avro schema: {error!r}") from error


def _parse(schema: Any, named: dict[str, Any], depth: int) -> Node:
    if depth > _AVRO_DEPTH_MAX:
        raise InvalidSchema("the Avro schema nests too deep")
    if isinstance(schema, list):
        return _union(schema, named, depth)
    if isinstance(schema, str):
        schema = named.get(schema.removeprefix(f"{record.NAMESPACE}."), {"type": schema})
    kind = schema["type"]
    if kind in _PRIMITIVES:
        low, high = _NARROW.get(schema.get(record.NAMESPACE, {}).get("kind"), _LIMITS.get(kind, (0, 0)))
        number = _PRIMITIVES[kind]
        return Node(number, low=low, high=high, least=_LEAST.get(number, 1))
    if kind == "array":
        item = _parse(schema["items"], named, depth + 1)
        if item.least < 1:
            raise InvalidSchema("an array of values without bytes")
        return Node(ARRAY, [item])
    named[schema["name"]] = schema
    if kind == "fixed":
        return Node(FIXED, low=schema["size"], least=schema["size"])
    if kind == "enum":
        return Node(ENUM, high=len(schema["symbols"]) - 1)
    if kind != "record":
        raise InvalidSchema(f"Avro type {kind} is not used by change records")
    children = [_parse(f["type"], named, depth + 1) for f in schema["fields"]]
    names = [f["name"] for f in schema["fields"]]
    return Node(RECORD, children, names, least=sum(child.least for child in children))


def _union(branches: list[Any], named: dict[str, Any], depth: int) -> Node:
    children = [_parse(branch, named, depth + 1) for branch in branches]
    if not children or children[0].kind != NULL:
        raise InvalidSchema("unions of change records begin with null")
    if len(children) == 2:
        return Node(NULLABLE, children[1:])
    return Node(UNION, children, high=len(children) - 1)


def number_nodes(root: Node) -> list[Node]:
    """All nodes in depth-first order, each with its number set."""
    nodes: list[Node] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        node.number = len(nodes)
        nodes.append(node)
        waiting.extend(reversed(node.children))
    return nodes


def compile_tree(root: Node) -> Program:
    """The kernels' form of a tree."""
    nodes = number_nodes(root)
    first = array("i")
    children = array("i")
    for node in nodes:
        first.append(len(children))
        children.extend(child.number for child in node.children)
    # Buffers of length zero cannot be exported to the kernels.
    children.append(0)
    return Program(
        array("i", [node.kind for node in nodes]),
        first,
        array("i", [len(node.children) for node in nodes]),
        children,
        array("q", [node.low for node in nodes]),
        array("q", [node.high for node in nodes]),
        array("q", [node.least for node in nodes]),
    )


def tree(schema: TableSchema) -> Node:
    """A fresh tree of a table's change record."""
    return parse(json.loads(record.schema_json(schema)))


def program(schema: TableSchema) -> Program:
    """The program of a table's change record, kept with the schema: hashing a schema costs more than a small batch."""
    known = schema.__dict__.get("_program")
    if known is None:
        known = schema.__dict__["_program"] = compile_tree(tree(schema))
    return cast(Program, known)
