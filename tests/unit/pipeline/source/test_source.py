"""What Spark calls, called without Spark: pickled readers, offsets that were JSON, limits in Spark's words."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.errors import InvalidSetting, SchemaChanged
from penstock.model import types as t
from penstock.pipeline.source.options import parse
from penstock.pipeline.source.source import PenstockDataSource, pipeline_options, schemas
from penstock.settings import Settings
from tests.many_logs import SMALL_FILES, ids_in, schema_of, with_column, write


def copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def source(root: Path, **options: str) -> tuple[PenstockDataSource, StructType]:
    """The source as Spark makes it: the schema is asked for, then the object is copied."""
    made = PenstockDataSource({"path": str(root), **options})
    schema = made.schema()
    return copied(made), schema


def rows(reader: Any, partitions: list[Any], schema: StructType) -> list[dict[str, Any]]:
    """What tasks give, after the checks that Spark makes."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    out: list[dict[str, Any]] = []
    for partition in partitions:
        for batch in copied(reader).read(copied(partition)):
            assert isinstance(batch, pa.RecordBatch)
            assert wanted.equals(batch.schema)
            out += batch.to_pylist()
    return out


class Stream:
    """A micro-batch query, as far as the source sees one."""

    def __init__(self, reader: DataSourceStreamReader, schema: StructType) -> None:
        self.reader = reader
        self.schema = schema
        self.offset = json.loads(json.dumps(reader.initialOffset()))

    def batches(self, limit: ReadLimit | None = None) -> list[list[int]]:
        out: list[list[int]] = []
        while True:
            end = self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit())
            end = json.loads(json.dumps(end))
            if end == self.offset:
                return out
            out.append(
                [row["id"] for row in rows(self.reader, list(self.reader.partitions(self.offset, end)), self.schema)]
            )
            self.reader.commit(end)
            self.offset = end


def test_a_batch_read_gives_the_log(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 30, each=3, settings=SMALL_FILES, note="x" * 100)
    made, schema = source(tmp_path, table="shop.orders")
    reader = made.reader(schema)
    assert [row["id"] for row in rows(reader, list(reader.partitions()), schema)] == ids_in(directory)


def test_a_stream_keeps_to_the_limit_of_its_options(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 35)
    made, schema = source(tmp_path, table="shop.orders", maxRowsPerTrigger="10")
    stream = Stream(made.streamReader(schema), schema)
    assert [len(batch) for batch in stream.batches()] == [10, 10, 10, 5]
    write(tmp_path, "orders", 35, 3)
    assert stream.batches() == [[35, 36, 37]]
    stream.reader.stop()


def test_all_that_is_available_is_more_than_any_limit(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 35)
    made, schema = source(tmp_path, table="shop.orders", maxRowsPerTrigger="10")
    assert [len(batch) for batch in Stream(made.streamReader(schema), schema).batches(ReadAllAvailable())] == [35]


def test_a_stream_of_what_is_there_ends(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 25)
    made, schema = source(tmp_path, table="shop.orders", maxRowsPerTrigger="10")
    reader: Any = made.streamReader(schema)
    stream = Stream(reader, schema)
    reader.prepareForTriggerAvailableNow()
    write(tmp_path, "orders", 25, 25)
    assert [len(batch) for batch in stream.batches()] == [10, 10, 5]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"maxRowsPerTrigger": "5", "maxFilesPerTrigger": "2"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "1m", "maxFilesPerTrigger": "2"}, ReadMaxBytes(1 << 20)),
        ({"maxBytesPerTrigger": "0", "maxFilesPerTrigger": "2"}, ReadMaxFiles(2)),
        ({"maxBytesPerTrigger": "0"}, ReadAllAvailable()),
        ({}, ReadMaxBytes(512 << 20)),
    ],
)
def test_the_usual_limit_is_told_to_spark(tmp_path: Path, options: dict[str, str], wanted: ReadLimit) -> None:
    write(tmp_path, "orders", 0, 1)
    made, schema = source(tmp_path, table="shop.orders", **options)
    assert made.streamReader(schema).getDefaultReadLimit() == wanted


def test_a_query_is_woken_by_its_file(tmp_path: Path) -> None:
    root = tmp_path / "n1"
    write(root, "orders", 0, 1)
    made, schema = source(root, shape="runs", wake=str(tmp_path / "due"))
    reader = made.streamReader(schema)
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    (tmp_path / "due").write_text("1700000000")
    second = reader.latestOffset(first, ReadAllAvailable())
    assert second == {**first, "tick": 1_700_000_000}
    assert list(reader.partitions(first, second)) == []
    assert reader.latestOffset(second, ReadAllAvailable()) == second


def test_a_batch_of_a_few_changes_comes_along_with_its_plan(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 3_000, note="x" * 100)
    made, schema = source(tmp_path, table="shop.orders", columns="id", maxRowsPerTrigger="10")
    reader = made.streamReader(schema)
    # Spark looks for this class, and asks its `simple_reader` what it supports.
    assert isinstance(reader, _SimpleStreamReaderWrapper)
    assert isinstance(reader.simple_reader, SupportsTriggerAvailableNow)
    start, found = reader.initialOffset(), []
    for limit, few in ((ReadMaxRows(10), True), (ReadAllAvailable(), False)):
        end = reader.latestOffset(start, limit)
        partitions = list(reader.partitions(start, end))
        along: Any = reader.getCache(start, end)
        assert (along is not None) == few
        given = [row for batch in along for row in batch.to_pylist()] if along is not None else []
        assert given == (rows(reader, partitions, schema) if few else [])
        found += [row["id"] for row in rows(reader, partitions, schema)]
        start = end
    assert found == list(range(3_000))


def test_columns_that_the_user_chose_by_schema_must_be_the_tables(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 3)
    made = copied(PenstockDataSource({"path": str(tmp_path), "table": "shop.orders"}))
    wanted = StructType([StructField("_op", StringType()), StructField("id", LongType())])
    reader = made.reader(wanted)
    assert rows(reader, list(reader.partitions()), wanted)[0] == {"_op": "insert", "id": 0}
    with pytest.raises(InvalidSetting, match="column id is int64, not string"):
        made.reader(StructType([StructField("id", StringType())]))
    with pytest.raises(InvalidSetting, match="columns of its own"):
        PenstockDataSource({"path": str(tmp_path), "shape": "runs"}).reader(wanted)


def test_an_older_version_can_be_shown(tmp_path: Path) -> None:
    first = schema_of("orders")
    write(tmp_path, "orders", 0, 2, schema=first)
    write(tmp_path, "orders", 2, 2, schema=with_column(first, "paid", t.BOOLEAN))
    made, schema = source(tmp_path, table="shop.orders")
    assert "paid" in schema.names
    made, schema = source(tmp_path, table="shop.orders", schemaVersion="1")
    assert "paid" not in schema.names
    reader = made.reader(schema)
    assert [row["id"] for row in rows(reader, list(reader.partitions()), schema)] == [0, 1, 2, 3]
    with pytest.raises(InvalidSetting, match="no file was written with version 3 of the table; there are 1, 2"):
        source(tmp_path, table="shop.orders", schemaVersion="3")


def test_nodes_that_have_come_to_different_versions_are_read_together(tmp_path: Path) -> None:
    wider = with_column(schema_of("orders"), "paid", t.BOOLEAN)
    write(tmp_path / "n1", "orders", 0, 2, schema=wider, node="n1")
    write(tmp_path / "n2", "orders", 2, 2, node="n2")
    made = PenstockDataSource({"path": f"{tmp_path}/n1,{tmp_path}/n2", "table": "shop.orders"})
    schema = made.schema()
    stream = Stream(made.streamReader(schema), schema)
    assert sorted(number for batch in stream.batches() for number in batch) == [0, 1, 2, 3]
    write(tmp_path / "n2", "orders", 4, 1, schema=wider, node="n2")
    assert stream.batches() == [[4]]
    write(tmp_path / "n2", "orders", 5, 1, schema=with_column(wider, "sent", t.BOOLEAN), node="n2")
    with pytest.raises(SchemaChanged, match="column sent"):
        stream.batches()


def test_a_pipelines_settings_become_options(tmp_path: Path) -> None:
    write(tmp_path / "a, b", "orders", 0, 1)
    write(tmp_path / "a, b", "skipped", 0, 1)
    settings = Settings.model_validate(
        {
            "pipeline": {
                "name": "pipe",
                "logs": [str(tmp_path / "a, b")],
                "exclude": ["shop.sk*"],
                "agents_token_file": "/token",
                "agents_ca_file": "/ca",
                "rows_per_batch": 7,
                "on_loss": "skip",
            },
            "retention": {"age_s_max": 60},
        }
    )
    options = parse(pipeline_options(settings, 5))
    assert (options.path, options.buckets, options.subscription) == ((str(tmp_path / "a, b"),), 5, "pipe")
    assert (options.token_file, options.tls_ca_file, options.on_loss) == ("/token", "/ca", "skip")
    assert options.retention is not None
    told = asdict(options.retention)
    # What concerns all logs of a disk is the agent's affair.
    assert told.items() <= settings.retention.model_dump().items()
    assert settings.retention.model_dump().keys() - told.keys() == {"disk_share_max", "free_bytes_min", "every_s"}
    assert options.max_rows_per_trigger == 7
    found = schemas(settings)
    assert [str(schema.table) for schema in found.newest] == ["shop.orders"]
    assert [header.schema for header in found.settled] == found.newest


def test_a_table_is_settled_when_all_its_changes_have_one_schema(tmp_path: Path) -> None:
    for node in ("n1", "n2"):
        write(tmp_path / node, "orders", 0, 1)
        write(tmp_path / node, "altered", 0, 1)
    write(tmp_path / "n1", "altered", 1, 1, schema=with_column(schema_of("altered"), "more", t.TEXT))
    write(tmp_path / "n1", "one_node", 0, 1)
    write(tmp_path / "n2", "one_node", 0, 1, schema=with_column(schema_of("one_node"), "more", t.TEXT))
    write(tmp_path / "n1", "empty", 0, 0)
    logs = [str(tmp_path / "n1"), str(tmp_path / "n2")]
    found = schemas(Settings.model_validate({"pipeline": {"name": "pipe", "logs": logs}}))
    assert {str(schema.table) for schema in found.newest} == {
        "shop.orders",
        "shop.altered",
        "shop.one_node",
        "shop.empty",
    }
    assert [(header.node, header.schema) for header in found.settled] == [
        ("n1", schema_of("orders")),
        ("n2", schema_of("orders")),
    ]


def test_a_process_that_plans_a_pipelines_batches_imports_no_more_than_that_needs() -> None:
    """Spark starts one for each query, and nothing is delivered before it is there."""
    script = "import sys, penstock.pipeline.source.source; sys.stdout.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {
        "pydantic",
        "structlog",
        "http.client",
        "ssl",
        "pandas",
        "penstock.pipeline.source.flat",
        "penstock.formats.arrow",
    }
    assert not heavy & set(done.stdout.split())
