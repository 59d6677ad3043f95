"""The files sink: each batch is there as a whole, once, however often it is done."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.object_json import to_json
from penstock.deliver.files.sink import MANIFESTS, FilesSink
from penstock.deliver.sink import Task
from penstock.errors import DiskFull, StorageError
from penstock.log import sealed
from penstock.model import types as t
from penstock.model.change import Change
from penstock.model.schema import Column, TableId, TableSchema
from penstock.records.records import Records
from penstock.settings import RecordType
from penstock.settings.sinks import FileCompression, FileFormat, FilesSettings
from penstock.system.files import OsFiles
from tests import sample
from tests.every_type import every_type_table
from tests.row_records import gone, put, records_of


def sink_in(directory: Path, record: RecordType = RecordType.CHANGE, **settings: Any) -> FilesSink:
    return FilesSink(FilesSettings(directory=directory, record=record, **settings))


def rows(*numbers: int, note: str = "n", schema: TableSchema = sample.SCHEMA) -> Records:
    return records_of(schema, [put({"id": number}, 10 + number, note=f"{note}{number}") for number in numbers])


def write(sink: FilesSink, batch: int, *buckets: Records) -> list[bytes]:
    """One task per argument; gives what they leave for the commit."""
    payloads = []
    for bucket, records in enumerate(buckets):
        with pickle.loads(pickle.dumps(sink)).writer(Task("p", batch, bucket, 0)) as writer:
            writer.write(records)
            payloads.append(writer.finish().payload)
    return payloads


def visible(directory: Path) -> list[str]:
    """What a reader of directories sees."""
    found = [path for path in directory.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return sorted(str(path.relative_to(directory)) for path in found if MANIFESTS not in path.parts)


def manifest(directory: Path, batch: int) -> dict[str, Any]:
    return sealed.read(OsFiles(), str(directory / MANIFESTS / f"p-{batch:012d}.json"), 1 << 20)


def test_nothing_is_seen_before_the_commit(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    payloads = write(sink, 1, rows(1, 2), rows(3))
    assert visible(tmp_path) == []
    sink.commit("p", 1, payloads)
    names = [f"shop.orders/p-000000000001-000{bucket}-000.parquet" for bucket in (0, 1)]
    assert visible(tmp_path) == names
    found = manifest(tmp_path, 1)
    assert [(entry["file"], entry["table"], entry["records"]) for entry in found["files"]] == [
        (names[0], "shop.orders", 2),
        (names[1], "shop.orders", 1),
    ]
    assert [entry["bytes"] for entry in found["files"]] == [(tmp_path / name).stat().st_size for name in names]


def test_a_batch_that_is_done_again_overwrites_itself(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    for _ in range(3):
        sink.commit("p", 1, write(sink, 1, rows(1), rows(2)))
    sink.commit("p", 2, write(sink, 2, rows(3)))
    assert len(visible(tmp_path)) == 3
    assert pq.read_table(tmp_path / "shop.orders").num_rows == 3


def test_a_commit_that_is_done_again_changes_nothing(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    payloads = write(sink, 1, rows(1), rows(2))
    sink.commit("p", 1, payloads)
    before = {name: (tmp_path / name).read_bytes() for name in visible(tmp_path)}
    sink.commit("p", 1, payloads)
    assert {name: (tmp_path / name).read_bytes() for name in visible(tmp_path)} == before


def test_what_a_killed_task_left_goes_with_the_next_commit(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    write(sink, 1, rows(1), rows(2), rows(9))
    # The batch is done again with fewer files than an earlier try had renamed.
    (tmp_path / "shop.orders" / "p-000000000001-0007-000.parquet").touch()
    sink.commit("p", 1, write(sink, 1, rows(1), rows(2)))
    assert len(list((tmp_path / "shop.orders").iterdir())) == len(visible(tmp_path)) == 2


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)

    def fail() -> None:
        with sink.writer(Task("p", 1, 0, 0)) as writer:
            writer.write(rows(1))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list((tmp_path / "shop.orders").iterdir()) == []


def test_a_batch_without_records_leaves_no_manifest(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    with sink.writer(Task("p", 1, 0, 0)) as writer:
        done = writer.finish()
    sink.commit("p", 1, [done.payload])
    assert list(tmp_path.iterdir()) == []


def test_large_files_are_split_and_schema_versions_get_their_own(tmp_path: Path) -> None:
    sink = sink_in(tmp_path, format=FileFormat.JSON, compression=FileCompression.NONE, file_bytes_max=1 << 16)
    with sink.writer(Task("p", 1, 0, 0)) as writer:
        writer.write(rows(1, 2, note="x" * 70_000))
        writer.write(rows(3))
        writer.write(rows(4, schema=sample.WIDER))
        done = writer.finish()
    sink.commit("p", 1, [done.payload])
    entries = manifest(tmp_path, 1)["files"]
    assert [(entry["records"], entry["schema_version"]) for entry in entries] == [(2, 1), (1, 1), (1, 2)]
    assert (done.records, done.bytes) == (4, sum(entry["bytes"] for entry in entries))


def test_many_tables_do_not_need_many_open_files(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    tables = [TableSchema(TableId("shop", f"t{number}"), sample.SCHEMA.columns) for number in range(40)]
    with sink.writer(Task("p", 1, 0, 0)) as writer:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for schema in [*tables, tables[0]]:
            writer.write(rows(1, schema=schema))
        assert len(list(Path("/proc/self/fd").iterdir())) - before <= 16
        done = writer.finish()
    sink.commit("p", 1, [done.payload])
    assert done.records == sum(pq.read_table(tmp_path / name).num_rows for name in visible(tmp_path)) == 41
    assert len(visible(tmp_path)) == 41


def test_many_records_are_written_in_pieces(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    few = rows(*range(10))
    many = few.take([number % 10 for number in range(40_000)])
    sink.commit("p", 1, write(sink, 1, many))
    (name,) = visible(tmp_path)
    file = pq.ParquetFile(tmp_path / name)
    assert (file.metadata.num_rows, file.num_row_groups) == (40_000, 3)


def test_names_of_tables_cannot_leave_the_directory(tmp_path: Path) -> None:
    schema = TableSchema(TableId("..", "../../etc"), sample.SCHEMA.columns)
    sink = sink_in(tmp_path / "files")
    sink.commit("p", 1, write(sink, 1, rows(1, schema=schema)))
    assert [path.name for path in tmp_path.iterdir()] == ["files"]
    assert len(visible(tmp_path / "files")) == 1


def test_parquet_files_hold_every_type_and_every_kind_of_change(tmp_path: Path) -> None:
    schema, changes = every_type_table()
    sink = sink_in(tmp_path)
    sink.commit("p", 1, write(sink, 1, records_of(schema, changes)))
    (name,) = visible(tmp_path)
    table = pq.read_table(tmp_path / name)
    assert table.column("op").to_pylist() == [change.op.value for change in changes]
    assert {"op", "time", "origin", "marker", "deletion", "range", "key", "cells", "before"} <= set(table.column_names)
    assert "ordinal" not in table.column_names


@pytest.mark.parametrize("record", [RecordType.AFTER, RecordType.ALL])
def test_parquet_files_of_whole_rows_have_version_and_row(tmp_path: Path, record: RecordType) -> None:
    sink = sink_in(tmp_path, record)
    records = records_of(sample.SCHEMA, [put({"id": 1}, 5, note="x"), gone({"id": 1}, 6)])
    sink.commit("p", 1, write(sink, 1, records))
    (name,) = visible(tmp_path)
    table = pq.read_table(tmp_path / name)
    assert table.column("version").to_pylist() == [5, 6]
    assert table.column("key").to_pylist() == [{"id": 1}, {"id": 1}]
    assert table.column("after").to_pylist() == [{"id": 1, "note": "x"}, None]
    assert ("before" in table.column_names) == (record is RecordType.ALL)


def test_whole_rows_of_every_type_fit_into_parquet(tmp_path: Path) -> None:
    schema, changes = every_type_table()
    records = records_of(schema, changes)
    sink = sink_in(tmp_path, RecordType.AFTER)
    sink.commit("p", 1, write(sink, 1, records))
    (name,) = visible(tmp_path)
    found = pq.read_table(tmp_path / name).column("after").combine_chunks()
    assert len(found) == len(records)


@pytest.mark.parametrize("record", [RecordType.CHANGE, RecordType.AFTER])
def test_times_far_away_fit_into_parquet(tmp_path: Path, record: RecordType) -> None:
    columns = (sample.SCHEMA.columns[0], Column("at", t.timestamp(t.Unit.S)))
    schema = TableSchema(sample.TABLE, columns)
    sink = sink_in(tmp_path, record)
    sink.commit("p", 1, write(sink, 1, records_of(schema, [put({"id": 1}, 5, at=1 << 62)])))
    (name,) = visible(tmp_path)
    (row,) = pq.read_table(tmp_path / name).to_pylist()
    assert (row["cells"]["at"]["value"] if record is RecordType.CHANGE else row["after"]["at"]) == 1 << 62


@pytest.mark.parametrize("compression", list(FileCompression))
def test_json_lines_say_what_the_changes_say(tmp_path: Path, compression: FileCompression) -> None:
    schema, changes = every_type_table()
    sink = sink_in(tmp_path, format=FileFormat.JSON, compression=compression)
    sink.commit("p", 1, write(sink, 1, records_of(schema, changes)))
    (name,) = visible(tmp_path)
    assert name.endswith(
        {FileCompression.NONE: ".jsonl", FileCompression.GZIP: ".jsonl.gz", FileCompression.ZSTD: ".jsonl.zst"}[
            compression
        ]
    )
    text = _content(tmp_path / name, compression)
    assert text.endswith(b"\n")
    assert [json.loads(line) for line in text.splitlines()] == _plain(schema, changes)


def _content(path: Path, compression: FileCompression) -> bytes:
    if compression is FileCompression.GZIP:
        return gzip.decompress(path.read_bytes())
    if compression is FileCompression.NONE:
        return path.read_bytes()
    with pa.CompressedInputStream(str(path), "zstd") as stream:
        return bytes(stream.read())


def _plain(schema: TableSchema, changes: list[Change]) -> list[Any]:
    return [json.loads(json.dumps(to_json(change, schema))) for change in changes]


def test_json_lines_of_whole_rows(tmp_path: Path) -> None:
    sink = sink_in(tmp_path, RecordType.ALL, format=FileFormat.JSON, compression=FileCompression.NONE)
    records = records_of(sample.SCHEMA, [put({"id": 1}, 5, note="x"), gone({"id": 1}, 6)])
    sink.commit("p", 1, write(sink, 1, records))
    (name,) = visible(tmp_path)
    assert [json.loads(line) for line in (tmp_path / name).read_text().splitlines()] == [
        {"op": "insert", "time": 5, "version": 5, "key": {"id": 1}, "before": None, "after": {"id": 1, "note": "x"}},
        {"op": "delete", "time": 6, "version": 6, "key": {"id": 1}, "before": None, "after": None},
    ]


def test_the_check_names_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    sink_in(tmp_path / "new").check()
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write files.*file"):
        sink_in(tmp_path / "file").check()


def test_a_full_disk_fails_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    sink = sink_in(tmp_path)
    monkeypatch.setattr("penstock.deliver.files.sink.os.fsync", refuse)
    with pytest.raises(DiskFull, match="no room"):
        write(sink, 1, rows(1))
    monkeypatch.undo()
    assert list((tmp_path / "shop.orders").iterdir()) == []
