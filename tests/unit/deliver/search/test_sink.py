"""The search sink against a scripted cluster: what is sent, what is sent again, and what becomes a dead letter."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from penstock.deliver.search.sink import SearchSink
from penstock.deliver.sink import Delivered, Task
from penstock.errors import DeliveryFailed, InvalidSetting, SchemaRefused, TargetRefused
from penstock.model import types as t
from penstock.model.change import Change, Deletion, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records.records import Records
from penstock.sandbox.java_process import free_port
from penstock.settings import SchemaPolicy
from penstock.settings.sinks import SearchSettings
from tests.certificates import make_certificate
from tests.row_records import gone, put, records_of
from tests.scripted_search import DROP_AFTER, DROP_BEFORE, ELASTICSEARCH, STALL, ScriptedSearch, scripted_search

SCHEMA = TableSchema(
    TableId("shop", "orders"),
    (Column("id", t.INT64, Role.PARTITION), Column("line", t.INT32, Role.CLUSTERING), Column("note", t.TEXT)),
)
TASK = Task("p", 1, 0, 0)


@pytest.fixture
def cluster() -> Iterator[ScriptedSearch]:
    with scripted_search() as made:
        yield made


@pytest.fixture
def waits() -> list[float]:
    return []


def sink_for(cluster: ScriptedSearch, waits: list[float], **settings: Any) -> SearchSink:
    return SearchSink(SearchSettings(urls=(cluster.url,), **settings), sleep=waits.append)


def deliver(sink: SearchSink, *records: Records) -> Delivered:
    with sink.writer(TASK) as writer:
        for each in records:
            writer.write(each)
        return writer.finish()


def orders(*numbers: int, version: int = 10, note: str = "n") -> Records:
    return records_of(SCHEMA, [put({"id": number, "line": 0}, version, note=f"{note}{number}") for number in numbers])


def test_rows_become_documents_and_deleted_rows_go(cluster: ScriptedSearch, waits: list[float]) -> None:
    sink = sink_for(cluster, waits)
    done = deliver(sink, orders(1, 2), records_of(SCHEMA, [gone({"id": 1, "line": 0}, 11)]))
    assert cluster.rows("orders") == {"2|0": {"id": 2, "line": 0, "note": "n2"}}
    assert (done.records, done.dead, done.payload) == (3, [], b"")
    assert done.bytes == sum(len(body) for _, path, body in cluster.requests if path == "/_bulk")


def test_every_item_carries_its_version(cluster: ScriptedSearch, waits: list[float]) -> None:
    deliver(sink_for(cluster, waits), records_of(SCHEMA, [put({"id": 1, "line": 0}, 7), gone({"id": 2, "line": 0}, 8)]))
    metas = [(action, meta["version"], meta["version_type"]) for action, _, meta, _ in cluster.bulks[0]]
    assert metas == [("index", 7, "external_gte"), ("delete", 8, "external_gte")]


def test_a_version_before_1970_is_zero(cluster: ScriptedSearch, waits: list[float]) -> None:
    deliver(sink_for(cluster, waits), orders(1, version=-5))
    assert cluster.bulks[0][0][2]["version"] == 0


def test_records_without_a_whole_key_have_no_document(cluster: ScriptedSearch, waits: list[float]) -> None:
    wide = Change(Op.DELETE_PARTITION, {"id": 1}, time=9, deletion=Deletion(9))
    done = deliver(sink_for(cluster, waits), records_of(SCHEMA, [wide, put({"id": 2, "line": 0}, 9)]))
    assert [id_ for _, id_, _, _ in cluster.bulks[0]] == ["2|0"]
    assert done.records == 1


def test_where_a_partition_is_one_row_its_deletion_deletes_the_document(
    cluster: ScriptedSearch, waits: list[float]
) -> None:
    schema = TableSchema(SCHEMA.table, (SCHEMA.columns[0], SCHEMA.columns[2]))
    sink = sink_for(cluster, waits)
    deliver(sink, records_of(schema, [put({"id": 1}, 5, note="a"), put({"id": 2}, 5, note="b")]))
    deliver(sink, records_of(schema, [Change(Op.DELETE_PARTITION, {"id": 1}, time=6, deletion=Deletion(6))]))
    assert set(cluster.rows("orders")) == {"2"}


def test_static_cells_without_a_row_are_a_document_until_a_row_comes(
    cluster: ScriptedSearch, waits: list[float]
) -> None:
    schema = TableSchema(SCHEMA.table, (*SCHEMA.columns, Column("owner", t.TEXT, Role.STATIC)))
    sink = sink_for(cluster, waits)
    alone = Change(Op.UPDATE, {"id": 1}, {"owner": Set("anna")}, time=5)
    deliver(sink, records_of(schema, [alone]))
    assert cluster.rows("orders") == {"1|\\static": {"id": 1, "owner": "anna"}}
    row = put({"id": 1, "line": 2}, 6, owner="anna", note="n")
    deliver(sink, records_of(schema, [row, Change(Op.DELETE, {"id": 1}, time=7)]))
    assert cluster.rows("orders") == {"1|2": {"id": 1, "line": 2, "owner": "anna", "note": "n"}}


def test_a_task_without_documents_sends_nothing(cluster: ScriptedSearch, waits: list[float]) -> None:
    wide = records_of(SCHEMA, [Change(Op.DELETE_PARTITION, {"id": 1}, time=9)])
    assert deliver(sink_for(cluster, waits), wide, records_of(SCHEMA, [])).records == 0
    assert cluster.requests == []


def test_requests_are_bounded_by_documents(cluster: ScriptedSearch, waits: list[float]) -> None:
    deliver(sink_for(cluster, waits, bulk_documents_max=3), orders(*range(7)), orders(7, 8))
    assert [len(bulk) for bulk in cluster.bulks] == [3, 3, 3]
    assert len(cluster.rows("orders")) == 9


def test_requests_are_bounded_by_bytes(cluster: ScriptedSearch, waits: list[float]) -> None:
    deliver(sink_for(cluster, waits, bulk_bytes_max=2048), orders(*range(50)), orders(50, note="x" * 5000), orders(51))
    sizes = [len(body) for _, path, body in cluster.requests if path == "/_bulk"]
    assert [size for size in sizes if size > 2048] == [max(sizes)]
    assert max(sizes) > 5000
    assert len(cluster.rows("orders")) == 52


@pytest.mark.parametrize("status", [429, 503, 502, 504, 500, DROP_BEFORE, DROP_AFTER])
def test_a_busy_or_absent_cluster_is_asked_again(cluster: ScriptedSearch, waits: list[float], status: int) -> None:
    cluster.script = [status] * 4
    done = deliver(sink_for(cluster, waits), orders(1, 2))
    assert (done.records, done.dead) == (2, [])
    assert len(cluster.rows("orders")) == 2
    assert len(waits) == 4


def test_a_driver_that_is_to_end_does_not_wait_for_a_cluster_that_is_away() -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 20:
            sink.give_up()

    sink = SearchSink(SearchSettings(urls=(f"http://127.0.0.1:{free_port()}",)), sleep=sleep)
    for prepare in (sink.prepare, sink.end_eras):
        with pytest.raises(DeliveryFailed, match="is not waited for any longer: no answer"):
            prepare([SCHEMA])
    # It looks often enough.
    assert len(waits) == 20
    assert max(waits) <= 1


def test_waits_grow_up_to_their_limit(cluster: ScriptedSearch, waits: list[float]) -> None:
    cluster.script = [429] * 12
    deliver(sink_for(cluster, waits, retry_s_max=5), orders(1))
    assert all(0.5 * wait <= found <= wait for found, wait in zip(waits, (0.1, 0.2, 0.4, 0.8, 1.6, 3.2), strict=False))
    assert all(2.5 <= wait <= 5 for wait in waits[6:])


def test_an_outage_is_told_once_and_its_end_too(cluster: ScriptedSearch, waits: list[float]) -> None:
    cluster.script = [503, 429, DROP_BEFORE, 200, 503]
    with structlog.testing.capture_logs() as logs:
        deliver(sink_for(cluster, waits, bulk_documents_max=1), orders(1, 2))
    events = [entry["event"] for entry in logs]
    away, back = "search cluster does not take documents, waiting", "search cluster takes documents again"
    assert events == [away, back, away, back]


def test_a_lost_answer_changes_nothing(cluster: ScriptedSearch, waits: list[float]) -> None:
    cluster.script = [DROP_AFTER]
    done = deliver(sink_for(cluster, waits), orders(1))
    assert [len(bulk) for bulk in cluster.bulks] == [1, 1]
    assert cluster.documents == {("orders", "1|0"): (10, {"id": 1, "line": 0, "note": "n1"})}
    assert done.records == 1


def test_an_answer_that_does_not_come_in_time_is_asked_for_again(cluster: ScriptedSearch, waits: list[float]) -> None:
    cluster.script = [STALL]
    deliver(sink_for(cluster, waits, timeout_s=0.2), orders(1))
    assert len(cluster.bulks) == 2


def test_only_what_was_turned_away_is_sent_again(cluster: ScriptedSearch, waits: list[float]) -> None:
    answers = iter([(429, "rejected_execution_exception"), (503, "unavailable_shards_exception")])
    cluster.refuse = lambda id_: next(answers, None) if id_ == "2|0" else None
    done = deliver(sink_for(cluster, waits), orders(1, 2, 3))
    assert [[id_ for _, id_, _, _ in bulk] for bulk in cluster.bulks] == [["1|0", "2|0", "3|0"], ["2|0"], ["2|0"]]
    assert (done.records, done.dead, len(waits)) == (3, [], 2)


def test_a_read_only_index_is_waited_for(cluster: ScriptedSearch, waits: list[float]) -> None:
    answers = iter([(403, "cluster_block_exception")])
    cluster.refuse = lambda _: next(answers, None)
    assert deliver(sink_for(cluster, waits), orders(1)).dead == []
    assert len(cluster.rows("orders")) == 1


def test_a_read_only_cluster_is_waited_for(cluster: ScriptedSearch, waits: list[float]) -> None:
    usual, answers = cluster._bulk, iter([(403, {"error": {"type": "cluster_block_exception"}})])

    def blocked(body: bytes) -> tuple[int, Any]:
        return next(answers, None) or usual(body)

    cluster._bulk = blocked  # type: ignore[method-assign]
    assert deliver(sink_for(cluster, waits), orders(1)).records == 1
    assert (len(cluster.rows("orders")), len(waits)) == (1, 1)


def test_stale_and_repeated_changes_count_as_done(cluster: ScriptedSearch, waits: list[float]) -> None:
    sink = sink_for(cluster, waits)
    newer = orders(1, version=20, note="new")
    for records in (newer, orders(1, version=15, note="old"), newer):
        done = deliver(sink, records)
        assert (done.records, done.dead) == (1, [])
    assert cluster.rows("orders")["1|0"]["note"] == "new1"
    assert waits == []


def test_a_refused_document_is_a_dead_letter_and_the_others_are_delivered(
    cluster: ScriptedSearch, waits: list[float]
) -> None:
    cluster.refuse = lambda id_: (400, "mapper_parsing_exception") if id_ == "2|0" else None
    with structlog.testing.capture_logs() as logs:
        done = deliver(sink_for(cluster, waits), orders(1, 2, 3, note="secret"))
    (letter,) = done.dead
    assert (letter.sink, letter.table, letter.key) == ("search", "shop.orders", '{"id":2,"line":0}')
    assert letter.reason == "mapper_parsing_exception: no"
    assert done.records == 2
    assert set(cluster.rows("orders")) == {"1|0", "3|0"}
    assert "secret" not in str(logs)


def test_a_document_that_breaks_the_cluster_is_given_up_after_some_tries(
    cluster: ScriptedSearch, waits: list[float]
) -> None:
    cluster.refuse = lambda id_: (500, "null_pointer_exception") if id_ == "2|0" else None
    done = deliver(sink_for(cluster, waits), orders(1, 2))
    assert [letter.key for letter in done.dead] == ['{"id":2,"line":0}']
    assert len(waits) == 5


@pytest.mark.parametrize("status", [400, 413])
def test_a_request_that_is_refused_as_a_whole_is_halved(
    cluster: ScriptedSearch, waits: list[float], status: int
) -> None:
    whole = cluster._bulk

    def refusing(body: bytes) -> tuple[int, Any]:
        return (status, {"error": {"type": "too_much"}}) if b'"_id":"5|0"' in body else whole(body)

    cluster._bulk = refusing  # type: ignore[method-assign]
    done = deliver(sink_for(cluster, waits), orders(*range(9)))
    assert [(letter.key, letter.reason) for letter in done.dead] == [('{"id":5,"line":0}', "too_much")]
    assert len(cluster.rows("orders")) == 8


def test_too_many_refused_documents_stop_the_pipeline(cluster: ScriptedSearch, waits: list[float]) -> None:
    cluster.refuse = lambda _: (400, "mapper_parsing_exception")
    with pytest.raises(TargetRefused, match=r"refused_documents_max \(table shop.orders, index orders\)"):
        deliver(sink_for(cluster, waits, refused_documents_max=2), orders(1, 2, 3))


@pytest.mark.parametrize("status", [401, 403, 404, 302])
def test_a_refused_login_stops_the_pipeline(cluster: ScriptedSearch, waits: list[float], status: int) -> None:
    cluster.script = [status]
    with pytest.raises(TargetRefused, match="scripted_exception"):
        deliver(sink_for(cluster, waits), orders(1))


def test_a_missing_index_stops_the_pipeline(cluster: ScriptedSearch, waits: list[float]) -> None:
    cluster.refuse = lambda _: (404, "index_not_found_exception")
    with pytest.raises(TargetRefused, match="index_not_found_exception"):
        deliver(sink_for(cluster, waits), orders(1))


def test_an_answer_that_is_not_item_by_item_fails_the_batch(cluster: ScriptedSearch, waits: list[float]) -> None:
    cluster._bulk = lambda body: (200, {"errors": True, "items": []})  # type: ignore[method-assign]
    with pytest.raises(DeliveryFailed, match="not answered item by item"):
        deliver(sink_for(cluster, waits), orders(1))


def test_requests_can_be_compressed(cluster: ScriptedSearch, waits: list[float]) -> None:
    deliver(sink_for(cluster, waits, gzip=True), orders(1, 2))
    assert len(cluster.rows("orders")) == 2


def test_another_node_is_asked_when_one_is_away(cluster: ScriptedSearch, waits: list[float]) -> None:
    with scripted_search() as away:
        dead_url = away.url
    sink = SearchSink(SearchSettings(urls=(dead_url, cluster.url)), sleep=waits.append)
    deliver(sink, orders(1))
    assert (len(cluster.rows("orders")), len(waits)) == (1, 1)


def test_logins_are_sent_and_secrets_are_not_shown(cluster: ScriptedSearch, waits: list[float], tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    sink = sink_for(cluster, waits, username="me", password_file=file)
    cluster.authorization = "Basic " + base64.b64encode(b"me:s3cret").decode()
    sink.check()
    # The task has no such file: what it needs travels with the sink.
    file.unlink()
    assert deliver(pickle.loads(pickle.dumps(sink)), orders(1)).records == 1
    assert "s3cret" not in repr(sink._target)


def test_api_keys_are_sent(cluster: ScriptedSearch, waits: list[float]) -> None:
    cluster.authorization = "ApiKey abc=="
    sink_for(cluster, waits, api_key="abc==").check()


def test_a_missing_password_file_is_told_by_its_name(cluster: ScriptedSearch, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"search.password_file \(file .*nothing\)"):
        sink_for(cluster, [], username="me", password_file=tmp_path / "nothing")


def test_the_check_tells_what_is_wrong(cluster: ScriptedSearch, waits: list[float]) -> None:
    sink_for(cluster, waits).check()
    cluster.authorization = "Basic other"
    with pytest.raises(TargetRefused, match="security_exception"):
        sink_for(cluster, waits).check()
    cluster.authorization = None
    cluster.product = {"hello": "world"}
    with pytest.raises(TargetRefused, match="neither Elasticsearch nor OpenSearch"):
        sink_for(cluster, waits).check()
    with scripted_search() as away:
        url = away.url
    with pytest.raises(DeliveryFailed, match=f"cannot be reached: no answer: Connection refused .url {url}"):
        SearchSink(SearchSettings(urls=(url,))).check()


def test_certificates_are_checked(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with scripted_search(certificate) as cluster:
        with pytest.raises(DeliveryFailed, match="certificate is refused: self-signed certificate"):
            sink_for(cluster, []).check()
        trusting = sink_for(cluster, [], tls_ca_file=certificate.file)
        trusting.check()
        # The task has no such file: what it needs travels with the sink.
        certificate.file.unlink()
        assert deliver(pickle.loads(pickle.dumps(trusting)), orders(1)).records == 1


def test_the_name_in_a_certificate_is_checked_unless_told_otherwise(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with scripted_search(certificate) as cluster:
        # The same address in a spelling that the certificate does not have.
        url = cluster.url.replace("127.0.0.1", "127.1")
        with pytest.raises(DeliveryFailed, match="certificate is refused"):
            SearchSink(SearchSettings(urls=(url,), tls_ca_file=certificate.file)).check()
        SearchSink(SearchSettings(urls=(url,), tls_ca_file=certificate.file, tls_verify_host=False)).check()


def test_a_server_without_tls_is_not_talked_to_in_plain_text(cluster: ScriptedSearch) -> None:
    url = cluster.url.replace("http:", "https:")
    with pytest.raises(DeliveryFailed, match="cannot be reached"):
        SearchSink(SearchSettings(urls=(url,), timeout_s=5)).check()


def test_elasticsearch_is_told_from_opensearch(cluster: ScriptedSearch, waits: list[float]) -> None:
    maps = TableSchema(TableId("k", "maps"), (*SCHEMA.columns, Column("tags", t.map_of(t.TEXT, t.TEXT))))
    sink_for(cluster, waits).prepare([maps])
    cluster.product = ELASTICSEARCH
    sink_for(cluster, waits, index="es-{table}").prepare([maps])
    kinds = {name: index["mappings"]["properties"]["tags"]["type"] for name, index in cluster.indices.items()}
    assert kinds == {"maps": "flat_object", "es-maps": "flattened"}


def test_documents_have_the_bytes_of_their_rows(cluster: ScriptedSearch, waits: list[float]) -> None:
    deliver(sink_for(cluster, waits), orders(1, note='"\\\n\t\0ż\U0001f30a'))
    body = next(body for _, path, body in cluster.requests if path == "/_bulk")
    assert body.count(b"\n") == 2
    assert json.loads(body.split(b"\n")[1])["note"] == '"\\\n\t\0ż\U0001f30a1'


def test_an_era_that_ends_takes_all_documents_and_those_after_it_stay(
    cluster: ScriptedSearch, waits: list[float]
) -> None:
    sink = sink_for(cluster, waits)
    sink.prepare([SCHEMA])
    deliver(sink, orders(1, 2, 3))
    truncation = records_of(SCHEMA, [Change(Op.TRUNCATE, time=9)])
    # Twice, as when the batch is done again.
    for _ in range(2):
        sink.end_eras([SCHEMA])
        deliver(sink, orders(2, 5, version=20), truncation)
        assert set(cluster.rows("orders")) == {"2|0", "5|0"}
    # A request that is late or comes again takes nothing that has come since.
    before = cluster.requests[:]
    deliver(sink, orders(2, version=30))
    for method, path, body in before:
        if path == "/_bulk" and b'"delete"' in body:
            cluster.answer(method, path, body)
    assert cluster.rows("orders")["2|0"]["note"] == "n2"
    assert cluster.scrolls == 0


def test_a_renamed_key_is_renamed_in_all_documents_and_late_copies_have_the_new_name(
    cluster: ScriptedSearch, waits: list[float]
) -> None:
    first = replace(SCHEMA, altered=1, id="one")
    key = Column("number", t.INT64, Role.PARTITION)
    second = replace(first, columns=(key, *SCHEMA.columns[1:]), altered=2)
    sink = sink_for(cluster, waits)
    sink.prepare([first])
    deliver(sink, replace(orders(1, 2), schema=first))
    # A crash while documents are renamed: the next start renames the rest.
    cluster.script = [400]
    with pytest.raises(TargetRefused):
        sink.prepare([second])
    sink = sink_for(cluster, waits)
    sink.prepare([first, second])
    assert cluster.rows("orders") == {f"{n}|0": {"number": n, "line": 0, "note": f"n{n}"} for n in (1, 2)}
    assert [version for version, _ in cluster.documents.values()] == [10, 10]
    asked = len(cluster.requests)
    sink.prepare([second])
    assert not [method for method, _, _ in cluster.requests[asked:] if method in ("PUT", "POST")]
    deliver(sink, replace(orders(3), schema=first))
    assert cluster.rows("orders")["3|0"] == {"number": 3, "line": 0, "note": "n3"}


@pytest.mark.parametrize("policy", [SchemaPolicy.IGNORE, SchemaPolicy.FAIL])
def test_a_sink_that_does_not_follow_refuses_a_renamed_key(
    cluster: ScriptedSearch, waits: list[float], policy: SchemaPolicy
) -> None:
    sink = sink_for(cluster, waits, schema_policy=policy)
    sink.prepare([SCHEMA])
    key = Column("number", t.INT64, Role.PARTITION)
    with pytest.raises(SchemaRefused, match="key column has another name") as caught:
        sink.prepare([replace(SCHEMA, columns=(key, *SCHEMA.columns[1:]), version=2)])
    assert caught.value.place["table"] == SCHEMA.table


def test_a_table_made_anew_empties_the_index_where_columns_stay_and_stops_where_it_must(
    cluster: ScriptedSearch, waits: list[float]
) -> None:
    first = replace(SCHEMA, altered=1, id="one")
    second = replace(SCHEMA, columns=(*SCHEMA.columns, Column("more", t.TEXT)), altered=2, id="two")
    sink = sink_for(cluster, waits, schema_policy=SchemaPolicy.IGNORE)
    sink.prepare([first])
    deliver(sink, replace(orders(1, 2), schema=first))
    sink.prepare([replace(first, id="")])
    assert len(cluster.rows("orders")) == 2
    sink.prepare([second])
    assert cluster.rows("orders") == {}
    assert sink.left_out() == {"shop.orders": ["more"]}
    deliver(sink, replace(orders(3), schema=first))
    sink = sink_for(cluster, waits, schema_policy=SchemaPolicy.IGNORE)
    deliver(sink, replace(orders(3), schema=replace(first, id="two")))
    sink.prepare([first, second])
    assert set(cluster.rows("orders")) == {"3|0"}
    with pytest.raises(SchemaRefused, match="dropped and made anew"):
        sink_for(cluster, waits, schema_policy=SchemaPolicy.FAIL).prepare([replace(first, altered=9, id="three")])
