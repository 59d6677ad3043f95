"""Several tables in one pipeline, and something wrong with one: the others go on, and nothing of it is lost.

What is in the targets is read by deltalake and from the files themselves, and compared with what the test has written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import TableNotFoundError

from penstock.errors import SchemaRefused
from penstock.model import types as t
from penstock.model.schema import TableSchema
from penstock.pipeline.pipeline import Pipeline
from penstock.settings import OnTrouble, PipelineSettings, RecordType, SchemaPolicy, Settings
from penstock.settings.sinks import DeltaSettings, FileCompression, FileFormat, FilesSettings
from tests import many_logs
from tests.integration.pipeline.replica_load import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = ("apples", "pears")


def settings(home: Path, *sinks: str, policy: str = "fail", **more: Any) -> Settings:
    (home / "n1").mkdir(exist_ok=True)
    pipeline = PipelineSettings(
        name="test",
        checkpoint_directory=home / "checkpoint",
        logs=(str(home / "n1"),),
        sinks=sinks,
        buckets=2,
        retries=3,
        retry_s=0.1,
        **more,
    )
    return Settings(
        pipeline=pipeline,
        delta=DeltaSettings(directory=home / "lake", schema_policy=SchemaPolicy(policy), history=True),
        files=FilesSettings(
            directory=home / "files",
            format=FileFormat.JSON,
            compression=FileCompression.NONE,
            record=RecordType.CHANGE,
        ),
    )


def put(home: Path, table: str, ids: range, schema: TableSchema | None = None, note: str = "x") -> None:
    many_logs.write(home / "n1", table, ids.start, 1, each=len(ids), note=note, schema=schema)


def run(spark: SparkSession, made: Settings) -> Pipeline:
    pipeline = Pipeline(made, spark=spark)
    pipeline.run(available_now=True)
    return pipeline


def in_lake(home: Path, table: str) -> list[int]:
    """The keys of a Delta table's rows, as another reader sees them, each as often as it is there."""
    found = QueryBuilder().register("t", DeltaTable(str(home / "lake" / "shop" / table))).execute("SELECT id FROM t")
    return sorted(row["id"] for batch in found for row in pa.record_batch(batch).to_pylist())


def in_history(home: Path, table: str) -> list[int]:
    return in_lake(home, f"{table}_history")


def in_files(home: Path, table: str) -> list[int]:
    """The keys of the records in a table's files, each as often as it is there."""
    files = [file for file in (home / "files" / f"shop.{table}").glob("*.json*") if not file.name.startswith(".")]
    return sorted(json.loads(line)["key"]["id"] for file in files for line in file.read_text().splitlines())


def everything(upto: int) -> list[int]:
    return list(range(upto))


def damage(home: Path, table: str) -> Callable[[], None]:
    """Spoil a byte in the last block of a table's log, behind which more may come; the way back."""
    [file] = (home / "n1" / f"shop.{table}").glob("*.avro")
    sound = file.read_bytes()
    spoilt = bytearray(sound)
    spoilt[-200] ^= 0xFF
    file.write_bytes(spoilt)

    def mend() -> None:
        # What came later stands behind it.
        with file.open("r+b") as opened:
            opened.write(sound)

    return mend


def test_schema_that_a_sink_must_not_follow_stops_its_table_alone(spark: SparkSession, tmp_path: Path) -> None:
    made = settings(tmp_path, "delta", "files")
    for table in (*GOOD, "plums"):
        put(tmp_path, table, range(40))
    assert run(spark, made).status().troubles == {}
    wider = many_logs.with_column(many_logs.schema_of("plums"), "city", t.TEXT)
    for table in GOOD:
        put(tmp_path, table, range(40, 80))
    put(tmp_path, "plums", range(40, 60))
    put(tmp_path, "plums", range(60, 80), schema=wider)
    status = run(spark, made).status()
    assert status.troubles["shop.plums"].error == "SchemaRefused"
    assert "city" in status.troubles["shop.plums"].reason
    assert list(status.troubles) == ["shop.plums"]
    for table in GOOD:
        put(tmp_path, table, range(80, 100))
    put(tmp_path, "plums", range(80, 100), schema=wider)
    # A start tries it again, and it is as before.
    assert list(run(spark, made).status().troubles) == ["shop.plums"]
    for table in GOOD:
        assert in_lake(tmp_path, table) == in_history(tmp_path, table) == in_files(tmp_path, table) == everything(100)
    assert in_lake(tmp_path, "plums") == everything(40)
    assert run(spark, settings(tmp_path, "delta", "files", policy="evolve")).status().troubles == {}
    assert in_lake(tmp_path, "plums") == in_history(tmp_path, "plums") == in_files(tmp_path, "plums") == everything(100)


def test_policy_fail_ends_the_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    made = settings(tmp_path, "delta", on_trouble=OnTrouble.FAIL)
    put(tmp_path, "plums", range(10))
    run(spark, made)
    put(tmp_path, "plums", range(10, 20), schema=many_logs.with_column(many_logs.schema_of("plums"), "city", t.TEXT))
    with pytest.raises(SchemaRefused, match="city"):
        run(spark, made)


def test_damage_in_the_middle_of_a_log_stops_its_table_alone(spark: SparkSession, tmp_path: Path) -> None:
    made = settings(tmp_path, "delta", "files")
    for table in (*GOOD, "plums"):
        put(tmp_path, table, range(10))
    run(spark, made)
    for table in (*GOOD, "plums"):
        for first in range(10, 50, 10):
            put(tmp_path, table, range(first, first + 10))
    mend = damage(tmp_path, "plums")
    status = run(spark, made).status()
    assert status.troubles["shop.plums"].error == "CorruptLog"
    for table in GOOD:
        assert in_lake(tmp_path, table) == in_history(tmp_path, table) == in_files(tmp_path, table) == everything(50)
        put(tmp_path, table, range(50, 60))
    assert in_lake(tmp_path, "plums") == everything(10)
    assert list(run(spark, made).status().troubles) == ["shop.plums"]
    mend()
    put(tmp_path, "plums", range(50, 60))
    assert run(spark, made).status().troubles == {}
    for table in (*GOOD, "plums"):
        assert in_lake(tmp_path, table) == in_history(tmp_path, table) == in_files(tmp_path, table) == everything(60)


def test_target_that_is_somebody_elses_stops_its_table_alone_from_the_first_batch_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = settings(tmp_path, "delta", "files")
    foreign = tmp_path / "lake" / "shop" / "plums"
    write_deltalake(str(foreign), pa.table({"somebody": ["else's"]}))
    for table in (*GOOD, "plums"):
        put(tmp_path, table, range(30))
    status = run(spark, made).status()
    assert list(status.troubles) == ["shop.plums"]
    for table in GOOD:
        assert in_lake(tmp_path, table) == in_history(tmp_path, table) == in_files(tmp_path, table) == everything(30)
    assert in_files(tmp_path, "plums") == []
    foreign.rename(tmp_path / "elsewhere")
    put(tmp_path, "plums", range(30, 40))
    assert run(spark, made).status().troubles == {}
    assert in_lake(tmp_path, "plums") == in_history(tmp_path, "plums") == in_files(tmp_path, "plums") == everything(40)


def test_directory_that_takes_no_files_stops_its_table_alone(spark: SparkSession, tmp_path: Path) -> None:
    made = settings(tmp_path, "delta", "files")
    (tmp_path / "files").mkdir()
    blocked = tmp_path / "files" / "shop.plums"
    blocked.write_text("a file where the directory should be")
    for table in (*GOOD, "plums"):
        put(tmp_path, table, range(30))
    status = run(spark, made).status()
    assert status.troubles["shop.plums"].error == "StorageError"
    for table in GOOD:
        assert in_lake(tmp_path, table) == in_history(tmp_path, table) == in_files(tmp_path, table) == everything(30)
    assert in_lake(tmp_path, "plums") == []
    blocked.unlink()
    assert run(spark, made).status().troubles == {}
    assert in_lake(tmp_path, "plums") == in_history(tmp_path, "plums") == in_files(tmp_path, "plums") == everything(30)


def test_a_running_pipeline_goes_on_and_takes_the_table_back_when_asked(tmp_path: Path) -> None:
    """With kill -9 while the table is left out, and while it comes back."""
    file = _config(tmp_path)
    for table in (*GOOD, "plums"):
        put(tmp_path, table, range(10))
        put(tmp_path, table, range(10, 20))
    mend = damage(tmp_path, "plums")
    with _running(file) as (process, address):
        wait_for(lambda: _delivered(tmp_path, 20) or process.poll() is not None)
        for table in GOOD:
            put(tmp_path, table, range(20, 30))
        wait_for(lambda: _delivered(tmp_path, 30) or process.poll() is not None)
        health = urllib.request.urlopen(f"{address}/health", timeout=PATIENCE_S)
        assert health.status == 200
        checks = json.load(health)
        assert checks["tables"]["degraded"]
        assert "shop.plums: damage inside the log" in checks["tables"]["message"]
        metrics = urllib.request.urlopen(f"{address}/metrics", timeout=PATIENCE_S).read().decode()
        assert 'penstock_pipeline_trouble_seconds{error="CorruptLog",table="shop.plums"}' in metrics
        os.killpg(process.pid, signal.SIGKILL)
    for table in (*GOOD, "plums"):
        put(tmp_path, table, range(30, 40))
    with _running(file) as (process, _):
        wait_for(lambda: _delivered(tmp_path, 40) or process.poll() is not None)
        wait_for(lambda: _held(tmp_path))
        mend()
        command = [sys.executable, "-m", "penstock", "pipeline", "retry", "shop.plums", str(file)]
        subprocess.run(command, check=True, capture_output=True)
        wait_for(lambda: not _requested(tmp_path))
        os.killpg(process.pid, signal.SIGKILL)
    with _running(file) as (process, _):
        wait_for(lambda: _delivered(tmp_path, 40, "plums") or process.poll() is not None)
        for table in (*GOOD, "plums"):
            put(tmp_path, table, range(40, 50))
        wait_for(lambda: _delivered(tmp_path, 50, *GOOD, "plums") or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, error
    assert json.loads(out.splitlines()[-1])["troubles"] == {}
    for table in (*GOOD, "plums"):
        assert in_lake(tmp_path, table) == in_history(tmp_path, table) == in_files(tmp_path, table) == everything(50)


def test_once_says_which_table_is_in_trouble_and_fails(tmp_path: Path) -> None:
    file = _config(tmp_path)
    for table in (*GOOD, "plums"):
        put(tmp_path, table, range(10))
        put(tmp_path, table, range(10, 20))
    damage(tmp_path, "plums")
    command = [sys.executable, "-m", "penstock", "pipeline", str(file), "--once", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "table shop.plums is in trouble: damage inside the log" in done.stderr
    assert list(json.loads(done.stdout.splitlines()[-1])["troubles"]) == ["shop.plums"]
    for table in GOOD:
        assert in_lake(tmp_path, table) == in_files(tmp_path, table) == everything(20)


def _config(home: Path) -> Path:
    (home / "n1").mkdir()
    file = home / "pipeline.toml"
    file.write_text(
        f"""
[pipeline]
name = "test"
checkpoint_directory = "{home}/checkpoint"
logs = ["{home}/n1"]
sinks = ["delta", "files"]
buckets = 2
http_port = 0

[delta]
directory = "{home}/lake"
history = true

[files]
directory = "{home}/files"
format = "json"
compression = "none"
record = "change"
"""
    )
    return file


@contextmanager
def _running(file: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The pipeline in a session of its own, so that its Java machine can be killed with it; and where it answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "pipeline", str(file), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())["http"]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _delivered(home: Path, upto: int, *tables: str) -> bool:
    """Whether another reader sees all rows of some tables."""
    try:
        return all(in_lake(home, f"{table}_history") == everything(upto) for table in tables or GOOD)
    except TableNotFoundError:
        return False


def _held(home: Path) -> bool:
    file = home / "checkpoint/troubles/shop.plums.json"
    return file.exists() and '"trial":null' in file.read_text()


def _requested(home: Path) -> bool:
    return (home / "checkpoint/troubles/shop.plums.retry").exists()
