"""Runs as rows of Spark and back."""

from __future__ import annotations

import pytest

from penstock.errors import CorruptData
from penstock.formats import avro
from penstock.records import runs
from penstock.records.runs import RUN_SCHEMA, Run
from tests.many_logs import batch, schema_of


def test_runs_come_back_with_their_schema_and_rows() -> None:
    tables = [schema_of("a"), schema_of("b"), schema_of("a")]
    made = [
        Run(schema, f"n{at}", at, 3, memoryview(batch(schema, 10 * at, 3).rows), 7 << 50 | at)
        for at, schema in enumerate(tables)
    ]
    rows = runs.to_arrow(made)
    assert rows.schema.equals(RUN_SCHEMA)
    found = list(runs.from_arrow(rows))
    assert [(run.schema, run.node, run.bucket, run.place, run.count, bytes(run.rows)) for run in found] == [
        (run.schema, run.node, run.bucket, run.place, run.count, bytes(run.rows)) for run in made
    ]
    assert [change.key["id"] for change in avro.decode(found[1].batch())] == [10, 11, 12]
    assert rows.column("table").to_pylist() == ["a", "b", "a"]


def test_a_schema_is_parsed_once_per_text() -> None:
    rows = runs.to_arrow([Run(schema_of("a"), "n", at, 1, b"") for at in range(2)])
    first, second = runs.from_arrow(rows)
    assert first.schema is second.schema


def test_no_runs_are_no_rows() -> None:
    assert list(runs.from_arrow(runs.to_arrow([]))) == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"keyspace": "k"}'])
def test_a_schema_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CorruptData, match="schema is not readable"):
        runs.schema_of(text)
