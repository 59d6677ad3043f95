"""The whole lane on local Spark: logs of several nodes in, tables and files out, with crashes in between."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from penstock.compare.comparison import compare
from penstock.compare.delta_rows import DeltaRows
from penstock.compare.lake_rows import LakeShape
from penstock.compare.log_rows import LogRows
from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.files.sink import FilesSink
from penstock.errors import (
    DeliveryFailed,
    InvalidSetting,
    InvalidStatement,
    PenstockError,
)
from penstock.fold.state import StateStore
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.change import Change, Deleted, Expiry, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.pipeline.pipeline import Pipeline
from penstock.sandbox.cluster import Cluster
from penstock.sandbox.consistency import Consistency
from penstock.sandbox.workload import TABLES, Workload
from penstock.settings import (
    Copies,
    MergeSettings,
    PipelineSettings,
    RecordType,
    Settings,
    TransformSettings,
)
from penstock.settings.sinks import DeltaSettings, FileCompression, FileFormat, FilesSettings
from penstock.system.clock import Clock
from tests import many_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES = ("n1", "n2", "n3")
PEOPLE = TableSchema(
    TableId("shop", "people"),
    (Column("id", t.INT64, Role.PARTITION), Column("name", t.TEXT), Column("age", t.INT32)),
    source="cassandra",
)


def settings(home: Path, *sinks: str, **more: Any) -> Settings:
    """A pipeline of the logs below `home`, with a checkpoint, tables and files of its own."""
    for node in more.get("nodes", NODES):
        (home / node).mkdir(exist_ok=True)
    pipeline = PipelineSettings(
        name=more.pop("name", "test"),
        checkpoint_directory=home / "checkpoint",
        logs=tuple(str(home / node) for node in more.pop("nodes", NODES)),
        sinks=sinks,
        buckets=2,
        # A worker that does not connect back in time, as on a busy machine, is no failure of ours.
        retries=3,
        **{key: more.pop(key) for key in ("rows_per_batch", "include") if key in more},
    )
    return Settings(
        pipeline=pipeline,
        delta=more.pop("delta", DeltaSettings(directory=home / "lake")),
        files=FilesSettings(
            directory=home / "files",
            format=FileFormat.JSON,
            compression=FileCompression.NONE,
            record=more.pop("record", RecordType.AFTER),
        ),
        **more,
    )


def put(home: Path, node: str, *changes: Change, schema: TableSchema = PEOPLE) -> None:
    """Log changes on one node."""
    directory = home / node / f"{schema.table.keyspace}.{schema.table.table}"
    with TableLog.open(str(directory), schema, node=node) as log:
        log.append(avro.encode(schema, list(changes)))


def person(number: int, time: int, **cells: Any) -> Change:
    return Change(
        Op.INSERT, {"id": number}, {name: Set(value) for name, value in cells.items()}, time=time, marker=Marker()
    )


def rows(home: Path, table: str = "shop/people") -> list[dict[str, Any]]:
    """The current rows of a Delta table, as another reader sees them."""
    found = QueryBuilder().register("t", DeltaTable(str(home / "lake" / table))).execute("SELECT * FROM t ORDER BY 1")
    return [row for batch in found for row in pa.record_batch(batch).to_pylist()]


def records(home: Path) -> list[dict[str, Any]]:
    """What the files sink wrote, in order of batches."""
    files = [file for file in sorted((home / "files").rglob("*.json*")) if "_manifests" not in file.parts]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def run(spark: SparkSession, made: Settings, clock: Clock | None = None) -> Pipeline:
    pipeline = Pipeline(made, spark=spark, clock=clock)
    pipeline.run(available_now=True)
    return pipeline


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(str(tmp_path), data_centres={"dc1": 3}, seed=3) as made:
        for schema in TABLES:
            made.create_table(schema)
        yield made


def test_replicated_writes_with_a_crashed_node_become_the_rows_that_the_cluster_holds(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    statements = Workload(3).statements()
    made = settings(tmp_path, "delta", nodes=tuple(cluster.nodes), rows_per_batch=700)
    cluster.write_many(islice(statements, 300), consistency=Consistency.QUORUM)
    first = run(spark, made, cluster.clock).status()
    cluster.crash("dc1-2")
    cluster.write_many(islice(statements, 300), consistency=Consistency.QUORUM)
    cluster.restart("dc1-2")
    cluster.run_for(10_000_000)
    assert cluster.settle()
    second = run(spark, made, cluster.clock).status()
    assert first.batches > 1
    # Every write of both halves was logged three times and delivered once at most.
    assert first.copies + second.copies >= 1800
    assert first.records + second.records <= 1300
    for schema in TABLES:
        name = schema.table
        directories = [str(tmp_path / node / str(name)) for node in cluster.nodes]
        source = LogRows(directories, name, LakeShape(), cluster.clock.now_us() // 1_000_000)
        report = compare(source, DeltaRows(tmp_path / "lake" / name.keyspace / name.table, schema))
        assert report.differences == [], name
        assert report.source_rows == len(cluster.rows(name))


def test_changes_are_delivered_once_whichever_nodes_logged_them_and_when(spark: SparkSession, tmp_path: Path) -> None:
    made = settings(tmp_path, "files", record=RecordType.CHANGE)
    put(tmp_path, "n1", person(1, 10, name="a"), person(2, 20, name="b"))
    put(tmp_path, "n2", person(2, 20, name="b"))
    run(spark, made)
    put(tmp_path, "n2", person(1, 10, name="a"), person(3, 30, name="c"))
    put(tmp_path, "n3", person(1, 10, name="a"), person(2, 20, name="b"), person(3, 30, name="c"))
    status = run(spark, made).status()
    assert sorted(record["key"]["id"] for record in records(tmp_path)) == [1, 2, 3]
    assert (status.copies, status.records) == (5, 1)


@pytest.mark.parametrize(("copies", "expected"), [(Copies.EACH, [1, 1, 1, 2]), (Copies.QUORUM, [1])])
def test_consumers_may_want_each_copy_or_a_quorum(
    spark: SparkSession, tmp_path: Path, copies: Copies, expected: list[int]
) -> None:
    made = settings(tmp_path, "files", record=RecordType.CHANGE, merge=MergeSettings(copies=copies, quorum=2))
    put(tmp_path, "n1", person(1, 10, name="a"), person(2, 20, name="b"))
    run(spark, made)
    for node in ("n2", "n3"):
        put(tmp_path, node, person(1, 10, name="a"))
        run(spark, made)
    assert sorted(record["key"]["id"] for record in records(tmp_path)) == expected


def test_whole_rows_before_and_after(spark: SparkSession, tmp_path: Path) -> None:
    made = settings(tmp_path, "files", record=RecordType.ALL)
    put(tmp_path, "n1", person(1, 10, name="a", age=1))
    run(spark, made)
    put(tmp_path, "n2", Change(Op.UPDATE, {"id": 1}, {"age": Set(2), "name": Deleted()}, time=20))
    put(tmp_path, "n1", Change(Op.DELETE, {"id": 1}, time=30))
    run(spark, made)
    found = [(record["op"], record.get("before"), record.get("after")) for record in records(tmp_path)]
    first = {"id": 1, "name": "a", "age": 1}
    second = {"id": 1, "name": None, "age": 2}
    assert found == [("insert", None, first), ("update", first, second), ("delete", second, None)]


class Crash(BaseException):
    """A stop of the driver in the middle of a batch."""


def _before(monkeypatch: pytest.MonkeyPatch, owner: Any, method: str) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise Crash

    monkeypatch.setattr(owner, method, crash)


def _after(monkeypatch: pytest.MonkeyPatch, owner: Any, method: str) -> None:
    original: Callable[..., Any] = getattr(owner, method)

    def crash(*given: Any, **named: Any) -> None:
        original(*given, **named)
        raise Crash

    monkeypatch.setattr(owner, method, crash)


@pytest.mark.parametrize("moment", [_before, _after])
@pytest.mark.parametrize(("owner", "method"), [(DeltaSink, "commit"), (StateStore, "commit"), (Pipeline, "_outcomes")])
def test_driver_that_dies_at_a_step_repeats_the_batch_without_any_other_effect(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    method: str,
    moment: Callable[[pytest.MonkeyPatch, Any, str], None],
) -> None:
    made = settings(tmp_path, "delta", "files", record=RecordType.CHANGE)
    put(tmp_path, "n1", person(1, 10, name="a"), person(2, 20, name="b"))
    run(spark, made)
    put(tmp_path, "n2", person(1, 15, name="c"), person(3, 30, name="d"))
    put(tmp_path, "n3", person(3, 30, name="d"))
    with monkeypatch.context() as patched:
        moment(patched, owner, method)
        with pytest.raises(Crash):
            run(spark, made)
    run(spark, made)
    run(spark, made)
    assert [(row["id"], row["name"]) for row in rows(tmp_path)] == [(1, "c"), (2, "b"), (3, "d")]
    assert sorted(record["time"] for record in records(tmp_path)) == [10, 15, 20, 30]


@pytest.mark.parametrize("left", [None, b"", b'v1\n{"batchWa', b"\0" * 700], ids=["gone", "empty", "torn", "zeros"])
def test_batch_comes_again_whatever_a_power_loss_has_left_of_sparks_own_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes | None
) -> None:
    made = settings(tmp_path, "delta", "files", record=RecordType.CHANGE)
    for number in (1, 2):
        put(tmp_path, "n1", person(number, 10 * number, name="a"))
        run(spark, made)
    put(tmp_path, "n2", person(3, 30, name="b"))
    with monkeypatch.context() as patched:
        # The targets have the batch, the state has not; what comes later must not get into it.
        _before(patched, StateStore, "commit")
        with pytest.raises(Crash):
            run(spark, made)
    put(tmp_path, "n3", person(4, 40, name="c"))
    for file in [file for file in (tmp_path / "checkpoint/spark").rglob("*") if file.is_file()]:
        file.unlink()
        if left is not None:
            file.write_bytes(left)
    run(spark, made)
    assert [(row["id"], row["name"]) for row in rows(tmp_path)] == [(1, "a"), (2, "a"), (3, "b"), (4, "c")]
    assert sorted(record["time"] for record in records(tmp_path)) == [10, 20, 30, 40]


def test_new_tables_and_columns_need_no_restart(spark: SparkSession, tmp_path: Path) -> None:
    made = settings(tmp_path, "delta")
    put(tmp_path, "n1", person(1, 10, name="a"))
    run(spark, made)
    wider = TableSchema(PEOPLE.table, (*PEOPLE.columns, Column("city", t.TEXT)), version=2, source="cassandra")
    other = TableSchema(TableId("shop", "new"), PEOPLE.columns, source="cassandra")
    # The old and the new version in one batch, and the old one after the new one, from another node.
    put(tmp_path, "n1", person(2, 20, name="b"))
    put(tmp_path, "n1", person(1, 30, city="x"), schema=wider)
    put(tmp_path, "n2", person(1, 10, name="a"), person(3, 40, name="c"))
    put(tmp_path, "n1", person(9, 50, name="z"), schema=other)
    run(spark, made)
    assert [(row["id"], row["name"], row["city"]) for row in rows(tmp_path)] == [
        (1, "a", "x"),
        (2, "b", None),
        (3, "c", None),
    ]
    assert [row["id"] for row in rows(tmp_path, "shop/new")] == [9]


def test_many_tables_go_through_one_query(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(40):
        for node in ("n1", "n2"):
            many_logs.write(tmp_path / node, f"t{number}", 0, 2, each=3)
    status = run(spark, settings(tmp_path, "files", record=RecordType.CHANGE)).status()
    assert len(status.tables) == 40
    assert {(table.copies, table.records) for table in status.tables.values()} == {(12, 6)}
    assert status.batches == 1
    assert len(records(tmp_path)) == 240


def test_cells_that_expire_disappear_at_their_time(spark: SparkSession, tmp_path: Path) -> None:
    class SetClock:
        now_s = 1000

        def now_us(self) -> int:
            return self.now_s * 1_000_000

        def monotonic(self) -> float:
            return float(self.now_s)

    clock = SetClock()
    made = settings(tmp_path, "delta")
    brief = Change(
        Op.INSERT, {"id": 1}, {"name": Set("a", expiry=Expiry(60, 1060)), "age": Set(5)}, time=10, marker=Marker()
    )
    put(tmp_path, "n1", brief)
    Pipeline(made, spark=spark, clock=clock).run(available_now=True)
    assert [(row["name"], row["age"]) for row in rows(tmp_path)] == [("a", 5)]
    clock.now_s = 1061
    put(tmp_path, "n2", person(2, 30, name="b"))
    Pipeline(made, spark=spark, clock=clock).run(available_now=True)
    assert [(row["name"], row["age"]) for row in rows(tmp_path)] == [(None, 5), ("b", None)]


def test_row_goes_at_its_time_although_nothing_new_comes(spark: SparkSession, tmp_path: Path) -> None:
    expiry = Expiry(12, int(time.time()) + 12)
    put(
        tmp_path, "n1", Change(Op.INSERT, {"id": 1}, {}, time=10, marker=Marker(expiry=expiry)), person(2, 20, name="b")
    )
    pipeline = Pipeline(settings(tmp_path, "delta"), spark=spark)
    thread = threading.Thread(target=pipeline.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 300
    # The second batch is the one that nothing but the time has begun.
    while pipeline.status().batches < 2:
        assert time.monotonic() < deadline
        assert thread.is_alive()
        thread.join(0.2)
    assert [row["id"] for row in rows(tmp_path)] == [2]
    pipeline.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert pipeline.status().failures == 0


def test_transforms_stand_between_the_merge_and_the_sinks(spark: SparkSession, tmp_path: Path) -> None:
    made = settings(
        tmp_path,
        "delta",
        transform=TransformSettings(
            filters={"shop.people": "age >= 18"},
            masks={"shop.people.name": "truncate:1"},
            routes={"shop.*": "lake.{table}"},
        ),
    )
    put(tmp_path, "n1", person(1, 10, name="Anne", age=20), person(2, 10, name="Bob", age=7))
    run(spark, made)
    assert [(row["id"], row["name"]) for row in rows(tmp_path, "lake/people")] == [(1, "A")]
    put(tmp_path, "n2", Change(Op.UPDATE, {"id": 1}, {"age": Set(9)}, time=20))
    put(tmp_path, "n3", Change(Op.UPDATE, {"id": 2}, {"age": Set(18)}, time=20))
    run(spark, made)
    assert [(row["id"], row["name"]) for row in rows(tmp_path, "lake/people")] == [(2, "B")]


def test_target_that_is_down_at_the_start_is_waited_for_once_it_was_delivered_to(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(_: object) -> None:
        raise DeliveryFailed("the target cannot be reached")

    put(tmp_path, "n1", person(1, 100, name="a"))
    with monkeypatch.context() as patched:
        patched.setattr(FilesSink, "check", down)
        with pytest.raises(DeliveryFailed):
            run(spark, settings(tmp_path, "files"))
        assert records(tmp_path) == []
    run(spark, settings(tmp_path, "files"))
    put(tmp_path, "n1", person(2, 200, name="b"))
    monkeypatch.setattr(FilesSink, "check", down)
    run(spark, settings(tmp_path, "files"))
    assert len(records(tmp_path)) == 2


def test_checkpoint_of_another_pipeline_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "n1", person(1, 10, name="a"))
    run(spark, settings(tmp_path, "files"))
    with pytest.raises(InvalidSetting, match="belongs to pipeline test, not other"):
        Pipeline(settings(tmp_path, "files", name="other"), spark=spark)


def test_condition_that_does_not_fit_its_table_is_refused_before_anything_is_delivered(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "n1", person(1, 10, name="a"))
    made = settings(tmp_path, "files", transform=TransformSettings(filters={"shop.people": "size > 3"}))
    with pytest.raises(InvalidStatement, match="size"):
        run(spark, made)
    assert records(tmp_path) == []


def test_removed_files_of_a_log_are_told_with_the_gap(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "n1"
    directory = many_logs.write(root, "t", 0, 40, each=20, settings=many_logs.SMALL_FILES)
    made = settings(tmp_path, "files", nodes=("n1",), rows_per_batch=20, record=RecordType.CHANGE)
    run(spark, made)
    many_logs.write(root, "t", 800, 40, each=20, settings=many_logs.SMALL_FILES)
    data = sorted(Path(directory).glob("*.avro"))
    for file in data[:-1]:
        file.unlink()
    trouble = run(spark, made).status().troubles["shop.t"]
    assert trouble.error == "ChangesLost"
    assert "after" in trouble.reason


def test_sink_that_must_not_follow_a_new_column_stops_the_table(spark: SparkSession, tmp_path: Path) -> None:
    made = settings(tmp_path, "delta", delta=DeltaSettings(directory=tmp_path / "lake", schema_policy="fail"))
    put(tmp_path, "n1", person(1, 10, name="a"))
    run(spark, made)
    wider = TableSchema(PEOPLE.table, (*PEOPLE.columns, Column("city", t.TEXT)), version=2, source="cassandra")
    put(tmp_path, "n1", person(1, 30, city="x"), schema=wider)
    assert "column city" in run(spark, made).status().troubles["shop.people"].reason
    assert [(row["id"], row["name"]) for row in rows(tmp_path)] == [(1, "a")]


def test_sink_that_fails_in_a_task_fails_the_batch_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "n1", person(1, 10, name="a"))
    blocked = tmp_path / "files"
    blocked.write_text("a file where the directory should be")
    with pytest.raises(PenstockError):
        run(spark, settings(tmp_path, "files"))
    blocked.unlink()
    run(spark, settings(tmp_path, "files"))
    assert [record["key"]["id"] for record in records(tmp_path)] == [1]
