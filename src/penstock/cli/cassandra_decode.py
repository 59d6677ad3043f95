"""The changes of commit-log segments, printed as they are decoded.

Standard output has the changes. Standard error has what could not be had: damage with its file and offset, segments
that cannot be read, and entries whose table is in none of the schemas, counted by table. Any of these makes the exit
code 1, and none of them stops the decoding.
"""

from __future__ import annotations

import json as json_text
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.capture.cassandra.decoding import rendering
from penstock.capture.cassandra.decoding.decoder import Decoder
from penstock.capture.cassandra.decoding.log_order import LoggedChange, SegmentChanges
from penstock.capture.cassandra.decoding.spooled_parking import CountingParking, SpooledParking
from penstock.capture.cassandra.schema import file as schema_file
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.system_tables import SYSTEM_KEYSPACES
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments import segment_files
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import Damage
from penstock.cli import output
from penstock.errors import InvalidInput, PenstockError
from penstock.model.schema import TableSchema
from penstock.model.spelling import did_you_mean

_HEADERS = ("time", "op", "table", "key", "change")
# A table of unknown length cannot be aligned before it is printed; columns grow up to this.
_WIDTH_MAX = 44
_FLUSH_LINES = 200
_FORMAT_OF_3_11 = 6


@dataclass(frozen=True, slots=True)
class Choice:
    """Which tables are printed. Cassandra's own keyspaces are only when one is named."""

    keyspace: str | None = None
    table: str | None = None

    @classmethod
    def parse(cls, keyspace: str | None, table: str | None) -> Choice:
        """`--table` may have its keyspace with it."""
        if table is not None and "." in table:
            named, _, table = table.partition(".")
            if keyspace not in (None, named):
                raise InvalidInput(f"--keyspace {keyspace} and --table {named}.{table} exclude each other")
            keyspace = named
        return cls(keyspace, table)

    def takes(self, table: CassandraTable) -> bool:
        name = table.schema.table
        if self.keyspace is None:
            return name.keyspace not in SYSTEM_KEYSPACES and self.table in (None, name.table)
        return name.keyspace == self.keyspace and self.table in (None, name.table)

    def check(self, schemas: Schemas) -> None:
        """Say so when no table fits, which is rather a slip of the finger than what was wanted."""
        tables = schemas.tables()
        if self == Choice() or self.keyspace in SYSTEM_KEYSPACES or any(map(self.takes, tables)):
            return
        names = {str(table.schema.table) for table in tables} | {table.schema.table.table for table in tables}
        wanted = ".".join(part for part in (self.keyspace, self.table) if part is not None)
        names |= {table.schema.table.keyspace for table in tables}
        output.note(f"penstock: no table {output.plain(wanted)} is known{did_you_mean(wanted, names)}")


class Troubles:
    """What could not be decoded, said as it is found."""

    def __init__(self) -> None:
        self.count = 0

    def damaged(self, damage: Damage) -> None:
        self.count += 1
        where = f"file {damage.file}, offset {damage.offset}, position {damage.position}"
        output.note(output.plain(f"penstock: damaged {damage.what}: {damage.message} ({where})"))

    def unreadable(self, error: PenstockError) -> None:
        self.count += 1
        output.report(error)

    def waiting(self, counts: dict[uuid.UUID, tuple[int, str]]) -> None:
        """Entries that still wait for a definition."""
        self.count += len(counts)
        for table, (number, reason) in sorted(counts.items(), key=lambda item: -item[1][0]):
            entries = f"{number:,} {'entry' if number == 1 else 'entries'}"
            output.note(f"penstock: {entries} of table {table} not decoded: {reason}")
        if counts:
            output.note("  hint: give --schema or --contact-point, or the older segments that hold its CREATE")


def run(paths: list[str], schemas: Schemas, keys: KeyStore | None, choice: Choice, *, json: bool) -> bool:
    """Print the changes; True when all was decoded."""
    troubles = Troubles()
    printer = _Printer(json)
    for logged in _changes(paths, schemas, keys, choice, troubles):
        printer.print(logged)
    choice.check(schemas)
    return troubles.count == 0


def print_schema(paths: list[str], schemas: Schemas, keys: KeyStore | None) -> bool:
    """Print the tables that are known once the segments were read."""
    troubles = Troubles()
    if paths:
        # No table is chosen: the segments are read for their schema alone.
        decoder = Decoder(schemas, captures=lambda _: False, parking=CountingParking())
        for _ in _read(segment_files.find(paths), decoder, keys, troubles):
            pass
    tables = sorted(schemas.tables(), key=lambda table: table.schema.table)
    output.line(json_text.dumps(schema_file.dump(tables), indent=2, ensure_ascii=False))
    return troubles.count == 0


def _changes(
    paths: list[str], schemas: Schemas, keys: KeyStore | None, choice: Choice, troubles: Troubles
) -> Iterator[LoggedChange]:
    files = segment_files.find(paths)
    with SpooledParking() as parking:
        yield from _read(files, Decoder(schemas, captures=choice.takes, parking=parking), keys, troubles)
        troubles.waiting(parking.counts())


def _read(files: list[str], decoder: Decoder, keys: KeyStore | None, troubles: Troubles) -> Iterator[LoggedChange]:
    reading = SegmentChanges(decoder, troubles.damaged, keys)
    with _progress(files) as progress:
        for file in files:
            try:
                if not segment_files.is_unused(file):
                    yield from reading.read(file)
            except PenstockError as error:
                troubles.unreadable(error)
            progress(os.path.getsize(file))


@contextmanager
def _progress(files: list[str]) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, unless changes go to the same terminal."""
    console = output.progress_console()
    shown = console.is_terminal and not sys.stdout.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("decoding", total=sum(map(os.path.getsize, files)))
        yield lambda count: progress.advance(task, count)


@lru_cache(maxsize=1024)
def _as_of_3_11(schema: TableSchema) -> TableSchema:
    return rendering.as_of_3_11(schema)


class _Printer:
    """One line for each change; the columns of the text grow as they need to."""

    def __init__(self, json: bool) -> None:
        self._json = json
        self._widths = [27, 16, 12, 12]
        self._lines = 0

    def print(self, logged: LoggedChange) -> None:
        if logged.format == _FORMAT_OF_3_11:
            logged = logged._replace(schema=_as_of_3_11(logged.schema))
        if self._json:
            output.line(rendering.record(logged.change, logged.schema, logged.segment))
        else:
            self._text(logged)
        self._lines += 1
        if self._lines % _FLUSH_LINES == 0:
            output.flush()

    def _text(self, logged: LoggedChange) -> None:
        if not self._lines:
            output.line(self._row(_HEADERS))
        change, schema = logged.change, logged.schema
        key, cells = rendering.summary(change, schema)
        op = f"{change.op.value} static" if rendering.is_static(change, schema) else change.op.value
        time = change.time if change.time is not None or change.deletion is None else change.deletion.time
        output.line(self._row((output.instant(time), op, str(schema.table), key, cells)))

    def _row(self, cells: tuple[str, ...]) -> str:
        parts = [output.plain(cell) for cell in cells]
        self._widths = [
            max(width, min(len(part), _WIDTH_MAX)) for width, part in zip(self._widths, parts, strict=False)
        ]
        padded = [part.ljust(width) for part, width in zip(parts, self._widths, strict=False)]
        return "  ".join([*padded, parts[-1]]).rstrip()
