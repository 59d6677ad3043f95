"""Dead letters through the whole lane: refused in a Spark task, kept by the driver, listed and replayed by commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.main import main
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model.change import Change
from penstock.pipeline.pipeline import Pipeline
from penstock.settings import load
from tests import sample
from tests.row_records import gone, put
from tests.scripted_search import ScriptedSearch, scripted_search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[pipeline]
checkpoint_directory = "{home}/checkpoint"
logs = ["{home}/n1", "{home}/n2"]
sinks = ["search"]
buckets = 2
retries = 0

[search]
urls = ["{url}"]
"""


def log(home: Path, *changes: Change) -> None:
    """Log changes on two nodes."""
    for node in ("n1", "n2"):
        with TableLog.open(str(home / node / "shop.orders"), sample.SCHEMA, node=node) as opened:
            opened.append(avro.encode(sample.SCHEMA, list(changes)))


def deliver(spark: SparkSession, config: Path) -> None:
    Pipeline(load(str(config), {}), spark=spark).run(available_now=True)


def asked(capsys: pytest.CaptureFixture[str], *words: object) -> list[Any]:
    """What a command prints with --json, an object per line."""
    capsys.readouterr()
    assert main(["dead-letters", *map(str, words), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_refused_document_is_listed_and_delivered_when_the_index_takes_it(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted_search() as cluster:
        config = tmp_path / "penstock.toml"
        config.write_text(CONFIG.format(home=tmp_path, url=cluster.url))
        log(tmp_path, *(put({"id": number}, 10 + number, note=f"n{number}") for number in range(6)))
        cluster.refuse = lambda id_: (400, "mapper_parsing_exception") if id_ == "3" else None
        deliver(spark, config)
        assert sorted(cluster.rows("orders")) == ["0", "1", "2", "4", "5"]
        log(tmp_path, gone({"id": 5}, 99))
        deliver(spark, config)
        assert sorted(cluster.rows("orders")) == ["0", "1", "2", "4"]
        (letter,) = asked(capsys, "ls", config)
        assert (letter["sink"], letter["table"], letter["key"]) == ("search", "shop.orders", '{"id":3}')
        assert "mapper_parsing_exception" in letter["reason"]
        assert asked(capsys, "replay", config, letter["id"]) == [{"sink": "search", "delivered": 0, "refused": 1}]
        _expect_taken_when_allowed(cluster, config, capsys)


def _expect_taken_when_allowed(cluster: ScriptedSearch, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.refuse = lambda _: None
    assert asked(capsys, "replay", config, "--all") == [{"sink": "search", "delivered": 1, "refused": 0}]
    assert cluster.documents["orders", "3"] == (13, {"id": 3, "note": "n3"})
    assert asked(capsys, "ls", config) == []
