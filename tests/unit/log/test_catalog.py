"""The catalog: what it keeps, what it survives, what it refuses."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import CorruptData, DiskFull, LogClosed, StorageError, UnsupportedFormat
from penstock.log.catalog import NAME, VERSION, Catalog, LogEntry
from penstock.model import types as t
from penstock.model.schema import Column, Role, TableId, TableSchema

TABLE = TableId("ks", "t")
SCHEMA = TableSchema(TABLE, (Column("a", t.INT32, Role.PARTITION), Column("b", t.TEXT)), source="cassandra")


class FixedClock:
    def now_us(self) -> int:
        return 1_700_000_000_000_000

    def monotonic(self) -> float:
        return 0.0


def test_catalog_gives_back_what_was_noted(tmp_path: Path) -> None:
    with Catalog.open(str(tmp_path), clock=FixedClock()) as catalog:
        assert catalog.add_table(SCHEMA, cdc=True)
        assert catalog.add_log(LogEntry(TABLE, "My Log", "a = 1", frozenset({"dc3", "dc1"})))
    with Catalog.open(str(tmp_path)) as catalog:
        entry = catalog.table(TABLE)
        assert entry is not None
        assert (entry.schema, entry.cdc, entry.created_us) == (SCHEMA, True, 1_700_000_000_000_000)
        assert catalog.tables() == [entry]
        assert catalog.logs(TABLE) == [
            LogEntry(TABLE, "My Log", "a = 1", frozenset({"dc1", "dc3"}), 1_700_000_000_000_000)
        ]
        assert catalog.logs(TableId("ks", "other")) == []


def test_second_entry_of_a_name_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with Catalog.open(str(tmp_path)) as catalog:
        catalog.add_table(SCHEMA, cdc=True)
        assert not catalog.add_table(SCHEMA, cdc=False)
        assert catalog.add_log(LogEntry(TABLE, "m", "a = 1"))
        assert not catalog.add_log(LogEntry(TABLE, "m", "a = 2"))
        assert [entry.predicate for entry in catalog.logs()] == ["a = 1"]
        assert catalog.tables()[0].cdc


def test_removed_log_is_gone_once(tmp_path: Path) -> None:
    with Catalog.open(str(tmp_path)) as catalog:
        catalog.add_table(SCHEMA, cdc=False)
        catalog.add_log(LogEntry(TABLE, "m"))
        assert catalog.remove_log(TABLE, "m")
        assert not catalog.remove_log(TABLE, "m")
        assert catalog.logs() == []


def test_schema_only_moves_forward(tmp_path: Path) -> None:
    newer = TableSchema(TABLE, (*SCHEMA.columns, Column("c", t.UUID)), version=2)
    with Catalog.open(str(tmp_path)) as catalog:
        assert not catalog.set_schema(newer)
        catalog.add_table(SCHEMA, cdc=True)
        assert catalog.set_schema(newer)
        assert not catalog.set_schema(SCHEMA)
        entry = catalog.table(TABLE)
        assert entry is not None
        assert entry.schema == newer


def test_catalog_and_its_side_files_are_private(tmp_path: Path) -> None:
    root = tmp_path / "new" / "root"
    with Catalog.open(str(root)) as catalog:
        catalog.add_table(SCHEMA, cdc=True)
        files = sorted(root.iterdir())
        assert [file.name for file in files] == [NAME, f"{NAME}-shm", f"{NAME}-wal"]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_two_processes_may_have_it_open(tmp_path: Path) -> None:
    with Catalog.open(str(tmp_path)) as one, Catalog.open(str(tmp_path)) as two:
        one.add_table(SCHEMA, cdc=True)
        assert two.add_log(LogEntry(TABLE, "m"))
        assert [entry.name for entry in one.logs()] == ["m"]


def test_entries_survive_a_process_that_dies_without_closing(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from penstock.log.catalog import Catalog, LogEntry\n"
        "from penstock.model.schema import TableId\n"
        "catalog = Catalog.open(sys.argv[1])\n"
        "for number in range(20): catalog.add_log(LogEntry(TableId('ks', 't'), f'log{number:02}'))\n"
        "os._exit(9)\n"
    )
    with Catalog.open(str(tmp_path)) as catalog:
        catalog.add_table(SCHEMA, cdc=True)
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    assert ended.returncode == 9
    with Catalog.open(str(tmp_path)) as catalog:
        assert [entry.name for entry in catalog.logs()] == [f"log{number:02}" for number in range(20)]


def test_copy_taken_between_two_writes_opens_with_what_was_there(tmp_path: Path) -> None:
    with Catalog.open(str(tmp_path / "live")) as catalog:
        catalog.add_table(SCHEMA, cdc=True)
        catalog.add_log(LogEntry(TABLE, "first"))
        shutil.copytree(tmp_path / "live", tmp_path / "copy")
        catalog.add_log(LogEntry(TABLE, "second"))
    with Catalog.open(str(tmp_path / "copy")) as catalog:
        assert [entry.name for entry in catalog.logs()] == ["first"]


def test_torn_side_file_costs_only_what_was_not_acknowledged(tmp_path: Path) -> None:
    with Catalog.open(str(tmp_path / "live")) as catalog:
        catalog.add_table(SCHEMA, cdc=True)
        acknowledged = (tmp_path / "live" / f"{NAME}-wal").stat().st_size
        catalog.add_log(LogEntry(TABLE, "half written"))
        shutil.copytree(tmp_path / "live", tmp_path / "copy")
    os.truncate(tmp_path / "copy" / f"{NAME}-wal", acknowledged + 100)
    with Catalog.open(str(tmp_path / "copy")) as catalog:
        assert [entry.schema for entry in catalog.tables()] == [SCHEMA]
        assert catalog.logs() == []


def test_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    Catalog.open(str(tmp_path)).close()
    path = tmp_path / NAME
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(UnsupportedFormat, match=f"catalog version {VERSION + 1}; this Penstock knows versions up to"):
        Catalog.open(str(tmp_path))
    assert path.read_bytes() == before


def test_foreign_database_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / NAME)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(UnsupportedFormat, match="not a Penstock catalog"):
        Catalog.open(str(tmp_path))


def test_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"hello" * 1000)
    with pytest.raises(UnsupportedFormat, match="not a Penstock catalog"):
        Catalog.open(str(tmp_path))
    assert (tmp_path / NAME).read_bytes() == b"hello" * 1000


def test_damage_is_reported(tmp_path: Path) -> None:
    with Catalog.open(str(tmp_path)) as catalog:
        for number in range(50):
            catalog.add_table(TableSchema(TableId("ks", f"t{number}"), SCHEMA.columns), cdc=True)
    path = tmp_path / NAME
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)
    with pytest.raises(CorruptData, match="the catalog is damaged"):
        Catalog.open(str(tmp_path))


def test_full_disk_is_told_apart_and_leaves_the_catalog_usable(tmp_path: Path) -> None:
    with Catalog.open(str(tmp_path)) as catalog:
        catalog.add_table(SCHEMA, cdc=True)
        connection = catalog._open()
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        big = TableSchema(TableId("ks", "big"), tuple(Column(f"c{i}", t.INT32) for i in range(2000)))
        with pytest.raises(DiskFull, match="no room while writing the catalog"):
            catalog.add_table(big, cdc=True)
        connection.execute("PRAGMA max_page_count = 100000")
        assert catalog.add_table(big, cdc=True)


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="opening the catalog"):
        Catalog.open(str(tmp_path / "file"))


def test_closed_catalog_says_so(tmp_path: Path) -> None:
    catalog = Catalog.open(str(tmp_path))
    catalog.close()
    catalog.close()
    with pytest.raises(LogClosed, match="the catalog is closed"):
        catalog.tables()
