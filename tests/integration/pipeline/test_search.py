"""The search sink on real OpenSearch and Elasticsearch nodes: documents are the rows, whatever happens on the way."""

from __future__ import annotations

import json
import os
import random
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from penstock.compare.comparison import Kind, compare
from penstock.compare.repair import repair
from penstock.compare.search_rows import SearchRows, SearchShape, search_settings
from penstock.deliver.search.sink import SearchSink
from penstock.deliver.sink import Delivered, Task
from penstock.errors import DeliveryFailed, SchemaRefused
from penstock.model import types as t
from penstock.model.change import Change, Marker, Op
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.pipeline.dead_letters import DeadLetterStore, replay
from penstock.records.records import Records
from penstock.settings.sinks import MapFields, SearchSettings
from testkit.elasticsearch_server import ElasticsearchServer
from testkit.opensearch_server import OpenSearchServer
from testkit.search_server import SearchServer
from tests.counted import RecordProperty, differences, record
from tests.every_type import every_type_table
from tests.given_rows import GivenRows
from tests.row_records import gone, put, records_of

# Rounds in which the node is killed.
KILLS = int(os.environ.get("PENSTOCK_SEARCH_KILLS", "1"))
CACHE = Path(__file__).parent.parent.parent.parent / ".cache"


def table(name: str, *more: Column) -> TableSchema:
    key = (Column("id", t.INT64, Role.PARTITION), Column("line", t.TEXT, Role.CLUSTERING))
    return TableSchema(TableId("shop", name), (*key, Column("note", t.TEXT), *more))


@dataclass
class Node:
    """A node with the questions that the tests ask."""

    server: SearchServer

    def sink(self, sleep: Callable[[float], None] | None = None, **settings: Any) -> SearchSink:
        index_settings = {"number_of_replicas": "0", "refresh_interval": "-1"}
        made = SearchSettings(urls=(self.server.url,), index_settings=index_settings, **settings)
        return SearchSink(made) if sleep is None else SearchSink(made, sleep=sleep)

    def ask(self, method: str, path: str, content: object = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.server.url + path, body, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def documents(self, index: str) -> dict[str, dict[str, Any]]:
        self.ask("POST", f"/{index}/_refresh")
        found = self.ask("GET", f"/{index}/_search?size=10000")["hits"]["hits"]
        return {hit["_id"]: hit["_source"] for hit in found}


@pytest.fixture(scope="module", params=[OpenSearchServer, ElasticsearchServer], ids=["opensearch", "elasticsearch"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with request.param(tmp_path_factory.mktemp("search"), cache=CACHE) as server:
        yield Node(server)


def deliver(sink: SearchSink, *records: Records) -> Delivered:
    with sink.writer(Task("p", 1, 0, 0)) as writer:
        for each in records:
            writer.write(each)
        return writer.finish()


def test_documents_are_the_rows_and_are_found(node: Node) -> None:
    schema = table("orders")
    sink = node.sink()
    sink.check()
    sink.prepare([schema])
    rows = [put({"id": n, "line": "a|b"}, 10 + n, note=f"quick brown fox {n}") for n in range(300)]
    done = deliver(sink, records_of(schema, rows), records_of(schema, [gone({"id": 7, "line": "a|b"}, 99)]))
    assert (done.records, done.dead) == (301, [])
    found = node.documents("orders")
    assert len(found) == 299
    assert found["8|a\\|b"] == {"id": 8, "line": "a|b", "note": "quick brown fox 8"}
    query = {"query": {"bool": {"must": [{"match": {"note": "FOX"}}, {"range": {"id": {"lt": 3}}}]}}}
    assert node.ask("GET", "/orders/_search", query)["hits"]["total"]["value"] == 3


def every_type(node: Node, name: str) -> tuple[TableSchema, list[Change]]:
    """A table with columns of every type that the node has a field for, and rows of it."""
    schema, changes = every_type_table()
    # Its field for these is in none of the jars that there are.
    lacking = {t.UINT64} if isinstance(node.server, ElasticsearchServer) else set()
    columns = [column for column in schema.columns if column.type not in lacking]
    names = {column.name for column in columns}
    rows = []
    for at, one in enumerate(changes):
        if one.op is Op.INSERT:
            cells = {name: cell for name, cell in one.cells.items() if name in names}
            rows.append(replace(one, cells=cells, before=None, marker=Marker(), time=at + 1))
    return replace(schema, table=TableId("ks", name), columns=tuple(columns)), rows


def test_values_of_every_type_are_taken(node: Node) -> None:
    schema, changes = every_type(node, "every")
    sink = node.sink()
    sink.prepare([schema])
    done = deliver(sink, records_of(schema, changes))
    assert (done.records, done.dead) == (len(changes), [])
    assert len(node.documents("every")) == len(changes)
    # The mapping that the node made of ours is one that we take again.
    node.sink().prepare([schema])


def test_a_comparison_finds_documents_that_were_changed_and_a_repair_puts_them_right(node: Node) -> None:
    schema, rows = every_type(node, "repaired")
    sink = node.sink()
    sink.prepare([schema])
    records = records_of(schema, rows)
    deliver(sink, records)
    assert records.after is not None
    source = GivenRows(schema, SearchShape(), records.after)
    target = SearchRows(search_settings(SearchSettings(), f"{node.server.url}/repaired"), schema)
    assert compare(source, target).same
    right = node.documents("repaired")
    changed, deleted = sorted(right)[:2]
    node.ask("POST", f"/repaired/_update/{quote(changed, safe='')}", {"doc": {"owner": "by hand"}})
    node.ask("DELETE", f"/repaired/_doc/{quote(deleted, safe='')}")
    node.ask("PUT", "/repaired/_doc/not%20ours", {"id": 5})
    report = compare(source, target)
    assert report.counts == {Kind.MISSING: 1, Kind.EXTRA: 1, Kind.DIFFERENT: 1}
    done = repair(source, target, report, pipeline="p")
    assert (done.repaired, done.left.total) == (3, 0)
    assert node.documents("repaired") == right


def test_repeated_and_reordered_batches_never_go_backwards(node: Node) -> None:
    schema = table("shuffled")
    sink = node.sink()
    sink.prepare([schema])
    seed = random.Random(5)
    batches: list[list[Change]] = []
    last: dict[str, str | None] = {}
    for version in range(1, 13):
        changes = []
        for number in seed.sample(range(20), 12):
            key = {"id": number, "line": "x"}
            deleted = seed.random() < 0.3
            changes.append(gone(key, version) if deleted else put(key, version, note=f"v{version}"))
            last[f"{number}|x"] = None if deleted else f"v{version}"
        batches.append(changes)
    deliveries = batches * 3
    seed.shuffle(deliveries)
    for changes in deliveries:
        done = deliver(sink, records_of(schema, changes))
        assert (done.records, done.dead) == (len(changes), [])
    found = {id_: source["note"] for id_, source in node.documents("shuffled").items()}
    assert found == {id_: note for id_, note in last.items() if note is not None}


def test_a_late_change_does_not_bring_a_deleted_row_back(node: Node) -> None:
    schema = table("late")
    sink = node.sink()
    sink.prepare([schema])
    key = {"id": 1, "line": "x"}
    for change in (put(key, 5, note="a"), gone(key, 9), put(key, 7, note="late")):
        assert deliver(sink, records_of(schema, [change])).dead == []
    assert node.documents("late") == {}
    settings = node.ask("GET", "/late/_settings")["late"]["settings"]["index"]
    assert settings["gc_deletes"] == "3600s"


def test_a_new_column_extends_the_mapping_and_is_found(node: Node) -> None:
    old, new = (
        table("growing"),
        table("growing", Column("paid", t.BOOLEAN), Column("home", t.user("a", {"zip": t.INT32}))),
    )
    sink = node.sink()
    sink.prepare([old])
    deliver(sink, records_of(old, [put({"id": 1, "line": "x"}, 1, note="a")]))
    sink.prepare([new])
    deliver(sink, records_of(new, [put({"id": 2, "line": "x"}, 2, paid=True, home=(7,))]))
    assert len(node.documents("growing")) == 2
    for term in ({"paid": True}, {"home.zip": 7}):
        assert node.ask("GET", "/growing/_search", {"query": {"term": term}})["hits"]["total"]["value"] == 1


def test_a_mapping_that_does_not_fit_is_refused(node: Node) -> None:
    node.ask("PUT", "/misfit", {"mappings": {"properties": {"note": {"type": "date"}}}})
    with pytest.raises(SchemaRefused, match=r"note is date, not text; .*\(index misfit, table shop.misfit\)"):
        node.sink().prepare([table("misfit")])


def test_a_poison_document_goes_to_the_dead_letters_and_the_others_go_on(node: Node) -> None:
    # An index that somebody has made by hand, whose field takes no text longer than a term.
    node.ask("PUT", "/by-hand", {"mappings": {"properties": {"note": {"type": "keyword"}}}})
    schema = table("by-hand")
    sink = node.sink()
    sink.prepare([schema])
    rows = [put({"id": n, "line": "x"}, n, note="v" * (40_000 if n == 3 else 1)) for n in range(1, 6)]
    done = deliver(sink, records_of(schema, rows))
    assert [(letter.key, "note" in letter.reason) for letter in done.dead] == [('{"id":3,"line":"x"}', True)]
    assert (done.records, len(node.documents("by-hand"))) == (4, 4)


@pytest.mark.parametrize("node", [OpenSearchServer], indirect=True, ids=["opensearch"])
def test_a_map_that_cannot_be_searched_is_set_aside_and_replayed_where_it_is_only_kept(
    node: Node, tmp_path: Path
) -> None:
    schema = table("poison", Column("tags", t.map_of(t.TEXT, t.TEXT)))
    sink = node.sink()
    sink.prepare([schema])
    rows = [put({"id": n, "line": "x"}, n, tags=(("k", "v" * (40_000 if n == 3 else 1)),)) for n in range(1, 6)]
    done = deliver(sink, records_of(schema, rows))
    (letter,) = done.dead
    assert letter.key == '{"id":3,"line":"x"}'
    assert "immense term" in letter.reason
    assert done.records == 4
    store = DeadLetterStore(tmp_path)
    store.add(1, done.dead)
    again = replay(store, sink, list(store.letters()), pipeline="p", now_us=5)
    assert (again.delivered, again.refused, len(list(store.letters()))) == (0, 1, 1)
    # An index that keeps maps without searching them takes it.
    stored = node.sink(index="stored-{table}", map_fields=MapFields.STORED)
    again = replay(store, stored, list(store.letters()), pipeline="p", now_us=6)
    assert (again.delivered, again.refused, list(store.letters())) == (1, 0, [])
    assert len(node.documents("stored-poison")["3|x"]["tags"]["k"]) == 40_000


def test_a_node_that_is_killed_and_comes_back_loses_nothing(node: Node, record_property: RecordProperty) -> None:
    seed = random.Random(3)
    broken: Counter[str] = Counter()
    for number in range(KILLS):
        broken += kill_while_writing(node, f"killed-{number}", after=seed.randint(1, 15))
    record(record_property, "kills", KILLS, broken)
    assert not +broken


def kill_while_writing(node: Node, name: str, after: int) -> Counter[str]:
    """Kill the node when the writer has taken so many hundreds of 3,000 rows; it comes back when that was noticed.

    Gives how many documents are lost, and how many are there that nobody wrote.
    """
    schema = table(name)
    written, dead, away, back = (threading.Event() for _ in range(4))

    def sleep(_: float) -> None:
        away.set()
        back.wait(0.2)

    sink = node.sink(sleep, bulk_documents_max=50)
    sink.prepare([schema])
    rows = [put({"id": n, "line": "x"}, 100 + n, note="n" * 50) for n in range(3000)]
    outcome: list[Delivered] = []

    def run() -> None:
        with sink.writer(Task("p", 1, 0, 0)) as writer:
            for start in range(0, len(rows), 100):
                writer.write(records_of(schema, rows[start : start + 100]))
                if start == 100 * (after - 1):
                    written.set()
                if start == 2000:
                    # What is in flight may be lost; the last rows are sent to a node that is down for sure.
                    dead.wait(120)
            outcome.append(writer.finish())

    thread = threading.Thread(target=run)
    thread.start()
    written.wait(120)
    node.server.kill()
    dead.set()
    away.wait(120)
    node.server.start()
    back.set()
    thread.join()
    (done,) = outcome
    assert away.is_set()
    assert (done.records, done.dead) == (3000, [])
    wanted = [f"{n}|x" for n in range(3000)]
    broken = differences(wanted, node.documents(name))
    # The batch once more, as after a crash of the pipeline.
    assert deliver(sink, records_of(schema, rows)).dead == []
    return broken + differences(wanted, node.documents(name))


def test_a_cluster_that_is_away_is_told_before_the_start(node: Node) -> None:
    away = SearchSink(SearchSettings(urls=("http://127.0.0.1:9",)))
    with pytest.raises(DeliveryFailed, match=r"cannot be reached.*url http://127.0.0.1:9"):
        away.check()
    with pytest.raises(HTTPError):
        node.ask("GET", "/there-is-no-such-index")


def test_a_table_made_anew_takes_the_name_of_the_old_one_and_settings_and_aliases_stay(node: Node) -> None:
    old = replace(table("reborn"), altered=1, id="one")
    key = (Column("id", t.TEXT, Role.PARTITION),)
    new = TableSchema(old.table, (*key, Column("note", t.INT64)), altered=2, id="two")
    node.sink().prepare([old])
    deliver(node.sink(), records_of(old, [put({"id": n, "line": "a"}, 100, note="x") for n in range(3)]))
    node.ask("POST", "/_aliases", {"actions": [{"add": {"index": "reborn", "alias": "everything"}}]})
    for _ in range(2):
        sink = node.sink()
        sink.prepare([old, new])
    assert node.documents("reborn") == {}
    # The same key in an older version than what the old table had of it.
    deliver(sink, records_of(new, [put({"id": "0"}, 50, note=7)]))
    assert node.documents("reborn") == node.documents("everything") == {"0": {"id": "0", "note": 7}}
    [(name, made)] = node.ask("GET", "/reborn").items()
    assert name != "reborn"
    assert made["settings"]["index"]["refresh_interval"] == "-1"
    assert made["mappings"]["properties"]["note"] == {"type": "long"}
    # What comes again of the old table changes nothing.
    sink.prepare([old])
    deliver(sink, records_of(old, [gone({"id": 0, "line": "a"}, 200)]))
    third = replace(new, columns=(*new.columns, Column("more", t.TEXT)), altered=3, id="three")
    sink.prepare([third])
    assert node.documents("reborn") == node.documents("everything") == {}


def test_a_column_added_again_with_another_type_and_exchanged_keys_move_the_documents(node: Node) -> None:
    key = (Column("a", t.INT64, Role.PARTITION), Column("b", t.INT64, Role.CLUSTERING))
    first = TableSchema(TableId("shop", "moved"), (*key, Column("v", t.INT32), Column("w", t.TEXT)), altered=1, id="m")
    again = replace(first, columns=(*key, Column("v", t.BOOLEAN, dropped_us=5), Column("w", t.TEXT)), altered=2)
    names = (Column("b", t.INT64, Role.PARTITION), Column("a", t.INT64, Role.CLUSTERING))
    exchanged = replace(again, columns=(*names, *again.columns[2:]), altered=3)
    sink = node.sink()
    sink.prepare([first])
    deliver(sink, records_of(first, [put({"a": n, "b": 9}, 100 + n, v=n, w="x") for n in range(1500)]))
    sink.prepare([again])
    deliver(sink, records_of(again, [put({"a": 1, "b": 9}, 5000, v=True, w="y")]))
    found = node.documents("moved")
    assert found["1|9"] == {"a": 1, "b": 9, "v": True, "w": "y"}
    assert found["2|9"] == {"a": 2, "b": 9, "w": "x"}
    assert len(found) == 1500
    node.sink().prepare([first, again, exchanged])
    assert node.documents("moved")["2|9"] == {"b": 2, "a": 9, "w": "x"}


def test_a_truncation_and_a_renamed_key_reach_every_document(node: Node) -> None:
    first = replace(table("followed"), altered=1, id="one")
    renamed = (Column("number", t.INT64, Role.PARTITION), *first.columns[1:])
    second = replace(first, columns=renamed, altered=2)
    sink = node.sink()
    sink.prepare([first])
    # Versions from 0 on, as repairs give them.
    deliver(sink, records_of(first, [put({"id": n, "line": "a"}, n, note="x") for n in range(1200)]))
    sink.prepare([second])
    assert node.documents("followed") == {f"{n}|a": {"number": n, "line": "a", "note": "x"} for n in range(1200)}
    truncation = records_of(second, [Change(Op.TRUNCATE, time=2000)])
    # Twice, as when the batch is done again.
    for _ in range(2):
        sink.end_eras([second])
        assert node.documents("followed") == {}
        deliver(sink, records_of(second, [put({"number": 5, "line": "a"}, 2001, note="y")]), truncation)
        assert node.documents("followed") == {"5|a": {"number": 5, "line": "a", "note": "y"}}
