"""Catalog: which tables and change logs a node has, in one SQLite file at the root of its log directory.

Statements change it, agents read it when they open a table's logs. A change is one transaction and durable when the
call returns (write-ahead log, synced); a crash leaves the state before or after it. Several processes may have the
catalog open. Its version is SQLite's `user_version`; docs/reference/statements.md says what a log's definition means.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from penstock.errors import CorruptData, DiskFull, LogClosed, PenstockError, StorageError, UnsupportedFormat
from penstock.log.refusal import refused, sqlite_lacks_files
from penstock.model.schema import TableId, TableSchema
from penstock.system import json_text
from penstock.system.clock import Clock, SystemClock
from penstock.system.descriptors import patiently
from penstock.system.files import OsFiles

T = TypeVar("T")

NAME = "catalog.sqlite"
# "Pnsk": tells our catalog from any other SQLite file.
_APPLICATION_ID = 0x506E736B
_BUSY_S = 10.0

# Step n brings a catalog from version n to n + 1. Steps are never edited, only added.
_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE tables (
            keyspace TEXT NOT NULL,
            name TEXT NOT NULL,
            schema TEXT NOT NULL,
            schema_version INTEGER NOT NULL,
            cdc INTEGER NOT NULL CHECK (cdc IN (0, 1)),
            created_us INTEGER NOT NULL,
            PRIMARY KEY (keyspace, name)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE logs (
            keyspace TEXT NOT NULL,
            table_name TEXT NOT NULL,
            name TEXT NOT NULL,
            predicate TEXT,
            data_centres TEXT NOT NULL,
            created_us INTEGER NOT NULL,
            PRIMARY KEY (keyspace, table_name, name),
            FOREIGN KEY (keyspace, table_name) REFERENCES tables (keyspace, name)
        ) WITHOUT ROWID
        """,
    ),
)
VERSION = len(_MIGRATIONS)


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table that Penstock knows; `cdc` is whether it has its default log."""

    schema: TableSchema
    cdc: bool
    created_us: int = 0


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A named log of a table. No predicate: every change; no data centres: every node."""

    table: TableId
    name: str
    predicate: str | None = None
    data_centres: frozenset[str] = frozenset()
    created_us: int = 0


class Catalog:
    """The open catalog. Methods may be called from any thread."""

    def __init__(
        self, connection: sqlite3.Connection, path: str, clock: Clock, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._connection: sqlite3.Connection | None = connection
        self._pause = pause
        self._path = path
        self._clock = clock
        self._lock = threading.RLock()

    @classmethod
    def open(cls, root: str, *, clock: Clock | None = None, pause: Callable[[float], None] = time.sleep) -> Catalog:
        """Open the catalog in `root`, and create both when they are missing. `pause` waits for file descriptors."""
        path = os.path.join(root, NAME)
        try:
            os.makedirs(root, mode=0o700, exist_ok=True)
            # SQLite gives its side files the mode of the main one, so that is set before anything is in it.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            os.close(patiently(lambda: os.open(path, flags, 0o600), pause))
        except OSError as error:
            raise refused(error, "opening the catalog", path) from error
        with _naming(path):
            connection = _patiently(lambda: _connect(path), path, pause)
        try:
            OsFiles(pause).sync_directory(root)
        except OSError as error:
            connection.close()
            raise refused(error, "syncing the catalog's directory", root) from error
        return cls(connection, path, clock or SystemClock(), pause)

    @classmethod
    def rehearse(cls, root: str) -> Catalog:
        """A catalog in memory that holds what the one in `root` does: what is written to it, nobody else sees."""
        path = os.path.join(root, NAME)
        with _naming(path):
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            try:
                if os.path.exists(path):
                    with closing(sqlite3.connect(path, timeout=_BUSY_S)) as there:
                        there.backup(connection)
                _prepare(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(connection, path, SystemClock())

    def add_table(self, schema: TableSchema, *, cdc: bool) -> bool:
        """Note a table; False, and no change, when it is known already."""
        keyspace, name = schema.table
        row = (keyspace, name, json.dumps(schema.to_json()), schema.version, int(cdc), self._clock.now_us())
        return self._write("INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)

    def set_schema(self, schema: TableSchema) -> bool:
        """Note a table's newer schema; False when the table is not known or has this version or a newer one."""
        keyspace, name = schema.table
        row = (json.dumps(schema.to_json()), schema.version, keyspace, name, schema.version)
        return self._write(
            "UPDATE tables SET schema = ?, schema_version = ? WHERE keyspace = ? AND name = ? AND schema_version < ?",
            row,
        )

    def table(self, table: TableId) -> TableEntry | None:
        """One table, or None."""
        rows = self._read("SELECT schema, cdc, created_us FROM tables WHERE keyspace = ? AND name = ?", tuple(table))
        return self._table_entry(rows[0]) if rows else None

    def tables(self) -> list[TableEntry]:
        """Every table, by name."""
        rows = self._read("SELECT schema, cdc, created_us FROM tables ORDER BY keyspace, name")
        return [self._table_entry(row) for row in rows]

    def add_log(self, entry: LogEntry) -> bool:
        """Note a log of a known table; False, and no change, when the table has a log of that name."""
        centres = json.dumps(sorted(entry.data_centres))
        row = (*entry.table, entry.name, entry.predicate, centres, self._clock.now_us())
        return self._write("INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)

    def remove_log(self, table: TableId, name: str) -> bool:
        """Forget a log; False when there is none of that name. Its files are not touched."""
        return self._write("DELETE FROM logs WHERE keyspace = ? AND table_name = ? AND name = ?", (*table, name))

    def logs(self, table: TableId | None = None) -> list[LogEntry]:
        """The named logs, of one table or of all, by name."""
        where, values = ("", ()) if table is None else (" WHERE keyspace = ? AND table_name = ?", tuple(table))
        query = "SELECT keyspace, table_name, name, predicate, data_centres, created_us FROM logs"
        return [
            LogEntry(TableId(row[0], row[1]), row[2], row[3], frozenset(json_text.parse(row[4])), row[5])
            for row in self._read(f"{query}{where} ORDER BY keyspace, table_name, name", values)
        ]

    def close(self) -> None:
        """Close the file; closing twice is no error."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _table_entry(self, row: tuple[Any, ...]) -> TableEntry:
        try:
            return TableEntry(TableSchema.from_json(json_text.parse(row[0])), bool(row[1]), row[2])
        except (ValueError, PenstockError) as error:
            raise CorruptData(f"the catalog holds a broken table schema: {error}", file=self._path) from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise LogClosed("the catalog is closed", file=self._path)
        return self._connection

    def _read(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        def read() -> list[tuple[Any, ...]]:
            return self._open().execute(query, values).fetchall()

        with self._lock, _naming(self._path):
            return _patiently(read, self._path, self._pause)

    def _write(self, statement: str, values: tuple[object, ...]) -> bool:
        def write() -> bool:
            with _transaction(self._open()) as connection:
                return connection.execute(statement, values).rowcount > 0

        with self._lock, _naming(self._path):
            return _patiently(write, self._path, self._pause)


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _patiently(action: Callable[[], T], path: str, pause: Callable[[float], None]) -> T:
    """Do something with SQLite, and again after a while as long as it has no file descriptor for it."""

    def once() -> T:
        try:
            return action()
        except sqlite3.Error as error:
            if sqlite_lacks_files(error):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path) from error
            raise

    try:
        return patiently(once, pause)
    except OSError as error:
        raise refused(error, "using the catalog", path) from error


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    """Check that the file is a sound catalog that we may write, and bring it to our version."""
    version, application = _pragma(connection, "user_version"), _pragma(connection, "application_id")
    if version > VERSION and application == _APPLICATION_ID:
        raise UnsupportedFormat(f"catalog version {version}; this Penstock knows versions up to {VERSION}", file=path)
    if application != _APPLICATION_ID:
        objects = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if version or objects or application:
            raise UnsupportedFormat("this SQLite file is not a Penstock catalog", file=path)
    if (state := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise CorruptData(f"the catalog is damaged: {state}", file=path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    if version == VERSION:
        return
    with _transaction(connection):
        # Another process may have migrated while this one waited for the lock.
        for number in range(_pragma(connection, "user_version"), VERSION):
            for statement in _MIGRATIONS[number]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            raise UnsupportedFormat("this file is not a Penstock catalog", file=path) from error
        if code == sqlite3.SQLITE_CORRUPT:
            raise CorruptData("the catalog is damaged", file=path) from error
        if code == sqlite3.SQLITE_FULL:
            raise DiskFull("no room while writing the catalog", file=path) from error
        raise StorageError(f"the catalog cannot be used: {error}", file=path) from error
