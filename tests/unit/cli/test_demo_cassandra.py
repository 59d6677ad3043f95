"""`penstock demo --cassandra`: its options, and how it ends. The node itself is started by the integration tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import demo_cassandra
from penstock.cli.demo_cassandra import CassandraOutcome, CassandraPlan
from penstock.cli.live_view import Figures, ReaderFigures
from penstock.cli.main import main
from penstock.errors import LogFailed
from penstock.log.table_log import TableLog
from penstock.sandbox import cassandra_jars
from penstock.sandbox.cassandra_workload import ORDERS, USERS, Comparison
from tests import sample

EQUAL = Comparison(USERS, 120, 40, 0, 0)
DIFFERENT = Comparison(ORDERS, 80, 30, 2, 1)


def outcome(*comparisons: Comparison) -> CassandraOutcome:
    figures = Figures(acknowledged=200, elapsed_s=1.5, directory="here/logs")
    figures.readers = [ReaderFigures("billing", "shop.orders", "cassandra", changes=80, lag_ms=12.34)]
    return CassandraOutcome("5.0.9", figures, list(comparisons))


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[CassandraPlan]:
    """The plans that the command made, none of which is carried out."""
    made: list[CassandraPlan] = []

    def run(plan: CassandraPlan, *_: object) -> CassandraOutcome:
        made.append(plan)
        return outcome(EQUAL)

    monkeypatch.setattr(demo_cassandra, "run", run)
    return made


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seconds", "1"], "--version and --seconds go with --cassandra"),
        (["--version", "4.1.10"], "--version and --seconds go with --cassandra"),
        (["--cassandra", "--nodes", "dc1=1"], "with --cassandra there is one node"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], plans: list[CassandraPlan]
) -> None:
    assert main(["demo", *words]) == 1
    assert said in capsys.readouterr().err
    assert plans == []


def test_version_that_is_none_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--cassandra", "--version", "newest"]) == 1
    assert "not a version of Cassandra: 'newest'" in capsys.readouterr().err


def test_directory_of_an_earlier_demo_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "penstock-demo.json").write_text("{}")
    assert main(["demo", "--cassandra", "--dir", str(tmp_path)]) == 1
    assert "is not empty; name a new or an empty directory" in capsys.readouterr().err


def test_without_a_terminal_it_ends_by_itself(plans: list[CassandraPlan]) -> None:
    assert main(["demo", "--cassandra"]) == 0
    assert main(["demo", "--cassandra", "--rows", "5", "--version", "4.0.19"]) == 0
    assert [(plan.version, plan.rows, plan.seconds, plan.watched) for plan in plans] == [
        (cassandra_jars.LATEST, None, 10.0, False),
        ("4.0.19", 5, None, False),
    ]


def test_equal_rows_are_told(plans: list[CassandraPlan], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--cassandra", "--seconds", "1"]) == 0
    text = capsys.readouterr().out
    assert "200 writes acknowledged by Cassandra 5.0.9, 0 refused, in 1.5 s" in text
    assert "give exactly the 40 rows that Cassandra selects" in text


def test_difference_is_told_and_exits_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_cassandra, "run", lambda *_: outcome(EQUAL, DIFFERENT))
    assert main(["demo", "--cassandra", "--seconds", "1"]) == 1
    assert "DIFFERENT" in capsys.readouterr().out
    assert main(["demo", "--cassandra", "--seconds", "1", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["sound"] is False
    assert [table["missing"] for table in record["tables"]] == [0, 2]
    assert record["subscriptions"] == [{"name": "billing", "table": "shop.orders", "changes": 80, "behind": 0}]


def test_reader_that_failed_makes_it_unsound() -> None:
    failed = outcome(EQUAL)
    failed.errors.append(LogFailed("a sync failed"))
    assert not failed.sound
    assert demo_cassandra.summary(failed)["errors"] == ["a sync failed"]


def test_log_that_is_still_being_made_is_not_followed_yet(tmp_path: Path) -> None:
    directory = tmp_path / "shop.orders"
    directory.mkdir()
    assert not demo_cassandra.is_log(str(directory))
    with TableLog.open(str(directory), sample.SCHEMA):
        assert demo_cassandra.is_log(str(directory))
