"""Data files: which columns get a dictionary, wherever their leaves are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.deliver.lakehouse.data_files import to_parquet


def encodings(rows: pa.Table) -> dict[str, bool]:
    """Per leaf of the file, whether it has a dictionary."""
    content, footer = to_parquet(rows, "zstd")
    assert pq.read_table(pa.BufferReader(content)).equals(rows)
    leaves = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    return {leaf.path_in_schema: leaf.has_dictionary_page for leaf in leaves}


def test_only_values_that_come_again_get_a_dictionary() -> None:
    count = 10_000
    rows = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "text": [f"text {number}" for number in range(count)],
            "kind": [f"kind {number % 9}" for number in range(count)],
            "none": pa.nulls(count, pa.string()),
        }
    )
    found = encodings(rows)
    assert not found["id"]
    assert not found["text"]
    assert found["kind"]


def test_leaves_of_nested_columns_keep_their_dictionaries() -> None:
    items = pa.map_(pa.string(), pa.int64())
    place = pa.struct([("x", pa.int64()), ("names", pa.list_(pa.string()))])
    rows = pa.table(
        {
            "map": pa.array([[("a", 1), ("b", 2)]] * 10, items),
            "place": pa.array([{"x": 1, "names": ["n"]}] * 10, place),
        }
    )
    found = encodings(rows)
    assert len(found) == 4
    assert all(found.values())


def test_a_file_without_rows_is_a_file() -> None:
    rows = pa.table({"id": pa.array([], pa.int64())})
    content, footer = to_parquet(rows, "zstd")
    assert footer.num_rows == 0
    assert pq.read_table(pa.BufferReader(content)).equals(rows)
