"""Changes ↔ Avro rows: what stands in the blocks of a change log.

`encode` and `decode` make rows of Python changes and back, one by one; `scan`, `select` and `row_offsets` work on the
rows as they are. The layout is in docs/formats/change-record.md. Nothing here reads or writes files.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from penstock.errors import CorruptLog, InvalidInput, InvalidValue
from penstock.formats import record
from penstock.formats._kernel import RowBuffer, RowReader, Scanner
from penstock.formats.change_datum import ChangeDatum
from penstock.formats.program import program
from penstock.model.batch import ChangeBatch, TransactionMark
from penstock.model.change import Change
from penstock.model.schema import TableSchema

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
