"""Metrics and health of a running pipeline, for the HTTP server that the agent has too.

Values are read from the pipeline's status at the moment of the question; nothing is counted here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock import telemetry
from penstock.pipeline.status import PipelineStatus, SinkStatus
from penstock.serve.http import Endpoints

_Numbers = Mapping[tuple[str], float] | Mapping[tuple[()], float] | Mapping[tuple[str, str], float]


class PipelineEndpoints(Endpoints):
    """The pipeline's answers."""

    service = "penstock-pipeline"

    def __init__(self, status: Callable[[], PipelineStatus]) -> None:
        self._status = status
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(StatusCollector(status))

    def checks(self) -> dict[str, dict[str, Any]]:
        status = self._status()
        checks: dict[str, dict[str, Any]] = {"pipeline": {"healthy": status.running}}
        if not status.running:
            checks["pipeline"]["message"] = "not running"
        checks["delivery"] = {"healthy": status.waiting is None}
        if status.waiting is not None:
            checks["delivery"]["message"] = status.waiting
        checks["tables"] = {"healthy": not status.troubles}
        if status.troubles:
            # The others are delivered: whoever restarts what is not healthy would only disturb them.
            checks["tables"]["degraded"] = True
            checks["tables"]["message"] = "; ".join(f"{name}: {one.reason}" for name, one in status.troubles.items())
        return checks

    def metrics(self) -> bytes:
        return generate_latest(self._registry)


class StatusCollector(Collector):
    """Turns one look at the status into metrics."""

    def __init__(self, status: Callable[[], PipelineStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        status = self._status()
        tables, sinks = status.tables.items(), status.sinks.items()
        yield _gauge(telemetry.PIPELINE_RUNNING, "1 while the pipeline runs.", {(): float(status.running)})
        waiting = {(): float(status.waiting is not None)}
        yield _gauge(telemetry.PIPELINE_WAITING, "1 while a batch that failed is tried again.", waiting)
        yield _counter(telemetry.PIPELINE_BATCHES, "Batches that were delivered.", {(): status.batches})
        yield _counter(telemetry.PIPELINE_FAILURES, "Batches that failed.", {(): status.failures})
        yield _gauge(telemetry.PIPELINE_BATCH_SECONDS, "How long the last batch took.", {(): status.batch_ms / 1000})
        yield _counter(
            telemetry.PIPELINE_COPIES,
            "Changes that were read, each as often as nodes had logged it.",
            {(name,): table.copies for name, table in tables},
            ("table",),
        )
        yield _counter(
            telemetry.PIPELINE_RECORDS,
            "Records that the merge made of them.",
            {(name,): table.records for name, table in tables},
            ("table",),
        )
        yield _gauge(
            telemetry.PIPELINE_LAG_SECONDS,
            "How old the newest change was when it was delivered.",
            {(name,): table.lag_ms / 1000 for name, table in tables if table.lag_ms is not None},
            ("table",),
        )
        troubles = {(name, one.error): one.for_s for name, one in status.troubles.items()}
        text = "For how long a table has been left out because of an error that is its own."
        yield _gauge(telemetry.PIPELINE_TROUBLE_SECONDS, text, troubles, ("table", "error"))
        yield _gauge(telemetry.PIPELINE_STATE_ROWS, "Entries that the merge remembers.", {(): status.state_rows})
        yield _gauge(telemetry.PIPELINE_STATE_BYTES, "What they take on disk.", {(): status.state_bytes})
        taken = {(name,): sink.records for name, sink in sinks}
        yield _counter(telemetry.SINK_RECORDS, "Records that the sink took.", taken, ("sink",))
        sent = {(name,): sink.bytes for name, sink in sinks}
        yield _counter(telemetry.SINK_BYTES, "Bytes that the sink took.", sent, ("sink",))
        dead = {(name,): sink.dead for name, sink in sinks}
        yield _counter(telemetry.SINK_DEAD_LETTERS, "Records that the sink will never take.", dead, ("sink",))
        yield from _troubles(sinks)


def _troubles(sinks: Collection[tuple[str, SinkStatus]]) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
    """Targets that are away, and columns that they do not get."""
    retries = {(name,): sink.retries for name, sink in sinks}
    text = "Times that a task tried again because the target was away or busy."
    yield _counter(telemetry.SINK_RETRIES, text, retries, ("sink",))
    down = {(name,): sink.down_s for name, sink in sinks}
    text = "For how long tasks have been waiting for the target; 0 when none does."
    yield _gauge(telemetry.SINK_DOWN_SECONDS, text, down, ("sink",))
    left_out = {(name, table): count for name, sink in sinks for table, count in sink.left_out.items()}
    text = "Columns that the target does not get, because the sink's schema policy is to ignore them."
    yield _gauge(telemetry.SINK_LEFT_OUT, text, left_out, ("sink", "table"))


def _counter(name: str, text: str, numbers: _Numbers, labels: tuple[str, ...] = ()) -> CounterMetricFamily:
    made = CounterMetricFamily(name, text, labels=labels)
    for values, number in numbers.items():
        made.add_metric(values, float(number))
    return made


def _gauge(name: str, text: str, numbers: _Numbers, labels: tuple[str, ...] = ()) -> GaugeMetricFamily:
    made = GaugeMetricFamily(name, text, labels=labels)
    for values, number in numbers.items():
        made.add_metric(values, float(number))
    return made
