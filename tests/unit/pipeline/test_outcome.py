"""Outcomes cross from tasks to the driver, and errors stay what they were."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import Row

from penstock.errors import CorruptLog, DeliveryFailed, PenstockError, SchemaRefused
from penstock.pipeline import outcome
from penstock.pipeline.outcome import Outcome
from penstock.pipeline.spark_errors import java_gone, penstock_error
from penstock.pipeline.status import StatusBoard


def test_outcomes_are_the_same_after_their_way() -> None:
    given = [Outcome(0, "sink", "kafka", 3, 99, b"\x00payload"), Outcome(1, "state", "f.arrow", 1, 2, b"")]
    table = pa.Table.from_batches([outcome.to_arrow(given)])
    assert list(outcome.from_arrow(table)) == given
    assert list(outcome.from_arrow(pa.Table.from_batches([outcome.to_arrow([])]))) == []


def test_outcomes_are_the_same_as_rows_of_spark() -> None:
    given = [Outcome(0, "sink", "kafka", 3, 99, b"\x00payload"), Outcome(1, "state", "f.arrow", 1, 2, b"")]
    # Spark gives bytes that can be changed.
    rows = [Row(**{**asdict(one), "data": bytearray(one.data)}) for one in given]
    assert list(outcome.from_arrow(outcome.from_spark(rows))) == given
    assert list(outcome.from_arrow(outcome.from_spark([]))) == []
    assert outcome.spark_schema().names == outcome.SCHEMA.names


def test_error_of_a_task_is_raised_on_the_driver_as_what_it_was() -> None:
    row = outcome.failure(3, SchemaRefused("no such column", table="shop.orders", column="total"))
    with pytest.raises(SchemaRefused, match="no such column") as raised:
        outcome.raise_failures([Outcome(0, "table", "x"), row])
    assert raised.value.place == {"table": "shop.orders", "column": "total"}
    outcome.raise_failures([Outcome(0, "table", "x")])


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "[PYTHON_ERROR] Traceback:\n  File x\npenstock.errors.CorruptLog: damage inside (file a.avro)\n SQL",
            CorruptLog,
            "damage inside (file a.avro)",
        ),
        ("penstock.errors.StorageError: one\n\npenstock.errors.SchemaRefused: two\n", SchemaRefused, "two"),
    ],
)
def test_errors_are_found_in_what_spark_says(text: str, kind: type[PenstockError], message: str) -> None:
    found = penstock_error(RuntimeError(text))
    assert type(found) is kind
    assert str(found) == message


def test_other_errors_are_not_made_into_ours() -> None:
    assert penstock_error(RuntimeError("penstock.errors.Nothing: x")) is None
    assert penstock_error(RuntimeError("java.lang.OutOfMemoryError")) is None
    own = DeliveryFailed("x")
    assert penstock_error(own) is own


class Session:
    """What is left of Spark's session for these tests; it is its own configuration."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.conf = self

    def get(self, *_: str | None) -> str:
        if self._error is not None:
            raise self._error
        return "UTC"


@pytest.mark.parametrize(
    ("error", "gone"), [(None, False), (ConnectionRefusedError(), True), (Py4JNetworkError(), True), (OSError(), False)]
)
def test_session_whose_java_has_died_is_known(error: Exception | None, gone: bool) -> None:
    session: Any = Session(error)
    assert java_gone(session) is gone


def test_status_adds_up_what_batches_did() -> None:
    board = StatusBoard()
    board.began()
    facts = json.dumps({"newest_us": 1_000_000}).encode()
    rows = [
        Outcome(0, "table", "shop.a", 2, 6, facts),
        Outcome(1, "table", "shop.a", 1, 3, json.dumps({"newest_us": None}).encode()),
        Outcome(0, "sink", "delta", 3, 100),
        Outcome(0, "dead", "delta", 1, 10),
    ]
    board.failed("kafka is away")
    assert board.read().waiting == "kafka is away"
    board.delivered(4, rows, 0.5, 3_000_000)
    board.holds(7, 70)
    board.delivered(5, rows[:1], 0.25, 3_000_000)
    status = board.read()
    assert (status.batch, status.batches, status.batch_ms, status.waiting) == (5, 2, 250.0, None)
    assert (status.records, status.copies, status.failures) == (5, 15, 1)
    assert status.tables["shop.a"].lag_ms == 2000.0
    assert (status.sinks["delta"].records, status.sinks["delta"].dead) == (3, 1)
    assert (status.state_rows, status.state_bytes) == (7, 70)
    board.ended()
    assert not board.read().running
