"""Dead letters through the whole lane: refused in a Spark task, kept by the driver, listed and replayed by commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.main import main
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model.change import Change, Op, Set
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
retries = 3

[search]
urls = ["{url}"]
"""


def log(home: Path, *changes: Change) -> None:
    """Log changes on two nodes."""
    for node in ("n1", "n2"):
        with TableLog.open(str(home / node / "shop.orders"), sample.SCHEMA, node=node) as opened:
            opened.append(avro.encode(sample.SCHEMA, list(changes)))


def deliver(spark: SparkSession, config: Path) -> Pipeline:
    pipeline = Pipeline(load(str(config), {}), spark=spark)
    pipeline.run(available_now=True)
    return pipeline


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


FOLDED = """
[pipeline]
checkpoint_directory = "{home}/checkpoint"
logs = ["{home}/n1", "{home}/n2"]
sinks = ["files"]
buckets = 2
retries = 3

[files]
directory = "{home}/out"
format = "json"
compression = "none"
record = "{record}"
"""


def _ids(home: Path) -> list[int]:
    files = (home / "out").rglob("*.jsonl")
    return sorted(json.loads(line)["key"]["id"] for file in files for line in file.read_text().splitlines())


def test_a_change_that_cannot_be_folded_is_set_aside_and_delivered_when_it_can_be(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(FOLDED.format(home=tmp_path, record="after"))
    log(tmp_path, *(put({"id": number}, 10 + number, note=f"n{number}") for number in range(6)))
    log(tmp_path, Change(Op.INSERT, {"id": 99}, {"note": Set("timeless")}))
    pipeline = deliver(spark, config)
    assert _ids(tmp_path) == [0, 1, 2, 3, 4, 5]
    assert pipeline.status().sinks["fold"].dead == 1
    (letter,) = asked(capsys, "ls", config)
    assert (letter["sink"], letter["table"], letter["key"]) == ("fold", "shop.orders", '{"id":99}')
    assert letter["reason"] == "a change without a write time cannot be merged"
    # Given back without anything having changed it is set aside again, and stops nothing.
    assert asked(capsys, "replay", config, letter["id"]) == [{"sink": "fold", "given_back": 1}]
    assert asked(capsys, "ls", config) == []
    log(tmp_path, put({"id": 6}, 20, note="n6"))
    deliver(spark, config)
    assert _ids(tmp_path) == [0, 1, 2, 3, 4, 5, 6]
    (again,) = asked(capsys, "ls", config)
    assert again["key"] == '{"id":99}'
    assert again["id"] != letter["id"]
    # Changes that need not be merged into rows need no write time.
    config.write_text(FOLDED.format(home=tmp_path, record="change"))
    assert asked(capsys, "replay", config, "--all") == [{"sink": "fold", "given_back": 1}]
    deliver(spark, config)
    assert 99 in _ids(tmp_path)
    assert asked(capsys, "ls", config) == []
