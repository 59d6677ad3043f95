"""The transaction log of a Delta table: read from checkpoints and commits, refused when it is not whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.deliver.delta.delta_log import DeltaLog, commit_path, file_of, rows_of
from penstock.deliver.lakehouse.storage import Storage
from penstock.errors import CorruptData, UnsupportedFormat


def write(directory: Path, count: int) -> None:
    for number in range(count):
        rows = pa.table({"id": [number], "part": [f"p {number % 2}"]})
        write_deltalake(str(directory), rows, mode="append", partition_by=["part"])


def log_of(directory: Path) -> DeltaLog:
    log = DeltaLog(Storage(directory))
    log.refresh()
    return log


def test_a_table_of_delta_rs_is_read_as_delta_rs_reads_it(tmp_path: Path) -> None:
    write(tmp_path, 3)
    log = log_of(tmp_path)
    table = DeltaTable(str(tmp_path))
    assert log.version == table.version() == 2
    assert {str(tmp_path / file_of(path)) for path in log.adds} == set(table.file_uris())
    assert all((tmp_path / file_of(path)).exists() for path in log.adds)
    assert [rows_of(add) for add in log.adds.values()] == [1, 1, 1]
    assert {add["partitionValues"]["part"] for add in log.adds.values()} == {"p 0", "p 1"}


def test_new_commits_are_read_and_a_version_is_given_to_one_writer_only(tmp_path: Path) -> None:
    write(tmp_path, 1)
    first, second = log_of(tmp_path), log_of(tmp_path)
    assert first.commit([{"commitInfo": {"operation": "A"}}, {"txn": {"appId": "a", "version": 1}}])
    assert not second.commit([{"commitInfo": {"operation": "B"}}, {"txn": {"appId": "a", "version": 2}}])
    assert [info["operation"] for info in second.refresh()] == ["A"]
    assert (second.version, second.transactions) == (1, {"a": 1})
    assert not list((tmp_path / "_delta_log").glob("*.tmp"))


@pytest.mark.parametrize("parts", [1, 2])
def test_a_checkpoint_stands_for_the_commits_before_it(tmp_path: Path, parts: int) -> None:
    write(tmp_path, 4)
    whole = log_of(tmp_path)
    DeltaTable(str(tmp_path)).create_checkpoint()
    name = tmp_path / "_delta_log" / "00000000000000000003.checkpoint.parquet"
    if parts == 2:
        rows = pq.read_table(name)
        name.unlink()
        for number, half in enumerate((rows.slice(0, 3), rows.slice(3)), 1):
            pq.write_table(half, str(name).replace(".parquet", f".{number:010d}.{parts:010d}.parquet"))
    for version in range(4):
        (tmp_path / commit_path(version)).unlink()
    found = log_of(tmp_path)

    def shown(log: DeltaLog) -> list[Any]:
        return sorted((add["path"], add["partitionValues"], add["size"]) for add in log.adds.values())

    assert (found.version, shown(found)) == (3, shown(whole))
    assert found.metadata["schemaString"] == whole.metadata["schemaString"]
    assert found.metadata["partitionColumns"] == ["part"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_removal_is_only_of_the_deletion_vector_that_it_names(tmp_path: Path, order: int) -> None:
    write(tmp_path, 1)
    log = log_of(tmp_path)
    ((path, first),) = log.adds.items()
    vectors = [{"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": place, "sizeInBytes": 1} for place in (1, 9)]
    second, third = ({**first, "deletionVector": vector} for vector in vectors)
    assert log.commit([{"remove": {"path": path}}, {"add": second}][::order])
    assert log.commit([{"remove": {"path": path, "deletionVector": vectors[0]}}, {"add": third}][::order])
    assert log.adds == {path: third}
    assert len(log.removes) == 2
    assert log_of(tmp_path).adds == {path: third}
    assert log.commit([{"remove": {"path": path, "deletionVector": vectors[1]}}])
    assert not log.adds


def test_a_log_that_is_not_whole_is_refused_with_the_file(tmp_path: Path) -> None:
    write(tmp_path, 2)
    commit = tmp_path / commit_path(1)
    text = commit.read_text()
    commit.write_text(text[: len(text) // 2])
    with pytest.raises(CorruptData, match=r"00000000000000000001\.json"):
        log_of(tmp_path)
    (tmp_path / commit_path(0)).unlink()
    commit.write_text(text)
    with pytest.raises(CorruptData, match="lacks its beginning"):
        log_of(tmp_path)


def test_files_outside_the_table_are_refused() -> None:
    for path in ("s3://bucket/x.parquet", "/elsewhere/x.parquet", "file:/x.parquet"):
        with pytest.raises(UnsupportedFormat, match="outside"):
            file_of(path)
    assert file_of("part=a%20b/x%2525.parquet") == "part=a b/x%25.parquet"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, "writer version 5"),
        (
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["columnMapping"]}},
            "columnMapping",
        ),
        ({"metaData": {"configuration": {"delta.appendOnly": "true"}}}, "append-only"),
        ({"metaData": {"configuration": {"delta.enableChangeDataFeed": "true"}}}, "change data feed"),
        ({"metaData": {"schemaString": '{"delta.invariants": 1}'}}, "invariants"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tables_with_rules_that_are_not_kept_here_are_refused(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    write(tmp_path, 1)
    (tmp_path / commit_path(1)).write_text(json.dumps(change))
    with pytest.raises(UnsupportedFormat, match=complaint):
        log_of(tmp_path).check_supported("t")
