"""Indices are made, extended or refused before anything is written to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from penstock.deliver.search.sink import SearchSink
from penstock.deliver.sink import Task
from penstock.errors import SchemaRefused, TargetRefused
from penstock.model import types as t
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import SchemaPolicy
from penstock.settings.sinks import SearchSettings, TextFields
from tests.every_type import every_type_table
from tests.row_records import put, records_of
from tests.scripted_search import ScriptedSearch, scripted_search

ID = Column("id", t.INT64, Role.PARTITION)
ORDERS = TableSchema(TableId("shop", "orders"), (ID, Column("note", t.TEXT)))
WIDER = TableSchema(TableId("shop", "orders"), (*ORDERS.columns, Column("paid", t.BOOLEAN)), version=2)


@pytest.fixture
def cluster() -> Iterator[ScriptedSearch]:
    with scripted_search() as made:
        yield made


def sink_for(cluster: ScriptedSearch, **settings: Any) -> SearchSink:
    return SearchSink(SearchSettings(urls=(cluster.url,), **settings), sleep=lambda _: None)


def fields(cluster: ScriptedSearch, index: str = "orders") -> dict[str, str]:
    properties = cluster.indices[index]["mappings"]["properties"]
    return {name: field.get("type", "object") for name, field in properties.items()}


def test_an_index_is_made_with_the_mapping_of_its_table(cluster: ScriptedSearch) -> None:
    sink_for(cluster, index_settings={"number_of_replicas": "0"}, remember_deletes_s=7200).prepare([ORDERS])
    made = cluster.indices["orders"]
    assert made["settings"] == {"index": {"gc_deletes": "7200s", "number_of_replicas": "0"}}
    assert made["mappings"]["dynamic"] is False
    noted = {"table": "shop.orders", "id": "", "order": list(ORDERS.order), "key": ["id"]}
    assert made["mappings"]["_meta"] == {"penstock": noted}
    assert fields(cluster) == {"id": "long", "note": "text"}


def test_every_type_has_a_field(cluster: ScriptedSearch) -> None:
    schema, _ = every_type_table()
    sink_for(cluster).prepare([schema])
    kinds = {name.split(" ", 1)[-1]: kind for name, kind in fields(cluster, "every").items()}
    wanted = {
        "uint64": "unsigned_long",
        "varint": "keyword",
        "decimal": "keyword",
        "inet": "ip",
        "bytes": "binary",
        "uuid": "keyword",
        "timestamp": "date",
        "user": "object",
        "vector": "float",
        "int8": "byte",
        "boolean": "boolean",
        "flags": "keyword",
        "time_tz": "object",
        "float32": "float",
        "duration": "keyword",
        "json": "text",
    }
    assert wanted.items() <= kinds.items()
    assert len(kinds) > 35


def test_text_can_be_kept_whole(cluster: ScriptedSearch) -> None:
    sink_for(cluster, text_fields=TextFields.KEYWORD).prepare([ORDERS])
    assert fields(cluster)["note"] == "keyword"


def test_text_in_keys_is_a_keyword(cluster: ScriptedSearch) -> None:
    sink_for(cluster).prepare([TableSchema(TableId("shop", "orders"), (Column("id", t.TEXT, Role.PARTITION),))])
    assert fields(cluster) == {"id": "keyword"}


def test_preparing_twice_asks_for_nothing_new(cluster: ScriptedSearch) -> None:
    for _ in range(2):
        sink_for(cluster).prepare([ORDERS])
    assert [path for method, path, _ in cluster.requests if method == "PUT"] == ["/orders"]


def test_a_new_column_extends_the_mapping(cluster: ScriptedSearch) -> None:
    sink_for(cluster).prepare([ORDERS, WIDER])
    assert fields(cluster) == {"id": "long", "note": "text", "paid": "boolean"}


def test_a_new_field_of_a_user_type_extends_the_mapping(cluster: ScriptedSearch) -> None:
    def table(**parts: t.Type) -> TableSchema:
        return TableSchema(TableId("shop", "orders"), (ID, Column("home", t.user("address", parts))))

    sink_for(cluster).prepare([table(street=t.TEXT), table(street=t.TEXT, zip=t.INT32)])
    put_mapping = [body for method, path, body in cluster.requests if method == "PUT" and path.endswith("_mapping")]
    assert len(put_mapping) == 1
    assert b'"home": {"type": "object", "properties": {"zip": {"type": "integer"}}}' in put_mapping[0]


def test_an_index_of_ones_own_is_taken_as_it_is(cluster: ScriptedSearch) -> None:
    own = {"properties": {"id": {"type": "long"}, "note": {"type": "keyword"}}, "_meta": {"owner": "me"}}
    cluster.indices["orders"] = {"mappings": own}
    sink_for(cluster).prepare([WIDER])
    assert fields(cluster) == {"id": "long", "note": "keyword", "paid": "boolean"}
    meta = cluster.indices["orders"]["mappings"]["_meta"]
    assert (meta["owner"], meta["penstock"]["table"]) == ("me", "shop.orders")


@pytest.mark.parametrize(
    ("type_", "field"),
    [(t.INT64, "integer"), (t.TEXT, "long"), (t.FLOAT64, "float"), (t.INET, "date"), (t.BOOLEAN, "object")],
)
def test_a_field_that_does_not_take_its_column_is_refused(cluster: ScriptedSearch, type_: t.Type, field: str) -> None:
    cluster.indices["orders"] = {"mappings": {"properties": {"v": {"type": field}}}}
    schema = TableSchema(TableId("shop", "orders"), (ID, Column("v", type_)))
    with pytest.raises(SchemaRefused, match=f"v is {field}, not .*index orders, table shop.orders"):
        sink_for(cluster).prepare([schema])
    assert not [method for method, _, _ in cluster.requests if method == "PUT"]


@pytest.mark.parametrize(
    ("type_", "field"),
    [(t.INT32, "long"), (t.INT32, "double"), (t.UUID, "text"), (t.FLOAT32, "double"), (t.DATE, "date_nanos")],
)
def test_a_wider_field_is_taken(cluster: ScriptedSearch, type_: t.Type, field: str) -> None:
    cluster.indices["orders"] = {"mappings": {"properties": {"v": {"type": field}}}}
    sink_for(cluster).prepare([TableSchema(TableId("shop", "orders"), (ID, Column("v", type_)))])
    assert fields(cluster)["v"] == field


def test_two_tables_never_share_an_index(cluster: ScriptedSearch) -> None:
    other = TableSchema(TableId("crm", "orders"), ORDERS.columns)
    with pytest.raises(SchemaRefused, match=r"that of another table.*\{keyspace\}.\{table\}.*other shop.orders"):
        sink_for(cluster).prepare([ORDERS, other])
    # Another run knows it from the index itself.
    with pytest.raises(SchemaRefused, match=r"other shop\.orders"):
        sink_for(cluster).prepare([other])
    sink_for(cluster, index="{keyspace}.{table}").prepare([ORDERS, other])
    assert {"shop.orders", "crm.orders"} <= set(cluster.indices)


def test_a_table_without_a_key_is_refused(cluster: ScriptedSearch) -> None:
    with pytest.raises(SchemaRefused, match=r"without a key.*shop.orders"):
        sink_for(cluster).prepare([TableSchema(TableId("shop", "orders"), (Column("note", t.TEXT),))])


def test_the_policy_fail_stops_at_a_new_column(cluster: ScriptedSearch) -> None:
    with pytest.raises(SchemaRefused, match=r"lacks paid \(index orders"):
        sink_for(cluster, schema_policy=SchemaPolicy.FAIL).prepare([ORDERS, WIDER])


def test_the_policy_ignore_leaves_new_columns_out_and_says_so(cluster: ScriptedSearch) -> None:
    sink = sink_for(cluster, schema_policy=SchemaPolicy.IGNORE)
    with structlog.testing.capture_logs() as logs:
        sink.prepare([ORDERS, WIDER])
    assert [entry for entry in logs if entry["log_level"] == "warning"] == [
        {
            "event": "columns left out",
            "log_level": "warning",
            "table": "shop.orders",
            "version": 2,
            "columns": ["paid"],
        }
    ]
    with sink.writer(Task("p", 1, 0, 0)) as writer:
        writer.write(records_of(WIDER, [put({"id": 1}, 5, note="x", paid=True)]))
        writer.finish()
    assert cluster.rows("orders") == {"1": {"id": 1, "note": "x"}}


def test_a_mapping_that_the_cluster_refuses_is_told(cluster: ScriptedSearch) -> None:
    answers = {403: (TargetRefused, "refuses access"), 400: (SchemaRefused, "refuses the mapping: limit_exception")}
    usual = cluster._index
    for status, (error, text) in answers.items():

        def refusing(method: str, path: str, content: Any, status: int = status) -> tuple[int, Any]:
            return (status, {"error": {"type": "limit_exception"}}) if method == "PUT" else usual(method, path, content)

        cluster._index = refusing  # type: ignore[method-assign]
        with pytest.raises(error, match=text):
            sink_for(cluster).prepare([ORDERS])
