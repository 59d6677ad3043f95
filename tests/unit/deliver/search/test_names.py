"""Names of indices and fields: allowed ones stay, others change without becoming equal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.deliver.search.names import index_name
from penstock.formats.search_fields import field_name
from penstock.model.schema import TableId

LEGAL_INDEX = re.compile(r"[^-_+.\\/*?\"<>| ,#:A-Z\x00-\x1f][^\\/*?\"<>| ,#:\x00-\x1f]*")


def test_an_allowed_name_stays_as_it_is() -> None:
    assert index_name("{table}", TableId("shop", "orders_2024-x")) == "orders_2024-x"
    assert index_name("{keyspace}.{table}", TableId("shop", "orders")) == "shop.orders"
    assert index_name("my_table_index", TableId("shop", "orders")) == "my_table_index"


def test_names_that_differ_by_case_only_get_different_indices() -> None:
    names = {index_name("{table}", TableId("shop", name)) for name in ("orders", "Orders", "ORDERS")}
    assert len(names) == 3
    assert all(name.startswith("orders") and name == name.lower() for name in names)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=300))
def test_any_name_gives_an_allowed_index(name: str) -> None:
    made = index_name("{table}", TableId("k", name))
    assert LEGAL_INDEX.fullmatch(made)
    assert made == made.lower()
    assert len(made.encode()) <= 255


@given(st.text(max_size=6), st.text(max_size=6))
def test_different_columns_have_different_fields(one: str, other: str) -> None:
    assert (field_name(one) == field_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("note", "note"),
        ("a b", "a b"),
        ("a.b", "a_x002E_b"),
        ("_id", "_x005F_id"),
        ("_ids", "_ids"),
        ("_x0020_", "_x005F_x0020_"),
        ("", "_x_"),
        (" ", "_x_0020_"),
    ],
)
def test_fields_are_named_after_their_columns(column: str, field: str) -> None:
    assert field_name(column) == field
