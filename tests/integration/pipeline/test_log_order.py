"""Tables that are ordered by their source's log, through the whole lane: what a database with one log gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.compare.comparison import compare
from penstock.compare.delta_rows import DeltaRows
from penstock.compare.lake_rows import LakeShape
from penstock.compare.log_rows import LogRows
from penstock.model import types as t
from penstock.model.change import Change, Op, Origin, Set, Transaction
from penstock.model.schema import Column, Order, Role, TableId, TableSchema
from penstock.settings import RecordType
from tests.integration.pipeline.test_pipeline import put, records, rows, run, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOCK = TableSchema(
    TableId("shop", "stock"),
    (Column("id", t.INT64, Role.PARTITION), Column("n", t.INT32), Column("note", t.TEXT)),
    source="mariadb",
    ordered_by=Order.LOG,
)


def change(op: Op, key: int | None, sequence: int, ordinal: int | None = 0, **cells: Any) -> Change:
    """One row's change of a transaction; all of them were committed in the same second."""
    origin = Origin(node="db1", transaction=Transaction("0", sequence, f"0-1-{sequence}"), ordinal=ordinal)
    named = {} if key is None else {"id": key}
    return Change(op, named, {n: Set(v) for n, v in cells.items()}, commit_time=1_700_000_000_000_000, origin=origin)


ONE_TWO_ONE = [
    change(Op.INSERT, 1, 1, 0, n=1, note="x"),
    change(Op.UPDATE, 1, 1, 1, n=2),
    change(Op.UPDATE, 1, 1, 2, n=1),
]


@pytest.mark.parametrize("record", list(RecordType))
def test_one_two_one_in_a_transaction_are_three_records(
    spark: SparkSession, tmp_path: Path, record: RecordType
) -> None:
    made = settings(tmp_path, "files", record=record, nodes=("db1",))
    put(tmp_path, "db1", *ONE_TWO_ONE, schema=STOCK)
    run(spark, made)
    found = records(tmp_path)
    assert [one["op"] for one in found] == ["insert", "update", "update"]
    if record is RecordType.CHANGE:
        assert [one["cells"]["n"]["value"] for one in found] == [1, 2, 1]
    else:
        assert [one["after"]["n"] for one in found] == [1, 2, 1]


def test_a_table_of_rows_is_what_the_database_has(spark: SparkSession, tmp_path: Path) -> None:
    made = settings(tmp_path, "delta", nodes=("db1", "again"))
    put(tmp_path, "db1", *ONE_TWO_ONE, change(Op.INSERT, 2, 2, n=2), change(Op.INSERT, 3, 2, 1, n=3), schema=STOCK)
    run(spark, made)
    later = [
        change(Op.DELETE, 2, 3),
        # The key of a row is altered, and another row takes the old one.
        change(Op.DELETE, 3, 4, 0),
        change(Op.INSERT, 4, 4, 1, n=3),
        change(Op.INSERT, 3, 4, 2, n=30),
    ]
    put(tmp_path, "db1", *later, schema=STOCK)
    # A second agent has captured the same log from its beginning.
    put(tmp_path, "again", *ONE_TWO_ONE, change(Op.INSERT, 2, 2, n=2), schema=STOCK)
    run(spark, made)
    expected = [(1, 1, "x"), (3, 30, None), (4, 3, None)]
    assert [(row["id"], row["n"], row["note"]) for row in rows(tmp_path, "shop/stock")] == expected
    source = LogRows([str(tmp_path / node / "shop.stock") for node in ("db1", "again")], STOCK.table, LakeShape(), 0)
    report = compare(source, DeltaRows(tmp_path / "lake" / "shop" / "stock", STOCK))
    assert (report.differences, report.source_rows) == ([], 3)
    put(tmp_path, "db1", change(Op.TRUNCATE, None, 5), change(Op.INSERT, 1, 6, n=6), schema=STOCK)
    run(spark, made)
    assert [(row["id"], row["n"], row["note"]) for row in rows(tmp_path, "shop/stock")] == [(1, 6, None)]
