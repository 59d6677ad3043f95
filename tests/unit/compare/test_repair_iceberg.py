"""Comparison and repair of Iceberg tables, through the sink that wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.compare.comparison import DOUBLED, Kind, compare
from penstock.compare.iceberg_rows import IcebergRows
from penstock.compare.lake_rows import LakeShape
from penstock.compare.repair import repair
from penstock.deliver.iceberg.sink import IcebergSink
from penstock.errors import InvalidInput
from penstock.settings.sinks import IcebergSettings
from tests.given_rows import GivenRows
from tests.lake_records import SCHEMA, by_key, deliver, records

WANTED: dict[tuple[Any, ...], dict[str, Any]] = {
    (number, "a"): {"note": f"n{number}", "amount": number} for number in range(5)
}


def source() -> GivenRows:
    return GivenRows(SCHEMA, LakeShape(), [{"id": key[0], "line": key[1], **row} for key, row in WANTED.items()])


def test_missing_different_extra_and_doubled_rows_become_what_the_source_has(tmp_path: Path) -> None:
    settings = IcebergSettings(warehouse=tmp_path)
    sink = IcebergSink(settings)
    sink.prepare([SCHEMA])
    rows = {**WANTED, (2, "a"): {"note": "wrong", "amount": None}, (9, "z"): {"note": "too many", "amount": 1}}
    deliver(sink, 0, {0: [records(SCHEMA, [item for item in rows.items() if item[0] != (1, "a")])]})
    table = sink.catalog().load_table("shop.orders")
    table.append(table.scan(row_filter="id = 3").to_arrow())
    target = IcebergRows("iceberg:shop.orders", SCHEMA, settings)
    report = compare(source(), target, ranges=4)
    assert report.counts == {Kind.MISSING: 1, Kind.EXTRA: 2, Kind.DIFFERENT: 1}
    assert [each.key for each in report.differences if DOUBLED in each.columns] == ['[3, "a"]']
    done = repair(source(), target, report, pipeline="p")
    assert (done.repaired, done.left.total) == (4, 0)
    found = sink.catalog().load_table("shop.orders").scan().to_arrow().to_pylist()
    assert by_key(found) == WANTED
    # The pipeline goes on where it was.
    deliver(sink, 1, {0: [records(SCHEMA, [((3, "a"), None)])]})
    assert len(sink.catalog().load_table("shop.orders").scan().to_arrow()) == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [("iceberg:orders", "named iceberg:namespace.table"), ("iceberg:shop.nothing", "no such Iceberg table")],
)
def test_a_table_that_is_not_there_is_told(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        list(IcebergRows(name, SCHEMA, IcebergSettings(warehouse=tmp_path)).batches())
