"""The scripts in examples/ do what the guide says. They run in the tests' own Spark, which they find by themselves."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.many_logs import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"


def run(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    for attempt in range(10):
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
            return
        except StreamingQueryException as error:
            # Spark waits ten seconds for the process of a Python source; on a busy machine that may be too short.
            if "connect back" not in str(error) or attempt == 9:
                raise


def test_read_changes_counts_them_by_node_and_operation(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.version.startswith("4.")
    for node in ("n1", "n2"):
        write(tmp_path / node, "orders", 0, 7, node=node)
    run(monkeypatch, "read_changes.py", "shop.orders", tmp_path / "n1", tmp_path / "n2")
    said = capsys.readouterr().out
    assert "|-- id: long" in said
    assert "|n1   |insert|7      |1970-01-01" in said
    assert "|n2   |insert|7      |" in said


def test_follow_changes_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    arguments = ["shop.orders", tmp_path / "n1", "--out", out, "--checkpoint", tmp_path / "checkpoint", "--once"]
    for first in (0, 10):
        write(tmp_path / "n1", "orders", first, 10)
        run(monkeypatch, "follow_changes.py", *arguments)
        found = sorted(row["id"] for row in spark.read.parquet(str(out)).select("id").collect())
        assert found == list(range(first + 10))
