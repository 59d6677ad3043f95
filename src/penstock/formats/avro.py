"""Changes ↔ Avro rows: what stands in the blocks of a change log.

`encode` and `decode` make rows of Python changes and back, one by one; `scan`, `select` and `row_offsets` work on the
rows as they are. The layout is in docs/formats/change-record.md. Nothing here reads or writes files.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from penstock.errors import CorruptLog, InvalidInput, InvalidValue
from penstock.formats import record
from penstock.formats._kernel import RowBuffer, RowReader, Scanner
from penstock.formats.program import program
from penstock.formats.values import Convert, from_datum, to_datum
from penstock.model.batch import ChangeBatch, TransactionMark
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
from penstock.model.schema import Column, TableSchema
from penstock.model.types import Kind, Type

_MISFIT = (TypeError, ValueError, OverflowError, KeyError, AttributeError, IndexError, ArithmeticError)


def schema_json(schema: TableSchema) -> str:
    """The Avro schema of a table's changes, as it stands in the file header."""
    return record.schema_json(schema)


def encode(schema: TableSchema, changes: Iterable[Change]) -> ChangeBatch:
    """Rows of the changes, in order. Raises InvalidValue, naming the column, when a value does not fit its type."""
    rules = program(schema)
    datum = ChangeDatum.of(schema)
    out = RowBuffer(4096)
    count = 0
    when_max: int | None = None
    marks: list[TransactionMark] = []
    sequences: dict[str, int] = {}
    for change in changes:
        try:
            rules.encode(out, datum.encode(change))
        except _MISFIT as error:
            raise _blame(schema, datum, change, count, error) from error
        when = change.when
        if when is not None and (when_max is None or when > when_max):
            when_max = when
        transaction = change.origin.transaction
        if transaction is not None and sequences.get(transaction.domain) != transaction.sequence:
            sequences[transaction.domain] = transaction.sequence
            marks.append(TransactionMark(transaction.domain, transaction.sequence, count))
        count += 1
    return ChangeBatch(schema, count, out.take(), when_max, tuple(marks))


def decode(batch: ChangeBatch) -> list[Change]:
    """The changes that count, as objects. Raises CorruptLog when the rows are not what an encoder writes."""
    rules = program(batch.schema)
    datum = ChangeDatum.of(batch.schema)
    reader = open_rows(batch.schema, batch.rows, batch.count)
    rules.skip_rows(reader, batch.skip)
    changes = []
    for _ in range(batch.count - batch.skip):
        row = rules.decode(reader)
        try:
            changes.append(datum.decode(row))
        except _MISFIT as error:
            raise CorruptLog("rows are damaged: a value is not of its type", byte=reader.position) from error
    expect_end(reader)
    return changes


def scan(schema: TableSchema, rows: bytes | memoryview, count: int) -> tuple[int | None, tuple[TransactionMark, ...]]:
    """What an index needs of the rows: the greatest time and the first change of each transaction."""
    reader = open_rows(schema, rows, count)
    scanner = Scanner(program(schema))
    scanner.scan(reader, count)
    expect_end(reader)
    try:
        marks = tuple(TransactionMark(str(domain, "utf-8"), seq, row) for domain, seq, row in scanner.marks)
    except UnicodeDecodeError as error:
        raise CorruptLog("rows are damaged: a string is not UTF-8") from error
    return (scanner.time_max if scanner.time_seen else None), marks


def row_offsets(schema: TableSchema, rows: bytes | memoryview, count: int) -> array[int]:
    """Where each row starts, and the end: count + 1 offsets."""
    return bounds(schema, rows, count)[0]


def bounds(schema: TableSchema, rows: bytes | memoryview, count: int) -> tuple[array[int], array[int]]:
    """Where each row starts, and where its seal, or the null in its place, does; with the end as the last start."""
    reader = open_rows(schema, rows, count)
    starts = array("q", bytes(8 * (count + 1)))
    tails = array("q", bytes(8 * (count + 1)))
    program(schema).bounds(reader, starts, tails, count)
    expect_end(reader)
    return starts, tails


def select(batch: ChangeBatch, keep: Sequence[bool]) -> ChangeBatch | None:
    """The changes that count and are kept, without encoding them again; None when there are none.

    `keep` has one entry for each change that counts. The result is a batch that was not appended: it has no position,
    and no seal.
    """
    if len(keep) != len(batch):
        raise ValueError(f"{len(keep)} choices for {len(batch)} changes")
    starts, tails = bounds(batch.schema, batch.rows, batch.count)
    rows = memoryview(batch.rows)
    parts: list[bytes | memoryview] = []
    for index, wanted in enumerate(keep, batch.skip):
        if wanted:
            parts.append(rows[starts[index] : tails[index]])
            parts.append(b"\0")
    if not parts:
        return None
    chosen = b"".join(parts)
    when_max, marks = scan(batch.schema, chosen, len(parts) // 2)
    return ChangeBatch(batch.schema, len(parts) // 2, chosen, when_max, marks)


def open_rows(schema: TableSchema, rows: bytes | memoryview, count: int) -> RowReader:
    """A reader over rows whose count can be true: work and memory in proportion to it are safe then."""
    if count < 0 or count * program(schema).least_bytes() > len(rows):
        raise CorruptLog(f"rows are damaged: {len(rows)} bytes cannot hold {count} changes")
    return RowReader(rows if isinstance(rows, bytes) else bytes(rows))


def expect_end(reader: RowReader) -> None:
    if reader.position != reader.end:
        raise CorruptLog("rows are damaged: bytes are left after the last change", byte=reader.position)


def _blame(schema: TableSchema, datum: ChangeDatum, change: Change, ordinal: int, error: Exception) -> InvalidInput:
    """Which column does not fit: each part of the change is tried alone."""
    rules = program(schema)

    def fits(make: Callable[[], Change]) -> bool:
        try:
            rules.encode(RowBuffer(64), datum.encode(make()))
        except _MISFIT:
            return False
        return True

    for part in ("key", "cells", "before"):
        given: Any = getattr(change, part)
        if given is None:
            continue
        try:
            names = list(given)
        except TypeError:
            return InvalidValue(f"the change's {part} is not a mapping", table=schema.table, change=ordinal)
        for name in names:
            if not fits(partial(_only, change, part, name)):
                known = isinstance(name, str) and name in schema.by_name
                message = "a value does not fit its column" if known else "the table has no such column"
                column = name if isinstance(name, str) else repr(type(name))
                return InvalidValue(
                    f"{message}: {_reason(error)}", table=schema.table, column=column, part=part, change=ordinal
                )
    return InvalidValue(f"a change does not fit the record: {_reason(error)}", table=schema.table, change=ordinal)


def _reason(error: Exception) -> str:
    """What is wrong, without a value in it: Python's own message would show the character."""
    return "text that is not Unicode" if isinstance(error, UnicodeError) else str(error)


def _only(change: Change, part: str, name: str) -> Change:
    parts: dict[str, Any] = {part: {name: getattr(change, part)[name]}}
    return Change(change.op, **parts)


# Change objects ↔ the nested tuples that the kernels read and write, for one table schema.

Datum = Any

_OPS = tuple(Op)
_OP_NUMBERS = {op: number for number, op in enumerate(_OPS)}
# The branches of a cell's union.
_SET, _DELETED, _DELTA = 1, 2, 3


class ChangeDatum:
    """Both directions for one schema. Raises TypeError, ValueError or KeyError on what does not fit."""

    def __init__(self, schema: TableSchema) -> None:
        self._key = [(c.name, to_datum(c.type), from_datum(c.type)) for c in schema.key]
        self._columns = [(c.name, to_datum(c.type), from_datum(c.type)) for c in schema.columns]
        self._clustering = [(to_datum(c.type), from_datum(c.type)) for c in schema.clustering]
        self._cells = [_CellDatum(c) for c in schema.cells]

    @staticmethod
    def of(schema: TableSchema) -> ChangeDatum:
        """The one of a schema, kept with it: making it costs more than encoding a change."""
        known = schema.__dict__.get("_change_datum")
        if known is None:
            known = schema.__dict__["_change_datum"] = ChangeDatum(schema)
        return cast(ChangeDatum, known)

    def encode(self, change: Change) -> Datum:
        deletion = change.deletion
        return (
            _OP_NUMBERS[change.op],
            change.time,
            change.commit_time,
            change.capture_time,
            None if change.origin == NO_ORIGIN else _origin_datum(change.origin),
            None if change.marker is None else (change.marker.time, _plain(change.marker.expiry)),
            None if deletion is None else (deletion.time, deletion.local_s),
            None if change.range is None else (self._bound(change.range.start), self._bound(change.range.end)),
            self._key_datum(change.key),
            self._cells_datum(change.cells),
            None if change.before is None else self._before_datum(change.before),
            None,
        )

    def decode(self, datum: Datum) -> Change:
        op, time, commit_time, capture_time, origin, marker, deletion, range_, key, cells, before, _ = datum
        return Change(
            op=_OPS[op],
            key={
                name: value if back is None else back(value)
                for (name, _, back), value in zip(self._key, key, strict=True)
                if value is not None
            },
            cells={
                cell.name: cell.decode(value)
                for cell, value in zip(self._cells, cells, strict=True)
                if value is not None
            },
            time=time,
            commit_time=commit_time,
            capture_time=capture_time,
            marker=None if marker is None else Marker(marker[0], _expiry(marker[1])),
            deletion=None if deletion is None else Deletion(*deletion),
            range=None if range_ is None else Range(self._bound_back(range_[0]), self._bound_back(range_[1])),
            before=None if before is None else self._before_back(before),
            origin=NO_ORIGIN if origin is None else _origin(origin),
        )

    def _key_datum(self, key: Mapping[str, Any]) -> Datum:
        out = []
        found = 0
        for name, convert, _ in self._key:
            value = key.get(name)
            found += name in key
            out.append(value if value is None or convert is None else convert(value))
        if found != len(key):
            raise KeyError("the table has no such key column")
        return tuple(out)

    def _cells_datum(self, cells: Mapping[str, Cell]) -> Datum:
        out: list[Datum] = []
        found = 0
        for column in self._cells:
            cell = cells.get(column.name)
            if cell is None:
                out.append(None)
            else:
                found += 1
                out.append(column.encode(cell))
        if found != len(cells):
            raise KeyError("the table has no such column, or a cell is None")
        return tuple(out)

    def _before_datum(self, before: Mapping[str, Any]) -> Datum:
        out: list[Datum] = []
        found = 0
        for name, convert, _ in self._columns:
            if name in before:
                found += 1
                value = before[name]
                out.append((value if value is None or convert is None else convert(value),))
            else:
                out.append(None)
        if found != len(before):
            raise KeyError("the table has no such column")
        return tuple(out)

    def _before_back(self, datum: Datum) -> dict[str, Any]:
        out = {}
        for (name, _, back), old in zip(self._columns, datum, strict=True):
            if old is not None:
                value = old[0]
                out[name] = value if value is None or back is None else back(value)
        return out

    def _bound(self, bound: Bound | None) -> Datum:
        if bound is None:
            return None
        values: list[Datum] = [None] * len(self._clustering)
        for index, value in enumerate(bound.values):
            convert = self._clustering[index][0]
            values[index] = value if value is None or convert is None else convert(value)
        return len(bound.values), bound.inclusive, tuple(values)

    def _bound_back(self, datum: Datum) -> Bound | None:
        if datum is None:
            return None
        count, inclusive, values = datum
        if not 0 <= count <= len(self._clustering):
            raise ValueError("a bound has more values than there are clustering columns")
        backs = self._clustering[:count]
        pairs = zip(backs, values[:count], strict=True)
        return Bound(tuple(v if v is None or back is None else back(v) for (_, back), v in pairs), inclusive)


class _CellDatum:
    """One column's cells."""

    def __init__(self, column: Column) -> None:
        self.name = column.name
        self._to = to_datum(column.type)
        self._from = from_datum(column.type)
        self._delta = _DeltaDatum(column.type) if column.type.multi_cell else None

    def encode(self, cell: Cell) -> Datum:
        if isinstance(cell, Set):
            value, time, expiry = cell
            if value is not None and self._to is not None:
                value = self._to(value)
            stamp = None if time is None and expiry is None else (time, _plain(expiry))
            return _SET, (value, stamp)
        if isinstance(cell, Deleted):
            return _DELETED, (cell.time, cell.local_s)
        if not isinstance(cell, Delta):
            raise TypeError("not a cell")
        if self._delta is None:
            raise TypeError("a delta of a column that is one cell")
        return _DELTA, self._delta.encode(cell)

    def decode(self, datum: Datum) -> Cell:
        branch, body = datum
        if branch == _SET:
            value, stamp = body
            if value is not None and self._from is not None:
                value = self._from(value)
            return Set(value) if stamp is None else Set(value, stamp[0], _expiry(stamp[1]))
        if branch == _DELETED:
            return Deleted(*body)
        assert self._delta is not None
        return self._delta.decode(body)


class _DeltaDatum:
    """The deltas of one non-frozen column. A user type's element holds its field's value at the field's place."""

    def __init__(self, type_: Type) -> None:
        self._fields = len(type_.elements) if type_.kind is Kind.USER else None
        self._has_value = type_.kind is not Kind.SET
        path, value = type_.path_type, type_.item_type
        self._path_to = None if path is None else to_datum(path)
        self._path_from = None if path is None else from_datum(path)
        self._value_to = None if value is None else to_datum(value)
        self._value_from = None if value is None else from_datum(value)
        self._parts_to: list[Convert | None] = [to_datum(e) for e in type_.elements]
        self._parts_from: list[Convert | None] = [from_datum(e) for e in type_.elements]

    def encode(self, delta: Delta) -> Datum:
        replaced = None if delta.replaced is None else (delta.replaced.time, delta.replaced.local_s)
        return (
            replaced,
            tuple([self._element(element) for element in delta.elements]),
            tuple([(_apply(self._path_to, path), time, local_s) for path, time, local_s in delta.removed]),
        )

    def decode(self, datum: Datum) -> Delta:
        replaced, elements, removed = datum
        return Delta(
            None if replaced is None else Deletion(*replaced),
            tuple([self._element_back(element) for element in elements]),
            tuple([Removed(_apply(self._path_from, path), time, local_s) for path, time, local_s in removed]),
        )

    def _element(self, element: Element) -> Datum:
        stamp = None if element.time is None and element.expiry is None else (element.time, _plain(element.expiry))
        path = _apply(self._path_to, element.path)
        if not self._has_value:
            if element.value is not None:
                raise ValueError("an element of a set has no value")
            return path, stamp
        if self._fields is None:
            return path, _apply(self._value_to, element.value), stamp
        if element.value is None:
            _field_number(path, self._fields)
            return path, None, stamp
        index = _field_number(path, self._fields)
        values: list[Datum] = [None] * self._fields
        values[index] = _apply(self._parts_to[index], element.value)
        return path, tuple(values), stamp

    def _element_back(self, datum: Datum) -> Element:
        stamp = datum[-1]
        time, expiry = (None, None) if stamp is None else (stamp[0], _expiry(stamp[1]))
        path = _apply(self._path_from, datum[0])
        if not self._has_value:
            return Element(path, None, time, expiry)
        value = datum[1]
        if self._fields is None:
            return Element(path, _apply(self._value_from, value), time, expiry)
        index = _field_number(path, self._fields)
        return Element(path, None if value is None else _apply(self._parts_from[index], value[index]), time, expiry)


def _field_number(path: Any, fields: int) -> int:
    if not isinstance(path, int) or not 0 <= path < fields:
        raise ValueError("the user type has no such field")
    return path


def _apply(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _plain(expiry: Expiry | None) -> Datum:
    return None if expiry is None else (expiry.ttl_s, expiry.expires_s)


def _expiry(datum: Datum) -> Expiry | None:
    return None if datum is None else Expiry(*datum)


def _origin_datum(origin: Origin) -> Datum:
    transaction = origin.transaction
    return (
        origin.node,
        origin.data_centre,
        origin.file,
        origin.position,
        None if transaction is None else (transaction.domain, transaction.sequence, transaction.id),
        origin.ordinal,
    )


def _origin(datum: Datum) -> Origin:
    node, data_centre, file, position, transaction, ordinal = datum
    return Origin(
        node, data_centre, file, position, None if transaction is None else Transaction(*transaction), ordinal
    )
