"""Metrics of an agent, for Prometheus.

A list says for each metric its name, its meaning, where in the agent's status its value stands, and what Debezium calls
it over JMX; docs/reference/metrics.md is made from it. Values are read from the status at the moment of the question:
nothing is counted here, so no number can disagree with what health and the command line show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

import penstock
from penstock import telemetry
from penstock.capture.cassandra.agent.status import CassandraStatus
from penstock.capture.cassandra.segments.segment import segment_name
from penstock.capture.cassandra.snapshot.status import SnapshotStatus
from penstock.capture.status import AgentStatus, SourceStatus
from penstock.log.subscriptions import SubscriptionState
from penstock.log.survey import LogFigures
from penstock.system.timing import BOUNDS_S, Durations

# One number, or numbers by their labels' values, or durations. None: not known, and then there is no such line.
Value = float | int | bool | Mapping[tuple[str, ...], float | int] | Durations | None
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `debezium` is the attribute of Debezium's MBeans that says the same."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    read: Callable[[AgentStatus], Value]
    labels: tuple[str, ...] = ()
    debezium: str = ""


def _segment_id(name: str | None) -> int | None:
    found = None if name is None else segment_name(name)
    return None if found is None else found.id


def _seconds(time_us: int | None) -> float | None:
    return None if time_us is None else time_us / 1e6


def _by_table(numbers: Mapping[str, int]) -> dict[tuple[str, ...], float | int]:
    return {(table,): number for table, number in numbers.items()}


def _of_logs(read: Callable[[LogFigures], float | int | None]) -> Callable[[AgentStatus], Value]:
    def found(status: AgentStatus) -> Value:
        numbers = {(name,): read(figures) for name, figures in status.logs.items()}
        return {labels: number for labels, number in numbers.items() if number is not None}

    return found


def _of_subscriptions(
    read: Callable[[SubscriptionState, AgentStatus], float | int | None],
) -> Callable[[AgentStatus], Value]:
    def found(status: AgentStatus) -> Value:
        numbers = {
            (name, one.name): read(one, status)
            for name, figures in status.logs.items()
            for one in figures.subscriptions
        }
        return {labels: number for labels, number in numbers.items() if number is not None}

    return found


def _info(status: AgentStatus) -> Value:
    return {(status.node, status.data_centre, penstock.__version__): 1}


def _of_cassandra(read: Callable[[CassandraStatus], Value]) -> Callable[[AgentStatus], Value]:
    """What only an agent beside a Cassandra node has."""

    def found(status: AgentStatus) -> Value:
        return read(status) if isinstance(status, CassandraStatus) else None

    return found


def _segments(status: CassandraStatus) -> Value:
    return {
        ("done",): status.segments_done,
        ("failed",): status.segments_failed,
        ("lost",): status.segments_lost,
    }


def _figure(name: str) -> Callable[[AgentStatus], Value]:
    """What a source counts under this name."""

    def found(status: AgentStatus) -> Value:
        return status.figures.get(name) if isinstance(status, SourceStatus) else None

    return found


def _of_snapshot(read: Callable[[SnapshotStatus], Value]) -> Callable[[AgentStatus], Value]:
    def found(status: AgentStatus) -> Value:
        return read(status.snapshot) if isinstance(status.snapshot, SnapshotStatus) else None

    return found


METRICS: Final = (
    Metric(
        telemetry.AGENT_INFO, "gauge", "Always 1; the labels say who runs.", _info, ("node", "data_centre", "version")
    ),
    Metric(
        telemetry.AGENT_RUNNING,
        "gauge",
        "1 while the source is being read.",
        lambda s: s.running,
    ),
    Metric(
        telemetry.AGENT_WAITING,
        "gauge",
        "1 while the agent waits for something other than writes, such as room on the disk.",
        lambda s: s.waiting is not None,
    ),
    Metric(
        telemetry.AGENT_START_SECONDS, "gauge", "When the agent was started.", lambda s: _seconds(s.started_time_us)
    ),
    Metric(
        telemetry.REPLAY_TABLES,
        "gauge",
        "Tables whose logs are captured again.",
        _figure(telemetry.REPLAY_TABLES),
    ),
    Metric(
        telemetry.REPLAY_STOPPED_TABLES,
        "gauge",
        "Tables whose logs cannot be read on; health names each with the reason.",
        _figure(telemetry.REPLAY_STOPPED_TABLES),
    ),
    Metric(
        telemetry.REPLAY_CHANGES,
        "counter",
        "Changes that were read from the logs, also those that had been captured before a crash.",
        _figure(telemetry.REPLAY_CHANGES),
    ),
    Metric(
        telemetry.REPLAY_BEHIND_ROWS,
        "gauge",
        "Changes that the logs had at the last look and that were not read yet.",
        _figure(telemetry.REPLAY_BEHIND_ROWS),
    ),
    Metric(
        telemetry.CASSANDRA_QUERYABLE,
        "gauge",
        "1 when the node answered over CQL, 0 when it did not; missing when it was never asked.",
        _of_cassandra(lambda s: s.queryable),
    ),
    Metric(
        telemetry.COMMIT_LOG_SEGMENT,
        "gauge",
        "The number in the name of the segment that is being read.",
        _of_cassandra(lambda s: _segment_id(s.segment)),
        debezium="CommitLogFilename",
    ),
    Metric(
        telemetry.COMMIT_LOG_POSITION,
        "gauge",
        "The position reached in that segment; -1 when there is none.",
        _of_cassandra(lambda s: s.position),
        debezium="CommitLogPosition",
    ),
    Metric(
        telemetry.COMMIT_LOG_SAVED_SEGMENT,
        "gauge",
        "The number of the segment from which the agent would go on after a crash.",
        _of_cassandra(lambda s: _segment_id(s.saved_segment)),
    ),
    Metric(
        telemetry.COMMIT_LOG_SAVED_POSITION,
        "gauge",
        "The position in that segment; -1 when there is none.",
        _of_cassandra(lambda s: s.saved_position),
    ),
    Metric(
        telemetry.COMMIT_LOG_MUTATIONS,
        "counter",
        "Mutations that were read.",
        _of_cassandra(lambda s: s.mutations),
        debezium="NumberOfProcessedMutations",
    ),
    Metric(
        telemetry.COMMIT_LOG_SKIPPED,
        "counter",
        "Mutations of tables that are not captured.",
        _of_cassandra(lambda s: s.skipped),
    ),
    Metric(
        telemetry.COMMIT_LOG_DAMAGED,
        "counter",
        "Damaged places in segments that were left out; each is named in the agent's own log.",
        _of_cassandra(lambda s: s.damaged),
        debezium="NumberOfUnrecoverableErrors",
    ),
    Metric(
        telemetry.COMMIT_LOG_SEGMENTS,
        "counter",
        "Segments that are finished: done, failed (damaged or unreadable) or lost (gone before they were read).",
        _of_cassandra(_segments),
        ("outcome",),
    ),
    Metric(
        telemetry.APPENDED_CHANGES,
        "counter",
        "Changes that were made durable in the table's log.",
        lambda s: _by_table(s.table_changes),
        ("table",),
    ),
    Metric(telemetry.APPENDED_BYTES, "counter", "Bytes that were appended to the logs.", lambda s: s.appended_bytes),
    Metric(
        telemetry.APPEND_SECONDS,
        "histogram",
        "How long batches of changes took until they were durable in a log.",
        lambda s: s.append_durations,
    ),
    Metric(
        telemetry.SYNC_SECONDS,
        "histogram",
        "How long the disk took to sync a block.",
        lambda s: s.sync_durations,
    ),
    Metric(
        telemetry.LOG_BYTES,
        "gauge",
        "Size of the log's data files.",
        _of_logs(lambda one: one.bytes),
        ("log",),
    ),
    Metric(telemetry.LOG_FILES, "gauge", "Data files of the log.", _of_logs(lambda one: one.files), ("log",)),
    Metric(
        telemetry.DELIVERED_CHANGES,
        "counter",
        "Changes that the subscription has committed, from the log's first on; it falls when one is rewound.",
        _of_subscriptions(lambda one, _: one.delivered),
        ("log", "subscription"),
    ),
    Metric(
        telemetry.SUBSCRIPTION_LAG_SECONDS,
        "gauge",
        "Age of the first change that the subscription has not committed; 0 when there is none.",
        _of_subscriptions(lambda one, status: one.lag_s(status.time_us)),
        ("log", "subscription"),
    ),
    Metric(
        telemetry.SUBSCRIPTION_LAG_BYTES,
        "gauge",
        "Bytes of the log that the subscription has not committed.",
        _of_subscriptions(lambda one, _: one.behind_bytes),
        ("log", "subscription"),
    ),
    Metric(
        telemetry.LOST_CHANGES,
        "counter",
        "Changes that caps of retention took before the subscription committed them; without a name: there was none.",
        lambda s: {(log, subscription): count for (log, subscription), count in s.lost_changes.items()},
        ("log", "subscription"),
    ),
    Metric(
        telemetry.PARKED_CHANGES,
        "counter",
        "Changes that the log's filter could not judge, from the log's first on.",
        _of_logs(lambda one: one.parked),
        ("log",),
    ),
    Metric(
        telemetry.LISTENER_CLIENTS,
        "gauge",
        "Clients that are connected to the listener; missing when the agent does not listen.",
        lambda s: s.listener_clients,
    ),
    Metric(
        telemetry.PARKED_ENTRIES_TOTAL,
        "counter",
        "Entries that had to wait for their table's definition.",
        _of_cassandra(lambda s: s.parked),
    ),
    Metric(telemetry.PARKED_ENTRIES, "gauge", "Entries that still wait.", _of_cassandra(lambda s: s.parked_waiting)),
    Metric(
        telemetry.PARKED_BYTES,
        "gauge",
        "Bytes on disk of the entries that wait.",
        _of_cassandra(lambda s: s.parked_bytes),
    ),
    Metric(
        telemetry.CDC_GAPS,
        "counter",
        "How often a table had CDC off for a while; its log lacks what was written then.",
        _of_cassandra(lambda s: _by_table(s.cdc_gaps)),
        ("table",),
    ),
    Metric(
        telemetry.UNREADABLE_CHECKPOINTS,
        "gauge",
        "Checkpoints of subscriptions that cannot be read; they hold files back until a cap of retention takes them.",
        lambda s: _by_table(s.unreadable_checkpoints),
        ("log",),
    ),
    Metric(
        telemetry.CDC_RAW_BYTES,
        "gauge",
        "Bytes of the files in cdc_raw.",
        _of_cassandra(lambda s: s.cdc_raw_bytes),
        debezium="CdcDirectoryTotalBytes",
    ),
    Metric(
        telemetry.CDC_RAW_LIMIT_BYTES,
        "gauge",
        "The node's limit for cdc_raw; at it, the node refuses writes.",
        _of_cassandra(lambda s: s.cdc_raw_bytes_max),
    ),
    Metric(telemetry.CDC_RAW_SEGMENTS, "gauge", "Segments in cdc_raw.", _of_cassandra(lambda s: s.cdc_raw_segments)),
    Metric(
        telemetry.CDC_RAW_FOREIGN_FILES,
        "gauge",
        "Files in cdc_raw that do not belong there.",
        _of_cassandra(lambda s: s.foreign_files),
    ),
    Metric(
        telemetry.CAPTURE_LAG_BYTES,
        "gauge",
        "Bytes of segments that wait behind the one being read.",
        lambda s: s.lag_bytes,
    ),
    Metric(
        telemetry.CAPTURE_LAG_SECONDS,
        "gauge",
        "Age of the oldest write that was seen and is not durable in its table's log yet.",
        lambda s: s.lag_s,
    ),
    Metric(
        telemetry.LAST_WRITE_SECONDS,
        "gauge",
        "Write time of the newest change that was captured.",
        lambda s: _seconds(s.last_write_time_us),
    ),
    Metric(
        telemetry.LAST_CAPTURE_SECONDS,
        "gauge",
        "When the newest change was captured.",
        lambda s: _seconds(s.last_capture_time_us),
    ),
    Metric(
        telemetry.SNAPSHOT_RUNNING,
        "gauge",
        "1 while a snapshot is being taken.",
        _of_snapshot(lambda s: s.running),
        debezium="SnapshotRunning",
    ),
    Metric(
        telemetry.SNAPSHOT_COMPLETED,
        "gauge",
        "1 when every table's snapshot is done.",
        _of_snapshot(lambda s: s.completed),
        debezium="SnapshotCompleted",
    ),
    Metric(
        telemetry.SNAPSHOT_ABORTED,
        "gauge",
        "1 when the last snapshot was given up.",
        _of_snapshot(lambda s: s.aborted),
        debezium="SnapshotAborted",
    ),
    Metric(
        telemetry.SNAPSHOT_TABLES,
        "gauge",
        "Tables that the snapshot has to copy.",
        _of_snapshot(lambda s: s.tables_total),
        debezium="TotalTableCount",
    ),
    Metric(
        telemetry.SNAPSHOT_TABLES_REMAINING,
        "gauge",
        "Tables that it has yet to copy.",
        _of_snapshot(lambda s: s.tables_remaining),
        debezium="RemainingTableCount",
    ),
    Metric(
        telemetry.SNAPSHOT_SECONDS,
        "gauge",
        "How long the snapshot has taken so far.",
        _of_snapshot(lambda s: s.duration_s),
        debezium="SnapshotDurationInSeconds",
    ),
    Metric(
        telemetry.SNAPSHOT_ROWS,
        "counter",
        "Rows that were read from the table.",
        _of_snapshot(lambda s: _by_table(s.rows)),
        ("table",),
        debezium="RowsScanned",
    ),
    Metric(
        telemetry.SNAPSHOT_PROGRESS,
        "gauge",
        "The part of the table that is done, from 0 to 1.",
        _of_snapshot(lambda s: {(str(table.table),): table.fraction for table in s.tables}),
        ("table",),
    ),
    Metric(
        telemetry.SNAPSHOT_RETRIES,
        "counter",
        "How often the snapshot had to wait and try again.",
        _of_snapshot(lambda s: s.retries),
    ),
)


class StatusCollector(Collector):
    """Turns one look at the status into metrics."""

    def __init__(self, status: Callable[[], AgentStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Family]:
        """Called by the registry for each question."""
        status = self._status()
        for metric in METRICS:
            value = metric.read(status)
            if value is not None:
                yield _family(metric, value)


def _family(metric: Metric, value: Value) -> Family:
    """One metric with its value, for the registry."""
    if isinstance(value, Durations):
        counts = accumulate(value.counts)
        bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
        steps = [(bound, float(count)) for bound, count in zip(bounds, counts, strict=True)]
        return HistogramMetricFamily(metric.name, metric.help, buckets=steps, sum_value=value.total_s)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    made = kind(metric.name, metric.help, labels=metric.labels)
    assert value is not None
    numbers = value if isinstance(value, Mapping) else {(): value}
    for labels, number in numbers.items():
        made.add_metric(labels, float(number))
    return made


class AgentMetrics:
    """The metrics of one agent, as text. Each has a registry of its own, so that two agents in one process differ."""

    def __init__(self, status: Callable[[], AgentStatus]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(StatusCollector(status))

    def text(self) -> bytes:
        """All of them now, in Prometheus's text format."""
        return generate_latest(self._registry)
