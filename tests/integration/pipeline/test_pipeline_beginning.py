"""A pipeline that begins on a Delta table with rows: what it tells of them, and what the table becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from penstock.cli.main import main
from penstock.deliver.lakehouse.types import lake_schema
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.change import Change, Deletion, Delta, Element, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.pipeline.pipeline import Pipeline
from penstock.settings import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = TableSchema(
    TableId("shop", "carts"),
    (
        Column("customer", t.UUID, Role.PARTITION),
        Column("item", t.TEXT, Role.CLUSTERING),
        Column("owner", t.TEXT, Role.STATIC),
        Column("count", t.INT32),
        Column("price", t.DECIMAL),
        Column("tags", t.set_of(t.TEXT, multi_cell=True)),
    ),
    source="cassandra",
)
ANN, BOB = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
CONFIG = """
[pipeline]
checkpoint_directory = "{home}/checkpoint"
logs = ["{home}/n1", "{home}/n2"]
sinks = ["delta", "files"]
buckets = 2
retries = 3

[delta]
directory = "{home}/lake"

[files]
directory = "{home}/out"
format = "json"
compression = "none"
record = "all"
"""


def row(customer: str, item: str | None, owner: str, count: int | None = None, **more: Any) -> dict[str, Any]:
    return {"customer": customer, "item": item, "owner": owner, "count": count, "price": None, "tags": None, **more}


def rows(home: Path) -> list[dict[str, Any]]:
    table = DeltaTable(str(home / "lake/shop/carts"))
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t ORDER BY customer, item").read_all()
    return list(pa.table(found).to_pylist())


def told(home: Path) -> list[tuple[Any, Any]]:
    files = sorted((home / "out").rglob("*.jsonl"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted(((one["before"], one["after"]) for one in found), key=repr)


def test_rows_of_a_delta_table_are_what_a_pipeline_begins_with(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(CONFIG.format(home=tmp_path))
    nut = row(ANN, "nut", "ann", 5, price="1.50", tags=["a"])
    bolt, alone = row(ANN, "bolt", "ann", 2), row(BOB, None, "bob")
    there = pa.Table.from_pylist([nut, bolt, alone], lake_schema(SCHEMA))
    vectors = {"delta.enableDeletionVectors": "true"}
    write_deltalake(str(tmp_path / "lake/shop/carts"), there, configuration=vectors)
    ann, bob = ({"customer": UUID(name)} for name in (ANN, BOB))
    changes = [
        Change(
            Op.UPDATE,
            {**ann, "item": "nut"},
            {"count": Set(6), "tags": Delta(None, (Element("b", None),))},
            time=2_000_000_000_000_000,
        ),
        Change(
            Op.DELETE, {**ann, "item": "bolt"}, time=2_000_000_000_000_001, deletion=Deletion(2_000_000_000_000_001)
        ),
        Change(Op.INSERT, {**bob, "item": "cog"}, {"count": Set(1)}, time=2_000_000_000_000_002, marker=Marker()),
        # A late copy of a write that the table has had for long.
        Change(Op.UPDATE, {**ann, "item": "nut"}, {"price": Set(None)}, time=1_000_000_000_000_000),
    ]
    for node in ("n1", "n2"):
        with TableLog.open(str(tmp_path / node / "shop.carts"), SCHEMA, node=node) as log:
            log.append(avro.encode(SCHEMA, changes))
    words = ["bootstrap", str(config), "--as-of", "2020-01-01", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"tables": {"shop.carts": 3}, "loaded": True}
    assert main(words) == 1
    assert "the pipeline has a state already" in capsys.readouterr().err
    Pipeline(load(str(config), {}), spark=spark).run(available_now=True)
    more = {**nut, "count": 6, "tags": ["a", "b"]}
    cog = row(BOB, "cog", "bob", 1)
    assert rows(tmp_path) == [more, cog]
    assert told(tmp_path) == sorted([(nut, more), (bolt, None), (alone, None), (None, cog)], key=repr)
