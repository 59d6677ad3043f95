"""Search indices as a target of comparisons: documents that differ are found, and repaired without winning a race."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.compare import search_rows
from penstock.compare.comparison import Difference, Kind, Report, compare
from penstock.compare.repair import Repaired, repair
from penstock.compare.search_rows import SearchRows, SearchShape, search_settings
from penstock.deliver.search.client import NoAnswer
from penstock.deliver.search.sink import SearchSink
from penstock.deliver.sink import Task
from penstock.errors import InvalidInput, TargetRefused
from penstock.model import types as t
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import SchemaPolicy
from penstock.settings.sinks import SearchSettings
from tests.given_rows import GivenRows
from tests.row_records import put, records_of
from tests.scripted_search import ScriptedSearch, scripted_search

SCHEMA = TableSchema(
    TableId("shop", "orders"),
    (
        Column("id", t.INT64, Role.PARTITION),
        Column("line", t.TEXT, Role.CLUSTERING),
        Column("note", t.TEXT),
        Column("sizes", t.map_of(t.TEXT, t.FLOAT64)),
        Column("_id", t.DECIMAL),
    ),
)


@pytest.fixture
def cluster() -> Iterator[ScriptedSearch]:
    with scripted_search() as made:
        yield made


def settings_for(cluster: ScriptedSearch, **settings: Any) -> SearchSettings:
    return search_settings(SearchSettings(**settings), f"{cluster.url}/orders")


def fill(cluster: ScriptedSearch, *numbers: int, version: int = 10, note: str = "n") -> None:
    """Documents as the sink writes them."""
    sink = SearchSink(settings_for(cluster))
    sink.prepare([SCHEMA])
    with sink.writer(Task("p", 1, 0, 0)) as writer:
        changes = [
            put({"id": n, "line": "a"}, version, note=f"{note}{n}", sizes=(("b", 1.0), ("a", 2.5))) for n in numbers
        ]
        writer.write(records_of(SCHEMA, changes))
        writer.finish()


def row(number: int, note: str = "n") -> dict[str, Any]:
    return {"id": number, "line": "a", "note": f"{note}{number}", "sizes": [("b", 1.0), ("a", 2.5)]}


def source_of(*rows: dict[str, Any] | None) -> GivenRows:
    return GivenRows(SCHEMA, SearchShape(), list(rows))


def target_of(cluster: ScriptedSearch, waits: list[float] | None = None, **settings: Any) -> SearchRows:
    return SearchRows(
        settings_for(cluster, **settings), SCHEMA, sleep=(lambda _: None) if waits is None else waits.append
    )


def repaired(source: GivenRows, target: SearchRows) -> tuple[Report, Repaired]:
    report = compare(source, target, ranges=4)
    return report, repair(source, target, report, pipeline="p")


def test_documents_that_the_sink_wrote_are_the_same_however_their_json_is_written(
    cluster: ScriptedSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_rows, "_PAGE_DOCUMENTS", 4)
    fill(cluster, *range(10))
    version, document = cluster.documents["orders", "3|a"]
    assert document is not None
    cluster.documents["orders", "3|a"] = version, {"sizes": {"a": 2.5, "b": 1.0}, **document, "_x005F_id": None}
    report = compare(source_of(*map(row, range(10)), None), target_of(cluster))
    assert (report.source_rows, report.target_rows, report.differences) == (10, 10, [])
    assert cluster.scrolls == 0


def test_missing_different_and_extra_documents_are_repaired(cluster: ScriptedSearch) -> None:
    fill(cluster, *range(10))
    del cluster.documents["orders", "3|a"]
    cluster.documents["orders", "4|a"] = 11, {"id": 4, "line": "a", "note": "by hand"}
    cluster.documents["orders", "not ours"] = 2, {"anything": 1}
    fill(cluster, 77)
    report, done = repaired(source_of(*map(row, range(10))), target_of(cluster))
    assert report.counts == {Kind.MISSING: 1, Kind.EXTRA: 2, Kind.DIFFERENT: 1}
    found = {difference.key: difference.columns for difference in report.differences}
    assert found['["4|a"]'] == ("note", "sizes")
    assert (done.settled, done.repaired, done.left.total) == (0, 4, 0)
    assert cluster.rows("orders").keys() == {f"{number}|a" for number in range(10)}
    assert cluster.rows("orders")["4|a"] == {"id": 4, "line": "a", "note": "n4", "sizes": {"b": 1.0, "a": 2.5}}


def test_repair_takes_the_least_version_that_wins(cluster: ScriptedSearch) -> None:
    fill(cluster, 1, 2, version=1000)
    cluster.documents["orders", "2|a"] = 1001, {"id": 2}
    cluster.documents["orders", "9|a"] = 1002, {"id": 9}
    before = len(cluster.bulks)
    repaired(source_of(row(1), row(2), row(3)), target_of(cluster))
    sent = {id_: (action, meta["version"]) for bulk in cluster.bulks[before:] for action, id_, meta, _ in bulk}
    assert sent == {"2|a": ("index", 1001), "3|a": ("index", 0), "9|a": ("delete", 1002)}


def test_change_that_the_pipeline_delivers_meanwhile_wins(cluster: ScriptedSearch) -> None:
    fill(cluster, 1, 2, version=1000)
    rows: list[dict[str, Any] | None] = [row(1, "old"), row(3)]
    report = compare(source_of(*rows), target_of(cluster))
    sent: list[int] = []

    def before(reading: int) -> None:
        if reading == 0:
            # The index was read, the source was not yet: every row is changed and delivered.
            fill(cluster, 1, 2, 3, version=2000, note="newest")
            sent.append(len(cluster.bulks))
        else:
            rows[:] = [row(number, "newest") for number in (1, 2, 3)]

    source = GivenRows(SCHEMA, SearchShape(), rows, before)
    done = repair(source, target_of(cluster), report, pipeline="p")
    tried = {(action, id_) for bulk in cluster.bulks[sent[0] :] for action, id_, _, _ in bulk}
    assert tried == {("index", "1|a"), ("delete", "2|a"), ("index", "3|a")}
    found = {id_: one["note"] for id_, one in cluster.rows("orders").items()}
    assert found == {"1|a": "newest1", "2|a": "newest2", "3|a": "newest3"}
    assert done.left.total == 0


def test_document_whose_deletion_is_remembered_is_written_with_a_greater_version(cluster: ScriptedSearch) -> None:
    fill(cluster, 1)
    cluster.documents["orders", "1|a"] = 5000, None
    report, done = repaired(source_of(row(1)), target_of(cluster))
    assert (report.total, done.repaired, done.left.total) == (1, 1, 0)
    assert cluster.documents["orders", "1|a"][0] > 1_600_000_000_000_000


def test_document_that_is_refused_is_left(cluster: ScriptedSearch) -> None:
    fill(cluster, 1, 2)
    cluster.refuse = lambda id_: (400, "mapper_parsing_exception") if id_ == "1|a" else None
    _, done = repaired(source_of(row(1, "x"), row(2, "x")), target_of(cluster))
    assert done.repaired == 1
    assert done.left.differences == [Difference(Kind.DIFFERENT, '["1|a"]', ("note",))]


def test_deletion_that_is_refused_is_an_error(cluster: ScriptedSearch) -> None:
    fill(cluster, 1)
    cluster.refuse = lambda _: (403, "security_exception")
    with pytest.raises(TargetRefused, match="has not deleted"):
        repaired(source_of(), target_of(cluster))


def test_columns_that_the_index_leaves_out_are_not_compared(cluster: ScriptedSearch) -> None:
    fill(cluster, 1)
    del cluster.indices["orders"]["mappings"]["properties"]["note"]
    target = target_of(cluster, schema_policy=SchemaPolicy.IGNORE)
    source = source_of(row(1, "another"))
    assert isinstance(source.shape, SearchShape)
    source.shape.columns = target.columns()
    assert compare(source, target).same
    source.shape.columns = target_of(cluster).columns()
    assert not compare(source, target).same


def test_busy_cluster_is_asked_again_when_documents_are_deleted(cluster: ScriptedSearch) -> None:
    fill(cluster, 1)
    cluster.script = [429, 503]
    waits: list[float] = []
    _, done = repaired(source_of(), target_of(cluster, waits))
    assert (done.repaired, done.left.total, len(waits)) == (1, 0, 2)


def test_cluster_that_stays_away_is_an_error() -> None:
    waits: list[float] = []
    away = SearchRows(search_settings(SearchSettings(), "http://127.0.0.1:1/orders"), SCHEMA, sleep=waits.append)
    with pytest.raises(NoAnswer, match="busy or away"):
        compare(source_of(), away)
    assert len(waits) == 10


def test_missing_index_and_refused_login_are_told(cluster: ScriptedSearch) -> None:
    with pytest.raises(InvalidInput, match="there is no such index"):
        compare(source_of(row(1)), target_of(cluster))
    cluster.authorization = "Basic eDp5"
    with pytest.raises(TargetRefused, match="security_exception"):
        compare(source_of(row(1)), target_of(cluster))
    cluster.indices["orders"] = {"mappings": {}}
    assert compare(source_of(), target_of(cluster, username="x", password="y")).same


@pytest.mark.parametrize(
    "url", ["http://host:9200", "http://host:9200/", "http:///index", "http://host/index?x=1", "http://u:p@host/index"]
)
def test_target_that_names_no_index_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        search_settings(SearchSettings(), url)


def test_index_may_stand_behind_a_path_and_keep_its_name() -> None:
    made = search_settings(SearchSettings(), "https://host/search/orders%2B%7Bx%7D")
    assert made.urls == ("https://host/search",)
    assert made.index == "orders+{{x}}"
    assert json.loads(made.model_dump_json())["index"] == "orders+{{x}}"
