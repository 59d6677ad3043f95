"""The logger that imports structlog when it is needed."""

from __future__ import annotations

from structlog.testing import capture_logs

from penstock.system.logger import Logger


def test_what_is_logged_reaches_structlog() -> None:
    with capture_logs() as said:
        Logger().warning("damage skipped", offset=7)
    assert said == [{"event": "damage skipped", "log_level": "warning", "offset": 7}]
