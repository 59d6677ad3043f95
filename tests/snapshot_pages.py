"""A server's answer to a snapshot's SELECT, made of a table's merged state: values, write times and times to live."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from uuid import UUID

from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.snapshot.encoding import Page, TableEncoder
from penstock.capture.cassandra.snapshot.statement import COUNTER, EMPTY, PLAIN, Statement, Times, statement
from penstock.formats import avro
from penstock.merge.cql_value import serialized
from penstock.merge.row_state import TOMBSTONE, CellState, ComplexState, PartitionState, RowState
from penstock.merge.table_state import TableState
from penstock.model.change import Change
from penstock.model.schema import Column, Role, TableSchema
from penstock.model.types import Kind

Raw = bytes | None


def table_of(schema: TableSchema) -> CassandraTable:
    return CassandraTable(UUID(int=1), schema, cdc=True)


def plan(schema: TableSchema, times: Times = Times.ELEMENTS, *, compact: bool = False) -> Statement:
    visible = {column.name for column in schema.columns}
    return statement(table_of(schema), times, visible=visible, compact=compact)


def changes_of(
    schema: TableSchema, pages: Iterable[Page], times: Times = Times.ELEMENTS, *, assume_inserted: bool = True
) -> list[Change]:
    """What the snapshot writes for these pages of one split."""
    encoder = TableEncoder(table_of(schema), plan(schema, times), assume_inserted=assume_inserted).split()
    return [change for page in pages for batch in encoder.batches(page, page.asked_us) for change in avro.decode(batch)]


def page(rows: Iterable[Iterable[Raw]], asked_us: int, more: bytes | None = None) -> Page:
    """Rows on the wire: each value with its length before it, -1 for null."""
    listed = [list(row) for row in rows]
    return Page(len(listed), b"".join(sized(value) for row in listed for value in row), more, asked_us)


def sized(value: Raw) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def answer(state: TableState, chosen: Statement, asked_us: int) -> list[list[Raw]]:
    """The rows that a SELECT at this moment gives, in partition order."""
    now_s = asked_us // 10**6
    out: list[list[Raw]] = []
    for token, (_, partition) in enumerate(sorted(state.partitions.items())):
        out += _partition(state.schema, partition, chosen, now_s, token)
    return out


def _partition(
    schema: TableSchema, partition: PartitionState, chosen: Statement, now_s: int, token: int
) -> Iterator[list[Raw]]:
    key = [serialized(column.type, value) for column, value in zip(schema.partition, partition.key, strict=True)]
    statics = [column for column in schema.cells if column.role is Role.STATIC]
    regulars = [column for column in schema.cells if column.role is Role.REGULAR]
    found = False
    for _, row in sorted(partition.rows.items()):
        if (row.marker is not None and _lives(row.marker, now_s)) or _any(row, regulars, now_s):
            found = True
            clustering = [serialized(c.type, v) for c, v in zip(schema.clustering, row.key, strict=True)]
            yield [*key, *clustering, *_cells(partition.static, row, chosen, now_s), struct.pack(">q", token)]
    if not found and _any(partition.static, statics, now_s):
        nothing = [None] * len(schema.clustering)
        yield [*key, *nothing, *_cells(partition.static, RowState(()), chosen, now_s), struct.pack(">q", token)]


def _lives(cell: CellState, now_s: int) -> bool:
    return cell.kind != TOMBSTONE and (not cell.ttl_s or now_s < cell.second)


def _any(row: RowState, columns: Iterable[Column], now_s: int) -> bool:
    for column in columns:
        if column.name in row.cells and _lives(row.cells[column.name], now_s):
            return True
        complex_ = row.complexes.get(column.name)
        if complex_ is not None and any(_lives(cell, now_s) for _, cell in complex_.elements.values()):
            return True
    return False


def _cells(static: RowState, row: RowState, chosen: Statement, now_s: int) -> Iterator[Raw]:
    layout = chosen.layout
    for column, shape, timed in zip(layout.cell_types, layout.shapes, layout.timed, strict=False):
        source = static if column.role is Role.STATIC else row
        if shape == EMPTY:
            continue
        if shape in (PLAIN, COUNTER):
            cell = source.cells.get(column.name)
            alive = cell if cell is not None and _lives(cell, now_s) else None
            yield None if alive is None else serialized(column.type, alive.value)
            if timed:
                yield None if alive is None else _time(alive)
                if shape == PLAIN:
                    yield None if alive is None else _ttl(alive, now_s)
            continue
        yield from _elements(column, source.complexes.get(column.name), bool(timed), now_s)


def _elements(column: Column, complex_: ComplexState | None, timed: bool, now_s: int) -> Iterator[Raw]:
    living = [(path, cell) for _, (path, cell) in sorted(complex_.elements.items())] if complex_ is not None else []
    living = [(path, cell) for path, cell in living if _lives(cell, now_s)]
    if not living:
        yield from [None] * (3 if timed else 1)
        return
    type_ = column.type
    if type_.kind is Kind.USER:
        by_field = dict(living)
        fields = [by_field.get(index) for index in range(len(type_.elements))]
        values = [None if c is None else serialized(e, c.value) for e, c in zip(type_.elements, fields, strict=True)]
        yield b"".join(map(sized, values))
        stamped: list[CellState | None] = fields
    else:
        yield struct.pack(">i", len(living)) + b"".join(
            (b"" if type_.kind is Kind.LIST else sized(serialized(type_.elements[0], path)))
            + (b"" if type_.kind is Kind.SET else sized(serialized(type_.elements[-1], cell.value)))
            for path, cell in living
        )
        stamped = [cell for _, cell in living]
    if timed:
        count = struct.pack(">i", len(stamped))
        yield count + b"".join(sized(None if cell is None else _time(cell)) for cell in stamped)
        yield count + b"".join(sized(None if cell is None else _ttl(cell, now_s)) for cell in stamped)


def _time(cell: CellState) -> bytes:
    return struct.pack(">q", cell.time)


def _ttl(cell: CellState, now_s: int) -> Raw:
    return struct.pack(">i", cell.second - now_s) if cell.ttl_s else None
