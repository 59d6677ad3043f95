"""Telemetry: log events reach standard error in the right shape, and metric names follow the rules."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
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
    before, handlers = structlog.get_config(), list(logging.root.handlers)
    yield
    structlog.configure(**before)
    logging.root.handlers[:] = handlers
    logging.captureWarnings(False)


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


def test_a_form_that_was_asked_for_wins_over_where_the_log_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    text, terminal = io.StringIO(), Terminal()
    telemetry.set_up_logging("info", text, telemetry.Form.TEXT)
    structlog.get_logger().info("file begun", number=2)
    assert re.search(r"\[info +\] file begun +number=2", text.getvalue())
    assert "\x1b" not in text.getvalue()
    telemetry.set_up_logging("info", terminal, telemetry.Form.JSON)
    structlog.get_logger().info("file begun")
    assert json.loads(terminal.getvalue())["event"] == "file begun"


def test_what_libraries_log_and_python_warns_of_has_the_same_shape() -> None:
    out = io.StringIO()
    for _ in range(2):
        telemetry.set_up_logging("info", out)
    logging.getLogger("library.pool").warning("host %s is down", "n1")
    logging.getLogger("library.pool").info("not shown")
    # What these say of errors they also raise.
    logging.getLogger("py4j.clientserver").error("not shown")
    logging.getLogger("cassandra.cluster").error("not shown")
    try:
        raise ValueError("of a library")
    except ValueError:
        logging.getLogger("asyncio").exception("never retrieved")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old", UserWarning, stacklevel=1)
    first, second, third = map(json.loads, out.getvalue().splitlines())
    assert (first["event"], first["level"], first["logger"]) == ("host n1 is down", "warning", "library.pool")
    assert (second["event"], second["level"]) == ("never retrieved", "error")
    assert "ValueError: of a library" in second["exception"]
    assert "UserWarning: old" in third["event"]


def test_notices_count_warnings_and_keep_the_last() -> None:
    notices = telemetry.Notices()
    telemetry.set_up_logging("info", io.StringIO(), notices=notices)
    logger = structlog.get_logger()
    logger.warning("batch failed", again_in_s=1)
    logger.error("batch given up", batch=7)
    logger.info("going on")
    assert (notices.count, notices.last) == (2, "batch given up batch=7")


def test_a_process_of_sparks_prints_what_its_driver_understands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.reset_defaults()
    ((name, reader),) = telemetry.relayed().items()
    # The reader's own log stays as it is.
    monkeypatch.setenv(name, reader)
    telemetry.set_up_relayed_logging()
    assert not structlog.is_configured()
    monkeypatch.setenv(name, f"{reader}0")
    telemetry.Logger().warning("changes lost", table="shop.orders")
    event = json.loads(capsys.readouterr().err)
    assert (event["event"], event["level"], event["table"]) == ("changes lost", "warning", "shop.orders")


def test_metric_names_have_prefix_and_base_unit() -> None:
    public = {name: value for name, value in vars(telemetry).items() if not name.startswith("_")}
    constants = {value for name, value in public.items() if name.isupper() and isinstance(value, str)}
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
