"""Telemetry: how log events are printed, and the name of every metric.

Library code asks structlog for a logger and names facts as keys; only a process's entry point calls `set_up_logging`.
Events go to standard error, so that standard output holds nothing but data: in colours on a terminal, as one JSON
object per line otherwise. Metric names stand here as constants, so that code, dashboards and alerts agree; a number
is counted under its name by whoever owns it, and no server publishes them yet.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final, TextIO

import structlog

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
)


def set_up_logging(level: str = "info", stream: TextIO | None = None) -> None:
    """Send log events of this process to `stream` (standard error): console style on a terminal, JSON otherwise."""
    out = sys.stderr if stream is None else stream
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if out.isatty():
        processors.append(structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ))
    else:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
