"""Names from databases and clients cannot escape the directory or meet each other."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.log import names
from penstock.model.schema import TableId

# Any text; what has half of a character is none.
ANY_NAME = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)


@pytest.mark.parametrize(
    ("keyspace", "table", "expected"),
    [
        ("shop", "orders", "shop.orders"),
        ("shop", "../x", "shop.%2E%2E%2Fx"),
        ("a", "b.c", "a.b%2Ec"),
        ("a.b", "c", "a%2Eb.c"),
        ("shop", "ü", "shop.%C3%BC"),
        ("shop", "a@b!parked", "shop.a%40b%21parked"),
        ("shop", "nul\0", "shop.nul%00"),
    ],
)
def test_directory_names_are_encoded(keyspace: str, table: str, expected: str) -> None:
    assert names.directory_name(TableId(keyspace, table)) == expected


def test_named_and_parked_logs_have_directories_of_their_own() -> None:
    table = TableId("shop", "orders")
    found = {
        names.directory_name(table),
        names.directory_name(table, "big"),
        names.directory_name(table, "big", parked=True),
        names.directory_name(table, parked=True),
    }
    assert len(found) == 4


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="empty"):
        names.encode("")


@given(ANY_NAME)
def test_an_encoded_name_is_one_safe_part_of_a_path(name: str) -> None:
    part = names.encode(name)
    assert os.path.basename(part) == part
    assert part not in (".", "..")
    assert part.isascii()
    assert part.isprintable()
    assert "." not in part
    assert len(part) <= 72


@given(ANY_NAME, ANY_NAME, ANY_NAME, ANY_NAME)
def test_different_tables_never_share_a_directory(a: str, b: str, c: str, d: str) -> None:
    one, two = TableId(a, b), TableId(c, d)
    assert (names.directory_name(one) == names.directory_name(two)) == (one == two)


def test_half_of_a_character_is_no_name() -> None:
    with pytest.raises(InvalidInput, match="half of a character"):
        names.file_name(TableId("shop", "half \ud800"), 1)


@given(ANY_NAME, ANY_NAME, st.integers(1, 10**9))
def test_file_names_give_their_number_back(keyspace: str, table: str, number: int) -> None:
    name = names.file_name(TableId(keyspace, table), number)
    assert names.file_number(TableId(keyspace, table), name) == number
    assert len(name) <= 255


@pytest.mark.parametrize(
    "name",
    ["shop.orders.avro", "shop.orders.0001.avro", "shop.orders.000000.avro", "shop.orders.000001.idx",
     "shop.orders2.000001.avro", "shop.orders.000001.avro.tmp", "x", "shop.orders.00000１.avro"],
)  # fmt: skip
def test_strange_files_are_not_taken_for_data(name: str) -> None:
    assert names.file_number(TableId("shop", "orders"), name) is None
