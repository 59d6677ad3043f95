"""Optimising and vacuuming: fewer files, the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from penstock.deliver.delta.sink import DeltaSink
from penstock.settings.sinks import DeltaSettings
from tests.lake_records import SCHEMA, by_key, deliver, query, records


def make(directory: Path, **settings: Any) -> DeltaSink:
    sink = DeltaSink(DeltaSettings(directory=directory, **settings))
    sink.prepare([SCHEMA])
    return sink


def row(note: str) -> dict[str, Any]:
    return {"note": note, "amount": 1}


def fill(sink: DeltaSink, batches: range) -> None:
    for batch in batches:
        rows = [((number, "a"), row(f"b{batch}")) for number in range(batch, 12)]
        parts = {bucket: [records(SCHEMA, [each for each in rows if each[0][0] % 2 == bucket])] for bucket in range(2)}
        deliver(sink, batch, parts)


EXPECTED = {(number, "a"): row(f"b{min(number, 5)}") for number in range(12)}


def test_files_are_compacted_every_so_many_batches_and_the_index_follows(tmp_path: Path) -> None:
    sink = make(tmp_path, optimize_every=3)
    fill(sink, range(6))
    assert by_key(query(tmp_path / "shop/orders")) == EXPECTED
    operations = [each["operation"] for each in DeltaTable(str(tmp_path / "shop/orders")).history()]
    assert operations.count("OPTIMIZE") == 2


def test_a_vacuum_leaves_what_the_table_uses_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "shop/orders"
    sink = make(tmp_path, vacuum_every=6, vacuum_retention_hours=0)
    (directory / f"part-3-0-{'0' * 32}-0.parquet").write_bytes(b"left by a crash")
    (directory / "of-someone-else.parquet").write_bytes(b"x")
    fill(sink, range(6))
    assert by_key(query(directory)) == EXPECTED
    in_use = {uri.rsplit("/", 1)[1] for uri in DeltaTable(str(directory)).file_uris()}
    assert {file.name for file in directory.glob("*.parquet")} == {*in_use, "of-someone-else.parquet"}
    assert len(list(directory.glob("_penstock/deletion_vector_*.bin"))) <= len(in_use)


def test_a_vacuum_keeps_what_older_versions_use_for_a_while(tmp_path: Path) -> None:
    directory = tmp_path / "shop/orders"
    fill(make(tmp_path, vacuum_every=1), range(6))
    table = DeltaTable(str(directory))
    table.load_as_version(1)
    assert len(table.file_uris()) == 2
    assert all(Path(uri).exists() for uri in table.file_uris())


def test_the_full_vacuum_of_delta_rs_leaves_our_deletion_vectors(tmp_path: Path) -> None:
    directory = tmp_path / "shop/orders"
    fill(make(tmp_path), range(6))
    table = DeltaTable(str(directory))
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert by_key(query(directory)) == EXPECTED
    deliver(make(tmp_path), 6, {1: [records(SCHEMA, [((11, "a"), None)])]})
    assert len(query(directory)) == 11


def test_small_files_of_history_are_brought_together(tmp_path: Path) -> None:
    sink = make(tmp_path, history=True, history_optimize_every=5)
    fill(sink, range(6))
    history = tmp_path / "shop/orders_history"
    assert len(DeltaTable(str(history)).file_uris()) <= 4
    assert len(query(history)) == sum(12 - batch for batch in range(6))
