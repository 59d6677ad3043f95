"""Hashes of keys depend on values alone, and differ where values do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.deliver.lakehouse.key_hash import key_hashes

COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [0, 1, -1, 1 << 62, None]),
    (pa.bool_(), [True, False, None]),
    (pa.string(), ["", "a", "b", "aa", "12345678", "123456789", "1234567812345678", "12345678\0", None]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"x" * 100, b"x" * 99 + b"y", None]),
    (pa.float64(), [0.0, -0.0, 1.5, None]),
    (pa.date32(), [0, 1, None]),
    (pa.timestamp("us", "UTC"), [0, 1, None]),
    (pa.decimal128(20, 0), [0, 1, -1, 1 << 64, None]),
    (pa.list_(pa.int32()), [[], [1], [1, 2], [2, 1], [1, 1], [0], [0, 0], None]),
    (pa.map_(pa.string(), pa.int32()), [[], [("a", 1)], [("a", 2)], [("b", 1)], [("a", 1), ("b", 1)], None]),
    (pa.struct([("x", pa.int32()), ("y", pa.string())]), [{"x": 1, "y": "a"}, {"x": None, "y": "a"}, {"x": 1}, None]),
    (pa.list_(pa.list_(pa.string())), [[["a"], ["b"]], [["a", "b"]], [["b"], ["a"]], [[]], []]),
]


def pairs(columns: list[pa.Array]) -> list[tuple[int, int]]:
    high, low = key_hashes(columns)
    return list(zip(high.tolist(), low.tolist(), strict=True))


@pytest.mark.parametrize(("type_", "values"), COLUMNS, ids=[str(type_) for type_, _ in COLUMNS])
def test_different_values_have_different_hashes_wherever_they_stand(type_: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values, type_)
    hashes = pairs([column])
    assert len({high for high, _ in hashes}) == len({low for _, low in hashes}) == len(values)
    backwards = pa.array(values[::-1], type_)
    assert pairs([backwards])[::-1] == hashes
    padded = pa.concat_arrays([column.slice(1), column, column.slice(0, 1)])
    assert pairs([padded.slice(len(values) - 1, len(values))]) == hashes
    assert pairs([pa.chunked_array([column])]) == hashes


def test_the_order_of_columns_and_the_border_between_them_count() -> None:
    parts = ["", "a", "b", "ab", "aba"]
    keys = list(itertools.product(parts, repeat=2))
    columns = [pa.array(values) for values in zip(*keys, strict=True)]
    assert len(set(pairs(columns))) == len(keys)


def test_the_width_of_integers_and_of_offsets_does_not_matter() -> None:
    values = [0, 1, -7, None]
    assert pairs([pa.array(values, pa.int32())]) == pairs([pa.array(values, pa.int64())])
    texts = ["a", "", None, "long enough for two words"]
    assert pairs([pa.array(texts, pa.string())]) == pairs([pa.array(texts, pa.large_string())])
    assert pairs([pa.array([], pa.string())]) == []


def test_hashes_of_many_numbers_spread_over_all_bits() -> None:
    high, low = key_hashes([pa.array(np.arange(20_000))])
    assert len(np.unique(high)) == len(np.unique(low)) == 20_000
    for half in (high, low):
        shares = [((half >> np.uint64(bit)) & np.uint64(1)).mean() for bit in range(64)]
        assert min(shares) > 0.47
        assert max(shares) < 0.53
