"""Comparison: exactly the rows that differ are named, however they are spread and ordered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.compare.comparison import Difference, Kind, compare
from penstock.compare.spelling import Spelling
from penstock.errors import InvalidInput

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string())), ("x", pa.float64())])


class Rows:
    """Some rows in batches of a few."""

    def __init__(self, name: str, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA, step: int = 3) -> None:
        self.name = name
        self._rows = rows
        self._schema = schema
        self._step = step

    def key(self) -> Sequence[str]:
        return ["id"]

    def spelled(self) -> Mapping[str, Spelling]:
        return {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self._rows), self._step):
            yield pa.RecordBatch.from_pylist(self._rows[start : start + self._step], self._schema)


def row(number: int, name: str = "a", tags: list[str] | None = None, x: float | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "tags": tags, "x": x}


def found(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> set[tuple[Kind, str]]:
    report = compare(Rows("source", source), Rows("target", target), ranges=4)
    assert (report.source_rows, report.target_rows) == (len(source), len(target))
    assert sum(report.counts.values()) == len(report.differences)
    return {(difference.kind, difference.key) for difference in report.differences}


def test_same_rows_in_another_order_are_the_same() -> None:
    rows = [row(number, tags=["x"], x=float("nan")) for number in range(50)]
    assert found(rows, rows[::-1]) == set()


@given(
    st.dictionaries(st.integers(0, 60), st.tuples(st.sampled_from("abc"), st.sampled_from([None, 1.5, float("nan")]))),
    st.dictionaries(st.integers(0, 60), st.tuples(st.sampled_from("abc"), st.sampled_from([None, 1.5, float("nan")]))),
)
def test_differences_are_those_of_two_dictionaries(
    ours: dict[int, tuple[str, float | None]], theirs: dict[int, tuple[str, float | None]]
) -> None:
    expected = {(Kind.MISSING, f"[{key}]") for key in ours.keys() - theirs.keys()}
    expected |= {(Kind.EXTRA, f"[{key}]") for key in theirs.keys() - ours.keys()}
    expected |= {
        (Kind.DIFFERENT, f"[{key}]") for key in ours.keys() & theirs.keys() if repr(ours[key]) != repr(theirs[key])
    }
    rows = [[row(key, name, x=x) for key, (name, x) in side.items()] for side in (ours, theirs)]
    assert found(*rows) == expected


def test_columns_that_differ_are_named() -> None:
    report = compare(Rows("s", [row(1, "a", ["x"])]), Rows("t", [row(1, "b", ["y"])]))
    assert report.differences == [Difference(Kind.DIFFERENT, "[1]", ("name", "tags"))]
    assert report.ranges_different == 1
    assert not report.same


def test_row_that_the_target_has_twice_is_one_too_many() -> None:
    report = compare(Rows("s", [row(1), row(2)]), Rows("t", [row(1), row(1), row(2)]))
    assert [(d.kind, d.key) for d in report.differences] == [(Kind.EXTRA, "[1]")]


def test_differences_beyond_the_limit_are_counted_only() -> None:
    report = compare(Rows("s", [row(number) for number in range(20)]), Rows("t", []), keep=5)
    assert report.counts[Kind.MISSING] == 20
    assert len(report.differences) == 5


def test_wider_columns_of_the_target_are_no_difference_and_a_missing_one_is_refused() -> None:
    wide = pa.schema([("extra", pa.string()), *[SCHEMA.field(name) for name in ("x", "tags", "name", "id")]])
    assert compare(Rows("s", [row(1)]), Rows("t", [row(1)], wide)).same
    with pytest.raises(InvalidInput, match="t has no column x"):
        compare(Rows("s", [row(1)]), Rows("t", [row(1)], pa.schema([SCHEMA.field(n) for n in ("id", "name", "tags")])))
