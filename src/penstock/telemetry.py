"""Telemetry: how log events are printed, and the name of every metric.

Library code asks structlog for a logger and names facts as keys; where a process of Spark must be there soon, it takes
`Logger`, because structlog with all that it can print takes longer to import than what plans a batch. Only a process's
entry point calls `set_up_logging`. Events go to standard error, so that standard output holds nothing but data: in
colours on a terminal, as one JSON object per line otherwise. Processes that Spark starts print theirs as JSON, and the
driver that reads them makes them events of its own. Metric names stand here as constants, so that code,
dashboards and alerts agree; a number is counted under its name by whoever owns it, and `serve.metrics` publishes those
of the agent.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    import structlog

# Set in the environment of Spark's processes whose lines are read by a driver.
_RELAYED = "PENSTOCK_RELAYED_LOG"
# Libraries that log each error which they also raise.
_TOLD_TWICE = ("py4j", "cassandra.cluster", "cassandra.connection")
_OF_EVERY_EVENT = ("event", "level", "timestamp", "exc_info")

# Names are penstock_<noun>_<unit>[_total], in base units. Labels are few: `table`, `log`, `subscription`.
APPENDED_CHANGES: Final = "penstock_appended_changes_total"
APPENDED_BYTES: Final = "penstock_appended_bytes_total"
APPEND_SECONDS: Final = "penstock_append_seconds"
SYNC_SECONDS: Final = "penstock_sync_seconds"
LOG_BYTES: Final = "penstock_log_bytes"
LOG_FILES: Final = "penstock_log_files"
DELIVERED_CHANGES: Final = "penstock_delivered_changes_total"
SUBSCRIPTION_LAG_SECONDS: Final = "penstock_subscription_lag_seconds"
SUBSCRIPTION_LAG_BYTES: Final = "penstock_subscription_lag_bytes"
PARKED_CHANGES: Final = "penstock_parked_changes_total"
LOST_CHANGES: Final = "penstock_lost_changes_total"
LISTENER_CLIENTS: Final = "penstock_listener_clients"
CLIENTS_TURNED_AWAY: Final = "penstock_turned_away_clients_total"
# The agent beside a Cassandra node.
AGENT_INFO: Final = "penstock_agent_info"
AGENT_RUNNING: Final = "penstock_agent_running"
AGENT_WAITING: Final = "penstock_agent_waiting"
AGENT_START_SECONDS: Final = "penstock_agent_start_time_seconds"
REPLAY_TABLES: Final = "penstock_replay_tables"
REPLAY_STOPPED_TABLES: Final = "penstock_replay_stopped_tables"
REPLAY_CHANGES: Final = "penstock_replay_changes_total"
REPLAY_BEHIND_ROWS: Final = "penstock_replay_behind_rows"
CASSANDRA_QUERYABLE: Final = "penstock_cassandra_queryable"
COMMIT_LOG_SEGMENT: Final = "penstock_commit_log_segment_id"
COMMIT_LOG_POSITION: Final = "penstock_commit_log_position_bytes"
COMMIT_LOG_SAVED_SEGMENT: Final = "penstock_commit_log_saved_segment_id"
COMMIT_LOG_SAVED_POSITION: Final = "penstock_commit_log_saved_position_bytes"
COMMIT_LOG_MUTATIONS: Final = "penstock_commit_log_mutations_total"
COMMIT_LOG_SKIPPED: Final = "penstock_commit_log_skipped_mutations_total"
COMMIT_LOG_DAMAGED: Final = "penstock_commit_log_damaged_places_total"
COMMIT_LOG_SEGMENTS: Final = "penstock_commit_log_segments_total"
CDC_GAPS: Final = "penstock_cdc_gaps_total"
UNREADABLE_CHECKPOINTS: Final = "penstock_unreadable_checkpoint_files"
PARKED_ENTRIES: Final = "penstock_parked_entries"
PARKED_ENTRIES_TOTAL: Final = "penstock_parked_entries_total"
PARKED_BYTES: Final = "penstock_parked_bytes"
CDC_RAW_BYTES: Final = "penstock_cdc_raw_bytes"
CDC_RAW_LIMIT_BYTES: Final = "penstock_cdc_raw_limit_bytes"
CDC_RAW_SEGMENTS: Final = "penstock_cdc_raw_segments"
CDC_RAW_FOREIGN_FILES: Final = "penstock_cdc_raw_foreign_files"
CAPTURE_LAG_BYTES: Final = "penstock_capture_lag_bytes"
CAPTURE_LAG_SECONDS: Final = "penstock_capture_lag_seconds"
LAST_WRITE_SECONDS: Final = "penstock_last_write_time_seconds"
LAST_CAPTURE_SECONDS: Final = "penstock_last_capture_time_seconds"
# Its snapshots.
SNAPSHOT_RUNNING: Final = "penstock_snapshot_running"
SNAPSHOT_COMPLETED: Final = "penstock_snapshot_completed"
SNAPSHOT_ABORTED: Final = "penstock_snapshot_aborted"
SNAPSHOT_TABLES: Final = "penstock_snapshot_tables"
SNAPSHOT_TABLES_REMAINING: Final = "penstock_snapshot_remaining_tables"
SNAPSHOT_SECONDS: Final = "penstock_snapshot_seconds"
SNAPSHOT_ROWS: Final = "penstock_snapshot_rows_total"
SNAPSHOT_PROGRESS: Final = "penstock_snapshot_progress_ratio"
SNAPSHOT_RETRIES: Final = "penstock_snapshot_retries_total"
# The pipeline.
PIPELINE_RUNNING: Final = "penstock_pipeline_running"
PIPELINE_WAITING: Final = "penstock_pipeline_waiting"
PIPELINE_BATCHES: Final = "penstock_pipeline_batches_total"
PIPELINE_FAILURES: Final = "penstock_pipeline_failures_total"
PIPELINE_BATCH_SECONDS: Final = "penstock_pipeline_batch_seconds"
PIPELINE_COPIES: Final = "penstock_pipeline_read_changes_total"
PIPELINE_RECORDS: Final = "penstock_pipeline_records_total"
PIPELINE_LAG_SECONDS: Final = "penstock_pipeline_lag_seconds"
PIPELINE_TROUBLE_SECONDS: Final = "penstock_pipeline_trouble_seconds"
PIPELINE_STATE_ROWS: Final = "penstock_pipeline_state_rows"
PIPELINE_STATE_BYTES: Final = "penstock_pipeline_state_bytes"
SINK_RECORDS: Final = "penstock_sink_records_total"
SINK_BYTES: Final = "penstock_sink_bytes_total"
SINK_DEAD_LETTERS: Final = "penstock_sink_dead_letters_total"
SINK_RETRIES: Final = "penstock_sink_retries_total"
SINK_DOWN_SECONDS: Final = "penstock_sink_down_seconds"
SINK_LEFT_OUT: Final = "penstock_sink_left_out_columns"

METRICS: Final = (
    APPENDED_CHANGES,
    APPENDED_BYTES,
    APPEND_SECONDS,
    SYNC_SECONDS,
    LOG_BYTES,
    LOG_FILES,
    DELIVERED_CHANGES,
    SUBSCRIPTION_LAG_SECONDS,
    SUBSCRIPTION_LAG_BYTES,
    PARKED_CHANGES,
    LOST_CHANGES,
    LISTENER_CLIENTS,
    CLIENTS_TURNED_AWAY,
    AGENT_INFO,
    AGENT_RUNNING,
    AGENT_WAITING,
    AGENT_START_SECONDS,
    REPLAY_TABLES,
    REPLAY_STOPPED_TABLES,
    REPLAY_CHANGES,
    REPLAY_BEHIND_ROWS,
    CASSANDRA_QUERYABLE,
    COMMIT_LOG_SEGMENT,
    COMMIT_LOG_POSITION,
    COMMIT_LOG_SAVED_SEGMENT,
    COMMIT_LOG_SAVED_POSITION,
    COMMIT_LOG_MUTATIONS,
    COMMIT_LOG_SKIPPED,
    COMMIT_LOG_DAMAGED,
    COMMIT_LOG_SEGMENTS,
    CDC_GAPS,
    UNREADABLE_CHECKPOINTS,
    PARKED_ENTRIES,
    PARKED_ENTRIES_TOTAL,
    PARKED_BYTES,
    CDC_RAW_BYTES,
    CDC_RAW_LIMIT_BYTES,
    CDC_RAW_SEGMENTS,
    CDC_RAW_FOREIGN_FILES,
    CAPTURE_LAG_BYTES,
    CAPTURE_LAG_SECONDS,
    LAST_WRITE_SECONDS,
    LAST_CAPTURE_SECONDS,
    SNAPSHOT_RUNNING,
    SNAPSHOT_COMPLETED,
    SNAPSHOT_ABORTED,
    SNAPSHOT_TABLES,
    SNAPSHOT_TABLES_REMAINING,
    SNAPSHOT_SECONDS,
    SNAPSHOT_ROWS,
    SNAPSHOT_PROGRESS,
    SNAPSHOT_RETRIES,
    PIPELINE_RUNNING,
    PIPELINE_WAITING,
    PIPELINE_BATCHES,
    PIPELINE_FAILURES,
    PIPELINE_BATCH_SECONDS,
    PIPELINE_COPIES,
    PIPELINE_RECORDS,
    PIPELINE_LAG_SECONDS,
    PIPELINE_TROUBLE_SECONDS,
    PIPELINE_STATE_ROWS,
    PIPELINE_STATE_BYTES,
    SINK_RECORDS,
    SINK_BYTES,
    SINK_DEAD_LETTERS,
    SINK_RETRIES,
    SINK_DOWN_SECONDS,
    SINK_LEFT_OUT,
)


class Logger:
    """Stands for `structlog.get_logger()`, and imports it when something is logged."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        import structlog

        set_up_relayed_logging()
        return getattr(structlog.get_logger(), name)


class Form(StrEnum):
    """How a log event is printed: as one JSON object per line, or as a line for eyes."""

    JSON = "json"
    TEXT = "text"


@dataclass(slots=True)
class Notices:
    """What a view shows of the log: how many events were warnings or worse, and what the last one said."""

    count: int = 0
    last: str = ""

    def __call__(self, _logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if logging.getLevelNamesMapping().get(method.upper(), logging.ERROR) >= logging.WARNING:
            self.count += 1
            facts = (f"{name}={value}" for name, value in event.items() if name not in _OF_EVERY_EVENT)
            self.last = " ".join((str(event["event"]), *facts))
        return event


def set_up_logging(
    level: str = "info", stream: TextIO | None = None, form: Form | None = None, notices: Notices | None = None
) -> None:
    """Send log events of this process to `stream` (standard error): console style on a terminal, JSON otherwise.

    Those of libraries that use Python's own logging come with them, warnings of Python's too: a line of another shape
    between ours could not be read by whoever reads ours.
    """
    import structlog

    out = sys.stderr if stream is None else stream
    form = form or (Form.TEXT if out.isatty() else Form.JSON)
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if notices is not None:
        processors.append(notices)
    if form is Form.TEXT:
        colours = out.isatty() and "NO_COLOR" not in os.environ
        processors.append(structlog.dev.ConsoleRenderer(colors=colours))
    else:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    if not any(isinstance(handler, _Foreign) for handler in logging.root.handlers):
        logging.root.addHandler(_Foreign(logging.WARNING))
    logging.captureWarnings(True)


class _Foreign(logging.Handler):
    """Hands on what a library says through Python's own logging."""

    def emit(self, record: logging.LogRecord) -> None:
        import structlog

        level = min(record.levelno // 10 * 10, logging.CRITICAL)
        if record.name.startswith(_TOLD_TWICE):
            level = logging.DEBUG
        facts = {"exc_info": record.exc_info} if record.exc_info else {}
        structlog.get_logger().log(level, record.getMessage().rstrip(), logger=record.name, **facts)


def relayed() -> dict[str, str]:
    """The environment of processes whose lines this one reads."""
    return {_RELAYED: str(os.getpid())}


def set_up_relayed_logging() -> None:
    """In a process of Spark's whose lines a driver of ours reads: print events as it understands them.

    In any other process, and when it was done before, nothing is done.
    """
    # The reader itself has the variable for a moment, when it starts the others.
    if os.environ.get(_RELAYED) not in (None, str(os.getpid())):
        del os.environ[_RELAYED]
        set_up_logging("info", form=Form.JSON)
