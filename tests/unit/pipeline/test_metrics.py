"""Metrics and health of a pipeline, over HTTP as operators ask for them."""

from __future__ import annotations

import httpx
import pytest

from penstock import telemetry
from penstock.pipeline.metrics import PipelineEndpoints
from penstock.pipeline.status import PipelineStatus, SinkStatus, TableStatus, TroubleStatus
from penstock.serve.http import HttpServer
from penstock.settings import HttpSettings

STATUS = PipelineStatus(
    running=True,
    batches=3,
    tables={"shop.orders": TableStatus(copies=30, records=10, lag_ms=250.0)},
    sinks={"kafka": SinkStatus(records=10, bytes=900, dead=1)},
    state_rows=7,
)


def ask(status: PipelineStatus, path: str) -> httpx.Response:
    with HttpServer(HttpSettings(port=0), PipelineEndpoints(lambda: status)) as server:
        return httpx.get(server.address + path)


def test_figures_are_those_of_the_status() -> None:
    lines = ask(STATUS, "/metrics").text.splitlines()
    assert 'penstock_pipeline_read_changes_total{table="shop.orders"} 30.0' in lines
    assert 'penstock_pipeline_records_total{table="shop.orders"} 10.0' in lines
    assert 'penstock_pipeline_lag_seconds{table="shop.orders"} 0.25' in lines
    assert 'penstock_sink_dead_letters_total{sink="kafka"} 1.0' in lines
    assert "penstock_pipeline_state_rows 7.0" in lines
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert names <= set(telemetry.METRICS)


@pytest.mark.parametrize(
    ("status", "code", "check"),
    [
        (STATUS, 200, {"healthy": True}),
        (
            PipelineStatus(running=True, waiting="the broker is away"),
            500,
            {"healthy": False, "message": "the broker is away"},
        ),
    ],
)
def test_health_says_what_the_pipeline_waits_for(status: PipelineStatus, code: int, check: dict[str, object]) -> None:
    answer = ask(status, "/health")
    assert answer.status_code == code
    assert answer.json()["delivery"] == check


def test_table_in_trouble_is_named_and_does_not_make_the_pipeline_a_dead_one() -> None:
    troubles = {"shop.plums": TroubleStatus("CorruptLog", "damage inside the log", 0, for_s=7.0)}
    status = PipelineStatus(running=True, troubles=troubles)
    answer = ask(status, "/health")
    assert answer.status_code == 200
    message = "shop.plums: damage inside the log"
    assert answer.json()["tables"] == {"healthy": False, "degraded": True, "message": message}
    lines = ask(status, "/metrics").text.splitlines()
    assert 'penstock_pipeline_trouble_seconds{error="CorruptLog",table="shop.plums"} 7.0' in lines


def test_build_info_names_the_service() -> None:
    assert ask(STATUS, "/buildinfo").json()["service_name"] == "penstock-pipeline"
