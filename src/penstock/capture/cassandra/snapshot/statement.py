"""The SELECT of a snapshot: which columns, with which write times, and what each column of the result is.

A statement reads one token range: key columns, then each cell with its WRITETIME and TTL as far as the server's version
has them, then the row's token. Versions before 5.0 have no write times of the elements of non-frozen collections and
user types. Names are always quoted, so any name will do.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

from penstock.capture.cassandra.decoding.value_plan import EMPTY_TYPES
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.snapshot.ring import TokenRange
from penstock.model.predicate import always_quoted
from penstock.model.schema import Column, Role, TableId
from penstock.model.types import Kind

# What the kernel calls the shapes of cells; the same numbers stand in _page.pxd.
PLAIN, COUNTER, LIST, SET, MAP, USER, EMPTY = range(7)
_SHAPES = {Kind.COUNTER: COUNTER, Kind.LIST: LIST, Kind.SET: SET, Kind.MAP: MAP, Kind.USER: USER}
# How a table's clustering columns are seen: it has none, they are selected, or CQL hides them.
_NO_CLUSTERING, _VISIBLE, _HIDDEN = range(3)


class Times(IntEnum):
    """Of which cells the server tells the write time and the time to live."""

    CELLS = 0
    ELEMENTS = 1


def times_of(release_version: str) -> Times:
    """What a server of this version is known to tell."""
    found = re.match(r"(\d+)\.", release_version)
    return Times.ELEMENTS if found and int(found[1]) >= 5 else Times.CELLS


@dataclass(frozen=True)
class Layout:
    """What the kernel must know of the result's columns. One entry per cell in the arrays, in the order of cells."""

    # The columns of the partition key, then all key columns that are selected; they come first in the result.
    partition: int
    keys: int
    key_types: tuple[Column, ...]
    clustering: int
    # The number among the schema's cells, the first column of the result, and what is known of each cell.
    numbers: array[int]
    columns: array[int]
    shapes: array[int]
    timed: array[int]
    statics: array[int]
    cell_types: tuple[Column, ...]
    has_static: bool
    has_marker: bool
    # All columns of the result; the last is the token.
    width: int

    @property
    def cells(self) -> int:
        return len(self.cell_types)


@dataclass(frozen=True)
class Statement:
    """The statement, and the layout of its result."""

    select: str
    token: str
    layout: Layout

    def text(self, range_: TokenRange) -> str:
        """The CQL that reads a token range.

        It is not prepared: a page costs far more than its parsing, and a prepared statement would have to be watched
        for columns that come and go.
        """
        return f"{self.select} WHERE {self.token} > {range_.start} AND {self.token} <= {range_.end}"


def table_name(table: TableId) -> str:
    """A table's full name in CQL."""
    return f"{always_quoted(table.keyspace)}.{always_quoted(table.table)}"


def statement(table: CassandraTable, times: Times, *, visible: Collection[str], compact: bool) -> Statement:
    """The statement that reads a table.

    `visible` are the columns that a SELECT * has: CQL hides some of the columns of compact tables. Such tables have no
    row markers either, nor have those with counters.
    """
    schema = table.schema
    key = [column for column in schema.key if column.name in visible]
    selected = [always_quoted(column.name) for column in key]
    rows: dict[str, list[int]] = {name: [] for name in ("numbers", "columns", "shapes", "timed", "statics")}
    cells: list[Column] = []
    for number, column in enumerate(schema.cells):
        hidden = column.name not in visible
        if hidden and column.source_type not in EMPTY_TYPES:
            continue
        cells.append(column)
        rows["numbers"].append(number)
        rows["statics"].append(column.role is Role.STATIC)
        rows["columns"].append(len(selected))
        if hidden:
            rows["shapes"].append(EMPTY)
            rows["timed"].append(False)
            continue
        shape = _SHAPES.get(column.type.kind, PLAIN) if column.type.multi_cell else PLAIN
        if column.type.kind is Kind.COUNTER:
            shape = COUNTER
        timed = _is_timed(column, times)
        rows["shapes"].append(shape)
        rows["timed"].append(timed)
        name = always_quoted(column.name)
        selected.append(name)
        if timed:
            selected += [f"WRITETIME({name})"] if shape == COUNTER else [f"WRITETIME({name})", f"TTL({name})"]
    token = f"token({', '.join(always_quoted(column.name) for column in schema.partition)})"
    selected.append(token)
    clustering = _NO_CLUSTERING
    if schema.clustering:
        clustering = _VISIBLE if len(key) == len(schema.key) else _HIDDEN
    layout = Layout(
        partition=len(schema.partition),
        keys=len(key),
        key_types=tuple(key),
        clustering=clustering,
        # An array of length zero cannot be handed to the kernel.
        **{name: array("i", [*numbers, 0]) for name, numbers in rows.items()},
        cell_types=tuple(cells),
        has_static=any(rows["statics"]),
        has_marker=not compact and COUNTER not in rows["shapes"],
        width=len(selected),
    )
    # Names are quoted, and the tokens will be numbers.
    select = f"SELECT {', '.join(selected)} FROM {table_name(schema.table)}"  # noqa: S608 - see above
    return Statement(select, token, layout)


def _is_timed(column: Column, times: Times) -> bool:
    # A counter is one cell in Cassandra's eyes.
    return times is Times.ELEMENTS or not column.type.multi_cell or column.type.kind is Kind.COUNTER
