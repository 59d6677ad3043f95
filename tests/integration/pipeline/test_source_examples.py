"""The scripts and the notebook in examples/ do what the guide says. They find the tests' own Spark by themselves."""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.many_logs import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"


def run(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    patiently(lambda: runpy.run_path(str(EXAMPLES / name), run_name="__main__"))


def patiently(work: Callable[[], object]) -> None:
    """Do it, and again where Spark lost patience with a process of its own."""
    for attempt in range(10):
        try:
            work()
            return
        except StreamingQueryException as error:
            # Spark waits ten seconds for the process of a Python source; on a busy machine that may be too short.
            if "connect back" not in str(error) or attempt == 9:
                raise


def cells(notebook: Path) -> list[str]:
    """The code of a notebook."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def test_notebook_shows_what_the_nodes_logged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in cells(EXAMPLES / "changes.ipynb"):
        patiently(lambda cell=cell: exec(cell, names))  # type: ignore[misc]
    assert spark.table("followed").count() == 180
    written = names["report"].collect()
    assert sum(row["written"] for row in written) >= names["rows_in_cluster"] > 0
    assert capsys.readouterr().out.count("|dc1-") == 3


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
