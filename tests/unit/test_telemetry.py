"""Telemetry: log events reach standard error in the right shape, and metric names follow the rules."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from penstock import telemetry


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_events_are_json_lines_when_nobody_watches() -> None:
    out = io.StringIO()
    telemetry.set_up_logging("info", out)
    structlog.get_logger().info("file begun", table="shop.orders", number=2)
    structlog.get_logger().debug("not shown")
    (event,) = map(json.loads, out.getvalue().splitlines())
    assert event.pop("timestamp").endswith("Z")
    assert event == {"event": "file begun", "level": "info", "table": "shop.orders", "number": 2}


def test_events_are_readable_lines_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    telemetry.set_up_logging("debug", out)
    structlog.get_logger().debug("file begun", number=2)
    assert re.search(r"\[debug +\] file begun +number=2", out.getvalue())
    assert "\x1b" not in out.getvalue()


def test_metric_names_have_prefix_and_base_unit() -> None:
    constants = {value for name, value in vars(telemetry).items() if name.isupper() and isinstance(value, str)}
    assert constants == set(telemetry.METRICS)
    units = "bytes|bytes_total|seconds|ratio|id|info"
    things = "changes_total|files|clients|segments|segments_total|mutations_total|places_total|entries|entries_total"
    things += "|tables|rows|rows_total|retries_total|batches_total|failures_total|records_total|letters_total|columns"
    things += "|clients_total|gaps_total"
    states = "running|waiting|queryable|completed|aborted"
    for name in telemetry.METRICS:
        assert re.fullmatch(rf"penstock_[a-z_]+?_({units}|{things}|{states})", name), name


def test_what_is_logged_reaches_structlog_when_it_was_not_imported_before() -> None:
    with capture_logs() as said:
        telemetry.Logger().warning("damage skipped", offset=7)
    assert said == [{"event": "damage skipped", "log_level": "warning", "offset": 7}]
