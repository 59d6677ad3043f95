"""Ties: which of two values of one column wins when everything else about the two cells is equal.

The rule is Cassandra's, over the bytes that it would store (`merge.cql_value`), so the values must be decoded. It is
asked for nothing but copies of a cell that differ in their value alone, which hardly ever happens.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.formats._kernel import Program, RowReader
from penstock.formats.program import compile_tree, tree
from penstock.formats.values import from_datum
from penstock.merge.cql_value import serialized
from penstock.model.schema import TableSchema

Side = tuple[bytes, int]


def tie_of(schema: TableSchema) -> Callable[[int, Side, Side], bool]:
    """A function of a column's number among the cells, and of value and time to live of two cells: the first wins."""
    programs: dict[int, Program] = {}

    def rank(column: int, side: Side) -> tuple[bool, bytes, int]:
        data, ttl_s = side
        if column not in programs:
            programs[column] = compile_tree(tree(schema)["cells"].children[column].children[1]["value"])
        value = programs[column].decode(RowReader(data))
        kind = schema.cells[column].type
        back = from_datum(kind)
        plain = value if value is None or back is None else back(value)
        return plain is not None, serialized(kind, plain), ttl_s

    def tie(column: int, new: Side, old: Side) -> bool:
        return rank(column, new) > rank(column, old)

    return tie
