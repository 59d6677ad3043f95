"""Statements: what a client asks of the sandbox, and the change that each becomes.

A coordinator gives a statement its write time and second; then `change` makes the one Change that every replica logs,
in the shape in which Cassandra's own log has it: an INSERT writes the row's marker and an UPDATE does not, null writes
a tombstone, a whole value for a non-frozen collection replaces what was there one microsecond earlier.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.errors import InvalidStatement
from penstock.merge.cql_value import order_key
from penstock.merge.table_state import list_cell_id
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
)
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Kind


class Stamp(NamedTuple):
    """What the coordinator adds: write time, the second on its clock, and a number that tells coordinators apart."""

    time: int
    now_s: int
    node: int = 0
    origin: Origin = NO_ORIGIN


class Add(NamedTuple):
    """Add to a non-frozen column: elements of a set, items of a list, pairs of a map, (field, value) of a user type."""

    items: tuple[Any, ...]


class Remove(NamedTuple):
    """Remove from a non-frozen column: elements of a set, keys of a map, cell ids of a list, fields of a user type."""

    paths: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """What all have. Without a timestamp, the coordinator's clock gives one."""

    table: TableId
    timestamp: int | None = field(default=None, kw_only=True)
    ttl_s: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Insert(Statement):
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Update(Statement):
    key: Mapping[str, Any]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delete(Statement):
    """A row, or with `columns` only these cells of it."""

    key: Mapping[str, Any]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteRange(Statement):
    """Rows of a partition from `start` to `end`, both in clustering order."""

    key: Mapping[str, Any]
    start: Bound | None = None
    end: Bound | None = None


@dataclass(frozen=True, slots=True)
class DeletePartition(Statement):
    key: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Truncate(Statement):
    pass


def change(statement: Statement, schema: TableSchema, stamp: Stamp) -> Change:
    """The change that a statement makes. Raises InvalidStatement when it does not fit the table."""
    match statement:
        case Insert(values=values):
            return _insert(schema, values, statement.ttl_s, stamp)
        case Update(key=key, values=values):
            _check_key(schema, key, row=_needs_row(schema, values))
            expiry = _expiry(statement.ttl_s, stamp)
            return Change(
                Op.UPDATE, dict(key), _cells(schema, values, expiry, stamp), time=stamp.time, origin=stamp.origin
            )
        case Delete(key=key, columns=columns):
            return _delete(schema, key, columns, stamp)
        case DeleteRange(key=key, start=start, end=end):
            _check_key(schema, key, row=None)
            deletion = Deletion(stamp.time, stamp.now_s)
            where = Range(start, end)
            return Change(
                Op.DELETE_RANGE, dict(key), time=stamp.time, deletion=deletion, range=where, origin=stamp.origin
            )
        case DeletePartition(key=key):
            _check_key(schema, key, row=None)
            deletion = Deletion(stamp.time, stamp.now_s)
            return Change(Op.DELETE_PARTITION, dict(key), time=stamp.time, deletion=deletion, origin=stamp.origin)
        case Truncate():
            return Change(Op.TRUNCATE, time=stamp.time, deletion=Deletion(stamp.time, stamp.now_s), origin=stamp.origin)
    raise InvalidStatement("not a statement of the sandbox", table=schema.table)


def _insert(schema: TableSchema, values: Mapping[str, Any], ttl_s: int | None, stamp: Stamp) -> Change:
    key = {column.name: values[column.name] for column in schema.key if column.name in values}
    rest = {name: value for name, value in values.items() if name not in key}
    row = len(key) == len(schema.key) or _needs_row(schema, rest)
    _check_key(schema, key, row=row)
    expiry = _expiry(ttl_s, stamp)
    marker = Marker(None, expiry) if row else None
    return Change(
        Op.INSERT, key, _cells(schema, rest, expiry, stamp), time=stamp.time, marker=marker, origin=stamp.origin
    )


def _delete(schema: TableSchema, key: Mapping[str, Any], columns: tuple[str, ...], stamp: Stamp) -> Change:
    _check_key(schema, key, row=not columns or _needs_row(schema, columns))
    if not columns:
        return Change(
            Op.DELETE, dict(key), time=stamp.time, deletion=Deletion(stamp.time, stamp.now_s), origin=stamp.origin
        )
    cells: dict[str, Cell] = {}
    for name in columns:
        multi_cell = _column(schema, name).type.multi_cell
        cells[name] = Delta(Deletion(stamp.time, stamp.now_s)) if multi_cell else Deleted(None, stamp.now_s)
    return Change(Op.DELETE, dict(key), cells, time=stamp.time, origin=stamp.origin)


def _needs_row(schema: TableSchema, names: Iterable[str]) -> bool:
    return any(_column(schema, name).role is not Role.STATIC for name in names)


def _check_key(schema: TableSchema, key: Mapping[str, Any], *, row: bool | None) -> None:
    """`row`: the whole key is needed; False: the partition's is enough; None: only that one may be there."""
    wanted = schema.key if row else schema.partition
    for column in wanted:
        if key.get(column.name) is None:
            raise InvalidStatement("a key column has no value", table=schema.table, column=column.name)
    if len(key) > len(wanted):
        allowed = [column.name for column in (schema.partition if row is None else schema.key)]
        for name in key:
            if name not in allowed:
                raise InvalidStatement("not a key column of this statement", table=schema.table, column=name)


def _column(schema: TableSchema, name: str) -> Column:
    column = schema.by_name.get(name)
    if column is None or column.role in (Role.PARTITION, Role.CLUSTERING):
        raise InvalidStatement("no such column to write", table=schema.table, column=name)
    return column


def _expiry(ttl_s: int | None, stamp: Stamp) -> Expiry | None:
    return Expiry(ttl_s, stamp.now_s + ttl_s) if ttl_s else None


def _cells(schema: TableSchema, values: Mapping[str, Any], expiry: Expiry | None, stamp: Stamp) -> dict[str, Cell]:
    return {name: _cell(_column(schema, name), value, expiry, stamp) for name, value in values.items()}


def _cell(column: Column, value: Any, expiry: Expiry | None, stamp: Stamp) -> Cell:
    if not column.type.multi_cell:
        if isinstance(value, Add | Remove):
            raise InvalidStatement("only a non-frozen column can be added to or removed from", column=column.name)
        return Deleted(None, stamp.now_s) if value is None else Set(_exact(column, value), None, expiry)
    if isinstance(value, Remove):
        return Delta(None, (), tuple(Removed(_path(column, path), None, stamp.now_s) for path in value.paths))
    if isinstance(value, Add):
        return Delta(None, _elements(column, value.items, expiry, stamp))
    replaced = Deletion(stamp.time - 1, stamp.now_s)
    if value is None:
        return Delta(replaced)
    items = value.items() if isinstance(value, Mapping) else value
    if isinstance(items, set | frozenset):
        # The order of a Python set differs from process to process; a history must not.
        items = sorted(items, key=lambda item: order_key(column.type.elements[0], item))
    if column.type.kind is Kind.USER and not isinstance(value, Mapping):
        items = [(name, item) for name, item in zip(column.type.names, value, strict=False) if item is not None]
    return Delta(replaced, _elements(column, tuple(items), expiry, stamp))


def _elements(column: Column, items: tuple[Any, ...], expiry: Expiry | None, stamp: Stamp) -> tuple[Element, ...]:
    kind = column.type.kind
    if kind is Kind.SET:
        return tuple(Element(item, None, None, expiry) for item in items)
    if kind is Kind.LIST:
        ids = (list_cell_id(stamp.time, index, stamp.node) for index in range(len(items)))
        return tuple(Element(path, item, None, expiry) for path, item in zip(ids, items, strict=True))
    return tuple(Element(_path(column, path), item, None, expiry) for path, item in items)


def _path(column: Column, path: Any) -> Any:
    if column.type.kind is not Kind.USER:
        return path
    if path not in column.type.names:
        raise InvalidStatement("the user type has no such field", column=column.name)
    return column.type.names.index(path)


def _exact(column: Column, value: Any) -> Any:
    """The value as it will be read back: lists become tuples, and a float32 loses what it cannot hold."""
    if column.type.kind is Kind.FLOAT32:
        return struct.unpack(">f", struct.pack(">f", value))[0]
    return tuple(value) if isinstance(value, list) else value
