"""Delta tables of ours under Delta's own Spark: it reads them, changes them and optimises them, and we go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.lakehouse.history import scd2_query
from penstock.errors import DeliveryFailed
from penstock.formats import avro
from penstock.formats.arrow import to_arrow
from penstock.model import types
from penstock.model.change import Change, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Kind
from penstock.records.records import Records, row_type
from penstock.settings.sinks import DeltaSettings
from tests.every_type import EVERY_TYPE
from tests.integration.pipeline.delta_spark import Sql
from tests.lake_records import SCHEMA, TABLE, by_key, deliver, query, records


def row(note: str, amount: int | None = 1) -> dict[str, Any]:
    return {"note": note, "amount": amount}


def test_spark_reads_changes_and_optimises_a_table_that_we_go_on_writing(tmp_path: Path, sql: Sql) -> None:
    directory = tmp_path / "shop/orders"
    table = f"delta.`{directory}`"
    sink = DeltaSink(DeltaSettings(directory=tmp_path, checkpoint_every=4))
    sink.prepare([SCHEMA])
    for batch in range(6):
        rows = [((number, "a"), row(f"b{batch}", batch)) for number in range(batch, 10)]
        deliver(sink, batch, {0: [records(SCHEMA, rows)]})
    expected = {(number, "a"): row(f"b{min(number, 5)}", min(number, 5)) for number in range(10)}
    assert by_key(sql(f"SELECT * FROM {table}")) == expected
    # Filters use the statistics of files whose vectors have deleted rows.
    assert sql(f"SELECT count(*) AS n FROM {table} WHERE note = 'b5' AND amount >= 5 AND id < 9") == [{"n": 4}]

    sql(f"DELETE FROM {table} WHERE id = 3")
    deliver(sink, 6, {0: [records(SCHEMA, [((4, "a"), row("after the delete"))])]})
    del expected[3, "a"]
    expected[4, "a"] = row("after the delete")
    assert by_key(sql(f"SELECT * FROM {table}")) == expected

    sql(f"UPDATE {table} SET note = 'by hand' WHERE id = 5")
    sql(f"OPTIMIZE {table}")
    last = {0: [records(SCHEMA, [((5, "a"), None), ((6, "a"), row("last")), ((3, "a"), row("back"))])]}
    with pytest.raises(DeliveryFailed):
        deliver(sink, 7, last)
    deliver(sink, 7, last)
    del expected[5, "a"]
    expected[6, "a"] = row("last")
    expected[3, "a"] = row("back")
    assert by_key(sql(f"SELECT * FROM {table}")) == expected
    assert by_key(query(directory)) == expected

    sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
    sql(f"VACUUM {table} RETAIN 0 HOURS")
    deliver(sink, 8, {0: [records(SCHEMA, [((9, "a"), None)])]})
    del expected[9, "a"]
    assert by_key(sql(f"SELECT * FROM {table}")) == expected


def test_spark_sees_history_and_the_scd2_view_and_evolved_columns(tmp_path: Path, sql: Sql) -> None:
    sink = DeltaSink(DeltaSettings(directory=tmp_path, history=True))
    sink.prepare([SCHEMA])
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((1, "a"), row("two"))])]})
    wider = TableSchema(
        TABLE, (*SCHEMA.columns[:3], Column("amount", types.INT64), Column("paid", types.BOOLEAN)), version=2
    )
    sink.prepare([wider])
    newer = records(wider, [((2, "a"), {**row("x", 1 << 40), "paid": True}), ((1, "a"), None)], version=10)
    deliver(sink, 1, {0: [newer]})
    found = sql(scd2_query(wider, f"delta.`{tmp_path}/shop/orders_history`") + " ORDER BY id, valid_from")
    shown = [(each["id"], each["note"], each["amount"], each["valid_from"], each["valid_to"]) for each in found]
    assert shown == [(1, "one", 1, 1, 2), (1, "two", 1, 2, 11), (2, "x", 1 << 40, 10, None)]
    assert sql(f"SELECT * FROM delta.`{tmp_path}/shop/orders`") == [
        {"id": 2, "line": "a", **row("x", 1 << 40), "paid": True}
    ]


def test_spark_reads_every_type(tmp_path: Path, sql: Sql) -> None:
    columns = [Column("id", types.INT64, Role.PARTITION)]
    columns += [Column(f"c{number}", type_) for number, (type_, _) in enumerate(EVERY_TYPE)]
    schema = TableSchema(TableId("shop", "everything"), tuple(columns), source="sandbox")
    calendar = (Kind.DATE, Kind.TIMESTAMP, Kind.DATETIME)
    last = [0 if type_.kind in calendar else values[-1] for type_, values in EVERY_TYPE]
    cells = {f"c{number}": Set(value) for number, value in enumerate(last)}
    changes = avro.encode(schema, [Change(Op.INSERT, {"id": 1}, cells)])
    found = to_arrow(changes)
    arrays = [found.column("cells").field(name).field("value") for name in cells]
    after = pa.StructArray.from_arrays([found.column("key").field("id"), *arrays], fields=list(row_type(schema)))
    sink = DeltaSink(DeltaSettings(directory=tmp_path))
    sink.prepare([schema])
    deliver(sink, 0, {0: [Records(schema, changes, after, None, pa.array([1], pa.int64()))]})
    texts = ", ".join(f"CAST({name} AS STRING) AS {name}" for name in cells)
    read = sql(f"SELECT {texts} FROM delta.`{tmp_path}/shop/everything`")[0]
    shown = {str(type_.kind): read[f"c{number}"] for number, (type_, _) in enumerate(EVERY_TYPE) if not type_.elements}
    assert shown["uint64"] == str((1 << 64) - 1)
    assert shown["varint"] == str(-(1 << 900))
    assert shown["decimal"] == str(1 << 500)
    assert shown["uuid"] == "ffffffff-ffff-ffff-ffff-ffffffffffff"
    assert shown["inet"] == "2001:db8::1"
    assert shown["date"] == "1970-01-01"
    assert shown["datetime"] == "1970-01-01 00:00:00"
    assert shown["time"] == "86399999999999"
    assert shown["flags"] == "[a, b]"
    assert read["c44"] == "{a -> 1, b -> null}"
    assert read["c47"] == "{Elm, 7, [a, b]}"
    assert read["c51"] == "[{1 -> [1970-01-01, 1970-01-02], 2 -> null}, {}]"
