"""IcebergSink: current rows and history through pyiceberg, exactly once."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table

from penstock.deliver.iceberg import table as iceberg_table
from penstock.deliver.iceberg.sink import IcebergSink
from penstock.deliver.sink import Task
from penstock.errors import CorruptCheckpoint, DeliveryFailed, InvalidSetting, SchemaRefused
from penstock.model import types
from penstock.model.schema import Column, TableId, TableSchema
from penstock.settings import SchemaPolicy
from penstock.settings.sinks import IcebergSettings
from tests.lake_records import SCHEMA, TABLE, by_key, deliver, records


def make(directory: Path, *schemas: TableSchema, **settings: Any) -> IcebergSink:
    sink = IcebergSink(IcebergSettings(warehouse=directory, **settings))
    sink.check()
    sink.prepare(schemas or (SCHEMA,))
    return sink


def load(directory: Path, name: str = "shop.orders") -> Table:
    properties = {"type": "sql", "uri": f"sqlite:///{directory}/penstock.db", "warehouse": directory.as_uri()}
    return load_catalog("penstock", **properties).load_table(name)


def current(directory: Path) -> dict[Any, Any]:
    return by_key(load(directory).scan().to_arrow().to_pylist())


def row(note: str, amount: int | None = 1) -> dict[str, Any]:
    return {"note": note, "amount": amount}


def test_rows_are_inserted_changed_and_deleted_by_key(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((1, "b"), row("two")), ((2, "a"), row("three"))])]})
    second = {0: [records(SCHEMA, [((1, "b"), None), ((9, "z"), None)])], 1: [records(SCHEMA, [((2, "a"), row("4"))])]}
    deliver(sink, 1, second)
    assert current(tmp_path) == {(1, "a"): row("one"), (2, "a"): row("4")}
    assert not list((tmp_path / "spool").rglob("*.parquet"))


def test_only_files_with_changed_rows_are_written_anew(tmp_path: Path) -> None:
    sink = make(tmp_path)
    for batch in range(3):
        deliver(sink, batch, {0: [records(SCHEMA, [((batch, "a"), row(f"b{batch}")), ((batch, "b"), row("x"))])]})
    before = {task.file.file_path for task in load(tmp_path).scan().plan_files()}
    deliver(sink, 3, {0: [records(SCHEMA, [((1, "a"), row("new"))])]})
    after = {task.file.file_path for task in load(tmp_path).scan().plan_files()}
    assert len(before & after) == 2
    assert current(tmp_path)[1, "a"] == row("new")


def test_a_batch_that_changes_many_files_holds_few_of_them_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make(tmp_path, buffer_bytes=1 << 20)
    note = "n" * 7000
    for batch in range(4):
        rows = [((batch * 100 + number, "a"), row(note)) for number in range(100)]
        deliver(sink, batch, {0: [records(SCHEMA, rows)]})
    files = len(list(load(tmp_path).scan().plan_files()))
    written: list[int] = []

    def noted(metadata: Any, rows: Any, io: Any) -> Any:
        written.append(rows.nbytes)
        return _dataframe_to_data_files(metadata, rows, io)

    monkeypatch.setattr(iceberg_table, "_dataframe_to_data_files", noted)
    deliver(sink, 4, {0: [records(SCHEMA, [((batch * 100, "a"), row("changed")) for batch in range(4)])]})
    assert files == 4
    # Each file has 700,000 bytes: two of them fill the buffer.
    assert len(written) == 2
    assert max(written) < 2 << 20
    found = current(tmp_path)
    assert len(found) == 400
    assert [found[batch * 100, "a"]["note"] for batch in range(4)] == ["changed"] * 4


def test_a_batch_that_comes_again_changes_nothing_and_an_older_one_is_refused(tmp_path: Path) -> None:
    sink = make(tmp_path, history=True)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    deliver(sink, 1, {0: [records(SCHEMA, [((1, "a"), row("two"))])]})
    deliver(make(tmp_path, history=True), 1, {0: [records(SCHEMA, [((1, "a"), row("never"))])]})
    assert current(tmp_path) == {(1, "a"): row("two")}
    table = load(tmp_path)
    assert table.properties["penstock.batch.p/shop.orders"] == "1"
    assert load(tmp_path, "shop.orders_history").scan().to_arrow().num_rows == 2
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["penstock.batch"] == "1"
    with pytest.raises(CorruptCheckpoint):
        deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})


def test_a_crash_between_tasks_and_commit_or_after_the_commit_leaves_one_of_each(tmp_path: Path) -> None:
    sink = make(tmp_path)
    with sink.writer(Task("p", 0, 0, 0)) as writer:
        writer.write(records(SCHEMA, [((1, "a"), row("one"))]))
        lost = writer.finish().payload
    payloads = deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    sink.commit("p", 0, payloads)
    sink.commit("p", 0, [lost])
    assert current(tmp_path) == {(1, "a"): row("one")}
    assert not list((tmp_path / "spool").rglob("*.parquet"))


def test_history_has_every_change(tmp_path: Path) -> None:
    sink = make(tmp_path, history=True, current=False)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((1, "a"), row("two"))])]})
    deliver(sink, 1, {0: [records(SCHEMA, [((1, "a"), None)], version=5)]})
    found = load(tmp_path, "shop.orders_history").scan().to_arrow().sort_by("_version").to_pylist()
    shown = [(each["id"], each["note"], each["_op"], each["_deleted"], each["_version"]) for each in found]
    assert shown == [(1, "one", "insert", False, 1), (1, "two", "insert", False, 2), (1, None, "delete", True, 5)]


def test_columns_are_added_and_widened_and_kept_apart(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((2, "a"), row("two"))])]})
    changed = (*SCHEMA.columns[:2], Column("note", types.INT32), Column("amount", types.INT64), Column("x", types.UUID))
    newer = TableSchema(TABLE, changed, version=2, source="sandbox")
    sink.prepare([newer])
    deliver(sink, 1, {0: [records(newer, [((2, "a"), {"note": 7, "amount": 1 << 40, "x": None})])]})
    assert current(tmp_path) == {
        (1, "a"): {**row("one"), "note__2": None, "x": None},
        (2, "a"): {"note": None, "amount": 1 << 40, "note__2": 7, "x": None},
    }


def test_the_policy_fail_stops_before_anything_is_altered(tmp_path: Path) -> None:
    make(tmp_path)
    newer = TableSchema(TABLE, (*SCHEMA.columns, Column("x", types.TEXT)), version=2, source="sandbox")
    with pytest.raises(SchemaRefused, match="column x"):
        make(tmp_path, newer, schema_policy=SchemaPolicy.FAIL)
    assert "x" not in load(tmp_path).schema().column_names


def test_another_writers_commit_makes_the_batch_be_done_again(tmp_path: Path) -> None:
    first, second = make(tmp_path), make(tmp_path)
    deliver(first, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    with second.writer(Task("q", 0, 0, 0)) as writer:
        writer.write(records(SCHEMA, [((2, "a"), row("two"))]))
        payload = writer.finish().payload
    table = second._tables["current", TABLE]
    loaded, refresh = table._loaded(), Table.refresh

    def outrun(self: Table) -> Table:
        """Another program commits right after this one has looked."""
        found = refresh(self)
        if self is loaded:
            load(tmp_path).append(load(tmp_path).scan().to_arrow().slice(0, 0))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Table, "refresh", outrun)
        with pytest.raises(DeliveryFailed):
            second.commit("q", 0, [payload])
    second.commit("q", 0, [payload])
    assert current(tmp_path) == {(1, "a"): row("one"), (2, "a"): row("two")}


def test_a_sink_travels_to_tasks_without_its_catalog(tmp_path: Path) -> None:
    sink = make(tmp_path)
    there = pickle.loads(pickle.dumps(sink))
    with there.writer(Task("p", 0, 0, 0)) as writer:
        writer.write(records(SCHEMA, [((1, "a"), row("one"))]))
        payload = writer.finish().payload
    sink.commit("p", 0, [payload])
    assert current(tmp_path) == {(1, "a"): row("one")}


def test_a_catalog_that_cannot_be_opened_is_said_before_the_stream_starts(tmp_path: Path) -> None:
    sink = IcebergSink(IcebergSettings(warehouse=tmp_path, catalog_properties={"type": "sql", "uri": "nonsense"}))
    with pytest.raises(InvalidSetting, match="catalog cannot be opened"):
        sink.check()


def test_a_table_of_an_earlier_run_takes_records_before_its_schema_is_seen_again(tmp_path: Path) -> None:
    deliver(make(tmp_path), 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((2, "a"), row("two"))])]})
    deliver(IcebergSink(IcebergSettings(warehouse=tmp_path)), 1, {0: [records(SCHEMA, [((1, "a"), None)])]})
    assert current(tmp_path) == {(2, "a"): row("two")}


def test_records_of_a_table_that_nobody_has_prepared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeliveryFailed, match="was not prepared"):
        deliver(IcebergSink(IcebergSettings(warehouse=tmp_path)), 0, {0: [records(SCHEMA, [((1, "a"), None)])]})


def test_two_tables_never_share_one_target(tmp_path: Path) -> None:
    other = TableSchema(TableId("other", "orders"), SCHEMA.columns, source="sandbox")
    with pytest.raises(InvalidSetting, match="would be the same"):
        make(tmp_path, SCHEMA, other, namespace="all")


def test_a_partition_with_static_values_only_is_a_row_without_clustering_values(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, None), row("static")), ((1, "a"), row("x")), ((2, None), row("y"))])]})
    assert current(tmp_path) == {(1, None): row("static"), (1, "a"): row("x"), (2, None): row("y")}
    deliver(sink, 1, {0: [records(SCHEMA, [((1, None), None), ((2, None), row("z")), ((3, None), None)])]})
    assert current(tmp_path) == {(1, "a"): row("x"), (2, None): row("z")}
