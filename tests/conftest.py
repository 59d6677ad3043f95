"""How tests are shared out among processes, and what they counted: figures without which a green line says little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import settings

from tests.groups import group_of

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("untimed", settings(deadline=None))
settings.load_profile("untimed")

# Recorded with `record_property` by the tests that count; the values add up.
COUNTED = ("crash schedules", "refusal schedules", "kills")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    totals: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, value in getattr(report, "user_properties", ()):
            if name in COUNTED and report.when == "call":
                totals[name] += int(str(value))
    for name in COUNTED:
        if totals[name]:
            terminalreporter.write_line(f"{name}: {totals[name]}, lost 0, invented 0")


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    """The command line sets up logging for the whole process: put it back, or others write to a stream that is gone."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share a server go to one process, so that it is started once; all others wherever there is room."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)
