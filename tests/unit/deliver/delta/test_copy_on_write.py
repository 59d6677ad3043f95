"""Delta tables without deletion vectors: delta-rs merges on the driver, exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from penstock.deliver.delta.sink import DeltaSink
from penstock.model import types
from penstock.model.schema import Column, TableSchema
from penstock.settings.sinks import DeltaSettings
from tests.lake_records import SCHEMA, TABLE, by_key, deliver, records


def make(directory: Path, **settings: Any) -> DeltaSink:
    sink = DeltaSink(DeltaSettings(directory=directory, deletion_vectors=False, **settings))
    sink.check()
    sink.prepare([SCHEMA])
    return sink


def row(note: str, amount: int | None = 1) -> dict[str, Any]:
    return {"note": note, "amount": amount}


def current(directory: Path) -> dict[Any, Any]:
    """Read by a reader that refuses deletion vectors."""
    return by_key(DeltaTable(str(directory / "shop/orders")).to_pyarrow_table().to_pylist())


def test_rows_are_merged_by_key_and_the_spool_is_empty_afterwards(tmp_path: Path) -> None:
    sink = make(tmp_path)
    first = [((1, "a"), row("one")), ((2, "a"), row("two")), ((3, "a"), row("three"))]
    deliver(sink, 0, {0: [records(SCHEMA, first)]})
    second = {0: [records(SCHEMA, [((1, "a"), None), ((9, "z"), None)])], 1: [records(SCHEMA, [((2, "a"), row("2"))])]}
    deliver(sink, 1, second)
    assert current(tmp_path) == {(2, "a"): row("2"), (3, "a"): row("three")}
    assert not list((tmp_path / "shop/orders/_penstock/spool").iterdir())


def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    deliver(sink, 1, {0: [records(SCHEMA, [((1, "a"), row("two"))])]})
    deliver(make(tmp_path), 1, {0: [records(SCHEMA, [((1, "a"), row("never"))])]})
    table = DeltaTable(str(tmp_path / "shop/orders"))
    assert (table.version(), table.transaction_version("p/shop.orders")) == (2, 1)
    assert current(tmp_path) == {(1, "a"): row("two")}


def test_the_later_of_two_records_of_one_row_counts_and_columns_are_added(tmp_path: Path) -> None:
    sink = make(tmp_path)
    wider = TableSchema(TABLE, (*SCHEMA.columns, Column("paid", types.BOOLEAN)), version=2, source="sandbox")
    sink.prepare([wider])
    given = [records(SCHEMA, [((1, "a"), row("one"))]), records(wider, [((1, "a"), {**row("two"), "paid": True})])]
    deliver(sink, 0, {0: given})
    assert current(tmp_path) == {(1, "a"): {**row("two"), "paid": True}}


def test_a_table_of_another_program_is_taken_over_as_it_is(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "line": ["a", "a"], "note": ["x", "y"], "amount": pa.array([1, 1], pa.int32())})
    write_deltalake(str(tmp_path / "shop/orders"), rows)
    deliver(make(tmp_path), 0, {0: [records(SCHEMA, [((1, "a"), None), ((2, "a"), row("z", None))])]})
    assert current(tmp_path) == {(2, "a"): row("z", None)}


def test_a_partition_with_static_values_only_is_a_row_without_clustering_values(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, None), row("static")), ((1, "a"), row("x")), ((2, None), row("y"))])]})
    assert current(tmp_path) == {(1, None): row("static"), (1, "a"): row("x"), (2, None): row("y")}
    deliver(sink, 1, {0: [records(SCHEMA, [((1, None), None), ((2, None), row("z")), ((3, None), None)])]})
    assert current(tmp_path) == {(1, "a"): row("x"), (2, None): row("z")}
